#!/usr/bin/env python3
"""Writes tests/vectors/encoders: tiny random encoders, as sentence-transformers runs them.

    pip install torch transformers sentence-transformers numpy     (CPU builds will do)
    scripts/vectors/encoders.py [--out DIR] [--seed N] [--only PREFIX]

One directory a case, as sentence-transformers saves it, weights included (they are tens of
kilobytes): a model that embeds, with modules.json, or a cross-encoder or classifier. expected.json
has

  dtype           the run type
  texts, vectors  of a model that embeds: of the fp32 run on weights rounded to that type
  pairs, scores   of a cross-encoder: what predict says of pairs of texts, with its activation; raw:
                  without it. Of a model that judges: the formula of Qwen3-Reranker's card
  texts, probs    of a classifier of texts
  texts, tags     of a classifier of tokens: the probabilities of each token; entities: what
                  transformers' pipeline makes of them, by its aggregation_strategy
  sizes           in tokens, with the special ones
  error           the largest distance of the bf16 run of sentence-transformers itself: 1 - cosine
                  of vectors, the difference of scores
"""

import argparse
import copy
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense, Normalize, Pooling, Transformer)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from embeddings import TEXTS, TYPES, cosines, embed, rounded  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TOKENIZERS = ROOT / "tests/vectors/tokenizer"
PAIRS = [(TEXTS[i], TEXTS[j]) for i, j in ((1, 2), (2, 1), (3, 0), (4, 5), (6, 7), (8, 9), (0, 3))]

# Names of the architecture in transformers; the tokenizer; [CLS] and [SEP] in its words.
BERT, ROBERTA = ("bert", "[PAD]", "[CLS]", "[SEP]"), ("roberta", "<pad>", "<s>", "</s>")
KINDS = {
    "bert": ("Bert", BERT),
    "distilbert": ("DistilBert", BERT),
    "roberta": ("Roberta", ROBERTA),
    "xlmr": ("XLMRoberta", ("xlmr", "<pad>", "<s>", "</s>")),
    "modernbert": ("ModernBert", ROBERTA),
    "nomic": ("NomicBert", BERT),
    "gte": ("Gte", BERT),
    "gemma": ("Gemma3Text", ("gemma", "<pad>", "<bos>", "<eos>")),
    "xlmr_xl": ("XLMRobertaXL", ("xlmr", "<pad>", "<s>", "</s>")),
    "electra": ("Electra", BERT),
    "eurobert": ("EuroBert", ROBERTA),
    "mpnet": ("MPNet", BERT),
    "albert": ("Albert", BERT),
    "deberta": ("DebertaV2", BERT),
    "t5": ("T5Encoder", ("xlmr", "<pad>", "<s>", "</s>")),
    "mt5": ("MT5Encoder", ("xlmr", "<pad>", "<s>", "</s>")),
    "jina3": ("JinaEmbeddingsV3", ("xlmr", "<pad>", "<s>", "</s>")),
    "data2vec": ("Data2VecText", ROBERTA),
    "prelayernorm": ("RobertaPreLayerNorm", ROBERTA),
    "ernie": ("Ernie", BERT),
    "megatron": ("MegatronBert", BERT),
    "rembert": ("RemBert", BERT),
    "roformer": ("RoFormer", BERT),
    "camembert": ("Camembert", ("xlmr", "<pad>", "<s>", "</s>")),
}
# As the tokenizers of their published files, such as BertTokenizer, these give types of tokens.
TYPED = ("bert", "nomic", "electra", "albert", "deberta", "ernie", "megatron", "rembert",
         "roformer")
