/* main.c: grammars for scripts: compile constraints, test texts against them, generate texts.
 *
 * Reads one JSON object a line, writes one JSON object a line. One thread. Not part of the daemon:
 * parity_schemas.py, coverage_schemas.py and bench_schemas.py drive it.
 *
 *   grammar_driver MODEL_DIR | --synthetic TOKENS | --tokens FILE
 *   {"kind": "schema" | "parameters" | "object" | "regex" | "choice" | "grammar", "value": ...,
 *    "strict": false, "texts": ["..."], "generate": 3, "seed": 1, "max_tokens": 200}
 *   -> {"accepted": [true], "reached": [bytes], "generated": [{"text": "...", "finish": "stop"}]}
 *      or {"error": "..."}
 *
 * FILE: the tokens in the order of their ids, each a byte that holds its length and its bytes.
 * "path": [ids] -> also "compile_us", "masks_us" (as the engine makes them, with those that it
 * keeps) and "anew_us", processor time, one value a mask up to the first id that is not allowed.
 * "parameters" are texts in tags; what is generated is read back as the arguments of a call of "f",
 * one of "functions".
 */
#include "engine/base/buffer.h"
#include "engine/base/clock.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/grammar/mask/masks.h"
#include "engine/text/tokenizer.h"
#include "server/parser/output.h"
#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct driver {
  tokenizer_t *tokenizer;
  int32_t num_tokens; /* without the stop id, which is the last */
  grammar_vocabulary_t *vocabulary;
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  grammar_masks_t *kept; /* 16 MiB, as the engine has */
  uint32_t *row;
  char *synthetic;       /* 32 bytes a token */
  int32_t byte_ids[256]; /* tokens of single bytes; -1 = there is none */
  uint64_t masks, tokens;
} driver_t;

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  const driver_t *d = context;
  if (d->tokenizer) {
    *length = 0;
    if (tokenizer_flags(d->tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) return "";
    return tokenizer_bytes(d->tokenizer, id, length);
  }
  const char *token = d->synthetic + (size_t)id * 32;
  *length = (uint8_t)token[31];
  return token;
}

/* All bytes, then random texts of bytes that JSON likes. */
static void make_synthetic(driver_t *d, int32_t count) {
  static const char bytes[] =
      "{}[]\":, \n\\abcdefghinrtuxyzABC0123456789.-+eE_@/TZ\xC3\xA9\xE2\x82";
  uint64_t state = 7;
  d->num_tokens = count;
  d->synthetic = calloc((size_t)count, 32);
  if (!d->synthetic) exit(1);
  for (int32_t id = 0; id < count; id++) {
    char *token = d->synthetic + (size_t)id * 32;
    uint64_t length = id < 256 ? 1 : 1 + next_random_64(&state) % 6;
    for (uint64_t i = 0; i < length; i++) {
      token[i] = id < 256 ? (char)id : bytes[next_random_64(&state) % (sizeof bytes - 1)];
    }
    token[31] = (char)length;
  }
}

/* Exits for a file of another form. */
static void read_tokens(driver_t *d, FILE *file) {
  size_t count = 0;
  for (int length; (length = getc(file)) != EOF; count++) {
    if (count % 4096 == 0) d->synthetic = realloc(d->synthetic, (count + 4096) * 32);
    char *token = d->synthetic ? d->synthetic + count * 32 : NULL;
    if (!token || length > 31 || fread(token, 1, (size_t)length, file) != (size_t)length) {
      fprintf(stderr, "a token of the file is longer than 31 bytes or cut off\n");
      exit(1);
    }
    token[31] = (char)length;
  }
  d->num_tokens = (int32_t)count;
}

static void write_string(const char *text, size_t length) {
  size_t need = json_escape(NULL, 0, text, length);
  char *out = malloc(need + 1);
  if (!out) exit(1);
  json_escape(out, need, text, length);
  printf("\"%.*s\"", (int)need, out);
  free(out);
}

