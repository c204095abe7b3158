/* models.h: several models behind one port: the parent of their processes.
 *
 * Loop thread of the parent, which has no engine. Each model is a child: `inferd serve` of this
 * program, on a UNIX socket in a directory that only this user may enter. The parent reads HTTP,
 * checks keys and limits, finds the model that a request names, has it loaded by the rules of
 * lifecycle.h, and passes the request on and the answer back. What happens to a child stays its
 * own.
 *
 *   lifecycle.c  which models are in memory
 *   table.c      which models there are: words, sections of files, a directory
 *   directory.c  what lies in the directory, read on a thread of its own
 *   lobby.c      how many requests of which client wait
 *   child.c      a process: its start, what it tells, its end; and the plan of its memory
 *   order.c      has a process sleep, or wake up
 *   sockets.c    the directory of their sockets
 *   passage.c    a request on its way to a child, and its answer
 *   channel.c    a connection to a child
 *   router.c     the first of these asked by the others: does what lifecycle.c decides
 *   list.c       /v1/models, load, unload, metrics
 */
#ifndef INFERD_SERVER_MODELS_MODELS_H
#define INFERD_SERVER_MODELS_MODELS_H

#include "server/server.h"

typedef struct models models_t;

/* True if the configuration has several models, or a place where several may be. */
bool models_wanted(const config_t *config);
/* Refuses options that only one model can have. Returns 0 or ERR_CONFIGURATION. */
int models_check(const config_t *config, inferd_error_t *error);

/* Makes server->models with the models of the configuration; children are started when the loop
 * runs. Returns 0, ERR_CONFIGURATION (two models of one name, a file with errors), ERR_IO,
 * ERR_NO_MEMORY. */
int models_new(server_t *server, inferd_error_t *error);
/* Takes over the sections and the directory of a configuration that was read again. */
void models_reload(models_t *models, const config_t *fresh);
/* Sends a signal to every child: SIGHUP, SIGUSR1. */
void models_signal(models_t *models, int number);
/* Ends all children; `done` is called when none is left. Requests have ended before. */
void models_stop(models_t *models, void (*done)(void *context), void *context);
void models_free(models_t *models); /* after the last turn of the loop */

#endif
