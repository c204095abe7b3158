#!/usr/bin/env python3
"""Writes tests/vectors/torch, and compares `inferd convert` with torch on drawn files.

    build/venv-parity/bin/python scripts/vectors/torch_files.py
    ... torch_files.py --check 500 [--seed 1] [--build build]

Without --check: NAME.bin of torch.save and NAME.safetensors of the safetensors library with the
same tensors; refused_NAME.bin, which must not be read; and seeds of tests/fuzz/corpus/torch. With
--check: that many dictionaries of drawn types, shapes, strides and shared storages are saved in
either form, converted, and read back by the safetensors library: each name, type, shape and bit
must be as saved. The exit status is the number of files that differ.
"""

import argparse
import collections
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent.parent
VECTORS = ROOT / "tests/vectors/torch"
SEEDS = ROOT / "tests/fuzz/corpus/torch"
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32,
         torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn,
         torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64]


def name_of(kind):
    return str(kind).removeprefix("torch.")


def drawn(rng, kind, *shape):
    """Any bits of the type."""
    size = torch.empty((), dtype=kind).element_size()
    count = int(np.prod(shape, dtype=np.int64))
    content = bytearray(rng.randrange(2) if kind is torch.bool else rng.randrange(256)
                     for _ in range(count * size))
    if count == 0:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(content, dtype=kind).clone().reshape(shape)


def bits(tensor):
    dense = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return dense.copy_(tensor.reshape(-1)).view(torch.uint8)


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and bits(left).equal(bits(right))


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("position_ids", torch.arange(3))


def cases(rng):
    """{name: dictionary} of what is read."""
    found = {f"type_{name_of(k)}": {"a": drawn(rng, k, 3, 2), "b": drawn(rng, k, 4)} for k in TYPES}
    one = drawn(rng, torch.float32, 6, 4)
    torch.manual_seed(1)
    tiny = Tiny()
    found |= {
        "transposed": {"a": one.t(), "b": one},
        "sliced": {"a": one[1:3], "b": one[:, 1:3], "c": one[::2, 1::2], "d": one[5, 3]},
        "permuted": {"a": drawn(rng, torch.bfloat16, 2, 3, 4, 2).permute(3, 1, 0, 2)},
        "strided": {"a": torch.as_strided(one, (2, 3), (2, 5), 1)},
        "tied": {"embed.weight": one, "lm_head.weight": one},
        "scalar": {"a": torch.tensor(1.5), "b": torch.tensor(7)},
        "eight_dimensions": {"a": drawn(rng, torch.int8, 1, 2, 1, 2, 1, 2, 1, 2)},
        "one_wide": {"a": torch.as_strided(one, (1, 4), (99, 1), 2)},
        "module": tiny.state_dict(),
        "parameters": dict(tiny.named_parameters()),
        "ordered": collections.OrderedDict(a=one, b=one.half()),
        "names": {"Größe.weight": one[0], 'a"b\\c': one[1], "x" * 512: one[2]},
        "many": {f"layers.{i}.w": drawn(rng, torch.int8, 1) for i in range(300)},
        "gradient": {"a": one.clone().requires_grad_(True)},
    }
    return found


def refused(rng):
    """{name: object} of what is not."""
    one = drawn(rng, torch.float32, 4, 4)
    quantised = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    return {
        "number": {"a": one, "step": 7},
        "text": {"a": one, "note": "text"},
        "nested": {"state_dict": {"a": one}},
        "list": [one],
        "tensor": one,
        "none": {"a": None},
        "key": {1: one},
        "sparse": {"a": one.to_sparse()},
        "quantised": {"a": quantised},
        "complex128": {"a": one.to(torch.complex128)},
        "conjugate": {"a": one.to(torch.complex64).conj()},
        "negative": {"a": one.to(torch.complex64).conj().imag},
        "repeated": {"a": torch.ones(1).expand(4, 4)},
        "meta": {"a": torch.empty(2, device="meta")},
        "numpy": {"a": one, "b": np.float32(1)},
        "module": Tiny(),
        "size": {"a": one, "b": one.size()},
        "long_name": {"x" * 513: one},
        "no_name": {"": one},
        "nine_dimensions": {"a": one.reshape(1, 1, 1, 1, 1, 1, 1, 4, 4)},
    }


