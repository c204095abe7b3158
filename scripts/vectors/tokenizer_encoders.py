"""Tokenizer pipelines of the encoders, which join two texts; a part of tokenizer_pipelines.py."""

import json

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

PAIRED = ("bert", "bert_cased", "bert_odd", "roberta", "xlmr")
SPACE_MARK = "\u2581"
PAD = AddedToken("<pad>", special=True, normalized=False)


def pipelines(llama, odd):
    """As tokenizer_pipelines.pipelines; `llama` and `odd` are lists of added tokens."""
    return {
        "bert": (
            pre_tokenizers.BertPreTokenizer(),
            normalizers.BertNormalizer(),
            [],
            {},
            "wordpiece",
        ),
        "bert_cased": (
            pre_tokenizers.BertPreTokenizer(),
            normalizers.BertNormalizer(lowercase=False),
            odd,
            {},
            "wordpiece",
        ),
        "bert_odd": (
            pre_tokenizers.BertPreTokenizer(),
            normalizers.BertNormalizer(False, False, True, False),
            [],
            {"max_input_chars_per_word": 30},
            "wordpiece",
        ),
        "roberta": (
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            None,
            [*llama, PAD]
            + [AddedToken("<mask>", lstrip=True, special=True, normalized=False)],
            {},
            "bytes",
        ),
        "xlmr": (
            pre_tokenizers.Sequence(
                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE_MARK)]
            ),
            normalizers.Replace(Regex(" {2,}"), " "),
            [*llama[1:], PAD],
            {},
            "unigram",
        ),
    }


def pair_processor(kind, tokenizer):
    """How the encoders join two texts: by their ids of [CLS] and [SEP], or of <s> and </s>."""
    cls, sep = ("<s>", "</s>") if kind in ("roberta", "xlmr") else ("[CLS]", "[SEP]")
    ids = [(t, tokenizer.token_to_id(t)) for t in (cls, sep)]
    if kind == "roberta":
        return processors.RobertaProcessing(ids[1], ids[0], True, False)
    if kind == "bert_cased":
        return processors.BertProcessing(ids[1], ids[0])
    if kind == "xlmr":
        return processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", ids)
    return processors.TemplateProcessing(
        "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ids)


def build(name, pipeline, texts, vocab_size):
    """Trains a WordPiece pipeline; `texts` is a list of strings."""
    pre, norm, added, options, _ = pipeline
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer, trained.normalizer = pre, norm
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, show_progress=False, limit_alphabet=vocab_size // 3,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    trained.train_from_iterator(texts, trainer)
    vocab = json.loads(trained.to_str())["model"]["vocab"]
    result = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", **options))
    result.pre_tokenizer, result.normalizer = pre, norm
    result.decoder = decoders.WordPiece("##", cleanup=name != "bert_odd")
    result.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    result.add_tokens(added)
    result.post_processor = pair_processor(name, result)
    return result
