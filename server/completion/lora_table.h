/* lora_table.h: the adapters that this server answers to: names, slots of the engine, who uses
 * them.
 *
 * The loop thread owns the table; lora_known alone is for any thread. An adapter that was unloaded
 * keeps its slot until the last request that uses it has ended.
 */
#ifndef INFERD_SERVER_COMPLETION_LORA_TABLE_H
#define INFERD_SERVER_COMPLETION_LORA_TABLE_H

#include "server/completion/live.h"

enum { LORA_NAME_MAX = 256, LORA_PATH_MAX = 4096 };

typedef struct lora_entry {
  char *name, *path;
  int32_t slot;    /* 1..max_loras */
  uint64_t unique; /* never given twice: keeps the cached blocks of adapters apart */
  int32_t users;   /* completions */
  bool ready;      /* requests may name it */
  bool gone;       /* unloaded: freed with its last user */
} lora_entry_t;

/* The adapters of the configuration, which the engine loads at start. 0 or ERR_NO_MEMORY. */
int loras_new(completions_t *live, const config_t *config);
void loras_free(completions_t *live);
bool lora_known(const completions_t *live, const char *name, size_t length);
/* Counts a user in; NULL = no such adapter. */
lora_entry_t *lora_use(completions_t *live, const char *name, size_t length);
void lora_release(completions_t *live, lora_entry_t *entry); /* NULL is allowed */
/* A free slot under a name that is not taken; not yet ready. ERR_INVALID_VALUE says why not. */
int lora_reserve(completions_t *live, const char *name, const char *path, lora_entry_t **out,
                 error_t *error);
void lora_ready(completions_t *live, lora_entry_t *entry);
void lora_drop(completions_t *live,
               lora_entry_t *entry); /* unloads it, or gives a reserved one up */
/* The index-th that is ready, or NULL behind the last. */
const lora_entry_t *lora_at(const completions_t *live, int index);

#endif