# Decoders, which classify by their last token.
QWEN = ("smollm", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
DECODERS = {
    "qwen3": ("Qwen3", QWEN),
    "qwen2": ("Qwen2", QWEN),
    "llama": ("Llama", ("llama3", "<|endoftext|>", "<|im_start|>", "<|im_end|>")),
    "mistral": ("Mistral", ("mistral", "<unk>", "<s>", "</s>")),
    "gemma2": ("Gemma2", ("gemma", "<unk>", "<s>", "</s>")),
    "gpt2": ("GPT2", QWEN),
}
KINDS.update(DECODERS)


def spec(kind, hidden, heads, mlp, layers, dtype="float32", pooling="mean", normalises=True,
         dense=(), labels=0, judges=False, tags=False, **config):
    """A case. `dense`: (width, activation) of modules behind the pooling; `labels`: of a
    classifier, 0 = the model embeds; `tags`: it classifies tokens; `judges`: it is a
    Qwen3-Reranker; `config`: more keys."""
    return dict(kind=kind, hidden=hidden, heads=heads, mlp=mlp, layers=layers, dtype=dtype,
                pooling=pooling, normalises=normalises, dense=list(dense), labels=labels,
                judges=judges, tags=tags, config=config)


# As DeBERTa V3 has it, but for the number of buckets.
DEBERTA_V3 = dict(relative_attention=True, position_buckets=24, norm_rel_ebd="layer_norm",
                  share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False)

CASES = {
    "bert-mean": spec("bert", 48, 3, 80, 2),
    "bert-cls-bf16": spec("bert", 64, 4, 96, 2, "bfloat16", "cls"),
    "bert-max": spec("bert", 32, 2, 64, 2, pooling="max", normalises=False),
    "bert-weighted": spec("bert", 32, 2, 64, 1, pooling="weightedmean"),
    "bert-sqrt": spec("bert", 32, 2, 64, 1, pooling="mean_sqrt_len_tokens", normalises=False),
    "distilbert-mean": spec("distilbert", 32, 2, 72, 2),
    "roberta-cls": spec("roberta", 32, 2, 64, 2, pooling="cls"),
    "xlmr-cls": spec("xlmr", 48, 4, 64, 2, pooling="cls"),
    "modernbert-mean": spec("modernbert", 64, 4, 80, 4, local_attention=12),
    "modernbert-cls-bf16": spec("modernbert", 64, 2, 96, 4, "bfloat16", "cls", local_attention=8,
                                norm_bias=True, attention_bias=True, mlp_bias=True),
    "nomic-mean": spec("nomic", 48, 3, 80, 2),
    "gte-cls": spec("gte", 64, 4, 96, 2, pooling="cls"),
    "gemma-dense": spec("gemma", 32, 4, 80, 3, dense=[(96, "Identity"), (32, "Tanh")],
                        num_key_value_heads=2, head_dim=16, sliding_window=14,
                        sliding_window_pattern=3, use_bidirectional_attention=True),
    "bert-rank": spec("bert", 48, 3, 80, 2, labels=1),
    "bert-labels": spec("bert", 32, 2, 64, 2, labels=3),
    "xlmr-rank": spec("xlmr", 48, 4, 64, 2, labels=1),
    "modernbert-rank": spec("modernbert", 64, 4, 80, 4, labels=1, local_attention=12,
                            classifier_pooling="mean"),
    "modernbert-labels-bf16": spec("modernbert", 64, 4, 80, 4, "bfloat16", labels=4,
                                   local_attention=16),
    "gte-rank": spec("gte", 32, 2, 64, 2, labels=1),
    "distilbert-rank": spec("distilbert", 32, 2, 72, 2, labels=1),
    "qwen3-rank": spec("qwen3", 48, 4, 64, 2, labels=1, num_key_value_heads=2, head_dim=16),
    "llama-labels": spec("llama", 32, 2, 64, 2, labels=3, num_key_value_heads=1,
                         problem_type="multi_label_classification"),
    "qwen3-judge": spec("qwen3", 48, 4, 64, 2, judges=True, num_key_value_heads=2, head_dim=16),
    "qwen3-judge-untied-bf16": spec("qwen3", 64, 4, 64, 2, "bfloat16", judges=True,
                                    num_key_value_heads=2, head_dim=16, tie_word_embeddings=False,
                                    is_original_qwen3_reranker=True,
                                    classifier_from_token=["no", "yes"]),
    "mpnet-mean": spec("mpnet", 48, 3, 80, 2),
    "mpnet-labels": spec("mpnet", 32, 2, 64, 2, labels=3),
    "xlmr-xl-rank": spec("xlmr_xl", 32, 2, 64, 2, labels=1),
    "electra-rank": spec("electra", 32, 2, 64, 2, labels=1),
    "eurobert-mean": spec("eurobert", 32, 2, 64, 2, num_key_value_heads=1),
    "eurobert-rank": spec("eurobert", 32, 2, 64, 2, labels=1, num_key_value_heads=1),
    "xlmr-xl-mean": spec("xlmr_xl", 32, 2, 64, 2),
    "electra-cls": spec("electra", 32, 2, 64, 2, pooling="cls"),
    "bert-tags": spec("bert", 32, 2, 64, 2, labels=5, tags=True),
    "roberta-tags": spec("roberta", 32, 2, 64, 2, labels=5, tags=True),
    "xlmr-tags": spec("xlmr", 32, 2, 64, 2, labels=3, tags=True),
    "modernbert-tags-bf16": spec("modernbert", 64, 4, 80, 4, "bfloat16", labels=5, tags=True,
                                 local_attention=12),
    "distilbert-tag": spec("distilbert", 32, 2, 72, 2, labels=1, tags=True),
    "qwen3-tags": spec("qwen3", 48, 4, 64, 2, labels=5, tags=True, num_key_value_heads=2,
                       head_dim=16),
    "gpt2-tags": spec("gpt2", 32, 2, 64, 2, labels=4, tags=True),
    "electra-small-cls": spec("electra", 48, 3, 64, 2, pooling="cls", embedding_size=20),
    "albert-mean": spec("albert", 48, 3, 80, 3, embedding_size=24),
    "albert-rank": spec("albert", 32, 2, 64, 2, labels=1, embedding_size=24),
    "jina3-mean": spec("jina3", 48, 3, 80, 2),
    "jina3-labels": spec("jina3", 32, 2, 64, 2, labels=3),
    "t5-mean": spec("t5", 32, 3, 64, 2, dense=[(48, "Identity")], d_kv=16),
    "t5-gated-bf16": spec("t5", 32, 2, 64, 2, "bfloat16", d_kv=16,
                          feed_forward_proj="gated-gelu"),
    "deberta-mean": spec("deberta", 48, 3, 80, 2, **DEBERTA_V3),
    "deberta-rank": spec("deberta", 32, 2, 64, 2, labels=1, **DEBERTA_V3),
    "deberta-labels": spec("deberta", 32, 2, 64, 2, labels=3, relative_attention=True,
                           max_relative_positions=20, pos_att_type=["c2p"], share_att_key=True,
                           type_vocab_size=2),
    "deberta-tags": spec("deberta", 32, 2, 64, 2, labels=5, tags=True, **DEBERTA_V3),
    "mt5-mean": spec("mt5", 32, 2, 64, 2, d_kv=24),
    "data2vec-mean": spec("data2vec", 32, 2, 64, 2),
    "data2vec-rank": spec("data2vec", 32, 2, 64, 2, labels=1),
    "prelayernorm-mean": spec("prelayernorm", 32, 2, 64, 2),
    "prelayernorm-tags": spec("prelayernorm", 32, 2, 64, 2, labels=5, tags=True),
    "ernie-mean": spec("ernie", 32, 2, 64, 2),
    "ernie-rank": spec("ernie", 32, 2, 64, 2, labels=1, use_task_id=True),
    "megatron-cls": spec("megatron", 32, 2, 64, 2, pooling="cls"),
    "megatron-labels": spec("megatron", 32, 2, 64, 2, labels=3),
    "rembert-mean": spec("rembert", 48, 3, 64, 2, input_embedding_size=20),
    "rembert-rank": spec("rembert", 32, 2, 64, 2, labels=1, input_embedding_size=32),
    "roformer-mean": spec("roformer", 48, 3, 64, 2, embedding_size=20),
    "roformer-labels": spec("roformer", 32, 2, 64, 2, labels=3, hidden_act="gelu_new"),
    "roformer-tags": spec("roformer", 32, 2, 64, 2, labels=5, tags=True),
}
TAG_NAMES = ["O", "B-PER", "I-PER", "I-LOC", "MISC"]
STRATEGIES = ["none", "simple", "first", "average", "max"]
# The prompt of Qwen3-Reranker, from its card.
JUDGE_BEFORE = ("<|im_start|>system\nJudge whether the Document meets the requirements based "
                "on the Query and the Instruct provided. Note that the answer can only be "
                '"yes" or "no".<|im_end|>\n<|im_start|>user\n')
JUDGE_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
JUDGE_TASK = "Given a web search query, retrieve relevant passages that answer the query"
JUDGE_PAIRS = [(TEXTS[i], TEXTS[j]) for i, j in
               ((1, 2), (2, 1), (3, 0), (4, 5), (6, 7), (8, 9), (0, 3), (5, 4), (7, 6), (9, 8),
                (1, 4), (4, 1), (2, 6), (6, 2), (1, 8), (8, 1), (5, 9), (9, 5), (0, 0))]
JUDGE_PAIRS += [("hello", f"bad{JUDGE_BEHIND}yes")]


def context_of(case):
    return 600 if case["judges"] else 200  # the question alone has some 250 tokens


def write_tokenizer(directory, kind, context):
    """The tokenizer of tests/vectors/tokenizer; the ids of padding, beginning and end."""
    name, pad, cls, sep = KINDS[kind][1]
    made = json.loads((TOKENIZERS / name / "tokenizer.json").read_text())
    vocab = made["model"]["vocab"]
    if kind == "mpnet":  # whose padding is id 1
        for token, i in (("[UNK]", 0), ("[PAD]", 1)):
            vocab[token] = i
            next(t for t in made["added_tokens"] if t["content"] == token)["id"] = i
        made["added_tokens"].sort(key=lambda t: t["id"])
    ids = vocab if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
    ids = {**ids, **{t["content"]: t["id"] for t in made["added_tokens"]}}
    if pad not in ids:
        pad = cls = sep = next(iter(ids))
    if made.get("post_processor") is None:
        around = [{"SpecialToken": {"id": t, "type_id": 0}} for t in (cls, sep)]
        made["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [around[0], {"Sequence": {"id": "A", "type_id": 0}}, around[1]],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in {cls, sep}}}
    if kind in DECODERS and name == QWEN[0]:
        for token in ("yes", "no"):
            vocab.setdefault(token, max(ids.values()) + 1)
            ids[token] = vocab[token]
    unknown = made["model"].get("unk_token")
    if made["model"].get("unk_id") is not None:
        unknown = vocab[made["model"]["unk_id"]][0]
    made = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    (directory / "tokenizer.json").write_text(made)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad,
              **({"unk_token": unknown} if unknown else {}),
              "model_max_length": context, "cls_token": cls, "sep_token": sep}
    if kind in TYPED:
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return max(ids.values()) + 1, ids[pad], ids[cls], ids[sep]


POSITIONS_BEHIND = ("roberta", "xlmr", "camembert", "mpnet", "xlmr_xl", "data2vec",
                    "prelayernorm")  # the padding


def make_config(case, sizes):
    vocab, pad, cls, sep = sizes
    if case["kind"] == "gpt2":
        keys = dict(n_embd=case["hidden"], n_head=case["heads"], n_inner=case["mlp"],
                    n_layer=case["layers"], n_positions=200)
    elif case["kind"] == "distilbert":
        keys = dict(dim=case["hidden"], n_heads=case["heads"], hidden_dim=case["mlp"],
                    n_layers=case["layers"])
    else:
        keys = dict(hidden_size=case["hidden"], num_attention_heads=case["heads"],
                    intermediate_size=case["mlp"], num_hidden_layers=case["layers"])
    if case["kind"] in ("t5", "mt5"):
        keys["d_ff"] = keys.pop("intermediate_size")
    if case["kind"] == "electra":
        keys.update(embedding_size=case["hidden"])
    if case["kind"] == "eurobert":
        keys.update(classifier_pooling="mean")
    if case["kind"] == "modernbert":
        keys.update(cls_token_id=cls, sep_token_id=sep)
    if case["labels"]:
        keys.update(num_labels=case["labels"])
        if case["labels"] > 1:
            names = TAG_NAMES[:case["labels"]] if case["tags"] else \
                [f"label {i}" for i in range(case["labels"])]
            keys.update(id2label=dict(enumerate(names)),
                        label2id={n: i for i, n in enumerate(names)})
    # Where positions begin.
    behind = pad + 1 if case["kind"] in POSITIONS_BEHIND else 0
    keys = {**keys, "max_position_embeddings": behind + context_of(case), "vocab_size": vocab,
            "pad_token_id": pad,
            "bos_token_id": cls, "eos_token_id": sep, **case["config"]}
    name = KINDS[case["kind"]][0].removesuffix("Encoder")
    return getattr(transformers, name + "Config")(**keys)


def randomise(model, seed, dtype):
    """Weights that are not near zero, rounded to the run type: norms around 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:  # sines, which are not learned
                continue
            drawn = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1 and "bias" not in name and not name.startswith("classifier"):
                base = 0.0 if "Gemma" in type(model).__name__ else 1.0  # of 1 + w
                drawn = base + 0.2 * drawn
            else:
                drawn = drawn * (0.3 if weight.dim() == 1 else 1.2 / weight.shape[-1] ** 0.5)
            weight.copy_(drawn.to(dtype).float())


def write_model(directory, case, seed):
    """Saves the model and its tokenizer; the run type is written into config.json."""
    sizes = write_tokenizer(directory, case["kind"], context_of(case))
    config = make_config(case, sizes)
    end = "ForTokenClassification" if case["tags"] else \
        "ForSequenceClassification" if case["labels"] else \
        "ForCausalLM" if case["judges"] else "Model"
    model = getattr(transformers, KINDS[case["kind"]][0] + end)(copy.deepcopy(config)).eval()
    scale = getattr(model.get_input_embeddings(), "embed_scale", None)
    randomise(model, seed, TYPES[case["dtype"]])
    if case["dtype"] != "float32":
        model.to(TYPES[case["dtype"]])
    model.save_pretrained(directory)
    path = directory / "config.json"
    saved = json.loads(path.read_text())
    if case["config"].get("use_bidirectional_attention"):
        saved["sliding_window"] = case["config"]["sliding_window"]  # halved each time it is read
    path.write_text(json.dumps(saved, indent=1) + "\n")
    assert scale is None or case["dtype"] == "float32"


def modules_of(directory, case, seed):
    size = case["hidden"]
    modules = [Transformer(str(directory), model_kwargs={"dtype": torch.float32}),
               Pooling(size, pooling_mode=case["pooling"])]
    for i, (width, activation) in enumerate(case["dense"]):
        dense = Dense(size, width, bias=activation == "Tanh",
                      activation_function=getattr(torch.nn, activation)())
        randomise(dense, seed + 100 + i, torch.float32)
        modules.append(dense)
        size = width
    return modules + [Normalize()] * case["normalises"]


def embedding_facts(work, directory, case, seed, texts):
    model = SentenceTransformer(modules=modules_of(work, case, seed), device="cpu")
    vectors = embed(model, texts)
    model.save(str(directory), create_model_card=False)
    lower = embed(copy.deepcopy(model).to(torch.bfloat16), texts)
    return {"texts": texts, "vectors": rounded(vectors),
            "sizes": [len(model.tokenizer(t)["input_ids"]) for t in texts],
            "error": float(f"{1 - cosines(vectors, lower).min():.3g}")}


def judge_ids(tokenizer, pair):
    """The ids of a pair: its texts cannot close the question."""
    middle = f"<Instruct>: {JUDGE_TASK}\n<Query>: {pair[0]}\n<Document>: {pair[1]}"
    return [i for text, plain in ((JUDGE_BEFORE, False), (middle, True), (JUDGE_BEHIND, False))
            for i in tokenizer(text, add_special_tokens=False, split_special_tokens=plain)
            ["input_ids"]]


def judge(directory, dtype, pairs):
    """Logits of yes against no, one pair at a time."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    no, yes = tokenizer.convert_tokens_to_ids(["no", "yes"])
    with torch.no_grad():
        ends = [model(torch.tensor([judge_ids(tokenizer, p)])).logits[0, -1].float()
                for p in pairs]
    return [[float(end[yes] - end[no])] for end in ends]


def predict(directory, case, dtype, inputs, raw=False):
    """Scores of one input at a time: of a cross-encoder, or of a classifier of texts; `raw`: as the
    last layer gives them."""
    kind = {"device": "cpu", "model_kwargs": {"dtype": dtype}}
    if case["judges"]:
        scores = torch.tensor(judge(directory, dtype, inputs))
        return (scores if raw else scores.sigmoid()).tolist()
    if case["labels"] == 1:
        model = CrossEncoder(str(directory), **kind)
        more = {"activation_fn": torch.nn.Identity()} if raw else {}
        return [model.predict([i], show_progress_bar=False, convert_to_tensor=True, **more)
                .float().flatten().tolist() for i in inputs]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    each = case["config"].get("problem_type") == "multi_label_classification"
    with torch.no_grad():
        logits = [model.eval()(tokenizer(i, return_tensors="pt")["input_ids"]).logits[0].float()
                  for i in inputs]
    return [(row if raw else row.sigmoid() if each else row.softmax(-1)).tolist()
            for row in logits]


def tag(directory, dtype, texts):
    """The scores of each token, one text at a time."""
    model = transformers.AutoModelForTokenClassification.from_pretrained(directory, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    with torch.no_grad():
        return [model.eval()(tokenizer(t, return_tensors="pt")["input_ids"]).logits[0].float()
                for t in texts]


def entities(directory, texts):
    """What the pipeline finds in each text, by strategy."""
    made = transformers.pipeline("token-classification", str(directory), dtype=torch.float32,
                                 device="cpu")
    return {strategy: [[{k: float(v) if k == "score" else v for k, v in found.items()}
                        for found in made(text, aggregation_strategy=strategy)]
                       for text in texts] for strategy in STRATEGIES}


def tag_facts(work, directory, texts):
    shutil.copytree(work, directory, dirs_exist_ok=True)
    single = len(json.loads((work / "config.json").read_text()).get("id2label") or "--") == 1
    texts = [t for t in texts if t.strip()]
    raw = tag(directory, torch.float32, texts)
    lower = tag(directory, torch.bfloat16, texts)

    def likely(scores):
        return scores.sigmoid() if single else scores.softmax(-1)

    worst = max(float((likely(a) - likely(b)).abs().max()) for a, b in zip(raw, lower))
    return {"texts": texts, "tags": [rounded(likely(r).tolist()) for r in raw],
            "entities": {} if single else entities(directory, texts),
            "sizes": [len(r) for r in raw], "error": float(f"{worst:.3g}")}


def score_facts(work, directory, case, texts, pairs):
    shutil.copytree(work, directory, dirs_exist_ok=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    paired = case["labels"] == 1 or case["judges"]
    inputs = [tuple(p) for p in pairs] if paired else texts
    scores = predict(directory, case, torch.float32, inputs)
    lower = predict(directory, case, torch.bfloat16, inputs)
    worst = max(abs(a - b) for x, y in zip(scores, lower) for a, b in zip(x, y))
    sizes = [len(judge_ids(tokenizer, i) if case["judges"] else
                 tokenizer(*i)["input_ids"] if paired else tokenizer(i)["input_ids"])
             for i in inputs]
    raw = rounded(predict(directory, case, torch.float32, inputs, raw=True))
    facts = {"sizes": sizes, "error": float(f"{worst:.3g}")}
    if paired:
        return {"pairs": inputs, "scores": [s[0] for s in rounded(scores)],
                "raw": [s[0] for s in raw], **facts}
    return {"texts": inputs, "probs": rounded(scores), "raw": raw, **facts}


def write_case(out, name, case, seed, texts=TEXTS, pairs=None):
    if pairs is None:
        pairs = JUDGE_PAIRS if case["judges"] else PAIRS
    directory = Path(out) / name
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        write_model(Path(work), case, seed)
        kept = json.loads((Path(work) / "config.json").read_text())
        if case["tags"]:
            facts = tag_facts(Path(work), directory, texts)
        elif case["labels"] or case["judges"]:
            facts = score_facts(Path(work), directory, case, texts, pairs)
        else:
            facts = embedding_facts(Path(work), directory, case, seed, texts)
            if case["dtype"] != "float32":
                shutil.copy(Path(work) / "model.safetensors", directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(kept, indent=1) + "\n")
        write_tokenizer(directory, case["kind"], context_of(case))  # in one line
    facts = {"dtype": case["dtype"], **facts}
    (directory / "expected.json").write_text(json.dumps(facts) + "\n")
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/vectors/encoders")
    parser.add_argument("--seed", type=int, default=20265)
    parser.add_argument("--only")
    options = parser.parse_args()
    for i, (name, case) in enumerate(CASES.items()):
        if options.only and not name.startswith(options.only):
            continue
        shutil.rmtree(options.out / name, ignore_errors=True)
        facts = write_case(options.out, name, case, options.seed + i)
        print(f"{name}: up to {max(facts['sizes'])} tokens, bf16 error {facts['error']}")


if __name__ == "__main__":
    main()
