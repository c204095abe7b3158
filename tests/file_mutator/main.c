/* main.c: files of pictures or sound that are damaged, and read.
 *
 * `file_mutator picture|sound [--inside] COUNT SEED FILE...` makes COUNT inputs, each a function of
 * the seed and its number: pieces of a file (pieces.h) are lost, doubled, moved and taken from
 * others, bytes change, checksums are mended in most, and some are then cut or shifted. An input is
 * read as a server does, the header here and the rest in a process without rights; with --inside,
 * for sanitizers, by this program: a process reads thousands of them, and if it dies, the next one
 * goes on behind what it died of. Prints how many had no header, were refused, were read, and ended
 * their process. Each of the last is named, its bytes go to KIND-SEED-NUMBER.find, and it makes the
 * exit status 1, but for those that had used up their time in a process without rights. One input
 * in 5,000 is a file as it is. One thread.
 */
#include "engine/audio/work.h"
#include "engine/base/check.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/picture/work.h"
#include "tests/file_mutator/pieces.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  FILES_MAX = 256,
  BYTES_MAX = 1 << 16,
  PIECES_MAX = 512,
  CHANGES_MAX = 12,
  WHOLE_EVERY = 5000,
  INPUTS_OF_A_PROCESS = 5000, /* libraries leak */
  HANG_S = 20,                /* of processor time, with --inside */
  SECONDS_MAX = 4,            /* of sound */
  VIEW_BYTES_MAX = 1 << 20
};

typedef struct span {
  const uint8_t *bytes;
  size_t size;
} span_t;

typedef struct sample {
  uint8_t bytes[BYTES_MAX];
  size_t size;
  container_t container;
  span_t pieces[PIECES_MAX];
  size_t num_pieces;
} sample_t;

typedef enum outcome { NO_HEADER, REFUSED, READ, DIED, OUTCOMES } outcome_t;

typedef struct kind {
  const char *name;
  const helper_trade_t *trade;
  /* NULL = no helper: the work is done here. */
  outcome_t (*read)(helper_t *helper, const uint8_t *bytes, size_t size, uint64_t *spent_ns,
                    inferd_error_t *error);
} kind_t;

/* Shared by those who read inside and who waits for them. */
typedef struct progress {
  uint64_t next, counts[OUTCOMES];
} progress_t;

static sample_t *files;
static size_t num_files;
static uint64_t state, seed;

/* ---- files and their pieces ---- */

static size_t draw(size_t below) {
  state += RANDOM_GAMMA;
  return below == 0 ? 0 : (size_t)(random_mix(state) % below);
}

static void cut(sample_t *file) {
  file->container = container_of_file(file->bytes, file->size);
  file->num_pieces = 0;
  for (size_t at = 0; at < file->size;) {
    const bool is_last = file->num_pieces == PIECES_MAX - 1;
    const size_t size =
        is_last ? file->size - at : piece_size(file->container, file->bytes, file->size, at);
    file->pieces[file->num_pieces++] = (span_t){file->bytes + at, size};
    at += size;
  }
}

static void read_file(const char *name) {
  FILE *in = num_files < FILES_MAX ? fopen(name, "rb") : NULL;
  sample_t *file = &files[num_files];
  if (in == NULL) {
    fprintf(stderr, "file_mutator: %s cannot be read, or is one too many\n", name);
    exit(2);
  }
  file->size = fread(file->bytes, 1, BYTES_MAX, in);
  num_files += file->size > 0;
  cut(file);
  fclose(in);
}

/* ---- changes ---- */

/* A piece that is lost, doubled, moved, or of another file of this container. The first stays. */
static void move_pieces(span_t *pieces, size_t *count, container_t container) {
  if (*count < 2) return;
  const size_t from = 1 + draw(*count - 1), to = 1 + draw(*count - 1), kind = draw(4);
  const span_t piece = pieces[from];
  if (kind == 0) {
    memmove(pieces + from, pieces + from + 1, (*count - from - 1) * sizeof *pieces);
    (*count)--;
  } else if (kind == 1 && *count < PIECES_MAX) {
    memmove(pieces + to + 1, pieces + to, (*count - to) * sizeof *pieces);
    pieces[to] = piece;
    (*count)++;
  } else if (kind == 2) {
    pieces[from] = pieces[to];
    pieces[to] = piece;
  } else {
    const sample_t *other = &files[draw(num_files)];
    if (other->container == container) pieces[from] = other->pieces[draw(other->num_pieces)];
  }
}

/* One of: any byte, a bit, a number of 1 to 4 bytes at its limit, bytes of elsewhere. The heads of
 * pieces are as likely as all the rest. */
