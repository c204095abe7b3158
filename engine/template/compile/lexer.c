/* lexer.c: template source -> tokens, with Jinja's rules for whitespace.
 *
 * The compiling thread. trim_blocks and lstrip_blocks are on, as transformers sets them.
 */
#include "engine/base/hex.h"
#include "engine/base/unicode_case.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/template/compile/compiler.h"
#include "engine/template/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
  compiler_t *compiler;
  const char *source;
  size_t at, end;
  uint32_t line;
  bool line_starting; /* the token before ended with a newline, or there was none */
} lexer_t;

static token_t *add_token(lexer_t *lexer, token_type_t type, uint32_t line) {
  compiler_t *compiler = lexer->compiler;
  if (compiler->num_tokens == compiler->tokens_capacity) {
    size_t capacity = compiler->tokens_capacity == 0 ? 256 : 2 * compiler->tokens_capacity;
    if (capacity > 4 * (size_t)TEMPLATE_NODES_MAX)
      template_fail(compiler, line, "the template is too long");
    token_t *tokens = template_take(compiler, capacity * sizeof *tokens);
    if (compiler->num_tokens > 0)
      memcpy(tokens, compiler->tokens, compiler->num_tokens * sizeof *tokens);
    compiler->tokens = tokens;
    compiler->tokens_capacity = capacity;
  }
  token_t *token = &compiler->tokens[compiler->num_tokens++];
  *token = (token_t){.type = (uint8_t)type, .line = line};
  return token;
}

static void count_lines(lexer_t *lexer, size_t begin, size_t end) {
  for (size_t i = begin; i < end; i++) lexer->line += lexer->source[i] == '\n';
}

static bool is_space(uint32_t code) {
  return code == ' ' || (code >= '\t' && code <= '\r') || (char_class(code) & CHAR_SPACE);
}

static size_t skip_spaces(const lexer_t *lexer, size_t at) {
  while (at < lexer->end) {
    size_t next = at;
    if (!is_space(str_next(lexer->source, &next))) break;
    at = next;
  }
  return at;
}

/* End of the text begin .. end without the whitespace at its end. */
static size_t strip_end(const lexer_t *lexer, size_t begin, size_t end) {
  while (end > begin) {
    size_t previous = str_previous(lexer->source, end), next = previous;
    if (!is_space(str_next(lexer->source, &next))) break;
    end = previous;
  }
  return end;
}

static bool starts(const lexer_t *lexer, size_t at, const char *word) {
  size_t length = strlen(word);
  return lexer->end - at >= length && memcmp(lexer->source + at, word, length) == 0;
}

/* Text before a tag, after the rules for `sign` ('-', '+' or 0). */
static void put_text(lexer_t *lexer, size_t begin, size_t end, char sign, bool variable) {
  size_t stop = end;
  if (sign == '-') {
    stop = strip_end(lexer, begin, end);
  } else if (sign != '+' && !variable) {
    size_t line = end;
    while (line > begin && lexer->source[line - 1] != '\n') line--;
    if ((line > begin || lexer->line_starting) && strip_end(lexer, line, end) == line) stop = line;
  }
  if (stop > begin) {
    token_t *token = add_token(lexer, TOKEN_DATA, lexer->line);
    token->value =
        value_string(template_string(lexer->compiler, lexer->source + begin, stop - begin));
  }
  count_lines(lexer, begin, end);
}

/* Continues after the end of a block tag; `mark` is the sign before that end. */
static void after_block(lexer_t *lexer, char mark) {
  size_t begin = lexer->at;
  if (mark == '-')
    lexer->at = skip_spaces(lexer, lexer->at);
  else if (mark != '+' && lexer->at < lexer->end && lexer->source[lexer->at] == '\n')
    lexer->at++;
  count_lines(lexer, begin, lexer->at);
  lexer->line_starting = lexer->source[lexer->at - 1] == '\n';
}

static void skip_comment(lexer_t *lexer) {
  const char *hit = memmem(lexer->source + lexer->at, lexer->end - lexer->at, "#}", 2);
  if (hit == NULL) template_fail(lexer->compiler, lexer->line, "a comment does not end");
  size_t stop = (size_t)(hit - lexer->source);
  char mark = stop > lexer->at ? lexer->source[stop - 1] : '\0';
  count_lines(lexer, lexer->at, stop);
  lexer->at = stop + 2;
  after_block(lexer, mark);
}

