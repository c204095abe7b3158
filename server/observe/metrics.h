/* metrics.h: the counters of the loop thread. The /metrics page adds those of engine_stats.
 *
 * Loop thread only. A sequence is one choice of one prompt; a request is an HTTP request. Durations
 * are nanoseconds of the monotonic clock. Label values come from fixed lists or the configuration,
 * never from a client.
 */
#ifndef INFERD_SERVER_OBSERVE_METRICS_H
#define INFERD_SERVER_OBSERVE_METRICS_H

#include "engine/base/buffer.h"
#include "engine/grammar/cache.h"
#include "engine/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct metrics metrics_t;
struct server;
struct api_key; /* server/keys/api_key.h */

/* The times of a sequence that has ended, in absolute nanoseconds; 0 = did not happen. */
typedef struct sequence_times {
  finish_reason_t finish;
  uint64_t arrival_ns, queued_ns, scheduled_ns, first_token_ns, last_token_ns, finished_ns;
  int32_t prompt_tokens, cached_tokens, generated_tokens, max_tokens;
} sequence_times_t;

void metrics_ignored_params(metrics_t *metrics);           /* a request carried unknown fields */
void metrics_rejected(metrics_t *metrics, int error_code); /* refused before admission */
/* A handler calls it before it answers 503. The handler has counted that refusal, so metrics_http
 * must not count it as one of the transport. */
void metrics_own_unavailable(metrics_t *metrics);
void metrics_tokenize(metrics_t *metrics, uint64_t bytes, uint64_t duration_ns);
void metrics_heard(metrics_t *metrics, double seconds, int32_t windows); /* of a sound */
void metrics_admitted(metrics_t *metrics, uint64_t frontend_ns);
void metrics_first_token(metrics_t *metrics, uint64_t since_arrival_ns);
void metrics_inter_token(metrics_t *metrics, uint64_t gap_ns);
void metrics_sequence_done(metrics_t *metrics, const sequence_times_t *times);
/* Counts the end of an admitted request. `route` is static text. Status 499: the client
 * disconnected. */
void metrics_request_done(metrics_t *metrics, const char *route, int status, finish_reason_t finish,
                          int32_t n, int32_t longest_output);
void metrics_aborted(metrics_t *metrics, const char *cause); /* besides metrics_request_done */

/* What the requests of a key use, by the label of the key; NULL is allowed. */
void metrics_key_request(metrics_t *metrics, struct api_key *key);
void metrics_key_tokens(metrics_t *metrics, struct api_key *key, int64_t prompt_tokens,
                        int64_t generated_tokens);
/* A request of the key ends with this error; those that are answered with 429 count. */
void metrics_key_refused(metrics_t *metrics, struct api_key *key, int error_code);

/* The model has another name, in the labels too. Without memory the old one stays. */
void metrics_rename(metrics_t *metrics, const char *model);
void metrics_reloaded(metrics_t *metrics, bool taken); /* a reload of the configuration */

/* The adapters that requests in flight use: names, separated by commas. */
typedef struct lora_usage {
  buffer_t running, waiting; /* of requests that have had a token; that have not */
  int64_t changed_s;         /* when this changed last; Unix time */
  int32_t num_slots;
} lora_usage_t;

/* Prints the page in the Prometheus text format, or as OpenMetrics 1.0. `grammars` is the state of
 * the cache of compiled constraints, `loras` is NULL without adapters. The page that was printed in
 * the same turn of the loop (exchange_turn; 0 = none) is not printed again, however many ask for
 * it. Returns malloc'ed text, NULL if memory is short. */
char *metrics_render(struct server *server, const grammar_cache_stats_t *grammars,
                     const lora_usage_t *loras, bool open_metrics, uint64_t turn, size_t *length);
/* Returns true if the Accept header (NULL = none) prefers OpenMetrics. */
bool metrics_wants_open(const char *accept);

#endif
