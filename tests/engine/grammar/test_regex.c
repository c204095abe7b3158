/* test_regex.c: patterns over raw bytes, and user grammars. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <string.h>

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
      {"\\w+@\\w+\\.com", {"me@x_1.com"}, {"me@x1com", "\xC3\xA9@x.com"}},
      {"[\xED\x9F\xBF-\xEE\x80\x80]", {"\xED\x9F\xBF", "\xEE\x80\x80"}, {"\xED\xA0\x80"}},
  };
  CHECK_TEXTS(GRAMMAR_REGEX, rows);
}

Test(regex, flags_and_properties) {
  static const row_t rows[] = {
      {"(?P<year>a)(?<b>c)??", {"a", "ac"}, {"c"}},
      {"(?i)aB\\xe9[^c]",
       {"ab\xC3\xA9z", "Ab\xC3\x89z"},
       {"abec",
        "ab\xC3\xA9"
        "C",
        "ab\xC3\xA9"
        "c"}},
      {"a(?i:b)c", {"abc", "aBc"}, {"Abc", "abC"}},
      {"(?:(?i)a)b", {"Ab", "ab"}, {"aB"}},
      {"(?s).(?-s:.)", {"\nx"}, {"x\n"}},
      {"(?i)k", {"k", "K"}, {"\xE2\x84\xAA"}},
      {"\\p{L}\\p{Lu}\\pN[\\p{Sc}\\P{ASCII}]",
       {"\xC3\xA9\xC3\x89\x31$", "aZ\xE2\x85\xA7\xC3\xA9"},
       {"1A1$", "aa1$", "aZ1a"}},
      {"\\p{Greek}+\\p{Script=Cyrillic}\\p{sc=Han}\\p{gc=Decimal_Number}",
       {"\xCE\xB1\xCE\xB2\xD0\xB0\xE4\xB8\xAD\x37"},
       {"a\xD0\xB0\xE4\xB8\xAD\x37"}},
      {"[^\\p{L}]", {"1", "\n"}, {"a", "\xC3\xA9"}},
  };
  CHECK_TEXTS(GRAMMAR_REGEX, rows);
}

/* What each text is worth was asked of Python's re. */
Test(regex, look_around) {
  static const row_t rows[] = {
      {"(?!foo)\\w+", {"bar", "fo", "xfoo"}, {"foo", "food", ""}},
      {"(?=.*\\d)(?=.*[a-z])(?=.*[A-Z]).{4,8}",
       {"aB3x", "Zz9-----", "1aaA"},
       {"aB3", "aaBB", "a3a3", "Zz9------"}},
      {"(?:(?!--)[a-z-])*", {"a-b-c", "-", ""}, {"a--b", "--"}},
      {"a(?=b$)b?c?", {"ab"}, {"a", "abc"}},
      {"a(?!b$)b?c?", {"a", "abc", "ac"}, {"ab"}},
      {"(?=(?!ab)a[a-c])...", {"acb", "aaa"}, {"abc", "bac"}},
      {".*(?<=ab)c", {"abc", "xabc"}, {"c", "bc", "acc"}},
      {".*(?<!a)(?<!^b)c", {"c", "bbc", "xc"}, {"ac", "bc", "xac"}},
      {"(?:a|\xC3\xA9)+(?<=\xC3\xA9)",
       {"a\xC3\xA9", "\xC3\xA9"},
       {"a", "\xC3\xA9"
             "a"}},
      {".*(?<=(?=b)[a-c]).?", {"b", "ab", "abx"}, {"a", "ca"}},
      {"x(?=)(?!y)", {"x"}, {"xy"}},
      {"(?:(?=a)|b)+a?", {"a", "b", "ba", "bb"}, {"", "aa"}},
  };
  CHECK_TEXTS(GRAMMAR_REGEX, rows);
}

Test(regex, word_boundaries) {
  static const row_t rows[] = {
      {"\\bfoo\\b.*", {"foo", "foo bar", "foo-"}, {"food", "foo_"}},
      {".*\\bfoo\\b.*", {"a foo.", "foo", "-foo-"}, {"afoo", "food", "f"}},
      {".*\\Bfoo", {"afoo", "_foo"}, {"foo", " foo"}},
      {"\\B", {""}, {"a"}},
      {"\xC3\xA9\\B \\ba\\b!", {"\xC3\xA9 a!"}, {"\xC3\xA9 a"}},
      {".*(?<=\\bab)c", {"abc", "x abc"}, {"xabc"}},
      {".*(?<!ab\\b).*\\.", {"ab.", "."}, {"ab"}},
      {"\\w+(?<=ab\\b).?\\w*", {"ab", "xab!", "ab-c"}, {"abc", "ba"}},
  };
  CHECK_TEXTS(GRAMMAR_REGEX, rows);
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
      {"(?<=a$)b", ERR_UNSUPPORTED_PARAMETER, "($) in a look-behind is not supported at byte 5"},
      {"(?=a)*b", ERR_INVALID_VALUE, "look-around cannot be repeated at byte 6"},
      {"a\\b+", ERR_INVALID_VALUE, "look-around cannot be repeated"},
      {"(?!a", ERR_INVALID_VALUE, "no end"},
      {"a\\bb", ERR_INVALID_VALUE, "No text"},
      {"(?=b)a", ERR_INVALID_VALUE, "No text"},
      {"(?=(?:a|b)*a(?:a|b){18}c).*", ERR_BAD_REQUEST,
       "look-around or word boundary at byte 0 takes more than"},
      {"a(?:(?=b{1,40}c)[b]){99}", ERR_BAD_REQUEST,
       "at byte 4 takes more than 32 conditions at one place"},
      {"(a)\\1", ERR_UNSUPPORTED_PARAMETER, "back reference"},
      {"\\k<n>", ERR_UNSUPPORTED_PARAMETER, "back reference"},
      {"[\\B]", ERR_UNSUPPORTED_PARAMETER, "an unknown escape"},
      {"\\p{Alphabetic}", ERR_UNSUPPORTED_PARAMETER, "the Unicode property 'Alphabetic'"},
      {"\\p{Script=L}", ERR_UNSUPPORTED_PARAMETER, "Unicode property"},
      {"\\p{L", ERR_INVALID_VALUE, "the property has no end"},
      {"(?P=n)", ERR_UNSUPPORTED_PARAMETER, "back reference"},
      {"(?>a)", ERR_UNSUPPORTED_PARAMETER, "atomic"},
      {"(?x)a", ERR_UNSUPPORTED_PARAMETER, "group or flag"},
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
  rig_check(GRAMMAR_CHOICE, rows, 1);
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
  CHECK_TEXTS(GRAMMAR_EBNF, rows);
}

