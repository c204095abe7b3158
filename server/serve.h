/* serve.h: the life of the daemon, and the engine options that a configuration means. */
#ifndef INFERD_SERVER_SERVE_H
#define INFERD_SERVER_SERVE_H

#include "server/server.h"

/* Runs `inferd serve` until the daemon ends. Returns the exit status of the process. */
int serve_run(config_t *config);

/* Fills *options from the configuration, which must live as long: the pointers point into it.
 * Returns 0, or a negative ERR_ with a message in *error. */
int serve_engine_options(const config_t *config, engine_options_t *options, inferd_error_t *error);

#endif
