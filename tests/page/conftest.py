"""Fixtures of the tests of the web page: one browser for all, a tab for each, servers with a
script of answers (tests/clients/scripted.py)."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "api"), str(TESTS / "clients")]

from browser import Browser  # noqa: E402  pylint: disable=wrong-import-position
from fixtures import inferd, pytest_addoption, slow_model  # noqa: E402,F401
from harness import DEMO, Server  # noqa: E402  pylint: disable=wrong-import-position
import seeing  # noqa: E402  pylint: disable=wrong-import-position
from scripted import scripted_model  # noqa: E402  pylint: disable=wrong-import-position

HTML = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
THOUGHT = "Two words are\nenough."
ARGUMENTS = '{"city": "Oslo"}'
ANSWERS = [
    ("messages[-1]['role'] == 'tool'", "The tool was asked, and it rains in Oslo."),
    ("tools", '<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>"),
    ("'HTML' in messages[-1]['content']", HTML),
    ("true", f"<think>\n{THOUGHT}\n</think>\n\nGood morning."),
]


@pytest.fixture(scope="session")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def tab(browser):
    """Opens tabs: tab(server, path, **options of Browser.page). In the end none of them may have
    asked another origin for anything, or have broken a rule of its policy."""
    pages = []

    def make(server, path="/", **options):
        page = browser.page(**options)
        origin = f"http://127.0.0.1:{server.port}"
        pages.append((page, origin))
        page.open(origin + path)
        return page

    yield make
    for page, origin in pages:
        outside = [url for url in page.requests() if not url.startswith((origin + "/", "data:"))]
        complaints = page.complaints()
        page.close()
        assert outside == [] and complaints == []


@pytest.fixture(scope="module")
def seer(inferd, tmp_path_factory):
    server = Server(inferd, seeing.make(tmp_path_factory.mktemp("seeing") / "model"))
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="session")
def demo(inferd):
    server = Server(inferd, DEMO, "--served-model-name", "demo,second")
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="session")
def scripted(inferd, tmp_path_factory):
    """Known answers: reasoning and a greeting; a tool call; HTML where the message asks for it."""
    model = scripted_model(tmp_path_factory.mktemp("scripted") / "model", ANSWERS)
    server = Server(inferd, model, "--reasoning-parser", "qwen3", "--served-model-name", "scripted",
                    "--max-model-len", 8192)
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture
def start(inferd):
    """start(*flags): a server of the test's own, whose metrics the test may have closed."""
    servers = []

    def make(*flags, model=DEMO, **options):
        servers.append(Server(inferd, model, *flags, **options))
        return servers[-1]

    yield make
    for server in servers:
        status = server.stop()
        assert status == server.expected_exit, server.log()
