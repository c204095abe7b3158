#!/usr/bin/env python3
"""Writes the tokenizers of tests/vectors/tokenizer that are no tokenizer.json.

    pip install sentencepiece mistral_common tokenizers && scripts/vectors/tokenizer_other.py

spm_*/tokenizer.model   SentencePiece models, trained here; the ids are those of sentencepiece
tekken_file/tekken.json a vocabulary of bytes; the ids are those of mistral_common

The texts are those of tokenizer.py. Special tokens are matched in a text as transformers does, so
the text between them is encoded by itself. ids.json is as tokenizer.py writes it.
"""

import base64
import io
import json
import os
import re

import sentencepiece as spm
import tokenizer as base
import tokenizer_pipelines as tp
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import SpecialTokenInfo, Tekkenizer
from sentencepiece import sentencepiece_model_pb2 as proto

LLAMA = dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
             remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.98)
MODELS = {
    "spm_llama": LLAMA,
    "spm_gemma": {**LLAMA, "add_dummy_prefix": False, "bos_id": 2, "eos_id": 1, "unk_id": 3,
                  "pad_id": 0, "allow_whitespace_only_pieces": True},
    "spm_plain": {**LLAMA, "byte_fallback": False, "user_defined_symbols": ["<tool>", "word"]},
    "spm_unigram": dict(model_type="unigram", byte_fallback=True,
                        normalization_rule_name="identity", remove_extra_whitespaces=False,
                        character_coverage=0.98),
    "spm_unigram_unk": dict(model_type="unigram", normalization_rule_name="identity",
                            remove_extra_whitespaces=False, character_coverage=0.98),
}


def train(training, **settings):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(training), model_writer=model,
                                   vocab_size=900, hard_vocab_limit=False, minloglevel=2,
                                   num_threads=1, **settings)
    return model.getvalue()


def spm_vectors(blob, strings):
    processor = spm.SentencePieceProcessor(model_proto=blob)
    model = proto.ModelProto.FromString(blob)
    kinds = proto.ModelProto.SentencePiece
    special = [p.piece for p in model.pieces if p.type in (kinds.CONTROL, kinds.UNKNOWN)]
    cut = re.compile("(" + "|".join(map(re.escape, special)) + ")")

    def encode(text):
        ids = []
        for part in cut.split(text):
            ids += [processor.piece_to_id(part)] if part in special else processor.encode(part)
        return ids

    plain = [encode(t) for t in strings]
    whole = [[processor.bos_id(), *ids] for ids in plain[:base.SPECIAL_TEXTS]]
    decoded = [processor.decode(ids) for ids in plain]
    decoded = [None if "\ufffd" in d or "\u2047" in d else 0 if d == t else d
               for d, t in zip(decoded, strings)]
    return {"plain": plain, "special": whole, "decoded": decoded}


def tekken_file(training, count=900):
    """Byte pieces in the order in which a trainer merges them, behind the 256 bytes."""
    made = tp.build("tekken", training, count)
    back = {tp_char: byte for byte, tp_char in byte_chars().items()}
    vocab = sorted(made.get_vocab().items(), key=lambda item: item[1])
    pieces = [bytes([i]) for i in range(256)]
    for text, _ in vocab:
        if all(c in back for c in text):
            piece = bytes(back[c] for c in text)
            pieces += [piece] if piece not in pieces else []
    special = [SpecialTokenInfo(rank=i, token_str=s, is_control=True)
               for i, s in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])]
    pattern = json.loads(made.to_str())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return {"config": {"pattern": pattern, "num_vocab_tokens": len(pieces), "version": "v11",
                       "default_vocab_size": len(pieces) + 20 - 7,
                       "default_num_special_tokens": 20},
            "vocab": [{"rank": i, "token_bytes": base64.b64encode(p).decode(),
                       "token_str": p.decode("utf-8", "replace")} for i, p in enumerate(pieces)],
            "special_tokens": special}


def byte_chars():
    """The alphabet of byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(moved)}}


def tekken_vectors(path, strings):
    made = Tekkenizer.from_file(path)
    special = [f"<SPECIAL_{i}>" for i in range(5, 20)] + ["<unk>", "<s>", "</s>", "[INST]",
                                                          "[/INST]"]
    ids = {name: made.get_special_token(name) for name in special}
    cut = re.compile("(" + "|".join(map(re.escape, special)) + ")")

    def encode(text):
        out = []
        for part in cut.split(text):
            out += [ids[part]] if part in ids else made.encode(part, bos=False, eos=False)
        return out

    plain = [encode(t) for t in strings]
    decoded = [made.decode(i, special_token_policy=SpecialTokenPolicy.IGNORE) for i in plain]
    decoded = [None if "\ufffd" in d else 0 if d == t else d for d, t in zip(decoded, strings)]
    return {"plain": plain, "special": [[1, *ids] for ids in plain[:base.SPECIAL_TEXTS]],
            "decoded": decoded}


def main():
    strings = base.texts()
    digits = [f"{n} {n}{n}\n" for n in (12, 20, 99, 100, 2024, 1234567)]
    training = (base.SAMPLE.splitlines(keepends=True) + digits) * 3 + tp.scripts_text(
        3000, 6).splitlines(keepends=True)
    for name, settings in MODELS.items():
        directory = os.path.join(base.OUT, name)
        os.makedirs(directory, exist_ok=True)
        blob = train([line for line in base.SAMPLE.splitlines() * 3 + digits], **settings)
        with open(os.path.join(directory, "tokenizer.model"), "wb") as file:
            file.write(blob)
        base.write(os.path.join(directory, "ids.json"), spm_vectors(blob, strings))
    directory = os.path.join(base.OUT, "tekken_file")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "tekken.json")
    base.write(path, tekken_file(training))
    base.write(os.path.join(directory, "ids.json"), tekken_vectors(path, strings))


if __name__ == "__main__":
    main()
