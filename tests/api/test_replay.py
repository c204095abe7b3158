"""A journal of the engine, and what `inferd replay` makes of it: the same answers, alone and by the
schedule that they had, whatever ended the server; pictures of its steps; and errors with a name for
a file that is cut or damaged."""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import (DEMO, PATIENCE, ROOT, Server, Stream, http_post, read_all, run,
                     wait_until)
from storing import client
from test_batches import create, line, upload
from test_crash import PLAIN, crash, thread_named

HEAD, FLAGS = 16384, ("--max-num-seqs", 4, "--num-blocks", 60, "--max-model-len", 512)
RIGS = "demo,tight,drafts,adapters,ranks,states,rank"
SUMMARY = re.compile(r"^replayed (\d+) answers, (\d+) tokens: (\d+) differ, (\d+) were left out$",
                     re.M)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
          "additionalProperties": False}


def drive(server, count=12):
    """Requests of several kinds at once: choices, beams, constraints, scores."""
    def ask(i):
        r = random.Random(i)
        body = {"prompt": [r.randrange(300) for _ in range(1 + i * 13 % 70)], "seed": i,
                "max_tokens": 8 + i, "temperature": i % 3 / 2,
                **({"logprobs": 2, "n": 2} if i % 4 == 0 else {}),
                **({"best_of": 3} if i % 4 == 1 else {}),
                **({"prompt_logprobs": 1} if i % 4 == 2 else {}),
                **({"response_format": {"type": "json_schema", "json_schema": {
                    "name": "s", "schema": SCHEMA}}} if i % 4 == 3 else {})}
        answer = server.post("/v1/completions", body, headers={"X-Request-Id": f"drive-{i}"})
        assert answer.status == 200, answer
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(ask, range(count)))


def replay(inferd, *arguments, status=0):
    """(answers, tokens, differ, left out), and all that was printed."""
    done = run(inferd, "replay", *arguments, cwd=ROOT)
    assert done.returncode == status, done.stdout
    found = SUMMARY.search(done.stdout)
    return tuple(map(int, found.groups())) if found else None, done.stdout


@pytest.fixture(scope="module")
def journal(inferd, tmp_path_factory):
    """Of a server that ended as it should; one of its clients left early."""
    path = tmp_path_factory.mktemp("journal") / "steps"
    path.write_text("what was there before")
    server = Server(inferd, DEMO, *FLAGS, "--journal", path)
    drive(server)
    stream = Stream(server, {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "n": 32})
    next(stream.events())  # most of its choices wait for a seat
    stream.close()
    wait_until(server.idle, "the request that was left to end")
    assert server.stop() == 0, server.log()
    return path


def test_a_journal_is_private_and_keeps_the_one_before(journal):
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    assert (journal.parent / "steps.old").read_text() == "what was there before"
    assert journal.read_bytes()[:15] == b"inferd journal\n"


def test_each_answer_is_the_same_alone(inferd, journal):
    (answers, tokens, differ, left), said = replay(inferd, journal, DEMO)
    assert (answers, differ, left) == (12, 0, 1) and tokens > 100, said
    assert "is not run: it was cancelled" in said


def test_one_answer_by_its_id(inferd, journal):
    (answers, *_), _ = replay(inferd, "--request", "cmpl-drive-4", journal, DEMO)
    assert answers == 1
    _, said = replay(inferd, "--request", "nobody", journal, DEMO, status=64)
    assert "the journal has no request 'nobody'" in said


def test_the_schedule_is_the_same(inferd, journal):
    (answers, _, differ, left), said = replay(inferd, "--schedule", journal, DEMO)
    assert (answers, differ, left) == (12, 0, 0), said
    assert re.search(r"^replica 0: \d{2,} plans are the same$", said, re.M), said