/* The notation as the documentation of llama.cpp describes it. */
Test(ebnf, gbnf) {
  static const row_t rows[] = {
      {"root ::= (\n  # a comment\n  \"1. \" check-mate \" \" 2nd_move \"\\n\"\n)+\n"
       "check-mate ::= [NBKQR]? [a-h] [1-8] [+#]?\n2nd_move ::= \"O-O\" (\"-O\")? |\n  \"x\"",
       {"1. Ne4+ O-O-O\n", "1. a1 x\n1. h8 O-O\n"},
       {"1. Ne4+", "1. i1 x\n", ""}},
      {"root ::= [\\U0001F600-\\U0001F605] \"\\U000000e9\" [^\\x00-\\x1F]",
       {"\xF0\x9F\x98\x82\xC3\xA9z"},
       {"\xF0\x9F\x98\x90\xC3\xA9z", "\xF0\x9F\x98\x82\xC3\xA9\n"}},
      {"root ::= [\\\"\\[\\]\\\\] \"\\[\"{2,} [\\]]{1} \"x\"{0,2}",
       {"\"[[]", "][[[]xx"},
       {"][]", "a[[]"}},
  };
  CHECK_TEXTS(GRAMMAR_EBNF, rows);
}

Test(ebnf, left_recursion) {
  static const row_t rows[] = {
      {"root ::= root \"+\" t | root \"-\" t | t\nt ::= [0-9] | \"(\" root \")\"",
       {"1", "1+2-3", "(1+2)-(3)"},
       {"", "+1", "1+", "1+-2", "(1"}},
      {"root ::= a\na ::= c \"x\" | \"y\"\nc ::= a \"z\" | \"w\"",
       {"y", "yzx", "wx", "wxzx", "yzxzx"},
       {"yz", "x", "w", "yx", "yzxz"}},
      {"root ::= \"-\"? root \"!\" | \"a\"", {"a", "a!", "-a!", "-a!!", "--a!!"}, {"-a", "--a!"}},
      {"root ::= (root \",\")* \"a\"", {"a", "a,a", "a,a,a"}, {"a,", ",a", ""}},
      {"root ::= root root | \"a\"", {"a", "aa", "aaaa"}, {"", "b"}},
      {"root ::= root | root \"b\"{0,2} \"c\" | \"a\"", {"a", "ac", "abbcbc"}, {"ab", "c"}},
      {"root ::= (\"x\"? root){2} \".\" | \"1\"",
       {"1", "11.", "x1x1.", "111..", "11.1."},
       {"1.", "111."}},
      {"root ::= a \"1\" | \"r\"\na ::= b \"2\" | root \"4\"\nb ::= root \"3\" | a \"5\" | \"b\"",
       {"r", "r41", "r321", "b21", "b2521", "r4521", "r32132141"},
       {"r4", "b2", "b", "r31", "r3213421"}},
  };
  CHECK_TEXTS(GRAMMAR_EBNF, rows);
}

Test(ebnf, refused) {
  static const refusal_t rows[] = {
      {"", ERR_INVALID_VALUE, "no rule with the name 'root'"},
      {"start ::= \"a\"", ERR_INVALID_VALUE, "no rule with the name 'root'"},
      {"root ::= \"a\"\n  | missing", ERR_INVALID_VALUE,
       "line 2, column 5: no rule with the name 'missing'"},
      {"root ::= a \"x\"?\na ::= b\nb ::= a \"y\"? | \"z\"", ERR_INVALID_VALUE,
       "line 2, column 1: left recursion before something that may be empty"},
      {"root ::= a | \"x\"\na ::= n root \"y\"\nn ::= \"z\"?", ERR_INVALID_VALUE,
       "left recursion behind a rule that may be empty"},
      {"root ::= a\na ::= b \"x\"\nb ::= \"y\"? a", ERR_INVALID_VALUE,
       "no text can finish the rule"},
      {"root ::= <think> \"a\"", ERR_INVALID_VALUE, "line 1, column 10: a reference to a token"},
      {"root ::= !<[17]>*", ERR_INVALID_VALUE, "a reference to a token"},
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
