/* A stand-in for Horovod's library: joins nobody, and believes what the launcher says.
 * FAKE_HOROVOD=alone sees one rank, =stuck never comes back, =killed dies,
 * =orphaned kills the rank that waits for it, =refused says no. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *mode) {
  const char *set = getenv("FAKE_HOROVOD");
  return set && strcmp(set, mode) == 0;
}

static int number(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text && !is("alone") ? atoi(text) : otherwise;
}

bool horovod_init(const int *ranks, int count, const int *a, const int *b, int c) {
  (void)ranks, (void)count, (void)a, (void)b, (void)c;
  if (is("stuck")) sleep(60);
  if (is("killed")) kill(getpid(), SIGSEGV);
  if (is("orphaned")) kill(getppid(), SIGKILL), sleep(60);
  return !is("refused");
}
void horovod_shutdown(void) {}
int horovod_rank(void) { return number("OMPI_COMM_WORLD_RANK", 0); }
int horovod_size(void) { return number("OMPI_COMM_WORLD_SIZE", 1); }
int horovod_local_rank(void) { return number("OMPI_COMM_WORLD_LOCAL_RANK", 0); }
int horovod_local_size(void) { return number("OMPI_COMM_WORLD_LOCAL_SIZE", 1); }