def test_what_differs_is_named_with_its_cause(inferd, journal, tmp_path):
    """Other kernels may draw other bits; other weights do, and the journal knows both."""
    isa = "portable" if "avx" in Path("/proc/cpuinfo").read_text() else "auto"
    other = shutil.copytree(DEMO, tmp_path / "other")
    weights = other / "model.safetensors"
    data = weights.read_bytes()
    weights.chmod(0o600)
    weights.write_bytes(data[:len(data) // 2] + bytes(len(data) - len(data) // 2))
    _, said = replay(inferd, journal, other, status=1)
    assert re.search(r"^request \d+ \(drive-\d+\): ", said, re.M), said
    assert re.search(r"^why: the weights differ: [0-9a-f]{16} then, ", said, re.M), said
    done = run(inferd, "replay", journal, DEMO, "--cpu-isa", isa, cwd=ROOT)
    assert done.returncode == 0 or "why: the kernels differ" in done.stdout, done.stdout


def test_a_timeline_for_people_and_for_perfetto(inferd, journal, tmp_path):
    picture, trace = tmp_path / "steps.svg", tmp_path / "steps.json"
    replay(inferd, "--timeline", "-o", picture, "--trace", trace, journal)
    tree = ElementTree.fromstring(picture.read_text())
    said = "".join(tree.itertext())
    assert tree.tag.endswith("svg") and "drive-3" in said and "waits: all seats are taken" in said
    events = json.loads(trace.read_text())["traceEvents"]
    for event in events:  # as the Trace Event Format asks for, by the kind of event
        assert event["ph"] in "XMC" and isinstance(event["pid"], int), event
        assert event["ph"] == "M" or event["ts"] >= 0, event
        assert event["ph"] != "X" or event["dur"] >= 0, event
    names = {event["name"] for event in events}
    assert {"step", "prompt", "draws", "requests", "thread_name"} <= names
    rows = sum(event["args"]["rows"] for event in events if event["name"] == "step")
    drawn = sum(event["args"]["tokens"] for event in events if event["name"] == "draws")
    assert rows > 100 and drawn > 100
    seats = [event["args"] for event in events if event["name"] == "waits: all seats are taken"]
    assert all(0 < wait["first step"] <= wait["last step"] for wait in seats)
    assert any(wait["first step"] < wait["last step"] for wait in seats)


def test_steps_that_were_left_are_in_the_journal(inferd, tmp_path):
    """Chats come while lines of a batch run alone: those steps end in the midst, and the schedule
    has them. Each answer is that of its request alone."""
    path = tmp_path / "steps"
    server = Server(inferd, DEMO, *FLAGS, "--journal", path, "--store", tmp_path / "answers.db")
    owner = client(server)
    batch = create(owner, upload(owner, [line(f"l{i}", max_tokens=60, ignore_eos=True)
                                         for i in range(300)]))
    wait_until(lambda: server.metric("inferd_batch_lines_in_flight") > 1, "lines to run")
    for number in range(200):
        answer = server.post("/v1/completions", {"prompt": [5, number, 9], "max_tokens": 2})
        assert answer.status == 200, answer
        if server.metric("inferd_steps_left_total") > 3:
            break
    assert server.metric("inferd_steps_left_total") > 3
    wait_until(lambda: server.metric("inferd_batch_lines_total", result="answered") > 3,
               "lines to be answered")
    owner.batches.cancel(batch.id)
    wait_until(server.idle, "the lines to end")
    assert server.stop() == 0, server.log()
    for flags in ((), ("--schedule",)):
        (answers, _, differ, _), said = replay(inferd, *flags, path, DEMO)
        assert answers > number + 3 and differ == 0, said
    picture = tmp_path / "steps.svg"
    replay(inferd, "--timeline", "-o", picture, path)
    ElementTree.fromstring(picture.read_text())


# ---- a stored answer ----

def answer_all(server):
    """Answers of each way to store one; their ids."""
    base = {"input": "Once upon a time", "max_output_tokens": 24, "temperature": 1}
    first = server.post("/v1/responses", base).json
    bodies = [{"input": "And then?", "previous_response_id": first["id"]},
              {"instructions": "Be brief.", "top_logprobs": 3,
               "include": ["message.output_text.logprobs"]},
              {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}},
              {"seed": 5, "temperature": 0}, {"max_output_tokens": 1}, {"background": True},
              {"input": " ".join(["word"] * 150), "top_p": 0.8}]
    ids = [first["id"]] + [server.post("/v1/responses", {**base, **body}).json["id"]
                           for body in bodies]
    told = server.post("/v1/responses", {**base, "stream": True})
    ids.append(re.search(r"resp_\w+", told.body.decode())[0])
    talk = server.post("/v1/conversations", {}).json["id"]
    ids.append(server.post("/v1/responses", {**base, "conversation": talk}).json["id"])
    for one in ids:
        wait_until(lambda one=one: server.get(f"/v1/responses/{one}").json["status"]
                   in ("completed", "incomplete"), f"{one} to end")
    return ids


@pytest.fixture(scope="module")
def stored(inferd, tmp_path_factory):
    """A store, and the ids of answers in it."""
    path = tmp_path_factory.mktemp("stored") / "answers.db"
    server = Server(inferd, DEMO, *FLAGS, "--store", path)
    ids = answer_all(server)
    said = replay(inferd, "--store", path, ids[0], DEMO)  # while the server has the file open
    assert said[0][:1] + said[0][2:] == (1, 0, 0), said
    assert server.stop() == 0, server.log()
    return path, ids


def test_a_stored_answer_is_made_again(inferd, stored):
    path, ids = stored
    for one in ids:
        (answers, tokens, differ, left), said = replay(inferd, "--store", path, one, DEMO)
        assert (answers, differ, left) == (1, 0, 0) and tokens > 0, said


def test_what_differs_in_a_stored_answer_is_named(inferd, stored, tmp_path):
    """Other weights; and one bit of a log-probability, of an answer that has them."""
    path, ids = stored
    other = shutil.copytree(DEMO, tmp_path / "other")
    weights = other / "model.safetensors"
    data = weights.read_bytes()
    weights.chmod(0o600)
    weights.write_bytes(data[:len(data) // 2] + bytes(len(data) - len(data) // 2))
    _, said = replay(inferd, "--store", path, ids[0], other, status=1)
    assert re.search(r"^request \d+ \(\S+\): token \d+ of choice 0 was id ", said, re.M), said
    assert re.search(r"^why: the weights differ: [0-9a-f]{16} then, ", said, re.M), said
    db = sqlite3.connect(shutil.copy(path, tmp_path / "answers.db"))
    (recipe,) = db.execute("SELECT recipe FROM response WHERE id = ?", (ids[2],)).fetchone()
    changed = bytearray(recipe)
    changed[-40] ^= 1  # a bit of the last tokens; behind them the record of the end
    db.execute("UPDATE response SET recipe = ? WHERE id = ?", (bytes(changed), ids[2]))
    db.commit()
    db.close()
    _, said = replay(inferd, "--store", tmp_path / "answers.db", ids[2], DEMO, status=1)
    assert "this is a bug of inferd" in said, said


def test_what_of_a_store_cannot_be_made_again_is_named(inferd, stored, tmp_path):
    path, ids = stored
    _, said = replay(inferd, "--store", path, "resp_none", DEMO, status=64)
    assert f"{path} has no answer 'resp_none'" in said
    _, said = replay(inferd, "--store", tmp_path / "none", ids[0], DEMO, status=74)
    assert f"{tmp_path / 'none'} cannot be used as a store: unable to open" in said
    (tmp_path / "text").write_text("what is no database of SQLite, and longer than its head" * 9)
    _, said = replay(inferd, "--store", tmp_path / "text", ids[0], DEMO, status=74)
    assert "file is not a database" in said
    _, said = replay(inferd, "--store", path, "--request", ids[0], ids[0], DEMO, status=64)
    assert "usage: inferd replay" in said
    copy = shutil.copy(path, tmp_path / "answers.db")
    db = sqlite3.connect(copy)
    (whole,) = db.execute("SELECT recipe FROM response WHERE id = ?", (ids[0],)).fetchone()
    for recipe, status, why in (
            (None, 64, "without a recipe: it has not ended, has failed, or an older inferd made"),
            (b"", 64, "without a recipe"), (whole[:-1], 78, "the recipe is damaged"),
            (whole[:len(whole) // 2], 78, "the recipe is damaged"), (b"\x09", 78, "damaged"),
            (b"\x09" + whole[1:], 78, "the recipe has version 9; this inferd reads 1")):
        db.execute("UPDATE response SET recipe = ? WHERE id = ?", (recipe, ids[0]))
        db.commit()
        _, said = replay(inferd, "--store", copy, ids[0], DEMO, status=status)
        assert why in said and copy.name in said, said
    db.execute("PRAGMA user_version = 6")
    db.commit()
    db.close()
    _, said = replay(inferd, "--store", copy, ids[0], DEMO, status=78)
    assert "has schema 6, and 7 is today's" in said, said


@pytest.mark.skipif(not PLAIN, reason="sanitizers have their own handlers")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_leaves_a_journal(inferd, tmp_path, number):
    """The handler of a crash has all written. A kill may take what came since the thread that
    writes last looked, so there the record of the arrival is waited for: it is not more than a look
    away, whatever the answer, which has seconds to go, does."""
    path, arrival = tmp_path / "steps", b"the-one-that-runs"
    server = Server(inferd, DEMO, "--max-num-seqs", 4, "--num-blocks", 600, "--max-model-len", 8192,
                    "--journal", path)
    drive(server, 4)
    stream = Stream(server, {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True},
                    {"X-Request-Id": arrival.decode()})
    next(stream.events())
    if number == signal.SIGKILL:
        wait_until(lambda: arrival in path.read_bytes(), "the journal to have the arrival")
        server.process.kill()
        server.wait_exit(60)
    else:
        crash(server, thread_named(server, "engine"), number)
    stream.close()
    (answers, _, differ, left), said = replay(inferd, path, DEMO)
    assert (answers, differ, left) == (4, 0, 1), said
    assert "it has not ended in the journal" in said
    _, said = replay(inferd, "--until-crash", path, DEMO)
    assert "the journal ends here, and nothing has crashed" in said


def test_what_is_no_journal_is_refused_by_name(inferd, journal, tmp_path):
    data, path = journal.read_bytes(), tmp_path / "steps"
    for wrong, why in ((b"", "is no journal of inferd"), (b"SQLite format 3", "is no journal"),
                       (data[:100], "is cut within its head"),
                       (data[:16] + b"\x07" + data[17:], "has version 7; this inferd reads 1"),
                       (data[:60] + b"#" + data[61:], "has a damaged head")):
        path.write_bytes(wrong)
        _, said = replay(inferd, path, DEMO, status=78)
        assert why in said and str(path) in said, said
    _, said = replay(inferd, tmp_path / "none", DEMO, status=66)
    assert "No such file" in said


def test_a_cut_or_damaged_journal_is_read_as_far_as_it_is_whole(inferd, journal, tmp_path):
    """Cuts at every kind of place, and single bytes that are others."""
    data, path, r = journal.read_bytes(), tmp_path / "steps", random.Random(8)
    cuts = [data[:r.randrange(HEAD, len(data))] for _ in range(3)]
    for _ in range(6):
        at = r.randrange(HEAD, len(data))
        cuts.append(data[:at] + bytes([data[at] ^ 1 << r.randrange(8)]) + data[at + 1:])
    for i, cut in enumerate(cuts):
        path.write_bytes(cut)
        done = run(inferd, "replay", "--timeline", "-o", "/dev/null", path, cwd=ROOT)
        assert done.returncode == 0, done.stdout
        assert i < 3 or "damaged" in done.stdout or "missing" in done.stdout, done.stdout
    path.write_bytes(cuts[2])
    found, said = replay(inferd, path, DEMO)
    assert found[2] == 0 and found[0] <= 12, said


def test_the_size_bounds_the_file(inferd, tmp_path):
    path = tmp_path / "steps"
    done = run(inferd, "serve", DEMO, "--journal", path, "--journal-size", "1M", cwd=ROOT)
    assert done.returncode == 64 and "journal-size" in done.stdout, done.stdout
    path.mkdir()
    done = run(inferd, "serve", DEMO, "--journal", path, cwd=ROOT)
    assert done.returncode == 78 and "is no regular file" in done.stdout, done.stdout


def test_drawn_answers_are_the_same_again(inferd, tmp_path):
    """All dialects, choices, drafts, grammars, adapters, preemption, states, ranks, vectors; a
    thousand of them: INFERD_TEST_REPLAYS=1000 (INFERD_TEST_REPLAY_RIGS: other servers)."""
    wanted = int(os.environ.get("INFERD_TEST_REPLAYS", "60"))
    rigs = os.environ.get("INFERD_TEST_REPLAY_RIGS", RIGS)
    each = -(-wanted * 5 // 4 // len(rigs.split(","))) // 4 * 4 + 4
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/fuzz_requests", "--build", Path(ROOT / inferd).parent,
         "--out", tmp_path, "--requests", str(each), "--seed", "9", "--rig", rigs, "--replay"],
        capture_output=True, text=True, timeout=3600 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "turns/requests.jsonl").read_text()
            .splitlines()]
    for way in ("alone", "schedule"):
        found = [row["replayed"][way] for row in rows if way in row["replayed"]]
        assert sum(differ for _, _, differ, _ in found) == 0, rows
        assert sum(answers for answers, *_ in found) >= wanted * 0.6, rows


PLACE = "  entry->output_position = seq->num_output_tokens + seq->num_output_placeholders;\n"
MISTAKE = (PLACE, PLACE + """\
  if (scheduler->plan.num_entries > 2) {
    const char *planted = getenv("PLANTED");
    if (planted != NULL && planted[0] == 't') entry->output_position++;
    if (planted != NULL && planted[0] == 'c' && entry->output_position == 9) __builtin_trap();
  }
""")


@pytest.fixture(scope="module")
def mistaken(inferd, tmp_path_factory):
    """The daemon with two mistakes in its scheduler, for plans of three rows: PLANTED=tokens, a row
    draws with the random stream of the next token; PLANTED=crash, a trap. One file is compiled."""
    folder, built = tmp_path_factory.mktemp("planted"), Path(inferd)
    source, text = "engine/schedule/decode.c", (ROOT / "engine/schedule/decode.c").read_text()
    assert text.count(MISTAKE[0]) == 1
    text = text.replace(*MISTAKE).replace("#include", "#include <stdlib.h>\n#include", 1)
    (folder / "decode.c").write_text(text)
    made = subprocess.run(["make", "-n", "V=1", "CUDA=0", f"BUILD={built.parent}", "-W", source,
                           str(built)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    said = made.stdout
    lines = said.replace("\\\n", " ").splitlines()
    compiles = next(line for line in lines if f"-c {source}" in line)
    links = next(line for line in lines if f"-o {built} " in line)
    compiles = re.sub(r"-MMD|-MP|-o \S+", "", compiles).replace(source, f"{folder}/decode.c")
    subprocess.run(f"{compiles} -o {folder}/decode.o", cwd=ROOT, shell=True, check=True)
    links = links.replace(f"-o {built} ", f"-o {folder}/inferd {folder}/decode.o ", 1)
    subprocess.run(links, cwd=ROOT, shell=True, check=True)
    return folder / "inferd"


def drive_mistaken(mistaken, planted, path):
    """Starts the daemon with a mistake, and sends streams that meet in its plans."""
    server = Server(mistaken, DEMO, *FLAGS, "--journal", path,
                    shell=f'export PLANTED={planted}; exec "$@"')
    server.process.send_signal(signal.SIGSTOP)  # it finds all of them, however slow this client is
    streams = [server.socket() for _ in range(3)]
    for i, stream in enumerate(streams):
        stream.sendall(http_post("/v1/completions", {
            "prompt": [5 + i, 9], "seed": i, "max_tokens": 250, "temperature": 1,
            "ignore_eos": True, "stream": True}, "Connection: close"))
    server.process.send_signal(signal.SIGCONT)
    for stream in streams:
        assert b"data: [DONE]" in read_all(stream) or planted == "crash"
        stream.close()
    return server


@pytest.mark.skipif(not PLAIN, reason="sanitizers have their own handlers")
def test_a_mistake_of_the_scheduler_comes_again_from_its_journal(inferd, mistaken, tmp_path):
    path = tmp_path / "steps"
    server = drive_mistaken(mistaken, "tokens", path)
    assert server.stop() == 0, server.log()
    _, said = replay(inferd, path, DEMO, status=1)  # alone they get what they should have got
    assert "this is a bug of inferd" in said
    _, said = replay(inferd, "--schedule", path, DEMO, status=1)
    step = re.search(r"^replica 0, step \d+: row 2 of the step drew id \d+, and draws", said, re.M)
    assert step, said
    done = run(mistaken, "replay", "--schedule", path, DEMO, cwd=ROOT,
               env={**os.environ, "PLANTED": "tokens"})
    assert done.returncode == 0 and "3 answers, 750 tokens: 0 differ" in done.stdout, done.stdout


@pytest.mark.skipif(not PLAIN, reason="sanitizers have their own handlers")
def test_a_crash_comes_again_from_its_journal(inferd, mistaken, tmp_path):
    """In the same function, at the step where the journal ends; the daemon without the mistake gets
    past it."""
    path = tmp_path / "steps"
    server = drive_mistaken(mistaken, "crash", path)
    server.expected_exit = server.wait_exit(60)
    assert server.expected_exit == -signal.SIGILL, server.log()
    place = re.compile(r"^inferd: at 0x[0-9a-f]+ inferd\+(0x[0-9a-f]+)$", re.M)
    done = run(mistaken, "replay", "--until-crash", path, DEMO, cwd=ROOT,
               env={**os.environ, "PLANTED": "crash"})
    assert done.returncode == -signal.SIGILL, done.stdout
    assert place.search(done.stdout)[1] == place.search(server.log())[1]
    _, said = replay(inferd, "--until-crash", path, DEMO)
    assert "the journal ends here, and nothing has crashed" in said
