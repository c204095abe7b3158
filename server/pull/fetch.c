/* fetch.c: downloads files of a repository, side by side: which pieces run, and when they are
 * written.
 *
 * Main thread. fetch_piece.c has the requests, fetch_file.c the files.
 */
#include "server/pull/fetch.h"

#include "engine/base/clock.h"
#include "server/pull/fetch_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- pieces ---- */

static bool has_piece(const fetch_t *fetch, const fetch_file_t *file) {
  for (int i = 0; i < fetch->num_pieces; i++) {
    if (fetch->pieces[i].file == file) return true;
  }
  return false;
}

/* Gives a free piece the next range of the file. */
static int give(fetch_t *fetch, piece_t *piece, fetch_file_t *file) {
  int64_t left = file->repo->size - file->issued;
  int64_t length = file->whole || left < PIECE_BYTES ? left : PIECE_BYTES;
  CURL *easy = piece->easy != NULL ? piece->easy : curl_easy_init();
  uint8_t *bytes = piece->bytes != NULL ? piece->bytes : malloc(PIECE_BYTES);
  *piece = (piece_t){.fetch = fetch,
                     .file = file,
                     .easy = easy,
                     .bytes = bytes,
                     .at = file->issued,
                     .end = file->issued + length};
  file->issued += length;
  if (easy != NULL && bytes != NULL) return 0;
  return error_set(fetch->error, ERR_NO_MEMORY, NULL, "no memory for a download");
}

/* The first file in order that has bytes to ask for; opens the next one when there is none. */
static int next_file(fetch_t *fetch, fetch_file_t **out) {
  *out = NULL;
  for (int i = 0; i < fetch->num_files; i++) {
    fetch_file_t *file = &fetch->files[i];
    if (file->state == FILE_WAITS) {
      int code = file_begin(fetch, file);
      if (code != 0) return code;
    }
    if (file->state != FILE_OPEN || file->issued == file->repo->size) continue;
    if (file->whole && has_piece(fetch, file)) continue;
    *out = file;
    return 0;
  }
  return 0;
}

static int give_all(fetch_t *fetch) {
  for (int i = 0; i < fetch->num_pieces; i++) {
    fetch_file_t *file;
    if (fetch->pieces[i].file != NULL) continue;
    int code = next_file(fetch, &file);
    if (code == 0 && file != NULL) code = give(fetch, &fetch->pieces[i], file);
    if (code != 0 || file == NULL) return code;
  }
  return 0;
}

static bool is_whole(const piece_t *piece) {
  return piece->at + (int64_t)piece->used == piece->end;
}

/* Starts what is due: first the pieces at the end of their file, because others wait for them. */
static int start_all(fetch_t *fetch) {
  uint64_t now_ns = clock_now_ns();
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < fetch->num_pieces; i++) {
      piece_t *piece = &fetch->pieces[i];
      if (fetch->num_active >= fetch->settings->jobs) return 0;
      if (piece->file == NULL || piece->active || is_whole(piece) || piece->due_ns > now_ns)
        continue;
      if (pass == 0 && !piece_is_first(piece)) continue;
      int code = piece_start(piece);
      if (code != 0) return code;
    }
  }
  return 0;
}

static int end_all(fetch_t *fetch) {
  int waiting, code;
  for (CURLMsg *message; (message = curl_multi_info_read(fetch->multi, &waiting)) != NULL;) {
    if (message->msg != CURLMSG_DONE) continue;
    CURLcode result = message->data.result;
    piece_t *piece = NULL;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&piece);
    code = piece_end(piece, result);
    if (code != 0) return code;
  }
  return 0;
}

/* When a server has ignored a range, only the first piece of the file continues. */
static void drop_others(fetch_t *fetch, fetch_file_t *file) {
  int64_t first_end = file->written;
  for (int i = 0; i < fetch->num_pieces; i++) {
    piece_t *piece = &fetch->pieces[i];
    if (piece->file != file) continue;
    if (piece_is_first(piece)) {
      first_end = piece->end;
    } else {
      piece_free(piece);
    }
  }
  file->issued = first_end;
}

/* ---- files ---- */

/* Writes the piece at the end of the file, then those that follow it. */
static int write_file(fetch_t *fetch, fetch_file_t *file, bool all) {
  for (int i = 0; i < fetch->num_pieces; i++) {
    piece_t *piece = &fetch->pieces[i];
    if (piece->file != file || !piece_is_first(piece)) continue;
    if (piece->used > 0 && (all || is_whole(piece) || piece->used >= FLUSH_BYTES)) {
      int code = file_write(fetch, piece);
      if (code != 0) return code;
    }
    if (piece->active || piece->at != piece->end) return 0;
    piece->file = NULL;
    i = -1; /* another piece is the first now */
  }
  return 0;
}

