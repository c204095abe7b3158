/* usage.h: `inferd usage`: what keys of a running server have used, as a table. */
#ifndef INFERD_SERVER_USAGE_H
#define INFERD_SERVER_USAGE_H

/* The sub-command: `inferd usage [URL] [--days N] [--json] [flags]`. Returns its exit status. */
int usage_command(int argc, char **argv);

#endif
