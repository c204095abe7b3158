/* faults.h: calls that fail on purpose, one at a time.
 *
 * The program is linked with -Wl,--wrap for every fallible call of the project's own code: heap,
 * files, random numbers. While armed, each such call is counted and the chosen one fails; calls of
 * the simulator itself are held out of the count. One thread.
 */
#ifndef INFERD_TESTS_SIM_FAULTS_H
#define INFERD_TESTS_SIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

void faults_arm(uint64_t fail_at); /* counting begins; call number `fail_at` (from 1) will fail */
bool faults_disarm(void);          /* counting ends; true = the call was reached and has failed */
/* Holds the count (depth > 0) while the simulator itself calls. */
void faults_hold(void);
void faults_release(void);
/* Asked by every wrapped call: is it the one? */
bool faults_now(void);
const char *faults_last(void); /* name of the call that failed last */
bool faults_named(const char *name);

#endif
