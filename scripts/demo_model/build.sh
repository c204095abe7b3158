#!/bin/sh
# Makes the demo model from nothing: text, tokenizer, training, export, measurements.
# Usage: scripts/demo_model/build.sh [work directory] [model directory]
# Needs Python 3.10+, a C++ compiler and the packages named in README.md.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=${1:-build/demo_model}
model=${2:-models/demo}
python=${PYTHON:-python3}

"$python" "$here/generate.py" --out "$work" --megabytes 100 --seed 1
"$python" "$here/prepare.py" --data "$work"
"$python" "$here/train.py" --data "$work" --steps "${STEPS:-8000}" --seed 1
"$python" "$here/export.py" --data "$work" --out "$model"
"$python" "$here/evaluate.py" --model "$model"