static int source_of(const json_t *line, grammar_source_t *source) {
  static const struct {
    const char *name;
    grammar_kind_t kind;
  } kinds[] = {{"schema", GRAMMAR_JSON_SCHEMA}, {"parameters", GRAMMAR_PARAMETERS},
               {"object", GRAMMAR_JSON_OBJECT}, {"regex", GRAMMAR_REGEX},
               {"choice", GRAMMAR_CHOICE},      {"grammar", GRAMMAR_EBNF}};
  const json_t *kind = json_get(line, "kind"), *value = json_get(line, "value");
  *source = (grammar_source_t){.param = "response_format", .schema = value};
  if (!kind) return -1;
  json_bool(json_get(line, "strict"), &source->strict);
  if (value && value->type == JSON_STRING) {
    source->text = value->text;
    source->length = value->length;
  }
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!json_equals(kind, kinds[i].name)) continue;
    source->kind = kinds[i].kind;
    return 0;
  }
  return -1;
}

/* Returns how many bytes of the text the grammar allows, fed one by one (ids of single bytes). */
static size_t reach(driver_t *d, const grammar_t *g, const char *text, size_t length) {
  if (grammar_matcher_start(d->matcher, d->scratch, g, d->vocabulary) != 0) return 0;
  for (size_t i = 0; i < length; i++) {
    int32_t id = d->byte_ids[(uint8_t)text[i]];
    if (id < 0 || grammar_matcher_accept(d->matcher, d->scratch, id) != 0) return i;
  }
  return length;
}

static void judge(driver_t *d, const grammar_t *g, const json_t *texts) {
  static size_t reached[1024];
  const char *comma = "";
  uint32_t count = 0;
  printf("\"accepted\":[");
  if (texts) {
    JSON_EACH(text, texts) {
      if (count == ARRAY_LEN(reached)) break;
      reached[count] = reach(d, g, text->text, text->length);
      bool ok = reached[count++] == text->length && grammar_matcher_is_accepting(d->matcher);
      printf("%s%s", comma, ok ? "true" : "false");
      comma = ",";
    }
  }
  printf("],\"reached\":[");
  for (uint32_t i = 0; i < count; i++) printf("%s%zu", i > 0 ? "," : "", reached[i]);
  printf("],");
}

/* A random allowed id; often one that moves on (holds no letter), or the text never ends. */
static int32_t pick(driver_t *d, uint64_t *state) {
  int32_t words = grammar_row_words(d->vocabulary), stop = d->num_tokens, chosen = -1;
  uint64_t seen = 0;
  if ((d->row[stop / 32] >> (stop % 32) & 1) && next_random_64(state) % 4 == 0) return stop;
  for (int pass = next_random_64(state) % 2 ? 0 : 1; pass < 2 && chosen < 0; pass++) {
    for (int32_t w = 0; w < words; w++) {
      for (uint32_t bits = d->row[w]; bits; bits &= bits - 1) {
        int32_t id = w * 32 + __builtin_ctz(bits);
        size_t length;
        const char *bytes = id == stop ? "" : token_bytes(d, id, &length);
        if (pass == 0 && id != stop && !memchr("\"}],:", bytes[0], 5)) continue;
        if (next_random_64(state) % ++seen == 0) chosen = id;
      }
    }
  }
  return chosen;
}

/* Takes the bytes of `text` as far as they are allowed; nobody would hit on a whole tag. */
static size_t feed(driver_t *d, const char *text, char *out) {
  size_t length = 0;
  for (; text[length] != '\0'; length++) {
    int32_t id = d->byte_ids[(uint8_t)text[length]];
    if (id < 0 || grammar_matcher_accept(d->matcher, d->scratch, id) != 0) break;
    out[length] = text[length];
  }
  return length;
}

static void take_arguments(void *context, output_kind_t kind, const char *text, size_t length) {
  if (kind == OUTPUT_CALL_TEXT || kind == OUTPUT_CONTENT) buffer_append(context, text, length);
}

