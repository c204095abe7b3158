/* mutate.c: files of pictures that are damaged, read as a server reads them: the header here, the
 * rest in a process without rights.
 *
 * `picture_mutator COUNT SEED FILE...` makes COUNT inputs, each a function of the seed and its
 * number, and prints how many had no header, were refused, were read, and ended their process. Each
 * of the last is named, and makes the exit status 1, but for those that had used up their time.
 * Between them the files themselves must be read. One thread, beside the process of decoders.
 */
#include "engine/base/check.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/picture/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 256, BYTES_MAX = 1 << 16, CHANGES_MAX = 12, WHOLE_EVERY = 5000 };
static const uint64_t OUT_OF_TIME_NS = (uint64_t)(PICTURE_CPU_SECONDS_MAX - 1) * 1000000000u;

typedef struct sample {
  uint8_t bytes[BYTES_MAX];
  size_t size;
} sample_t;

typedef enum outcome { NO_HEADER, REFUSED, READ, DIED, OUTCOMES } outcome_t;

static sample_t files[FILES_MAX];
static size_t num_files;
static uint64_t state;

static size_t draw(size_t below) {
  state += RANDOM_GAMMA;
  return below == 0 ? 0 : (size_t)(random_mix(state) % below);
}

static void read_file(const char *name) {
  FILE *in = num_files < FILES_MAX ? fopen(name, "rb") : NULL;
  sample_t *file = &files[num_files];
  if (in == NULL) {
    fprintf(stderr, "picture_mutator: %s cannot be read, or is one too many\n", name);
    exit(2);
  }
  file->size = fread(file->bytes, 1, sizeof file->bytes, in);
  num_files += file->size > 0;
  fclose(in);
}

/* One of: a byte, a number at its limit, a piece that is lost, doubled, or of another file, and the
 * rest that is cut off. Mostly behind the first bytes, by which the format is known. */
static void change(sample_t *made) {
  const size_t keep = draw(8) > 0 ? MIN(made->size, 8) : 0, room = made->size - keep;
  const size_t at = keep + draw(room), most = made->size - at, length = draw(MIN(most, 64) + 1);
  const sample_t *other = &files[draw(num_files)];
  switch (draw(7)) {
  case 0: made->size = MAX(at, 1); return;
  case 1:
    memmove(made->bytes + at, made->bytes + at + length, most - length);
    made->size = MAX(made->size - length, 1);
    return;
  case 2:
    if (made->size + length > BYTES_MAX) return;
    memmove(made->bytes + at + length, made->bytes + at, most);
    made->size += length;
    return;
  case 3: memset(made->bytes + at, draw(2) ? 0xff : 0, MIN(length, 4)); return;
  case 4:
    if (other->size >= length)
      memcpy(made->bytes + at, other->bytes + draw(other->size - length + 1), length);
    return;
  default: made->bytes[at] = (uint8_t)draw(256);
  }
}

static outcome_t see(helper_t *helper, const sample_t *made, uint64_t *spent_ns,
                     inferd_error_t *error) {
  static uint8_t views[1 << 20];
  picture_header_t header;
  picture_job_t job = {0};
  vision_processor_default(VISION_QWEN2_VL, &job.processor);
  vision_limit(&job.processor, 256);
  if (picture_header(made->bytes, made->size, &header, error) != 0 ||
      vision_layout(&job.processor, header.width, header.height, true, &job.layout, error) != 0 ||
      vision_view_bytes(&job.layout) > sizeof views)
    return NO_HEADER;
  job.width = header.width;
  job.height = header.height;
  const int code = picture_views(helper, &job, made->bytes, made->size, views, spent_ns, error);
  if (code == 0) return READ;
  return strstr(error->message, "its decoder failed") != NULL ? DIED : REFUSED;
}

static outcome_t run(helper_t *helper, uint64_t seed, uint64_t number) {
  static sample_t made;
  inferd_error_t error = {0};
  uint64_t spent_ns = 0;
  state = random_mix(seed) ^ random_mix(number);
  made = files[draw(num_files)];
  for (size_t i = 0, changes = number % WHOLE_EVERY == 0 ? 0 : 1 + draw(1 + draw(CHANGES_MAX));
       i < changes; i++)
    change(&made);
  const outcome_t outcome = see(helper, &made, &spent_ns, &error);
  if (outcome == DIED && spent_ns < OUT_OF_TIME_NS)
    printf("input %" PRIu64 " ended its process after %" PRIu64 " us\n", number, spent_ns / 1000);
  return outcome == DIED && spent_ns >= OUT_OF_TIME_NS ? REFUSED : outcome;
}

int main(int argc, char **argv) {
  helper_t *helper = NULL;
  inferd_error_t error = {0};
  uint64_t counts[OUTCOMES] = {0};
  if (argc < 4 || helper_start(&picture_trade, &helper, &error) != 0) {
    fprintf(stderr, "picture_mutator COUNT SEED FILE...: %s\n", error.message);
    return 2;
  }
  const uint64_t count = strtoull(argv[1], NULL, 10), seed = strtoull(argv[2], NULL, 10);
  for (int i = 3; i < argc; i++) read_file(argv[i]);
  CHECK_GT(num_files, 0);
  for (uint64_t i = 0; i < count; i++) counts[run(helper, seed, i)]++;
  helper_stop(helper);
  printf("%" PRIu64 " inputs of %zu files, seed %" PRIu64 ": %" PRIu64 " without a header, %" PRIu64
         " refused, %" PRIu64 " read, %" PRIu64 " ended their process\n",
         count, num_files, seed, counts[NO_HEADER], counts[REFUSED], counts[READ], counts[DIED]);
  return counts[DIED] > 0;
}
