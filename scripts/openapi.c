/* openapi.c: prints docs/openapi.json, from the tables of routes, request fields and errors.
 *
 *   openapi json    the document
 *   openapi c       the same as C, for the program that serves it
 *
 * Run by scripts/reference and by the build. The schema of a field follows from its row; those of
 * fields that a function checks stand in openapi_schemas.def, those of answers in
 * openapi_answers.def.
 */
#include "scripts/reference.h"
#include "scripts/request_rows.h"

static FILE *out;
enum { LARGE_IDS = 1 << 30 }; /* a bound that is none */

/* ---- texts ---- */

/* A schema of openapi_schemas.def. */
static void put_schema(const char *text) {
  for (const char *at = text; *at != '\0'; at++) {
    size_t length = *at == '{' ? strcspn(at + 1, "}") : 0;
    int value = *at == '{' ? constant(at + 1, length) : -1;
    if (value >= 0) {
      fprintf(out, "%d", value);
      at += length + 1;
    } else {
      fputc(*at == '\'' ? '"' : *at, out);
    }
  }
}

/* A help text of the tables, as a string of JSON. */
static void put_string(const char *text) {
  fputc('"', out);
  for (const char *at = text; *at != '\0'; at++) {
    size_t length = *at == '{' ? strcspn(at + 1, "}") : 0;
    int value = *at == '{' ? constant(at + 1, length) : -1;
    if (value >= 0) {
      fprintf(out, "%d", value);
      at += length + 1;
    } else if (*at == '"' || *at == '\\') {
      fprintf(out, "\\%c", *at);
    } else {
      fputc(*at, out);
    }
  }
  fputc('"', out);
}

/* ---- tables ---- */

static const struct {
  const char *reader, *name, *schema; /* name NULL: of every field */
} schemas[] = {
#define SCHEMA(reader, schema) {reader, NULL, schema},
#define SCHEMA_OF(reader, name, schema) {reader, name, schema},
#define REQUIRED(label, names)
#define RULE(label, schema)
#define SHARED(name, schema)
#include "server/fields/openapi_schemas.def"
#undef SCHEMA
#undef SCHEMA_OF
#undef REQUIRED
#undef RULE
#undef SHARED
};

typedef struct label_text {
  const char *label, *text;
} label_text_t;

#define SCHEMA(reader, schema)
#define SCHEMA_OF(reader, name, schema)
static const label_text_t required[] = {
#define REQUIRED(label, names) {label, names},
#define RULE(label, schema)
#define SHARED(name, schema)
#include "server/fields/openapi_schemas.def"
#undef REQUIRED
#undef RULE
#undef SHARED
};
static const label_text_t rules[] = {
#define REQUIRED(label, names)
#define RULE(label, schema) {label, schema},
#define SHARED(name, schema)
#include "server/fields/openapi_schemas.def"
#undef RULE
#undef SHARED
};
static const label_text_t shared[] = {
#define RULE(label, schema)
#define SHARED(name, schema) {name, schema},
#include "server/fields/openapi_schemas.def"
};
#define ANSWER(label, schema)
#define STREAMED(label, schema)
static const label_text_t parts[] = {
#define PART(name, schema) {name, schema},
#include "server/fields/openapi_answers.def"
#undef PART
#undef ANSWER
#undef STREAMED
};
static const struct {
  const char *label, *schema;
  bool streamed;
} answers[] = {
#define PART(name, schema)
#define ANSWER(label, schema) {label, schema, false},
#define STREAMED(label, schema) {label, schema, true}, /* as events; below /api/ as lines */
#include "server/fields/openapi_answers.def"
};

