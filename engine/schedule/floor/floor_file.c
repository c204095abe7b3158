/* floor_file.c: the file of a floor that outlives the process; the contract is in floor_file.h. */
#include "engine/schedule/floor/floor_file.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 4096, PAGE = 4096 };
static const char MAGIC[16] = "inferd floor 1\n";
static const uint64_t BYTE_ORDER_MARK = UINT64_C(0x0102030405060708);

typedef struct header {
  char magic[16];
  uint64_t byte_order;
  uint64_t num_places, record_bytes, content_bytes;
  uint64_t secret[2];
  char identity[FLOOR_IDENTITY_MAX];
  uint64_t checksum; /* of all before it */
} file_header_t;
_Static_assert(sizeof(file_header_t) <= HEADER_BYTES, "records follow behind the header's page");

static uint64_t checksum_of(const file_header_t *header) {
  return hash_bytes((const uint8_t *)header, offsetof(file_header_t, checksum));
}

static file_header_t make_header(const floor_shape_t *shape, const uint64_t secret[2]) {
  file_header_t header = {.byte_order = BYTE_ORDER_MARK,
                          .num_places = (uint64_t)shape->num_places,
                          .record_bytes = floor_record_bytes(shape->block_size),
                          .content_bytes = shape->content_bytes,
                          .secret = {secret[0], secret[1]}};
  memcpy(header.magic, MAGIC, sizeof header.magic);
  snprintf(header.identity, sizeof header.identity, "%s", shape->identity);
  header.checksum = checksum_of(&header);
  return header;
}

static size_t content_begins(const file_header_t *header) {
  return HEADER_BYTES + ROUND_UP((size_t)(header->num_places * header->record_bytes), PAGE);
}

static size_t file_bytes(const file_header_t *header) {
  return content_begins(header) + (size_t)(header->num_places * header->content_bytes);
}

/* Compares the header of a file with the one that it would have if it were made now. */
static floor_verdict_t judge(int descriptor, off_t size, const file_header_t *made,
                             file_header_t *found, char why[128]) {
  if (size == 0) return FLOOR_NEW;
  bool whole = pread(descriptor, found, sizeof *found, 0) == (ssize_t)sizeof *found;
  if (!whole || memcmp(found->magic, MAGIC, sizeof MAGIC) != 0) {
    snprintf(why, 128, "it is not a file of cached blocks");
    return FLOOR_LEFT;
  }
  found->identity[FLOOR_IDENTITY_MAX - 1] = '\0';
  if (found->byte_order != BYTE_ORDER_MARK || found->checksum != checksum_of(found)) {
    snprintf(why, 128, "its header is damaged");
  } else if (strcmp(found->identity, made->identity) != 0) {
    snprintf(why, 128, "it is of another model, version or setting");
  } else if (found->num_places != made->num_places || found->record_bytes != made->record_bytes ||
             found->content_bytes != made->content_bytes) {
    snprintf(why, 128, "it has another size");
  } else if ((size_t)size != file_bytes(made)) {
    snprintf(why, 128, "it was cut or has grown");
  } else {
    return FLOOR_KEPT;
  }
  return FLOOR_EMPTIED;
}

/* Makes the file as large as it must be, filled with zeros. The space is taken now: else a full
 * disk would end the process when a page is written. */
static int empty(int descriptor, const char *path, const file_header_t *header,
                 inferd_error_t *error) {
  size_t bytes = file_bytes(header);
  if (ftruncate(descriptor, 0) != 0) return error_system(error, path, errno);
  int number = posix_fallocate(descriptor, 0, (off_t)bytes);
  if (number != 0)
    return error_set(error, ERR_IO, "prefix_cache_file",
                     "%.300s: %.2f GiB for cached blocks cannot be had: %s", path,
                     (double)bytes / (1024.0 * 1024.0 * 1024.0), strerror(number));
  return 0;
}

/* Maps the file. The header is written last, so that a file whose making was cut short is not one
 * of cached blocks. */
static int map(floor_file_t *file, const char *path, const file_header_t *header,
               floor_memory_t *out, inferd_error_t *error) {
  file->bytes = file_bytes(header);
  void *base = mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
  if (base == MAP_FAILED) return error_system(error, path, errno);
  file->base = base;
  memcpy(file->base, header, sizeof *header);
  *out = (floor_memory_t){.records = file->base + HEADER_BYTES,
                          .content = file->base + content_begins(header),
                          .content_bytes = (size_t)header->content_bytes};
  return 0;
}

int floor_file_open(const char *path, const floor_shape_t *shape, uint64_t secret[2],
                    floor_file_t *file, floor_memory_t *out, char why[128], inferd_error_t *error) {
  struct stat status;
  file_header_t header = make_header(shape, secret), found;
  file->descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file->descriptor < 0) return error_system(error, path, errno);
  if (fstat(file->descriptor, &status) != 0) return error_system(error, path, errno);
  floor_verdict_t verdict = FLOOR_LEFT;
  if (!S_ISREG(status.st_mode)) {
    snprintf(why, 128, "it is no regular file");
  } else if (flock(file->descriptor, LOCK_EX | LOCK_NB) != 0) {
    snprintf(why, 128, "another process uses it");
  } else {
    verdict = judge(file->descriptor, status.st_size, &header, &found, why);
  }
  if (verdict == FLOOR_LEFT) return FLOOR_LEFT;
  if (fchmod(file->descriptor, 0600) != 0) return error_system(error, path, errno);
  int code = verdict == FLOOR_KEPT ? 0 : empty(file->descriptor, path, &header, error);
  if (verdict == FLOOR_KEPT) header = found;
  if (code == 0) code = map(file, path, &header, out, error);
  if (code != 0) return code;
  memcpy(secret, header.secret, sizeof header.secret);
  return (int)verdict;
}

void floor_file_close(floor_file_t *file) {
  if (file->base != NULL) munmap(file->base, file->bytes);
  if (file->descriptor > 0) close(file->descriptor); /* which frees the lock */
  *file = (floor_file_t){0};
}
