/* mp4.c: see mp4.h. Every read is within the span that it is made in; loops are bounded by counts
 * that have their bytes in the file. */
#include "engine/audio/mp4.h"

#include "engine/base/util.h"

/* ---- bytes ---- */

static uint64_t read_number(const uint8_t *bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) value = value << 8 | bytes[i];
  return value;
}

/* Takes a big-endian number off the front; 0 where the span ends. */
static uint64_t take(mp4_span_t *span, size_t count) {
  if (span->size < count) {
    span->size = 0;
    return 0;
  }
  const uint64_t value = read_number(span->bytes, count);
  span->bytes += count;
  span->size -= count;
  return value;
}

static void skip(mp4_span_t *span, size_t count) {
  count = MIN(count, span->size);
  span->bytes += count;
  span->size -= count;
}

/* ---- boxes ---- */

#define NAME(text)                                                                                 \
  ((uint32_t)(text)[0] << 24 | (uint32_t)(text)[1] << 16 | (uint32_t)(text)[2] << 8 |              \
   (uint32_t)(text)[3])

/* Takes the next box of a span: its name and what is in it, cut where the span ends. */
static bool next_box(mp4_span_t *span, uint32_t *name, mp4_span_t *out) {
  if (span->size < 8) return false;
  uint64_t size = take(span, 4), head = 8;
  *name = (uint32_t)take(span, 4);
  if (size == 1) {
    if (span->size < 8) return false;
    size = take(span, 8);
    head = 16;
  }
  if (size == 0) size = head + span->size; /* to the end */
  if (size < head) return false;
  *out = (mp4_span_t){span->bytes, (size_t)MIN(size - head, (uint64_t)span->size)};
  skip(span, out->size);
  return true;
}

static bool find(mp4_span_t span, uint32_t wanted, mp4_span_t *out) {
  uint32_t name;
  while (next_box(&span, &name, out))
    if (name == wanted) return true;
  return false;
}

/* By names from outside to inside. */
static bool find_path(mp4_span_t span, const uint32_t *names, size_t count, mp4_span_t *out) {
  *out = span;
  for (size_t i = 0; i < count; i++)
    if (!find(*out, names[i], out)) return false;
  return true;
}

#define FIND(span, out, ...)                                                                       \
  find_path(span, (const uint32_t[]){__VA_ARGS__},                                                 \
            sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), out)

/* ---- the codec ---- */

enum { ES_TAG = 3, CONFIG_TAG = 4, SETUP_TAG = 5 };
enum { MPEG4_AUDIO = 0x40, MPEG2_AAC_MAIN = 0x66, MPEG2_AAC_SSR = 0x68 };

/* A descriptor of 14496-1: its tag, its length in 1 to 4 bytes of 7 bits, what is in it. */
static bool next_descriptor(mp4_span_t *span, unsigned tag, mp4_span_t *out) {
  if (span->size < 2 || take(span, 1) != tag) return false;
  size_t length = 0;
  for (int i = 0; i < 4; i++) {
    const uint64_t byte = take(span, 1);
    length = length << 7 | (byte & 0x7F);
    if (byte < 0x80) break;
  }
  *out = (mp4_span_t){span->bytes, MIN(length, span->size)};
  skip(span, out->size);
  return true;
}

static int refuse(inferd_error_t *error, const char *what) {
  return error_set(error, ERR_INVALID_VALUE, NULL, "the sound %s", what);
}

static int read_esds(mp4_span_t esds, mp4_track_t *out, inferd_error_t *error) {
  mp4_span_t stream, config;
  skip(&esds, 4);
  if (!next_descriptor(&esds, ES_TAG, &stream)) return refuse(error, "is damaged: its esds box");
  skip(&stream, 2);
  const uint64_t flags = take(&stream, 1);
  if (flags & 0x80) skip(&stream, 2);
  if (flags & 0x40) skip(&stream, (size_t)take(&stream, 1));
  if (flags & 0x20) skip(&stream, 2);
  if (!next_descriptor(&stream, CONFIG_TAG, &config))
    return refuse(error, "is damaged: its esds box");
  const uint64_t kind = take(&config, 1);
  skip(&config, 12);
  if (kind != MPEG4_AUDIO && (kind < MPEG2_AAC_MAIN || kind > MPEG2_AAC_SSR))
    return refuse(error, "has a codec that is not read; of MP4, AAC is");
  if (!next_descriptor(&config, SETUP_TAG, &out->setup) || out->setup.size == 0)
    return refuse(error, "is damaged: its esds box");
  return 0;
}

/* The first entry of stsd. QuickTime has longer ones, by version, and esds in a box `wave`. */
static int read_codec(mp4_span_t stsd, mp4_track_t *out, inferd_error_t *error) {
  mp4_span_t entry, esds;
  uint32_t name = 0;
  skip(&stsd, 8);
  if (!next_box(&stsd, &name, &entry)) return refuse(error, "is damaged: its stsd box");
  if (name != NAME("mp4a")) return refuse(error, "has a codec that is not read; of MP4, AAC is");
  skip(&entry, 8);
  const uint64_t version = take(&entry, 2);
  skip(&entry, 18u + (version == 1 ? 16u : version == 2 ? 36u : 0u));
  if (!find(entry, NAME("esds"), &esds) && !FIND(entry, &esds, NAME("wave"), NAME("esds")))
    return refuse(error, "is damaged: it has no esds box");
  return read_esds(esds, out, error);
}

/* ---- tables ---- */

/* How many entries of `bytes` each a table has, at most as many as it says. */
static uint32_t count_entries(mp4_span_t table, uint64_t told, size_t bytes) {
  return (uint32_t)MIN(told, (uint64_t)(table.size / bytes));
}

