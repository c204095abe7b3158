/* test_lark.c: user grammars in the notation of Lark. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <string.h>

Test(lark, language) {
  static const row_t rows[] = {
      {"start: \"a\" b* // end\nb: /[0-9]/ | \"x\" [\"y\"] # end\n",
       {"a", "a1xxy"},
       {"ay", "b", "", "a 1"}},
      {"?start: sum\n?sum: product\n    | sum \"+\" product -> add\n    | sum \"-\" product -> "
       "sub\n"
       "?product: atom\n    | product \"*\" atom  -> mul\n?atom: NUMBER -> number\n"
       "     | \"-\" atom -> neg\n     | \"(\" sum \")\"\n%import common.NUMBER\n"
       "%import common.WS_INLINE\n%ignore WS_INLINE\n",
       {"1", "1+2*3", " 1 + (2.5e3 * -4) ", "--1", "1. - .5"},
       {"", "1 +", "1 2 3+", "(1", "1\n+2", "1+*2"}},
      {"start: \"a\"~2..3 (\"b\" | \"c\")~2\n", {"aabc", "aaabb"}, {"abc", "aab", "aaaabb"}},
      {"start: \"a\"{2,3} \"b\"{1} \"c\"{,1} \"d\"{1,}", {"aabd", "aaabcdd"}, {"abd", "aabccd"}},
      {"start: \"ab\"i /c/i \"\\x41\" \"\\u00e9\\n\\\"\"",
       {"AbcA\xC3\xA9\n\"", "abCA\xC3\xA9\n\""},
       {"abca\xC3\xA9\n\""}},
      {"start: A\nA: B~2\nB.3: \"x\"..\"z\" | /[0-9]+/", {"xy", "12z", "12"}, {"x", "1", "ab"}},
      {"start: name (\",\" name)*\nname: FIRST-ONE\nFIRST-ONE: \"q\"", {"q", "q,q"}, {"q,", ""}},
      {"start: A B\nA: /a+?/\nB: \"b\"", {"ab"}, {"aab", "b"}},
      {"start: /\".*?\"/ \"!\"", {"\"\"!", "\"abc\"!"}, {"\"a\"b\"!", "\"\n\"!"}},
      {"start: C \"x\"\nC: \"/*\" /(.|\\n)*?/ \"*/\"",
       {"/**/x", "/* a\n */x"},
       {"/*/x", "/* */ */x"}},
      {"start: s+\ns: ESCAPED_STRING\n%import common.ESCAPED_STRING\n%import common (WS)\n%ignore "
       "WS\n",
       {"\"a\"", " \"a\\\"b\" \n\t\"\\\\\"", "\"\"\"\""},
       {"\"a", "\"a\\\"", "", "\"\n\""}},
      {"start: INT ID\n%import common.INT\n%import common.CNAME -> ID",
       {"12ab", "1_"},
       {"12", "ab"}},
      {"%ignore /\\s/\n%ignore \"#\" /[^\\n]*/\nstart: \"a\" \"b\"",
       {"ab", "a  b", " a#x\n b ", "ab#"},
       {"a x b", "a"}},
      {"start: a\na: \"x\" a \"x\" |", {"", "xx", "xxxx"}, {"x", "xxx"}},
      {"!start: (\"a\" | ) [\"b\"]\n", {"", "a", "ab", "b"}, {"ba"}},
      {"start[capture]: /\\w\\d\\s/ /[]a]{,2}/",
       {"\xC3\xA9\xD9\xA3\xC2\x85]a"},
       {"\xC3\xA9\xD9\xA3x"}},
      {"%llguidance {}\nstart: /(?s:.)x/ /./", {"\nx\r"}, {"xx\n"}},
      {"_start: \"a\"\nstart: _start _B?\n_B: \"b\"", {"a", "ab"}, {"b"}},
      {"start:\n  | \"a\"\n  | \"b\" start\n", {"a", "bba"}, {"", "b"}},
  };
  CHECK_TEXTS(GRAMMAR_EBNF, rows);
}

