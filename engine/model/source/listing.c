/* listing.c: the names in a directory, and what GGUF files say by their names.
 *
 * Any thread; no state. Reads directories, never files.
 */
#include "engine/model/source/listing.h"

#include "engine/base/util.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LISTING_PATH_MAX = 4096 };

static int add_name(listing_t *listing, const char *dir, const char *folder, const char *name,
                    inferd_error_t *error) {
  if (listing->count == LISTING_NAMES_MAX) {
    return error_set(error, ERR_MODEL_MALFORMED, "model",
                     "%.300s: the directory has more than %d files", dir, LISTING_NAMES_MAX);
  }
  /* The capacity is the next power of two. */
  if ((listing->count & (listing->count - 1)) == 0) {
    size_t wanted = listing->count == 0 ? 1 : 2 * (size_t)listing->count;
    char **names = reallocarray(listing->names, wanted, sizeof *names);
    if (names == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for file names");
    listing->names = names;
  }
  size_t length = strlen(folder) + strlen(name) + 2;
  char *copy = malloc(length);
  if (copy == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for file names");
  snprintf(copy, length, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
  listing->names[listing->count++] = copy;
  return 0;
}

/* Adds the names of `dir`/`folder`; folder "" is `dir` itself. A name that is not a readable
 * directory adds nothing, except that `dir` itself must be readable. */
static int add_folder(const char *dir, const char *folder, listing_t *listing,
                      inferd_error_t *error) {
  char path[LISTING_PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/%s", dir, folder);
  if (n < 0 || (size_t)n >= sizeof path) return 0;
  DIR *stream = opendir(path);
  if (stream == NULL) return folder[0] != '\0' ? 0 : error_system(error, dir, errno);
  int code = 0;
  for (struct dirent *entry; code == 0 && (entry = readdir(stream)) != NULL;) {
    if (entry->d_name[0] != '.') code = add_name(listing, dir, folder, entry->d_name, error);
  }
  closedir(stream);
  return code;
}

static int by_name(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

int listing_read(const char *dir, listing_t *out, inferd_error_t *error) {
  *out = (listing_t){0};
  int code = add_folder(dir, "", out, error);
  int first_level = out->count;
  for (int i = 0; i < first_level && code == 0; i++) {
    code = add_folder(dir, out->names[i], out, error);
  }
  if (code != 0) listing_free(out);
  if (out->count > 0) qsort(out->names, (size_t)out->count, sizeof *out->names, by_name);
  return code;
}

void listing_free(listing_t *listing) {
  for (int i = 0; i < listing->count; i++) free(listing->names[i]);
  free(listing->names);
  *listing = (listing_t){0};
}

bool listing_has(const listing_t *listing, const char *name) {
  for (int i = 0; i < listing->count; i++) {
    if (strcmp(listing->names[i], name) == 0) return true;
  }
  return false;
}

bool listing_has_suffix(const listing_t *listing, const char *suffix) {
  for (int i = 0; i < listing->count; i++) {
    if (text_ends_in(listing->names[i], suffix)) return true;
  }
  return false;
}

const char *listing_text(const listing_t *listing, bool (*wanted)(const char *name), char *out,
                         size_t capacity) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < listing->count; i++) {
    if (wanted != NULL && !wanted(listing->names[i])) continue;
    char name[96];
    error_quote(name, sizeof name, listing->names[i], strlen(listing->names[i]));
    size_t need = strlen(name) + 2;
    if (used + need + 5 > capacity) { /* ", ..." and the NUL */
      snprintf(out + used, capacity - used, "%s...", used > 0 ? ", " : "");
      break;
    }
    used += (size_t)snprintf(out + used, capacity - used, "%s%s", used > 0 ? ", " : "", name);
  }
  return out;
}

/* Number of this part of a split file NAME-00001-of-00005.gguf; 0 = the file is not split. */
static int part_number(const char *name) {
  static const char form[] = "-00000-of-00000.gguf";
  size_t length = strlen(name), tail = sizeof form - 1;
  if (length < tail) return 0;
  const char *end = name + length - tail;
  for (size_t i = 0; i < tail; i++) {
    bool same = form[i] == '0' ? isdigit((unsigned char)end[i]) != 0
                               : tolower((unsigned char)end[i]) == form[i];
    if (!same) return 0;
  }
  return (int)strtol(end + 1, NULL, 10);
}

bool gguf_is_model(const char *name) {
  const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
  if (!text_ends_in(base, ".gguf") || part_number(base) > 1) return false;
  return strcasestr(base, "mmproj") == NULL && strcasestr(base, "imatrix") == NULL;
}

bool gguf_has_quant(const char *name, const char *quant, bool *plain) {
  size_t length = strlen(quant);
  for (const char *at = name; length > 0 && (at = strcasestr(at, quant)) != NULL; at++) {
    unsigned char next = (unsigned char)at[length];
    if (isalnum(next) || next == '_') continue;
    if (at > name && isalnum((unsigned char)at[-1])) continue;
    if (plain != NULL) *plain = at - name < 3 || strncasecmp(at - 3, "UD-", 3) != 0;
    return true;
  }
  return false;
}

int gguf_stem_length(const char *name) {
  int length = (int)strlen(name), part = (int)strlen("-00001-of-00001");
  length -= (int)strlen(".gguf");
  return part_number(name) > 0 ? length - part : length;
}

bool gguf_is_part_of(const char *name, const char *first) {
  int stem = gguf_stem_length(first);
  if (part_number(first) == 0 || part_number(name) == 0) return strcmp(name, first) == 0;
  const char *of = first + stem + strlen("-00001");
  if (strncmp(name, first, (size_t)stem) != 0 || gguf_stem_length(name) != stem) return false;
  return strcmp(name + stem + strlen("-00001"), of) == 0;
}

const char *gguf_choose(const listing_t *listing, const char *quant, int *count) {
  const char *any = NULL, *plain_one = NULL;
  int plain_count = 0;
  *count = 0;
  for (int i = 0; i < listing->count; i++) {
    bool plain = false;
    if (!gguf_is_model(listing->names[i])) continue;
    if (quant[0] != '\0' && !gguf_has_quant(listing->names[i], quant, &plain)) continue;
    any = listing->names[i];
    ++*count;
    if (!plain) continue;
    plain_one = listing->names[i];
    plain_count++;
  }
  if (*count == 1) return any;
  return plain_count == 1 ? plain_one : NULL;
}
