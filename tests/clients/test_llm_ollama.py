"""The `llm` command line program by its plugin for Ollama, and LiteLLM's two providers for it, as
aider and others use them: they ask /api/ for models, what each can do, and answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import litellm
import pytest

ASK = "What is 2 plus 3?"


@pytest.fixture
def llm(demo, tmp_path):
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path),
                   "OLLAMA_HOST": f"http://{demo.host}:{demo.port}"}

    def run(*arguments):
        done = subprocess.run([Path(sys.executable).parent / "llm", *arguments], env=environment,
                              text=True, timeout=120, stdin=subprocess.DEVNULL,
                              capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_the_program_finds_the_models(llm):
    assert "Ollama: demo:latest" in llm("models")
    assert "demo:latest" in llm("ollama", "models")


def test_the_program_asks(llm):
    assert llm("-m", "demo:latest", "-o", "temperature", "0", ASK) == "2 plus 3 is 5."
    assert llm("-m", "demo:latest", "--no-stream", "-o", "temperature", "0", ASK) == (
        "2 plus 3 is 5.")


def test_the_program_has_schemas(llm):
    schema = {"type": "object", "required": ["age"], "additionalProperties": False,
              "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 120}}}
    person = json.loads(llm("-m", "demo:latest", "-o", "num_predict", "300", "--schema",
                            json.dumps(schema), "Make up a person."))
    assert 0 <= person["age"] <= 120


@pytest.fixture(params=["ollama", "ollama_chat"])
def options(request, demo):
    litellm.telemetry = False
    return {"model": f"{request.param}/demo", "api_base": f"http://{demo.host}:{demo.port}",
            "temperature": 0, "max_tokens": 64, "num_retries": 0}


def test_litellm_completes_and_streams(options):
    asked = [{"role": "user", "content": ASK}]
    answer = litellm.completion(messages=asked, **options)
    text = answer.choices[0].message.content
    assert text and answer.usage.completion_tokens > 0
    parts = litellm.completion(messages=asked, stream=True, **options)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == text
