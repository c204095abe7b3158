"""The GPU as it runs without --batch-invariant, token by token beside the CPU: products by
cuBLASLt, prefills by wgmma where there is one, steps of many rows by whatever was fastest.

Run by serve.py. Small models with heads of 64 and 128, because wgmma takes no smaller ones; one has
biases. On a GPU prompts are longer than a thousand tokens; the emulator takes a few dozen.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path

from serving import REAL_GPU, TINY, Server, check_logprobs, compare, prompts

LENGTH, REQUESTS = (1300, 12) if REAL_GPU else (70, 5)
WIDTH, HEADS, LAYERS = (512, 4, 2) if REAL_GPU else (64, 2, 1)
CONFIG = {"vocab_size": 384, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": HEADS // 2, "max_position_embeddings": 4096,
          "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
          "torch_dtype": "bfloat16", "bos_token_id": None, "eos_token_id": [0],
          "tie_word_embeddings": False}
HEADS_OF = {
    64: dict(CONFIG, head_dim=64, model_type="llama", architectures=["LlamaForCausalLM"]),
    128: dict(CONFIG, head_dim=128, model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
}


def model_folder(folder, config):
    (Path(folder) / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, Path(folder) / name)
    return folder


def bodies(count):
    """Long and short prompts at once: pure prefills, mixed steps, decodes of several rows."""
    drawn = prompts(2, LENGTH // 2) + prompts(count - 2, 100 if REAL_GPU else 30)
    drawn[0] = (drawn[0] * LENGTH)[:LENGTH]
    return [{"prompt": p, "max_tokens": 24 if REAL_GPU else 8, "logprobs": 5, "prompt_logprobs": 2,
             "return_tokens_as_token_ids": True} for p in drawn]


def differences_of(cpu, cuda):
    """Of the logprobs of prompt tokens and of generated tokens."""
    found = compare(cpu, cuda)
    for expected, got in zip(cpu["prompt_logprobs"], cuda["prompt_logprobs"]):
        if expected is None or got is None:
            assert expected is got, "one device has a logprob where the other has none"
            continue
        found += [expected[token]["logprob"] - got[token]["logprob"]
                  for token in set(expected) & set(got)]
    return found


def compare_default(program, head_dim):
    asked = bodies(REQUESTS)
    flags = ["--load-format", "dummy", "--seed", "11", "--max-model-len", 2048 if REAL_GPU else 128,
             "--max-num-seqs", REQUESTS, "--max-num-batched-tokens", LENGTH]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        model = model_folder(folder, HEADS_OF[head_dim])
        answers, text = [], ""
        for device in ("cpu", "cuda"):
            server = Server(program, device, "--no-batch-invariant", *flags, model=model,
                            XDG_CACHE_HOME=cache, CACHE_DIRECTORY="")
            answers.append(server.all(asked))
            assert server.stop() == 0, server.text()
            text = server.text()
    assert "no token depends on other" not in text, text
    differences = [d for pair in zip(*answers) for d in differences_of(*pair)]
    compared = sum(len(a["token_ids"]) for a in answers[0])
    said = {word: re.search(rf"{word} +([^\"\n]*)", text)[1] for word in ("products", "attention")}
    print(json.dumps({"part": "parity", "head_dim": head_dim, "logprobs": len(differences),
                      "tokens": compared, "worst": max(map(abs, differences)), **said}),
          flush=True)
    check_logprobs(differences)
    assert len(differences) > LENGTH, f"only {len(differences)} logprobs could be compared"


def test_default_with_heads_of_64(program):
    compare_default(program, 64)


def test_default_with_heads_of_128_and_biases(program):
    compare_default(program, 128)