Test(lark, the_first_statement_decides_the_notation) {
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_text(rig, GRAMMAR_EBNF, "# a: b\nroot ::= \"a: b\""), 0);
  cr_expect(rig_accepts(rig, "a: b"));
  ASSERT_EQ(rig_text(rig, GRAMMAR_EBNF, "// a ::= b\nstart: \"::=\""), 0);
  cr_expect(rig_accepts(rig, "::="));
  ASSERT_EQ(rig_text(rig, GRAMMAR_GBNF, "start: \"a\""), ERR_INVALID_VALUE);
  ASSERT_EQ(rig_text(rig, GRAMMAR_LARK, "root ::= \"a\""), ERR_INVALID_VALUE);
  rig_free(rig);
}

Test(lark, refused) {
  static const struct {
    const char *text;
    int code;
    const char *says;
  } rows[] = {
      {"rule: \"a\"", ERR_INVALID_VALUE, "no rule with the name 'start'"},
      {"start: a\n", ERR_INVALID_VALUE, "line 1, column 8: no rule with the name 'a'"},
      {"start: A\nA: B", ERR_INVALID_VALUE, "line 2, column 4: no terminal with the name 'B'"},
      {"start: A\nA: \"a\" A", ERR_INVALID_VALUE, "a terminal contains itself"},
      {"start: A\nA: \"a\" start", ERR_INVALID_VALUE, "cannot contain the rule 'start'"},
      {"start: \"a\"\nstart: \"b\"", ERR_INVALID_VALUE, "line 2, column 1: a second rule"},
      {"start: \"a", ERR_INVALID_VALUE, "the string has no end"},
      {"start: /a", ERR_INVALID_VALUE, "the regex has no end"},
      {"start: (\"a\"", ERR_INVALID_VALUE, "the group has no end"},
      {"start: \"a\" )", ERR_INVALID_VALUE, "expected a rule"},
      {"start: \"a\"~3..2", ERR_INVALID_VALUE, "out of order"},
      {"start: \"b\"..\"a\"", ERR_INVALID_VALUE, "out of order"},
      {"start: \"bc\"..\"d\"", ERR_INVALID_VALUE, "one character"},
      {"start: pair{\"a\"}", ERR_INVALID_VALUE, "a template"},
      {"pair{x}: x x\nstart: \"a\"", ERR_INVALID_VALUE, "line 1, column 1: a template"},
      {"start: X\n%declare X", ERR_INVALID_VALUE, "line 2, column 1: %declare is not supported"},
      {"%extend start: \"a\"", ERR_INVALID_VALUE, "%extend"},
      {"%import python.NAME\nstart: NAME", ERR_INVALID_VALUE, "%import from anything but common"},
      {"%import common.NAME\nstart: NAME", ERR_INVALID_VALUE, "no common terminal 'NAME'"},
      {"start: <think> \"a\"", ERR_INVALID_VALUE, "a reference to a token"},
      {"start: @other", ERR_INVALID_VALUE, "another grammar"},
      {"start: %regex {}", ERR_INVALID_VALUE, "%json, %regex"},
      {"start[lazy]: /a/", ERR_INVALID_VALUE, "an option of a rule"},
      {"start: /a$/", ERR_UNSUPPORTED_PARAMETER, "line 1, terminal: an anchor"},
      {"start: /a/x", ERR_INVALID_VALUE, "the flag x"},
      {"start: /(a)\\1/", ERR_UNSUPPORTED_PARAMETER, "back reference"},
      {"start: start", ERR_INVALID_VALUE, "no text can finish the rule 'start'"},
      {"start: A\nA: B~100\nB: C~100\nC: \"a\"~100", ERR_BAD_REQUEST, "written out"},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    EXPECT_EQ_FOR(rig_text(rig, GRAMMAR_LARK, rows[i].text), rows[i].code, "%s: %s", rows[i].text,
                  rig->error.message);
    cr_expect_not_null(strstr(rig->error.message, rows[i].says), "%s: '%s' is not in '%s'",
                       rows[i].text, rows[i].says, rig->error.message);
  }
  rig_free(rig);
}
