/* A stand-in for libnvidia-ml.so.1, enough for pynvml and our probe to run for real.
 *
 * FAKE_NVML in the environment is the scenario, words apart by blanks:
 *   init=18      nvmlInit returns this error
 *   count=2      so many GPUs
 *   lost=1       this GPU answers "GPU is lost" (error 15)
 *   crash        nvmlInit dies by SIGSEGV
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;

static int setting(const char *name, int otherwise) {
    const char *text = getenv("FAKE_NVML");
    const char *at = text ? strstr(text, name) : NULL;
    return at ? atoi(at + strlen(name)) : otherwise;
}
static int number(void *device) { return (int)(long)device - 1; }
static result state(void *device) { return setting("lost=", -1) == number(device) ? 15 : 0; }

result nvmlInitWithFlags(unsigned flags) {
    const char *text = getenv("FAKE_NVML");
    if (text && strstr(text, "crash")) raise(SIGSEGV);
    return setting("init=", 0);
}
result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
result nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(result error) {
    return error == 18 ? "Driver/library version mismatch"
         : error == 15 ? "GPU is lost" : "some error";
}
result nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "550.54.15");
    return 0;
}
result nvmlDeviceGetCount_v2(unsigned *count) { *count = setting("count=", 0); return 0; }
result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return 0;
}
result nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-%08d-fake", number(device));
    return state(device);
}
result nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "NVIDIA Fake 80GB");
    return state(device);
}
result nvmlDeviceGetPciInfo_v3(void *device, pci *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", number(device) + 1);
    return state(device);
}
result nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    info->total = 80ULL << 30;
    return state(device);
}
