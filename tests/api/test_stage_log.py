"""With --log-level debug the log tells a request's way: a line at each border that it crosses, and
never what it says."""

import json
import re

import pytest

from harness import Background, dummy_model, wait_until

PROMPT = "an unusual phrase"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return dummy_model(tmp_path_factory.mktemp("model") / "dummy")


def dummy(start, model, *flags):
    return start(model, "--load-format", "dummy", "--seed", "7", "--served-model-name", "dummy",
                 "--log-format", "json", *flags)


def stage_lines(log_file):
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    assert all(line["level"] == "debug" for line in lines if line["event"] == "stage")
    return [line["msg"] for line in lines if line["event"] == "stage"]


def way_of(lines, request_id):
    """The messages about one request, without its number and the times."""
    (checked,) = [line for line in lines if f"checked, id {request_id}," in line]
    number = re.match(r"request (\d+): ", checked)[1]
    own = [line for line in lines if line.startswith((f"request {number}: ", f"id {request_id}: "))]
    return [re.sub(r"^(request \d+|id \S+): |, [0-9.]+ ms after its arrival$", "", line)
            for line in own]


def test_lines_of_a_request_in_order(start, model, tmp_path):
    """Two requests fit into the pool until they grow: the later one is preempted. They are long, so
    that one does not end before the other begins on a machine with other work."""
    log_file = tmp_path / "log"
    server = dummy(start, model, "--log-level", "debug", "--log-file", log_file,
                   "--num-blocks", 115)
    streams = [Background(server, {"prompt": PROMPT, "max_tokens": 1200, "ignore_eos": True,
                                   "seed": i, "request_id": f"way-{i}"}) for i in range(2)]
    texts = [stream.join().text() for stream in streams]
    wait_until(lambda: sum("reply written" in m for m in stage_lines(log_file)
                           if m.startswith("id way-")) == 2, "both replies")
    lines = stage_lines(log_file)
    ways = [way_of(lines, f"way-{i}") for i in range(2)]
    order = [r"checked, id way-\d, \d+ prompt tokens, 1 choices", "queued",
             r"admitted with \d+ tokens", "first token",
             r"preempted with \d+ tokens, to be computed again", r"admitted with \d+ tokens",
             "finished by length, 1200 output tokens", r"reply written, status 200, \d+ bytes"]
    preempted = next(way for way in ways if any("preempted" in line for line in way))
    rest = [line for line in preempted if not line.startswith(("preempted", "admitted"))]
    assert len(rest) == 5, rest
    at = -1
    for pattern in order:  # further preemptions may lie between
        at = next((i for i in range(at + 1, len(preempted))
                   if re.fullmatch(pattern, preempted[i])), None)
        assert at is not None, (pattern, preempted)
    log = log_file.read_text()
    assert PROMPT not in log
    assert all(text[:12] not in log for text in texts if len(text) > 12)


def test_no_lines_without_the_level(start, model, tmp_path):
    log_file = tmp_path / "log"
    server = dummy(start, model, "--log-file", log_file)
    server.choice(prompt=PROMPT, max_tokens=4)
    wait_until(lambda: '"request"' in log_file.read_text(), "the access line")
    assert stage_lines(log_file) == []