/* If a `raw` or `endraw` tag has its name at `at`, returns the place after the tag; else 0. */
static size_t raw_tag(const lexer_t *lexer, size_t at, const char *name, char *mark) {
  at = skip_spaces(lexer, at);
  if (!starts(lexer, at, name)) return 0;
  at = skip_spaces(lexer, at + strlen(name));
  *mark = '\0';
  if (at < lexer->end && (lexer->source[at] == '-' || (lexer->source[at] == '+' && name[0] == 'e')))
    *mark = lexer->source[at++];
  return starts(lexer, at, "%}") ? at + 2 : 0;
}

static void lex_raw(lexer_t *lexer) {
  size_t begin = lexer->at;
  for (size_t at = begin;; at++) {
    const char *hit = memmem(lexer->source + at, lexer->end - at, "{%", 2);
    if (hit == NULL) template_fail(lexer->compiler, lexer->line, "a raw block does not end");
    at = (size_t)(hit - lexer->source);
    size_t name = at + 2;
    char sign = '\0', mark;
    if (name < lexer->end && (lexer->source[name] == '-' || lexer->source[name] == '+'))
      sign = lexer->source[name++];
    size_t behind = raw_tag(lexer, name, "endraw", &mark);
    if (behind == 0) continue;
    put_text(lexer, begin, at, sign, false);
    count_lines(lexer, at, behind);
    lexer->at = behind;
    after_block(lexer, mark);
    return;
  }
}

/* ---- inside tags ---- */

static uint32_t read_hex(lexer_t *lexer, size_t *at, int digits) {
  uint32_t code = 0;
  for (int i = 0; i < digits; i++, ++*at) {
    char c = *at < lexer->end ? lexer->source[*at] : '\0';
    int digit = hex_value(c);
    if (digit < 0)
      template_fail(lexer->compiler, lexer->line, "a string escape needs %d hex digits", digits);
    code = code * 16 + (uint32_t)digit;
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
    template_fail(lexer->compiler, lexer->line, "a string escape names no character");
  return code;
}

/* Writes the escape of a character above ASCII as text, such as \xe9. Python leaves this text where
 * a backslash precedes such a character. */
static size_t put_foreign_escape(char *out, uint32_t code) {
  int digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  size_t n = 0;
  out[n++] = '\\';
  out[n++] = digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int i = digits - 1; i >= 0; i--) out[n++] = hex_digit(code >> (4 * i) & 15);
  return n;
}

/* Reads an escape; the byte at *at follows the backslash. Writes at most 10 bytes. */
static size_t read_escape(lexer_t *lexer, size_t *at, char *out) {
  static const char names[] = "ntrbfav\\'\"", bytes[] = "\n\t\r\b\f\a\v\\'\"";
  char c = lexer->source[*at];
  if (c == '\n') {
    ++*at;
    return 0;
  }
  if ((uint8_t)c >= 0x80) return put_foreign_escape(out, str_next(lexer->source, at));
  ++*at;
  if (c == 'x') return (size_t)utf8_write(out, read_hex(lexer, at, 2));
  if (c == 'u') return (size_t)utf8_write(out, read_hex(lexer, at, 4));
  if (c == 'U') return (size_t)utf8_write(out, read_hex(lexer, at, 8));
  if (c == 'N')
    template_fail(lexer->compiler, lexer->line, "the string escape \\N{...} is not supported");
  if (c >= '0' && c <= '7') {
    uint32_t code = (uint32_t)(c - '0');
    for (int i = 0;
         i < 2 && *at < lexer->end && lexer->source[*at] >= '0' && lexer->source[*at] <= '7';
         i++, ++*at)
      code = code * 8 + (uint32_t)(lexer->source[*at] - '0');
    return (size_t)utf8_write(out, code);
  }
  const char *name = c == '\0' ? NULL : strchr(names, c);
  if (name != NULL) {
    out[0] = bytes[name - names];
    return 1;
  }
  out[0] = '\\';
  out[1] = c;
  return 2;
}

static void lex_string(lexer_t *lexer) {
  char quote = lexer->source[lexer->at];
  size_t begin = lexer->at + 1, stop = begin;
  while (stop < lexer->end && lexer->source[stop] != quote)
    stop += lexer->source[stop] == '\\' ? 2 : 1;
  if (stop >= lexer->end) template_fail(lexer->compiler, lexer->line, "a string does not end");
  token_t *token = add_token(lexer, TOKEN_STRING, lexer->line);
  size_t index = lexer->compiler->num_tokens - 1, used = 0;
  (void)token;
  char *out = template_take(lexer->compiler, 5 * (stop - begin) + 16);
  for (size_t at = begin; at < stop;) {
    if (lexer->source[at] != '\\') {
      out[used++] = lexer->source[at++];
      continue;
    }
    at++;
    lexer_t inside = *lexer;
    inside.end = stop;
    used += read_escape(&inside, &at, out + used);
  }
  count_lines(lexer, begin, stop);
  lexer->at = stop + 1;
  str_t *str = template_string(lexer->compiler, "", 0);
  str->bytes = out;
  str->length = (uint32_t)used;
  lexer->compiler->tokens[index].value = value_string(str);
}

