/* lexer.c: template source -> tokens, with Jinja's rules for whitespace.
 *
 * The compiling thread. trim_blocks and lstrip_blocks are on, as transformers sets them.
 */
#include "engine/base/unicode_case.h"
#include "engine/base/utf8.h"
#include "engine/template/compile/compiler.h"
#include "engine/template/run/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct lexer {
  compiler_t *c;
  const char *s;
  size_t at, end;
  uint32_t line;
  bool line_starting; /* the token before ended with a newline, or there was none */
} lexer_t;

static token_t *add_token(lexer_t *x, token_type_t type, uint32_t line) {
  compiler_t *c = x->c;
  if (c->num_tokens == c->tokens_capacity) {
    size_t capacity = c->tokens_capacity == 0 ? 256 : 2 * c->tokens_capacity;
    if (capacity > 4 * (size_t)TEMPLATE_NODES_MAX)
      template_fail(c, line, "the template is too long");
    token_t *tokens = template_take(c, capacity * sizeof *tokens);
    if (c->num_tokens > 0) memcpy(tokens, c->tokens, c->num_tokens * sizeof *tokens);
    c->tokens = tokens;
    c->tokens_capacity = capacity;
  }
  token_t *token = &c->tokens[c->num_tokens++];
  *token = (token_t){.type = (uint8_t)type, .line = line};
  return token;
}

static void count_lines(lexer_t *x, size_t begin, size_t end) {
  for (size_t i = begin; i < end; i++) x->line += x->s[i] == '\n';
}

static bool is_space(uint32_t code) {
  return code == ' ' || (code >= '\t' && code <= '\r') || (char_class(code) & CHAR_SPACE);
}

static size_t skip_spaces(const lexer_t *x, size_t at) {
  while (at < x->end) {
    size_t next = at;
    if (!is_space(str_next(x->s, &next))) break;
    at = next;
  }
  return at;
}

/* End of the text begin .. end without the whitespace at its end. */
static size_t strip_end(const lexer_t *x, size_t begin, size_t end) {
  while (end > begin) {
    size_t previous = str_previous(x->s, end), next = previous;
    if (!is_space(str_next(x->s, &next))) break;
    end = previous;
  }
  return end;
}

static bool starts(const lexer_t *x, size_t at, const char *word) {
  size_t length = strlen(word);
  return x->end - at >= length && memcmp(x->s + at, word, length) == 0;
}

/* Text before a tag, after the rules for `sign` ('-', '+' or 0). */
static void put_text(lexer_t *x, size_t begin, size_t end, char sign, bool variable) {
  size_t stop = end;
  if (sign == '-') {
    stop = strip_end(x, begin, end);
  } else if (sign != '+' && !variable) {
    size_t line = end;
    while (line > begin && x->s[line - 1] != '\n') line--;
    if ((line > begin || x->line_starting) && strip_end(x, line, end) == line) stop = line;
  }
  if (stop > begin) {
    token_t *token = add_token(x, TOKEN_DATA, x->line);
    token->value = value_string(template_string(x->c, x->s + begin, stop - begin));
  }
  count_lines(x, begin, end);
}

/* Behind the end of a block tag: `mark` is the sign before it. */
static void after_block(lexer_t *x, char mark) {
  size_t begin = x->at;
  if (mark == '-')
    x->at = skip_spaces(x, x->at);
  else if (mark != '+' && x->at < x->end && x->s[x->at] == '\n')
    x->at++;
  count_lines(x, begin, x->at);
  x->line_starting = x->s[x->at - 1] == '\n';
}

static void skip_comment(lexer_t *x) {
  const char *hit = memmem(x->s + x->at, x->end - x->at, "#}", 2);
  if (hit == NULL) template_fail(x->c, x->line, "a comment does not end");
  size_t stop = (size_t)(hit - x->s);
  char mark = stop > x->at ? x->s[stop - 1] : '\0';
  count_lines(x, x->at, stop);
  x->at = stop + 2;
  after_block(x, mark);
}

