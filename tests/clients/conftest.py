"""The same fixtures as tests/api, in the environment of the heavier clients."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "api"))

# pylint: disable=wrong-import-position
from fixtures import inferd, pytest_addoption  # noqa: E402,F401
from harness import DEMO, Server  # noqa: E402


@pytest.fixture(scope="session")
def demo(request):
    server = Server(request.config.getoption("--inferd"), DEMO, "--served-model-name", "demo",
                    "--max-model-len", 2048, "--enable-tokenizer-info-endpoint")
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture
def url(demo):
    return f"http://{demo.host}:{demo.port}/v1"
