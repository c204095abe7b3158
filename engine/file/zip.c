/* zip.c: the directory of a zip archive and its entries; the contract is in zip.h. */
#include "engine/file/zip.h"

#include <string.h>

enum { END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, LOCAL_BYTES = 30 };

static const char damaged[] = "the directory of the archive is damaged";

uint64_t zip_number(const uint8_t *bytes, int count) {
  uint64_t number = 0;
  while (count-- > 0) number = number << 8 | bytes[count];
  return number;
}

/* Where the directory is: from the record at the end of the file, and from that of 64 bits. */
const char *zip_find_directory(const zip_source_t *source, zip_directory_t *out) {
  const size_t size = source->size;
  size_t *begin = &out->begin, *bytes = &out->bytes, *count = &out->count;
  uint8_t end[END_BYTES], locator[LOCATOR_BYTES], end64[END64_BYTES];
  if (size < END_BYTES || !source->read(source->archive, end, END_BYTES, size - END_BYTES) ||
      memcmp(end, "PK\5\6", 4) != 0 || zip_number(end + 20, 2) != 0)
    return "the directory of the archive is not at its end: the file is cut off";
  *count = zip_number(end + 10, 2), *bytes = zip_number(end + 12, 4),
  *begin = zip_number(end + 16, 4);
  size_t last = size - END_BYTES;
  if (last >= LOCATOR_BYTES &&
      source->read(source->archive, locator, LOCATOR_BYTES, last - LOCATOR_BYTES) &&
      memcmp(locator, "PK\6\7", 4) == 0) {
    const uint64_t at = zip_number(locator + 8, 8);
    if (at > last || last - at < END64_BYTES ||
        !source->read(source->archive, end64, END64_BYTES, at) || memcmp(end64, "PK\6\6", 4) != 0)
      return damaged;
    *count = zip_number(end64 + 32, 8), *bytes = zip_number(end64 + 40, 8);
    *begin = zip_number(end64 + 48, 8);
    last = at;
  }
  if (*begin > last || last - *begin < *bytes || *count > *bytes / ZIP_ENTRY_BYTES) return damaged;
  return NULL;
}

/* Takes the numbers that do not fit into 32 bits from the record of 64 bits behind the name. */
static void take_wide(const uint8_t *extra, size_t length, uint64_t *const wide[3]) {
  while (length >= 4) {
    const uint64_t id = zip_number(extra, 2), bytes = zip_number(extra + 2, 2);
    if (bytes > length - 4) return;
    size_t used = 0;
    for (int i = 0; id == 1 && i < 3; i++) {
      if (*wide[i] != UINT32_MAX || bytes - used < 8) continue;
      *wide[i] = zip_number(extra + 4 + used, 8);
      used += 8;
    }
    extra += 4 + bytes, length -= 4 + bytes;
  }
}

const char *zip_next(const zip_source_t *source, const uint8_t *directory, size_t directory_bytes,
                     size_t *at, zip_part_t *out) {
  const uint8_t *entry = directory + *at;
  uint8_t local[LOCAL_BYTES];
  if (directory_bytes - *at < ZIP_ENTRY_BYTES || memcmp(entry, "PK\1\2", 4) != 0) return damaged;
  const size_t name = zip_number(entry + 28, 2), extra = zip_number(entry + 30, 2),
               comment = zip_number(entry + 32, 2);
  if (directory_bytes - *at - ZIP_ENTRY_BYTES < name + extra + comment) return damaged;
  uint64_t packed = zip_number(entry + 20, 4), bytes = zip_number(entry + 24, 4),
           offset = zip_number(entry + 42, 4);
  take_wide(entry + ZIP_ENTRY_BYTES + name, extra, (uint64_t *const[]){&bytes, &packed, &offset});
  *at += ZIP_ENTRY_BYTES + name + extra + comment;
  *out = (zip_part_t){.name = (const char *)entry + ZIP_ENTRY_BYTES, .name_length = name};
  if (zip_number(entry + 10, 2) != 0 || (zip_number(entry + 8, 2) & 1) != 0 || packed != bytes)
    return "a part of the archive is compressed or encrypted, which torch.save never writes";
  const size_t size = source->size;
  if (offset > size || size - offset < LOCAL_BYTES ||
      !source->read(source->archive, local, LOCAL_BYTES, offset) || memcmp(local, "PK\3\4", 4) != 0)
    return "a part of the archive is not where its directory says";
  out->begin = offset + LOCAL_BYTES + zip_number(local + 26, 2) + zip_number(local + 28, 2);
  out->bytes = bytes;
  if (out->begin <= size && size - out->begin >= bytes) return NULL;
  return "a part of the archive reaches behind the file: the file is cut off";
}
