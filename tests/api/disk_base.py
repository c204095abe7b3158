"""A tiny Llama on the disk, and the ways in which the cases of disk_cases.py change it.

Each function returns one that takes a folder with a good model in FOLDER/model and breaks it, or
makes it odd. The weights are drawn: only their names, shapes and bytes matter here."""

import functools
import json
import os
import random
import shutil
import struct

from harness import DEMO

HIDDEN, LAYERS, VOCAB, MLP = 32, 2, 4096, 48
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
          "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": LAYERS,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
          "max_position_embeddings": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
          "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": None,
          "eos_token_id": 0, "torch_dtype": "bfloat16"}
REMOVED = object()  # in the place of a value: the key is not there


def shapes():
    found = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN],
             "lm_head.weight": [VOCAB, HIDDEN]}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, rows, cols in (("q", 32, HIDDEN), ("k", 16, HIDDEN), ("v", 16, HIDDEN),
                                 ("o", HIDDEN, 32)):
            found[f"{layer}self_attn.{name}_proj.weight"] = [rows, cols]
        for name, rows, cols in (("gate", MLP, HIDDEN), ("up", MLP, HIDDEN),
                                 ("down", HIDDEN, MLP)):
            found[f"{layer}mlp.{name}_proj.weight"] = [rows, cols]
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{layer}{name}.weight"] = [HIDDEN]
    return found


@functools.cache
def drawn(seed=1):
    """{name: (type, shape, bytes)}: numbers around 0.02 in bfloat16."""
    rng = random.Random(seed)
    out = {}
    for name, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        row = bytes(rng.randrange(256) for _ in range(512))
        body = bytearray(row[i % 512] if i % 2 == 0 else 0x3C + 0x80 * (row[i % 511] & 1)
                         for i in range(2 * count))
        out[name] = ("BF16", shape, bytes(body))
    return out


TENSORS = drawn()


def safetensors(tensors, metadata=None):
    header, at = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (kind, shape, body) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(body)]}
        at += len(body)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(b for _, _, b in tensors.values())


def write_base(folder):
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(safetensors(TENSORS))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, model / name)
    return model


def write_large(model, vocab):
    """The same with a large vocabulary, of zeroes: a file that takes few blocks of the disk."""
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": vocab}))
    header, at = {}, 0
    for name, shape in shapes().items():
        rows = [vocab if n == VOCAB else n for n in shape]
        size = 2 * rows[0] * (rows[1] if len(rows) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": rows, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(model / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def whole(_folder):
    pass


def edited(name, **changes):
    """A JSON file with other keys."""
    def make(folder):
        path = folder / "model" / name
        document = json.loads(path.read_text()) if path.exists() else {}
        document.update(changes)
        path.write_text(json.dumps({k: v for k, v in document.items() if v is not REMOVED}))
    return make


def config(**changes):
    return edited("config.json", **changes)


def written(name, content):
    def make(folder):
        path = folder / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return make


def secret(name):
    def make(folder):
        written(name, "a key")(folder)
        (folder / "model" / name).chmod(0o600)
    return make


def without(name):
    def make(folder):
        (folder / "model" / name).unlink()
    return make


def cut(name, size):
    """Only the first bytes; below 0: without the last ones."""
    def make(folder):
        path = folder / "model" / name
        path.write_bytes(path.read_bytes()[:size])
    return make


def after(name, more):
    def make(folder):
        with open(folder / "model" / name, "ab") as file:
            file.write(more)
    return make


def tensors(change, metadata=None):
    """Other tensors in the one file; `change` takes and returns {name: (type, shape, bytes)}."""
    def make(folder):
        found = dict(TENSORS)
        (folder / "model/model.safetensors").write_bytes(
            safetensors(change(found) or found, metadata))
    return make


def renamed(old, new):
    return tensors(lambda t: {k.replace(old, new): v for k, v in t.items()})


def lacks(name):
    def change(found):
        del found[name]
    return tensors(change)


def extra(name, shape=(4,), kind="BF16"):
    size = {"BF16": 2, "F32": 4, "I64": 8, "U8": 1}[kind]
    for n in shape:
        size *= n
    return tensors(lambda t: t.update({name: (kind, list(shape), bytes(size))}))


def recast(name, kind=None, shape=None, body=None):
    def change(found):
        old = found[name]
        found[name] = (kind or old[0], shape or old[1], old[2] if body is None else body)
    return tensors(change)


def wrapped(architecture, prefix, *path, tower="vision_model.norm.weight", **outside):
    """The model as the text part of another: its keys in the objects of `path`, its names behind
    `prefix`, beside a tower."""
    def make(folder):
        names = {prefix + name: value for name, value in TENSORS.items()}
        names[tower] = ("BF16", [4], bytes(8))
        (folder / "model/model.safetensors").write_bytes(safetensors(names))
        inner = CONFIG
        for key in reversed(path):
            inner = {key: inner}
        outer = inner if path else CONFIG
        (folder / "model/config.json").write_text(json.dumps(
            {**outer, "architectures": [architecture], "model_type": "wrapper",
             "vision_config": {"hidden_size": 8}, **outside}))
    return make


def sharded(index=None, overlaid=None, second=None):
    """Two shards and their index, whose map `index` changes; tensors of `overlaid` are in both,
    with other numbers in the first."""
    def make(folder):
        model, names = folder / "model", sorted(TENSORS)
        (model / "model.safetensors").unlink()
        half = {"a": names[:9], "b": names[9:]}
        weight_map = {n: f"{s}.safetensors" for s, list_ in half.items() for n in list_}
        other = drawn(7) if overlaid else {}
        first = {n: TENSORS[n] for n in half["a"]} | {n: other[n] for n in overlaid or ()}
        (model / "a.safetensors").write_bytes(safetensors(first))
        if second != "gone":
            (model / "b.safetensors").write_bytes(safetensors({n: TENSORS[n] for n in half["b"]}))
        weight_map.update(index or {})
        (model / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {"total_size": 1},
             "weight_map": {k: v for k, v in weight_map.items() if v is not REMOVED}}))
    return make


