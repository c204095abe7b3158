"""scripts/fuzz_requests in short: most of what it draws is served, nothing of it is a finding."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import PATIENCE, ROOT

sys.path.append(str(ROOT / "tests/fuzz"))
import bodies  # noqa: E402 pylint: disable=wrong-import-position

RIGS = ("demo,embed,rank,ollama,vectors", "small,labels,llama", "drafts,decoder,seer",
        "adapters,states", "replicas,delta,several", "hears", "listener")


@pytest.mark.parametrize("rigs", RIGS)
def test_most_drawn_requests_are_served(inferd, tmp_path, rigs):
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts/fuzz_requests", "--build", Path(ROOT / inferd).parent,
         "--out", tmp_path, "--requests", "120", "--seed", "5", "--rig", rigs],
        capture_output=True, text=True, timeout=200 * PATIENCE, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in (tmp_path / "turns/requests.jsonl").read_text()
            .splitlines()]
    assert [row["rig"] for row in rows] == rigs.split(",")
    for row in rows:
        assert row["requests"] == 120 and row["accepted"] >= 0.7 * row["requests"], row


def test_every_route_with_a_body_is_drawn():
    source = (ROOT / "scripts/fuzz_requests").read_text()
    for route, operations in bodies.SCHEMAS["paths"].items():
        if "requestBody" in operations.get("post", {}):
            assert f'"{route}"' in source, route