/* Which rows a body of a route has: its own, then those of other routes that it lacks. */
static const struct body {
  const char *label, *component, *rules; /* rules: the label whose RULE rows hold */
  const row_t *rows[3];
  size_t counts[3];
} bodies[] = {
#define ROWS(name) name##_rows
#define COUNT(name) LENGTH(name##_rows)
    {"/v1/completions", "Completion", "/v1/completions", {ROWS(completion)}, {COUNT(completion)}},
    {"/v1/completions/render", "Completion", "", {0}, {0}},
    {"/v1/chat/completions",
     "ChatCompletion",
     "/v1/chat/completions",
     {ROWS(chat), ROWS(completion)},
     {COUNT(chat), COUNT(completion)}},
    {"/v1/chat/completions/render", "ChatCompletion", "", {0}, {0}},
    {"/apply-template", "ChatCompletion", "", {0}, {0}},
    {"/v1/responses",
     "Response",
     "/v1/responses",
     {ROWS(responses), ROWS(chat), ROWS(completion)},
     {COUNT(responses), COUNT(chat), COUNT(completion)}},
    {"/v1/responses/input_tokens", "Response", "", {0}, {0}},
    {"/v1/conversations", "Conversation", "", {ROWS(conversation)}, {COUNT(conversation)}},
    {"/v1/conversations/{id}",
     "ConversationUpdate",
     "/v1/conversations/{id}",
     {ROWS(conversation)},
     {COUNT(conversation)}},
    {"/v1/batches", "Batch", "/v1/batches", {ROWS(batch)}, {COUNT(batch)}},
    {"/v1/embeddings", "Embedding", "", {ROWS(embedding)}, {COUNT(embedding)}},
    {"/v1/audio/transcriptions",
     "Transcription",
     "",
     {ROWS(transcription)},
     {COUNT(transcription)}},
    {"/v1/audio/translations", "Translation", "", {ROWS(translation)}, {COUNT(translation)}},
    {"/rerank", "Rerank", "", {ROWS(rerank)}, {COUNT(rerank)}},
    {"/v2/rerank", "RerankV2", "", {ROWS(rerank)}, {COUNT(rerank)}},
    {"/score", "Score", "", {ROWS(score)}, {COUNT(score)}},
    {"/classify", "Classify", "", {ROWS(classify)}, {COUNT(classify)}},
    {"/pooling", "Pooling", "", {ROWS(pooling)}, {COUNT(pooling)}},
    {"/v1/messages", "Message", "", {ROWS(messages)}, {COUNT(messages)}},
    {"/v1/messages/count_tokens", "CountTokens", "", {ROWS(messages)}, {COUNT(messages)}},
    {"/completion", "LlamaCompletion", "", {ROWS(llama_completion)}, {COUNT(llama_completion)}},
    {"/infill", "LlamaInfill", "", {ROWS(llama_infill)}, {COUNT(llama_infill)}},
    {"/api/chat", "OllamaChat", "", {ROWS(ollama_chat)}, {COUNT(ollama_chat)}},
    {"/api/generate", "OllamaGenerate", "", {ROWS(ollama_generate)}, {COUNT(ollama_generate)}},
    {"/api/embed", "OllamaEmbed", "", {ROWS(ollama_embed)}, {COUNT(ollama_embed)}},
    {"/api/embeddings",
     "OllamaEmbeddings",
     "",
     {ROWS(ollama_embeddings)},
     {COUNT(ollama_embeddings)}},
    {"/api/show", "OllamaShow", "", {ROWS(ollama_show)}, {COUNT(ollama_show)}},
    {"/api/pull", "OllamaPull", "", {ROWS(ollama_pull)}, {COUNT(ollama_pull)}},
    {"", "OllamaOptions", "", {ROWS(ollama_option)}, {COUNT(ollama_option)}}, /* a part of them */
    {"/tokenize", "Tokenize", "/tokenize", {ROWS(tokenize)}, {COUNT(tokenize)}},
    {"/detokenize", "Detokenize", "", {ROWS(detokenize)}, {COUNT(detokenize)}},
    {"/v1/schema/check", "SchemaCheck", "", {ROWS(schema)}, {COUNT(schema)}},
    {"/v1/models/load", "LoadModel", "", {ROWS(model_name)}, {COUNT(model_name)}},
    {"/v1/models/unload", "UnloadModel", "", {ROWS(model_name)}, {COUNT(model_name)}},
    {"/v1/load_lora_adapter", "LoadAdapter", "", {ROWS(load_adapter)}, {COUNT(load_adapter)}},
    {"/v1/unload_lora_adapter",
     "UnloadAdapter",
     "",
     {ROWS(unload_adapter)},
     {COUNT(unload_adapter)}},
};

static const char *required_of(const char *label) {
  for (size_t i = 0; i < LENGTH(required); i++) {
    if (strcmp(required[i].label, label) == 0) return required[i].text;
  }
  return "";
}

/* Whether `name` is one of `words`, which | separates. */
static bool is_among(const char *words, const char *name) {
  size_t length = strlen(name);
  for (const char *at = words; *at != '\0';) {
    size_t own = strcspn(at, "|");
    if (own == length && memcmp(at, name, length) == 0) return true;
    at += own + (at[own] == '|');
  }
  return false;
}

