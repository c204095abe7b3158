/* mpi_open.c: finds out whether a launcher of MPI started this process, and opens inferd-mpi.so.
 *
 * Main thread, before any other. The daemon itself is not linked with MPI: it would not start where
 * none is installed, and implementations of MPI do not share a binary interface.
 */
#include "engine/ranks/mpi/mpi_open.h"

#include "engine/base/util.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int32_t mpi_world_size(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    const char *size = getenv(names[i]);
    if (size != NULL && atoi(size) > 0) return atoi(size);
  }
  return 0;
}

/* Beside the program, as the build leaves it, or where a package has it. */
static void *open_plugin(void) {
  static const char *const places[] = {"inferd-mpi.so", "../lib/inferd/inferd-mpi.so"};
  char self[PATH_MAX], path[PATH_MAX + 32];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = '\0';
  const char *folder = dirname(self);
  size_t i = 0;
  do snprintf(path, sizeof path, "%s/%s", folder, places[i]);
  while (access(path, R_OK) != 0 && ++i < ARRAY_LEN(places));
  return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

int mpi_join(comm_t **out, inferd_error_t *error) {
  char why[256] = "";
  void *library = open_plugin();
  if (library == NULL)
    return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                     "started by an MPI launcher, but inferd-mpi.so does not open: %.300s; `make` "
                     "builds it where mpicc is installed",
                     dlerror());
  int (*open_ranks)(comm_t **, char *, size_t);
  *(void **)&open_ranks = dlsym(library, "inferd_mpi_open");
  if (open_ranks == NULL)
    return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size", "inferd-mpi.so: %.200s",
                     dlerror());
  if (open_ranks(out, why, sizeof why) == 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size", "%s", why);
}
