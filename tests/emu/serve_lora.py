"""Low-rank adapters on the emulated GPU: as on the CPU, in any company, and loaded at run time.

Run by serve.py.
"""

import json
import math
import random
import re
import struct
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from serving import LONG, TINY, Server, check_logprobs, compare, prompts

ADMIN_KEY = "root"


def add_random(header, data, name, shape, spread):
    count = math.prod(shape)
    header[f"base_model.model.{name}"] = {
        "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
    return data + struct.pack(f"<{count}f", *(random.gauss(*spread) for _ in range(count)))


def write_adapter(folder, rank, modules, model=TINY, tensors=None, **config):
    """A random adapter of the modules {name: (rows, columns)} in every layer, and of tensors {name:
    (shape, (mean, deviation))}, as PEFT saves it."""
    header, data = {}, b""
    for layer in range(json.loads((model / "config.json").read_text())["num_hidden_layers"]):
        for module, (rows, columns) in modules.items():
            for letter, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                name = f"model.layers.{layer}.{module}.lora_{letter}.weight"
                data = add_random(header, data, name, shape, (0, 0.15))
    for name, (shape, spread) in (tensors or {}).items():
        data = add_random(header, data, name, shape, spread)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none",
         "target_modules": [module.split(".")[-1] for module in modules], **config}))
    return folder


