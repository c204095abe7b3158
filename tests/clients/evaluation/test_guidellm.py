"""guidellm: a short load of synthetic text; what it counts is what the server has logged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import DEMO, PATIENCE, wait_until

REQUESTS, OUTPUT_TOKENS = 8, 16


def logged(server, route):
    """(prompt, generated) tokens of the requests in the server's log, by their id."""
    lines = [json.loads(line) for line in server.log().splitlines()]
    return {line["id"]: (line["prompt"], line["generated"]) for line in lines
            if line["event"] == "request" and line["route"] == route}


@pytest.mark.parametrize("route, profile", [
    ("/v1/chat/completions", "kind=synchronous"),
    ("/v1/completions", "kind=concurrent,streams=3")])
def test_a_load(demo, tmp_path, route, profile):
    report = tmp_path / "report.json"
    target = f"http://{demo.host}:{demo.port}"
    command = [Path(sys.executable).parent / "guidellm", "run", "--profile", profile,
               "--backend", f"kind=openai_http,target={target},model=demo,request_format={route}",
               "--constraint", f"kind=max_requests,count={REQUESTS}",
               "--tokenizer", f"kind=huggingface_auto,model={DEMO}",
               "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={OUTPUT_TOKENS}",
               "--output", f"kind=json,path={report}", "--disable-console"]
    environment = {"PATH": os.environ["PATH"], "HOME": tmp_path, "HF_HOME": tmp_path,
                   "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, text=True, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120 * PATIENCE)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    assert benchmark["metrics"]["request_totals"] == {"successful": REQUESTS, "errored": 0,
                                                      "incomplete": 0, "total": REQUESTS}
    counted = {request["response_id"].partition("-")[2]:
               (request["prompt_tokens"], request["output_tokens"])
               for request in benchmark["requests"]["successful"]}
    assert len(counted) == REQUESTS
    wait_until(lambda: counted.keys() <= logged(demo, route).keys(), "the log")
    assert counted.items() <= logged(demo, route).items()
    assert {output for _, output in counted.values()} == {OUTPUT_TOKENS}