static void change_inside(uint8_t *piece, size_t size) {
  static const uint8_t limits[] = {0x00, 0xff, 0x7f, 0x80, 0x01};
  if (size == 0) return;
  const size_t at = draw(2) ? draw(MIN(size, 32)) : draw(size);
  const size_t wanted = 1 + draw(4), length = MIN(wanted, size - at);
  switch (draw(5)) {
  case 0: piece[at] ^= (uint8_t)(1u << draw(8)); return;
  case 1:
    memset(piece + at, draw(2) ? 0 : 0xff, length);
    piece[at + (draw(2) ? 0 : length - 1)] = limits[draw(sizeof limits)];
    return;
  case 2: piece[at] = (uint8_t)(piece[at] + draw(9) - 4); return;
  case 3: memmove(piece + at, piece + draw(size - length + 1), length); return;
  default: piece[at] = (uint8_t)draw(256);
  }
}

/* Bytes that are cut off, lost, or doubled: pieces are no longer where they say. */
static void shift(sample_t *made) {
  const size_t keep = draw(8) > 0 ? MIN(made->size, 8) : 0, room = made->size - keep;
  const size_t at = keep + draw(room), most = made->size - at, length = draw(MIN(most, 64) + 1);
  switch (draw(3)) {
  case 0: made->size = MAX(at, 1); return;
  case 1:
    memmove(made->bytes + at, made->bytes + at + length, most - length);
    made->size = MAX(made->size - length, 1);
    return;
  default:
    if (made->size + length > BYTES_MAX) return;
    memmove(made->bytes + at + length, made->bytes + at, most);
    made->size += length;
  }
}

static void make(uint64_t number, sample_t *made) {
  span_t pieces[PIECES_MAX];
  state = random_mix(seed) ^ random_mix(number);
  const sample_t *file = &files[draw(num_files)];
  const bool is_whole = number % WHOLE_EVERY == 0;
  size_t count = file->num_pieces, changes = is_whole ? 0 : draw(1 + draw(CHANGES_MAX));
  memcpy(pieces, file->pieces, count * sizeof *pieces);
  for (size_t i = is_whole ? 0 : draw(4); i > 0; i--) move_pieces(pieces, &count, file->container);
  const bool is_mended = draw(4) > 0;
  made->size = 0;
  for (size_t i = 0; i < count; i++) {
    uint8_t *piece = made->bytes + made->size;
    const size_t size = MIN(pieces[i].size, BYTES_MAX - made->size);
    memcpy(piece, pieces[i].bytes, size);
    made->size += size;
    const bool is_kept = i == 0 && count > 1 && draw(8) > 0; /* mostly: it says the format */
    const size_t some = draw(changes + 1) / (count > 8 ? 4 : 1);
    const size_t here = is_kept ? 0 : i + 1 < count ? some : changes;
    for (size_t k = here; k > 0; k--) change_inside(piece, size);
    changes -= here;
    if (here > 0 && is_mended) piece_mend(file->container, piece, size);
  }
  for (size_t i = is_whole || draw(3) > 0 ? 0 : 1 + draw(3); i > 0; i--) shift(made);
}

/* ---- reading ---- */

static outcome_t outcome_of(int code, const inferd_error_t *error) {
  if (code == 0) return READ;
  CHECK(error->message[0] != '\0');
  return strstr(error->message, "its decoder failed") != NULL ? DIED : REFUSED;
}

static outcome_t read_picture(helper_t *helper, const uint8_t *bytes, size_t size,
                              uint64_t *spent_ns, inferd_error_t *error) {
  static uint8_t views[VIEW_BYTES_MAX];
  picture_header_t header;
  picture_job_t job = {0};
  vision_processor_default(VISION_QWEN2_VL, &job.processor);
  vision_limit(&job.processor, 256);
  if (picture_header(bytes, size, &header, error) != 0 ||
      vision_layout(&job.processor, header.width, header.height, true, &job.layout, error) != 0 ||
      vision_view_bytes(&job.layout) > sizeof views)
    return NO_HEADER;
  job.width = header.width;
  job.height = header.height;
  if (helper != NULL)
    return outcome_of(picture_views(helper, &job, bytes, size, views, spent_ns, error), error);
  size_t room = vision_view_bytes(&job.layout), used = room;
  uint8_t *exact = malloc(MAX(room, 1));
  CHECK(exact != NULL);
  const int code = picture_work(&job, bytes, size, exact, room, &used, error);
  free(exact);
  return outcome_of(code, error);
}

static outcome_t read_sound(helper_t *helper, const uint8_t *bytes, size_t size, uint64_t *spent_ns,
                            inferd_error_t *error) {
  const audio_job_t job = {.seconds_max = SECONDS_MAX};
  audio_format_t format;
  audio_sound_t sound;
  audio_source_t source;
  uint64_t count = 0;
  if (audio_format(bytes, size, &format, error) != 0) return NO_HEADER;
  if (helper != NULL) {
    const int code = audio_read(helper, &job, bytes, size, &sound, spent_ns, error);
    audio_sound_free(&sound);
    return outcome_of(code, error);
  }
  const uint64_t room = draw(2) ? SECONDS_MAX * AUDIO_RATE : draw(AUDIO_RATE);
  float *out = malloc(MAX(room, 1) * sizeof *out);
  CHECK(out != NULL);
  const int code = audio_decode(bytes, size, out, room, &count, &source, error);
  CHECK_LE(count, room);
  if (code == 0) CHECK_EQ(count, audio_samples(source.frames, source.rate));
  for (uint64_t i = 0; i < count && code == 0; i++) CHECK(fabsf(out[i]) <= 2 * AUDIO_SAMPLE_MAX);
  free(out);
  return outcome_of(code, error);
}

