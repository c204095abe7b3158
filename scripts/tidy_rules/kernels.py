"""The tables of the CUDA kernels name those that there are."""

import json
import re

KERNEL = re.compile(r"__global__\s+void\s+"
                    r"(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\(")
PRODUCT, TESTS = "cuda/kernels/", "tests/cuda/"
TABLE, PAGE = "tests/cuda/performance.json", "tests/ptx/README.md"
RENEW = "make gpu-report REPORT=--write"
REWRITE = "tests/ptx/ptx_report --write"


def kernels_below(tree, folder):
    """Kernel -> its file."""
    return {name: f.name for f in tree
            if f.name.startswith(folder) and f.name.endswith((".cu", ".h"))
            for name in KERNEL.findall(f.text)}


def check_kernels(tree):
    """Every kernel has a row in the tables of speed and of PTX, and none has one that is gone."""
    product, tests = kernels_below(tree, PRODUCT), kernels_below(tree, TESTS)
    rows = {}
    if TABLE in tree.names:
        rows = json.loads((tree.root / TABLE).read_text("utf-8"))["kernels"]
    for gpu, kernels in rows.items():
        known = {name.split("<")[0] for name in kernels}
        for name in sorted(known - product.keys()):
            yield f"{TABLE}: {gpu}: no kernel is called {name}: {RENEW}"
        for name in sorted(product.keys() - known):
            yield f"{product[name]}: {name} is not in {TABLE}, {gpu}: {RENEW}"
    if PAGE not in tree.names:
        return
    lines = (tree.root / PAGE).read_text("utf-8").splitlines()
    named = {row[1]: number for number, line in enumerate(lines, 1)
             if (row := re.match(r"\| `(\w+_kernel)` \|", line))}
    for name in sorted(named.keys() - product.keys() - tests.keys()):
        yield f"{PAGE}:{named[name]}: no kernel is called {name}: {REWRITE}"
    for name in sorted(product.keys() - named.keys()):
        yield f"{product[name]}: {name} is not in {PAGE}: {REWRITE}"
