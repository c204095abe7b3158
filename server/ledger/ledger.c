/* ledger.c: charges -> sums by client and by kind, and who may hold more.
 *
 * Any thread. A client has an entry while it holds memory. Clients that were refused stand in a
 * short list with the time until which they count as lacking memory.
 */
#include "server/ledger/ledger.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUCKETS = 1024 };

typedef struct ledger_client {
  uint64_t id;
  size_t held; /* > 0 */
  struct ledger_client *same_hash;
} ledger_client_t;

typedef struct ledger_lack {
  uint64_t client, until_ns; /* until_ns 0: free */
} ledger_lack_t;

struct ledger {
  pthread_mutex_t lock;
  size_t limit, held;
  size_t by_kind[LEDGER_KINDS];
  ledger_client_t *buckets[BUCKETS];
  int32_t clients;
  ledger_lack_t lacks[LEDGER_LACKS_MAX];
  int next_lack;
  uint64_t lack_until_ns; /* the latest of all */
  uint64_t refused;
};

#define X(name) #name,
const char *const ledger_kind_names[LEDGER_KINDS] = {LEDGER_EACH(X)};
#undef X

ledger_t *ledger_new(size_t limit) {
  ledger_t *ledger = calloc(1, sizeof *ledger);
  if (ledger == NULL) return NULL;
  pthread_mutex_init(&ledger->lock, NULL);
  ledger->limit = limit;
  return ledger;
}

void ledger_free(ledger_t *ledger) {
  if (ledger == NULL) return;
  CHECK_EQ(ledger->held, 0);
  CHECK_EQ(ledger->clients, 0);
  pthread_mutex_destroy(&ledger->lock);
  free(ledger);
}

/* The link to the entry of a client; the link is NULL if it holds nothing. */
static ledger_client_t **find(ledger_t *ledger, uint64_t id) {
  ledger_client_t **link = &ledger->buckets[hash_mix(id) % BUCKETS];
  while (*link != NULL && (*link)->id != id) link = &(*link)->same_hash;
  return link;
}

/* ---- who lacks memory ---- */

static void remember_lack(ledger_t *ledger, uint64_t client, uint64_t now_ns) {
  ledger_lack_t *place = &ledger->lacks[ledger->next_lack];
  for (int i = 0; i < LEDGER_LACKS_MAX; i++) {
    if (ledger->lacks[i].until_ns != 0 && ledger->lacks[i].client == client) {
      place = &ledger->lacks[i];
    }
  }
  if (place == &ledger->lacks[ledger->next_lack]) {
    ledger->next_lack = (ledger->next_lack + 1) % LEDGER_LACKS_MAX;
  }
  *place = (ledger_lack_t){client, now_ns + (uint64_t)LEDGER_LACK_S * 1000000000u};
  ledger->lack_until_ns = place->until_ns;
}

/* The limit divided by the clients that hold or lack memory, with `client` among them. Sets
 * *others_lack if a client other than this one lacks memory. */
static size_t share_of(ledger_t *ledger, uint64_t client, uint64_t now_ns, bool *others_lack) {
  size_t clients = (size_t)ledger->clients + (*find(ledger, client) == NULL);
  *others_lack = false;
  for (int i = 0; i < LEDGER_LACKS_MAX; i++) {
    const ledger_lack_t *lack = &ledger->lacks[i];
    if (lack->until_ns <= now_ns || lack->client == client) continue;
    *others_lack = true;
    if (*find(ledger, lack->client) == NULL) clients++;
  }
  return ledger->limit / clients;
}

/* Returns true if the client may hold `after` bytes, `more` of them new. Remembers that the client
 * lacks memory if it may not although it stays within its share. */
static bool may_hold(ledger_t *ledger, uint64_t client, size_t after, size_t more) {
  bool fits = more <= ledger->limit - ledger->held, others_lack;
  if (fits && ledger->lack_until_ns == 0) return true;
  uint64_t now_ns = clock_now_ns();
  if (fits && ledger->lack_until_ns <= now_ns) {
    ledger->lack_until_ns = 0;
    return true;
  }
  bool within = after <= share_of(ledger, client, now_ns, &others_lack);
  if (fits && (within || !others_lack)) return true;
  if (within) remember_lack(ledger, client, now_ns);
  return false;
}