class Evil:
    """What a pickle may do in Python."""

    def __reduce__(self):
        return (eval, ("__import__('os').system('true')",))


def save(value, path, old, **more):
    torch.save(value, path, _use_new_zipfile_serialization=not old, **more)


def write():
    rng = random.Random(7)
    shutil.rmtree(VECTORS, ignore_errors=True)
    shutil.rmtree(SEEDS, ignore_errors=True)
    VECTORS.mkdir(parents=True)
    SEEDS.mkdir(parents=True)
    for name, tensors in cases(rng).items():
        for old in (False, True):
            stem = f"{name}{'_old' if old else ''}"
            save(tensors, VECTORS / f"{stem}.bin", old)
        whole = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
        save_file(whole, VECTORS / f"{name}.safetensors")
    for name, value in refused(rng).items():
        save(value, VECTORS / f"refused_{name}.bin", False)
    one = {"a": drawn(rng, torch.float32, 2)}
    save({**one, "b": Evil()}, VECTORS / "refused_call.bin", False)
    save({**one, "b": Evil()}, VECTORS / "refused_call_old.bin", True)
    save(one, VECTORS / "refused_protocol.bin", False, pickle_protocol=4)
    save(one, VECTORS / "protocol_3.bin", False, pickle_protocol=3)
    save_file(one, VECTORS / "protocol_3.safetensors")
    for stem in ("sliced", "module", "tied", "type_bfloat16", "type_float8_e4m3fn", "permuted"):
        (SEEDS / f"old_{stem}").write_bytes(b"\0" + (VECTORS / f"{stem}_old.bin").read_bytes())
        with zipfile.ZipFile(VECTORS / f"{stem}.bin") as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            (SEEDS / f"pickle_{stem}").write_bytes(b"\1" + archive.read(name))
    (SEEDS / "archive").write_bytes(b"\0" + (VECTORS / "tied.bin").read_bytes())


def any_view(rng, tensor):
    """A view of it, whose numbers stand anyhow."""
    for _ in range(rng.randrange(4)):
        if tensor.dim() == 0:
            break
        axis = rng.randrange(tensor.dim())
        if rng.random() < 0.4:
            tensor = tensor.transpose(axis, rng.randrange(tensor.dim()))
        elif tensor.size(axis) > 1:
            first = rng.randrange(tensor.size(axis) - 1)
            index = [slice(None)] * tensor.dim()
            index[axis] = slice(first, None, rng.randrange(1, 3))
            tensor = tensor[tuple(index)]
    return tensor


def any_tensors(rng):
    found, bases = {}, []
    for i in range(rng.randrange(1, 12)):
        if not bases or rng.random() < 0.6:
            shape = [rng.randrange(1, 7) for _ in range(rng.randrange(0, 5))]
            bases.append(drawn(rng, rng.choice(TYPES), *shape))
        found[f"{rng.choice('abc')}.{i}.weight"] = any_view(rng, rng.choice(bases))
    return collections.OrderedDict(found) if rng.random() < 0.5 else found


def check(count, seed, build):
    rng, bad, tensors = random.Random(seed), 0, 0
    for i in range(count):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            wanted = any_tensors(rng)
            save(wanted, place / "pytorch_model.bin", rng.random() < 0.5)
            done = subprocess.run([build / "inferd", "convert", place], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            got = load_file(place / "model.safetensors") if done.returncode == 0 else {}
            tensors += len(got)
            if got.keys() != wanted.keys() or not all(same(wanted[k], got[k]) for k in got):
                bad += 1
                print(f"file {i} differs: {done.stdout}")
    print(f"{count} files, {tensors} tensors, {bad} files differ")
    return min(bad, 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    options = parser.parse_args()
    if options.check:
        sys.exit(check(options.check, options.seed, options.build.resolve()))
    write()


main()
