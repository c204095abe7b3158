/* main.c: what pictures of numbers become, for comparison with transformers.
 *
 * Each line of stdin is a case of tests/engine/vision/show.h; each line of stdout is what
 * show_case makes of it, or {"error": TEXT}. Runs in tests/parity/parity_pictures.py, one thread.
 */
#include "tests/engine/vision/show.h"

#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char *text = NULL;
  size_t capacity = 0;
  buffer_t line = {0};
  for (ssize_t length; (length = getline(&text, &capacity, stdin)) > 0;) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    buffer_clear(&line);
    int status = json_parse(text, (size_t)length, &json_limits_request, &doc, &error);
    if (status == 0) status = show_case(json_root(doc), &line, &error);
    if (status != 0) {
      buffer_text(&line, "{\"error\": ");
      buffer_quote(&line, error.message, strlen(error.message));
      buffer_char(&line, '}');
    }
    printf("%.*s\n", (int)line.length, line.data);
    fflush(stdout);
    json_free(doc);
  }
  buffer_free(&line);
  free(text);
  return 0;
}
