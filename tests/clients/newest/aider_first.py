"""The first example of the documents of aider for one instruction: aider --message TEXT FILE."""

import subprocess
import sys
from pathlib import Path

hello = Path("hello.py")
hello.write_text("")
subprocess.run([sys.executable, "-m", "aider", "--model", "openai/demo", "--yes-always", "--no-git",
                "--message", "make a script that prints hello", "hello.py"], check=True)
print(hello.read_text())
