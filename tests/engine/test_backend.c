/* test_backend.c: which back end a device name stands for. */
#include "engine/backend.h"

#include <criterion/criterion.h>

typedef struct name_case {
  const char *device;
  const ops_t *first, *second; /* NULL = refused; no other */
  int32_t index;
} name_case_t;

Test(backend, names_stand_for_back_ends) {
  const name_case_t cases[] = {
      {NULL, &ops_cuda, &ops_cpu, 0},     {"auto", &ops_cuda, &ops_cpu, 0},
      {"cpu", &ops_cpu, NULL, 0},         {"cuda", &ops_cuda, NULL, 0},
      {"cuda:0", &ops_cuda, NULL, 0},     {"cuda:3", &ops_cuda, NULL, 3},
      {"cuda:0012", &ops_cuda, NULL, 12}, {"", NULL, NULL, 0},
      {"cuda:", NULL, NULL, 0},           {"cuda:1x", NULL, NULL, 0},
      {"cuda:-1", NULL, NULL, 0},         {"cudax", NULL, NULL, 0},
      {"cuda:99999", NULL, NULL, 0},      {"CPU", NULL, NULL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const name_case_t *want = &cases[i];
    const char *name = want->device != NULL ? want->device : "(null)";
    backend_choice_t choice;
    inferd_error_t error = {0};
    int code = backend_choose(want->device, &choice, &error);
    cr_assert_eq(code, want->first != NULL ? 0 : ERR_CONFIGURATION, "%s: %d", name, code);
    if (code != 0) cr_assert_str_eq(error.param, "device");
    cr_assert_eq(choice.ops[0], want->first, "%s", name);
    cr_assert_eq(choice.ops[1], want->second, "%s", name);
    cr_assert_eq(choice.device_index, want->index, "%s: %d", name, choice.device_index);
  }
}

/* This build has no CUDA, so a CPU is what "auto" will open, and its sizes are the defaults. */
Test(backend, a_cheap_look_says_which_will_be_opened) {
  backend_choice_t choice;
  inferd_error_t error = {0};
  cr_assert_eq(backend_choose("auto", &choice, &error), 0);
  cr_assert_eq(choice.expected, &ops_cpu);
  cr_assert_eq(backend_choose("cuda", &choice, &error), 0);
  cr_assert_eq(choice.expected, &ops_cuda);
}
