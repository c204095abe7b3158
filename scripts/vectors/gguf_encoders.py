#!/usr/bin/env python3
"""Writes tests/vectors/encoders/gguf-*: cases of encoders.py as llama.cpp's converter writes them.

    scripts/vectors/gguf_encoders.py --converter LLAMA_CPP [--out DIR] [--only NAME]

LLAMA_CPP is a checkout of llama.cpp, of which the folders conversion and gguf-py are used. A
directory has model.gguf, in float32, and the expected.json of the case. The converter knows the
split of words by a hash of real vocabularies, so its name is given here. Where it wants the keys of
published files and not those of transformers 5, these are written first. Vocabularies that it takes
from files of SentencePiece alone are written here, as it writes them.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/vectors"))
CASES = ROOT / "tests/vectors/encoders"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # types of tokens
PRE = {"bert-mean": "bert-bge", "distilbert-mean": "bert-bge", "nomic-mean": "bert-bge",
       "roberta-cls": "roberta-bpe", "xlmr-cls": "default", "xlmr-rank": "default",
       "modernbert-mean": "modern-bert", "modernbert-labels-bf16": "modern-bert",
       "gemma-dense": "default", "qwen3-judge": "smollm", "bert-labels": "bert-bge"}
REFUSED = ("bert-labels",)  # the converter leaves its pooler out: the file alone is written


def published_nomic(config):
    """The keys of nomic-embed-text's config.json."""
    rope = config.get("rope_parameters") or {}
    return {**config, "n_positions": 8192, "max_trained_positions": 2048,
            "activation_function": "swiglu", "causal": False, "qkv_proj_bias": False,
            "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
            "rotary_emb_scale_base": None, "rotary_emb_base": rope.get("rope_theta", 1000.0)}


def number(path):
    """Gives the added tokens the ids behind those of the vocabulary, as in real files."""
    made = json.loads(path.read_text())
    words = [w for w in made["model"]["vocab"] if w not in ("yes", "no")] + ["yes", "no"]
    made["model"]["vocab"] = {word: i for i, word in enumerate(words)}
    for i, token in enumerate(made["added_tokens"]):
        token["id"] = len(words) + i
    path.write_text(json.dumps(made))


def judged(directory, facts):
    """The scores with the tokens where they are now."""
    import encoders
    tokenizer = encoders.transformers.AutoTokenizer.from_pretrained(directory)
    raw = [row[0] for row in encoders.judge(directory, encoders.torch.float32, facts["pairs"])]
    return {**facts, "raw": raw, "scores": encoders.torch.tensor(raw).sigmoid().tolist(),
            "sizes": [len(encoders.judge_ids(tokenizer, pair)) for pair in facts["pairs"]]}


