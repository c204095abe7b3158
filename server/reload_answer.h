/* reload_answer.h: what came of a reload, from the daemon to `inferd reload`. */
#ifndef INFERD_SERVER_RELOAD_ANSWER_H
#define INFERD_SERVER_RELOAD_ANSWER_H

#include <stdbool.h>

/* Writes the answer to the last SIGHUP, one line without its end, into $RUNTIME_DIRECTORY/reload.
 * Does nothing when that is not set. Loop thread. */
void reload_answer_write(bool taken, const char *text);

/* `inferd reload PID`: sends SIGHUP and waits for the answer. Prints it and returns the exit
 * status: 0, 78 if the old values stay, 69 without an answer or an inferd of that number, 64. */
int reload_command(int argc, char **argv);

#endif
