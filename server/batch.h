/* batch.h: `inferd batch IN OUT MODEL`: a file of requests is answered without a server. */
#ifndef INFERD_SERVER_BATCH_H
#define INFERD_SERVER_BATCH_H

/* The sub-command. Returns its exit status: 0, 1 if a line failed or is not answered, 65 if lines
 * of the input are wrong, or that of `inferd serve`. */
int batch_command(int argc, char **argv);

#endif
