"""Fixtures: which inferd is tested, the demo server most tests share, and the check after each
test that nothing was left behind in the engine."""

import os

import pytest

from fixtures import inferd, pytest_addoption, slow_model, start  # noqa: F401
from harness import DEMO, LONG, UNABLE, Server, wait_until

# With two threads a step of a small model is mostly one that waits for the other, which is a third
# of all processor time of these tests. The other folders, and `make check`, take the default.
if not LONG:
    os.environ.setdefault("INFERD_THREADS", "1")


@pytest.fixture(scope="session")
def demo(inferd):
    """The demo model on a free port, for the whole run. Its exit status at the end is checked too:
    under AddressSanitizer a leak of any request of the run shows there."""
    server = Server(inferd, DEMO, "--served-model-name", "demo,alias/demo", "--max-model-len", 2048)
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture
def server(demo):
    """The shared server; afterwards it must still be alive and own no block and no request."""
    yield demo
    assert demo.alive(), demo.log()
    wait_until(demo.idle, "the server to be idle again", context=demo.usage)


def pytest_terminal_summary(terminalreporter):
    """scripts/test repeats these lines, and counts them."""
    for count, why in UNABLE:
        terminalreporter.write_line(f"skipped {count}: {why}")
