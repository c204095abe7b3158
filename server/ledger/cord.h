/* cord.h: a long text as a list of parts, printed piece by piece.
 *
 * A large answer is never built as a whole: its parts point to what other buffers hold, and a piece
 * is printed when the transport asks for it. Short text between the parts is appended to `own` with
 * the functions of buffer.h. One owner, one thread at a time. `(cord_t){0}` is an empty cord.
 */
#ifndef INFERD_SERVER_LEDGER_CORD_H
#define INFERD_SERVER_LEDGER_CORD_H

#include "engine/base/buffer.h"

enum { CORD_STEP_BYTES = 4096 }; /* source bytes that are escaped before `room` is compared again */

/* Appends the item `index` of a list. */
typedef void cord_item_t(buffer_t *out, const void *list, size_t index);

typedef struct cord_part {
  const char *bytes; /* NULL: the part lies in `own`, from `offset` on */
  size_t offset;     /* of own text */
  size_t length;     /* bytes, or items of the list */
  bool escaped;      /* bytes: printed as the body of a JSON string */
  cord_item_t *item; /* not NULL: items of `list`, with commas between */
  const void *list;  /* of `item` */
  bool joined;       /* the items bring the commas between them */
} cord_part_t;

typedef struct cord {
  buffer_t own;       /* text between the parts; append to it freely, also between prints */
  buffer_t parts;     /* cord_part_t */
  size_t own_used;    /* bytes of `own` that a part covers */
  size_t part, place; /* where the next piece begins: part, and byte or item in it */
  bool flat;          /* bytes and text are copied into `own` at once; items are not */
} cord_t;

/* Each appends a part. What it points to must stay as it is until the cord is freed. */
void cord_bytes(cord_t *cord, const char *bytes, size_t length);
void cord_escape(cord_t *cord, const char *text, size_t length); /* the body of a JSON string */
void cord_items(cord_t *cord, cord_item_t *item, const void *list, size_t count);
/* The same for items that print the commas between them, as some may print nothing. */
void cord_joined(cord_t *cord, cord_item_t *item, const void *list, size_t count);

/* Appends the parts of another cord, whose own text must stay as it is, too. No items. */
void cord_append(cord_t *cord, cord_t *other);

/* Returns true if memory was short while the cord was made: then parts are missing. */
bool cord_failed(const cord_t *cord);
/* Prints on from where the last call ended, until `room` bytes are printed, or little more: one
 * item, or CORD_STEP_BYTES of text escaped. Returns false when nothing is left. If memory is short
 * `out` has failed. */
bool cord_print(cord_t *cord, buffer_t *out, size_t room);
/* Empties a cord of which everything is printed; its memory is kept. */
void cord_clear(cord_t *cord);
/* Bytes that the cord itself holds. */
size_t cord_held(const cord_t *cord);
void cord_free(cord_t *cord);

#endif
