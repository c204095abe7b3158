/* gguf_find.c: the GGUF file that a path means: itself, or the only one in a directory.
 *
 * Any thread. Opens no model; reads the names of a directory and the first bytes of a file.
 */
#include "engine/base/util.h"
#include "engine/file/gguf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_SHOWN = 5, NAME_BYTES_MAX = 256 };

/* What the search has seen in a directory so far. */
typedef struct findings {
  int count; /* models in GGUF */
  bool has_safetensors;
  char first[NAME_BYTES_MAX], shown[320];
} findings_t;

/* True for the second and later files of a split model: "...-00002-of-00003.gguf". */
static bool continues(const char *name) {
  const char *of = strstr(name, "-of-");
  int number, count;
  while (of != NULL && strstr(of + 1, "-of-") != NULL) of = strstr(of + 1, "-of-");
  if (of == NULL || of - name < 6) return false;
  return sscanf(of - 6, "-%5d-of-%5d.", &number, &count) == 2 && number != 1;
}

static void note(findings_t *findings, const char *name) {
  char quoted[96];
  if (strcmp(name, "model.safetensors") == 0 || strcmp(name, "model.safetensors.index.json") == 0)
    findings->has_safetensors = true;
  /* "mmproj" files are the image part of a multimodal model. */
  if (!text_ends_in(name, ".gguf") || continues(name) || strstr(name, "mmproj") != NULL) return;
  if (strlen(name) >= sizeof(findings->first)) return;
  size_t used = strlen(findings->shown);
  if (findings->count < NAMES_SHOWN) {
    snprintf(findings->shown + used, sizeof(findings->shown) - used, "%s%s", used > 0 ? ", " : "",
             error_quote(quoted, sizeof(quoted), name, strlen(name)));
  }
  if (findings->count++ == 0) memcpy(findings->first, name, strlen(name) + 1);
}

static int too_long(const char *path, int length, size_t capacity, inferd_error_t *error) {
  return error_set(error, ERR_MODEL_MISSING, "model",
                   "%.100s...: the path of the GGUF file has %d bytes, supported: 1..%zu", path,
                   length, capacity - 1);
}

static int find_inside(const char *path, char *out, size_t capacity, inferd_error_t *error) {
  findings_t findings = {0};
  DIR *stream = opendir(path);
  if (stream == NULL) return 0; /* the reader of the model reports why */
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;) note(&findings, entry->d_name);
  closedir(stream);
  if (findings.count == 0 || findings.has_safetensors) return 0;
  if (findings.count > 1) {
    return error_set(error, ERR_MODEL_MALFORMED, "model",
                     "%s: holds %d models in GGUF files; name one of them: %s%s", path,
                     findings.count, findings.shown, findings.count > NAMES_SHOWN ? ", ..." : "");
  }
  int n = snprintf(out, capacity, "%s/%s", path, findings.first);
  return n > 0 && (size_t)n < capacity ? 1 : too_long(path, n, capacity, error);
}

/* True when the file begins as GGUF does: files in the caches of other programs have no suffix. */
static bool begins_as_gguf(const char *path) {
  char magic[4];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool same = fd >= 0 && read(fd, magic, 4) == 4 && memcmp(magic, "GGUF", 4) == 0;
  if (fd >= 0) close(fd);
  return same;
}

int gguf_find(const char *path, char *out, size_t capacity, inferd_error_t *error) {
  struct stat status;
  if (stat(path, &status) != 0) return 0;
  if (S_ISDIR(status.st_mode)) return find_inside(path, out, capacity, error);
  if (!S_ISREG(status.st_mode) || (!text_ends_in(path, ".gguf") && !begins_as_gguf(path))) return 0;
  int n = snprintf(out, capacity, "%s", path);
  return n > 0 && (size_t)n < capacity ? 1 : too_long(path, n, capacity, error);
}
