/* lobby.c: the lists of lobby.h. One thread; calls nothing but the heap. */
#include "server/models/lobby.h"

#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <stdlib.h>

enum { BUCKETS = 4096 };

struct lobby_client {
  uint64_t source;
  int64_t count;
  guest_t *newest;
  lobby_client_t *same_hash;
  lobby_client_t *next, *previous; /* of those with the same count */
};

struct lobby {
  lobby_client_t *buckets[BUCKETS];
  lobby_client_t **by_count; /* [n]: those with n guests; n < capacity */
  int64_t capacity, most, count;
};

lobby_t *lobby_new(void) {
  return calloc(1, sizeof(lobby_t));
}

void lobby_free(lobby_t *lobby) {
  if (lobby == NULL) return;
  CHECK_EQ(lobby->count, 0);
  free(lobby->by_count);
  free(lobby);
}

static lobby_client_t *find(const lobby_t *lobby, uint64_t source) {
  lobby_client_t *client = lobby->buckets[hash_mix(source) % BUCKETS];
  while (client != NULL && client->source != source) client = client->same_hash;
  return client;
}

/* Moves a client to the list of its count, which has changed. */
static void settle(lobby_t *lobby, lobby_client_t *client, int64_t before) {
  if (before > 0) {
    *(client->previous != NULL ? &client->previous->next : &lobby->by_count[before]) = client->next;
    if (client->next != NULL) client->next->previous = client->previous;
  }
  client->previous = client->next = NULL;
  if (client->count > 0) {
    client->next = lobby->by_count[client->count];
    if (client->next != NULL) client->next->previous = client;
    lobby->by_count[client->count] = client;
  }
  lobby->most = MAX(lobby->most, client->count);
  if (lobby->most > 0 && lobby->by_count[lobby->most] == NULL) lobby->most--;
}

static bool grow(lobby_t *lobby, int64_t count) {
  if (count < lobby->capacity) return true;
  int64_t capacity = MAX(64, 2 * lobby->capacity);
  lobby_client_t **by_count =
      reallocarray(lobby->by_count, (size_t)capacity, sizeof(lobby_client_t *));
  if (by_count == NULL) return false;
  for (int64_t i = lobby->capacity; i < capacity; i++) by_count[i] = NULL;
  lobby->by_count = by_count;
  lobby->capacity = capacity;
  return true;
}

bool lobby_enter(lobby_t *lobby, guest_t *guest, uint64_t source) {
  lobby_client_t *client = find(lobby, source);
  CHECK(guest->client == NULL);
  if (!grow(lobby, client != NULL ? client->count + 1 : 1)) return false;
  if (client == NULL) {
    client = calloc(1, sizeof *client);
    if (client == NULL) return false;
    lobby_client_t **bucket = &lobby->buckets[hash_mix(source) % BUCKETS];
    client->source = source;
    client->same_hash = *bucket;
    *bucket = client;
  }
  guest->client = client;
  guest->older = client->newest;
  if (client->newest != NULL) client->newest->newer = guest;
  client->newest = guest;
  lobby->count++;
  client->count++;
  settle(lobby, client, client->count - 1);
  return true;
}

void lobby_leave(lobby_t *lobby, guest_t *guest) {
  lobby_client_t *client = guest->client;
  if (client == NULL) return;
  *(guest->newer != NULL ? &guest->newer->older : &client->newest) = guest->older;
  if (guest->older != NULL) guest->older->newer = guest->newer;
  *guest = (guest_t){.owner = guest->owner};
  lobby->count--;
  client->count--;
  settle(lobby, client, client->count + 1);
  if (client->count > 0) return;
  lobby_client_t **link = &lobby->buckets[hash_mix(client->source) % BUCKETS];
  while (*link != client) link = &(*link)->same_hash;
  *link = client->same_hash;
  free(client);
}

int64_t lobby_count(const lobby_t *lobby) {
  return lobby->count;
}

int64_t lobby_count_of(const lobby_t *lobby, uint64_t source) {
  const lobby_client_t *client = find(lobby, source);
  return client != NULL ? client->count : 0;
}

guest_t *lobby_newest_of_most(const lobby_t *lobby, int64_t *count) {
  *count = lobby->most;
  return lobby->most > 0 ? lobby->by_count[lobby->most]->newest : NULL;
}
