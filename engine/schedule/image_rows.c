/* image_rows.c: a bounded cache of the rows of pictures; the contract is in image_rows.h.
 *
 * Engine thread only; allocates in image_rows_new only.
 */
#include "engine/schedule/image_rows.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/device/pages.h"

#include <stdlib.h>
#include <string.h>

typedef struct image_entry {
  image_key_t key;
  uint64_t domain;
  uint64_t used, step; /* larger = later; the last step that reads it */
  int32_t first_page, num_pages, tokens;
  int32_t chain; /* next entry of the same bucket; 0 ends it */
  bool is_used, is_full;
  image_mark_t mark;
} image_entry_t;

struct image_rows {
  int32_t num_pages, row_values, placeholder_id;
  float *memory;      /* [num_pages, IMAGE_PAGE_ROWS, row_values], touched when it is used */
  int32_t *next_page; /* [num_pages + 1] of an entry, or free; 0 ends. Pages count from 1 */
  int32_t free_page, num_free;
  image_entry_t *entries; /* [num_pages + 1]; entry 0 stands for "none" */
  int32_t *buckets;       /* [num_pages] by the first bytes of the key */
  uint64_t clock, launched, landed;
  int32_t at_entry, at_index, at_page; /* of the last row that was used */
};

static size_t memory_bytes(const image_rows_t *rows) {
  return (size_t)rows->num_pages * IMAGE_PAGE_ROWS * (size_t)rows->row_values * sizeof(float);
}

size_t image_rows_bytes(int32_t tokens, int32_t row_values) {
  return (size_t)DIV_UP(tokens, IMAGE_PAGE_ROWS) * IMAGE_PAGE_ROWS * (size_t)row_values *
         sizeof(float);
}

int image_rows_new(size_t bytes, int32_t row_values, int32_t placeholder_id, image_rows_t **out,
                   inferd_error_t *error) {
  const size_t pages = bytes / image_rows_bytes(1, row_values);
  image_rows_t *rows = calloc(1, sizeof *rows);
  if (rows == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for rows of pictures");
  rows->num_pages = (int32_t)MIN(MAX(pages, 1), INT32_MAX / 2);
  rows->row_values = row_values;
  rows->placeholder_id = placeholder_id;
  rows->memory = pages_map(memory_bytes(rows));
  rows->next_page = calloc((size_t)rows->num_pages + 1, sizeof *rows->next_page);
  rows->entries = calloc((size_t)rows->num_pages + 1, sizeof *rows->entries);
  rows->buckets = calloc((size_t)rows->num_pages, sizeof *rows->buckets);
  if (rows->memory == NULL || rows->next_page == NULL || rows->entries == NULL ||
      rows->buckets == NULL) {
    image_rows_free(rows);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %zu bytes of rows of pictures",
                     bytes);
  }
  for (int32_t page = rows->num_pages; page > 0; page--) {
    rows->next_page[page] = rows->free_page;
    rows->free_page = page;
  }
  rows->num_free = rows->num_pages;
  *out = rows;
  return 0;
}

void image_rows_free(image_rows_t *rows) {
  if (rows == NULL) return;
  pages_unmap(rows->memory, memory_bytes(rows));
  free(rows->next_page);
  free(rows->entries);
  free(rows->buckets);
  free(rows);
}

int32_t image_rows_placeholder(const image_rows_t *rows) {
  return rows->placeholder_id;
}

/* ---- entries ---- */

static int32_t *bucket_of(const image_rows_t *rows, const image_key_t *key) {
  uint32_t word;
  memcpy(&word, key->bytes, sizeof word);
  return &rows->buckets[word % (uint32_t)rows->num_pages];
}

/* The adapter of a request changes no row. */
static int32_t find(const image_rows_t *rows, const request_t *request, const image_t *image) {
  int32_t e = *bucket_of(rows, &image->key);
  for (; e != 0; e = rows->entries[e].chain) {
    const image_entry_t *entry = &rows->entries[e];
    if (entry->domain == request->base_salt &&
        memcmp(&entry->key, &image->key, sizeof image->key) == 0)
      break;
  }
  return e;
}

bool image_rows_has(const image_rows_t *rows, const request_t *request, const image_t *image) {
  return rows->entries[find(rows, request, image)].is_full;
}

bool image_rows_is_begun(const image_rows_t *rows, const request_t *request, const image_t *image) {
  const int32_t e = find(rows, request, image);
  return e != 0 && !rows->entries[e].is_full;
}

static float *row_at(const image_rows_t *rows, int32_t page, int32_t row) {
  return rows->memory + ((size_t)(page - 1) * IMAGE_PAGE_ROWS + (size_t)(row % IMAGE_PAGE_ROWS)) *
                            (size_t)rows->row_values;
}

