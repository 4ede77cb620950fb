/* Stand-ins for libnvidia-ml.so.1 and libcuda.so.1 that answer from a JSON scenario, so that
 * pynvml and our probe run for real. Compiled twice: with -DCUDA it is libcuda.
 *
 * FAKE_DRIVER in the environment names the scenario's file:
 *   {"driver": "550.54.15", "cuda": 12040, "errors": {"nvmlInitWithFlags": 18},
 *    "devices": [{"uuid": "GPU-…", …, "errors": {"nvmlDeviceGetName": "crash", "*": 15}}],
 *    "ancestor": 10, "p2p": [[0, 0], [0, 0]],
 *    "cuInit": 802, "cuda_devices": ["GPU-…"]}
 * A value that is not there is "not supported". An error is a number, "crash" (SIGSEGV) or
 * "hang"; "*" stands for every call about that device. A matrix may be one number for all.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int result;
typedef const char *json;
typedef unsigned long long wide;
enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

/* --- a walk through JSON text: no tree is built, each question reads it anew */

static json scenario(void) {
    static char *text;
    if (!text) {
        FILE *file = fopen(getenv("FAKE_DRIVER") ? getenv("FAKE_DRIVER") : "/dev/null", "r");
        text = calloc(1, 1 << 20);
        if (file) { if (!fread(text, 1, (1 << 20) - 1, file)) text[0] = 0; fclose(file); }
    }
    return text;
}
static json blank(json p) { while (*p && strchr(" \t\r\n", *p)) p++; return p; }
static json string_end(json p) {
    for (p++; *p && *p != '"'; p++) if (*p == '\\') p++;
    return *p ? p + 1 : p;
}
static json skip(json p) {
    int depth = 0;
    do {
        p = blank(p);
        if (*p == '"') p = string_end(p);
        else if (*p == '{' || *p == '[') { depth++; p++; }
        else if (*p == '}' || *p == ']') { depth--; p++; }
        else if (*p == ',' || *p == ':') p++;
        else while (*p && !strchr(",:]} \t\r\n", *p)) p++;
    } while (depth > 0 && *p);
    return p;
}
static json member(json p, const char *key) {
    size_t size = strlen(key);
    if (!p || *(p = blank(p)) != '{') return NULL;
    for (p = blank(p + 1); *p == '"';) {
        json name = p + 1, end = string_end(p), value = blank(blank(end) + 1);
        if ((size_t)(end - 1 - name) == size && !strncmp(name, key, size))
            return strncmp(value, "null", 4) ? value : NULL;
        p = blank(skip(value));
        if (*p == ',') p = blank(p + 1);
    }
    return NULL;
}
static json element(json p, int index) {
    if (!p || *(p = blank(p)) != '[') return NULL;
    for (p = blank(p + 1); *p && *p != ']'; index--) {
        if (index == 0) return p;
        p = blank(skip(p));
        if (*p == ',') p = blank(p + 1);
    }
    return NULL;
}
static int length(json p) { int n = 0; while (element(p, n)) n++; return n; }
static wide integer(json p) { return strncmp(p, "true", 4) ? strtoull(p, NULL, 0) : 1; }
static void copy(json p, char *out, size_t size) {
    size_t n = string_end(p) - p - 2;
    snprintf(out, size, "%.*s", (int)n, p + 1);
}

/* --- what every call does first */

static result misfortune(json errors, const char *call) {
    json error = member(errors, call);
    if (!error) error = member(errors, "*");
    if (!error) return OK;
    if (!strncmp(error, "\"crash", 6)) raise(SIGSEGV);
    if (!strncmp(error, "\"hang", 5)) for (;;) pause();
    return (result)integer(error);
}

#ifdef CUDA
typedef struct { unsigned char bytes[16]; } uuid;

result cuInit(unsigned flags) {
    json code = member(scenario(), "cuInit");
    (void)flags;
    result bad = misfortune(member(scenario(), "errors"), "cuInit");
    return bad ? bad : code ? (result)integer(code) : 0;
}
result cuDriverGetVersion(int *version) {
    json value = member(scenario(), "cuda");
    *version = value ? (int)integer(value) : 0;
    return 0;
}
result cuDeviceGetCount(int *count) {
    *count = length(member(scenario(), "cuda_devices"));
    return 0;
}
result cuDeviceGet(int *device, int index) { *device = index; return 0; }
result cuDeviceGetUuid_v2(uuid *out, int device) {
    char text[80];
    copy(element(member(scenario(), "cuda_devices"), device), text, sizeof text);
    const char *digit = strchr(text, '-');
    for (int n = 0; n < 16; n++) {
        while (digit && *digit == '-') digit++;
        unsigned byte = 0;
        if (digit && sscanf(digit, "%2x", &byte) == 1) digit += 2;
        out->bytes[n] = (unsigned char)byte;
    }
    return 0;
}
#else

