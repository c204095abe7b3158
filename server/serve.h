/* serve.h: the life of the daemon, and the engine options that a configuration means. */
#ifndef INFERD_SERVER_SERVE_H
#define INFERD_SERVER_SERVE_H

#include "server/server.h"

/* Runs `inferd serve` until the daemon ends. Returns the exit status of the process. A reload reads
 * `argv[0..argc)`, the arguments of config_load, again. `comm`: the other ranks, or NULL. */
int serve_run(config_t *config, int argc, char *const *argv, struct comm *comm);
/* The same for `inferd batch`: the lines of `local` are its only requests, and it ends with them.
 * Returns the status of serve_run, or of local_close, which it calls. */
int serve_batch(config_t *config, int argc, char *const *argv, struct local *local);

/* For a process that a parent of several models has started: it ends when the parent ends, and
 * believes what the parent says of clients. Before other threads and children. */
void serve_join_parent(void);
/* The signals and memory of a daemon; its log, with its first lines. For serve_run and parent.c. */
void serve_begin_process(void);
int serve_open_log(const config_t *config, inferd_error_t *error);

/* parent.c: the same as serve_run with several models. */
int parent_run(config_t *config, int argc, char *const *argv);

/* fingerprint.c: fills in server->system_fingerprint; the engine is READY. */
void serve_set_fingerprint(server_t *server);

/* reload.c: reads configuration and keys again, takes over what may change, and logs the rest. */
void serve_reload(server_t *server, int argc, char *const *argv);

/* Finds the model and the draft model that the configuration names, and puts their paths in the
 * place of what the user typed; the name in the cache becomes the served name unless one was given.
 * Returns 0, ERR_USAGE without a model, or an error of model_locate. */
int serve_locate(config_t *config, inferd_error_t *error);

/* Fills *options from the configuration, which must live as long: the pointers point into it.
 * Returns 0, or a negative ERR_ with a message in *error. */
int serve_engine_options(const config_t *config, engine_options_t *options, inferd_error_t *error);

/* check.c: what a start reads beside the model: keys, certificates, the chat template, addresses.
 * Returns 0, or the error that the start would end with. */
int serve_check(config_t *config, inferd_error_t *error);
/* describe.c: prints two lines of JSON: what lists say of the model, and what POST /api/show would
 * answer, from the headers of its files. Returns 0 or the error that a start would end with. */
int serve_describe(const config_t *config, const engine_survey_t *survey, inferd_error_t *error);

#endif