/* ---- a field ---- */

static void put_bound(const char *name, double value) {
  if (isfinite(value)) fprintf(out, ",\"%s\":%.16g", name, value);
}

static const char *schema_of(const row_t *row) {
  for (size_t i = 0; i < LENGTH(schemas); i++) {
    if (strcmp(schemas[i].reader, row->reader) != 0) continue;
    if (schemas[i].name == NULL || strcmp(schemas[i].name, row->name) == 0) {
      return schemas[i].schema;
    }
  }
  fail("openapi_schemas.def has no schema of", row->reader);
  return NULL;
}

/* The values of a refused field that change nothing. */
static void put_refused(const row_t *row) {
  fprintf(out, "\"enum\":[null");
  if ((row->flags & NOOP_FALSE) != 0) fprintf(out, ",false");
  if ((row->flags & NOOP_EMPTY) != 0) fprintf(out, ",\"\",[],{}");
  if ((row->flags & NOOP_NUMBERS) != 0) fprintf(out, ",%.15g", row->min);
  if ((row->flags & NOOP_NUMBERS) != 0 && row->max != row->min) fprintf(out, ",%.15g", row->max);
  if ((row->flags & NOOP_TEXT_FORMAT) != 0) fprintf(out, ",{\"type\":\"text\"}");
  fprintf(out, "],\"description\":\"Not supported: other values are refused.\"");
}

/* The inside of the schema of a value that is not null, for kinds with a `type`. */
static void put_typed(const row_t *row, bool nullable) {
  static const char *const types[] = {
      [FIELD_BOOL] = "boolean",  [FIELD_INT] = "integer", [FIELD_NUMBER] = "number",
      [FIELD_STRING] = "string", [FIELD_IDS] = "array",   [FIELD_IGNORED] = "string"};
  bool open = (row->flags & FIELD_OPEN_MIN) != 0;
  fprintf(out, nullable ? "\"type\":[\"%s\",\"null\"]" : "\"type\":\"%s\"", types[row->kind]);
  if (row->kind == FIELD_INT && (row->flags & FIELD_ALTERNATIVES) != 0) {
    fprintf(out, ",\"minimum\":-1");
  } else if (row->kind == FIELD_INT && (row->flags & FIELD_WHOLE_INT64) != 0) {
    fprintf(out, ",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807");
  } else if (row->kind == FIELD_INT) {
    put_bound("minimum", row->min);
    put_bound("maximum", row->max < 0x1p53 ? row->max : 0x1p53);
  } else if (row->kind == FIELD_NUMBER) {
    put_bound(open ? "exclusiveMinimum" : "minimum", row->min);
    put_bound("maximum", row->max);
  } else if (row->kind == FIELD_STRING || row->kind == FIELD_IGNORED) {
    if (row->min > 0) put_bound("minLength", row->min);
    put_bound("maxLength", row->max); /* in bytes, which schemas cannot say */
  } else if (row->kind == FIELD_IDS) {
    if (row->min > 0) put_bound("minItems", row->min);
    if (row->max < LARGE_IDS) put_bound("maxItems", row->max);
    fprintf(out, ",\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647}");
  }
}

static void put_field(const row_t *row, bool nullable) {
  fputc('{', out);
  if (row->kind == FIELD_REFUSED) {
    put_refused(row);
  } else if (row->reader != NULL) {
    fprintf(out, nullable ? "\"anyOf\":[" : "\"allOf\":[");
    put_schema(schema_of(row));
    fprintf(out, nullable ? ",{\"type\":\"null\"}]" : "]");
  } else if (row->kind == FIELD_IGNORED && (row->accepts != NULL || isinf(row->max))) {
    fprintf(out, "\"description\":\"Without effect.\"");
  } else {
    put_typed(row, nullable);
  }
  if (row->kind <= FIELD_CUSTOM && row->help != NULL && row->help[0] != '\0') {
    fprintf(out, ",\"description\":");
    put_string(row->help);
  }
  fputc('}', out);
}

/* ---- a body ---- */

static bool is_hidden(const struct body *body, int level, const char *name) {
  for (int i = 0; i < level; i++) {
    for (size_t j = 0; j < body->counts[i]; j++) {
      if (strcmp(body->rows[i][j].name, name) == 0) return true;
    }
  }
  return false;
}