static int read_tables(mp4_span_t stbl, mp4_track_t *out, inferd_error_t *error) {
  mp4_span_t stsz, chunks, runs;
  out->wide = !find(stbl, NAME("stco"), &chunks);
  if (!find(stbl, NAME("stsz"), &stsz) || !find(stbl, NAME("stsc"), &runs) ||
      (out->wide && !find(stbl, NAME("co64"), &chunks)))
    return refuse(error, "is damaged: a table of its frames is missing");
  skip(&stsz, 4);
  out->sample_size = (uint32_t)take(&stsz, 4);
  const uint64_t samples = take(&stsz, 4);
  out->sizes = stsz;
  out->num_samples = out->sample_size > 0 ? (uint32_t)samples : count_entries(stsz, samples, 4);
  skip(&chunks, 4);
  const uint64_t told = take(&chunks, 4);
  out->chunks = chunks;
  out->num_chunks = count_entries(chunks, told, out->wide ? 8 : 4);
  skip(&runs, 4);
  const uint64_t listed = take(&runs, 4);
  out->runs = runs;
  out->num_runs = count_entries(runs, listed, 12);
  if (out->num_samples == 0 || out->num_chunks == 0 || out->num_runs == 0)
    return refuse(error, "has no frames; of MP4, files in fragments are not read");
  return 0;
}

/* ---- times ---- */

/* Of mvhd or mdhd: units a second, behind two times whose width the version tells. */
static uint64_t scale_of(mp4_span_t box) {
  const uint64_t version = take(&box, 1);
  skip(&box, 3u + (version == 1 ? 16u : 8u));
  return take(&box, 4);
}

/* The first entry of the edit list that has media. */
static void read_edits(mp4_span_t trak, uint64_t movie_scale, mp4_track_t *out) {
  mp4_span_t elst;
  if (!FIND(trak, &elst, NAME("edts"), NAME("elst"))) return;
  const size_t wide = take(&elst, 1) == 1 ? 8 : 4;
  skip(&elst, 3);
  for (uint64_t count = take(&elst, 4); count > 0 && elst.size >= 2 * wide + 4; count--) {
    const uint64_t length = take(&elst, wide), begin = take(&elst, wide);
    const bool is_empty = begin >> (8 * wide - 1) != 0; /* -1 */
    skip(&elst, 4);
    if (is_empty) continue;
    out->skip = begin;
    if (movie_scale > 0 && length <= UINT32_MAX)
      out->length = length * out->timescale / movie_scale;
    return;
  }
}

static int read_track(mp4_span_t trak, mp4_span_t media, uint64_t movie_scale, mp4_track_t *out,
                      inferd_error_t *error) {
  mp4_span_t box, tables;
  if (find(media, NAME("mdhd"), &box)) out->timescale = (uint32_t)scale_of(box);
  if (out->timescale == 0) return refuse(error, "is damaged: its mdhd box");
  if (!FIND(media, &tables, NAME("minf"), NAME("stbl")) || !find(tables, NAME("stsd"), &box))
    return refuse(error, "is damaged: it has no stsd box");
  int code = read_codec(box, out, error);
  if (code == 0) code = read_tables(tables, out, error);
  if (code == 0) read_edits(trak, movie_scale, out);
  return code;
}

int mp4_open(const uint8_t *bytes, size_t size, mp4_track_t *out, inferd_error_t *error) {
  mp4_span_t movie, trak, box, media;
  uint32_t name;
  *out = (mp4_track_t){.file = {bytes, size}, .unread = size};
  if (!find(out->file, NAME("moov"), &movie))
    return refuse(error, "is damaged: it has no moov box");
  const uint64_t movie_scale = find(movie, NAME("mvhd"), &box) ? scale_of(box) : 0;
  for (mp4_span_t rest = movie; next_box(&rest, &name, &trak);) {
    if (name != NAME("trak") || !FIND(trak, &media, NAME("mdia")) ||
        !find(media, NAME("hdlr"), &box))
      continue;
    skip(&box, 8);
    if (take(&box, 4) == NAME("soun")) return read_track(trak, media, movie_scale, out, error);
  }
  return refuse(error, "is not there: the file has no track with any");
}

/* ---- frames ---- */

static uint64_t entry_of(mp4_span_t table, uint32_t index, size_t bytes) {
  return read_number(table.bytes + (size_t)index * bytes, bytes);
}

/* A field of entry `index` of stsc: the first chunk of a run, from 1; the samples of each chunk. */
static uint64_t run_field(const mp4_track_t *track, uint32_t index, size_t field) {
  return read_number(track->runs.bytes + (size_t)index * 12 + field * 4, 4);
}

/* Goes to the next chunk that has samples. */
static bool next_chunk(mp4_track_t *track) {
  while (track->left == 0) {
    if (track->chunk == track->num_chunks) return false;
    while (track->run + 1 < track->num_runs &&
           run_field(track, track->run + 1, 0) <= (uint64_t)track->chunk + 1)
      track->run++;
    track->left = (uint32_t)run_field(track, track->run, 1);
    track->at = entry_of(track->chunks, track->chunk, track->wide ? 8 : 4);
    track->chunk++;
  }
  return true;
}

bool mp4_next(mp4_track_t *track, mp4_span_t *out) {
  while (track->sample < track->num_samples && next_chunk(track)) {
    const uint64_t size =
        track->sample_size > 0 ? track->sample_size : entry_of(track->sizes, track->sample, 4);
    if (track->at > track->file.size || size > track->file.size - track->at) return false;
    if (size > track->unread) return false;
    track->unread -= size;
    *out = (mp4_span_t){track->file.bytes + track->at, (size_t)size};
    track->sample++;
    track->left--;
    track->at += size;
    if (size > 0) return true;
  }
  return false;
}
