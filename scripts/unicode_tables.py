#!/usr/bin/env python3
"""Writes the tables of Unicode, one generated C file each.

    pip install unicodedata2==16.0.0 tokenizers fonttools
    scripts/unicode_tables.py              all
    scripts/unicode_tables.py templates    one of: tokenizer, graphemes, templates, properties
    scripts/unicode_tables.py --check      writes nothing; fails where a file differs

`templates` needs no package, but the version of Python decides the version of Unicode: Debian 12's
3.11 wrote the committed file. Each module of scripts/unicode_data says what its table holds and
where it comes from.
"""

import argparse
import contextlib
import importlib
import io
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "tokenizer": "engine/text/unicode/unicode_tables.c",
    "bert": "engine/text/unicode/bert_tables.c",
    "graphemes": "engine/text/unicode/grapheme_tables.c",
    "templates": "engine/base/unicode_case_tables.c",
    "properties": "engine/grammar/automaton/property_tables.c",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", choices=[*FILES, []], help="default: all")
    parser.add_argument("--check", action="store_true", help="compare only")
    args = parser.parse_args()
    differing = []
    for table in args.tables or FILES:
        path, text = ROOT / FILES[table], io.StringIO()
        with contextlib.redirect_stdout(text):
            importlib.import_module(f"unicode_data.{table}").main()
        if path.exists() and path.read_text("utf-8") == text.getvalue():
            print(f"{FILES[table]}: as it was")
        elif args.check:
            differing.append(FILES[table])
        else:
            path.write_text(text.getvalue(), "utf-8")
            print(f"{FILES[table]}: written")
    if differing:
        sys.exit("differs: " + ", ".join(differing))


if __name__ == "__main__":
    main()