/* A `raw` or `endraw` tag whose name would begin at `at`: the place behind it, or 0. */
static size_t raw_tag(const lexer_t *x, size_t at, const char *name, char *mark) {
  at = skip_spaces(x, at);
  if (!starts(x, at, name)) return 0;
  at = skip_spaces(x, at + strlen(name));
  *mark = '\0';
  if (at < x->end && (x->s[at] == '-' || (x->s[at] == '+' && name[0] == 'e'))) *mark = x->s[at++];
  return starts(x, at, "%}") ? at + 2 : 0;
}

static void lex_raw(lexer_t *x) {
  size_t begin = x->at;
  for (size_t at = begin;; at++) {
    const char *hit = memmem(x->s + at, x->end - at, "{%", 2);
    if (hit == NULL) template_fail(x->c, x->line, "a raw block does not end");
    at = (size_t)(hit - x->s);
    size_t name = at + 2;
    char sign = '\0', mark;
    if (name < x->end && (x->s[name] == '-' || x->s[name] == '+')) sign = x->s[name++];
    size_t behind = raw_tag(x, name, "endraw", &mark);
    if (behind == 0) continue;
    put_text(x, begin, at, sign, false);
    count_lines(x, at, behind);
    x->at = behind;
    after_block(x, mark);
    return;
  }
}

/* ---- inside tags ---- */

static uint32_t read_hex(lexer_t *x, size_t *at, int digits) {
  uint32_t code = 0;
  for (int i = 0; i < digits; i++, ++*at) {
    char c = *at < x->end ? x->s[*at] : '\0';
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                            : 99;
    if (digit == 99) template_fail(x->c, x->line, "a string escape needs %d hex digits", digits);
    code = code * 16 + digit;
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
    template_fail(x->c, x->line, "a string escape names no character");
  return code;
}

/* What Python's \ followed by a character above ASCII comes to: \xe9 and the like stay text. */
static size_t put_foreign_escape(char *out, uint32_t code) {
  static const char hex[] = "0123456789abcdef";
  int digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  size_t n = 0;
  out[n++] = '\\';
  out[n++] = digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int i = digits - 1; i >= 0; i--) out[n++] = hex[code >> (4 * i) & 15];
  return n;
}