/* Handles: 1 + index for a GPU, 1000 * (1 + index) + 1 + index of the slice for a MIG device. */
static json find(void *handle) {
    long number = (long)handle;
    json devices = member(scenario(), "devices");
    if (number < 1000) return element(devices, (int)number - 1);
    json parent = element(devices, (int)(number / 1000) - 1);
    return element(member(parent, "mig_devices"), (int)(number % 1000) - 1);
}
static result ask(const char *call, void *handle, const char *key, json *value) {
    json device = find(handle);
    if (!device) return INVALID_ARGUMENT;
    result bad = misfortune(member(device, "errors"), call);
    if (bad) return bad;
    *value = member(device, key);
    return *value ? OK : NOT_SUPPORTED;
}

#define NUMBER(call, key, type) \
    result call(void *handle, type *out) { \
        json value; result bad = ask(#call, handle, key, &value); \
        if (!bad) *out = (type)integer(value); \
        return bad; }
#define PAIR(call, key, type) \
    result call(void *handle, type *one, type *two) { \
        json value; result bad = ask(#call, handle, key, &value); \
        if (bad) return bad; \
        *one = (type)integer(element(value, 0)); *two = (type)integer(element(value, 1)); \
        return OK; }
#define TEXT(call, key) \
    result call(void *handle, char *out, unsigned size) { \
        json value; result bad = ask(#call, handle, key, &value); \
        if (!bad) copy(value, out, size); \
        return bad; }

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
NUMBER(nvmlDeviceGetMinorNumber, "minor", unsigned)
PAIR(nvmlDeviceGetCudaComputeCapability, "compute_capability", int)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", unsigned)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", unsigned)
PAIR(nvmlDeviceGetMigMode, "mig_mode", unsigned)
PAIR(nvmlDeviceGetEccMode, "ecc_mode", unsigned)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", unsigned)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "clock_reasons", wide)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_reasons", wide)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw", unsigned)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", unsigned)

result nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out) {
    json value; result bad = ask("nvmlDeviceGetMaxMigDeviceCount", handle, "mig_mode", &value);
    *out = 7;
    return bad;
}
result nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out) {
    json value;
    result bad = ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, "mig_devices", &value);
    if (bad) return bad;
    *out = (void *)((long)handle * 1000 + index + 1);
    return element(value, (int)index) ? OK : NOT_FOUND;
}
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance", unsigned)
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance", unsigned)

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
result nvmlDeviceGetPciInfo_v3(void *handle, pci *info) {
    json value; result bad = ask("nvmlDeviceGetPciInfo", handle, "pci", &value);
    memset(info, 0, sizeof *info);
    if (!bad) copy(value, info->bus_id, sizeof info->bus_id);
    return bad;
}
typedef struct { wide total, free, used; } memory;
typedef struct { unsigned version; wide total, reserved, free, used; } memory_v2;
static wide part(json value, const char *key) { json p = member(value, key); return p ? integer(p) : 0; }
result nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
    json value; result bad = ask("nvmlDeviceGetMemoryInfo", handle, "memory", &value);
    if (bad) return bad;
    info->total = part(value, "total");
    info->used = part(value, "used") + part(value, "reserved");
    info->free = info->total - info->used;
    return OK;
}
result nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *info) {
    json value; result bad = ask("nvmlDeviceGetMemoryInfo_v2", handle, "memory", &value);
    if (bad) return bad;
    info->total = part(value, "total");
    info->used = part(value, "used");
    info->reserved = part(value, "reserved");
    info->free = info->total - info->used - info->reserved;
    return OK;
}
typedef struct { unsigned pid; wide memory; unsigned gpu_instance, compute_instance; } process;
static result processes(const char *call, void *handle, const char *key, unsigned *count, process *out) {
    json value; result bad = ask(call, handle, key, &value);
    if (bad == NOT_SUPPORTED) { *count = 0; return OK; }
    if (bad) return bad;
    unsigned n = (unsigned)length(value), room = out ? *count : 0;
    *count = n;
    if (n > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++) {
        json one = element(value, (int)i), used = member(one, "memory");
        out[i] = (process){(unsigned)part(one, "pid"), used ? integer(used) : ~0ULL, ~0U, ~0U};
    }
    return OK;
}
result nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *out) {
    return processes("nvmlDeviceGetComputeRunningProcesses", handle, "processes", count, out);
}
result nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process *out) {
    return processes("nvmlDeviceGetGraphicsRunningProcesses", handle, "graphics", count, out);
}
result nvmlDeviceGetTotalEccErrors(void *handle, unsigned type, unsigned counter, wide *out) {
    json value; result bad = ask("nvmlDeviceGetTotalEccErrors", handle, "ecc_errors", &value);
    /* Rows: corrected, uncorrected; columns: volatile, aggregate. */
    if (!bad) *out = integer(element(element(value, (int)type), (int)counter));
    return bad;
}
result nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected,
                                 unsigned *pending, unsigned *failure) {
    json value; result bad = ask("nvmlDeviceGetRemappedRows", handle, "remapped_rows", &value);
    if (bad) return bad;
    *corrected = (unsigned)part(value, "corrected");
    *uncorrected = (unsigned)part(value, "uncorrected");
    *pending = (unsigned)part(value, "pending");
    *failure = (unsigned)part(value, "failure");
    return OK;
}
#define CLOCK(function, key) \
    result function(void *handle, unsigned type, unsigned *out) { \
        json value; result bad = ask(#function, handle, key, &value); \
        (void)type; \
        if (!bad) *out = (unsigned)integer(value); \
        return bad; \
    }
CLOCK(nvmlDeviceGetApplicationsClock, "clock_mhz")
CLOCK(nvmlDeviceGetDefaultApplicationsClock, "clock_default_mhz")
result nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out) {
    json value; result bad = ask("nvmlDeviceGetNvLinkState", handle, "nvlinks", &value);
    if (bad) return bad;
    if (!element(value, (int)link)) return INVALID_ARGUMENT;
    *out = (unsigned)integer(element(value, (int)link));
    return OK;
}
typedef struct {
    unsigned version; unsigned char cluster[16]; result status; unsigned clique;
    unsigned char state; unsigned health;
} fabric;
result nvmlDeviceGetGpuFabricInfoV(void *handle, fabric *info) {
    json value; result bad = ask("nvmlDeviceGetGpuFabricInfoV", handle, "fabric", &value);
    if (bad) return bad;
    info->state = (unsigned char)part(value, "state");
    info->status = (result)part(value, "status");
    info->health = (unsigned)part(value, "health");
    return OK;
}
typedef struct { unsigned char cluster[16]; result status; unsigned clique; unsigned char state; } old_fabric;
result nvmlDeviceGetGpuFabricInfo(void *handle, old_fabric *info) {
    json value; result bad = ask("nvmlDeviceGetGpuFabricInfo", handle, "fabric", &value);
    if (bad) return bad;
    info->state = (unsigned char)part(value, "state");
    info->status = (result)part(value, "status");
    return OK;
}
static result between(const char *call, const char *key, void *one, void *two, int *out) {
    json value, matrix = member(scenario(), key);
    result bad = ask(call, one, "uuid", &value);
    if (!bad) bad = ask(call, two, "uuid", &value);
    if (bad || !matrix) return bad ? bad : NOT_SUPPORTED;
    if (*matrix == '[') matrix = element(element(matrix, (int)(long)one - 1), (int)(long)two - 1);
    *out = (int)integer(matrix);
    return OK;
}
result nvmlDeviceGetTopologyCommonAncestor(void *one, void *two, int *out) {
    return between("nvmlDeviceGetTopologyCommonAncestor", "ancestor", one, two, out);
}
result nvmlDeviceGetP2PStatus(void *one, void *two, int index, int *out) {
    (void)index;
    return between("nvmlDeviceGetP2PStatus", "p2p", one, two, out);
}

/* --- the system */

static result system_text(const char *call, const char *key, char *out, unsigned size) {
    result bad = misfortune(member(scenario(), "errors"), call);
    json value = member(scenario(), key);
    if (bad || !value) return bad ? bad : NOT_SUPPORTED;
    copy(value, out, size);
    return OK;
}
result nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return misfortune(member(scenario(), "errors"), "nvmlInitWithFlags");
}
result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(result error) { return error == 15 ? "GPU is lost" : "some error"; }
result nvmlSystemGetDriverVersion(char *out, unsigned size) {
    return system_text("nvmlSystemGetDriverVersion", "driver", out, size);
}
result nvmlSystemGetCudaDriverVersion(int *out) {
    json value = member(scenario(), "cuda");
    if (value) *out = (int)integer(value);
    return value ? OK : NOT_SUPPORTED;
}
result nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)length(member(scenario(), "devices"));
    return misfortune(member(scenario(), "errors"), "nvmlDeviceGetCount");
}
result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = (void *)(long)(index + 1);
    json device = find(*out);
    return device ? misfortune(member(device, "errors"), "nvmlDeviceGetHandleByIndex")
                  : INVALID_ARGUMENT;
}
#endif
