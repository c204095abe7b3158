/* fetch_piece.c: one request for a range of a file, its answer, and its next try.
 *
 * Main thread; libcurl calls on_bytes while curl_multi_perform runs. Nothing that a server sends is
 * believed: a range must be the one that was asked for, of a file of the size that the hub tells.
 */
#include "engine/base/clock.h"
#include "server/observe/priority.h"
#include "server/pull/fetch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool piece_is_first(const piece_t *piece) {
  return piece->at == piece->file->written;
}

static int64_t wanted_at(const piece_t *piece) {
  return piece->at + (int64_t)piece->used;
}

/* Remembers what is wrong, and ends the transfer. */
static bool fail_size(piece_t *piece, int64_t told) {
  piece->fault = error_set(
      piece->fetch->error, ERR_IO, NULL,
      "%s: %.100s: the hub announces %lld bytes, and the server sends a file of %lld; a proxy or a "
      "mirror may change it",
      piece->fetch->settings->id, piece->file->repo->name, (long long)piece->file->repo->size,
      (long long)told);
  return false;
}

/* A whole answer to a request for a range: the first piece of the file takes it to the end, and the
 * others are dropped. */
static bool take_whole(piece_t *piece) {
  fetch_file_t *file = piece->file;
  piece->skip = wanted_at(piece);
  if (piece->at == 0 && piece->end == file->repo->size) return true; /* what was asked for */
  file->whole = true;
  if (!piece_is_first(piece)) return piece->dropped = true, false;
  piece->end = file->issued = file->repo->size;
  return true;
}

/* Checks the headers when the first bytes come. Returns false to end the transfer. */
static bool check_head(piece_t *piece) {
  const hub_answer_t *answer = &piece->answer;
  int64_t size = piece->file->repo->size;
  if (answer->status == 200) {
    if (answer->length >= 0 && answer->length != size) return fail_size(piece, answer->length);
    return take_whole(piece);
  }
  if (answer->range_of >= 0 && answer->range_of != size) return fail_size(piece, answer->range_of);
  if (answer->range_at == wanted_at(piece)) return true;
  piece->fault = error_set(piece->fetch->error, ERR_IO, NULL,
                           "%s: %.100s: the server answers a request for byte %lld with byte %lld",
                           piece->fetch->settings->id, piece->file->repo->name,
                           (long long)wanted_at(piece), (long long)answer->range_at);
  return false;
}

/* Stores bytes; the first piece of a file writes them. Returns false to end the transfer. */
static bool store_bytes(piece_t *piece, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    size_t room = PIECE_BYTES - piece->used, take = length < room ? length : room;
    if (wanted_at(piece) + (int64_t)take > piece->end) {
      return fail_size(piece, wanted_at(piece) + (int64_t)length);
    }
    memcpy(piece->bytes + piece->used, bytes, take);
    piece->used += take;
    bytes += take;
    length -= take;
    if (!piece_is_first(piece) || (piece->used < FLUSH_BYTES && length == 0)) continue;
    piece->fault = file_write(piece->fetch, piece);
    if (piece->fault != 0) return false;
  }
  return true;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *context) {
  piece_t *piece = context;
  size_t length = size * count, skip = 0;
  if (piece->answer.status != 200 && piece->answer.status != 206) return length; /* of an error */
  if (hub_interrupted) return 0;
  if (piece->came == 0 && !check_head(piece)) return 0;
  piece->came += length;
  if (piece->skip > 0) {
    skip = piece->skip < (int64_t)length ? (size_t)piece->skip : length;
    piece->skip -= (int64_t)skip;
  }
  return store_bytes(piece, (const uint8_t *)bytes + skip, length - skip) ? length : 0;
}

