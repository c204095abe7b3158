/* sleep.h: a model alone that sleeps, for serve.c. Loop thread. */
#ifndef INFERD_SERVER_API_SLEEP_H
#define INFERD_SERVER_API_SLEEP_H

#include "server/server.h"

typedef struct sleep_wait sleep_wait_t;

/* Answers those whose wish the engine has settled; called when it wakes the loop. */
void sleep_settle(server_t *server);

#endif
