/* constraint.c: the constraints of a request on its output -> one grammar.
 *
 * Stage 2 of 9. libuv's pool. The constraint of the request, forced tool calls and strict functions
 * become one tree of sources. The tree uses the marks with which the model's family writes calls
 * and reasoning. It is compiled once, and every engine request gets a reference. Next:
 * server/completion/build_requests.c.
 */
#include "server/completion/chat.h"

#include <stdio.h>
#include <string.h>

enum { CALLS_MAX = 16 }; /* most calls that a grammar allows in one assistant message */
enum { WORDS_MAX = 7 };  /* parts of a text with up to three marks */

static const char blanks_regex[] = "[ \\n]{0,4}";

/* The tree of sources while it is built; `failed` = an allocation failed, the tree is useless. */
typedef struct tree {
  completion_t *completion;
  bool failed;
} tree_t;

static grammar_source_t *nodes_new(tree_t *tree, int32_t count) {
  grammar_source_t *nodes = arena_calloc(&tree->completion->arena, (size_t)count, sizeof *nodes);
  if (nodes == NULL) tree->failed = true;
  return nodes;
}

static grammar_source_t group(grammar_kind_t kind, const grammar_source_t *children,
                              int32_t count) {
  return (grammar_source_t){.kind = kind, .children = children, .num_children = count};
}

static grammar_source_t repeat(const grammar_source_t *children, int32_t count, uint32_t min,
                               uint32_t max) {
  return (grammar_source_t){
      .kind = GRAMMAR_REPEAT, .children = children, .num_children = count, .min = min, .max = max};
}

static grammar_source_t of_text(grammar_kind_t kind, const char *text, size_t length) {
  return (grammar_source_t){.kind = kind, .text = text, .length = length};
}

/* Makes the source of a mark, a text such as "<tool_call>" that separates the parts of a message:
 * one token if the vocabulary has it, else its characters. */
static grammar_source_t mark(const tree_t *tree, const char *text) {
  int32_t id = tokenizer_id(tree->completion->tokenizer, text, strlen(text));
  if (id < 0) return of_text(GRAMMAR_LITERAL, text, strlen(text));
  return (grammar_source_t){.kind = GRAMMAR_TOKEN, .token = id};
}

/* Returns the mark that comes first in a text and sets *at to its place; NULL if there is none. */
static const char *first_mark(const char *const *marks, const char *text, const char **at) {
  const char *first = NULL;
  for (; *marks != NULL; marks++) {
    const char *hit = strstr(text, *marks);
    if (hit == NULL || (first != NULL && hit >= *at)) continue;
    first = *marks;
    *at = hit;
  }
  return first;
}

