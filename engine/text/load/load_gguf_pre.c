/* load_gguf_pre.c: what a name in tokenizer.ggml.pre stands for.
 *
 * Names are those of llama.cpp (llama-vocab.cpp), components those of the tokenizer.json that the
 * names were made for. Constant data; any thread may read it.
 */
#include "engine/text/load/load_gguf_pre.h"

#include "engine/base/util.h"

#include <string.h>

static const char nfc[] = "{\"type\":\"NFC\"}";

static const gguf_pre_t rows[] = {
    {.names = "gpt-2 phi-2 mellum gigachat a.x-4.0 exaone4 jais trillion granite-docling ",
     .pre_tokenizer =
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex"
         "\":true}"},
    {.names = "roberta-bpe ",
     .pre_tokenizer =
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex"
         "\":true}",
     .separators = 2},
    {.names = "modern-bert ",
     .normalizer = nfc,
     .pre_tokenizer =
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex"
         "\":true}",
     .separators = 1},
    {.names = "olmo mpt ",
     .normalizer = nfc,
     .pre_tokenizer =
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex"
         "\":true}"},
    {.names = "smollm starcoder refact codeshell exaone minerva-7b mellum2 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\""
         ":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"us"
         "e_regex\":true}]}"},
    {.names = "command-r ",
     .normalizer = nfc,
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\""
         ":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"us"
         "e_regex\":true}]}"},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3"
         "}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s"
         "+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefi"
         "x_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}",
     .ignore_merges = true,
     .adds_bos = true},
    {.names = "dbrx smaug-bpe ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3"
         "}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s"
         "+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefi"
         "x_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "glm4 chatglm-bpe ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3"
         "}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s"
         "+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefi"
         "x_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}",
     .ignore_merges = true},
    {.names = "qwen2 deepseek-r1-qwen kormo megrez f2llmv2 ",
     .normalizer = nfc,
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?["
         "^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
         "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_spa"
         "ce\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "qwen35 ",
     .normalizer = nfc,
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\"
         "\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?"
         "!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel"
         "\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "gpt-4o llama4 minimax-m2 kanana2 talkie ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\"
         "\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L"
         "}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{L"
         "o}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+["
         "\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated"
         "\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offse"
         "ts\":true,\"use_regex\":false}]}",
     .ignore_merges = true},
    {.names = "tekken ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\"
         "\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt"
         "}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}| ?[^\\"
         "\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\""
         "behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space"
         "\":false,\"trim_offsets\":true,\"use_regex\":false}]}",
     .ignore_merges = true,
     .adds_bos = true},
    {.names = "deepseek-v3 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"[一-龥぀-ゟ゠-ヿ]+\"},\"behavior\":\"Isolated\","
         "\"invert\":"
         "false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\"
         "\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\\\r\\\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\"
         "\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\"
         "s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_pref"
         "ix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}",
     .adds_bos = true},
    {.names = "deepseek-llm ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"[\\\\r\\\\n]\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"\\\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-"
         "ͽͿΆΈ"
         "-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-"
         "ᶚḀ-"
         "ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-"
         "Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ"
         "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ"
         "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+\"},"
         "\"behav"
         "ior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\"
         "\\s?[!-/:-~！-／：-～‘-‟　-。]+\"},\"behavior\":\"Isolated\",\"invert\":false},{"
         "\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+$\"},\"behavior\":\"Isolated\",\"i"
         "nvert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[一-龥ࠀ-一가-퟿]+\"},"
         "\""
         "behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Digits\",\"individual_digits\""
         ":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"us"
         "e_regex\":false}]}",
     .adds_bos = true},
    {.names = "deepseek-coder ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"[\\\\r\\\\n]\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"\\\\s?\\\\p{L}+\"},\"behavior\":\"Isolated\",\"invert\":fal"
         "se},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s?\\\\p{P}+\"},\"behavior\":\"I"
         "solated\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[一-龥ࠀ-一"
         "가-퟿]+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Digits\",\"individu"
         "al_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets"
         "\":true,\"use_regex\":false}]}",
     .adds_bos = true},
    {.names = "falcon ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\",\"behavior\":\"Cont"
         "iguous\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"us"
         "e_regex\":true},{\"type\":\"Digits\",\"individual_digits\":false},{\"type\":\"Split\",\""
         "pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false}]"
         "}"},
    /* Without NFC in front: llama.cpp has none, and neither has the tokenizer.json of Hunyuan. */
    {.names = "stablelm2 hunyuan solar-open grok-2 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Reg"
         "ex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\"
         "p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S"
         ")|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
         "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "kimi-k2 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Reg"
         "ex\":\"[\\\\p{Han}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\"
         "\\p{Lo}\\\\p{M}&&[^\\\\p{Han}]]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}&&[^\\\\p{Ha"
         "n}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p"
         "{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}&&[^\\\\p{Han}]]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p"
         "{M}&&[^\\\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L"
         "}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavio"
         "r\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
         "false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "bailingmoe bailingmoe2 llada-moe ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Reg"
         "ex\":\"'(?i:[sdmt]|ll|ve|re)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?+\\\\p{L}+|\\\\p{N}| "
         "?[^\\\\s\\\\p{L}\\\\p{N}]++[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]|\\\\s+(?!\\\\S)|\\\\"
         "s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_"
         "prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "minicpm5 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Reg"
         "ex\":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\""
         "Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{"
         "L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*["
         "\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":fals"
         "e},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"us"
         "e_regex\":false}]}",
     .ignore_merges = true},
    {.names = "hunyuan-dense joyai-llm hy_v4 ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"[一-龥぀-ゟ゠-ヿ]+\"},\"behavior\":\"Isolated\","
         "\"invert\":"
         "false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\"
         "\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\\\r\\\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\"
         "\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\"
         "s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_pref"
         "ix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
    {.names = "seed-coder ",
     .pre_tokenizer =
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\""
         ":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1}|"
         " ?[^\\\\s\\\\p{L}\\\\p{N}\\\\r\\\\n]+|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
         "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_spa"
         "ce\":false,\"trim_offsets\":true,\"use_regex\":false}]}"},
};

const gguf_pre_t *gguf_pre_find(const char *name, size_t length) {
  if (length == 0 || memchr(name, ' ', length) != NULL) return NULL;
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    for (const char *at = rows[i].names; *at != '\0'; at = strchr(at, ' ') + 1) {
      if (strncmp(at, name, length) == 0 && at[length] == ' ') return &rows[i];
    }
  }
  return NULL;
}