/* The page of a row: mostly that of the row before it, or the next one. */
static int32_t page_of(image_rows_t *rows, int32_t number, int32_t index) {
  if (rows->at_entry != number || index < rows->at_index) {
    rows->at_entry = number;
    rows->at_index = 0;
    rows->at_page = rows->entries[number].first_page;
  }
  for (; rows->at_index < index; rows->at_index++) rows->at_page = rows->next_page[rows->at_page];
  return rows->at_page;
}

const float *image_rows_use(image_rows_t *rows, const request_t *request, const image_t *image,
                            int32_t row) {
  const int32_t e = find(rows, request, image);
  image_entry_t *entry = &rows->entries[e];
  CHECK(entry->is_full);
  CHECK_LT(row, entry->tokens);
  entry->used = ++rows->clock;
  entry->step = rows->launched;
  return row_at(rows, page_of(rows, e, row / IMAGE_PAGE_ROWS), row);
}

/* ---- room ---- */

void image_rows_unmark(image_rows_t *rows) {
  for (int32_t e = 1; e <= rows->num_pages; e++) rows->entries[e].mark = IMAGE_MAY_GO;
}

void image_rows_mark(image_rows_t *rows, const request_t *request, const image_t *image,
                     image_mark_t mark) {
  const int32_t e = find(rows, request, image);
  if (e != 0) rows->entries[e].mark = MAX(rows->entries[e].mark, mark);
}

static bool may_go(const image_rows_t *rows, int32_t number) {
  const image_entry_t *entry = &rows->entries[number];
  return entry->is_full && entry->mark != IMAGE_MUST_STAY && entry->step <= rows->landed;
}

/* The entry that goes first; 0 = none may. */
static int32_t first_to_go(const image_rows_t *rows) {
  int32_t first = 0;
  for (int32_t e = 1; e <= rows->num_pages; e++) {
    const image_entry_t *entry = &rows->entries[e], *best = &rows->entries[first];
    if (!may_go(rows, e)) continue;
    if (first == 0 || entry->mark < best->mark ||
        (entry->mark == best->mark && entry->used < best->used))
      first = e;
  }
  return first;
}

void image_rows_drop(image_rows_t *rows, int32_t number) {
  image_entry_t *entry = &rows->entries[number];
  int32_t *link = bucket_of(rows, &entry->key);
  while (*link != number) link = &rows->entries[*link].chain;
  *link = entry->chain;
  int32_t last = entry->first_page;
  while (rows->next_page[last] != 0) last = rows->next_page[last];
  rows->next_page[last] = rows->free_page;
  rows->free_page = entry->first_page;
  rows->num_free += entry->num_pages;
  if (rows->at_entry == number) rows->at_entry = 0;
  *entry = (image_entry_t){0};
}

static bool make_room(image_rows_t *rows, int32_t num_pages) {
  int32_t most = rows->num_free;
  for (int32_t e = 1; e <= rows->num_pages; e++)
    if (may_go(rows, e)) most += rows->entries[e].num_pages;
  if (most < num_pages) return false;
  while (rows->num_free < num_pages) image_rows_drop(rows, first_to_go(rows));
  return true;
}

/* Takes the pages; those of an entry stand in the order of its rows. */
static void take_pages(image_rows_t *rows, image_entry_t *entry, float **out) {
  int32_t *link = &entry->first_page;
  for (int32_t i = 0; i < entry->num_pages; i++) {
    const int32_t page = rows->free_page;
    rows->free_page = rows->next_page[page];
    *link = page;
    link = &rows->next_page[page];
    const int32_t first = i * IMAGE_PAGE_ROWS, end = MIN(first + IMAGE_PAGE_ROWS, entry->tokens);
    for (int32_t row = first; row < end; row++) out[row] = row_at(rows, page, row);
  }
  *link = 0;
  rows->num_free -= entry->num_pages;
}

int32_t image_rows_take(image_rows_t *rows, const request_t *request, const image_t *image,
                        float **out) {
  const int32_t tokens = (int32_t)image->layout.tokens, pages = DIV_UP(tokens, IMAGE_PAGE_ROWS);
  CHECK_EQ(find(rows, request, image), 0);
  if (!make_room(rows, pages)) return 0;
  int32_t e = 1; /* there are as many entries as pages */
  while (rows->entries[e].is_used) e++;
  image_entry_t *entry = &rows->entries[e];
  int32_t *bucket = bucket_of(rows, &image->key);
  *entry = (image_entry_t){.key = image->key,
                           .domain = request->base_salt,
                           .used = ++rows->clock,
                           .num_pages = pages,
                           .tokens = tokens,
                           .chain = *bucket,
                           .is_used = true};
  *bucket = e;
  take_pages(rows, entry, out);
  return e;
}

void image_rows_fill(image_rows_t *rows, int32_t entry) {
  rows->entries[entry].is_full = true;
}

void image_rows_launch(image_rows_t *rows) {
  rows->launched++;
}

void image_rows_land(image_rows_t *rows) {
  rows->landed++;
}
