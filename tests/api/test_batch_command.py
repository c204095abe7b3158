"""`inferd batch`: a file of requests is answered without a server."""

import json
import os
import pty
import subprocess
import time

import openai
import pytest
from harness import DEMO, ROOT, Server

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def line(name, url=TEXT, **body):
    body = {"prompt": f"Once {name}"} | body if url == TEXT else body
    return {"custom_id": f"{name}", "method": "POST", "url": url, "body": body}


def write(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def run(inferd, *arguments, model=DEMO):
    return subprocess.run([inferd, "batch", *map(str, arguments), *([model] if model else [])],
                          capture_output=True, text=True, check=False, timeout=300,
                          env={name: value for name, value in os.environ.items()
                               if not name.startswith("INFERD_")})


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def answers(path):
    return [json.loads(one) for one in path.read_text().splitlines()]


def test_lines_are_answered_as_a_server_does(inferd, tmp_path):
    """The file is one of vLLM's run-batch, with its flags: routes may differ."""
    talk = [{"role": "user", "content": "Hi"}]
    lines = [line("a", temperature=0, max_tokens=8),
             line("b", CHAT, messages=talk, temperature=0, max_tokens=8),
             line("c", "/v1/responses", input="Hi", temperature=0, max_output_tokens=8),
             line("wrong", max_tokens=-5), line("d", temperature=0, max_tokens=5, n=2)]
    out = tmp_path / "out.jsonl"
    done = run(inferd, "-i", write(tmp_path / "in.jsonl", lines), "-o", out, "--model", DEMO,
               model=None)
    assert done.returncode == 1 and done.stderr == (
        f"4 of 5 lines are answered in {out}, 1 have an error\n"), done
    found = answers(out)
    assert [one["custom_id"] for one in found] == ["a", "b", "c", "wrong", "d"]
    assert [one["response"]["status_code"] for one in found] == [200, 200, 200, 400, 200]
    assert found[3]["response"]["body"]["error"]["param"] == "max_tokens"
    server = Server(inferd, DEMO)
    for one, sent in zip(found, lines):
        body = one["response"]["body"]
        same = server.post(sent["url"], sent["body"]).json
        if "choices" in body:
            assert body["choices"] == same["choices"] and body["usage"] == same["usage"] | {
                "prompt_tokens_details": body["usage"]["prompt_tokens_details"]}
        elif "output" in body:
            assert [item["content"] for item in body["output"]] == [
                item["content"] for item in same["output"]]
    assert server.stop() == 0, server.log()


def test_no_step_is_bounded_in_time_unless_asked(inferd, tmp_path):
    """Nobody waits for a step; the journal's head says with which options the engine ran."""
    source, journal = write(tmp_path / "in.jsonl", [line("a", max_tokens=2)]), tmp_path / "steps"
    for given, bound in ((), b"0"), (("--max-step-ms", "7"), b"7"), (("--max_step_ms=8",), b"8"):
        done = run(inferd, source, tmp_path / f"{bound}.jsonl", "--journal", journal, *given)
        assert done.returncode == 0, done
        assert b"\nmax_step_ms %s\n" % bound in journal.read_bytes()


def test_scores_and_vectors(inferd, tmp_path):
    lines = [line("s", "/v1/score", text_1="a", text_2=["b", "a b"]),
             line("r", "/v1/rerank", query="a", documents=["b", "a b"]),
             line("q", "/rerank", query="a", documents=["b"])]
    out = tmp_path / "out.jsonl"
    done = run(inferd, write(tmp_path / "in.jsonl", lines), out,
               model=ROOT / "tests/vectors/encoders/bert-rank")
    assert done.returncode == 0, done
    score, rank, _ = (one["response"]["body"] for one in answers(out))
    assert len(score["data"]) == 2 and len(rank["results"]) == 2
    server = Server(inferd, ROOT / "tests/vectors/encoders/bert-rank", "--store", tmp_path / "a.db")
    mine = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0)
    with pytest.raises(openai.BadRequestError) as error:
        mine.files.create(file=("in", (tmp_path / "in.jsonl").read_bytes()), purpose="batch")
    assert "line 1: its 'url' is for inferd batch alone" in str(error.value)
    assert server.stop() == 0, server.log()