static const kind_t kinds[] = {{"picture", &picture_trade, read_picture},
                               {"sound", &audio_trade, read_sound}};

/* ---- all inputs ---- */

static void keep_find(const kind_t *kind, uint64_t number) {
  static sample_t made;
  char name[128];
  make(number, &made);
  snprintf(name, sizeof name, "%s-%" PRIu64 "-%" PRIu64 ".find", kind->name, seed, number);
  FILE *out = fopen(name, "wb");
  if (out == NULL) return;
  (void)fwrite(made.bytes, 1, made.size, out);
  fclose(out);
}

/* The input has memory of its own, so that no byte behind it can be read unseen. */
static outcome_t read_input(const kind_t *kind, helper_t *helper, uint64_t number,
                            uint64_t *spent_ns) {
  static sample_t made;
  inferd_error_t error = {0};
  make(number, &made);
  uint8_t *bytes = malloc(made.size);
  CHECK(bytes != NULL);
  memcpy(bytes, made.bytes, made.size);
  const outcome_t outcome = kind->read(helper, bytes, made.size, spent_ns, &error);
  free(bytes);
  return outcome;
}

static void read_apart(const kind_t *kind, uint64_t count, uint64_t counts[]) {
  const uint64_t out_of_time_ns = (kind->trade->cpu_seconds_max - 1) * UINT64_C(1000000000);
  helper_t *helper = NULL;
  inferd_error_t error = {0};
  if (helper_start(kind->trade, &helper, &error) != 0) {
    fprintf(stderr, "file_mutator: %s\n", error.message);
    exit(2);
  }
  for (uint64_t i = 0; i < count; i++) {
    uint64_t spent_ns = 0;
    outcome_t outcome = read_input(kind, helper, i, &spent_ns);
    if (outcome == DIED && spent_ns >= out_of_time_ns) outcome = REFUSED;
    counts[outcome]++;
    if (outcome != DIED) continue;
    printf("input %" PRIu64 " ended its process after %" PRIu64 " us\n", i, spent_ns / 1000);
    keep_find(kind, i);
  }
  helper_stop(helper);
}

static void read_some_inside(const kind_t *kind, uint64_t count, progress_t *progress) {
  for (int i = 0; i < INPUTS_OF_A_PROCESS && progress->next < count; i++) {
    const struct itimerval bound = {.it_value = {.tv_sec = HANG_S}};
    uint64_t spent_ns = 0;
    (void)setitimer(ITIMER_PROF, &bound, NULL);
    progress->counts[read_input(kind, NULL, progress->next, &spent_ns)]++;
    progress->next++;
  }
  _exit(0);
}

static void read_inside(const kind_t *kind, uint64_t count, uint64_t counts[]) {
  progress_t *progress =
      mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(progress != MAP_FAILED);
  if (kind->trade->ready != NULL) kind->trade->ready();
  while (progress->next < count) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) read_some_inside(kind, count, progress);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    printf("input %" PRIu64 " ended its process: %s %d\n", progress->next,
           WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    keep_find(kind, progress->next++);
    progress->counts[DIED]++;
  }
  memcpy(counts, progress->counts, sizeof progress->counts);
}

int main(int argc, char **argv) {
  const bool inside = argc > 2 && strcmp(argv[2], "--inside") == 0;
  const kind_t *kind = NULL;
  uint64_t counts[OUTCOMES] = {0};
  for (size_t i = 0; i < ARRAY_LEN(kinds) && argc > 1; i++)
    if (strcmp(argv[1], kinds[i].name) == 0) kind = &kinds[i];
  const int first = inside ? 3 : 2;
  if (kind == NULL || argc < first + 3) {
    fprintf(stderr, "file_mutator picture|sound [--inside] COUNT SEED FILE...\n");
    return 2;
  }
  const uint64_t count = strtoull(argv[first], NULL, 10);
  seed = strtoull(argv[first + 1], NULL, 10);
  files = calloc(FILES_MAX, sizeof *files);
  CHECK(files != NULL);
  for (int i = first + 2; i < argc; i++) read_file(argv[i]);
  CHECK_GT(num_files, 0);
  setvbuf(stdout, NULL, _IOLBF, 0);
  (inside ? read_inside : read_apart)(kind, count, counts);
  printf("%" PRIu64 " inputs of %zu files, seed %" PRIu64 ": %" PRIu64 " without a header, %" PRIu64
         " refused, %" PRIu64 " read, %" PRIu64 " ended their process\n",
         count, num_files, seed, counts[NO_HEADER], counts[REFUSED], counts[READ], counts[DIED]);
  free(files);
  return counts[DIED] > 0;
}
