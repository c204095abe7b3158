#!/usr/bin/env python3
"""Writes tests/vectors/eagle: heads of EAGLE-3 and the models that they draft for.

    pip install torch transformers numpy safetensors     (CPU builds will do)
    scripts/vectors/eagle.py [--out DIR] [--seed N]

A case NAME is NAME-target/config.json, a model of transformers with the dummy weights
(engine/model/weights/dummy.h) of the seed, and NAME/, the files of the head with random weights
under the names of published ones, and expected.json. The head is put together here, as vLLM and
SGLang (llama_eagle3.py) read it: with rows of the model before three of its layers and e the
embedding of token p + 1,

    g_p = fc [rows]     a = [input_layernorm(e); hidden_norm(g_p)]
    z_p = r_p + self_attn(a)_p, r_p = g_p or, with norm_before_residual, hidden_norm(g_p)
    y_p = z_p + mlp(post_attention_layernorm(z_p))     logits = lm_head(norm(y_p))

where logit i is that of token i + d2t[i]; for one token more y_p stands in the place of g_p.
expected.json has what scripts/vectors/mtp.py writes; other logits are null.

The case `right` has a model whose next token is a function of the last one, and a head that attends
to the embedding of its token alone: it is always right.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from model_cases import llama_like
from model_weights import fill
from models import build

PROMPT = 24
WIDE = {"vocab_size": 384, "max_position_embeddings": 1024}
TARGETS = {
    "llama": llama_like("LlamaForCausalLM", "llama", 48, 4, 2, 64, num_hidden_layers=8,
                        rope_theta=1e4, **WIDE),
    "qwen3": llama_like("Qwen3ForCausalLM", "qwen3", 32, 2, 2, 48, num_hidden_layers=6,
                        head_dim=16, rope_theta=1e6, **WIDE),
}
HEADS = {
    "llama": {"draft_vocab_size": 100, "num_attention_heads": 2, "num_key_value_heads": 1,
              "head_dim": 24, "intermediate_size": 80},
    "qwen3": {"draft_vocab_size": 384, "num_attention_heads": 2, "num_key_value_heads": 2,
              "head_dim": 16, "intermediate_size": 40, "norm_before_residual": True,
              "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 5],
                               "use_aux_hidden_state": True}},
}


def head_config(target, more):
    kept = ("hidden_size", "vocab_size", "rope_theta", "hidden_act")
    return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
            **{key: target[key] for key in kept}, "num_hidden_layers": 1, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 64, "tie_word_embeddings": False,
            "torch_dtype": target.get("torch_dtype", target.get("dtype")), **more}


def shapes(config):
    hidden, width = config["hidden_size"], config["intermediate_size"]
    dim = config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    return {"fc": (hidden, 3 * hidden), "norm": (hidden,),
            "lm_head": (config["draft_vocab_size"], hidden),
            "midlayer.input_layernorm": (hidden,), "midlayer.hidden_norm": (hidden,),
            "midlayer.post_attention_layernorm": (hidden,),
            "midlayer.self_attn.q_proj": (q, 2 * hidden),
            "midlayer.self_attn.k_proj": (kv, 2 * hidden),
            "midlayer.self_attn.v_proj": (kv, 2 * hidden),
            "midlayer.self_attn.o_proj": (hidden, q), "midlayer.mlp.gate_proj": (width, hidden),
            "midlayer.mlp.up_proj": (width, hidden), "midlayer.mlp.down_proj": (hidden, width)}


def random_head(config, rng):
    """Tensors of the files, fp32."""
    made = {}
    for name, shape in shapes(config).items():
        numbers = rng.standard_normal(shape) / np.sqrt(shape[-1])
        made[name + ".weight"] = torch.from_numpy(
            (1 + 0.1 * rng.standard_normal(shape) if len(shape) == 1 else numbers)).float()
    return made


def vocabulary(tokens, size):
    """d2t and t2d of the sorted tokens."""
    held = torch.zeros(size, dtype=torch.bool)
    held[tokens] = True
    return {"d2t": tokens - torch.arange(len(tokens)), "t2d": held}


class Head:
    """All positions at once, of the tensors of the files."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors
        made = type("Config", (), {**config, "rope_parameters": {
            "rope_type": "default", "rope_theta": config["rope_theta"]}, "rope_scaling": None})
        self.rotary = LlamaRotaryEmbedding(made)

    def linear(self, x, name):
        return x @ self.tensors[name + ".weight"].T

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return self.tensors[name + ".weight"] * (x * scale)

    def attention(self, a):
        count, heads = len(a), self.config["num_attention_heads"]
        parts = [self.linear(a, f"midlayer.self_attn.{x}_proj").reshape(count, -1,
                 self.config["head_dim"]).transpose(0, 1) for x in "qkv"]
        cos, sin = self.rotary(a, torch.arange(count)[None])
        q, k = apply_rotary_pos_emb(parts[0][None], parts[1][None], cos, sin)
        group = heads // self.config["num_key_value_heads"]
        k, v = (x.repeat_interleave(group, 0) for x in (k[0], parts[2]))
        scores = q[0] @ k.transpose(1, 2) / self.config["head_dim"] ** 0.5
        seen = torch.ones(count, count, dtype=torch.bool).tril()
        mixed = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
        return self.linear(mixed.transpose(0, 1).reshape(count, -1), "midlayer.self_attn.o_proj")

    def outputs(self, g, embedded):
        normed = self.norm(g, "midlayer.hidden_norm")
        residual = normed if self.config.get("norm_before_residual") else g
        a = torch.cat([self.norm(embedded, "midlayer.input_layernorm"), normed], dim=-1)
        z = residual + self.attention(a)
        x = self.norm(z, "midlayer.post_attention_layernorm")
        gate = torch.nn.functional.silu(self.linear(x, "midlayer.mlp.gate_proj"))
        inner = gate * self.linear(x, "midlayer.mlp.up_proj")
        return z + self.linear(inner, "midlayer.mlp.down_proj")

    def logits(self, outputs):
        """Of the target's tokens; -inf where there is none."""
        small = self.linear(self.norm(outputs, "norm"), "lm_head")
        made = torch.full((len(outputs), self.config["vocab_size"]), -torch.inf)
        tokens = torch.arange(small.shape[1]) + self.tensors.get("d2t", 0)
        made[:, tokens] = small
        return made


