"""The tables of the CUDA kernels name those that there are."""

import json
import re

KERNEL = re.compile(r"__global__\s+void\s+"
                    r"(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\(")
PRODUCT, TESTS = "cuda/kernels/", "tests/cuda/"
TABLE, PAGE = "tests/cuda/performance.json", "tests/ptx/README.md"
RENEW = "make gpu-report REPORT=--write"


def kernels_below(tree, folder):
    """Kernel -> its file."""
    return {name: f.name for f in tree if f.name.startswith(folder) and f.name.endswith(".cu")
            for name in KERNEL.findall(f.text)}


def check_kernels(tree):
    """Every kernel has a row in the table of speed, and no table has one that is gone."""
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
    for number, line in enumerate((tree.root / PAGE).read_text("utf-8").splitlines(), 1):
        row = re.match(r"\| `(\w+_kernel)` \|", line)
        if row and row[1] not in product and row[1] not in tests:
            yield f"{PAGE}:{number}: no kernel is called {row[1]}: scripts/ptx_report --write"