/* What a reader makes of the parameters of a call of "f". */
static buffer_t read_back(const json_t *functions, const char *text, size_t length) {
  buffer_t arguments = {0};
  output_sink_t sink = {take_arguments, &arguments};
  static const char open[] = "<tool_call>\n<function=f>\n", close[] = "\n</tool_call>";
  output_options_t options = {.tools = tool_format_find("qwen3_coder"), .functions = functions};
  output_parser_t *parser = output_parser_new(&options);
  if (!parser) exit(1);
  output_parser_feed(parser, open, sizeof open - 1, &sink);
  output_parser_feed(parser, text, length, &sink);
  output_parser_feed(parser, close, sizeof close - 1, &sink);
  output_parser_end(parser, false, &sink);
  output_parser_free(parser);
  return arguments;
}

/* functions: of parameters in tags, else NULL. */
static void generate(driver_t *d, const grammar_t *g, const json_t *functions, uint64_t seed,
                     int64_t max_tokens) {
  char *text = malloc((size_t)max_tokens * 256 + 1);
  size_t length = 0;
  const char *finish = "length";
  uint64_t state = seed;
  if (!text) exit(1);
  int code = grammar_matcher_start(d->matcher, d->scratch, g, d->vocabulary);
  for (int64_t i = 0; i < max_tokens && !code; i++) {
    if (grammar_matcher_is_finished(d->matcher)) {
      finish = "stop";
      break;
    }
    if (functions && next_random_64(&state) % 8 == 0) {
      length += feed(d, "\n</parameter>\n", text + length);
      continue;
    }
    bool hit;
    code = grammar_masks_fill(d->kept, d->matcher, d->scratch, &d->num_tokens, 1, d->row, &hit);
    d->masks++;
    if (code) break;
    int32_t id = pick(d, &state);
    if (id == d->num_tokens) {
      finish = "stop";
      break;
    }
    size_t bytes;
    const char *token = token_bytes(d, id, &bytes);
    memcpy(text + length, token, bytes);
    length += bytes;
    d->tokens++;
    code = grammar_matcher_accept(d->matcher, d->scratch, id);
  }
  printf("{\"text\":");
  if (functions) {
    buffer_t arguments = read_back(functions, text, length);
    write_string(arguments.data, arguments.length);
    buffer_free(&arguments);
  } else {
    write_string(text, length);
  }
  printf(",\"finish\":\"%s\"}", code ? "error" : finish);
  free(text);
}

/* Prints the processor time of each mask on the path, as far as the grammar allows its ids. */
static void time_masks(driver_t *d, const grammar_t *g, const json_t *path, bool anew) {
  printf("\"%s\":[", anew ? "anew_us" : "masks_us");
  const char *comma = "";
  int code = grammar_matcher_start(d->matcher, d->scratch, g, d->vocabulary);
  JSON_EACH(value, path) {
    int64_t id = -1;
    bool hit;
    if (code || grammar_matcher_is_finished(d->matcher)) break;
    uint64_t start = clock_thread_ns();
    code =
        anew ? grammar_matcher_fill(d->matcher, d->scratch, &d->num_tokens, 1, d->row)
             : grammar_masks_fill(d->kept, d->matcher, d->scratch, &d->num_tokens, 1, d->row, &hit);
    uint64_t spent = clock_thread_ns() - start;
    if (code) break;
    printf("%s%.3f", comma, (double)spent / 1e3);
    comma = ",";
    json_int64(value, &id);
    if (id < 0 || id >= d->num_tokens) break;
    code = grammar_matcher_accept(d->matcher, d->scratch, (int32_t)id);
  }
  printf("],");
}

