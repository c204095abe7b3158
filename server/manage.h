/* manage.h: the commands `inferd ps`, `load` and `unload`. */
#ifndef INFERD_SERVER_MANAGE_H
#define INFERD_SERVER_MANAGE_H

/* `what` is the name of the command. Returns its exit status. */
int manage_command(const char *what, int argc, char **argv);

#endif