/* The names that begin like a refused family, but have rows of their own. */
static void put_prefix(const struct body *body, const row_t *prefix) {
  size_t length = strlen(prefix->name);
  fprintf(out, "\"^");
  bool first = true;
  for (int i = 0; i < 3; i++) {
    for (size_t j = 0; j < body->counts[i]; j++) {
      const row_t *row = &body->rows[i][j];
      bool own = (row->flags & FIELD_PREFIX) == 0 || row->kind != FIELD_REFUSED;
      if (!own || strncmp(row->name, prefix->name, length) != 0) continue;
      fprintf(out, "%s%s", first ? "(?!(" : "|", row->name);
      first = false;
    }
  }
  fprintf(out, "%s%s\":{", first ? "" : ")$)", prefix->name);
  put_refused(prefix);
  fputc('}', out);
}

static void put_rows(const struct body *body, const char *needed, bool prefixes) {
  bool first = true;
  for (int i = 0; i < 3; i++) {
    for (size_t j = 0; j < body->counts[i]; j++) {
      const row_t *row = &body->rows[i][j];
      bool prefix = row->kind == FIELD_REFUSED && (row->flags & FIELD_PREFIX) != 0;
      if (prefix != prefixes || is_hidden(body, i, row->name)) continue;
      fprintf(out, first ? "\n  " : ",\n  ");
      first = false;
      if (prefix) {
        put_prefix(body, row);
        continue;
      }
      fprintf(out, "\"%s\":", row->name);
      put_field(row, !is_among(needed, row->name));
    }
  }
}

/* What must hold between fields stands in `x-rules`, and not in `allOf`: programs that generate
 * bodies from the document multiply such conditions out, and end in none. */
static void put_rules(const struct body *body, const char *needed) {
  fprintf(out, ",\"x-rules\":[{\"patternProperties\":{");
  put_rows(body, needed, true);
  fprintf(out, "}}");
  for (size_t i = 0; i < LENGTH(rules); i++) {
    if (strcmp(rules[i].label, body->rules) != 0) continue;
    fprintf(out, ",\n  ");
    put_schema(rules[i].text);
  }
  fputc(']', out);
}

static void put_body(const struct body *body) {
  const char *needed = required_of(body->label);
  fprintf(out, "\"%sRequest\":{\"type\":\"object\",\"properties\":{", body->component);
  put_rows(body, needed, false);
  fputc('}', out);
  if (needed[0] != '\0') {
    fprintf(out, ",\"required\":[");
    for (const char *at = needed; *at != '\0';) {
      size_t length = strcspn(at, "|");
      fprintf(out, "%s\"%.*s\"", at == needed ? "" : ",", (int)length, at);
      at += length + (at[length] == '|');
    }
    fputc(']', out);
  }
  put_rules(body, needed);
  fputc('}', out);
}

/* ---- errors ---- */

static const struct {
  int status;
  const char *type, *code;
} errors[] = {
#define ERROR(name, number, http_status, type, code, exit_status, help) {http_status, type, code},
#include "engine/base/error.def"
#undef ERROR
};

static void put_codes(bool types) {
  bool first = true;
  for (size_t i = 0; i < LENGTH(errors); i++) {
    const char *word = types ? errors[i].type : errors[i].code;
    bool again = word == NULL || errors[i].status == 0;
    for (size_t j = 0; j < i && !again; j++) {
      const char *other = types ? errors[j].type : errors[j].code;
      again = errors[j].status != 0 && other != NULL && strcmp(other, word) == 0;
    }
    if (again) continue;
    fprintf(out, "%s\"%s\"", first ? "" : ",", word);
    first = false;
  }
}

static void put_error_schemas(void) {
  fprintf(out, "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":"
               "{\"type\":\"object\",\"required\":[\"message\",\"type\",\"param\",\"code\"],"
               "\"properties\":{\"message\":{\"type\":\"string\"},\"type\":{\"enum\":[");
  put_codes(true);
  fprintf(out, "]},\"param\":{\"type\":[\"string\",\"null\"]},\"code\":{\"anyOf\":[{\"enum\":[");
  put_codes(false);
  fprintf(out, "]},{\"type\":\"integer\",\"description\":\"With --error-code status.\"},"
               "{\"type\":\"null\"}]}}}}},\n"
               "\"MessagesError\":{\"type\":\"object\",\"required\":[\"type\",\"error\"],"
               "\"properties\":{\"type\":{\"const\":\"error\"},\"error\":{\"type\":\"object\","
               "\"required\":[\"type\",\"message\"],\"properties\":{\"type\":{\"type\":"
               "\"string\"},\"message\":{\"type\":\"string\"}}}}},\n"
               "\"OllamaError\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":"
               "{\"error\":{\"type\":\"string\"}}}");
}

