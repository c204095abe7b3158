/* json_copy.c: JSON values that outlive the document they were parsed in.
 *
 * Any thread, the owner of the arena. The copy lies in the arena and is never freed by itself.
 */
#include "server/fields/json_copy.h"

#include <string.h>

/* Values lie in preorder (json.h): those of a subtree are a range. */
size_t json_count_values(const json_t *value) {
  size_t count = 0;
  for (uint64_t left = 1; left > 0; left--) {
    const json_t *json = value + count++;
    if (json->type == JSON_ARRAY || json->type == JSON_OBJECT) left += json->count;
  }
  return count;
}

const json_t *json_copy(arena_t *arena, const json_t *value) {
  if (value == NULL) return NULL;
  size_t count = json_count_values(value);
  json_t *copy = arena_alloc(arena, count, sizeof *copy);
  if (copy == NULL) return NULL;
  memcpy(copy, value, count * sizeof *copy);
  for (json_t *json = copy; json < copy + count; json++) {
    bool is_text = json->type == JSON_STRING || json->type == JSON_NUMBER;
    if (is_text) json->text = arena_copy(arena, json->text, json->length);
    if (json->key != NULL) json->key = arena_copy(arena, json->key, json->key_length);
    if ((is_text && json->text == NULL) || (value[json - copy].key != NULL && json->key == NULL)) {
      return NULL;
    }
  }
  copy->next = 0;
  return copy;
}
