#!/usr/bin/env python3
"""Writes tests/vectors/mtp: models with a layer that predicts the token after the next one.

    pip install torch transformers numpy safetensors     (CPU builds will do)
    scripts/vectors/mtp.py [--out DIR] [--seed N]

A case is config.json and expected.json. Weights are the dummy ones (engine/model/weights/dummy.h)
of the seed. The decoder layers are those of transformers, which has no predicting layer; that one
is put together here from one decoder layer more, as vLLM (deepseek_mtp.py, glm4_moe_mtp.py,
qwen3_next_mtp.py, qwen3_5_mtp.py) reads it from checkpoints: with h_p behind the last norm of the
model and e the embedding of token p + 1,

    x_p = eh_proj [enorm(e); hnorm(h_p)]     y_p = layer(x)_p     logits = lm_head(norm(y_p))

and for one token more y_p in the place of h_p. Where the layer stands behind the others e is zero
at position 0. That of Qwen has names of its own, always has attention, its norms are (1 + w), and
norm(y_p) takes the place of h_p. expected.json has

    seed, prompt      token ids
    first             logits of the token behind the prompt's next one, at some positions
    second            the drafted id at the last position, and the logits of the one behind it

The cases `right` and `right-qwen3-5` have weights of their own: every layer adds nothing, so the
next token is a function of the last one, and the predicting layer looks at the embedding alone: it
is always right.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
from safetensors.torch import save_file

from model_cases import deepseek_v3, glm4_moe, glm4_moe_lite
from model_weights import fill, values
from models import build, rounded
from state_cases import qwen3_5, qwen3_5_moe, qwen3_next

PROMPT = 24
WIDE = {"vocab_size": 384, "max_position_embeddings": 1024}
STATES = {**WIDE, "num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]}
CASES = {
    "glm4-moe": glm4_moe(48, 2, 1, 64, n_routed_experts=4, num_hidden_layers=2,
                         first_k_dense_replace=1, **WIDE),
    "deepseek-v3": deepseek_v3(48, 2, 64, n_group=1, topk_group=1, n_routed_experts=4,
                               num_hidden_layers=2, first_k_dense_replace=1, **WIDE),
    "glm4-moe-lite": glm4_moe_lite(48, 2, 64, n_routed_experts=4, num_hidden_layers=2, **WIDE),
    "qwen3-next": qwen3_next(48, 4, 2, 64, **STATES),
    "qwen3-5": qwen3_5(48, 4, 2, 64, mtp_num_hidden_layers=1, **STATES),
    "qwen3-5-moe": qwen3_5_moe(48, 2, 1, 64, mtp_num_hidden_layers=1, **STATES),
}


def is_apart(config):
    return config["model_type"].startswith("qwen3")


class Predictor:
    """The layer behind the last one of a model that was built with one layer too many."""

    def __init__(self, model, layer, seed, apart):
        hidden = model.config.hidden_size
        names = {"enorm": f"layers.{layer}.enorm", "hnorm": f"layers.{layer}.hnorm",
                 "eh_proj": f"layers.{layer}.eh_proj", "norm": f"layers.{layer}.shared_head.norm"}
        if apart:
            names = {"enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden",
                     "eh_proj": "mtp.fc", "norm": "mtp.norm"}
        self.named = {part: torch.from_numpy(
            values(name + ".weight", (hidden, 2 * hidden), 2 * hidden, seed) if part == "eh_proj"
            else values(name + ".weight", (hidden,), 0, seed, apart))
            for part, name in names.items()}
        self.apart, self.model, self.eps = apart, model, model.config.rms_norm_eps
        self.last = model.model.layers[layer:]
        model.model.layers = model.model.layers[:layer]

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.named[name] + (1 if self.apart else 0)) * (x * scale)

    def hidden(self, ids):
        """Rows behind the last norm."""
        return self.model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    def inputs(self, hidden, following, first=0):
        """x for rows at positions first.. and the token behind each."""
        embedded = self.model.model.embed_tokens(torch.tensor(following))
        if first == 0 and not self.apart:
            embedded = torch.cat([torch.zeros_like(embedded[:1]), embedded[1:]])
        both = torch.cat([self.norm(embedded, "enorm"), self.norm(hidden, "hnorm")], dim=-1)
        return both @ self.named["eh_proj"].T

    def outputs(self, inputs):
        """What takes the place of h, by the decoder layer of transformers over all of them."""
        core, layers, norm = self.model.model, self.model.model.layers, self.model.model.norm
        types = getattr(core.config, "layer_types", None)
        core.layers, core.norm = self.last, torch.nn.Identity()
        if self.apart:  # transformers takes the kind of a layer by its place
            core.config.layer_types = ["full_attention"] * len(types)
        made = core(inputs_embeds=inputs[None], use_cache=False).last_hidden_state[0]
        core.layers, core.norm = layers, norm
        if self.apart:
            core.config.layer_types = types
        return self.norm(made, "norm") if self.apart else made

    def logits(self, outputs):
        return self.model.lm_head(outputs if self.apart else self.norm(outputs, "norm"))


def expected(config, directory, seed, rng):
    layer, apart = config["num_hidden_layers"], is_apart(config)
    longer = {**config, "num_hidden_layers": layer + 1}
    if apart:
        longer["layer_types"] = config["layer_types"] + ["full_attention"]
    else:
        config = {**config, "num_nextn_predict_layers": 1}
    (directory / "config.json").write_text(json.dumps(longer))
    model = build(directory, longer)
    at = f"layers.{layer}."
    fill(model, seed, torch.float32,
         lambda name: name.replace(at, "mtp.layers.0.") if apart else name)
    predictor = Predictor(model, layer, seed, apart)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    prompt = [int(x) for x in rng.integers(3, config["vocab_size"], PROMPT)]
    with torch.no_grad():
        hidden = predictor.hidden(prompt)
        following = prompt[1:]
        inputs = predictor.inputs(hidden[:-1], following)
        outputs = predictor.outputs(inputs)
        logits = predictor.logits(outputs)
        drafted = int(logits[-1].argmax())
        # the token behind the draft: the layer again, on its own output
        more = predictor.inputs(outputs[-1:], [drafted], first=PROMPT - 1)
        behind = predictor.logits(predictor.outputs(torch.cat([inputs, more])))[-1]
    positions = [0, 1, PROMPT // 2, PROMPT - 2]
    return {"seed": seed, "prompt": prompt, "positions": positions,
            "first": [rounded(logits[p].numpy()) for p in positions],
            "drafted": drafted, "second": rounded(behind.numpy())}


def circle_of(vocab, hidden, seed):
    """Embeddings point anywhere, the head turns each into the next token of one long circle."""
    torch.manual_seed(seed)
    circle = torch.randperm(vocab)
    following = torch.empty_like(circle)
    following[circle] = circle.roll(-1)
    embedding = torch.linalg.qr(torch.randn(hidden, hidden))[0][:vocab]
    head = torch.empty_like(embedding)
    head[following] = embedding
    return embedding, head


def save(directory, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)


def mlp(prefix, width, hidden):
    return {prefix + "gate_proj.weight": torch.randn(width, hidden),
            prefix + "up_proj.weight": torch.randn(width, hidden),
            prefix + "down_proj.weight": torch.zeros(hidden, width)}


def write_right(directory, seed):
    vocab, hidden, heads, dim, layers = 64, 64, 2, 16, 2
    config = glm4_moe(hidden, heads, heads, 32, n_routed_experts=2, num_experts_per_tok=1,
                      moe_intermediate_size=16, num_hidden_layers=layers, first_k_dense_replace=1,
                      head_dim=dim, **{**WIDE, "vocab_size": vocab})
    config = {**config, "num_nextn_predict_layers": 1, "eos_token_id": None}
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    embedding, head = circle_of(vocab, hidden, seed)
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head,
               "model.norm.weight": torch.ones(hidden)}

    for i in range(layers + 1):
        at = f"model.layers.{i}."
        tensors |= {at + name + ".weight": torch.ones(hidden)
                    for name in ("input_layernorm", "post_attention_layernorm")}
        for name in ("q_proj", "k_proj", "v_proj"):
            tensors[f"{at}self_attn.{name}.weight"] = torch.randn(heads * dim, hidden)
        tensors[at + "self_attn.o_proj.weight"] = torch.zeros(hidden, heads * dim)
        if i < 1:
            tensors |= mlp(at + "mlp.", 32, hidden)
            continue
        tensors[at + "mlp.gate.weight"] = torch.randn(2, hidden)
        tensors[at + "mlp.gate.e_score_correction_bias"] = torch.zeros(2)
        for part in ("experts.0.", "experts.1.", "shared_experts."):
            tensors |= mlp(f"{at}mlp.{part}", 16, hidden)
    at = f"model.layers.{layers}."
    tensors |= {at + name + ".weight": torch.ones(hidden)
                for name in ("enorm", "hnorm", "shared_head.norm")}
    tensors[at + "eh_proj.weight"] = torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], 1)
    tensors[at + "shared_head.head.weight"] = head.clone()
    tensors[at + "embed_tokens.weight"] = embedding.clone()
    save(directory, tensors)


def write_right_apart(directory, seed):
    """The same as a model with a state in one of two layers, and norms of (1 + 0)."""
    vocab, hidden, heads, dim = 64, 64, 2, 16
    config = qwen3_5(hidden, heads, heads, 32, **{
        **STATES, "vocab_size": vocab, "head_dim": dim, "mtp_num_hidden_layers": 1,
        "eos_token_id": None})
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    model = build(directory, config)
    embedding, head = circle_of(vocab, hidden, seed)
    tensors = {name: torch.randn(tensor.shape) for name, tensor in model.state_dict().items()}
    tensors |= {f"mtp.layers.0.{name.split('layers.0.')[1]}": torch.randn(tensor.shape)
                for name, tensor in tensors.items() if "layers.0." in name}
    tensors |= {"mtp." + name: torch.zeros(hidden)
                for name in ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")}
    tensors |= {"mtp.norm.weight": torch.zeros(hidden), "mtp.fc.weight": torch.cat(
        [torch.eye(hidden), torch.zeros(hidden, hidden)], 1)}
    for name in tensors:
        if name.endswith(("norm.weight", "o_proj.weight", "out_proj.weight", "down_proj.weight")):
            tensors[name] = torch.zeros_like(tensors[name])
    save(directory, tensors | {"model.embed_tokens.weight": embedding, "lm_head.weight": head})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/vectors/mtp")
    parser.add_argument("--seed", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for i, (name, config) in enumerate(CASES.items()):
        directory = options.out / name
        directory.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([options.seed, i])
        facts = expected(config, directory, options.seed + i, rng)
        (directory / "expected.json").write_text(json.dumps(facts) + "\n")
    for name, write in (("right", write_right), ("right-qwen3-5", write_right_apart)):
        directory = options.out / name
        directory.mkdir(parents=True, exist_ok=True)
        write(directory, options.seed)


if __name__ == "__main__":
    main()
