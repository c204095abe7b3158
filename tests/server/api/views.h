/* views.h: one answer as clients read it: the eight answers of four routes, streamed and not.
 *
 * An answer comes from chat, responses, messages or Ollama's chat. What it says is read into one
 * form, so that views are compared with each other and need no oracle. For test_views.c.
 */
#ifndef INFERD_TESTS_SERVER_API_VIEWS_H
#define INFERD_TESTS_SERVER_API_VIEWS_H

#include "engine/base/buffer.h"
#include "tests/server/api/fake.h"

enum { NUM_VIEWS = 8 }; /* chat, responses, messages, ollama; each whole, then streamed */
enum { VIEW_CHOICES_MAX = 2 };

/* What differs between two views of one answer. */
typedef enum view_part {
  VIEW_REASONING,
  VIEW_TEXT,
  VIEW_CALLS,  /* names and arguments: of a whole call the JSON, of a cut one the bytes */
  VIEW_FINISH, /* empty: the words of this route do not tell it */
  VIEW_USAGE,
  VIEW_PARTS /* their number */
} view_part_t;

/* One choice as a client reads it; the parts as text. */
typedef struct view {
  buffer_t parts[VIEW_PARTS];
} view_t;

/* What is asked, on every route the same. */
typedef struct view_request {
  const char *tools;  /* JSON as chat has them; or NULL */
  const char *choice; /* "auto", "required", "none", or the name of a function */
  const char *stop;   /* a stop string; or NULL */
  const char *format; /* a schema that the text must follow; or NULL */
  bool parallel;
  int num_choices; /* of chat; the other routes have one */
} view_request_t;

extern const char *const view_names[NUM_VIEWS];
extern const char *const view_part_names[VIEW_PARTS];
/* Sends the request. The engine has it, or the answer is an error. */
fake_exchange_t *view_ask(int index, const view_request_t *request);
/* Reads choice `choice` of the answer. Frees nothing. */
view_t view_read(int index, const view_request_t *request, const fake_exchange_t *exchange,
                 int choice);
void view_free(view_t *view);

#endif
