/* store_file.c: `inferd store`: what an operator does with the file of --store. Main thread; a
 * server may have the file open and go on.
 */
#include "server/store_file.h"

#include "server/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_USAGE = 64 };

int store_command(int argc, char **argv) {
  inferd_error_t error = {0};
  store_stats_t stats = {0};
  const bool checks = argc == 2 && strcmp(argv[0], "check") == 0;
  if (!checks && (argc != 3 || strcmp(argv[0], "copy") != 0)) {
    fputs("usage: inferd store check FILE\n       inferd store copy FILE NEW\n", stderr);
    return EXIT_USAGE;
  }
  int code = checks ? 0 : store_copy(argv[1], argv[2], &error);
  if (code == 0) code = store_check(argv[argc - 1], &stats, &error); /* of the copy, too */
  if (code != 0) {
    fprintf(stderr, "inferd: %s\n", error.message);
    return error_exit_code(code);
  }
  printf("%s is whole: %" PRId64 " rows, %" PRId64 " bytes of texts\n", argv[argc - 1], stats.rows,
         stats.bytes);
  return 0;
}
