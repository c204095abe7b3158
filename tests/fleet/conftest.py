"""Fixtures of the tests of a fleet: the programs of Debian that scripts/bootstrap has unpacked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/api")]
# pylint: disable=wrong-import-position
import fixtures  # noqa: E402
from fixtures import inferd, start  # noqa: E402,F401
from harness import DEMO, Server  # noqa: E402
from load import BODIES  # noqa: E402

TOOLS = ROOT / "build/fleet-tools"


def pytest_addoption(parser):
    fixtures.pytest_addoption(parser)
    parser.addoption("--requests", default=10000, type=int, help="through each proxy")


@pytest.fixture(scope="session")
def texts(inferd):
    """The answers of a server alone to BODIES."""
    server = Server(inferd, DEMO)
    answers = [server.post("/v1/completions", body).json["choices"][0]["text"] for body in BODIES]
    assert server.stop() == 0
    return answers


@pytest.fixture
def launch(tmp_path):
    """launch(NAME, *arguments): a program, ended with the test."""
    processes = []

    def make(name, *arguments):
        folders = (TOOLS / "usr/bin", TOOLS / "usr/sbin", ROOT / "build/venv-fleet/bin",
                   Path("/bin"))
        program = next(folder / name for folder in folders if (folder / name).exists())
        libraries = ":".join(str(path) for path in (TOOLS / "usr/lib").glob("*-linux-gnu"))
        with open(tmp_path / f"{name}.log", "wb") as log:
            processes.append(subprocess.Popen(
                [program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "LD_LIBRARY_PATH": libraries,
                     "PATH": f"{ROOT}/build/venv-fleet/bin:{os.environ['PATH']}"}))
        return processes[-1]

    yield make
    for process in processes:
        process.terminate()
        process.wait(60)