static bool is_digit(const lexer_t *lexer, size_t at) {
  return at < lexer->end && lexer->source[at] >= '0' && lexer->source[at] <= '9';
}

/* Digits with single underscores between them. */
static size_t skip_digits(const lexer_t *lexer, size_t at) {
  while (is_digit(lexer, at)) {
    at++;
    if (at < lexer->end && lexer->source[at] == '_' && is_digit(lexer, at + 1)) at++;
  }
  return at;
}

static size_t float_end(const lexer_t *lexer) {
  size_t whole = skip_digits(lexer, lexer->at), at = whole;
  bool fraction = at < lexer->end && lexer->source[at] == '.' && is_digit(lexer, at + 1);
  if (fraction) at = skip_digits(lexer, at + 1);
  size_t mantissa = at;
  if (at < lexer->end && (lexer->source[at] == 'e' || lexer->source[at] == 'E')) {
    at++;
    if (at < lexer->end && (lexer->source[at] == '+' || lexer->source[at] == '-')) at++;
    if (is_digit(lexer, at)) return skip_digits(lexer, at);
  }
  return fraction ? mantissa : lexer->at;
}

static bool digit_of_base(char byte, int base) {
  if (base == 2) return byte == '0' || byte == '1';
  if (base == 8) return byte >= '0' && byte <= '7';
  return (byte >= '0' && byte <= '9') || ((byte | 32) >= 'a' && (byte | 32) <= 'f');
}

static size_t integer_end(const lexer_t *lexer, int *base) {
  size_t at = lexer->at;
  char letter =
      at + 1 < lexer->end && lexer->source[at] == '0' ? (char)(lexer->source[at + 1] | 32) : '\0';
  *base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
  if (*base != 10) {
    size_t next = at + 2;
    for (;;) {
      size_t digit = next < lexer->end && lexer->source[next] == '_' ? next + 1 : next;
      if (digit >= lexer->end || !digit_of_base(lexer->source[digit], *base)) break;
      next = digit + 1;
    }
    if (next > at + 2) return next;
    *base = 10;
  }
  if (lexer->source[at] != '0') return skip_digits(lexer, at);
  at++;
  while (at < lexer->end &&
         (lexer->source[at] == '0' ||
          (lexer->source[at] == '_' && at + 1 < lexer->end && lexer->source[at + 1] == '0')))
    at++;
  return at;
}

static void lex_number(lexer_t *lexer) {
  int base = 10;
  bool after_dot = lexer->at > 0 && lexer->source[lexer->at - 1] == '.';
  size_t stop = after_dot ? lexer->at : float_end(lexer), used = 0;
  bool is_float = stop > lexer->at;
  if (!is_float) stop = integer_end(lexer, &base);
  char *digits = template_take(lexer->compiler, stop - lexer->at + 1);
  for (size_t i = lexer->at; i < stop; i++)
    if (lexer->source[i] != '_') digits[used++] = lexer->source[i];
  digits[used] = '\0';
  token_t *token = add_token(lexer, TOKEN_NUMBER, lexer->line);
  lexer->at = stop;
  if (is_float) {
    token->value = value_float(strtod(digits, NULL));
    return;
  }
  errno = 0;
  token->value = value_int(strtoll(base == 10 ? digits : digits + 2, NULL, base));
  if (errno == ERANGE)
    template_fail(lexer->compiler, lexer->line, "an integer has more than 64 bits");
}

static bool name_char(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || (uint8_t)byte >= 0x80;
}

static void lex_name(lexer_t *lexer) {
  size_t begin = lexer->at;
  while (lexer->at < lexer->end && name_char(lexer->source[lexer->at])) {
    if ((uint8_t)lexer->source[lexer->at] >= 0x80)
      template_fail(lexer->compiler, lexer->line,
                    "characters above ASCII in names are not supported");
    lexer->at++;
  }
  token_t *token = add_token(lexer, TOKEN_NAME, lexer->line);
  size_t index = lexer->compiler->num_tokens - 1;
  (void)token;
  value_t name =
      value_string(template_string(lexer->compiler, lexer->source + begin, lexer->at - begin));
  lexer->compiler->tokens[index].value = name;
}

