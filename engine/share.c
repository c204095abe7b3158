/* share.c: how much of the waiting queue each client has; the contract is in share.h.
 *
 * Threads as share.h says. Two heaps of clients, by requests and by tokens, hold those that have a
 * bundle which can be dropped; each client lists its bundles from the newest to the oldest. Indices
 * stand for pointers, and -1 for none.
 */
#include "engine/share.h"

#include "engine/base/check.h"
#include "engine/base/random.h"
#include "engine/base/util.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { NONE = -1 };

typedef enum measure { BY_REQUESTS, BY_TOKENS, MEASURES } measure_t;
typedef enum bundle_state { BUNDLE_WAITS, BUNDLE_BEGUN, BUNDLE_DROPPED } bundle_state_t;

/* A slot: a request from engine_submit to EVENT_DONE. */
typedef struct share_place {
  int32_t bundle;
  int32_t before, next; /* slots of the bundle that were not given back yet */
  int32_t num_tokens;
  bool waits;
} share_place_t;

typedef struct share_bundle {
  atomic_int state; /* bundle_state_t */
  int32_t client;
  int32_t first;          /* slot that was not given back yet; NONE = the bundle is free */
  int64_t size[MEASURES]; /* of its requests that wait */
  uint64_t number;        /* in order of arrival */
  bool listed;            /* in the list of its client */
  int32_t newer, older;
} share_bundle_t;

typedef struct share_client {
  uint64_t name;
  int64_t size[MEASURES];      /* of its requests that wait */
  int64_t droppable[MEASURES]; /* of those in listed bundles */
  int32_t newest;              /* bundle */
  int32_t heap_at[MEASURES];   /* its index there */
  int32_t next;                /* of the hash chain, or of the free ones */
} share_client_t;

struct share {
  share_place_t *places;   /* [num_slots] */
  share_bundle_t *bundles; /* [num_slots] */
  share_client_t *clients; /* [num_slots] */
  int32_t *buckets;        /* [bucket_mask + 1] first client of the chain */
  int32_t *heaps[MEASURES];
  uint32_t bucket_mask;
  int32_t heap_count;
  int32_t free_bundle; /* linked by `older` */
  int32_t free_client; /* linked by `next` */
  int32_t num_clients;
  int64_t size[MEASURES];
  uint64_t next_number;
};

int share_new(int32_t num_slots, share_t **out, inferd_error_t *error) {
  size_t slots = (size_t)num_slots;
  uint32_t buckets = 1;
  while (buckets < (uint32_t)num_slots) buckets *= 2;
  share_t *share = calloc(1, sizeof *share);
  if (share != NULL) {
    share->places = calloc(slots, sizeof *share->places);
    share->bundles = calloc(slots, sizeof *share->bundles);
    share->clients = calloc(slots, sizeof *share->clients);
    share->buckets = calloc(buckets, sizeof *share->buckets);
    for (int by = 0; by < MEASURES; by++)
      share->heaps[by] = calloc(slots, sizeof *share->heaps[by]);
  }
  if (share == NULL || share->places == NULL || share->bundles == NULL || share->clients == NULL ||
      share->buckets == NULL || share->heaps[0] == NULL || share->heaps[1] == NULL) {
    share_free(share);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the places of %d requests",
                     num_slots);
  }
  share->bucket_mask = buckets - 1;
  for (uint32_t i = 0; i < buckets; i++) share->buckets[i] = NONE;
  share->free_bundle = share->free_client = NONE;
  for (int32_t i = num_slots - 1; i >= 0; i--) {
    share->places[i].bundle = NONE;
    share->bundles[i].older = share->free_bundle;
    share->clients[i].next = share->free_client;
    share->free_bundle = share->free_client = i;
  }
  *out = share;
  return 0;
}

void share_free(share_t *share) {
  if (share == NULL) return;
  free(share->places);
  free(share->bundles);
  free(share->clients);
  free(share->buckets);
  for (int by = 0; by < MEASURES; by++) free(share->heaps[by]);
  free(share);
}

/* ---- heaps ---- */

/* True if client `left` comes before `right`: it has more, or as much and the newest bundle. */
static bool exceeds(const share_t *share, int by, int32_t left, int32_t right) {
  const share_client_t *x = &share->clients[left], *y = &share->clients[right];
  if (x->size[by] != y->size[by]) return x->size[by] > y->size[by];
  return share->bundles[x->newest].number > share->bundles[y->newest].number;
}

static void heap_set(share_t *share, int by, int32_t at, int32_t client) {
  share->heaps[by][at] = client;
  share->clients[client].heap_at[by] = at;
}

static void heap_rise(share_t *share, int by, int32_t at) {
  int32_t *heap = share->heaps[by], client = heap[at];
  for (; at > 0 && exceeds(share, by, client, heap[(at - 1) / 2]); at = (at - 1) / 2)
    heap_set(share, by, at, heap[(at - 1) / 2]);
  heap_set(share, by, at, client);
}

