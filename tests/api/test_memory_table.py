"""The table of docs/hardware.md is what `inferd check` plans today."""

import subprocess
import sys
from pathlib import Path

from harness import ROOT


def test_the_table_is_that_of_the_plan(inferd):
    done = subprocess.run([sys.executable, ROOT / "scripts/memory_table", "--build",
                           Path(inferd).parent], stdout=subprocess.PIPE, text=True, timeout=300,
                          check=True)
    assert done.stdout.count("\n") > 10 and done.stdout in (ROOT / "docs/hardware.md").read_text()