/* ---- charges ---- */

charge_t charge_open(ledger_t *ledger, uint64_t client, ledger_kind_t kind) {
  return (charge_t){.ledger = ledger, .client = client, .kind = kind};
}

static bool grow(ledger_t *ledger, const charge_t *charge, size_t more) {
  ledger_client_t **link = find(ledger, charge->client), *client = *link;
  size_t held = client != NULL ? client->held : 0;
  bool may = more <= SIZE_MAX / 2 && may_hold(ledger, charge->client, held + more, more);
  if (may && client == NULL) {
    client = calloc(1, sizeof *client);
    may = client != NULL;
  }
  if (!may) {
    ledger->refused++;
    return false;
  }
  if (*link == NULL) {
    client->id = charge->client;
    *link = client;
    ledger->clients++;
  }
  client->held += more;
  ledger->held += more;
  ledger->by_kind[charge->kind] += more;
  return true;
}

static void shrink(ledger_t *ledger, const charge_t *charge, size_t less) {
  ledger_client_t **link = find(ledger, charge->client), *client = *link;
  CHECK(client != NULL);
  CHECK_LE(less, client->held);
  client->held -= less;
  ledger->held -= less;
  ledger->by_kind[charge->kind] -= less;
  if (client->held > 0) return;
  *link = client->same_hash;
  ledger->clients--;
  free(client);
}

bool charge_resize(charge_t *charge, size_t bytes) {
  ledger_t *ledger = charge->ledger;
  bool fits = true;
  if (bytes == charge->bytes) return true;
  if (ledger != NULL) {
    pthread_mutex_lock(&ledger->lock);
    if (bytes > charge->bytes) {
      fits = grow(ledger, charge, bytes - charge->bytes);
    } else {
      shrink(ledger, charge, charge->bytes - bytes);
    }
    pthread_mutex_unlock(&ledger->lock);
  }
  if (fits) charge->bytes = bytes;
  return fits;
}

void charge_drop(charge_t *charge) {
  (void)charge_resize(charge, 0);
}

charge_t charge_move(charge_t *from) {
  charge_t moved = *from;
  from->bytes = 0;
  return moved;
}

void held_free(held_t *held) {
  free(held->bytes);
  held->bytes = NULL;
  held->length = 0;
  charge_drop(&held->charge);
}

int ledger_refuse(const charge_t *charge, inferd_error_t *error) {
  size_t limit = charge->ledger != NULL ? charge->ledger->limit : 0;
  return error_set(error, ERR_OVERLOADED, NULL,
                   "The requests that are being served hold the memory that requests may hold "
                   "(max_request_memory, %zu bytes); try again.",
                   limit);
}

/* ---- what is held ---- */

static void check_sums(const ledger_t *ledger) {
  size_t by_kind = 0, by_client = 0;
  int32_t clients = 0;
  for (int kind = 0; kind < LEDGER_KINDS; kind++) by_kind += ledger->by_kind[kind];
  for (int i = 0; i < BUCKETS; i++) {
    for (const ledger_client_t *at = ledger->buckets[i]; at != NULL; at = at->same_hash) {
      by_client += at->held;
      clients++;
    }
  }
  CHECK_EQ(by_kind, ledger->held);
  CHECK_EQ(by_client, ledger->held);
  CHECK_EQ(clients, ledger->clients);
  CHECK_LE(ledger->held, ledger->limit);
}

ledger_stats_t ledger_stats(ledger_t *ledger) {
  ledger_stats_t stats = {0};
  if (ledger == NULL) return stats;
  pthread_mutex_lock(&ledger->lock);
  check_sums(ledger);
  for (int kind = 0; kind < LEDGER_KINDS; kind++) stats.held[kind] = ledger->by_kind[kind];
  stats.limit = ledger->limit;
  stats.clients = ledger->clients;
  stats.refused = ledger->refused;
  pthread_mutex_unlock(&ledger->lock);
  return stats;
}