def prepare(name, directory):
    """What real directories of the kind have."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    if name.startswith("nomic"):
        config = published_nomic(config)
    if name.startswith("gemma"):  # what files do not say, as published
        config |= {"layer_types": ["sliding_attention"] * config["num_hidden_layers"],
                   "sliding_window_pattern": 6, "query_pre_attn_scalar": config["head_dim"]}
    path.write_text(json.dumps(config))
    if name.startswith("qwen3-judge"):
        (directory / "README.md").write_text("# Qwen3-Reranker\n")
        number(directory / "tokenizer.json")


def write_special(writer, document):
    """Ends of a text, from the post-processor."""
    ids = {t["content"]: t["id"] for t in document["added_tokens"]}
    ends = [document["post_processor"]["single"][i].get("SpecialToken") for i in (0, -1)]
    for end, put, add in zip(ends, (writer.add_bos_token_id, writer.add_eos_token_id),
                             (writer.add_add_bos_token, writer.add_add_eos_token), strict=True):
        add(end is not None)
        if end is not None:
            put(ids[end["id"]])


def types_of(document, pieces):
    types = [NORMAL] * len(pieces)
    for token in document["added_tokens"]:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    return types


def write_unigram(writer, document):
    """What XLMRobertaModel writes."""
    vocab, unk = document["model"]["vocab"], document["model"]["unk_id"]
    pieces = dict(enumerate(p for p, _ in vocab)) | \
        {t["id"]: t["content"] for t in document["added_tokens"]}
    types = types_of(document, pieces)
    types[unk] = UNKNOWN
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([pieces[i] for i in range(len(pieces))])
    writer.add_token_scores([s for _, s in vocab] + [0.0] * (len(pieces) - len(vocab)))
    writer.add_token_types(types)
    writer.add_add_space_prefix(True)
    writer.add_token_type_count(1)
    writer.add_remove_extra_whitespaces(True)
    writer.add_unk_token_id(unk)
    write_special(writer, document)


def write_scored(writer, document):
    """What Gemma3Model writes: the scores fall with the ranks of the merges."""
    vocab, merges = document["model"]["vocab"], document["model"]["merges"]
    pieces = {i: p for p, i in vocab.items()} | \
        {t["id"]: t["content"] for t in document["added_tokens"]}
    ranks = {"".join(m if isinstance(m, list) else m.split(" ")): i for i, m in enumerate(merges)}
    types = types_of(document, pieces)
    types = [BYTE if re.fullmatch("<0x..>", pieces[i]) else t for i, t in enumerate(types)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([pieces[i] for i in range(len(pieces))])
    writer.add_token_scores([-float(ranks.get(pieces[i], 1e6)) for i in range(len(pieces))])
    writer.add_token_types(types)
    writer.add_add_space_prefix(False)
    write_special(writer, document)


def write_bytes(writer, document):
    """What Qwen3Model writes."""
    pieces = {i: p for p, i in document["model"]["vocab"].items()} | \
        {t["id"]: t["content"] for t in document["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([pieces[i] for i in range(len(pieces))])
    writer.add_token_types(types_of(document, pieces))
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m)
                             for m in document["model"]["merges"]])


WRITERS = {"xlmr": write_unigram, "gemma": write_scored, "qwen3": write_bytes}


def without_dense(directory, facts):
    """The vectors of a model before its Dense modules, which the file is made without."""
    from embeddings import embed, rounded
    from sentence_transformers import SentenceTransformer
    whole = SentenceTransformer(str(directory), device="cpu")
    bare = SentenceTransformer(modules=[whole[0], whole[1], whole[-1]], device="cpu")
    return {**facts, "vectors": rounded(embed(bare, facts["texts"]))}


def converter(place):
    sys.path[:0] = [str(place), str(place / "gguf-py")]
    import conversion
    import gguf
    import torch
    import transformers
    # The tokenizer of the directory, not the one that transformers knows for such a model.
    transformers.AutoTokenizer = transformers.PreTrainedTokenizerFast

    def convert(directory, out, pre):
        document = json.loads((directory / "tokenizer.json").read_text())
        write = WRITERS.get(directory.name.split("-")[0])
        with torch.inference_mode():
            hparams = json.loads((directory / "config.json").read_text()) | \
                conversion.ModelBase.load_hparams(directory, False)
            name = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
            made = conversion.get_model_class(name)
            own = {"set_vocab": lambda self: write(self.gguf_writer, document)} if write else {}
            named = type(made.__name__, (made,), {"model_arch": made.model_arch, **own,
                                                  "get_vocab_base_pre": lambda *_: pre})
            named(directory, gguf.LlamaFileType.ALL_F32, out, hparams=hparams).write()
    return convert


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--converter", type=Path, required=True, help="a checkout of llama.cpp")
    parser.add_argument("--out", type=Path, default=CASES)
    parser.add_argument("--only")
    options = parser.parse_args()
    convert = converter(options.converter)
    for name, pre in PRE.items():
        if options.only and not name.startswith(options.only):
            continue
        out = options.out / f"gguf-{name}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as work:
            source = Path(work) / name
            shutil.copytree(CASES / name, source)
            prepare(name, source)
            convert(source, out / "model.gguf", pre)
            facts = json.loads((source / "expected.json").read_text())
            if name.endswith("-dense"):
                facts = without_dense(source, facts)
            if name.endswith("-judge"):
                facts = judged(source, facts)
        if name in REFUSED:
            continue
        (out / "expected.json").write_text(json.dumps(facts) + "\n")
        print(f"{out}: {(out / 'model.gguf').stat().st_size} bytes")


if __name__ == "__main__":
    main()
