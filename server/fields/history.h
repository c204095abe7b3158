/* history.h: mends what is only in the history of a conversation, before it is read.
 *
 * A conversation lives longer than one server: it comes from other providers, through clients that
 * cut it, and a session that is refused once is refused for ever. So what stands in the history is
 * mended (--lenient-history), and each mending is named in the header x-inferd-mended. What steers
 * the answer, and the last message of a user, stay strict. Pure functions: the loop thread or a job
 * of the lanes.
 */
#ifndef INFERD_SERVER_FIELDS_HISTORY_H
#define INFERD_SERVER_FIELDS_HISTORY_H

#include "engine/base/buffer.h"
#include "engine/template/chat/chat_template.h"
#include "server/fields/fields.h"

/* Shapes of conversations that some templates refuse. chat_shapes.c tries each once, at start. */
enum history_shape {
  SHAPE_SYSTEM = 1,             /* a system message at the start */
  SHAPE_LATE_SYSTEM = 2,        /* behind others */
  SHAPE_TWO_USERS = 4,          /* messages of the user in a row */
  SHAPE_TWO_ANSWERS = 8,        /* messages of the assistant in a row */
  SHAPE_ANSWER_FIRST = 16,      /* the assistant begins */
  SHAPE_CALL_WITHOUT_TEXT = 32, /* calls beside a content that is null */
  SHAPE_LOST_RESULT = 64,       /* a result that does not follow its call, or has none */
  SHAPE_OPEN_CALL = 128,        /* a call without a result, and more messages */
  SHAPE_CALLS = 256,            /* calls and results at all: the template knows no tools */
  SHAPE_SYSTEM_ALONE = 512,     /* system messages and no others */
  SHAPE_TWO_SYSTEMS = 1024,     /* system messages in a row at the start */
  SHAPE_TWO_CALLS = 2048,       /* calls beside each other in one message */
  SHAPE_OTHER_ROLE = 4096,      /* a role that the template does not name */
  SHAPE_TEXT_OF_CALL = 8192,    /* calls beside a text and thoughts */
  SHAPE_TEXT_HIDDEN = 16384,    /* calls beside a text, which is not shown */
  SHAPE_SYSTEM_HIDDEN = 32768   /* a system message where the last message is not the user's */
};

/* The form of the ids of calls that a template takes. */
typedef enum call_id_form {
  CALL_IDS_ANY,
  CALL_IDS_NINE,    /* nine letters and digits: Mistral's templates refuse others */
  CALL_IDS_NUMBERED /* functions.NAME:N, which Kimi's models were trained on */
} call_id_form_t;

typedef struct history_rules {
  /* SHAPE_ bits: shapes that the template cannot take in requests without tools, and with tools */
  unsigned refused[2];
  call_id_form_t ids;
  const chat_templates_t *templates; /* which roles they name; NULL: none */
} history_rules_t;

/* Reads `root`, a body of chat, and appends the body with its messages mended to `out`; other
 * members stay as they are. Appends nothing if there is nothing to do: *changed is false then.
 * Ids of calls are mapped to the form of the rules, one to one, always; all else needs
 * reader->limits->lenient. `places`: names have the indices of the messages, or those that `origin`
 * has in their place (NULL = none). Returns 0 or an error. Errors of the conversation itself are
 * left to its reader, but for a role that the template would drop or refuse: of the history it is
 * the user's, of the last message it is refused. */
int history_mend(reader_t *reader, const history_rules_t *rules, const json_t *root, bool places,
                 const int32_t *origin, buffer_t *out, bool *changed);

/* The role that is meant by one of another API ("human", "ai", "Assistant"): system, user,
 * assistant or tool; NULL for roles of chat and for others. */
const char *history_other_role(const json_t *role);

enum { LEFT_OUT_MAX = 64, ROLE_BYTES_MAX = 64 };
/* Writes the text that stands for a part or an item of this type, "[image left out]", and the name
 * of the mending, image_left_out. `type` may be NULL, or no string. */
void history_left_out(const json_t *type, char text[LEFT_OUT_MAX], char what[LEFT_OUT_MAX]);

#endif
