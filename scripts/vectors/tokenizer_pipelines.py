"""Tokenizer pipelines of the model families, trained here, and the text to try them on.

No published vocabulary is needed: every chain of components that inferd supports is built with the
reference library (Hugging Face `tokenizers`) and trained on text found on the machine. Used by
tokenizer.py (small vectors that are committed) and parity_tokenizer.py (large fresh comparison).
"""

import glob
import gettext
import gzip
import json
import os
import random
import sys
from collections import Counter

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import charsmap  # noqa: E402
import tokenizer_encoders  # noqa: E402

R1 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
R1_ALIAS = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
_CL = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| """
    r"""?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
R2, R3 = _CL % "{1,3}", _CL % ""
R2_ALIAS = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| """
    r"""?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""
)
R3_ALIAS = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"""
    r"""\s*[\r\n]|\s+(?!\S)|\s+"""
)
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| """
    r"""?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
R4 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| """
    r"""?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_U, _W = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_C, _LEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"[^\r\n\p{L}\p{N}]?"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
R5 = f"{_LEAD}{_U}*{_W}+{_C}|{_LEAD}{_U}+{_W}*{_C}" + r"|\p{N}{1,3}" + _TAIL
R6 = f"{_LEAD}{_U}*{_W}+|{_LEAD}{_U}+{_W}*" + r"|\p{N}" + _TAIL
R7 = (  # the published file has CR and LF in it, not their escapes
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| """
    r"""?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
).replace(r"\r", "\r").replace(r"\n", "\n")
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
D1A_RANGES = (  # cased letters, escaped because NFC would change the pattern
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-"
    "\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-"
    "\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-"
    "\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-"
    "\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-"
    "\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-"
    "\U0001e943"
)
D1A = r"\s?[" + D1A_RANGES + "]+"
D1B = r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
D1C = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
SPACE_MARK = "\u2581"


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bytes_after(*steps, regex=False):
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    return pre_tokenizers.Sequence([*steps, last]) if steps else last


def special(*contents):
    return [AddedToken(c, special=True, normalized=False) for c in contents]


CHATML = special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA = special("<unk>", "<s>", "</s>")
ODD = [
    AddedToken("<strip>", special=True, normalized=False, lstrip=True, rstrip=True),
    AddedToken("word", single_word=True, normalized=True),
    AddedToken("  ", normalized=False),
    AddedToken("    ", normalized=False),
    AddedToken("<tool_call>", normalized=True),
    AddedToken("caf\u00e9", normalized=True),
    AddedToken("\u00a0x", normalized=False, lstrip=True),
    AddedToken("<r> ", rstrip=True),
]

LLAMA_NORMALIZER = [normalizers.Prepend(SPACE_MARK), normalizers.Replace(" ", SPACE_MARK)]


def llama_decoder():
    return decoders.Sequence(
        [
            decoders.Replace(SPACE_MARK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )


def mapped(blob, *then):
    return normalizers.Sequence([normalizers.Precompiled(blob), *then])


# name -> (pre-tokenizer, normalizer, added tokens, BPE options, kind)
# A normalizer may be a function that makes it: it then needs the sentencepiece package.
# kind: "bytes" or "chars"; "chars" vocabularies are trained on words split at the space mark.
def pipelines():
    metaspace = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="first", split=False)
    bos = "<s>"
    return {
        "gpt2": (bytes_after(regex=True), None, CHATML[:1], {}, "bytes"),
        "gpt2_alias": (bytes_after(split(R1_ALIAS)), None, CHATML + ODD, {}, "bytes"),
        "smollm": (bytes_after(pre_tokenizers.Digits(True), regex=True), None, CHATML, {}, "bytes"),
        "prefix_space": (
            pre_tokenizers.ByteLevel(add_prefix_space=True),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "llama3": (bytes_after(split(R2)), None, CHATML, {"ignore_merges": True}, "bytes"),
        "llama3_alias": (
            bytes_after(split(R2_ALIAS)),
            None,
            CHATML,
            {"ignore_merges": True},
            "bytes",
        ),
        "phi4": (bytes_after(split(R2, "removed", True)), None, CHATML, {}, "bytes"),
        "cl100k": (bytes_after(split(CL100K)), None, CHATML, {}, "bytes"),
        "qwen2": (bytes_after(split(R3)), normalizers.NFC(), CHATML + ODD, {}, "bytes"),
        "qwen2_alias": (bytes_after(split(R3_ALIAS)), normalizers.NFC(), CHATML, {}, "bytes"),
        "qwen35": (bytes_after(split(R4)), normalizers.NFC(), CHATML, {}, "bytes"),
        "gpt_oss": (bytes_after(split(R5)), None, CHATML, {"ignore_merges": True}, "bytes"),
        "minimax": (bytes_after(split(R5, "removed", True)), None, CHATML, {}, "bytes"),
        "tekken": (bytes_after(split(R6)), None, CHATML, {"ignore_merges": True}, "bytes"),
        "deepseek_v3": (
            bytes_after(split(r"\p{N}{1,3}"), split(CJK), split(R7)),
            normalizers.Sequence([]),
            CHATML,
            {},
            "bytes",
        ),
        "deepseek_llm": (
            bytes_after(
                split(r"[\r\n]"),
                split(D1A),
                split(D1B),
                split(r"\s+$"),
                split(D1C),
                pre_tokenizers.Digits(True),
            ),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "deepseek_coder": (
            bytes_after(
                split(r"[\r\n]"),
                split(r"\s?\p{L}+"),
                split(r"\s?\p{P}+"),
                split(D1C),
                pre_tokenizers.Digits(True),
            ),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "falcon": (
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Punctuation("contiguous"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                    pre_tokenizers.Digits(False),
                    split("[0-9][0-9][0-9]"),
                ]
            ),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "llama2": (
            None,
            normalizers.Sequence(LLAMA_NORMALIZER),
            LLAMA,
            {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
            "chars",
        ),
        "llama2_odd": (
            None,
            normalizers.Sequence(LLAMA_NORMALIZER),
            LLAMA + ODD,
            {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
            "chars",
        ),
        "mistral": (
            metaspace,
            None,
            LLAMA,
            {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
            "chars",
        ),
        "gemma": (
            pre_tokenizers.Split(" ", "merged_with_previous"),
            normalizers.Replace(" ", SPACE_MARK),
            LLAMA,
            {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
            "chars",
        ),
        "metaspace_split": (
            pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always"),
            None,
            LLAMA,
            {"unk_token": "<unk>", "fuse_unk": True},
            "chars",
        ),
        "unk_single": (
            None,
            normalizers.Replace(" ", SPACE_MARK),
            LLAMA,
            {"unk_token": "<unk>", "fuse_unk": False},
            "chars",
        ),
        "no_unk": (None, normalizers.Replace(" ", SPACE_MARK), [], {}, "chars"),
        # Patterns that only PCRE2 knows; none depends on the version of Unicode.
        "regex_newlines": (
            bytes_after(split(r"(?:\r?\n)+(?!\r?\n)", "merged_with_next")),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "regex_thousands": (
            bytes_after(split(r"[0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9]))")),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "regex_stops": (
            bytes_after(split(r"[^\s,.!?]+\s?|[,.!?]+(?=\s|$)")),
            None,
            CHATML,
            {},
            "bytes",
        ),
        "unigram": (
            pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always"),
            normalizers.NFC(),
            LLAMA[1:],
            {},
            "unigram",
        ),
        **tokenizer_encoders.pipelines(LLAMA, ODD),
        "unigram_t5": (
            pre_tokenizers.Sequence(
                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE_MARK)]
            ),
            None,
            LLAMA[1:],
            {},
            "unigram",
        ),
        "unigram_bytes": (
            None,
            normalizers.Sequence(LLAMA_NORMALIZER),
            LLAMA[1:],
            {"byte_fallback": True},
            "unigram",
        ),
        # As transformers converts SentencePiece models: T5, XLM-R and kin.
        "unigram_map": (
            pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always"),
            mapped(
                charsmap.build(charsmap.RULES),
                normalizers.Strip(left=False, right=True),
                normalizers.Replace(Regex(" {2,}"), SPACE_MARK),
            ),
            LLAMA[1:],
            {},
            "unigram",
        ),
        "unigram_nmt": (
            pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always"),
            lambda: mapped(charsmap.real("nmt_nfkc"), normalizers.Replace(Regex(" {2,}"), " ")),
            LLAMA[1:],
            {},
            "unigram",
        ),
        "unigram_nmt_cf": (
            pre_tokenizers.Sequence(
                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE_MARK)]
            ),
            lambda: normalizers.Precompiled(charsmap.real("nmt_nfkc_cf")),
            LLAMA[1:] + ODD,
            {},
            "unigram",
        ),
    }


BOS = {
    "llama3": "<|endoftext|>",
    "llama2": "<s>",
    "llama2_odd": "<s>",
    "mistral": "<s>",
    "gemma": "<s>",
}


def build_unigram(name, texts, vocab_size):
    pre, norm, added, options, _ = pipelines()[name]
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>"
    )
    # The trainer wants room for every character: rare ones are left to <unk> and <0xHH>.
    common = Counter(c for text in texts for c in text).most_common(vocab_size // 4)
    rare = {ord(c): None for text in texts for c in text} | {ord(c): c for c, _ in common}
    trained.train_from_iterator((text.translate(rare) for text in texts), trainer)
    vocab = [tuple(v) for v in json.loads(trained.to_str())["model"]["vocab"]]
    vocab = [v for v in vocab if not v[0].startswith("<0x")]
    if options.get("byte_fallback"):
        vocab += [(f"<0x{b:02X}>", 0.0) for b in range(256)]
    model = models.Unigram(vocab, 0, options.get("byte_fallback", False))
    result = Tokenizer(model)
    if norm is not None:
        result.normalizer = norm() if callable(norm) else norm
    if pre is not None:
        result.pre_tokenizer = pre
    result.decoder = llama_decoder() if pre is None else decoders.Metaspace(SPACE_MARK)
    result.add_tokens(added)
    if name == "xlmr":
        result.post_processor = tokenizer_encoders.pair_processor(name, result)
    return result


def build(name, texts, vocab_size):
    """Trains one pipeline; `texts` is a list of strings."""
    pre, norm, added, options, kind = pipelines()[name]
    if kind == "wordpiece":
        return tokenizer_encoders.build(name, pipelines()[name], texts, vocab_size)
    if kind == "unigram":
        return build_unigram(name, texts, vocab_size)
    trained = Tokenizer(models.BPE())
    if kind == "bytes":
        trained.pre_tokenizer = pre
        if norm is not None:
            trained.normalizer = norm
        alphabet, extra = pre_tokenizers.ByteLevel.alphabet(), []  # 256 characters
    else:
        # Words carry their space mark in front, as in a SentencePiece vocabulary.
        trained.normalizer = normalizers.Replace(" ", SPACE_MARK)
        trained.pre_tokenizer = pre_tokenizers.Split(SPACE_MARK, "merged_with_next")
        alphabet = []
        extra = ["<unk>"] if options.get("unk_token") else []
        if options.get("byte_fallback"):
            extra += ["<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=alphabet,
        show_progress=False,
        special_tokens=extra,
        limit_alphabet=min(400, vocab_size // 2),
    )
    trained.train_from_iterator(texts, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    result = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, **options))
    if norm is not None:
        result.normalizer = norm
    if pre is not None:
        result.pre_tokenizer = pre
    result.decoder = decoders.ByteLevel() if kind == "bytes" else llama_decoder()
    if name in ("metaspace_split", "mistral"):
        scheme = "always" if name == "metaspace_split" else "first"
        result.decoder = decoders.Metaspace(SPACE_MARK, prepend_scheme=scheme)
    result.add_tokens(added)
    if name in BOS:
        token = BOS[name]
        result.post_processor = processors.TemplateProcessing(
            single=f"{token} $A",
            pair=f"{token} $A {token} $B",
            special_tokens=[(token, result.token_to_id(token))],
        )
    elif name == "roberta":
        result.post_processor = tokenizer_encoders.pair_processor(name, result)
    elif name == "prefix_space":
        result.post_processor = processors.RobertaProcessing(
            ("<|im_end|>", result.token_to_id("<|im_end|>")),
            ("<|im_start|>", result.token_to_id("<|im_start|>")),
        )
    elif kind == "bytes":
        result.post_processor = processors.ByteLevel(trim_offsets=False)
    return result


# Text found on the machine.


def _read(path):
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "ignore")
    except (OSError, EOFError):
        return ""


def _collect(patterns, limit, rng):
    paths = sorted(p for pattern in patterns for p in glob.glob(pattern, recursive=True))
    rng.shuffle(paths)
    parts, size = [], 0
    for path in paths:
        text = _read(path)
        parts.append(text)
        size += len(text.encode("utf-8"))
        if size >= limit:
            break
    return "\n".join(parts)


def prose(limit, seed=1):
    return _collect(
        [
            "/usr/share/doc/**/*.txt*",
            "/usr/share/doc/**/README*",
            "/usr/share/doc/**/copyright",
            "/usr/share/doc/**/NEWS*",
            "/usr/share/common-licenses/*",
            os.path.dirname(os.__file__) + "/**/*.rst",
            os.path.dirname(os.__file__) + "/**/*.md",
        ],
        limit,
        random.Random(seed),
    )


def code(limit, seed=2):
    return _collect(
        [
            "/usr/include/**/*.h",
            os.path.dirname(os.__file__) + "/*.py",
            os.path.dirname(os.__file__) + "/**/*.py",
        ],
        limit,
        random.Random(seed),
    )


def translations(limit, seed=3):
    rng = random.Random(seed)
    paths = sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo"))
    rng.shuffle(paths)
    parts, size = [], 0
    for path in paths:
        try:
            with open(path, "rb") as file:
                catalogue = gettext.GNUTranslations(file)._catalog
        except (OSError, ValueError, IndexError):  # IndexError: an odd plural rule
            continue
        text = "\n".join(v for v in catalogue.values() if isinstance(v, str))
        parts.append(text[:200000])
        size += len(parts[-1].encode("utf-8"))
        if size >= limit:
            break
    return "\n".join(parts)


# Text made here.

SPACES = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
EDGE = (
    list(SPACES)
    + list("abcAZsStTdDmMlLvVrReE'.,!?-_/\\\"()[]{}<>|#$+=^~`&*%@:;0123456789")
    + [
        "\u017f",
        "\u180e",
        "\u200d",
        "\u200b",
        "\u200c",
        "\ufeff",
        "\0",
        "\x01",
        "\x7f",
        "\x1b",
        "\U0010ffff",
        "\ufffd",
        "\ue000",
        "\u0301",
        "\u0327",
        "\u0345",
        "\u20dd",
        "\u0903",
        "\u1df9",
        "\U0001e94a",
        "\u1161",
        "\u11a8",
        "\u1100",
        "\uac00",
        "\uac01",
        "\u00e9",
        "e\u0301",
        "\u0344",
        "\u212b",
        "\u2126",
        "\u1e9b\u0323",
        "\u0958",
        "\u0660",
        "\u0967",
        "\u00b2",
        "\u00bd",
        "\u2167",
        "\u3007",
        "\uff11",
        "\U0001d7ce",
        "\u4e2d",
        "\u6587",
        "\u3042",
        "\u30a2",
        "\u3005",
        "\u02b0",
        "\u01c5",
        "\u00aa",
        "\u0130",
        "\u0131",
        "\u1e9e",
        "\U0001f600",
        "\U0001f468\u200d\U0001f469",
        "\U0001f1e9\U0001f1ea",
        "\u2764\ufe0f",
        "\u20ac",
        "\u00ab",
        "\u201c",
        "\u2026",
        "\u3001",
        "\u2e43",
        "\U00011de0",
        "\U00016ff4",
        "\U00016d40",
        "\U000105c0",
        "\U0001e5d0",
        "\u1c89",
        "\ua7cb",
        "\u0897",
        "\u2581",
        "\u0120",
        "'s",
        "'ll",
        "'\u017f",
        "'VE",
        "\r\n",
        "\n\n",
        "  ",
        "    ",
        "Hello",
        " world",
        "word",
        "caf\u00e9",
        "cafe\u0301",
        "123",
        "4567",
        "<|im_start|>",
        "<|im_",
        "<s>",
        "</s>",
        "<strip>",
        "<r> ",
        "<tool_call>",
        "<0x41>",
        "<unk>",
    ]
)


def edge_strings(count, seed, longest=40):
    rng = random.Random(seed)
    return ["".join(rng.choices(EDGE, k=rng.randint(0, longest))) for _ in range(count)]


def code_point_strings(step=256):
    """Every code point of the planes in use, between letters, digits, spaces and marks."""
    out = []
    for start in (*range(0, 0x34000, step), 0xE0000, 0xE0100, 0xF0000, 0x10FF00):
        chars = [chr(c) for c in range(start, start + step) if not 0xD800 <= c < 0xE000]
        out.append("".join(f"a{c}B {c}1 {c}{c}'{c}s\n{c}e\u0301{c}\u0327\u0301" for c in chars))
    return out


def random_byte_strings(count, seed, longest=64):
    """Random bytes as valid UTF-8: ill-formed parts become U+FFFD."""
    rng = random.Random(seed)
    out = []
    for i in range(count):
        raw = rng.randbytes(rng.randint(1, longest))
        if i % 2:  # code points of every length instead of noise that is mostly U+FFFD
            raw = "".join(
                chr(c)
                for c in (
                    rng.choice(
                        (
                            rng.randrange(0x80),
                            rng.randrange(0x800),
                            rng.randrange(0x10000),
                            rng.randrange(0x110000),
                        )
                    )
                    for _ in range(16)
                )
                if not 0xD800 <= c < 0xE000
            ).encode()
        out.append(raw.decode("utf-8", "replace"))
    return out


def scripts_text(count, seed):
    """Words over the letters of many scripts, emoji sequences, long runs of one character."""
    rng = random.Random(seed)
    blocks = [
        (0x4E00, 0x9FA5),
        (0x3041, 0x30FF),
        (0xAC00, 0xD7A3),
        (0x0400, 0x04FF),
        (0x0590, 0x06FF),
        (0x0900, 0x0D7F),
        (0x0E00, 0x0EFF),
        (0x1F300, 0x1FAFF),
        (0x00C0, 0x024F),
        (0x0370, 0x03FF),
        (0x20000, 0x2A6DF),
        (0x10400, 0x1044F),
        (0x0300, 0x036F),
        (0x2000, 0x2BFF),
    ]
    out = []
    for _ in range(count):
        low, high = rng.choice(blocks)
        word = "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8)))
        if rng.random() < 0.02:
            word = rng.choice(EDGE) * rng.choice((3, 17, 64, 300))
        out.append(word)
    return "".join(w + rng.choice((" ", " ", "", "\n", "\u3000", ", ", "\r\n")) for w in out)


def mixed(megabytes, seed=4):
    """About a third prose, a fifth code, a fifth translations, the rest made here."""
    size = int(megabytes * 1e6)
    rng = random.Random(seed)
    text = [
        prose(size // 3, seed),
        code(size // 5, seed + 1),
        translations(size // 5, seed + 2),
        scripts_text(size // 60, seed + 3),
        "".join(edge_strings(size // 400, seed + 4)),
        "".join(
            chr(rng.randrange(32)) * rng.choice((1, 1, 2, 5)) + rng.choice("ab ")
            for _ in range(size // 200)
        ),
    ]
    return text
