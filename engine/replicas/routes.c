/* routes.c: the table of routes.h, four places for each hash. Loop thread. */
#include "engine/replicas/routes.h"

#include <stdlib.h>

enum { PLACES = 4 };

typedef struct seen_key {
  uint64_t key;  /* the first word of a block's */
  uint64_t used; /* routes_t.now at its last use; 0 = empty */
} seen_key_t;

struct routes {
  seen_key_t *places; /* [mask + 1, PLACES] */
  uint64_t mask;
  uint64_t now; /* 1 + keys that were new */
  uint64_t most;
};

routes_t *routes_new(int32_t num_blocks) {
  routes_t *routes = calloc(1, sizeof *routes);
  if (routes == NULL) return NULL;
  while (2 * (routes->mask + 1) < (uint64_t)num_blocks) routes->mask = 2 * routes->mask + 1;
  routes->now = 1;
  routes->most = (uint64_t)num_blocks;
  routes->places = calloc(routes->mask + 1, PLACES * sizeof *routes->places);
  if (routes->places != NULL) return routes;
  free(routes);
  return NULL;
}

void routes_free(routes_t *routes) {
  if (routes == NULL) return;
  free(routes->places);
  free(routes);
}

static seen_key_t *places_of(const routes_t *routes, const block_key_t *key) {
  return &routes->places[(key->word[1] & routes->mask) * PLACES];
}

/* The place of a key that the replica may still have; NULL = it is not known. */
static seen_key_t *find(const routes_t *routes, const block_key_t *key) {
  seen_key_t *places = places_of(routes, key);
  for (int i = 0; i < PLACES; i++)
    if (places[i].used > 0 && places[i].key == key->word[0])
      return routes->now - places[i].used < routes->most ? &places[i] : NULL;
  return NULL;
}

int32_t routes_match(const routes_t *routes, const block_key_t *keys, int32_t count) {
  int32_t known = 0;
  while (routes != NULL && known < count && find(routes, &keys[known]) != NULL) known++;
  return known;
}

uint64_t routes_noted(const routes_t *routes) {
  return routes != NULL ? routes->now - 1 : 0;
}

/* Takes an old place of the key, or the one that was used least recently. */
static void add(routes_t *routes, const block_key_t *key) {
  seen_key_t *places = places_of(routes, key), *place = places;
  for (int i = 1; i < PLACES && place->key != key->word[0]; i++)
    if (places[i].key == key->word[0] || places[i].used < place->used) place = &places[i];
  *place = (seen_key_t){.key = key->word[0], .used = ++routes->now};
}

void routes_note(routes_t *routes, const block_key_t *keys, int32_t count) {
  for (int32_t i = 0; routes != NULL && i < count; i++) {
    seen_key_t *known = find(routes, &keys[i]);
    if (known != NULL)
      known->used = routes->now;
    else
      add(routes, &keys[i]);
  }
}
