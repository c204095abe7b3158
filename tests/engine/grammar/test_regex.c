/* test_regex.c: patterns over raw bytes, and user grammars. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <string.h>

typedef struct row {
  const char *text;
  const char *accepted[8], *refused[8];
} row_t;

static void check_rows(grammar_kind_t kind, const row_t *rows, size_t count) {
  rig_t *rig = rig_new();
  for (size_t i = 0; i < count; i++) {
    ASSERT_EQ_FOR(rig_text(rig, kind, rows[i].text), 0, "%s: %s", rows[i].text, rig->error.message);
    for (int k = 0; k < 8 && rows[i].accepted[k]; k++) {
      cr_assert(rig_accepts(rig, rows[i].accepted[k]), "%s should accept '%s'", rows[i].text,
                rows[i].accepted[k]);
    }
    for (int k = 0; k < 8 && rows[i].refused[k]; k++) {
      cr_assert_not(rig_accepts(rig, rows[i].refused[k]), "%s should refuse '%s'", rows[i].text,
                    rows[i].refused[k]);
    }
  }
  rig_free(rig);
}

Test(regex, language) {
  static const row_t rows[] = {
      {"abc", {"abc"}, {"ab", "abcd", "xabc", ""}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"(?:ab)*", {"", "abab"}, {"aba"}},
      {"a{2}b{1,}c{0,2}", {"aab", "aabbcc"}, {"ab", "aabccc"}},
      {"x*?y+?z??", {"y", "xxyyz"}, {"x"}},
      {"(?<n>a)(b)", {"ab"}, {"a"}},
      {"[a-c\\d-]", {"b", "7", "-"}, {"d", "aa"}},
      {"[^a\\n]", {"b", "\xF0\x9F\x98\x80", "\xC3\xA9"}, {"a", "\n", "\xC3", ""}},
      {".", {"a", "\xE2\x82\xAC"}, {"\n", "\r", "\xE2\x80\xA8", ""}},
      {"[^]", {"\n", "\xE2\x80\xA8"}, {"ab"}},
      {"\\u00e9\\u{1F600}\\uD83D\\uDE00\\x41\\cJ",
       {"\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
        "A\n"},
       {"e"}},
      {"[\xC3\xA0-\xC3\xBF\xF0\x9F\x98\x80-\xF0\x9F\x98\x85]",
       {"\xC3\xA9", "\xF0\x9F\x98\x82"},
       {"\xC3\x9F", "\xF0\x9F\x98\x90"}},
      {"[\\b\\-\\]\\\\]+", {"\b-]\\"}, {"b"}},
      {"a{,3}", {"a{,3}"}, {"aaa"}},
      {"^a$|^b", {"a", "b"}, {"^a$"}},
      {"a^b", {NULL}, {NULL}},
      {"\\w+@\\w+\\.com", {"me@x_1.com"}, {"me@x1com", "\xC3\xA9@x.com"}},
      {"[\xED\x9F\xBF-\xEE\x80\x80]", {"\xED\x9F\xBF", "\xEE\x80\x80"}, {"\xED\xA0\x80"}},
  };
  check_rows(GRAMMAR_REGEX, rows, 15);
  check_rows(GRAMMAR_REGEX, rows + 16, 2);
}

typedef struct refusal {
  const char *text;
  int code;
  const char *says;
} refusal_t;

static void check_refusals(grammar_kind_t kind, const refusal_t *rows, size_t count) {
  rig_t *rig = rig_new();
  for (size_t i = 0; i < count; i++) {
    ASSERT_EQ_FOR(rig_text(rig, kind, rows[i].text), rows[i].code, "%s: %s", rows[i].text,
                  rig->error.message);
    cr_assert_not_null(strstr(rig->error.message, rows[i].says), "%s: '%s' is not in '%s'",
                       rows[i].text, rows[i].says, rig->error.message);
  }
  rig_free(rig);
}

Test(regex, refused) {
  static const refusal_t rows[] = {
      {"a(?!b)", ERR_UNSUPPORTED_PARAMETER, "look-ahead is not supported at byte 1"},
      {"(?<=a)b", ERR_UNSUPPORTED_PARAMETER, "look-behind"},
      {"(a)\\1", ERR_UNSUPPORTED_PARAMETER, "back reference"},
      {"\\k<n>", ERR_UNSUPPORTED_PARAMETER, "back reference"},
      {"\\Bx", ERR_UNSUPPORTED_PARAMETER, "word boundary"},
      {"\\pL", ERR_UNSUPPORTED_PARAMETER, "Unicode property"},
      {"\\Z", ERR_UNSUPPORTED_PARAMETER, "unknown escape"},
      {"[]a]", ERR_UNSUPPORTED_PARAMETER, "an empty class"},
      {"(?P<n>a)", ERR_UNSUPPORTED_PARAMETER, "group or flag"},
      {"(a", ERR_INVALID_VALUE, "no end"},
      {"a)", ERR_INVALID_VALUE, "closes nothing"},
      {"*a", ERR_INVALID_VALUE, "nothing to repeat"},
      {"a**", ERR_INVALID_VALUE, "nothing to repeat"},
      {"a{3,2}", ERR_INVALID_VALUE, "out of order"},
      {"[b-a]", ERR_INVALID_VALUE, "out of order"},
      {"[a", ERR_INVALID_VALUE, "no end"},
      {"[\\d-z]", ERR_INVALID_VALUE, "range"},
      {"^*", ERR_INVALID_VALUE, "anchor"},
      {"a\\", ERR_INVALID_VALUE, "too soon"},
      {"\\ud800", ERR_INVALID_VALUE, "surrogate"},
      {"\\xg0", ERR_INVALID_VALUE, "hexadecimal"},
      {"a^b", ERR_INVALID_VALUE, "No text"},
      {"a{20000}", ERR_BAD_REQUEST, "repetitions"},
      {"((((a{10}){10}){10}){10}){10}", ERR_BAD_REQUEST, "written out"},
      {"(?:a|b)*a(?:a|b){18}", ERR_BAD_REQUEST, "automaton states"},
  };
  check_refusals(GRAMMAR_REGEX, rows, sizeof rows / sizeof *rows);
}

Test(regex, choices) {
  static const row_t rows[] = {{"[\"yes\",\"no\",\"no way\",\"\xC3\xA9\\n\"]",
                                {"yes", "no", "no way", "\xC3\xA9\n"},
                                {"y", "no w", "", "yesno"}}};
  static const refusal_t refused[] = {{"[]", ERR_INVALID_VALUE, "at least one"},
                                      {"[1]", ERR_INVALID_VALUE, "Choice 0"},
                                      {"[\"a\",\"\"]", ERR_INVALID_VALUE, "Choice 1"}};
  check_rows(GRAMMAR_CHOICE, rows, 1);
  check_refusals(GRAMMAR_CHOICE, refused, 3);
}

Test(ebnf, language) {
  static const row_t rows[] = {
      {"root ::= \"a\" b* # end\nb ::= [0-9] | 'x' \"y\"?", {"a", "a1xxy"}, {"ay", "b", ""}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())"}},
      {"root ::= x{2,3} (\",\" x{2})* x?\nx ::= \"\\u00e9\" | \"\\\"\" | \"\\n\"",
       {"\xC3\xA9\"", "\"\"\"", "\"\",\"\"\"", "\n\n"},
       {"\"", "\"\",\""}},
      {"root ::= a a\na ::= \"x\"?", {"", "x", "xx"}, {"xxx"}},
      {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"",
       {"1", "1+(2+33)+4"},
       {"1+", "(1", "1++2"}},
      {"root ::=\n  \"a\"\n  | \"b\"\n\n", {"a", "b"}, {"ab"}},
      {"root ::= . [^a-z]", {"aA", "\n\n"}, {"aa", "a"}},
      {"root ::= ((\"a\"?)*)* \"b\"", {"b", "aab"}, {"a"}},
  };
  check_rows(GRAMMAR_EBNF, rows, sizeof rows / sizeof *rows);
}

Test(ebnf, refused) {
  static const refusal_t rows[] = {
      {"", ERR_INVALID_VALUE, "no rule with the name 'root'"},
      {"start ::= \"a\"", ERR_INVALID_VALUE, "no rule with the name 'root'"},
      {"root ::= \"a\"\n  | missing", ERR_INVALID_VALUE,
       "line 2, column 5: no rule with the name 'missing'"},
      {"root ::= a\na ::= b \"x\"\nb ::= \"y\"? a", ERR_INVALID_VALUE,
       "left recursion in the rule 'a'"},
      {"root ::= \"a\" root", ERR_INVALID_VALUE, "no text can finish the rule 'root'"},
      {"root ::= \"a\"\nroot ::= \"b\"", ERR_INVALID_VALUE, "line 2, column 1: a second rule"},
      {"root ::= \"a", ERR_INVALID_VALUE, "line 1, column 10: the literal has no end"},
      {"root ::= [a", ERR_INVALID_VALUE, "the class has no end"},
      {"root ::= (\"a\"", ERR_INVALID_VALUE, "the group has no end"},
      {"root ::= \"a\"{2", ERR_INVALID_VALUE, "the repetition has no end"},
      {"root ::= \"a\"{3,2}", ERR_INVALID_VALUE, "out of order"},
      {"root ::= \"\\d\"", ERR_INVALID_VALUE, "no place in a literal"},
      {"root ::= \"a\" )", ERR_INVALID_VALUE, "expected a rule"},
      {"root = \"a\"", ERR_INVALID_VALUE, "expected a rule"},
      {"root ::= \"\\q\"", ERR_UNSUPPORTED_PARAMETER, "line 1"},
  };
  check_refusals(GRAMMAR_EBNF, rows, sizeof rows / sizeof *rows);
}
