/* ptx_steps.h: how the tables of instructions read and write a lane, and the rows they are made of.
 */
#ifndef TESTS_PTX_STEPS_H
#define TESTS_PTX_STEPS_H

#include "ptx_program.h"
#include <string.h>

namespace ptx {

template <class T> inline T get(const Lane &lane, uint32_t place) {
  T value;
  memcpy(&value, lane.words + place, sizeof value);
  return value;
}
template <class T> inline void put(Lane &lane, uint32_t place, T value) {
  memcpy(lane.words + place, &value, sizeof value);
}

/* Rows of a table: an instruction of one, two or three sources a, b, c, all of type T, whose result
 * is an expression of type R. */
#define PTX_1(opcode, letters, R, T, expression)                                                   \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      const T a = get<T>(lane, i.at[1]);                                                           \
      put<R>(lane, i.at[0], (R)(expression));                                                      \
    }                                                                                              \
  }
#define PTX_2(opcode, letters, R, T, expression)                                                   \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      const T a = get<T>(lane, i.at[1]), b = get<T>(lane, i.at[2]);                                \
      put<R>(lane, i.at[0], (R)(expression));                                                      \
    }                                                                                              \
  }
#define PTX_3(opcode, letters, R, T, expression)                                                   \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      const T a = get<T>(lane, i.at[1]), b = get<T>(lane, i.at[2]), c = get<T>(lane, i.at[3]);     \
      put<R>(lane, i.at[0], (R)(expression));                                                      \
    }                                                                                              \
  }

/* A fault of the running thread, with the line of PTX. */
[[noreturn]] void fail_at(const Instruction &i, const char *what);
inline emu::Site site_of(const Instruction &i) {
  return {i.program->file.c_str(), i.line};
}

} // namespace ptx
#endif