/* Bytes of the file that are here, on the disk or in memory. */
static int64_t here(const fetch_t *fetch, const fetch_file_t *file) {
  if (file->state == FILE_DONE) return file->repo->size;
  int64_t bytes = file->state == FILE_OPEN ? file->written : file->counted;
  for (int i = 0; i < fetch->num_pieces; i++) {
    if (fetch->pieces[i].file == file) bytes += (int64_t)fetch->pieces[i].used;
  }
  return bytes;
}

static int write_all(fetch_t *fetch, bool all) {
  int code = 0;
  for (int i = 0; i < fetch->num_files && code == 0; i++) {
    fetch_file_t *file = &fetch->files[i];
    if (file->state == FILE_OPEN) code = write_file(fetch, file, all);
    if (code == 0 && file->state == FILE_OPEN && file->written == file->repo->size) {
      code = file_finish(fetch, file);
    }
    int64_t now = here(fetch, file);
    fetch->progress->done += now - file->counted;
    file->counted = now;
  }
  return code;
}

static bool is_done(const fetch_t *fetch) {
  for (int i = 0; i < fetch->num_files; i++) {
    if (fetch->files[i].state != FILE_DONE) return false;
  }
  return true;
}

/* ---- the loop ---- */

static int turn(fetch_t *fetch) {
  enum { POLL_MS = 100 };
  int running, code = give_all(fetch);
  if (code == 0) code = start_all(fetch);
  if (code != 0) return code;
  if (curl_multi_perform(fetch->multi, &running) != CURLM_OK) {
    return error_set(fetch->error, ERR_IO, NULL, "libcurl fails");
  }
  code = end_all(fetch);
  for (int i = 0; i < fetch->num_files; i++) {
    if (fetch->files[i].whole && fetch->files[i].state == FILE_OPEN)
      drop_others(fetch, &fetch->files[i]);
  }
  if (code == 0) code = write_all(fetch, false);
  if (code != 0 || is_done(fetch)) return code;
  progress_show(fetch->progress);
  (void)curl_multi_poll(fetch->multi, NULL, 0, POLL_MS, NULL);
  return 0;
}

/* Notes what is to be done, and how much of it an earlier download has left. */
static int set_up(fetch_t *fetch, repo_t *repo) {
  fetch->num_pieces = 2 * fetch->settings->jobs;
  fetch->files = calloc((size_t)repo->count + 1, sizeof *fetch->files);
  fetch->pieces = calloc((size_t)fetch->num_pieces, sizeof *fetch->pieces);
  fetch->multi = curl_multi_init();
  if (fetch->files == NULL || fetch->pieces == NULL || fetch->multi == NULL) {
    return error_set(fetch->error, ERR_NO_MEMORY, NULL, "no memory for a download");
  }
  for (int i = 0; i < fetch->num_pieces; i++) fetch->pieces[i].fetch = fetch;
  for (int i = 0; i < repo->count; i++) {
    repo_file_t *file = &repo->files[i];
    if (!file->chosen || store_has(fetch->store, file)) continue;
    fetch->files[fetch->num_files++] = (fetch_file_t){
        .repo = file, .fd = -1, .lock_fd = -1, .counted = store_partial(fetch->store, file)};
  }
  return 0;
}

static void tear_down(fetch_t *fetch) {
  for (int i = 0; fetch->pieces != NULL && i < fetch->num_pieces; i++) {
    piece_free(&fetch->pieces[i]);
  }
  for (int i = 0; i < fetch->num_files; i++) file_close(&fetch->files[i]);
  if (fetch->multi != NULL) curl_multi_cleanup(fetch->multi);
  free(fetch->pieces);
  free(fetch->files);
}

int fetch_files(const pull_settings_t *settings, const store_t *store, repo_t *repo,
                progress_t *progress, inferd_error_t *error) {
  fetch_t fetch = {.settings = settings,
                   .store = store,
                   .commit = repo->commit,
                   .progress = progress,
                   .error = error};
  int code = set_up(&fetch, repo);
  while (code == 0 && !hub_interrupted && !is_done(&fetch)) code = turn(&fetch);
  if (fetch.files != NULL && fetch.pieces != NULL && code != ERR_NO_MEMORY) {
    inferd_error_t first = *error; /* the reason of the failure stays the message */
    int kept = write_all(&fetch, true);
    if (code != 0) *error = first;
    if (code == 0) code = kept;
  }
  tear_down(&fetch);
  if (code == 0 && hub_interrupted) code = error_set(error, ERR_IO, NULL, "interrupted");
  return code;
}
