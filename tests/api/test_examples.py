"""docs/examples, run as a reader would run them, against the demo model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import DEMO, PATIENCE, ROOT

EXAMPLES = ROOT / "docs/examples"


def run(*command, status=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=False)
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return done


def url(server):
    return f"http://{server.host}:{server.port}"


def test_curl(server):
    lines = run(EXAMPLES / "requests.sh", url(server)).stdout.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("-- ")]
    parts = [[line for line in lines[begin + 1:end] if line]
             for begin, end in zip(heads, heads[1:] + [len(lines)])]
    completion, chat, person, tokens, metrics = parts
    assert json.loads(completion[0])["choices"][0]["text"]
    assert chat[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in chat[:-1]]
    text = "".join(choice["delta"].get("content") or ""
                   for chunk in chunks for choice in chunk["choices"])
    assert text == "2 plus 3 is 5." and chunks[-1]["usage"]["completion_tokens"] > 0
    answer = json.loads(json.loads(person[0])["choices"][0]["message"]["content"])
    assert set(answer) == {"name", "age"} and isinstance(answer["age"], int)
    assert json.loads(tokens[0])["count"] == len(json.loads(tokens[0])["tokens"]) > 0
    assert float(metrics[0].split()[-1]) > 0


def test_python(server):
    lines = run(sys.executable, EXAMPLES / "chat.py", url(server)).stdout.splitlines()
    assert lines == ["2 plus 3 is 5.", "get_weather {'city': 'Paris'}",
                     "400 invalid_value temperature"]


@pytest.fixture(name="embed")
def find_embed(inferd):
    return Path(inferd).parent / "examples/embed"


def test_embedded_engine(embed, server):
    prompt = "Once upon a time"
    done = run(embed, DEMO, prompt)
    answer = server.choice(prompt, max_tokens=32, temperature=0)
    assert done.stdout == answer["text"] + "\n"
    assert done.stderr == "length after 32 tokens\n"


def test_embedded_engine_says_why_not(embed, tmp_path):
    assert "embed: " in run(embed, tmp_path, "Once", status=66).stderr
    long = run(embed, DEMO, "Once upon a time " * 400, status=70)
    assert "maximum context length is 512 tokens" in long.stderr
