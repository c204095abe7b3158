"""packed_checkpoint: a bfloat16 checkpoint, its projections packed as fp8, AWQ, GPTQ or w4a16.

By packing.py, so without calibration. Used by test_formats.py and serve_formats.
"""

import json
import shutil
import struct

import numpy as np

import gguf_demo
import packing

DTYPES = {"uint8": "F8_E4M3", "int32": "I32", "int64": "I64", "float16": "F16", "float32": "F32",
          "uint16": "BF16"}


def write_safetensors(path, found):
    header, at = {}, 0
    for name, values in found.items():
        header[name] = {"dtype": DTYPES[values.dtype.name], "shape": list(values.shape),
                        "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for values in found.values():
            out.write(np.ascontiguousarray(values).data)


def write(source, folder, form):
    """The model of `source` in the new folder, its projections packed as `form`."""
    pack, config = packing.CONFIGS[form]
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json",
                 "chat_template.jinja"):
        if (source / name).exists():
            shutil.copy(source / name, folder / name)
    words = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(words | {"quantization_config": config}))
    found = {}
    for name, values in gguf_demo.tensors(source / "model.safetensors"):
        if "_proj.weight" in name:
            stem = name.removesuffix("weight")
            found |= {stem + part: packed for part, packed in pack(values).items()}
        else:
            found[name] = (values.view(np.uint32) >> 16).astype(np.uint16)
    write_safetensors(folder / "model.safetensors", found)
