"""A server that keeps answers, with two keys: what the tests of the store share. A test file
imports the fixtures that it wants; each file has a server of its own."""

import openai
import pytest
from harness import DEMO, Server

ALICE, BOB = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef"


def write_keys(folders, alice=""):
    """A file of both keys; `alice`: what stands behind hers."""
    path = folders.mktemp("keys") / "keys"
    path.write_text(f"{ALICE} alice {alice}\n{BOB} bob\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return write_keys(tmp_path_factory)


@pytest.fixture(scope="module")
def start(inferd, keys):
    def begin(file, *flags, model=DEMO, keyed=True):
        more = ["--api-key-file", keys] if keyed else []
        return Server(inferd, model, "--served-model-name", "demo", "--store", file, *more, *flags,
                      key=ALICE if keyed else None)

    return begin


@pytest.fixture(scope="module")
def server(start, tmp_path_factory):
    server = start(tmp_path_factory.mktemp("store") / "answers.db")
    yield server
    assert server.stop() == 0, server.log()


def client(server, key=ALICE):
    """Without the list of authorities of TLS, whose reading is 50 ms of the processor."""
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0,
                         http_client=openai.DefaultHttpxClient(verify=False))


@pytest.fixture(scope="module")
def alice(server):
    return client(server)


@pytest.fixture(scope="module")
def bob(server):
    return client(server, BOB)
