#!/usr/bin/env python3
"""Writes tests/vectors/crossed: tiny random models of an encoder and a decoder, as transformers
runs them.

    pip install torch transformers     (CPU builds will do)
    scripts/vectors/crossed.py [--out DIR] [--seed N] [--only PREFIX]

One directory a case, as transformers saves it, weights included (they are tens of kilobytes), with
a tokenizer of tests/vectors/tokenizer. expected.json has, of float32 runs,

  sources   ids that the encoder reads, and texts that become such ids
  rows      what the encoder makes of the first source
  start     the first ids of the decoder
  greedy    of each source: ids behind these, the log probability of each, and by how much the
            largest logit leads
  beams     settings of beam searches over the first source; ids and score of each result
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
TOKENIZERS = ROOT / "tests/vectors/tokenizer"
FILE = TOKENIZERS / "xlmr/tokenizer.json"
KEPT = {token["content"]: token["id"] for token in json.loads(FILE.read_text())["added_tokens"]}
BOS, PAD, EOS = (KEPT[token] for token in ("<s>", "<pad>", "</s>"))
TEXTS = ["The quick brown fox jumps over the lazy dog.", "Wie geht es dir heute?", "Ja."]
NEW_TOKENS = 24
BEAMS = [dict(num_beams=4, length_penalty=1.0, early_stopping=False),
         dict(num_beams=3, length_penalty=0.0, early_stopping=True),
         dict(num_beams=4, length_penalty=2.0, early_stopping=True)]


def t5(name="T5", **more):
    return name, dict(d_model=32, d_kv=12, d_ff=72, num_layers=3, num_decoder_layers=2,
                      num_heads=4, decoder_start_token_id=PAD, **more)


def bart(name="Bart", **more):
    more.setdefault("decoder_start_token_id", EOS)
    return name, dict(d_model=32, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
                      decoder_attention_heads=2, encoder_ffn_dim=72, decoder_ffn_dim=56,
                      max_position_embeddings=96, bos_token_id=BOS, forced_eos_token_id=None,
                      **more)


CASES = {
    "t5": t5(feed_forward_proj="relu"),
    "t5-gated-untied": t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mt5": t5("MT5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "bart": bart(activation_function="gelu", scale_embedding=False, forced_bos_token_id=BOS),
    "mbart": bart("MBart", activation_function="relu", scale_embedding=True),
    "marian": bart("Marian", activation_function="swish", scale_embedding=True,
                   decoder_start_token_id=PAD),
    # whose positions begin behind the padding, which must stand in their table
    "m2m100": bart("M2M100", activation_function="relu", scale_embedding=True, pad_token_id=95),
    "pegasus": bart("Pegasus", activation_function="gelu", scale_embedding=True,
                    decoder_start_token_id=PAD),
}
CLASSES = {"Marian": "MarianMTModel"}


def draw(model, rng):
    """Weights of about the size that keeps scores and logits apart: where embeddings are multiplied
    by the root of their width, or a decoder begins with the end of a text, smaller ones, or each
    token would follow itself."""
    scales = getattr(model.config, "scale_embedding", False)
    begins = model.config.decoder_start_token_id == EOS
    for name, value in model.named_parameters():
        if "embed_positions" in name and not value.requires_grad:
            continue
        noise = torch.randn(value.shape, generator=rng)
        with torch.no_grad():
            if value.dim() == 1:
                is_scale = "norm" in name and name.endswith("weight")
                value.copy_((1.0 if is_scale else 0.0) + 0.2 * noise)
            elif "embed" in name or "shared" in name or "relative" in name:
                value.copy_((0.2 if scales else 0.6) * noise)
            else:
                value.copy_(noise * 1.3 / value.shape[1] ** 0.5)
    with torch.no_grad():
        shared = model.get_input_embeddings().weight
        shared[EOS] *= 0.6 if begins else 2.0  # so that some searches end
        shared[PAD] *= 0.5
        bias = getattr(model, "final_logits_bias", None)
        if bias is not None:
            bias.copy_(0.5 * torch.randn(bias.shape, generator=rng))


def make(case, vocab, seed):
    name, keys = case
    config = getattr(transformers, name + "Config")(
        vocab_size=vocab, eos_token_id=EOS, **{"pad_token_id": PAD, **keys})
    kind = CLASSES.get(name, name + "ForConditionalGeneration")
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(config).eval().float()
    draw(model, torch.Generator().manual_seed(seed))
    model.tie_weights()
    made = dict(decoder_start_token_id=keys["decoder_start_token_id"], eos_token_id=EOS,
                pad_token_id=config.pad_token_id, max_length=64)
    if keys.get("forced_bos_token_id") is not None:
        made["forced_bos_token_id"] = keys["forced_bos_token_id"]
    if keys.get("tie_word_embeddings") is False:  # transformers 5 ties T5 whatever the key says
        model.config.tie_word_embeddings = False
        rng = torch.Generator().manual_seed(seed + 1)
        head = torch.randn(vocab, config.d_model, generator=rng)
        model.lm_head.weight = torch.nn.Parameter(head * 0.5)
    model.generation_config = transformers.GenerationConfig(**made)
    return model


def greedy(model, source, start, forced):
    """Ids behind the start, with what the model says of each."""
    ids = [start] + ([forced] if forced is not None else [])
    first = len(ids)
    made = dict(ids=[], logprobs=[], gaps=[])
    source = torch.tensor([source])
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            logits = model(input_ids=source, attention_mask=torch.ones_like(source),
                           decoder_input_ids=torch.tensor([ids])).logits[0, -1].double()
        best = logits.topk(2)
        chosen = int(best.indices[0])
        made["ids"].append(chosen)
        made["logprobs"].append(round(float(logits.log_softmax(-1)[chosen]), 6))
        made["gaps"].append(round(float(best.values[0] - best.values[1]), 6))
        ids.append(chosen)
        if chosen == EOS:
            break
    assert ids[first:] == made["ids"]
    return made


def search(model, source, settings):
    source = torch.tensor([source])
    new = NEW_TOKENS + (model.generation_config.forced_bos_token_id is not None)
    with torch.no_grad():
        out = model.generate(input_ids=source, attention_mask=torch.ones_like(source),
                             max_new_tokens=new, do_sample=False,
                             num_return_sequences=settings["num_beams"],
                             return_dict_in_generate=True, output_scores=True, **settings)
    found = []
    for ids, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        while len(ids) > 1 and ids[-1] == model.config.pad_token_id:
            ids.pop()
        found.append(dict(ids=ids, score=round(score, 6)))
    return dict(settings=settings, found=found)


def write(out, name, case, seed):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(FILE), bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>")
    model = make(case, len(tokenizer), seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sources = [tokenizer(text)["input_ids"] for text in TEXTS]
    start, forced = model.generation_config.decoder_start_token_id, None
    forced = model.generation_config.forced_bos_token_id
    first = torch.tensor([sources[0]])
    with torch.no_grad():
        rows = model.get_encoder()(input_ids=first, attention_mask=torch.ones_like(first))[0][0]
    expected = dict(texts=TEXTS, sources=sources,
                    rows=[[round(v, 6) for v in row] for row in rows.tolist()],
                    start=[start] + ([forced] if forced is not None else []),
                    greedy=[greedy(model, source, start, forced) for source in sources],
                    beams=[search(model, sources[0], settings) for settings in BEAMS])
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print(name, [len(g["ids"]) for g in expected["greedy"]],
          [len(f["ids"]) for b in expected["beams"] for f in b["found"]], file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/vectors/crossed")
    parser.add_argument("--seed", type=int, default=36)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for i, (name, case) in enumerate(CASES.items()):
        if name.startswith(options.only):
            write(options.out, name, case, options.seed + i)


if __name__ == "__main__":
    main()
