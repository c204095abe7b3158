"""Codex and Claude Code, the programs themselves: one tool round trip each over loopback.

The model is scripted: it asks for one shell command, and says whether that command's output came
back. What is under test is the server's dialects, its parser of calls, and its prefix cache.
"""

import json
import os
import subprocess
from pathlib import Path

import claude_agent_sdk
import codex_cli_bin
import pytest
from harness import PATIENCE, Server
from scripted import CONTEXT, scripted_model

COMMAND = "echo round-$((40 + 2))"  # its output does not stand in it
CALLS = {"codex": {"name": "exec_command", "arguments": {"cmd": COMMAND}},
         "claude": {"name": "Bash", "arguments": {"command": COMMAND, "description": "A word"}}}
THOUGHT = "<think>\nA command may tell.\n</think>\n\n"
CAME_BACK = "'round-42' in messages | map(attribute='content') | join(' ')"
DONE = "The command printed round-42."


class Desk:
    """A scripted server and a place to work with nothing of the user's and no way to the net."""

    def __init__(self, inferd, directory, program, thinks):
        self.thinks, thought = thinks, THOUGHT if thinks else ""
        call = f"<tool_call>\n{json.dumps(CALLS[program])}\n</tool_call>"
        model = scripted_model(directory / "model", [
            ("not tools", "There are no tools here."), (CAME_BACK, f"{thought}{DONE}"),
            ("messages[-1]['role'] == 'tool'", "The output of the command is lost."),
            ("true", thought + call)])
        flags = ["--reasoning-parser", "qwen3"] if thinks else []
        self.server = Server(inferd, model, "--served-model-name", "demo",
                             "--max-model-len", CONTEXT, *flags)
        self.url = f"http://{self.server.host}:{self.server.port}"
        self.home, self.work = directory / "home", directory / "work"
        self.home.mkdir()
        self.work.mkdir()

    def run(self, *command, **settings):
        """Runs a program that must end with 0; returns the objects that it printed."""
        nowhere = "http://127.0.0.1:9"
        environment = {"PATH": os.environ["PATH"], "HOME": self.home, "TMPDIR": self.home,
                       "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1",
                       **settings}
        done = subprocess.run(command, cwd=self.work, env=environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60 * PATIENCE, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.server.log()}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    def requests(self, route):
        """The requests to `route` in the whole log; nothing else may have been asked for."""
        assert self.server.stop() == 0, self.server.log()
        lines = [json.loads(line) for line in self.server.log().splitlines()]
        asked = [line for line in lines
                 if line["event"] == "request" and line["route"] != "/readyz"]
        assert {line["route"] for line in asked} == {route}, asked
        assert {line["status"] for line in asked} == {200}, asked
        return asked

    def expect_round_trip(self, route):
        first, second = self.requests(route)
        # The second prompt begins with the first: all but its last token is in the cache.
        assert first["prompt"] > 5000 and second["prompt"] > first["prompt"]
        assert second["cached"] >= 0.9 * first["prompt"]


@pytest.fixture
def desk(request, tmp_path):
    program, thinks = request.param
    desk = Desk(request.config.getoption("--inferd"), tmp_path, program, thinks)
    yield desk
    assert desk.server.stop() == 0, desk.server.log()


def both(program):
    return pytest.mark.parametrize("desk", [(program, False), (program, True)], indirect=True,
                                   ids=["plain", "thinking"])


@both("codex")
def test_codex_runs_a_command(desk):
    provider = f'{{name="inferd", base_url="{desk.url}/v1", env_key="KEY", wire_api="responses"}}'
    events = desk.run(codex_cli_bin.bundled_codex_path(), "exec", "--json", "--skip-git-repo-check",
                      "--dangerously-bypass-approvals-and-sandbox", "--model", "demo",
                      "-c", f"model_providers.inferd={provider}", "-c", "model_provider=inferd",
                      "Run the command and say what it printed.",
                      CODEX_HOME=desk.home, KEY="none")
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    ran = [item for item in items if item["type"] == "command_execution"]
    assert [(item["exit_code"], item["aggregated_output"]) for item in ran] == [(0, "round-42\n")]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == [DONE]
    assert events[-1]["type"] == "turn.completed"
    assert (events[-1]["usage"]["reasoning_output_tokens"] > 0) == desk.thinks
    desk.expect_round_trip("/v1/responses")


@both("claude")
def test_claude_code_runs_a_command(desk):
    program = Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
    events = desk.run(program, "-p", "Run the command and say what it printed.", "--verbose",
                      "--output-format", "stream-json", "--allowedTools", "Bash",
                      ANTHROPIC_BASE_URL=desk.url, ANTHROPIC_AUTH_TOKEN="none",
                      ANTHROPIC_MODEL="demo", ANTHROPIC_DEFAULT_HAIKU_MODEL="demo",
                      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
    results = [block for event in events if event["type"] == "user"
               for block in event["message"]["content"] if block["type"] == "tool_result"]
    assert [(block["content"], block["is_error"]) for block in results] == [("round-42", False)]
    thoughts = [block["thinking"].strip() for event in events if event["type"] == "assistant"
                for block in event["message"]["content"] if block["type"] == "thinking"]
    assert thoughts == (["A command may tell."] * 2 if desk.thinks else [])
    end = events[-1]
    assert (end["subtype"], end["result"], end["num_turns"]) == ("success", DONE, 2)
    desk.expect_round_trip("/v1/messages")
