/* store_file.h: `inferd store`: the file of --store looked at as a whole, or copied. */
#ifndef INFERD_SERVER_STORE_FILE_H
#define INFERD_SERVER_STORE_FILE_H

/* The sub-command: `inferd store check FILE` or `inferd store copy FILE NEW`. Returns its exit
 * status. */
int store_command(int argc, char **argv);

#endif
