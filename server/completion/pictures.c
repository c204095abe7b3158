/* pictures.c: the pictures or sounds of a request, see pictures.h.
 *
 * A job of the lanes, never the loop. What a client sends decides no size before its bound was
 * checked: of the file by data_url_read, of the pixels by picture_header, of the samples by the
 * process that decodes, of the tokens by the context of the model, before anything else is decoded.
 */
#include "server/completion/pictures.h"

#include "engine/audio/mel.h"
#include "engine/audio/work.h"
#include "engine/base/util.h"
#include "engine/picture/data_url.h"
#include "server/keys/sha256.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A picture before it is decoded. */
typedef struct picture_file {
  int32_t message, part; /* its place in the request */
  buffer_t bytes;
  picture_header_t header;
  const vision_processor_t *processor; /* by its detail */
  bool joins;                          /* a window of a sound behind its first one */
} picture_file_t;

static int refuse_memory(inferd_error_t *error) {
  return error_set(error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* Puts the place of the picture before what is wrong with it. */
static int name_place(const picture_file_t *file, int code, inferd_error_t *error) {
  char reason[ERROR_MESSAGE_MAX], place[64];
  if (code == 0) return 0;
  snprintf(reason, sizeof reason, "%s", error->message);
  snprintf(place, sizeof place, "messages[%d].content[%d]", (int)file->message, (int)file->part);
  return error_set(error, code, place, "Invalid '%s': %s.", place, reason);
}

/* Two pictures with one key become the same rows: the layout follows from the size, and from
 * whether the picture is alone. `hash` is that of the file. */
static image_key_t key_of(const picture_file_t *file, const uint8_t *hash, bool alone) {
  struct {
    uint8_t file[SHA256_BYTES], processor[SHA256_BYTES];
    uint32_t width, height, alone;
  } parts;
  image_key_t key;
  memcpy(parts.file, hash, sizeof parts.file);
  sha256(file->processor, sizeof *file->processor, parts.processor);
  parts.width = file->header.width;
  parts.height = file->header.height;
  parts.alone = alone;
  sha256(&parts, sizeof parts, key.bytes);
  return key;
}

/* ---- the parts of messages ---- */

typedef struct picture_part {
  int32_t message, part;
  const json_t *url;
  bool low;   /* detail: low */
  bool sound; /* a sound, */
  bool bare;  /* in base64 without a URL around it */
} picture_part_t;

/* The part of a message as one of a picture or a sound. Returns whether it is one. */
static bool read_part(const json_t *part, picture_part_t *out) {
  const json_t *type = json_get(part, "type");
  out->bare = json_equals(type, "input_audio");
  out->sound = out->bare || json_equals(type, "audio_url");
  if (!out->sound && !json_equals(type, "image_url")) return false;
  const char *name = out->bare ? "input_audio" : out->sound ? "audio_url" : "image_url";
  out->url = json_get(part, name);
  out->low = !out->sound && json_equals(json_get(out->url, "detail"), "low");
  if (out->url->type == JSON_OBJECT) out->url = json_get(out->url, out->bare ? "data" : "url");
  return true;
}

/* The pictures among checked messages, in their order: at most `room`. Returns how many. */
static int32_t find_parts(const json_t *messages, picture_part_t *out, int32_t room) {
  int32_t count = 0, message_index = 0;
  JSON_EACH(message, messages) {
    const json_t *content = json_get(message, "content");
    int32_t part_index = 0;
    const bool parts = content != NULL && content->type == JSON_ARRAY;
    for (const json_t *part = parts ? json_first(content) : NULL; part != NULL;
         part = json_next(part), part_index++) {
      picture_part_t found = {message_index, part_index, NULL, false, false, false};
      if (count < room && read_part(part, &found)) out[count++] = found;
    }
    message_index++;
  }
  return count;
}

static bool is_remote(const picture_part_t *part) {
  static const char scheme[] = "https:";
  const size_t length = sizeof scheme - 1;
  const json_t *url = part->url;
  return !part->bare && url->length > length && strncasecmp(url->text, scheme, length) == 0;
}

int pictures_ask(pictures_t *pictures, media_t *media, const json_t *messages, int32_t count,
                 inferd_error_t *error) {
  int code = 0;
  if (media == NULL || pictures->remote != NULL) return 0;
  picture_part_t *parts = calloc((size_t)count, sizeof *parts);
  if (parts == NULL) return refuse_memory(error);
  count = find_parts(messages, parts, count);
  for (int32_t i = 0; code == 0 && i < count; i++) {
    const picture_file_t place = {.message = parts[i].message, .part = parts[i].part};
    const data_kind_t *data = parts[i].sound ? &pictures->sound_kind : &data_picture;
    const media_kind_t kind = {data->noun, data->bytes_max};
    if (!is_remote(&parts[i])) continue;
    if (pictures->remote == NULL)
      pictures->remote = media_job_new(media, pictures->charge.ledger, pictures->charge.client);
    if (pictures->remote == NULL)
      code = refuse_memory(error);
    else
      code = name_place(
          &place,
          media_job_add(pictures->remote, &kind, parts[i].url->text, parts[i].url->length, error),
          error);
  }
  free(parts);
  if (code != 0) {
    media_job_free(pictures->remote);
    pictures->remote = NULL;
  }
  return code;
}

pictures_t pictures_open(const server_t *server, uint64_t client) {
  return (pictures_t){.charge =
                          charge_open(server->ledger, client,
                                      server->sounds != NULL ? LEDGER_sounds : LEDGER_pictures),
                      .sounds = server->sounds,
                      .sound_kind = {"sound",
                                     "a sound's URL must be data:audio/TYPE;base64,...; of other "
                                     "hosts this server fetches sounds by https, if "
                                     "--allowed-media-hosts names them",
                                     (size_t)server->config->max_audio_bytes},
                      .sound_seconds_max = (uint32_t)server->config->max_audio_seconds};
}

bool pictures_leave(pictures_t *pictures) {
  if (!media_job_runs(pictures->remote)) return false;
  media_job_free(pictures->remote);
  pictures->remote = NULL;
  return true;
}

/* ---- files ---- */

/* The bytes of a file that the request brings. */
static int read_bytes(pictures_t *pictures, const picture_part_t *part, buffer_t *out,
                      inferd_error_t *error) {
  const data_kind_t *kind = part->sound ? &pictures->sound_kind : &data_picture;
  const json_t *url = part->url;
  /* As long as its text: the bytes of a refused one are never made. */
  size_t room = MIN(url->length, kind->bytes_max / 3 * 4 + 4);
  if (!charge_resize(&pictures->charge, pictures->charge.bytes + room))
    return ledger_refuse(&pictures->charge, error);
  if (part->bare) return data_base64_read(kind, url->text, url->length, out, error);
  return data_url_read(kind, url->text, url->length, out, error);
}

/* ---- sounds ---- */

/* Bytes of samples that a byte of most files becomes, for the ledger before they are known. */
enum { SAMPLE_BYTES_BY_FILE = 64 };

_Static_assert((int)SOUND_POSITIONS *SOUND_STRIDE == (int)MEL_ROWS, "a window is a spectrogram");
_Static_assert((int)SOUND_SAMPLES_MIN == (int)MEL_SOUND_MIN, "what is mirrored");
_Static_assert((int)SOUND_RATE == (int)AUDIO_RATE && (int)SOUND_HOP == (int)MEL_HOP,
               "and its rows");

/* Makes room for so many windows of the sound `index`, the last of the request so far: each is an
 * image of its own, which has no mark. */
static bool add_windows(pictures_t *pictures, int32_t index, int32_t windows) {
  const size_t count = (size_t)(pictures->count + windows - 1);
  image_t *images = reallocarray(pictures->images, count, sizeof *images);
  if (images != NULL) pictures->images = images;
  picture_file_t *files = reallocarray(pictures->files, count, sizeof *files);
  if (files != NULL) pictures->files = files;
  if (images == NULL || files == NULL) return false;
  const size_t more = count - (size_t)pictures->count;
  memset(images + pictures->count, 0, more * sizeof *images);
  memset(files + pictures->count, 0, more * sizeof *files);
  pictures->count = (int32_t)count;
  for (int32_t w = 1; w < windows; w++) {
    files[index + w] = files[index];
    files[index + w].bytes = (buffer_t){0};
    files[index + w].joins = true;
  }
  return true;
}

/* A sound by chunks, with silence behind a short one. */
static bool fill_chunks(const sound_processor_t *processor, const mel_t *mel,
                        const audio_sound_t *sound, float *rows) {
  const size_t count = (size_t)sound->count, least = (size_t)processor->samples_min;
  float *longer = count < least ? calloc(least, sizeof *longer) : NULL;
  if (count < least && longer == NULL) return false;
  if (longer != NULL) memcpy(longer, sound->samples, count * sizeof *longer);
  mel_sound(mel, longer != NULL ? longer : sound->samples, MAX(count, least), rows);
  free(longer);
  return true;
}

/* All rows of a sound; zeros stay behind those of one that is heard by chunks. */
static bool fill_rows(const sound_processor_t *processor, const mel_t *mel,
                      const audio_sound_t *sound, int32_t windows, float *rows) {
  const size_t count = (size_t)sound->count;
  if (processor->chunked) return fill_chunks(processor, mel, sound, rows);
  if (processor->joined) {
    mel_windows(mel, sound->samples, count, (size_t)windows, rows);
    return true;
  }
  for (size_t w = 0; w < (size_t)windows; w++)
    mel_window(mel, sound->samples + w * MEL_SAMPLES, MIN(count - w * MEL_SAMPLES, MEL_SAMPLES),
               rows + w * MEL_ROWS * (size_t)processor->bands);
  return true;
}

/* The spectrogram of a sound, of all its windows. */
static int make_rows(pictures_t *pictures, int32_t index, const audio_sound_t *sound,
                     int32_t windows, inferd_error_t *error) {
  const sound_processor_t *processor = &pictures->vision->sound;
  const size_t bands = (size_t)processor->bands, whole = (size_t)sound_window_rows(processor);
  mel_t *mel = mel_new(processor->bands);
  float *rows = mel != NULL ? calloc((size_t)windows * whole * bands, sizeof *rows) : NULL;
  const bool filled = rows != NULL && fill_rows(processor, mel, sound, windows, rows);
  mel_free(mel);
  if (!filled) {
    free(rows);
    return refuse_memory(error);
  }
  const vision_layout_t last = sound_window(processor, sound->count, windows - 1);
  const size_t kept =
      ((size_t)(windows - 1) * whole + (size_t)sound_rows(processor, &last)) * bands;
  float *shorter = reallocarray(rows, kept, sizeof *rows);
  if (shorter != NULL) rows = shorter;
  pictures->rows[pictures->num_rows++] = rows;
  for (int32_t w = 0; w < windows; w++) {
    picture_file_t *file = &pictures->files[index + w];
    image_t *image = &pictures->images[index + w];
    image->layout = sound_window(processor, sound->count, w);
    image->rows = rows + (size_t)w * whole * bands;
    file->header.width = image->layout.grid_width;
    file->header.height = (uint32_t)w;
  }
  return 0;
}

/* Decodes a sound, whose file is freed, and makes its spectrogram. `before`: what was charged
 * before the file. Returns the windows in *windows. */
static int hear(pictures_t *pictures, int32_t index, size_t before, int32_t *windows,
                inferd_error_t *error) {
  const sound_processor_t *processor = &pictures->vision->sound;
  const uint32_t seconds = (uint32_t)sound_seconds_max(processor);
  const audio_job_t job = {.seconds_max = MIN(seconds, pictures->sound_seconds_max)};
  const size_t row = (size_t)processor->bands * sizeof(float);
  buffer_t *bytes = &pictures->files[index].bytes;
  const size_t room = (size_t)job.seconds_max * AUDIO_RATE * sizeof(float);
  const size_t guess = MIN(room, bytes->length * SAMPLE_BYTES_BY_FILE);
  audio_sound_t sound = {0};
  vision_layout_t layout;
  if (!charge_resize(&pictures->charge, before + 2 * bytes->length + guess))
    return ledger_refuse(&pictures->charge, error);
  int code = audio_read(pictures->sounds, &job, (const uint8_t *)bytes->data, bytes->length, &sound,
                        &pictures->decoder_ns, error);
  if (code == 0) code = sound_layout(processor, sound.count, &layout, windows, error);
  if (code == 0) pictures->sound_seconds += (double)sound.count / AUDIO_RATE;
  const size_t whole = (size_t)sound_window_rows(processor);
  const size_t rows = code == 0 ? (size_t)*windows * whole * row : 0;
  if (code == 0 && !charge_resize(&pictures->charge,
                                  before + bytes->length + sound.count * sizeof(float) + rows))
    code = ledger_refuse(&pictures->charge, error);
  if (code == 0 && !add_windows(pictures, index, *windows)) code = refuse_memory(error);
  if (code == 0) code = make_rows(pictures, index, &sound, *windows, error);
  audio_sound_free(&sound);
  if (code != 0) return code;
  uint8_t file[SHA256_BYTES];
  bytes = &pictures->files[index].bytes;
  sha256(bytes->data, bytes->length, file);
  for (int32_t w = 0; w < *windows; w++)
    pictures->images[index + w].key = key_of(&pictures->files[index + w], file, false);
  buffer_free(bytes);
  (void)charge_resize(&pictures->charge, before + rows);
  return 0;
}

int32_t pictures_sound_tokens(const pictures_t *pictures) {
  uint32_t tokens = 0;
  for (int32_t i = 0; i < pictures->count; i++)
    if (pictures->images[i].rows != NULL) tokens += pictures->images[i].layout.tokens;
  return (int32_t)tokens;
}

/* ---- all files ---- */

/* Reads the picture or sound at *index, which is moved behind what it becomes. */
static int read_one(pictures_t *pictures, int32_t *at, const picture_part_t *part, size_t *remote,
                    inferd_error_t *error) {
  const int32_t index = *at;
  const picture_file_t place = {.message = part->message, .part = part->part};
  int32_t windows = 1;
  picture_file_t *file = &pictures->files[index];
  image_t *image = &pictures->images[index];
  const bool alone = pictures->count == 1;
  const size_t before = pictures->charge.bytes;
  int code = pictures->remote != NULL && is_remote(part)
                 ? media_job_take(pictures->remote, (*remote)++, &file->bytes, error)
                 : read_bytes(pictures, part, &file->bytes, error);
  if (code == ERR_OVERLOADED) return code;
  if (code == 0 && part->sound) {
    code = hear(pictures, index, before, &windows, error);
    *at += windows;
    return code == ERR_OVERLOADED ? code : name_place(&place, code, error);
  }
  if (code == 0) {
    code =
        picture_header((const uint8_t *)file->bytes.data, file->bytes.length, &file->header, error);
  }
  if (code == 0) {
    code = vision_layout(file->processor, file->header.width, file->header.height, alone,
                         &image->layout, error);
  }
  ++*at;
  if (code == 0) {
    uint8_t hash[SHA256_BYTES];
    sha256(file->bytes.data, file->bytes.length, hash);
    image->key = key_of(file, hash, alone);
  }
  return name_place(file, code, error);
}

int pictures_read(pictures_t *pictures, const vision_t *vision, const json_t *messages,
                  int32_t count, inferd_error_t *error) {
  size_t remote = 0;
  int32_t at = 0;
  int code = 0;
  pictures->vision = vision;
  pictures->images = calloc((size_t)count, sizeof *pictures->images);
  pictures->files = calloc((size_t)count, sizeof *pictures->files);
  picture_part_t *parts = calloc((size_t)count, sizeof *parts);
  if (vision->hears) pictures->rows = calloc((size_t)count, sizeof *pictures->rows);
  if (pictures->images == NULL || pictures->files == NULL || parts == NULL ||
      (vision->hears && pictures->rows == NULL)) {
    free(parts);
    return refuse_memory(error);
  }
  pictures->count = count;
  count = find_parts(messages, parts, count);
  for (int32_t i = 0; code == 0 && i < count; i++) {
    pictures->files[at] =
        (picture_file_t){.message = parts[i].message,
                         .part = parts[i].part,
                         .processor = parts[i].low ? &vision->low : &vision->processor};
    code = read_one(pictures, &at, &parts[i], &remote, error);
  }
  free(parts);
  return code;
}

/* ---- text ---- */

enum { RUNS_MAX = 4 * VISION_TILES_MAX }; /* above those of any layout that is served */

/* The texts around a picture, and a mark for each of its views. */
static void write_picture(const pictures_t *pictures, int32_t index, buffer_t *out) {
  vision_run_t runs[RUNS_MAX];
  const size_t count = vision_expand(pictures->files[index].processor,
                                     &pictures->images[index].layout, runs, RUNS_MAX);
  for (size_t i = 0; i < MIN(count, RUNS_MAX); i++) {
    if (runs[i].piece == VISION_TEXT) buffer_text(out, runs[i].text);
    if (runs[i].piece == VISION_BEGIN) buffer_text(out, pictures->vision->mark);
  }
}

/* The first mark in [from, end) of a text; NULL = there is none. */
static const char *find_mark(const char *text, size_t from, size_t end, const char *mark) {
  return memmem(text + from, end - from, mark, strlen(mark));
}

/* What stands before `end` is written, but for marks, whose pictures are. */
static void write_until(const pictures_t *pictures, const jinja_output_t *rendered, size_t *at,
                        size_t end, int32_t *index, buffer_t *out) {
  const char *mark = pictures->vision->mark, *found;
  while (*index < pictures->count && (found = find_mark(rendered->text, *at, end, mark)) != NULL) {
    const size_t place = (size_t)(found - rendered->text);
    buffer_append(out, rendered->text + *at, place - *at);
    write_picture(pictures, (*index)++, out);
    *at = place + strlen(mark);
  }
  buffer_append(out, rendered->text + *at, end - *at);
  *at = end;
}

int pictures_write(const pictures_t *pictures, jinja_output_t *rendered, inferd_error_t *error) {
  buffer_t out = {0};
  int32_t index = 0;
  size_t at = 0;
  if (pictures->count == 0 || pictures->vision->mark == NULL) return 0;
  for (size_t i = 0; i < rendered->num_request; i++) {
    byte_span_t *span = &rendered->request[i];
    const size_t length = span->end - span->begin;
    write_until(pictures, rendered, &at, span->begin, &index, &out);
    buffer_append(&out, rendered->text + at, length);
    at += length;
    *span = (byte_span_t){out.length - length, out.length};
  }
  write_until(pictures, rendered, &at, rendered->length, &index, &out);
  if (!buffer_reserve(&out, 1) || out.failed) { /* the NUL of buffer_detach */
    buffer_free(&out);
    return refuse_memory(error);
  }
  free(rendered->text);
  rendered->text = buffer_detach(&out, &rendered->length);
  return 0;
}

/* ---- ids ---- */

/* The runs of a picture in the place of one of its marks: of all, or, with texts around its views,
 * of one view from *from on, between two texts. Returns behind which it ends. */
static size_t runs_of_mark(const vision_t *vision, const vision_run_t *runs, size_t count,
                           size_t *from) {
  size_t end;
  if (vision->mark == NULL) return count;
  while (*from < count && runs[*from].piece == VISION_TEXT) ++*from;
  for (end = *from; end < count && runs[end].piece != VISION_TEXT; end++) {
  }
  return end;
}

/* Writes the ids in the place of mark `mark` of a picture at `out`, or only counts them if that is
 * NULL. Returns how many there are; 0: it has a piece that is no id. */
static size_t put_picture(const pictures_t *pictures, int32_t index, uint32_t mark, int32_t *out,
                          size_t at) {
  const vision_t *vision = pictures->vision;
  image_t *image = &pictures->images[index];
  vision_run_t runs[RUNS_MAX];
  size_t length = 0, first = 0, end = 0;
  size_t count = vision_expand(pictures->files[index].processor, &image->layout, runs, RUNS_MAX);
  if (count > RUNS_MAX) return 0;
  for (uint32_t i = 0; i <= mark; i++) {
    first = end;
    end = runs_of_mark(vision, runs, count, &first);
  }
  if (mark == 0) image->first = -1;
  for (size_t i = first; i < end; i++) {
    const int32_t *ids;
    const uint32_t each = vision_run_ids(vision, &runs[i], &ids);
    if (each == 0) return 0;
    for (uint32_t j = 0; out != NULL && j < runs[i].count * each; j++)
      out[at + length + j] = ids[j % each];
    if (runs[i].piece == VISION_TOKENS) {
      if (image->first < 0) image->first = (int32_t)(at + length);
      image->end = (int32_t)(at + length + runs[i].count);
    }
    length += runs[i].count * each;
  }
  return length;
}

static uint32_t marks_of(const pictures_t *pictures, int32_t index) {
  if (pictures->files[index].joins) return 0;
  return pictures->vision->mark != NULL ? pictures->images[index].layout.views : 1;
}

int pictures_expand(pictures_t *pictures, int32_t **ids, size_t *count, inferd_error_t *error) {
  const vision_t *vision = pictures->vision;
  size_t marks = 0, expected = 0, length = *count, out = 0;
  for (size_t i = 0; i < *count; i++) marks += (*ids)[i] == vision->mark_id;
  for (int32_t i = 0; i < pictures->count; i++) expected += marks_of(pictures, i);
  if (marks != expected) {
    return error_set(error, ERR_INVALID_VALUE, "messages",
                     "The chat template of this model has %zu places for the %d %s of this "
                     "request.",
                     marks, vision->hears ? (int)expected : (int)pictures->count,
                     vision->hears ? "sounds" : "pictures");
  }
  for (int32_t i = 0; i < pictures->count; i++) {
    for (uint32_t mark = 0; mark < MAX(marks_of(pictures, i), 1); mark++) {
      size_t own = put_picture(pictures, i, mark, NULL, 0);
      if (own == 0)
        return error_set(error, ERR_INVALID_VALUE, "messages",
                         "Pictures of this model are not served yet: they are named by text.");
      length += own - (marks_of(pictures, i) > 0);
    }
  }
  int32_t *longer = length > INT32_MAX ? NULL : calloc(length, sizeof *longer);
  if (longer == NULL) return refuse_memory(error);
  int32_t index = 0;
  uint32_t mark = 0;
  for (size_t i = 0; i < *count; i++) {
    if ((*ids)[i] != vision->mark_id) {
      longer[out++] = (*ids)[i];
      continue;
    }
    out += put_picture(pictures, index, mark++, longer, out);
    if (mark < marks_of(pictures, index)) continue;
    mark = 0;
    while (++index < pictures->count && pictures->files[index].joins)
      out += put_picture(pictures, index, 0, longer, out);
  }
  free(*ids);
  *ids = longer;
  *count = length;
  return 0;
}

/* ---- pixels ---- */

static int decode_one(pictures_t *pictures, int32_t index, helper_t *helper, uint8_t *views,
                      inferd_error_t *error) {
  const picture_file_t *file = &pictures->files[index];
  const picture_job_t job = {.processor = *file->processor,
                             .layout = pictures->images[index].layout,
                             .width = file->header.width,
                             .height = file->header.height};
  int code = picture_views(helper, &job, (const uint8_t *)file->bytes.data, file->bytes.length,
                           views, &pictures->decoder_ns, error);
  return name_place(file, code, error);
}

static void free_files(pictures_t *pictures) {
  for (int32_t i = 0; pictures->files != NULL && i < pictures->count; i++)
    buffer_free(&pictures->files[i].bytes);
  free(pictures->files);
  pictures->files = NULL;
  media_job_free(pictures->remote);
  pictures->remote = NULL;
}

int pictures_decode(pictures_t *pictures, helper_t *helper, const atomic_bool *cancelled,
                    inferd_error_t *error) {
  size_t total = 0, most = 0, at = 0;
  if (pictures->count == 0) return 0;
  if (pictures->vision->hears) {
    free_files(pictures);
    return 0;
  }
  for (int32_t i = 0; i < pictures->count; i++) {
    size_t bytes = vision_view_bytes(&pictures->images[i].layout);
    most = MAX(most, bytes + pictures->files[i].bytes.length);
    total += bytes;
  }
  /* `most`: what is shared with the process that decodes, one picture at a time. */
  if (!charge_resize(&pictures->charge, pictures->charge.bytes + total + most))
    return ledger_refuse(&pictures->charge, error);
  pictures->views = malloc(total);
  if (pictures->views == NULL) return refuse_memory(error);
  for (int32_t i = 0; i < pictures->count; i++) {
    if (atomic_load(cancelled))
      return error_set(error, ERR_REQUEST_TIMEOUT, NULL, "The request was cancelled.");
    int code = decode_one(pictures, i, helper, pictures->views + at, error);
    if (code != 0) return code;
    pictures->images[i].views = pictures->views + at;
    at += vision_view_bytes(&pictures->images[i].layout);
  }
  free_files(pictures);
  (void)charge_resize(&pictures->charge, total);
  return 0;
}

void pictures_free(pictures_t *pictures) {
  free_files(pictures);
  for (int32_t i = 0; i < pictures->num_rows; i++) free(pictures->rows[i]);
  free(pictures->rows);
  pictures->rows = NULL;
  pictures->num_rows = 0;
  free(pictures->images);
  free(pictures->views);
  pictures->images = NULL;
  pictures->views = NULL;
  pictures->count = 0;
  charge_drop(&pictures->charge);
}