def test_an_output_that_was_cut_is_gone_on_with(inferd, tmp_path):
    lines = [line(f"{i}", max_tokens=40, ignore_eos=True, temperature=1) for i in range(120)]
    given, whole, cut = write(tmp_path / "in.jsonl", lines), tmp_path / "a", tmp_path / "b"
    assert run(inferd, given, whole).returncode == 0
    expected = [(one["id"], one["response"]["body"]["choices"]) for one in answers(whole)]
    assert len({one for one, _ in expected}) == 120
    for least in (1, 40):
        with subprocess.Popen([inferd, "batch", given, cut, DEMO],
                              stderr=subprocess.DEVNULL) as job:
            while job.poll() is None and count_lines(cut) < least:
                time.sleep(0.005)
            job.kill()
    with cut.open("ab") as file:
        file.write(b'{"id":"batch_req_')  # what a kill leaves of a line
    done = run(inferd, given, cut)
    assert done.returncode == 0 and "120 of 120 lines" in done.stderr, done
    assert [(one["id"], one["response"]["body"]["choices"]) for one in answers(cut)] == expected
    text = cut.read_bytes()
    assert run(inferd, given, cut).returncode == 0 and cut.read_bytes() == text
    write(given, lines[1:])
    done = run(inferd, given, cut)
    assert done.returncode == 65 and "is no output of this input: its line 1" in done.stderr
    assert cut.read_bytes() == text


@pytest.mark.parametrize("text, words", [
    ('{"custom_id": "a"}\n', "line 1: 'method' must be 'POST'"), ("", "there is none"),
    (json.dumps(line("a")) + "\n\n{\n", "line 3: Invalid JSON"),
    ((json.dumps(line("a")) + "\n") * 2, "line 2: its 'custom_id' is there before"),
    (json.dumps(line("a", "/v1/models")) + "\n", "line 1: 'url' must be"),
    (json.dumps(line("a", stream=True)) + "\n", "line 1: 'body.stream' must be false")])
def test_wrong_lines_are_named_and_none_runs(inferd, tmp_path, text, words):
    (tmp_path / "in.jsonl").write_text(text)
    done = run(inferd, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert done.returncode == 65 and words in done.stderr, done
    assert not (tmp_path / "out.jsonl").exists()


def test_wrong_arguments(inferd, tmp_path):
    given = write(tmp_path / "in.jsonl", [line("a")])
    for arguments, status, words in [
            ([], 64, "inferd batch IN OUT MODEL"), ([given], 64, "inferd batch IN OUT MODEL"),
            (["-i", given, DEMO], 64, "inferd batch IN OUT MODEL"),
            ([tmp_path / "nothing", tmp_path / "out", DEMO], 74, "nothing cannot be read"),
            ([given, tmp_path / "no/out", DEMO], 74, "no/out cannot be written"),
            ([given, tmp_path / "out", DEMO, "--nonsense"], 64, "--nonsense"),
            ([given, tmp_path / "out", DEMO, "--tensor-parallel-size", "2"], 64, "one process"),
            ([given, tmp_path / "out", tmp_path / "model"], 66, "model")]:
        done = run(inferd, *arguments, model=None)
        assert done.returncode == status and words in done.stderr, (arguments, done)


def test_progress_on_a_terminal(inferd, tmp_path):
    given = write(tmp_path / "in.jsonl", [line(f"{i}", max_tokens=2) for i in range(9)])
    ours, theirs = pty.openpty()
    done = subprocess.run([inferd, "batch", given, tmp_path / "out", DEMO], stderr=theirs,
                          check=True, timeout=120)
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0 and "\r9 of 9 lines" in text, text
    assert text.rstrip().endswith(f"9 of 9 lines are answered in {tmp_path / 'out'}"), text