def write_json(path, value, **more):
    path.write_text(json.dumps(value, **more) + "\n")


def save(directory, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)


def finite(row):
    return [None if x == -torch.inf else float(f"{x:.7g}") for x in row.tolist()]


def write_case(out, name, seed, rng):
    target = TARGETS[name]
    config = head_config(target, HEADS[name])
    directory, targets = out / name, out / f"{name}-target"
    for path, value in ((directory, config), (targets, target)):
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", value, indent=1)
    model = build(targets, target)
    fill(model, seed, torch.float32)
    tensors = random_head(config, rng)
    if config["draft_vocab_size"] < config["vocab_size"]:
        tokens = rng.choice(config["vocab_size"], config["draft_vocab_size"], replace=False)
        tensors |= vocabulary(torch.from_numpy(np.sort(tokens)), config["vocab_size"])
    save(directory, tensors)
    head, count = Head(config, tensors), target["num_hidden_layers"]
    ids = config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
    before = [i + 1 for i in ids] if ids else [2, count // 2, count - 3]
    prompt = [int(x) for x in rng.integers(3, config["vocab_size"], PROMPT)]
    with torch.no_grad():
        # rows before each layer; the last one of transformers is normed
        kept = {}
        for i in set(before) - {count}:
            model.model.layers[i].register_forward_pre_hook(
                lambda module, given, i=i: kept.__setitem__(i, given[0][0]))
        model.model.layers[-1].register_forward_hook(
            lambda module, given, made: kept.__setitem__(
                count, made[0] if torch.is_tensor(made) else made[0][0]))
        model.model(input_ids=torch.tensor([prompt]), use_cache=False)
        rows = torch.cat([kept[i] for i in before], dim=-1)
        g = head.linear(rows, "fc")[:-1]
        embedded = model.model.embed_tokens(torch.tensor(prompt[1:]))
        outputs = head.outputs(g, embedded)
        logits = head.logits(outputs)
        drafted = int(logits[-1].argmax())
        embedded = torch.cat([embedded, model.model.embed_tokens(torch.tensor([drafted]))])
        behind = head.logits(head.outputs(torch.cat([g, outputs[-1:]]), embedded))[-1]
    positions = [0, 1, PROMPT // 2, PROMPT - 2]
    write_json(directory / "expected.json", {
        "seed": seed, "prompt": prompt, "positions": positions,
        "first": [finite(logits[p]) for p in positions], "drafted": drafted,
        "second": finite(behind)})


def write_right(out, seed):
    """96 tokens, of which 64 stand on a circle; the others lead to it. The head drafts those 64."""
    vocab, size, layers = 96, 64, 4
    target = llama_like("LlamaForCausalLM", "llama", vocab, 2, 2, 32, "bfloat16",
                        num_hidden_layers=layers, rope_theta=1e4, **{**WIDE, "vocab_size": vocab})
    target = {**target, "eos_token_id": None}
    config = head_config(target, {"draft_vocab_size": size, "num_attention_heads": 1,
                                  "num_key_value_heads": 1, "head_dim": vocab,
                                  "intermediate_size": 8, "norm_before_residual": True})
    directory, targets = out / "right", out / "right-target"
    for path, value in ((directory, config), (targets, target)):
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", value, indent=1)
    torch.manual_seed(seed)
    tokens = torch.randperm(vocab)[:size].sort().values
    circle = tokens[torch.randperm(size)]
    following = circle[torch.arange(vocab) % size]
    following[circle] = circle.roll(-1)
    embedding = torch.linalg.qr(torch.randn(vocab, vocab))[0]
    head = torch.zeros(vocab, vocab)
    for token, next_token in enumerate(following.tolist()):
        head[next_token] += embedding[token]
    model = build(targets, target)
    tensors = {name: torch.randn(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = torch.zeros_like(tensors[name])
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones_like(tensors[name])
    tensors |= {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    save(targets, {name: tensor.bfloat16() for name, tensor in tensors.items()})
    made = {name + ".weight": torch.zeros(shape) for name, shape in shapes(config).items()}
    for part in "qkv":  # of the normed embedding: unit vectors times the root of 96
        made[f"midlayer.self_attn.{part}_proj.weight"][:, :vocab] = 3 * torch.eye(vocab)
    made |= {"midlayer.self_attn.o_proj.weight": torch.eye(vocab),
             "midlayer.input_layernorm.weight": torch.ones(vocab), "norm.weight": torch.ones(vocab),
             "lm_head.weight": head[tokens]}
    save(directory, {name: tensor.bfloat16() for name, tensor in made.items()} |
         vocabulary(tokens, vocab))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/vectors/eagle")
    parser.add_argument("--seed", type=int, default=37)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for i, name in enumerate(TARGETS):
        write_case(options.out, name, options.seed + i, np.random.default_rng([options.seed, i]))
    write_right(options.out, options.seed)


if __name__ == "__main__":
    main()