def post(server, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json",
                                      "Authorization": f"Bearer {ADMIN_KEY}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def planned(server):
    """GiB of the workspace in the plan that is printed before anything is taken."""
    return float(re.search(r"memory .* workspace (\S+),", server.text())[1])


def test_graphs_with_adapters_are_planned(program):
    """Each size is captured twice, 4 MiB each: 8 sizes up to 40 rows."""
    servers = [Server(program, "cuda", "--max-num-batched-tokens", 64, *flags)
               for flags in ([], ["--enable-lora"])]
    more = planned(servers[1]) - planned(servers[0])
    for server in servers:
        assert server.stop() == 0, server.text()
    assert abs(more - 8 * 4 / 1024) <= 0.011, f"{more} GiB more"  # two roundings


def test_adapters_and_the_base_in_one_batch(program):
    with tempfile.TemporaryDirectory() as name:
        one = write_adapter(Path(name) / "one", 4, {"self_attn.q_proj": (64, 64),
                                                    "self_attn.v_proj": (32, 64),
                                                    "mlp.down_proj": (64, 128)})
        two = write_adapter(Path(name) / "two", 13, {"self_attn.k_proj": (32, 64),
                                                     "self_attn.o_proj": (64, 64),
                                                     "mlp.gate_proj": (128, 64),
                                                     "mlp.up_proj": (128, 64)})
        flags = ["--served-model-name", "base", "--enable-lora", "--lora-modules", f"one={one}",
                 "--max-loras", 2, "--max-lora-rank", 16, "--allow-runtime-lora",
                 "--admin-key", ADMIN_KEY, "--max-num-batched-tokens", 64]
        cpu, cuda = servers = [Server(program, device, *flags) for device in ("cpu", "cuda")]
        try:
            for server in servers:
                post(server, "/v1/load_lora_adapter", {"lora_name": "two", "lora_path": str(two)})
            bodies = [{"model": model, "prompt": p, "max_tokens": 12, "logprobs": 3}
                      for p in prompts(3 if LONG else 2, 60) for model in ("base", "one", "two")]
            expected, got = cpu.all(bodies), cuda.all(bodies)
            differences = [d for pair in zip(expected, got) for d in compare(*pair)]
            assert len(differences) > 30, f"only {len(differences)} tokens could be compared"
            check_logprobs(differences)
            assert re.search(r"graphs \S+ \(16, up to 40 rows\)", cuda.text()), "8 sizes, twice"
            for i in range(0, len(bodies), 3):
                firsts = {c["logprobs"]["token_logprobs"][0] for c in got[i:i + 3]}
                assert len(firsts) == 3, f"an adapter changes nothing: {firsts}"
            alone = [cuda.all([body])[0] for body in bodies]
            assert [c["token_ids"] for c in alone] == [c["token_ids"] for c in got]
            assert [c["logprobs"] for c in alone] == [c["logprobs"] for c in got]
            base = [choice for body, choice in zip(bodies, got) if body["model"] == "base"]
            for server in servers:
                post(server, "/v1/unload_lora_adapter", {"lora_name": "two"})
                post(server, "/v1/load_lora_adapter", {"lora_name": "three", "lora_path": str(one)})
            again = cuda.all([{**body, "model": name} for body in bodies
                              for name in ("base", "three") if body["model"] == "one"])
            ones = [choice for body, choice in zip(bodies, got) if body["model"] == "one"]
            assert [c["token_ids"] for c in again[0::2]] == [c["token_ids"] for c in base]
            assert [c["token_ids"] for c in again[1::2]] == [c["token_ids"] for c in ones]
        finally:
            assert all(server.stop() == 0 for server in servers), cuda.text()


def test_embeddings_heads_lengths_and_biases(program):
    """As on the CPU; what replaces a whole module is refused by name."""
    sizes = json.loads((TINY / "config.json").read_text())
    layers, vocab, hidden = (sizes[key] for key in ("num_hidden_layers", "vocab_size",
                                                    "hidden_size"))
    q, v = {"self_attn.q_proj": (64, 64)}, {"self_attn.v_proj": (32, 64)}
    o = {"self_attn.o_proj": (64, 64)}
    small, near = (0, 0.15), (1, 0.3)

    def of_layers(name, shape, spread):
        return {f"model.layers.{i}.{name}": (shape, spread) for i in range(layers)}

    tables = {"model.embed_tokens.lora_embedding_A": ((4, vocab), small),
              "model.embed_tokens.lora_embedding_B": ((hidden, 4), small),
              "lm_head.lora_A.weight": ((4, hidden), small),
              "lm_head.lora_B.weight": ((vocab, 4), small)}
    names = ["q_proj", "embed_tokens", "lm_head"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = {
            "lengths": write_adapter(folder / "lengths", 4, {**q, **o}, use_dora=True, tensors={
                **of_layers("self_attn.q_proj.lora_magnitude_vector", (64,), near),
                **of_layers("self_attn.o_proj.lora_magnitude_vector", (64,), near)}),
            "tables": write_adapter(folder / "tables", 4, q, tensors=tables, target_modules=names),
            "biases": write_adapter(folder / "biases", 3, v, lora_bias=True, tensors=of_layers(
                "self_attn.v_proj.lora_B.bias", (32,), small)),
            "plain": write_adapter(folder / "plain", 4, q)}
        whole = write_adapter(folder / "whole", 4, q, modules_to_save=["lm_head"], tensors={
            "lm_head.weight": ((vocab, hidden), small)})
        modules = ",".join(f"{key}={path}" for key, path in made.items())
        flags = ["--served-model-name", "base", "--enable-lora", "--lora-modules", modules,
                 "--max-loras", 5, "--allow-runtime-lora", "--admin-key", ADMIN_KEY,
                 "--max-num-batched-tokens", 64]
        cpu, cuda = servers = [Server(program, device, *flags) for device in ("cpu", "cuda")]
        try:
            # of one token attention has one key, whatever an adapter makes of the queries
            drawn = [[5, *p] for p in (prompts(3, 60) if LONG else prompts(2, 40))]
            bodies = [{"model": model, "prompt": p, "max_tokens": 12 if LONG else 8, "logprobs": 3}
                      for p in drawn for model in ("base", *made)]
            expected, got = cpu.all(bodies), cuda.all(bodies)
            differences = [d for pair in zip(expected, got) for d in compare(*pair)]
            assert len(differences) > 50, f"only {len(differences)} tokens could be compared"
            check_logprobs(differences)
            for i in range(0, len(bodies), 1 + len(made)):
                firsts = {c["logprobs"]["token_logprobs"][0] for c in got[i:i + 1 + len(made)]}
                assert len(firsts) == 1 + len(made), f"an adapter changes nothing: {firsts}"
            alone = [cuda.all([body])[0] for body in bodies]
            assert [c["token_ids"] for c in alone] == [c["token_ids"] for c in got]
            assert [c["logprobs"] for c in alone] == [c["logprobs"] for c in got]
            post(cpu, "/v1/load_lora_adapter", {"lora_name": "whole", "lora_path": str(whole)})
            try:
                post(cuda, "/v1/load_lora_adapter", {"lora_name": "w", "lora_path": str(whole)})
            except urllib.error.HTTPError as error:
                message = json.load(error)["error"]["message"]
                assert "cuda replaces no whole modules" in message, message
            else:
                raise AssertionError("a GPU takes a whole head")
        finally:
            assert all(server.stop() == 0 for server in servers), cuda.text()
