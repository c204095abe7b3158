"""The commands of docs/store.md and docs/replay.md, as they are but for ports, paths and ids."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from harness import DEMO, PATIENCE, ROOT, Server


class Shell:
    """Runs the lines of a page. `inferd serve` is a server of ours, which is stopped before others
    read its files; an id that the page cuts is the one that was printed last."""

    def __init__(self, inferd, folder):
        self.inferd, self.folder, self.server, self.ids = ROOT / inferd, folder, None, {}
        (folder / "models").mkdir()
        (folder / "models/demo").symlink_to(DEMO)

    def stop(self):
        if self.server is not None:
            assert self.server.stop() == 0, self.server.log()
        self.server = None

    def __call__(self, line):
        line = line.replace("/var/lib/inferd", str(self.folder))
        line = line.split("  #")[0]
        line = re.sub(r"\b(resp_|file-)\w*\.\.\.", lambda cut: self.ids[cut[1]], line)
        if line.startswith("inferd serve "):
            self.stop()
            model, *flags = line.split()[2:]
            self.server = Server(self.inferd, self.folder / model, *flags)
            return ""
        if line.startswith("inferd replay"):
            self.stop()
        if self.server is not None:
            line = line.replace("localhost:8000", f"{self.server.host}:{self.server.port}")
        done = subprocess.run(["bash", "-c", re.sub(r"^inferd ", f"{self.inferd} ", line)],
                              cwd=self.folder, capture_output=True, text=True,
                              timeout=120 * PATIENCE, check=False)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        for kind, rest in re.findall(r'"id": ?"(resp_|file-)(\w+)"', done.stdout):
            self.ids[kind] = kind + rest
        return done.stdout


@pytest.fixture
def shell(inferd, tmp_path):
    shell = Shell(inferd, tmp_path)
    yield shell
    shell.stop()


def blocks(page):
    text = (ROOT / "docs" / page).read_text()
    return [block.splitlines() for block in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)]


def test_what_the_page_of_the_store_says_first(shell):
    (serve, first, second), batches, usage = blocks("store.md")
    shell(serve)
    begun = json.loads(shell(first))
    assert json.loads(shell(second))["previous_response_id"] == begun["id"]
    echo, upload, create, local = batches
    shell(echo)
    assert json.loads(shell(upload))["purpose"] == "batch"
    assert json.loads(shell(create))["status"] in ("validating", "in_progress")
    shell(local)
    answer = json.loads(Path(shell.folder / "out.jsonl").read_text())
    assert answer["custom_id"] == "1" and answer["response"]["body"]["choices"][0]["text"]
    table, curl = usage
    assert "demo" in shell(table)
    results = [one for day in json.loads(shell(curl))["data"] for one in day["results"]]
    assert sum(one["num_model_requests"] for one in results) >= 2


def test_what_the_page_of_replay_says_first(shell):
    (serve, alone, stored, crash, timeline), _ = blocks("replay.md")
    shell(f"{serve} --store /var/lib/inferd/answers.db")
    shell("curl localhost:8000/v1/responses --json '{\"input\": \"Once upon a time\"}'")
    for line in (alone, stored):
        assert ": 0 differ, 0 were left out" in shell(line), line
    assert "plans are the same" in shell(crash)
    shell(timeline)
    assert "</svg>" in (shell.folder / "steps.svg").read_text()
    assert json.loads((shell.folder / "steps.json").read_text())["traceEvents"]
