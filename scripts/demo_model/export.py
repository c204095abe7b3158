"""Writes the trained weights and the tokenizer as a Hugging Face model directory.

    python export.py --data DIR --out models/demo [--weights checkpoint.pt]

Everything but README.md, which is written by hand, comes from here: config.json,
generation_config.json, tokenizer.json, tokenizer_config.json and model.safetensors in bf16.
"""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file

from chatml import TEMPLATE
from network import SHAPE
from prepare import SPECIAL

END_OF_TEXT, IM_END = SPECIAL.index("<|endoftext|>"), SPECIAL.index("<|im_end|>")


def config():
    """config.json of a LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **SHAPE,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.03,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": [END_OF_TEXT, IM_END],
        "pad_token_id": END_OF_TEXT,
        "torch_dtype": "bfloat16",
    }


def generation_config():
    """The sampling that suits the model, and the two tokens that end a text."""
    return {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
        "bos_token_id": None,
        "eos_token_id": [END_OF_TEXT, IM_END],
        "pad_token_id": END_OF_TEXT,
    }


def tokenizer_config():
    """tokenizer_config.json: the special tokens and the chat template."""
    added = {
        str(at): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for at, token in enumerate(SPECIAL)
    }
    return {
        "added_tokens_decoder": added,
        "additional_special_tokens": SPECIAL[1:],
        "bos_token": None,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": SHAPE["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": TEMPLATE,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--weights", default="weights.pt")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    weights = torch.load(args.data / args.weights, weights_only=True)
    tensors = {name: w.to(torch.bfloat16).contiguous() for name, w in weights.items()}
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(args.data / "tokenizer.json", args.out / "tokenizer.json")
    for name, content in (
        ("config.json", config()),
        ("generation_config.json", generation_config()),
        ("tokenizer_config.json", tokenizer_config()),
    ):
        (args.out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    count = sum(t.numel() for t in tensors.values())
    print(f"{count:,} parameters in {args.out}")


if __name__ == "__main__":
    main()