static void answer(driver_t *d, const json_t *line) {
  grammar_source_t source;
  grammar_t *g = NULL;
  inferd_error_t error = {0};
  int64_t count = 0, seed = 1, max_tokens = 200;
  if (source_of(line, &source) != 0) {
    printf("{\"error\":\"unknown kind\"}\n");
    return;
  }
  uint64_t start = clock_thread_ns();
  int code = grammar_compile(&source, d->vocabulary, NULL, NULL, &g, &error);
  double compile_us = (double)(clock_thread_ns() - start) / 1e3;
  if (code) {
    printf("{\"code\":%d,\"error\":", code);
    write_string(error.message, strlen(error.message));
    printf("}\n");
    return;
  }
  printf("{\"bytes\":%zu,", grammar_bytes(g));
  const json_t *path = json_get(line, "path");
  if (path) {
    printf("\"compile_us\":%.3f,", compile_us);
    time_masks(d, g, path, false);
    time_masks(d, g, path, true);
  }
  judge(d, g, json_get(line, "texts"));
  printf("\"generated\":[");
  if (json_get(line, "generate")) json_int64(json_get(line, "generate"), &count);
  if (json_get(line, "seed")) json_int64(json_get(line, "seed"), &seed);
  if (json_get(line, "max_tokens")) json_int64(json_get(line, "max_tokens"), &max_tokens);
  const json_t *functions = NULL;
  if (source.kind == GRAMMAR_PARAMETERS) functions = json_get(line, "functions");
  for (int64_t i = 0; i < count; i++) {
    if (i > 0) printf(",");
    generate(d, g, functions, (uint64_t)(seed * 1000003 + i), max_tokens);
  }
  printf("]}\n");
  grammar_unref(g);
}

static int open_vocabulary(driver_t *d, int argc, char **argv, inferd_error_t *error) {
  if (argc == 3 && strcmp(argv[1], "--synthetic") == 0) {
    make_synthetic(d, atoi(argv[2]) < 256 ? 256 : atoi(argv[2]));
  } else if (argc == 3 && strcmp(argv[1], "--tokens") == 0) {
    FILE *file = fopen(argv[2], "rb");
    if (!file) return error_set(error, ERR_USAGE, NULL, "cannot open %s", argv[2]);
    read_tokens(d, file);
    fclose(file);
  } else if (argc == 2) {
    int code = tokenizer_load(argv[1], &d->tokenizer, error);
    if (code) return code;
    d->num_tokens = tokenizer_vocab_size(d->tokenizer);
  } else {
    return error_set(error, ERR_USAGE, NULL,
                     "usage: grammar_driver MODEL_DIR | --synthetic N | --tokens FILE");
  }
  return grammar_vocabulary_new(token_bytes, d, d->num_tokens, d->num_tokens + 1, &d->vocabulary,
                                error);
}

int main(int argc, char **argv) {
  driver_t d = {0};
  inferd_error_t error = {0};
  if (open_vocabulary(&d, argc, argv, &error) != 0 ||
      grammar_masks_new(d.vocabulary, (size_t)16 << 20, &d.kept, &error) != 0) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  memset(d.byte_ids, 0xFF, sizeof d.byte_ids);
  for (int32_t id = 0; id < d.num_tokens; id++) {
    size_t length;
    const char *bytes = token_bytes(&d, id, &length);
    if (length == 1) d.byte_ids[(uint8_t)bytes[0]] = id;
  }
  d.matcher = aligned_alloc(64, grammar_matcher_bytes());
  d.scratch = aligned_alloc(64, grammar_scratch_bytes());
  if (!d.matcher || !d.scratch) return 1;
  memset(d.scratch, 0, grammar_scratch_bytes());
  d.row = calloc((size_t)grammar_row_words(d.vocabulary), sizeof *d.row);
  char *text = NULL;
  size_t capacity = 0;
  json_limits_t limits = {.depth_max = 128, .values_max = 1000000, .key_bytes_max = 65536};
  limits.allow_nul = true;
  for (ssize_t length; (length = getline(&text, &capacity, stdin)) > 0;) {
    json_doc_t *doc;
    if (json_parse(text, (size_t)length, &limits, &doc, &error) != 0) {
      printf("{\"error\":\"bad line\"}\n");
    } else {
      answer(&d, json_root(doc));
      json_free(doc);
    }
    fflush(stdout);
  }
  free(text);
  free(d.row);
  free(d.matcher);
  free(d.scratch);
  grammar_masks_free(d.kept);
  free(d.synthetic);
  grammar_vocabulary_free(d.vocabulary);
  tokenizer_free(d.tokenizer);
  return 0;
}