/* ---- routes ---- */

enum {
  OPEN = 1,
  PREFIX = 2,
  JSON = 4,
  ENGINE = 8,
  METRICS = 16,
  ADMIN = 32,
  MESSAGES = 64,
  PAGE = 128,
  AUDIO = 256
};
static const struct route_row {
  const char *method, *path;
  unsigned flags;
  const char *label, *help;
} routes[] = {
#define ROUTE_OPEN OPEN
#define ROUTE_PREFIX PREFIX
#define ROUTE_JSON JSON
#define ROUTE_ENGINE ENGINE
#define ROUTE_METRICS METRICS
#define ROUTE_ADMIN ADMIN
#define ROUTE_SMALL 0
#define ROUTE_KEY_ALONE 0
#define ROUTE_MESSAGES MESSAGES
#define ROUTE_PAGE PAGE
#define ROUTE_STORE 0
#define ROUTE_PARENT 0
#define ROUTE_QUERY 0
#define ROUTE_AUDIO AUDIO
#define ROUTE(method, path, flags, label, handle, help) {method, path, flags, label, help},
#include "server/http/routes.def"
#undef ROUTE
};

static const struct body *body_of(const char *label) {
  for (size_t i = 0; i < LENGTH(bodies); i++) {
    if (strcmp(bodies[i].label, label) == 0) return &bodies[i];
  }
  fail("no body is known of the route", label);
  return NULL;
}

/* "/v1/models/{id}" has `id`. */
static void put_parameters(const char *label) {
  const char *brace = strchr(label, '{');
  if (brace == NULL) return;
  fprintf(out,
          ",\"parameters\":[{\"name\":\"%.*s\",\"in\":\"path\",\"required\":true,"
          "\"schema\":{\"type\":\"string\"}}]",
          (int)strcspn(brace + 1, "}"), brace + 1);
}

static bool is_ollama(const char *label) {
  return strncmp(label, "/api/", 5) == 0;
}

/* An answer to DELETE is called "DELETE LABEL". */
static void put_answer(const struct route_row *route) {
  char label[128];
  bool deletes = strcmp(route->method, "DELETE") == 0;
  snprintf(label, sizeof label, "%s%s", deletes ? "DELETE " : "", route->label);
  for (size_t i = 0; i < LENGTH(answers); i++) {
    if (strcmp(answers[i].label, label) != 0) continue;
    fprintf(out, "\"application/json\":{\"schema\":");
    put_schema(answers[i].schema);
    fputc('}', out);
    if ((route->flags & AUDIO) != 0) fprintf(out, ",\"text/plain\":{},\"text/vtt\":{}");
    if (answers[i].streamed)
      fprintf(out, ",\"%s\":{\"schema\":{\"type\":\"string\"}}",
              is_ollama(label) ? "application/x-ndjson" : "text/event-stream");
    return;
  }
  fail("openapi_answers.def has no answer of", label);
}

static void put_responses(const struct route_row *route) {
  const char *error = (route->flags & MESSAGES) != 0 ? "MessagesError"
                      : is_ollama(route->label)      ? "OllamaError"
                                                     : "Error";
  fprintf(out, ",\"responses\":{\"200\":{\"description\":\"The answer.\",\"content\":{");
  if ((route->flags & PAGE) != 0) {
    fprintf(out, "\"text/html\":{}");
  } else if ((route->flags & (METRICS | ADMIN)) != 0) {
    fprintf(out, "\"text/plain\":{}");
  } else {
    put_answer(route);
  }
  fprintf(out, "}}");
  if ((route->flags & (PAGE | OPEN)) == 0) {
    fprintf(out, ",\"4XX\":{\"$ref\":\"#/components/responses/%s\"}", error);
  }
  fprintf(out, ",\"5XX\":{\"$ref\":\"#/components/responses/%s\"}}", error);
}

