/* lora_table.h: the adapters of this server: their names, engine slots and numbers of users.
 *
 * The loop thread owns the table. Any thread may call lora_known. An adapter that was unloaded
 * keeps its slot until the last request that uses it has ended.
 */
#ifndef INFERD_SERVER_COMPLETION_LORA_TABLE_H
#define INFERD_SERVER_COMPLETION_LORA_TABLE_H

#include "server/completion/live.h"
#include "server/observe/metrics.h"

typedef struct lora_entry {
  char *name, *path;
  int32_t slot; /* 1..max_loras */
  uint64_t
      unique; /* never used again, so that no other adapter finds the cached blocks of this one */
  int32_t users;   /* completions that use it */
  int32_t begun;   /* of these: those that have had a token */
  bool configured; /* by --lora-modules: a reload without it unloads it */
  bool ready;      /* requests may name it */
  bool gone;       /* unloaded; freed when its last user has ended */
} lora_entry_t;

/* Checks --lora-modules, texts of the form NAME=DIR. Returns 0 or ERR_CONFIGURATION. */
int loras_check(const config_t *config, inferd_error_t *error);
/* The adapters of the configuration, which the engine loads at start. 0 or ERR_NO_MEMORY. */
int loras_new(completions_t *live, const config_t *config);
void loras_free(completions_t *live);
/* Any thread: writes the name of the adapter in a slot, at most size - 1 bytes of it. False: no
 * adapter that is ready is there. */
bool lora_name_at(const completions_t *live, int32_t slot, char *out, size_t size);
bool lora_known(const completions_t *live, const char *name, size_t length);
/* Finds an adapter and adds a user; NULL = there is no such adapter. This and lora_known also take
 * MODEL:ADAPTER, with a served name of the model. */
lora_entry_t *lora_use(completions_t *live, const char *name, size_t length);
/* A user has had its first token. */
void lora_begin(completions_t *live, lora_entry_t *entry);
/* `begun`: lora_begin was called for this user. NULL is allowed. */
void lora_release(completions_t *live, lora_entry_t *entry, bool begun);
/* Whose requests run and wait, for the metrics. The caller frees both buffers. */
void lora_usage(const completions_t *live, lora_usage_t *out);
/* Reserves a free slot for a new name; the entry is not ready yet. Returns 0; ERR_INVALID_VALUE
 * with a message if the name is in use or no slot is free. */
int lora_reserve(completions_t *live, const char *name, const char *path, lora_entry_t **out,
                 inferd_error_t *error);
void lora_ready(completions_t *live, lora_entry_t *entry);
void lora_drop(completions_t *live, lora_entry_t *entry); /* unloads it, or cancels a reservation */
/* Returns the index-th adapter that is ready, or NULL if there are not that many. */
lora_entry_t *lora_at(const completions_t *live, int index);

#endif