static void heap_sink(share_t *share, int by, int32_t at) {
  int32_t *heap = share->heaps[by], client = heap[at];
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= share->heap_count) break;
    if (child + 1 < share->heap_count && exceeds(share, by, heap[child + 1], heap[child])) child++;
    if (!exceeds(share, by, heap[child], client)) break;
    heap_set(share, by, at, heap[child]);
    at = child;
  }
  heap_set(share, by, at, client);
}

/* Puts a client into both heaps, moves it to its place there, or takes it out, as it now has
 * droppable bundles or not. `was_in`: it stood there before. */
static void heap_update(share_t *share, int32_t index, bool was_in) {
  share_client_t *client = &share->clients[index];
  bool is_in = client->newest != NONE;
  if (!was_in && !is_in) return;
  if (!was_in) share->heap_count++;
  if (!is_in) share->heap_count--;
  for (int by = 0; by < MEASURES; by++) {
    int32_t at = was_in ? client->heap_at[by] : share->heap_count - 1;
    if (!is_in) {
      if (at == share->heap_count) continue;
      index = share->heaps[by][share->heap_count]; /* the last one takes its place */
    }
    heap_set(share, by, at, index);
    heap_rise(share, by, at);
    heap_sink(share, by, share->clients[index].heap_at[by]);
  }
}

/* ---- clients ---- */

static int32_t *bucket_of(const share_t *share, uint64_t name) {
  return &share->buckets[(uint32_t)random_mix(name) & share->bucket_mask];
}

static int32_t find_client(const share_t *share, uint64_t name) {
  int32_t index = *bucket_of(share, name);
  while (index != NONE && share->clients[index].name != name) index = share->clients[index].next;
  return index;
}

static int32_t take_client(share_t *share, uint64_t name) {
  int32_t found = find_client(share, name), *bucket = bucket_of(share, name);
  if (found != NONE) return found;
  int32_t index = share->free_client;
  CHECK_NE(index, NONE); /* each client has a slot */
  share->free_client = share->clients[index].next;
  share->clients[index] = (share_client_t){.name = name, .newest = NONE, .next = *bucket};
  *bucket = index;
  share->num_clients++;
  return index;
}

static void free_client(share_t *share, int32_t index) {
  int32_t *link = bucket_of(share, share->clients[index].name);
  while (*link != index) link = &share->clients[*link].next;
  *link = share->clients[index].next;
  share->clients[index].next = share->free_client;
  share->free_client = index;
  share->num_clients--;
}

/* ---- bundles ---- */

/* Takes a bundle that can no longer be dropped from the list of its client. The caller updates the
 * heaps. */
static void unlist(share_t *share, share_bundle_t *bundle) {
  share_client_t *client = &share->clients[bundle->client];
  if (!bundle->listed) return;
  bundle->listed = false;
  for (int by = 0; by < MEASURES; by++) client->droppable[by] -= bundle->size[by];
  if (bundle->newer != NONE) {
    share->bundles[bundle->newer].older = bundle->older;
  } else {
    client->newest = bundle->older;
  }
  if (bundle->older != NONE) share->bundles[bundle->older].newer = bundle->newer;
}

static void leave(share_t *share, share_place_t *place) {
  share_bundle_t *bundle = &share->bundles[place->bundle];
  share_client_t *client = &share->clients[bundle->client];
  int64_t size[MEASURES] = {1, place->num_tokens};
  place->waits = false;
  for (int by = 0; by < MEASURES; by++) {
    bundle->size[by] -= size[by];
    client->size[by] -= size[by];
    share->size[by] -= size[by];
    if (bundle->listed) client->droppable[by] -= size[by];
  }
}

void share_left(share_t *share, int32_t slot) {
  share_place_t *place = &share->places[slot];
  if (place->bundle == NONE || !place->waits) return;
  share_bundle_t *bundle = &share->bundles[place->bundle];
  int32_t client = bundle->client;
  bool was_in = share->clients[client].newest != NONE;
  leave(share, place);
  if (bundle->size[BY_REQUESTS] == 0 || atomic_load(&bundle->state) != BUNDLE_WAITS)
    unlist(share, bundle);
  heap_update(share, client, was_in);
  if (share->clients[client].size[BY_REQUESTS] == 0) free_client(share, client);
}

void share_add(share_t *share, uint64_t name, const int32_t *slots, const int32_t *tokens,
               int32_t count) {
  int32_t index = share->free_bundle, at = take_client(share, name);
  CHECK_NE(index, NONE); /* each bundle has a slot */
  share_bundle_t *bundle = &share->bundles[index];
  share_client_t *client = &share->clients[at];
  bool was_in = client->newest != NONE;
  share->free_bundle = bundle->older;
  *bundle = (share_bundle_t){.client = at,
                             .first = slots[0],
                             .number = share->next_number++,
                             .listed = true,
                             .newer = NONE,
                             .older = client->newest};
  if (client->newest != NONE) share->bundles[client->newest].newer = index;
  client->newest = index;
  for (int32_t i = 0; i < count; i++) {
    share->places[slots[i]] = (share_place_t){.bundle = index,
                                              .before = i > 0 ? slots[i - 1] : NONE,
                                              .next = i + 1 < count ? slots[i + 1] : NONE,
                                              .num_tokens = tokens[i],
                                              .waits = true};
    int64_t size[MEASURES] = {1, tokens[i]};
    for (int by = 0; by < MEASURES; by++) {
      bundle->size[by] += size[by];
      client->size[by] += size[by];
      client->droppable[by] += size[by];
      share->size[by] += size[by];
    }
  }
  heap_update(share, at, was_in);
}

