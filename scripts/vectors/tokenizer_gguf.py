#!/usr/bin/env python3
"""Writes tests/vectors/tokenizer_gguf: the tokenizers of tokenizer.py as metadata of GGUF files.

    pip install gguf tokenizers sentencepiece && scripts/vectors/tokenizer_gguf.py

NAME.gguf   vocabulary and merges (or scores) of tests/vectors/tokenizer/NAME, with llama.cpp's
            package `gguf`, without tensors
NAME.json   {index of a text: ids} where the ids are not those of tokenizer/NAME/ids.json; of a
            name of NAMED, which has no tokenizer.json there, [ids of each text]

A GGUF file says of an added token only that it is one: lstrip, rstrip, single_word and normalized
are lost. The reference is `tokenizers` with such flags off; a text that holds a token with flags
has other ids than with tokenizer.json, and stands in NAME.json.
"""

import json
import os

import tokenizer as base
from gguf import GGUFWriter
from tokenizers import Tokenizer

OUT = os.path.join(os.path.dirname(base.OUT), "tokenizer_gguf")
# What tokenizer.ggml.pre is in a file made from such a tokenizer.json.
PRE = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "phi4": "dbrx",
       "qwen2": "qwen2", "qwen35": "qwen35", "gpt_oss": "gpt-4o", "tekken": "tekken",
       "deepseek_v3": "deepseek-v3", "deepseek_llm": "deepseek-llm",
       "deepseek_coder": "deepseek-coder", "falcon": "falcon"}
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
               r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+"]
# Of tokenizer.ggml.pre that no tokenizer of tests/vectors/tokenizer stands for: the patterns as the
# tokenizer of that name has them, over the vocabulary of deepseek_v3. Kimi's are those of its
# tokenization_kimi.py, the others stand in llama.cpp's llama-vocab.cpp as "original regex".
NAMED = {
    "kimi-k2": [r"[\p{Han}]+"
                rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?"
                rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?"
                rf"|\p{{N}}{{1,3}}|{REST}"],
    "stablelm2": [CONTRACTION + WORD + r"\p{N}|" + REST],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", CONTRACTION + WORD + r"\p{N}+|" + REST],
    "hunyuan-dense": DEEPSEEK_V3,
}
SPM = ("spm_llama", "spm_gemma")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def without_flags(document):
    """The tokenizer that is left of a tokenizer.json in a GGUF file."""
    for token in document["added_tokens"]:
        token.update({flag: False for flag in FLAGS})
    return Tokenizer.from_str(json.dumps(document))


def write_bpe(path, document, pre):
    """Writes byte-level BPE; returns the reference."""
    reference = without_flags(document)
    vocab = reference.get_vocab()
    count = max(vocab.values()) + 1
    texts, types = [f"[PAD{i}]" for i in range(count)], [UNUSED] * count
    for text, i in vocab.items():
        texts[i], types[i] = text, NORMAL
    for token in document["added_tokens"]:
        types[vocab[token["content"]]] = CONTROL if token["special"] else USER_DEFINED
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m)
                             for m in document["model"]["merges"]])
    writer.add_add_bos_token(False)
    finish(writer)
    return reference


def write_spm(path, model_path):
    from sentencepiece import sentencepiece_model_pb2 as proto
    with open(model_path, "rb") as file:
        model = proto.ModelProto.FromString(file.read())
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([p.piece for p in model.pieces])
    writer.add_token_scores([p.score for p in model.pieces])
    writer.add_token_types([p.type for p in model.pieces])  # both enumerations have one order
    spec = model.trainer_spec
    writer.add_bos_token_id(spec.bos_id)
    writer.add_eos_token_id(spec.eos_id)
    writer.add_unk_token_id(spec.unk_id)
    writer.add_add_space_prefix(model.normalizer_spec.add_dummy_prefix)
    finish(writer)


def write_gemma(path, document):
    """BPE with bytes for what is left, as Gemma 4 has it."""
    pieces = {i: p for p, i in document["model"]["vocab"].items()} | \
        {t["id"]: t["content"] for t in document["added_tokens"]}
    special = {t["id"]: t["special"] for t in document["added_tokens"]}
    ids = {p: i for i, p in pieces.items()}
    writer = GGUFWriter(path, "gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list([pieces[i] for i in range(len(pieces))])
    writer.add_token_types([(CONTROL if special[i] else USER_DEFINED) if i in special else NORMAL
                            for i in range(len(pieces))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m)
                             for m in document["model"]["merges"]])
    writer.add_bos_token_id(ids["<s>"])
    writer.add_unk_token_id(ids["<unk>"])
    finish(writer)


def main():
    strings = base.texts()
    os.makedirs(OUT, exist_ok=True)
    for name, pre in PRE.items():
        directory = os.path.join(base.OUT, name)
        with open(os.path.join(directory, "tokenizer.json"), encoding="utf-8") as file:
            document = json.load(file)
        with open(os.path.join(directory, "ids.json"), encoding="utf-8") as file:
            plain = json.load(file)["plain"]
        flagged = any(token[flag] for token in document["added_tokens"] for flag in FLAGS)
        reference = write_bpe(os.path.join(OUT, name + ".gguf"), document, pre)
        ids = [reference.encode(t, add_special_tokens=False).ids for t in strings]
        other = {str(i): new for i, (new, old) in enumerate(zip(ids, plain)) if new != old}
        assert flagged or not other, name
        base.write(os.path.join(OUT, name + ".json"), other)
        print(f"{name}: {len(other)} of {len(strings)} texts differ from tokenizer.json")
    for pre, patterns in NAMED.items():
        name = pre.replace("-", "_")
        vocabulary = os.path.join(base.OUT, "deepseek_v3", "tokenizer.json")
        with open(vocabulary, encoding="utf-8") as file:
            document = json.load(file)
        document["normalizer"] = None
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": False} for pattern in patterns] + [
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}]}
        document["model"]["ignore_merges"] = pre == "minicpm5"
        reference = write_bpe(os.path.join(OUT, name + ".gguf"), document, pre)
        base.write(os.path.join(OUT, name + ".json"),
                   [reference.encode(t, add_special_tokens=False).ids for t in strings])
    with open(os.path.join(base.OUT, "gemma", "tokenizer.json"), encoding="utf-8") as file:
        write_gemma(os.path.join(OUT, "gemma.gguf"), json.load(file))
    base.write(os.path.join(OUT, "gemma.json"), {})
    for name in SPM:
        write_spm(os.path.join(OUT, name + ".gguf"),
                  os.path.join(base.OUT, name, "tokenizer.model"))
        base.write(os.path.join(OUT, name + ".json"), {})


if __name__ == "__main__":
    main()