int piece_start(piece_t *piece) {
  const pull_settings_t *settings = piece->fetch->settings;
  fetch_file_t *file = piece->file;
  char url[HUB_URL_MAX], range[64];
  piece->direct = file->direct != NULL;
  piece->came = 0;
  piece->skip = 0;
  piece->dropped = false;
  if (!hub_file_url(settings, piece->fetch->commit, file->repo->name, url)) {
    return error_set(piece->fetch->error, ERR_MODEL_MALFORMED, NULL,
                     "%.100s...: the name is too long", file->repo->name);
  }
  hub_prepare(piece->easy, settings, piece->direct ? file->direct : url, !piece->direct,
              &piece->answer);
  bool all = wanted_at(piece) == 0 && piece->end == file->repo->size;
  if (!file->whole && !all) {
    snprintf(range, sizeof range, "%lld-%lld", (long long)wanted_at(piece),
             (long long)piece->end - 1);
    curl_easy_setopt(piece->easy, CURLOPT_RANGE, range);
  }
  curl_easy_setopt(piece->easy, CURLOPT_WRITEFUNCTION, on_bytes);
  curl_easy_setopt(piece->easy, CURLOPT_WRITEDATA, piece);
  curl_easy_setopt(piece->easy, CURLOPT_PRIVATE, piece);
  if (curl_multi_add_handle(piece->fetch->multi, piece->easy) != CURLM_OK) {
    return error_set(piece->fetch->error, ERR_NO_MEMORY, NULL, "no memory for a request");
  }
  piece->active = true;
  piece->fetch->num_active++;
  return 0;
}

/* Keeps where a redirect led to, so that later pieces spare the hub a request each. */
static void keep_direct(piece_t *piece) {
  const char *url = NULL, *hub = piece->fetch->settings->endpoint;
  if (piece->file->direct != NULL || piece->file->issued == piece->file->repo->size) return;
  if (curl_easy_getinfo(piece->easy, CURLINFO_EFFECTIVE_URL, &url) != CURLE_OK || url == NULL)
    return;
  if (strncmp(url, hub, strlen(hub)) == 0 && url[strlen(hub)] == '/') return;
  piece->file->direct = strdup(url);
}

/* The next try, or the end of the download. */
static int try_again(piece_t *piece, CURLcode result) {
  const pull_settings_t *settings = piece->fetch->settings;
  if (piece->direct && (result != CURLE_OK || piece->answer.status >= 400)) {
    free(piece->file->direct); /* a signed URL that is too old */
    piece->file->direct = NULL;
  }
  if (piece->came >= PROGRESS_BYTES) piece->tries = 0;
  long pause = hub_pause_ms(settings, piece->easy, result, &piece->answer, piece->tries);
  bool stale = piece->direct && result == CURLE_OK && piece->answer.status >= 400;
  if (stale && pause < 0 && piece->tries < settings->retries) pause = 0;
  if (pause < 0) {
    return hub_refusal(settings, piece->file->repo->name,
                       result == CURLE_OK && piece->answer.status < 300 ? CURLE_PARTIAL_FILE
                                                                        : result,
                       &piece->answer, piece->fetch->error);
  }
  piece->tries++;
  piece->due_ns = clock_now_ns() + (uint64_t)pause * 1000000;
  if (pause >= 4000) { /* short pauses are not worth a line */
    progress_clear(piece->fetch->progress);
    fprintf(stderr, "%sinferd: %s: %s: %s; next try in %ld s\n", log_priority(LOG_WARN),
            settings->id, piece->file->repo->name,
            result == CURLE_OK ? "the server is busy" : curl_easy_strerror(result), pause / 1000);
  }
  return 0;
}

int piece_end(piece_t *piece, CURLcode result) {
  curl_multi_remove_handle(piece->fetch->multi, piece->easy);
  piece->active = false;
  piece->fetch->num_active--;
  if (piece->fault != 0) return piece->fault;
  if (piece->dropped) return 0;
  if (result == CURLE_OK && piece->answer.status == 416) {
    return error_set(piece->fetch->error, ERR_IO, NULL,
                     "%s: %.100s: the hub announces %lld bytes, and the server has fewer (status "
                     "416 at byte %lld)",
                     piece->fetch->settings->id, piece->file->repo->name,
                     (long long)piece->file->repo->size, (long long)wanted_at(piece));
  }
  bool good = result == CURLE_OK && (piece->answer.status == 200 || piece->answer.status == 206);
  if (good) keep_direct(piece);
  if (good && wanted_at(piece) == piece->end) return 0;
  return try_again(piece, result);
}

void piece_free(piece_t *piece) {
  if (piece->active) {
    curl_multi_remove_handle(piece->fetch->multi, piece->easy);
    piece->fetch->num_active--;
  }
  if (piece->easy != NULL) curl_easy_cleanup(piece->easy);
  free(piece->bytes);
  *piece = (piece_t){.fetch = piece->fetch};
}
