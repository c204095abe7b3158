"""Fixtures of several folders of tests; their conftest.py imports what it wants."""

import pytest

from harness import LONG, Server, dummy_model, wait_until

# A start writes to all memory of its KV cache, which is most of what a start costs. A server of one
# test has a fourth of the default, 32,800 tokens, unless its flags say of what the cache is made.
# `make check` takes the default.
FEW_BLOCKS = ["--num-blocks", 2050]
SAY_BLOCKS = ("--num-", "--block-size", "--kv-cache", "--memory", "--gpu-memory", "--config",
              "--models", "--device", "--speculative", "--prefix-cache", "--swap-space", "--state-")


def pytest_addoption(parser):
    parser.addoption("--inferd", default="build/inferd", help="the program under test")
    parser.addoption("--kills", type=int, default=4, help="of the server, in test_kills.py")


@pytest.fixture(scope="session")
def inferd(request):
    return request.config.getoption("--inferd")


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory):
    """For requests that must still run when something else has happened: a fast model would write
    more than an unread stream may hold back, or be through. A step reads 200 MB of weights, so
    8,000 tokens take more than 20 s on any processor."""
    return dummy_model(tmp_path_factory.mktemp("model") / "slow", hidden_size=1024,
                       intermediate_size=3072, num_hidden_layers=8, num_attention_heads=16,
                       num_key_value_heads=8)


@pytest.fixture
def start(inferd):
    """Starts servers of the test's own: start(model, *flags). Stopped, and their exit status
    checked, when the test ends."""
    servers = []

    def make(model, *flags, **options):
        if not LONG and not any(str(flag).startswith(SAY_BLOCKS) for flag in flags):
            flags = (*FEW_BLOCKS, *flags)
        servers.append(Server(inferd, model, *flags, **options))
        return servers[-1]

    yield make
    for server in servers:
        if server.alive():
            wait_until(server.idle, "the server to be idle", context=server.usage)
        status = server.stop()
        assert status == server.expected_exit, server.log()