def both(*makes):
    def make(folder):
        for one in makes:
            one(folder)
    return make


def linked(name, target):
    def make(folder):
        path = folder / "model" / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    return make


def special(name, how):
    def make(folder):
        path = folder / "model" / name
        path.unlink(missing_ok=True)
        how(path)
    return make


def pipe(name):
    return special(name, os.mkfifo)


def directory(name):
    return special(name, os.mkdir)


def moved(old, new):
    def make(folder):
        target = folder / new
        target.parent.mkdir(parents=True, exist_ok=True)
        (folder / old).rename(target)
    return make


def adapter(tensor_changes=None, remove=False, **changes):
    """A PEFT adapter for q_proj of the first layer in FOLDER/adapter."""
    def make(folder):
        place = folder / "adapter"
        place.mkdir()
        document = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
                    "task_type": "CAUSAL_LM", "bias": "none"}
        document.update(changes)
        text = json.dumps({k: v for k, v in document.items() if v is not REMOVED})
        (place / "adapter_config.json").write_text(text)
        stem = "base_model.model.model.layers.0.self_attn.q_proj."
        pair = {stem + "lora_A.weight": ("F32", [4, HIDDEN], bytes(4 * 4 * HIDDEN)),
                stem + "lora_B.weight": ("F32", [32, 4], bytes(4 * 32 * 4))}
        pair.update(tensor_changes or {})
        if not remove:
            (place / "adapter_model.safetensors").write_bytes(
                safetensors({k: v for k, v in pair.items() if v is not REMOVED}))
    return make


STORAGES = {"BF16": b"BFloat16Storage", "F32": b"FloatStorage"}


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def numbers(values):
    return b"(" + b"".join(b"J" + struct.pack("<i", n) for n in values) + b"t"


def pickled(found):
    """What torch.save writes of {name: (type, shape, bytes)} in its form before version 1.6."""
    body = b"\x80\x02}("
    for i, (name, (kind, shape, _)) in enumerate(found.items()):
        strides, steps = 1, []
        for size in reversed(shape):
            steps.insert(0, strides)
            strides *= size
        body += text(name.encode()) + b"ctorch._utils\n_rebuild_tensor_v2\n((" + text(b"storage")
        body += b"ctorch\n" + STORAGES[kind] + b"\n" + text(str(i).encode()) + text(b"cpu")
        body += b"J" + struct.pack("<i", strides) + b"NtQK\0" + numbers(shape) + numbers(steps)
        body += b"\x89ccollections\nOrderedDict\n)RtR"
    keys = b"".join(text(str(i).encode()) for i in range(len(found)))
    start = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e80024de9032e")
    machine = b"\x80\x02}" + text(b"little_endian") + b"\x88s."
    sizes = {"BF16": 2, "F32": 4}
    return (start + machine + body + b"u." + b"\x80\x02](" + keys + b"e." +
            b"".join(struct.pack("<Q", len(b) // sizes[k]) + b for k, _, b in found.values()))
