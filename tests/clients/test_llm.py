"""The `llm` command line program with a model of its own configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def llm(url, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: demo\n  model_name: demo\n  api_base: {url}\n  supports_schema: true\n"
        f"  supports_tools: true\n- model_id: old\n  model_name: demo\n  api_base: {url}\n"
        f"  completion: true\n")
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}

    def run(*arguments):
        program = Path(sys.executable).parent / "llm"
        done = subprocess.run([program, *arguments], env=environment, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_prompts(llm):
    assert llm("-m", "demo", "-o", "temperature", "0", "What is 2 plus 3?") == "2 plus 3 is 5."
    plain = llm("-m", "demo", "--no-stream", "-o", "temperature", "0", "-s", "Be brief.",
                "What is 2 plus 3?")
    assert plain
    assert llm("-m", "old", "-o", "max_tokens", "8", "Once upon a time")


def test_schema(llm):
    schema = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
              "properties": {"name": {"type": "string", "maxLength": 20},
                             "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
    person = json.loads(llm("-m", "demo", "-o", "max_tokens", "300", "--schema",
                            json.dumps(schema), "Make up a person."))
    assert person.keys() == {"name", "age"} and isinstance(person["age"], int)


def test_concise_schema(llm):
    """The program's own spelling has no bound of a string, so the answer is one without a draw."""
    person = json.loads(llm("-m", "demo", "-o", "max_tokens", "300", "-o", "temperature", "0",
                            "--schema", "name, age int", "Make up a person."))
    assert person.keys() >= {"name", "age"} and isinstance(person["age"], int)