void share_give_back(share_t *share, int32_t slot) {
  share_left(share, slot);
  share_place_t *place = &share->places[slot];
  if (place->bundle == NONE) return;
  share_bundle_t *bundle = &share->bundles[place->bundle];
  *(place->before != NONE ? &share->places[place->before].next : &bundle->first) = place->next;
  if (place->next != NONE) share->places[place->next].before = place->before;
  if (bundle->first == NONE) {
    bundle->older = share->free_bundle;
    share->free_bundle = place->bundle;
  }
  place->bundle = NONE;
}

/* ---- room ---- */

/* What is lacking: above 0, others must make room. */
static int64_t lacking(const share_t *share, const share_ask_t *ask, const share_limits_t *limits,
                       int by) {
  if (by == BY_REQUESTS) return share->size[by] + ask->num_requests - limits->num_requests;
  if (share->size[BY_REQUESTS] == 0) return 0;
  return share->size[by] + ask->num_tokens - limits->num_tokens;
}

/* What the client would have with the requests that it asks for. */
static int64_t level_of(const share_t *share, const share_ask_t *ask, int by) {
  int32_t index = find_client(share, ask->client);
  int64_t has = index != NONE ? share->clients[index].size[by] : 0;
  return has + (by == BY_REQUESTS ? ask->num_requests : ask->num_tokens);
}

/* Sums what the clients at and below `at` in the heap have above `level` and can drop. Stops when
 * the sum reaches `enough`, so it visits few clients that cannot help. */
static int64_t sum_above(const share_t *share, int by, int32_t at, int64_t level, int64_t enough) {
  if (at >= share->heap_count || enough <= 0) return 0;
  const share_client_t *client = &share->clients[share->heaps[by][at]];
  if (client->size[by] <= level) return 0;
  int64_t sum = MIN(client->size[by] - level, client->droppable[by]);
  sum += sum_above(share, by, 2 * at + 1, level, enough - sum);
  return sum + sum_above(share, by, 2 * at + 2, level, enough - sum);
}

bool share_has_room(const share_t *share, const share_ask_t *ask, const share_limits_t *limits) {
  if (ask->num_requests > limits->num_requests) return false;
  for (int by = 0; by < MEASURES; by++) {
    int64_t needed = lacking(share, ask, limits, by);
    if (needed > 0 && sum_above(share, by, 0, level_of(share, ask, by), needed) < needed)
      return false;
  }
  return true;
}

/* Drops a listed bundle, unless it has begun. */
static void drop_bundle(share_t *share, share_bundle_t *bundle,
                        void (*drop)(void *context, int32_t slot), void *context) {
  int32_t client = bundle->client;
  int expected = BUNDLE_WAITS;
  bool dropped = atomic_compare_exchange_strong(&bundle->state, &expected, BUNDLE_DROPPED);
  unlist(share, bundle);
  for (int32_t slot = bundle->first; dropped && slot != NONE; slot = share->places[slot].next) {
    if (!share->places[slot].waits) continue;
    leave(share, &share->places[slot]);
    drop(context, slot);
  }
  heap_update(share, client, true);
  if (share->clients[client].size[BY_REQUESTS] == 0) free_client(share, client);
}

bool share_make_room(share_t *share, const share_ask_t *ask, const share_limits_t *limits,
                     void (*drop)(void *context, int32_t slot), void *context) {
  for (int by = 0; by < MEASURES; by++) {
    int64_t level = level_of(share, ask, by);
    while (lacking(share, ask, limits, by) > 0) {
      if (share->heap_count == 0) return false;
      const share_client_t *client = &share->clients[share->heaps[by][0]];
      if (client->size[by] <= level) return false;
      drop_bundle(share, &share->bundles[client->newest], drop, context);
    }
  }
  return true;
}

share_count_t share_count(const share_t *share) {
  return (share_count_t){.num_requests = (int32_t)share->size[BY_REQUESTS],
                         .num_clients = share->num_clients,
                         .num_tokens = share->size[BY_TOKENS]};
}

/* ---- engine thread ---- */

bool share_begin(share_t *share, int32_t slot) {
  atomic_int *state = &share->bundles[share->places[slot].bundle].state;
  int expected = BUNDLE_WAITS;
  atomic_compare_exchange_strong(state, &expected, BUNDLE_BEGUN);
  return expected != BUNDLE_DROPPED;
}

bool share_is_dropped(const share_t *share, int32_t slot) {
  return atomic_load(&share->bundles[share->places[slot].bundle].state) == BUNDLE_DROPPED;
}
