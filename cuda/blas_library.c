/* blas_library.c: finds cuBLASLt on the machine, without being linked to it.
 *
 * Engine thread, once at start. Functions of the program itself have precedence: tests replace the
 * library in this way.
 */
#include "cuda/blas.h"
#include "engine/base/util.h"

#include <dlfcn.h>
#include <string.h>

#define NAME_OF(major) NAME_TEXT(major)
#define NAME_TEXT(major) "libcublasLt.so." #major

static void *open_library(void) {
  static const char *const names[] = {
      NAME_OF(CUBLAS_VER_MAJOR),
      "/usr/local/cuda/lib64/" NAME_OF(CUBLAS_VER_MAJOR),
  };
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) return handle;
  }
  return NULL;
}

bool blas_library_open(blas_api_t *api) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {
      {"cublasLtGetVersion", &api->version},
      {"cublasLtCreate", &api->create},
      {"cublasLtDestroy", &api->destroy},
      {"cublasLtMatmulDescCreate", &api->desc_create},
      {"cublasLtMatmulDescDestroy", &api->desc_destroy},
      {"cublasLtMatmulDescSetAttribute", &api->desc_set},
      {"cublasLtMatrixLayoutCreate", &api->layout_create},
      {"cublasLtMatrixLayoutDestroy", &api->layout_destroy},
      {"cublasLtMatrixLayoutSetAttribute", &api->layout_set},
      {"cublasLtMatmulPreferenceCreate", &api->preference_create},
      {"cublasLtMatmulPreferenceDestroy", &api->preference_destroy},
      {"cublasLtMatmulPreferenceSetAttribute", &api->preference_set},
      {"cublasLtMatmulAlgoGetHeuristic", &api->heuristic},
      {"cublasLtMatmulAlgoCheck", &api->check},
      {"cublasLtMatmul", &api->matmul},
  };
  memset(api, 0, sizeof *api);
  bool is_inside = dlsym(RTLD_DEFAULT, functions[0].name) != NULL;
  if (!is_inside) api->handle = open_library();
  if (!is_inside && api->handle == NULL) return false;
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(is_inside ? RTLD_DEFAULT : api->handle, functions[i].name);
    if (found == NULL) {
      blas_library_close(api);
      return false;
    }
    memcpy(functions[i].to, &found, sizeof found);
  }
  return true;
}

void blas_library_close(blas_api_t *api) {
  if (api->handle != NULL) dlclose(api->handle);
  memset(api, 0, sizeof *api);
}