/* Makes the source of a fixed text that the server composed; marks in it become tokens. */
static grammar_source_t marked(tree_t *tree, const char *const *marks, const char *text) {
  grammar_source_t *parts = nodes_new(tree, WORDS_MAX);
  int32_t count = 0;
  const char *at = NULL, *found;
  if (parts == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  while (count < WORDS_MAX - 2 && (found = first_mark(marks, text, &at)) != NULL) {
    parts[count++] = of_text(GRAMMAR_LITERAL, text, (size_t)(at - text));
    parts[count++] = mark(tree, found);
    text = at + strlen(found);
  }
  parts[count++] = of_text(GRAMMAR_LITERAL, text, strlen(text));
  return group(GRAMMAR_SEQUENCE, parts, count);
}

/* Makes the source of a fixed text of the family's call format; NULL stands for the empty text. */
static grammar_source_t words(tree_t *tree, const tool_format_t *format, const char *text) {
  static const char *const none[] = {NULL};
  if (text == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  return marked(tree, format->marks != NULL ? format->marks : none, text);
}

/* Tells whether a part of the text is one token of the model. */
static bool has_tokens(const tree_t *tree, const tool_format_t *format, const char *text) {
  for (const char *const *mark = format->marks; mark != NULL && *mark != NULL; mark++) {
    const tokenizer_t *tokenizer = tree->completion->tokenizer;
    if (strstr(text, *mark) == NULL) continue;
    if (tokenizer_id(tokenizer, *mark, strlen(*mark)) >= 0) return true;
  }
  return false;
}

/* Tells whether the text begins with a mark that is one token of the model. */
static bool begins_with_token(const tree_t *tree, const char *const *marks, const char *text) {
  const tokenizer_t *tokenizer = tree->completion->tokenizer;
  const char *at = NULL, *found = first_mark(marks, text, &at);
  return found != NULL && at == text && tokenizer_id(tokenizer, found, strlen(found)) >= 0;
}

/* ---- tool calls ---- */

static bool is_strict(const json_t *function) {
  const json_t *strict = json_get(function, "strict");
  return strict != NULL && strict->type == JSON_TRUE;
}

static bool is_forced(const completion_t *completion) {
  return completion->params.chat.tool_choice >= TOOLS_REQUIRED;
}

/* The marks of the format that are tokens of the model: TOKEN with the mark as `text`. */
static void add_tokens(tree_t *tree, grammar_source_t *source) {
  const tool_format_t *format = tree->completion->tool_format;
  int32_t count = 0;
  while (format->marks != NULL && format->marks[count] != NULL) count++;
  grammar_source_t *tokens = nodes_new(tree, count);
  source->children = tokens;
  for (int32_t i = 0; i < count && tokens != NULL; i++) {
    grammar_source_t one = mark(tree, format->marks[i]);
    if (one.kind != GRAMMAR_TOKEN) continue;
    one.text = format->marks[i];
    one.length = strlen(one.text);
    tokens[source->num_children++] = one;
  }
}

/* The arguments of a function that has no parameters. */
static grammar_source_t no_arguments(tree_t *tree) {
  const tool_format_t *format = tree->completion->tool_format;
  if (format->tags != NULL) return words(tree, format, format->tags->end_call);
  if (format->literals != NULL) return of_text(GRAMMAR_LITERAL, &format->literals->close, 1);
  return of_text(GRAMMAR_LITERAL, "{}", 2);
}

/* The arguments of a function: the objects of its schema. loose[index]: the model chooses whether
 * to call, the function is not `strict`, and its schema cannot be enforced exactly; then any object
 * is allowed. A schema that the request insists on is enforced, or the request fails. */
static grammar_source_t arguments(tree_t *tree, const json_t *function, int index,
                                  const bool *loose) {
  const json_t *schema = json_get(function, "parameters");
  const tool_format_t *format = tree->completion->tool_format;
  if (!json_is_given(schema)) return no_arguments(tree);
  grammar_source_t source = {.tags = format->tags, .literals = format->literals};
  source.kind = loose[index] ? GRAMMAR_JSON_OBJECT : GRAMMAR_JSON_SCHEMA;
  if (format->tags != NULL) source.kind = GRAMMAR_PARAMETERS;
  if (format->literals != NULL) source.kind = GRAMMAR_LITERALS;
  if (format->tags != NULL || format->literals != NULL) add_tokens(tree, &source);
  if (loose[index]) return source;
  char place[ERROR_PARAM_MAX];
  snprintf(place, sizeof place, "tools[%d].function.parameters",
           params_tool_index(&tree->completion->params.chat, index));
  source.param = arena_copy(&tree->completion->arena, place, strlen(place));
  if (source.param == NULL) tree->failed = true;
  source.schema = schema;
  source.strict = is_strict(function);
  source.known_only = tree->completion->intake->limits.strict;
  source.object_only = !json_equals(json_get(schema, "type"), "object");
  return source;
}

/* Makes the source of one call of one of the functions, without the first `skip` bytes of its text.
 */
static grammar_source_t one_call(tree_t *tree, const tool_format_t *format, size_t skip,
                                 const bool *loose) {
  static const char number[] = ":[0-9]{1,3}"; /* of an id */
  static const char position[] = "[1-9][0-9]{0,2}";
  const chat_params_t *chat = &tree->completion->params.chat;
  grammar_source_t *calls = nodes_new(tree, (int32_t)chat->tools->count);
  int32_t count = 0;
  int index = -1;
  if (calls == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  JSON_EACH(tool, chat->tools) {
    const json_t *function = json_get(tool, "function"), *name = json_get(function, "name");
    index++;
    bool other = name->length != chat->tool_name.length ||
                 memcmp(name->text, chat->tool_name.text, name->length) != 0;
    if (chat->tool_choice == TOOLS_NAMED && other) continue;
    grammar_source_t *parts = nodes_new(tree, 7);
    if (parts == NULL) break;
    parts[0] = words(tree, format, format->begin_name + skip);
    parts[1] = of_text(GRAMMAR_LITERAL, name->text, name->length);
    parts[2] = of_text(GRAMMAR_LITERAL, "", 0);
    if (format->names_are_ids) parts[2] = of_text(GRAMMAR_REGEX, number, sizeof number - 1);
    if (format->number != NULL) parts[2] = words(tree, format, format->number);
    parts[3] = of_text(GRAMMAR_LITERAL, "", 0);
    if (format->number != NULL) parts[3] = of_text(GRAMMAR_REGEX, position, sizeof position - 1);
    parts[4] = words(tree, format, format->end_name);
    parts[5] = arguments(tree, function, index, loose);
    parts[6] = words(tree, format, format->end_call);
    calls[count++] = group(GRAMMAR_SEQUENCE, parts, 7);
  }
  return group(GRAMMAR_ALTERNATIVES, calls, count);
}

/* Makes the source of the calls of one assistant message: one or more, as the format writes them,
 * without the first `skip` bytes of the text before them. */
static grammar_source_t all_calls(tree_t *tree, const tool_format_t *format, size_t skip,
                                  const bool *loose) {
  const chat_params_t *chat = &tree->completion->params.chat;
  bool single = chat->tool_choice == TOOLS_NAMED || !chat->parallel_tool_calls ||
                format->payload == PAYLOAD_CHANNELS; /* the mark after a call ends the message */
  grammar_source_t *items = nodes_new(tree, 2), *parts = nodes_new(tree, 3);
  if (items == NULL || parts == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  items[0] = one_call(tree, format, 0, loose);
  items[1] = words(tree, format, format->between);
  parts[0] = words(tree, format, skip > 0 ? format->before_all + skip : format->before_all);
  parts[1] = repeat(items, 2, 1, single ? 1 : CALLS_MAX);
  parts[2] = words(tree, format, format->behind_all);
  return group(GRAMMAR_SEQUENCE, parts, 3);
}

static grammar_source_t either(tree_t *tree, grammar_source_t left, grammar_source_t right) {
  grammar_source_t *children = nodes_new(tree, 2);
  if (children == NULL) return left;
  children[0] = left;
  children[1] = right;
  return group(GRAMMAR_ALTERNATIVES, children, 2);
}

/* Makes the source of content, with the header of its channel if the format has channels. */
static grammar_source_t answer(tree_t *tree, grammar_source_t content) {
  const completion_t *completion = tree->completion;
  const reasoning_format_t *format = completion->reasoning_format;
  if (format == NULL || format->answer == NULL || completion->params.chat.continue_final) {
    return content;
  }
  grammar_source_t *parts = nodes_new(tree, 2);
  if (parts == NULL) return content;
  parts[0] = marked(tree, channel_marks, format->answer);
  parts[1] = content;
  grammar_source_t output = group(GRAMMAR_SEQUENCE, parts, 2);
  output.param = content.param;
  return output;
}

/* The marks that a model writes around its content, where the family has them. `calls`: there is no
 * content, and the calls stand behind it. */
static grammar_source_t framed(tree_t *tree, grammar_source_t output, bool calls) {
  const reasoning_format_t *format = tree->completion->reasoning_format;
  if (format == NULL || format->text_open == NULL) return output;
  grammar_source_t *parts = nodes_new(tree, 5), *ends = nodes_new(tree, 2);
  if (parts == NULL || ends == NULL) return output;
  int32_t count = 0;
  ends[0] = marked(tree, format->marks, format->text_close);
  ends[1] = marked(tree, format->marks, format->message_close);
  if (!tree->completion->in_text) parts[count++] = marked(tree, format->marks, format->text_open);
  if (calls) parts[count++] = ends[0];
  parts[count++] = output;
  if (!calls) parts[count++] = repeat(&ends[0], 1, 0, 1);
  parts[count++] = repeat(&ends[1], 1, 0, 1);
  grammar_source_t sequence = group(GRAMMAR_SEQUENCE, parts, count);
  sequence.param = output.param;
  return sequence;
}

/* The mark of the first call, behind that which ends the content where the family has one. */
static grammar_source_t opening(tree_t *tree, const tool_format_t *format, const char *opener) {
  const reasoning_format_t *reasoning = tree->completion->reasoning_format;
  grammar_source_t *marks = nodes_new(tree, 2), *parts = nodes_new(tree, 2);
  if (marks == NULL || parts == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  marks[0] = words(tree, format, opener);
  marks[1] = of_text(GRAMMAR_LITERAL, opener, strlen(opener));
  grammar_source_t open =
      group(GRAMMAR_ALTERNATIVES, marks, has_tokens(tree, format, opener) ? 2 : 1);
  if (reasoning == NULL || reasoning->text_close == NULL) return open;
  parts[0] = marked(tree, reasoning->marks, reasoning->text_close);
  parts[1] = open;
  return group(GRAMMAR_SEQUENCE, parts, 2);
}

/* tool_choice auto with strict functions: free text, but every call must be one of a declared
 * function. If the format has a mark before calls: text without the mark, then mark and call, any
 * number of times. If it has none: the output is either calls, or text that does not begin like a
 * call. */
static grammar_source_t text_or_calls(tree_t *tree, const tool_format_t *format,
                                      const bool *loose) {
  if (format->payload == PAYLOAD_CHANNELS) {
    return either(tree, answer(tree, (grammar_source_t){.kind = GRAMMAR_TEXT}),
                  all_calls(tree, format, 0, loose));
  }
  static const char no_call[] = "([^{\\[ \\n\\r\\t][\\s\\S]*)?";
  grammar_source_t *parts = nodes_new(tree, 3), *outer = nodes_new(tree, 2);
  if (parts == NULL || outer == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  if (format->bare) {
    outer[0] = all_calls(tree, format, 0, loose);
    outer[1] = of_text(GRAMMAR_REGEX, no_call, sizeof no_call - 1);
    return group(GRAMMAR_ALTERNATIVES, outer, 2);
  }
  const char *opener = tool_format_opener(format);
  size_t length = strlen(opener);
  bool around = format->before_all != NULL; /* the mark stands before all calls, else before each */
  bool single = !tree->completion->params.chat.parallel_tool_calls;
  parts[0] = of_text(GRAMMAR_TEXT_WITHOUT, opener, length);
  parts[1] = opening(tree, format, opener);
  parts[2] =
      around ? all_calls(tree, format, length, loose) : one_call(tree, format, length, loose);
  const grammar_source_t *turn = parts;
  grammar_source_t *sequence = nodes_new(tree, 1);
  if (sequence == NULL) return of_text(GRAMMAR_LITERAL, "", 0);
  sequence[0] = group(GRAMMAR_SEQUENCE, turn, 3);
  outer[0] = repeat(sequence, 1, 0, single || around ? 1 : CALLS_MAX);
  outer[1] = of_text(GRAMMAR_TEXT_WITHOUT, opener, length);
  return framed(tree, group(GRAMMAR_SEQUENCE, outer, 2), false);
}

/* ---- the whole output ---- */

static grammar_source_t constraint_source(const completion_t *completion) {
  const constraint_t *constraint = &completion->params.constraint;
  if (constraint->tree != NULL) {
    grammar_source_t output = *constraint->tree;
    output.param = constraint->param;
    return output;
  }
  return (grammar_source_t){.kind = constraint->kind,
                            .param = constraint->param,
                            .schema = constraint->schema,
                            .strict = constraint->strict,
                            .known_only = completion->intake->limits.strict,
                            .text = constraint->text.text,
                            .length = constraint->text.length};
}

/* Puts optional reasoning, whose text is free, in front of the constrained output. */
static grammar_source_t after_reasoning(tree_t *tree, grammar_source_t output) {
  const completion_t *completion = tree->completion;
  const reasoning_format_t *format = completion->reasoning_format;
  if (format == NULL || completion->params.chat.continue_final) return output;
  grammar_source_t *parts = nodes_new(tree, 4), *outer = nodes_new(tree, 2);
  grammar_source_t *reasoning = nodes_new(tree, 1), *open = nodes_new(tree, 1);
  if (parts == NULL || outer == NULL || reasoning == NULL || open == NULL) return output;
  int32_t count = 0;
  bool channels = format->answer != NULL, begun = completion->in_reasoning;
  open[0] = marked(tree, format->marks, format->open);
  if (!begun) parts[count++] = open[0];
  if (begun && format->open_optional) parts[count++] = repeat(open, 1, 0, 1);
  if (begins_with_token(tree, format->marks, format->close)) {
    parts[count++] = (grammar_source_t){.kind = GRAMMAR_TEXT};
    parts[count++] = marked(tree, format->marks, format->close);
  } else {
    parts[count++] = of_text(GRAMMAR_TEXT, format->close, strlen(format->close));
  }
  parts[count++] = channels ? marked(tree, channel_marks, format->between)
                            : of_text(GRAMMAR_REGEX, blanks_regex, sizeof blanks_regex - 1);
  reasoning[0] = group(GRAMMAR_SEQUENCE, parts, count);
  outer[0] = repeat(reasoning, 1, completion->in_reasoning ? 1 : 0, 1);
  outer[1] = output;
  return group(GRAMMAR_SEQUENCE, outer, 2);
}

static bool any_strict(const json_t *tools) {
  JSON_EACH(tool, tools) {
    if (is_strict(json_get(tool, "function"))) return true;
  }
  return false;
}

/* Restricts the output parser to the places where the grammar allows calls: calls without a mark at
 * the start of the output, other calls after their mark. Returns false if memory is short. */
static bool restrict_parser(completion_t *completion) {
  tool_format_t *format = arena_calloc(&completion->arena, 1, sizeof *format);
  if (format == NULL) return false;
  *format = *completion->tool_format;
  if (format->bare) format->open = NULL;
  format->needs_section = format->section != NULL;
  format->inside_text = false;
  format->other_open = NULL;
  completion->tool_format = format;
  return true;
}

/* tool_choice auto without anything to enforce: once the model has written the mark of a call, only
 * names that were offered may follow. Where calls have no mark, or text has headers, the output
 * stays free; so it does where the request itself says which tokens may come, and where the
 * operator closes constraints of this kind. */
static bool binds_names(const completion_t *completion) {
  const params_t *params = &completion->params;
  const tool_format_t *format = completion->tool_format;
  if ((completion->intake->limits.closed & CLOSED_SCHEMA) != 0) return false;
  return format != NULL && params->chat.tool_choice == TOOLS_AUTO && !format->bare &&
         !format->text_in_marks && format->payload != PAYLOAD_CHANNELS &&
         params->constraint.param == NULL && !params->use_beam_search &&
         params->num_bad_words == 0 && params->allowed_token_ids.count == 0 &&
         !any_strict(params->chat.tools);
}

/* Builds the tree. The result GRAMMAR_TEXT without text means that the output is free. */
static grammar_source_t build(tree_t *tree, const bool *loose) {
  const completion_t *completion = tree->completion;
  const constraint_t *constraint = &completion->params.constraint;
  const chat_params_t *chat = &completion->params.chat;
  const tool_format_t *format = completion->tool_format;
  grammar_source_t output = {.kind = GRAMMAR_TEXT};
  if (constraint->param != NULL)
    output = framed(tree, answer(tree, constraint_source(completion)), false);
  if (format == NULL) return output;
  if (is_forced(completion)) { /* a constraint on the answer binds text, of which there is none */
    output = framed(tree, all_calls(tree, format, 0, loose), true);
    output.param = "tool_choice";
  } else if (constraint->param != NULL) {
    /* tool_choice auto: an answer that satisfies the constraint, or calls */
    output = either(tree, output, framed(tree, all_calls(tree, format, 0, loose), true));
    output.param = constraint->param;
  } else if (any_strict(chat->tools)) {
    output = text_or_calls(tree, format, loose);
    output.param = "tools";
  } else if (binds_names(completion)) {
    bool all[TOOLS_MAX];
    memset(all, true, sizeof all);
    output = text_or_calls(tree, format, all);
    output.param = "tools";
  }
  return output;
}

static bool constrains(const grammar_source_t *source) {
  return source->kind != GRAMMAR_TEXT || source->length > 0;
}

/* Compiles the schema of each function alone that the request does not insist on, from function
 * `from` on: loose[i] = it cannot be enforced. Returns 0, or an error that ends the request. */
static int find_loose(completion_t *completion, int from, bool *loose) {
  intake_t *intake = completion->intake;
  int index = -1;
  JSON_EACH(tool, completion->params.chat.tools) {
    const json_t *function = json_get(tool, "function");
    if (++index < from || is_strict(function) || loose[index]) continue;
    tree_t tree = {.completion = completion};
    grammar_source_t source = arguments(&tree, function, index, loose);
    if (tree.failed) return error_set(&intake->error, ERR_INTERNAL, NULL, "Out of memory.");
    if (source.param == NULL) continue;
    grammar_t *grammar = NULL;
    inferd_error_t error = {0};
    int code = grammar_cache_compile(completion->server->live->grammars, &source,
                                     engine_grammar_vocabulary(completion->server->engine),
                                     &intake->account, &grammar, &error);
    grammar_unref(grammar);
    loose[index] = code != 0;
    if (code == 0 || code == ERR_INVALID_VALUE || code == ERR_UNSUPPORTED_PARAMETER) continue;
    if (code == ERR_BAD_REQUEST && intake->account.work <= grammar_limits_default.compile_work_max)
      continue;
    intake->error = error;
    return code;
  }
  return 0;
}

/* Returns the number of the function that is to blame for the error, if the request can do without
 * its schema; -1 = the error stands. */
static int blamed_function(const completion_t *completion, const inferd_error_t *error) {
  const chat_params_t *chat = &completion->params.chat;
  int named = -1, index = 0;
  if (sscanf(error->param, "tools[%d].function.parameters", &named) != 1) return -1;
  if (is_forced(completion)) return -1;
  JSON_EACH(tool, chat->tools) {
    if (params_tool_index(chat, index) == named) {
      return is_strict(json_get(tool, "function")) ? -1 : index;
    }
    index++;
  }
  return -1;
}

/* Where patterns are closed, a schema with one cannot be enforced. closed_check_tools has refused
 * those of strict functions and of forced calls. */
static void loosen_closed(const completion_t *completion, bool *loose) {
  int index = 0;
  if ((completion->intake->limits.closed & CLOSED_REGEX) == 0 || is_forced(completion)) return;
  JSON_EACH(tool, completion->params.chat.tools) {
    const json_t *function = json_get(tool, "function");
    loose[index++] = !is_strict(function) && schema_has_pattern(json_get(function, "parameters"));
  }
}

/* Names the schemas that are not enforced where ignored fields are named. */
static void name_loose(const chat_params_t *chat, intake_t *intake, const bool *loose) {
  size_t used = strlen(intake->ignored);
  for (int i = 0; i < TOOLS_MAX; i++) {
    char name[ERROR_PARAM_MAX];
    if (!loose[i]) continue;
    int length = snprintf(name, sizeof name, "%stools[%d].function.parameters", used > 0 ? "," : "",
                          params_tool_index(chat, i));
    if (length < 0 || used + (size_t)length >= sizeof intake->ignored) return;
    memcpy(intake->ignored + used, name, (size_t)length + 1);
    used += (size_t)length;
  }
}

/* Compiles the tree, or only looks into the cache. If the schema of a function that is not strict
 * cannot be enforced, the tree is built again without all schemas of that kind; each further round
 * drops a schema that is good alone and too much beside the others. */
static int compile(completion_t *completion, bool may_compile, grammar_t **out) {
  const struct grammar_vocabulary *vocabulary =
      engine_grammar_vocabulary(completion->server->engine);
  grammar_cache_t *cache = completion->server->live->grammars;
  intake_t *intake = completion->intake;
  inferd_error_t *error = &intake->error;
  bool loose[TOOLS_MAX] = {false};
  intake->account.cancelled = &completion->cancelled;
  intake->account.client = intake->job.client;
  loosen_closed(completion, loose);
  for (int round = 0;; round++) {
    tree_t tree = {.completion = completion};
    grammar_source_t output = build(&tree, loose);
    if (!tree.failed && !constrains(&output)) return 0;
    const char *param = output.param;
    output = after_reasoning(&tree, output);
    output.param = param;
    if (tree.failed) return error_set(error, ERR_INTERNAL, NULL, "Out of memory.");
    int code = may_compile
                   ? grammar_cache_compile(cache, &output, vocabulary, &intake->account, out, error)
                   : grammar_cache_find(cache, &output, vocabulary, out, error);
    bool of_schema = code == ERR_INVALID_VALUE || code == ERR_UNSUPPORTED_PARAMETER ||
                     (code == ERR_BAD_REQUEST &&
                      intake->account.work <= grammar_limits_default.compile_work_max);
    if (of_schema && binds_names(completion)) return 0; /* it was a help, and nobody asked for it */
    int index = of_schema ? blamed_function(completion, error) : -1;
    intake->needs_heavy = code == GRAMMAR_CACHE_MISS || (index >= 0 && !may_compile);
    if (intake->needs_heavy) return 0;
    if (code == 0) name_loose(&completion->params.chat, intake, loose);
    if (index < 0 || loose[index]) return code;
    loose[index] = true;
    if (round == 0 && (code = find_loose(completion, index + 1, loose)) != 0) return code;
  }
}

int completion_constrain(completion_t *completion, bool may_compile) {
  const params_t *params = &completion->params;
  const tool_format_t *format = completion->tool_format;
  bool forced = format != NULL && is_forced(completion);
  bool free_choice = format != NULL && !forced;
  if (params->constraint.param != NULL && tokenizer_is_none(completion->tokenizer)) {
    return tokenizer_refuse(params->constraint.param, &completion->intake->error);
  }
  bool strict = free_choice && any_strict(params->chat.tools);
  if ((forced || strict) && params->use_beam_search) {
    return error_set(&completion->intake->error, ERR_UNSUPPORTED_PARAMETER, "use_beam_search",
                     "Beam search together with constrained tool calls is not supported.");
  }
  bool anywhere =
      free_choice && (format->bare || format->section != NULL || format->other_open != NULL);
  bool narrows = anywhere && (strict || params->constraint.param != NULL);
  if (narrows && !restrict_parser(completion)) {
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  }
  int code = compile(completion, may_compile, &completion->grammar);
  for (int32_t i = 0; code == 0 && completion->grammar != NULL && i < completion->num_inputs; i++) {
    completion->inputs[i].request.grammar = completion->grammar;
  }
  return code;
}
