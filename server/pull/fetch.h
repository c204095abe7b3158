/* fetch.h: downloads files of a repository into the blobs of a store, side by side.
 *
 * A file is asked for in pieces of PIECE_BYTES. Pieces that come early wait in memory; the file on
 * the disk, SUM.incomplete, only ever grows at its end. So its length says what is there, whatever
 * killed the program, and the sum is computed while bytes come. Main thread.
 */
#ifndef INFERD_SERVER_PULL_FETCH_H
#define INFERD_SERVER_PULL_FETCH_H

#include "server/pull/progress.h"
#include "server/pull/settings.h"
#include "server/pull/store.h"

/* Downloads the chosen files that the store does not have; each is checked and made a blob. Returns
 * 0; ERR_IO when a signal came (hub_interrupted) or the disk is full; ERR_IO when the
 * server fails again and again or sends other bytes than the hub announces; an error of
 * hub_refusal. What has come stays for the next download in every case. */
int fetch_files(const pull_settings_t *settings, const store_t *store, repo_t *repo,
                progress_t *progress, inferd_error_t *error);

#endif
