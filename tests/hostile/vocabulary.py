"""A model directory with a large vocabulary, made from a seed.

Masks, grammars and tokenising cost more the more tokens there are, so hostile requests are tried
on a vocabulary of today's size. The tokenizer is a byte-level BPE: 256 bytes, then merges of two
tokens each, letters drawn by their frequency in English so that prefixes are shared as in a real
one. The model itself is one small layer with dummy weights: a step takes next to no time, and what
a request costs beside it is seen at once."""

import json
import random
from pathlib import Path

LETTERS = ("eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhhhrrrrrr"
           "ddddllllcccuuummmwwff")
OTHERS = "gypbvkjxqz0123456789.,:;'\"!?()[]{}<>-_/=+*&%$#@ETAOISNHRDLCU"


def byte_symbols():
    """The character that stands for each byte in a byte-level BPE (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return ({byte: chr(byte) for byte in plain}
            | {byte: chr(256 + i) for i, byte in enumerate(others)})


def pieces(count, seed):
    """`count` tokens of two characters or more, each with the merge that makes it."""
    draw = random.Random(seed)
    known = {symbol: 0 for symbol in byte_symbols().values()}
    longer, merges = [], []
    while len(merges) < count:
        if longer and draw.random() < 0.7:
            left = draw.choice(longer)
        else:
            left = "Ġ" if draw.random() < 0.4 else draw.choice(LETTERS + OTHERS)
        right = draw.choice(LETTERS if draw.random() < 0.85 else OTHERS)
        piece = left + right
        if piece in known or len(piece) > 14:
            continue
        known[piece] = 1
        longer.append(piece)
        merges.append((left, right))
    return merges


def tokenizer(size, seed=1):
    """tokenizer.json of `size` tokens; the last two are <|end|> and <|pad|>."""
    symbols = sorted(byte_symbols().values())
    merges = pieces(size - 256 - 2, seed)
    tokens = symbols + [left + right for left, right in merges]
    special = [{"id": size - 2 + i, "content": name, "special": True, "single_word": False,
                "lstrip": False, "rstrip": False, "normalized": False}
               for i, name in enumerate(("<|end|>", "<|pad|>"))]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": None, "pre_tokenizer": bytes_, "post_processor": None,
            "decoder": bytes_,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False,
                      "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": [f"{left} {right}" for left, right in merges]}}


TEMPLATE = ("{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
            "{% if tools %}{{ tools | tojson }}\n{% endif %}assistant:")


def model(directory, size=128_000, **overrides):
    """Writes the directory; serve it with --load-format dummy."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size,
              "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 32768,
              "tie_word_embeddings": True, "torch_dtype": "bfloat16", "hidden_act": "silu",
              "bos_token_id": None, "eos_token_id": size - 2, **overrides}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer(size), ensure_ascii=False))
    (directory / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "pad_token": "<|pad|>", "chat_template": TEMPLATE}))
    return directory