static void put_operation(const struct route_row *route) {
  static const char *const methods[][2] = {{"GET", "get"}, {"POST", "post"}, {"DELETE", "delete"}};
  size_t i = 0;
  while (strcmp(methods[i][0], route->method) != 0) i++;
  fprintf(out, "\"%s\":{\"description\":", methods[i][1]);
  put_string(route->help);
  put_parameters(route->label);
  if ((route->flags & (JSON | AUDIO)) != 0) {
    fprintf(out,
            ",\"requestBody\":{\"required\":true,\"content\":{\"%s\":{\"schema\":"
            "{\"$ref\":\"#/components/schemas/%sRequest\"}}}}",
            (route->flags & AUDIO) != 0 ? "multipart/form-data" : "application/json",
            body_of(route->label)->component);
  }
  if ((route->flags & (OPEN | PAGE)) != 0) fprintf(out, ",\"security\":[]");
  put_responses(route);
  fputc('}', out);
}

/* Other spellings of a path are not repeated. */
static bool is_first(size_t index) {
  return routes[index].help[0] != '\0';
}

static void put_paths(void) {
  bool first = true;
  for (size_t i = 0; i < LENGTH(routes); i++) {
    bool seen = !is_first(i);
    for (size_t j = 0; j < i && !seen; j++) {
      seen = is_first(j) && strcmp(routes[j].label, routes[i].label) == 0 &&
             strcmp(routes[j].path, routes[i].path) == 0;
    }
    if (seen) continue;
    bool prefix = (routes[i].flags & PREFIX) != 0;
    const char *path = prefix ? routes[i].label : routes[i].path;
    fprintf(out, "%s\n\"%s\":{", first ? "" : ",", path);
    first = false;
    bool more = false;
    for (size_t j = i; j < LENGTH(routes); j++) {
      if (!is_first(j) || strcmp(routes[j].path, routes[i].path) != 0) continue;
      if (more) fputc(',', out);
      put_operation(&routes[j]);
      more = true;
    }
    fputc('}', out);
  }
}

static void put_named(const label_text_t *schemas_of, size_t count) {
  for (size_t i = 0; i < count; i++) {
    fprintf(out, ",\n\"%s\":", schemas_of[i].label);
    put_schema(schemas_of[i].text);
  }
}

static void put_document(void) {
  fprintf(
      out,
      "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"inferd\",\"version\":\"1\","
      "\"description\":\"Generated from the tables of inferd (make docs). Lengths of "
      "strings are in bytes of UTF-8. Unknown fields are ignored, unless "
      "--strict-params. `x-rules` of a body are further schemas that it must fit, "
      "most of them conditions between fields.\"},\n\"security\":[{},{\"key\":[]}],\n\"paths\":{");
  put_paths();
  fprintf(out, "},\n\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\","
               "\"scheme\":\"bearer\"}},\n\"responses\":{\"Error\":{\"description\":\"The request "
               "was refused, or could not be served.\",\"content\":{\"application/json\":"
               "{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}},\"MessagesError\":"
               "{\"description\":\"The same in the words of Anthropic.\",\"content\":"
               "{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/"
               "MessagesError\"}}}},\"OllamaError\":{\"description\":\"The same in the words of "
               "Ollama.\",\"content\":{\"application/json\":{\"schema\":{\"$ref\":"
               "\"#/components/schemas/OllamaError\"}}}}},\n\"schemas\":{\n");
  put_error_schemas();
  put_named(shared, LENGTH(shared));
  put_named(parts, LENGTH(parts));
  for (size_t i = 0; i < LENGTH(bodies); i++) {
    if (bodies[i].rows[0] == NULL) continue; /* a route with the body of another */
    fprintf(out, ",\n");
    put_body(&bodies[i]);
  }
  fprintf(out, "}}}\n");
}

/* The document as an array of C: a string would be longer than compilers must take. */
static void print_c(const char *text, size_t length) {
  printf("#include \"server/api/openapi.h\"\n\nconst unsigned char openapi_bytes[] = {");
  for (size_t i = 0; i < length; i++) {
    printf("%s%d,", i % 24 == 0 ? "\n" : "", (unsigned char)text[i]);
  }
  printf("};\nconst unsigned long openapi_length = %zu;\n", length);
}

int main(int argc, char **argv) {
  char *text = NULL;
  size_t length = 0;
  bool as_c = argc == 2 && strcmp(argv[1], "c") == 0;
  if (!as_c && (argc != 2 || strcmp(argv[1], "json") != 0)) fail("usage", "openapi json|c");
  out = open_memstream(&text, &length);
  if (out == NULL) fail("openapi", "no memory");
  put_document();
  fclose(out);
  if (as_c) {
    print_c(text, length);
  } else {
    fwrite(text, 1, length, stdout);
  }
  free(text);
  return fflush(stdout) == 0 ? 0 : 1;
}
