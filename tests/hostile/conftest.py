"""Fixtures: a server with a large vocabulary, one key for the attacker, one for everybody else."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "api")]
# pylint: disable=wrong-import-position
import vocabulary  # noqa: E402
from fixtures import inferd, pytest_addoption  # noqa: E402,F401
from harness import Background, Server, wait_until  # noqa: E402
from victim import STREAM, ids  # noqa: E402

HONEST, ATTACKER = "sk-honest-0123456789abcdef", "sk-attacker-0123456789abcdef"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return vocabulary.model(tmp_path_factory.mktemp("model") / "large")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"{HONEST} honest\n{ATTACKER} attacker\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="session")
def make(request, model, keys):
    """make() starts a server with its default settings, or with these flags."""
    return lambda *flags: Server(
        request.config.getoption("--inferd"), model, "--load-format", "dummy", "--seed", 7,
        "--served-model-name", "large", "--api-key-file", keys, "--metrics-auth", "off",
        "--max-logprobs", -1, *flags, key=HONEST)


@pytest.fixture
def start(make):
    """Starts a server that the test ends itself."""
    servers = []

    def begin(*flags):
        servers.append(make(*flags))
        return servers[-1]

    yield begin
    for server in servers:
        assert not server.alive(), "the test left its server running"


@pytest.fixture(scope="session")
def shared(make):
    """One server for all attacks: what one leaves behind would show in the next."""
    server = make()
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="session")
def alone(shared):
    """The tokens of the honest stream on a server that does nothing else."""
    stream = Background(shared, STREAM).join()
    assert stream.failure is None and len(ids(stream)) == STREAM["max_tokens"]
    return ids(stream)


@pytest.fixture
def server(shared):
    """The shared server; afterwards it must be alive and hold no block, no request and no job."""
    yield shared
    assert shared.alive(), shared.log()
    wait_until(lambda: shared.idle() and shared.metric("inferd_lane_jobs") == 0,
               "the server to be idle again", 60, shared.usage)
