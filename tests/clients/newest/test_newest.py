"""Runs the first example of each program of programs.py. What no environment has is installed into
one of its own below build/newest, again when the versions change."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "api")]

# pylint: disable=wrong-import-position
from harness import PATIENCE, ROOT, Server  # noqa: E402
from programs import PROGRAMS  # noqa: E402
from scripted import CONTEXT, scripted_model  # noqa: E402

WHERE = ROOT / "build/newest"
NOWHERE = "http://127.0.0.1:9"  # what a program asks for beside the server ends here


def interpreter(name, program):
    """The Python that has the program. The stamp of an environment of its own has the versions."""
    if program.where:
        return ROOT / "build" / program.where / "bin/python"
    folder = WHERE / name
    stamp, wanted = folder / "versions", "\n".join(program.packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        command = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install",
                   "--quiet", "--no-compile", *program.packages]
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=1800)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        stamp.write_text(wanted)
    return folder / "bin/python"


def check_versions(python, program):
    """What is installed is what the table says."""
    asked = [package.split("==")[0].split("[")[0] for package in program.packages]
    code = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    said = subprocess.run([python, "-c", code, *asked], text=True, capture_output=True, check=True)
    assert said.stdout.split() == [package.split("==")[1] for package in program.packages]


def note(name, program, passed):
    """Keeps what the table of docs/clients.md is made of."""
    path = WHERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results[name] = {"packages": program.packages, "passed": passed,
                     "when": time.strftime("%Y-%m-%d")}
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_example(name, inferd, tmp_path):
    program = PROGRAMS[name]
    python = interpreter(name, program)
    check_versions(python, program)
    server = Server(inferd, scripted_model(tmp_path / "model", program.answers),
                    "--served-model-name", "demo", "--max-model-len", CONTEXT)
    base = f"http://{server.host}:{server.port}"
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home),
        "OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_BASE": f"{base}/v1", "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "none", "NO_PROXY": "127.0.0.1",
        "HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE}
    passed = False
    try:
        done = subprocess.run([python, HERE / f"{name}_first.py"], cwd=home, env=environment,
                              text=True, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=120 * PATIENCE, check=False)
        said = f"{done.stdout}\n{done.stderr[-4000:]}"
        assert done.returncode == 0, f"{said}\n{server.log()[-4000:]}"
        at = 0
        for text in program.prints:
            assert text in done.stdout[at:], said
            at = done.stdout.index(text, at) + len(text)
        assert server.stop() == 0, server.log()
        asked = [line for line in map(json.loads, server.log().splitlines())
                 if line["event"] == "request" and line["route"] != "/readyz"]
        assert {line["status"] for line in asked} == {200}, asked
        assert {line["route"] for line in asked} == set(program.routes), asked
        passed = True
    finally:
        note(name, program, passed)
        server.stop()
