/* compile_base.c: what all files of a compilation stand on: memory, the account, giving up.
 *
 * The contract is in compile.h. Runs on the thread of the compilation.
 */
#include "engine/grammar/compile.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void compile_fail(compile_t *compile, int code, const char *format, ...) {
  char message[ERROR_MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  compile->code = error_set(compile->error, code, compile->param, "%s", message);
  longjmp(compile->give_up, 1);
}

void compile_spend(compile_t *compile, uint32_t work) {
  const grammar_limits_t *limits = compile->limits;
  grammar_account_t *account = compile->account;
  if (compile->fuel > work) {
    compile->fuel -= work;
    return;
  }
  account->work += COMPILE_FUEL - compile->fuel + work;
  compile->fuel = COMPILE_FUEL;
  if (account->cancelled != NULL &&
      atomic_load_explicit(account->cancelled, memory_order_relaxed)) {
    compile_fail(compile, ERR_REQUEST_TIMEOUT, "The request was cancelled.");
  }
  if (account->work > limits->compile_work_max) {
    compile_fail(compile, ERR_BAD_REQUEST,
                 "The constraints of the request take more than %llu steps to compile.",
                 (unsigned long long)limits->compile_work_max);
  }
  if (account->cpu_ns + clock_thread_ns() - compile->begin_ns > limits->compile_ns_max) {
    compile_fail(compile, ERR_OVERLOADED,
                 "The constraints took more than %llu ms of processor time to compile.",
                 (unsigned long long)(limits->compile_ns_max / 1000000));
  }
}

/* Returns the piece that the arena gave; gives up if it is NULL. */
static void *checked(compile_t *compile, const arena_t *arena, void *piece) {
  if (piece != NULL) return piece;
  if (arena->out_of_memory) compile_fail(compile, ERR_NO_MEMORY, "no memory for a grammar");
  compile_fail(compile, ERR_BAD_REQUEST, "The constraint takes more than %d MiB to compile.",
               COMPILE_ARENA_BYTES_MAX >> 20);
}

void *compile_scratch(compile_t *compile, size_t count, size_t size) {
  return checked(compile, &compile->scratch, arena_calloc(&compile->scratch, count, size));
}

void *compile_keep(compile_t *compile, size_t count, size_t size) {
  arena_t *arena = &compile->grammar->arena;
  return checked(compile, arena, arena_calloc(arena, count, size));
}

void *compile_grow(compile_t *compile, const void *items, uint32_t count, uint32_t need,
                   size_t size, uint32_t *capacity) {
  return checked(compile, &compile->scratch,
                 arena_grow(&compile->scratch, items, count, need, size, capacity));
}

void *list_add(compile_t *compile, grammar_list_t *list, size_t size) {
  if (list->count == list->capacity) {
    uint32_t need = MAX(16, list->count + 1);
    list->items = compile_grow(compile, list->items, list->count, need, size, &list->capacity);
  }
  return memset((char *)list->items + (size_t)list->count++ * size, 0, size);
}
