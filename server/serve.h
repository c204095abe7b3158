/* serve.h: the life of the daemon, and the engine options that a configuration means. */
#ifndef INFERD_SERVER_SERVE_H
#define INFERD_SERVER_SERVE_H

#include "server/server.h"

/* Runs `inferd serve` to its end. Returns the process's exit status. */
int serve_run(config_t *config);

/* Fills engine options from the configuration; pointers point into it. */
int serve_engine_options(const config_t *config, engine_options_t *options, error_t *error);

#endif
