"""The examples of README.md, pasted as they are but for the port, against the demo model."""

import contextlib
import io
import json
import re
import subprocess

from harness import PATIENCE, ROOT


def blocks(language):
    """The fenced blocks of that language; fences come in pairs."""
    text = (ROOT / "README.md").read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in fenced if name == language]


def test_curl_examples(server):
    examples = [block for block in blocks("") if block.startswith("curl ")]
    assert len(examples) >= 3
    answers = []
    for example in examples:
        command = example.replace("127.0.0.1:8000", f"{server.host}:{server.port}")
        done = subprocess.run(["bash", "-c", command], capture_output=True,
                              timeout=60 * PATIENCE, check=True)
        answers.append(json.loads(done.stdout))
    assert answers[0]["choices"][0]["text"]
    assert answers[1]["choices"][0]["message"]["content"] == "2 plus 3 is 5."
    assert answers[2]["content"][0]["text"] == "2 plus 3 is 5."


def test_python_examples(server):
    names, output = {}, io.StringIO()
    examples = blocks("python")
    assert len(examples) >= 2
    for example in examples:
        code = example.replace("127.0.0.1:8000", f"{server.host}:{server.port}")
        with contextlib.redirect_stdout(output):
            exec(compile(code, "README.md", "exec"), names)  # pylint: disable=exec-used
    names["client"].close()
    lines = output.getvalue().rstrip().splitlines()
    call = 'get_weather {"city": "Paris"}'
    assert lines[-3].endswith(call), output.getvalue()
    assert len(output.getvalue().split(call)[0]) > 20, "a streamed story comes first"
    assert re.fullmatch(r"name='[^']+' age=-?\d+", lines[-2])
    assert lines[-1] == "2 plus 3 is 5."
