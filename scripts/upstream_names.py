#!/usr/bin/env python3
"""Says which names of PEFT, transformers and llama.cpp this build does not know.

    scripts/upstream_names.py --build build [--converter convert_hf_to_gguf.py ...]

PEFT: fields of LoraConfig that adapter_keys.def lacks. transformers: classes that generate text,
alone or behind images, which `inferd check` refuses by the name of their architecture. The Python
package gguf: architectures of GGUF files that config_gguf.c lacks. llama.cpp: names of
pre-tokenizers that its converter writes and load_gguf_pre.c lacks; they stand in no package, so its
file is named.

What a name is known for is decided elsewhere: a field may be refused by name, too. Exit 1 when PEFT
has a field that is not in the list: an adapter that has it is refused until someone has said what
it does.
"""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def source(name):
    return (ROOT / name).read_text("utf-8")


def show(what, names, lacking):
    print(f"{what}: {len(names)} upstream, {len(lacking)} not known here")
    for name in sorted(lacking):
        print(f"  {name}")


def lacks_fields():
    from peft import LoraConfig
    names = {field.name for field in dataclasses.fields(LoraConfig)}
    listed = source("engine/model/adapter/adapter_keys.def")
    lacking = names - set(re.findall(r"^ADAPTER_KEY\((\w+)", listed, re.M))
    show("fields of PEFT's LoraConfig", names, lacking)
    return lacking


def lacks_architectures(build):
    from transformers.models.auto import modeling_auto
    names = set()
    for which in ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT"):
        for found in getattr(modeling_auto, f"MODEL_FOR_{which}_MAPPING_NAMES").values():
            names.update([found] if isinstance(found, str) else found)
    lacking = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            Path(folder, "config.json").write_text(json.dumps({"architectures": [name]}))
            done = subprocess.run([build / "inferd", "check", folder, "--skip-tokenizer-init"],
                                  text=True, capture_output=True, timeout=60)
            if f'architecture "{name}" is not supported' in done.stderr:
                lacking.add(name)
    show("classes of transformers", names, lacking)


def lacks_gguf():
    import gguf
    names = set(gguf.MODEL_ARCH_NAMES.values())
    table = source("engine/model/config/config_gguf.c")
    known = re.findall(r'^    \{"([\w.-]+)", "\w+"', table, re.M)
    show("architectures of GGUF files", names, names - set(known))


def lacks_pre(files):
    names = set()
    for path in files:
        names.update(re.findall(r'^\s+res = "([^"]+)"', path.read_text("utf-8"), re.M))
    listed = re.findall(r'\.names = ((?:\s*"[^"]*")+)', source("engine/text/load/load_gguf_pre.c"))
    known = set(re.sub(r'"|\n', " ", " ".join(listed)).split())
    show("pre-tokenizers of llama.cpp", names, names - known)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--converter", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    lacking = lacks_fields()
    lacks_architectures(options.build)
    lacks_gguf()
    if options.converter:
        lacks_pre(options.converter)
    sys.exit(bool(lacking))


if __name__ == "__main__":
    main()