/* x->s[*at] stands behind a backslash; writes at most 10 bytes. */
static size_t read_escape(lexer_t *x, size_t *at, char *out) {
  static const char names[] = "ntrbfav\\'\"", bytes[] = "\n\t\r\b\f\a\v\\'\"";
  char c = x->s[*at];
  if (c == '\n') {
    ++*at;
    return 0;
  }
  if ((uint8_t)c >= 0x80) return put_foreign_escape(out, str_next(x->s, at));
  ++*at;
  if (c == 'x') return (size_t)utf8_write(out, read_hex(x, at, 2));
  if (c == 'u') return (size_t)utf8_write(out, read_hex(x, at, 4));
  if (c == 'U') return (size_t)utf8_write(out, read_hex(x, at, 8));
  if (c == 'N') template_fail(x->c, x->line, "the string escape \\N{...} is not supported");
  if (c >= '0' && c <= '7') {
    uint32_t code = (uint32_t)(c - '0');
    for (int i = 0; i < 2 && *at < x->end && x->s[*at] >= '0' && x->s[*at] <= '7'; i++, ++*at)
      code = code * 8 + (uint32_t)(x->s[*at] - '0');
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

static void lex_string(lexer_t *x) {
  char quote = x->s[x->at];
  size_t begin = x->at + 1, stop = begin;
  while (stop < x->end && x->s[stop] != quote) stop += x->s[stop] == '\\' ? 2 : 1;
  if (stop >= x->end) template_fail(x->c, x->line, "a string does not end");
  token_t *token = add_token(x, TOKEN_STRING, x->line);
  size_t index = x->c->num_tokens - 1, used = 0;
  (void)token;
  char *out = template_take(x->c, 5 * (stop - begin) + 16);
  for (size_t at = begin; at < stop;) {
    if (x->s[at] != '\\') {
      out[used++] = x->s[at++];
      continue;
    }
    at++;
    lexer_t inside = *x;
    inside.end = stop;
    used += read_escape(&inside, &at, out + used);
  }
  count_lines(x, begin, stop);
  x->at = stop + 1;
  str_t *s = template_string(x->c, "", 0);
  s->bytes = out;
  s->length = (uint32_t)used;
  x->c->tokens[index].value = value_string(s);
}

static bool is_digit(const lexer_t *x, size_t at) {
  return at < x->end && x->s[at] >= '0' && x->s[at] <= '9';
}

/* Digits with single underscores between them. */
static size_t skip_digits(const lexer_t *x, size_t at) {
  while (is_digit(x, at)) {
    at++;
    if (at < x->end && x->s[at] == '_' && is_digit(x, at + 1)) at++;
  }
  return at;
}

static size_t float_end(const lexer_t *x) {
  size_t whole = skip_digits(x, x->at), at = whole;
  bool fraction = at < x->end && x->s[at] == '.' && is_digit(x, at + 1);
  if (fraction) at = skip_digits(x, at + 1);
  size_t mantissa = at;
  if (at < x->end && (x->s[at] == 'e' || x->s[at] == 'E')) {
    at++;
    if (at < x->end && (x->s[at] == '+' || x->s[at] == '-')) at++;
    if (is_digit(x, at)) return skip_digits(x, at);
  }
  return fraction ? mantissa : x->at;
}

static bool digit_of_base(char c, int base) {
  if (base == 2) return c == '0' || c == '1';
  if (base == 8) return c >= '0' && c <= '7';
  return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static size_t integer_end(const lexer_t *x, int *base) {
  size_t at = x->at;
  char letter = at + 1 < x->end && x->s[at] == '0' ? (char)(x->s[at + 1] | 32) : '\0';
  *base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
  if (*base != 10) {
    size_t next = at + 2;
    for (;;) {
      size_t digit = next < x->end && x->s[next] == '_' ? next + 1 : next;
      if (digit >= x->end || !digit_of_base(x->s[digit], *base)) break;
      next = digit + 1;
    }
    if (next > at + 2) return next;
    *base = 10;
  }
  if (x->s[at] != '0') return skip_digits(x, at);
  at++;
  while (at < x->end &&
         (x->s[at] == '0' || (x->s[at] == '_' && at + 1 < x->end && x->s[at + 1] == '0')))
    at++;
  return at;
}

static void lex_number(lexer_t *x) {
  int base = 10;
  bool after_dot = x->at > 0 && x->s[x->at - 1] == '.';
  size_t stop = after_dot ? x->at : float_end(x), used = 0;
  bool is_float = stop > x->at;
  if (!is_float) stop = integer_end(x, &base);
  char *digits = template_take(x->c, stop - x->at + 1);
  for (size_t i = x->at; i < stop; i++)
    if (x->s[i] != '_') digits[used++] = x->s[i];
  digits[used] = '\0';
  token_t *token = add_token(x, TOKEN_NUMBER, x->line);
  x->at = stop;
  if (is_float) {
    token->value = value_float(strtod(digits, NULL));
    return;
  }
  errno = 0;
  token->value = value_int(strtoll(base == 10 ? digits : digits + 2, NULL, base));
  if (errno == ERANGE) template_fail(x->c, x->line, "an integer has more than 64 bits");
}

static bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (uint8_t)c >= 0x80;
}

static void lex_name(lexer_t *x) {
  size_t begin = x->at;
  while (x->at < x->end && name_char(x->s[x->at])) {
    if ((uint8_t)x->s[x->at] >= 0x80)
      template_fail(x->c, x->line, "characters above ASCII in names are not supported");
    x->at++;
  }
  token_t *token = add_token(x, TOKEN_NAME, x->line);
  size_t index = x->c->num_tokens - 1;
  (void)token;
  value_t name = value_string(template_string(x->c, x->s + begin, x->at - begin));
  x->c->tokens[index].value = name;
}

static token_type_t operator_at(const lexer_t *x, size_t *length) {
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
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (starts(x, x->at, table[i].text)) {
      *length = strlen(table[i].text);
      return (token_type_t)table[i].type;
    }
  return TOKEN_END;
}

/* True when the tag ends here: moves behind it. */
static bool end_tag(lexer_t *x, bool variable) {
  char mark = x->s[x->at];
  size_t at = x->at + (mark == '-' || (mark == '+' && !variable));
  if (at == x->at) mark = '\0';
  if (!starts(x, at, variable ? "}}" : "%}")) return false;
  (void)add_token(x, variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, x->line);
  x->at = at + 2;
  after_block(x, variable && mark == '\0' ? '+' : mark);
  return true;
}

static void lex_tag(lexer_t *x, bool variable) {
  uint32_t open = 0;
  while (x->at < x->end) {
    if (open == 0 && end_tag(x, variable)) return;
    size_t blank = skip_spaces(x, x->at), length = 0;
    if (blank > x->at) {
      count_lines(x, x->at, blank);
      x->at = blank;
      continue;
    }
    char c = x->s[x->at];
    if (c >= '0' && c <= '9') {
      lex_number(x);
    } else if (name_char(c)) {
      lex_name(x);
    } else if (c == '\'' || c == '"') {
      lex_string(x);
    } else {
      token_type_t type = operator_at(x, &length);
      if (type == TOKEN_END) template_fail(x->c, x->line, "unexpected character in a tag");
      if (type == OP_LPAREN || type == OP_LBRACKET || type == OP_LBRACE) open++;
      if (type == OP_RPAREN || type == OP_RBRACKET || type == OP_RBRACE) {
        if (open == 0) template_fail(x->c, x->line, "a bracket closes that was not opened");
        open--;
      }
      (void)add_token(x, type, x->line);
      x->at += length;
    }
  }
  template_fail(x->c, x->line, "a tag does not end");
}

static size_t find_tag(const lexer_t *x) {
  for (size_t at = x->at; at + 1 < x->end; at++) {
    const char *hit = memchr(x->s + at, '{', x->end - at - 1);
    if (hit == NULL) break;
    at = (size_t)(hit - x->s);
    if (hit[1] == '{' || hit[1] == '%' || hit[1] == '#') return at;
  }
  return x->end;
}

static void lex_next(lexer_t *x) {
  size_t begin = x->at, tag = find_tag(x);
  if (tag == x->end) {
    put_text(x, begin, tag, '+', false);
    x->at = tag;
    return;
  }
  char kind = x->s[tag + 1], sign = '\0', mark;
  size_t inside = tag + 2;
  if (inside < x->end && (x->s[inside] == '-' || x->s[inside] == '+')) sign = x->s[inside++];
  put_text(x, begin, tag, sign, kind == '{');
  x->at = inside;
  x->line_starting = false;
  size_t raw = kind == '%' ? raw_tag(x, inside, "raw", &mark) : 0;
  if (raw > 0) {
    x->at = raw;
    after_block(x, mark == '-' ? '-' : '+');
    lex_raw(x);
  } else if (kind == '#') {
    skip_comment(x);
  } else {
    (void)add_token(x, kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, x->line);
    lex_tag(x, kind == '{');
  }
}

void lex(compiler_t *c) {
  lexer_t x = {.c = c, .s = c->source, .end = c->length, .line = 1, .line_starting = true};
  while (x.at < x.end) lex_next(&x);
  (void)add_token(&x, TOKEN_END, x.line);
}
