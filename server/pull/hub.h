/* hub.h: requests to the hub by libcurl, and what its refusals mean for the user.
 *
 * Main thread. The token goes to the endpoint alone: libcurl drops it when a redirect leads to
 * another host, port or protocol. No message holds a URL with a query, because the signed URLs of a
 * content network let anybody download.
 */
#ifndef INFERD_SERVER_PULL_HUB_H
#define INFERD_SERVER_PULL_HUB_H

#include "server/pull/repo.h"
#include "server/pull/settings.h"

/* Asks for the commit and the files of the revision. Returns 0 and *out, freed with repo_free. */
int hub_list(const pull_settings_t *settings, repo_t *out, inferd_error_t *error);
/* Asks for the sum and the size of a file that the list does not tell, and sets them. */
int hub_describe(const pull_settings_t *settings, const char *commit, repo_file_t *file,
                 inferd_error_t *error);

#endif
