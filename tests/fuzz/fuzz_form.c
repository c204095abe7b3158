/* fuzz_form.c: a form of /v1/audio -> its parts, the same as JSON, the model that it names, and the
 * file in it -> samples.
 *
 * The first byte chooses the steps of a pass; the rest is the body, whose boundary is "b". A pass
 * in any steps must read the parts that the reader of the whole reads, no part has a boundary in
 * it, and what a form prints is JSON.
 */
#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "server/audio/audio.h"
#include "server/http/multipart.h"
#include "server/models/named.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>

static const char TYPE[] = "multipart/form-data; boundary=b", BOUNDARY[] = "\r\n--b";
enum { BOUNDARY_BYTES = sizeof BOUNDARY - 1 };

static void check_parts(const multipart_t *form, const char *body, size_t length) {
  const char *behind = body;
  for (int i = 0; i < form->count; i++) {
    const multipart_part_t *part = &form->parts[i];
    const char *end = part->bytes + part->length;
    if (part->bytes < behind || end > body + length - BOUNDARY_BYTES) abort();
    if (memcmp(end, BOUNDARY, BOUNDARY_BYTES) != 0) abort();
    if (memmem(part->bytes, part->length, BOUNDARY, BOUNDARY_BYTES) != NULL) abort();
    if (part->name[0] == '\0' || multipart_find(form, part->name) == NULL) abort();
    behind = end;
  }
}

/* In steps of so many bytes. `form` is what the reader of the whole says; NULL = it refuses. */
static void check_pass(const multipart_t *form, const char *body, size_t length, size_t most) {
  multipart_pass_t pass;
  inferd_error_t error = {0};
  int parts = 0, code = multipart_begin(TYPE, body, length, &pass, &error);
  while (code >= 0 && (code = multipart_step(&pass, most, &error)) > 0) {
    if (code == MULTIPART_MORE) continue;
    const multipart_part_t *known = form != NULL ? &form->parts[parts] : NULL;
    if (form != NULL && parts >= form->count) abort();
    if (known != NULL &&
        (known->bytes != pass.part.bytes || known->length != pass.part.length ||
         strcmp(known->name, pass.part.name) != 0 || strcmp(known->file, pass.part.file) != 0))
      abort();
    parts++;
  }
  if (code < 0 && (error.message[0] == '\0' || form != NULL)) abort();
  if (code == 0 && form != NULL && parts != form->count) abort();
}

static void check_name(const multipart_t *form, const char *body, size_t length, size_t most) {
  named_scan_t scan;
  inferd_error_t error = {0};
  int code = named_begin_form(&scan, TYPE, body, length, &error);
  if (code == 0) code = NAMED_MORE;
  while (code == NAMED_MORE) code = named_step(&scan, most, &error);
  const multipart_part_t *part = multipart_find(form, "model");
  const bool fits = part != NULL && part->file[0] == '\0' && part->length > 0 &&
                    part->length < sizeof scan.named.model &&
                    memchr(part->bytes, '\0', part->length) == NULL;
  if ((code == 0) != fits) abort();
  if (fits && (strlen(scan.named.model) != part->length ||
               memcmp(scan.named.model, part->bytes, part->length) != 0))
    abort();
}

static void check_json(const multipart_t *form) {
  buffer_t out = {0};
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  int code = audio_print_form(form, &transcription_table, &out, &error);
  for (int i = 0; i < form->count && code == 0; i++)
    if (!utf8_valid(form->parts[i].name, strlen(form->parts[i].name))) code = -1;
  if (code == 0 && json_parse(out.data, out.length, &json_limits_request, &doc, &error) != 0)
    abort();
  for (int i = 0; i < form->count && code == 0; i++) {
    const json_t *value = json_get(json_root(doc), form->parts[i].name);
    if (value == NULL) abort();
    if (value->type == JSON_TRUE && form->parts[i].file[0] == '\0' && form->parts[i].length != 4)
      abort();
  }
  json_free(doc);
  buffer_free(&out);
}

void fuzz_form(const uint8_t *data, size_t size) {
  multipart_t form;
  inferd_error_t error = {0};
  if (size == 0) return;
  const size_t length = size - 1, most = 1 + data[0];
  char *body = malloc(length + (length == 0)); /* a read behind it is seen */
  if (body == NULL) abort();
  memcpy(body, data + 1, length);
  const bool read = multipart_read(TYPE, body, length, &form, &error) == 0;
  check_pass(read ? &form : NULL, body, length, most);
  if (read) {
    check_parts(&form, body, length);
    check_name(&form, body, length, most);
    check_json(&form);
    const multipart_part_t *file = multipart_find(&form, "file");
    if (file != NULL && file->file[0] != '\0')
      fuzz_sound((const uint8_t *)file->bytes, file->length);
  }
  free(body);
}