static token_type_t operator_at(const lexer_t *lexer, size_t *length) {
  static const struct {
    char text[3];
    uint8_t type;
  } table[] = {{"//", OP_FLOOR},   {"**", OP_POW},     {"==", OP_EQ},    {"!=", OP_NE},
               {">=", OP_GE},      {"<=", OP_LE},      {"+", OP_ADD},    {"-", OP_SUB},
               {"/", OP_DIV},      {"*", OP_MUL},      {"%", OP_MOD},    {"~", OP_TILDE},
               {"[", OP_LBRACKET}, {"]", OP_RBRACKET}, {"(", OP_LPAREN}, {")", OP_RPAREN},
               {"{", OP_LBRACE},   {"}", OP_RBRACE},   {">", OP_GT},     {"<", OP_LT},
               {"=", OP_ASSIGN},   {".", OP_DOT},      {":", OP_COLON},  {"|", OP_PIPE},
               {",", OP_COMMA},    {";", OP_SEMICOLON}};
  for (size_t i = 0; i < ARRAY_LEN(table); i++)
    if (starts(lexer, lexer->at, table[i].text)) {
      *length = strlen(table[i].text);
      return (token_type_t)table[i].type;
    }
  return TOKEN_END;
}

/* Returns true if the tag ends here, and advances past it. */
static bool end_tag(lexer_t *lexer, bool variable) {
  char mark = lexer->source[lexer->at];
  size_t at = lexer->at + (mark == '-' || (mark == '+' && !variable));
  if (at == lexer->at) mark = '\0';
  if (!starts(lexer, at, variable ? "}}" : "%}")) return false;
  (void)add_token(lexer, variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, lexer->line);
  lexer->at = at + 2;
  after_block(lexer, variable && mark == '\0' ? '+' : mark);
  return true;
}

static void lex_tag(lexer_t *lexer, bool variable) {
  uint32_t open = 0;
  while (lexer->at < lexer->end) {
    if (open == 0 && end_tag(lexer, variable)) return;
    size_t blank = skip_spaces(lexer, lexer->at), length = 0;
    if (blank > lexer->at) {
      count_lines(lexer, lexer->at, blank);
      lexer->at = blank;
      continue;
    }
    char c = lexer->source[lexer->at];
    if (c >= '0' && c <= '9') {
      lex_number(lexer);
    } else if (name_char(c)) {
      lex_name(lexer);
    } else if (c == '\'' || c == '"') {
      lex_string(lexer);
    } else {
      token_type_t type = operator_at(lexer, &length);
      if (type == TOKEN_END)
        template_fail(lexer->compiler, lexer->line, "unexpected character in a tag");
      if (type == OP_LPAREN || type == OP_LBRACKET || type == OP_LBRACE) open++;
      if (type == OP_RPAREN || type == OP_RBRACKET || type == OP_RBRACE) {
        if (open == 0)
          template_fail(lexer->compiler, lexer->line, "a bracket closes that was not opened");
        open--;
      }
      (void)add_token(lexer, type, lexer->line);
      lexer->at += length;
    }
  }
  template_fail(lexer->compiler, lexer->line, "a tag does not end");
}

static size_t find_tag(const lexer_t *lexer) {
  for (size_t at = lexer->at; at + 1 < lexer->end; at++) {
    const char *hit = memchr(lexer->source + at, '{', lexer->end - at - 1);
    if (hit == NULL) break;
    at = (size_t)(hit - lexer->source);
    if (hit[1] == '{' || hit[1] == '%' || hit[1] == '#') return at;
  }
  return lexer->end;
}

static void lex_next(lexer_t *lexer) {
  size_t begin = lexer->at, tag = find_tag(lexer);
  if (tag == lexer->end) {
    put_text(lexer, begin, tag, '+', false);
    lexer->at = tag;
    return;
  }
  char kind = lexer->source[tag + 1], sign = '\0', mark;
  size_t inside = tag + 2;
  if (inside < lexer->end && (lexer->source[inside] == '-' || lexer->source[inside] == '+'))
    sign = lexer->source[inside++];
  put_text(lexer, begin, tag, sign, kind == '{');
  lexer->at = inside;
  lexer->line_starting = false;
  size_t raw = kind == '%' ? raw_tag(lexer, inside, "raw", &mark) : 0;
  if (raw > 0) {
    lexer->at = raw;
    after_block(lexer, mark == '-' ? '-' : '+');
    lex_raw(lexer);
  } else if (kind == '#') {
    skip_comment(lexer);
  } else {
    (void)add_token(lexer, kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, lexer->line);
    lex_tag(lexer, kind == '{');
  }
}

void lex(compiler_t *compiler) {
  lexer_t lexer = {.compiler = compiler,
                   .source = compiler->source,
                   .end = compiler->length,
                   .line = 1,
                   .line_starting = true};
  while (lexer.at < lexer.end) lex_next(&lexer);
  (void)add_token(&lexer, TOKEN_END, lexer.line);
}
