/* calls.h: how often the program called the emulated CUDA runtime, and calls that
 * fail, for tests in C.
 */
#ifndef INFERD_TESTS_EMU_HOST_CALLS_H
#define INFERD_TESTS_EMU_HOST_CALLS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Calls of `function` so far, such as "cudaMemcpyAsync"; "launch" is any launch of a kernel. */
int emu_count_calls(const char *function);
/* Makes a call fail, as EMU_FAIL does: "function:call:error". Calls count from the first of the
 * process. */
void emu_fail(const char *which);

#ifdef __cplusplus
}
#endif

#endif
