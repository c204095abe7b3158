"""The network of the demo model: a Llama decoder in plain torch, written for training on a CPU.

Owns the shapes (SHAPE) and the forward pass. Parameter names are those of Hugging Face's
LlamaForCausalLM, so that export.py writes the state dict as it is. No cache and no sampling live
here: evaluate.py runs the exported model with transformers.
"""

import torch
import torch.nn.functional as F
from torch import nn

SHAPE = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "rms_norm_eps": 1e-5,
}


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32 as transformers does it."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x32 * self.weight).to(x.dtype)


def rope_tables(length, shape):
    """cos and sin of (length, head_dim) in the rotate-half order of Llama checkpoints."""
    dim = shape["head_dim"]
    inverse = shape["rope_theta"] ** (-torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(length).float(), inverse)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotary position embedding of x (batch, heads, tokens, head_dim)."""
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention over whole rows."""

    def __init__(self, shape):
        super().__init__()
        self.heads = shape["num_attention_heads"]
        self.kv_heads = shape["num_key_value_heads"]
        self.dim = shape["head_dim"]
        hidden = shape["hidden_size"]
        self.q_proj = nn.Linear(hidden, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        rows, tokens, _ = x.shape
        q = self.q_proj(x).view(rows, tokens, self.heads, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(rows, tokens, self.kv_heads, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(rows, tokens, self.kv_heads, self.dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k = k.repeat_interleave(group, dim=1)
        v = v.repeat_interleave(group, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(rows, tokens, -1))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, shape):
        super().__init__()
        hidden, inner = shape["hidden_size"], shape["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, shape):
        super().__init__()
        eps = shape["rms_norm_eps"]
        self.input_layernorm = RMSNorm(shape["hidden_size"], eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape["hidden_size"], eps)
        self.mlp = MLP(shape)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and last norm: ids (rows, tokens) -> hidden (rows, tokens, hidden)."""

    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape["vocab_size"], shape["hidden_size"])
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape["num_hidden_layers"]))
        self.norm = RMSNorm(shape["hidden_size"], shape["rms_norm_eps"])

    def forward(self, ids, cos, sin):
        x = self.embed_tokens(ids).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Network(nn.Module):
    """The decoder with its tied output head and the training loss."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = (2 * shape["num_hidden_layers"]) ** -0.5 if deep else 1.0
                nn.init.normal_(weight, std=0.03 * scale)

    def forward(self, ids, labels, cos, sin):
        """Mean cross entropy of labels (rows, tokens), those below zero left out."""
        hidden = self.model(ids, cos, sin)
        logits = F.linear(hidden.flatten(0, 1), self.model.embed_tokens.weight)
        return F.cross_entropy(logits.float(), labels.flatten(), ignore_index=-100)
