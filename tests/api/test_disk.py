"""Odd and broken checkpoints, adapters and hosts (disk_cases.py): `inferd check` and `inferd serve`
say the same of each, with the exit status and the sentence that the case expects."""

import json
import os
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from disk_base import TENSORS, pickled, safetensors, write_base, write_large, written
from disk_cases import CASES, Case

from harness import DEMO, PATIENCE, ROOT

FLAGS = ["--kv-cache-bytes", "4M", "--max-num-seqs", "2", "--max-num-batched-tokens", "64",
         "--threads", "1"]
ENDS = 120 * PATIENCE


def arguments(case, folder, flags=None):
    here = [a.format(here=folder) for a in case.flags]
    return [case.model.format(here=folder), *(FLAGS if flags is None else flags), *here]


def shell(case, program, words):
    """The command of a case, behind the limits of its host."""
    return ["sh", "-c", f'{case.host} exec "$@"', "sh", str(ROOT / program), *words]


def check(inferd, case, folder, flags=None):
    words = ["check", *arguments(case, folder, flags)]
    done = subprocess.run(shell(case, inferd, words), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ENDS)
    return done.returncode, done.stdout


def serve(inferd, case, folder, flags=None):
    """Ends the server when it is ready: then its status is 0."""
    command = shell(case, inferd, ["serve", *arguments(case, folder, flags), "--port", "0"])
    text, is_told = [], False
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            text.append(line)
            if '"event":"ready"' in line and not is_told:  # of several lines; a second one hurries
                process.send_signal(signal.SIGTERM)
                is_told = True
        status = process.wait(ENDS)
    return status, "".join(text)


def complaints(inferd, base, folder, case):
    shutil.copytree(base / "model", folder / "model")
    case.make(folder)
    found = []
    for name, ask in (("check", check), ("serve", serve)):
        status, text = ask(inferd, case, folder)
        if status != case.status:
            found.append(f"{case.name}: {name} ends with {status}, expected {case.status}: "
                         f"{text[-400:]}")
        for words in case.words:
            if words.format(here=folder) not in text:
                found.append(f"{case.name}: {name} does not say {words!r}: {text[-400:]}")
    shutil.rmtree(folder)
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_base(folder)
    return folder


@pytest.mark.parametrize("kind", sorted({case.kind for case in CASES}))
def test_check_and_serve_say_the_same(inferd, base, tmp_path, kind):
    cases = [case for case in CASES if case.kind == kind]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(complaints, inferd, base, tmp_path / str(i), case)
                for i, case in enumerate(cases)]
        found = [line for job in jobs for line in job.result()]
    assert not found, "\n".join(found)


def test_there_are_enough_cases_each_with_a_source():
    assert len(CASES) >= 150
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(len(case.source) > 10 for case in CASES)


ADDRESSES = {"[::1]": "[::1]:", "::1": "[::1]:", "[0:0:0:0:0:0:0:1]": "[::1]:", "[::]": "[::]:",
             "[127.0.0.1]": "127.0.0.1:", "127.0.0.1": "127.0.0.1:",
             "::ffff:127.0.0.1": "[::ffff:127.0.0.1]:", "[::ffff:7f00:1]": "[::ffff:127.0.0.1]:"}


@pytest.mark.parametrize("host", [*ADDRESSES, "[::1", "::1]", "[]", "[banana]"])
def test_an_address_with_and_without_brackets(inferd, tmp_path, host):
    """Where the machine has no such address, the sentence still says that it was understood."""
    case = Case("host", host, "", None, 0, model=str(DEMO),
                flags=["--host", host, "--allow-unauthenticated"])
    status, text = serve(inferd, case, tmp_path)
    if host in ADDRESSES:
        assert "cannot resolve" not in text, text
        assert "listening on " + ADDRESSES[host] in text or (
            status != 0 and "Cannot assign" in text), text
    else:
        assert status != 0 and "cannot resolve " in text and host.strip("[]") in text, text


# Below 20,500 KiB nothing of the program runs: the loader finds no room for its libraries.
LIMITS = [f"ulimit -{kind} {kib}" for kind in "vd"
          for kib in (24000, 50000, 120000, 196607, 196608, 196609, 200000, 300000, 400000, 500000,
                      600000, 700000, 800000, 1000000)]
SAID = re.compile(r"memory {4}free [^\"\n]*|the model needs [^\"\n]*|"
                  r"ulimit -[vd] \d+ leaves no memory [^\"\n]*")


@pytest.mark.parametrize("seqs", [1, 64])
def test_check_and_serve_agree_under_limits_of_the_process(inferd, tmp_path, seqs):
    """The same status, and the same plan or the same refusal: none fails behind its plan."""
    found = set()
    for limit in LIMITS:
        case = Case("limit", limit, "", None, 0, [], [], str(DEMO), f"{limit};")
        ends = []
        for ask in (check, serve):
            status, text = ask(inferd, case, tmp_path, ["--max-num-seqs", str(seqs)])
            ends.append((status, SAID.findall(text)[:1]))
        assert ends[0] == ends[1], f"{limit}: {ends}"
        assert ends[0][1] and limit[len("ulimit "):] in str(ends[0][1]), f"{limit}: {ends}"
        found.add(ends[0][0])
    assert found == {0, 78}


def test_files_stand_beside_the_weights_in_the_address_space(inferd, tmp_path):
    """The files are mapped while weights are read: `ulimit -v` has room for both or for neither."""
    write_large(tmp_path / "model", 1600000)
    found = set()
    for kib in (300000, 400000, *range(460000, 560000, 20000), 640000, 800000):
        case = Case("limit", str(kib), "", None, 0, [], [], "{here}/model", f"ulimit -v {kib};")
        flags = [*FLAGS, "--skip-tokenizer-init"]
        ends = [ask(inferd, case, tmp_path, flags) for ask in (check, serve)]
        assert ends[0][0] == ends[1][0], f"{kib}: {ends}"
        assert ends[0][0] == 0 or all("ulimit -v" in text for _, text in ends), f"{kib}: {ends}"
        found.add(ends[0][0])
    assert found == {0, 78}


@pytest.fixture
def group():
    """A memory cgroup of this test's own, of 400 MB, where this machine lets us make one."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        place = Path(root) / f"inferd-test-{os.getpid()}"
        try:
            place.mkdir()
            (place / limit).write_text("400000000")
        except OSError:
            if place.exists():
                place.rmdir()
            continue
        yield place, limit
        place.rmdir()
        return
    yield None, "MemAvailable"  # then the same of the whole machine


def test_three_starts_in_a_row_plan_the_same(inferd, group):
    """The file cache of the first start is in the group when the second one plans."""
    place, limit = group
    enter = f"echo $$ > {place}/cgroup.procs;" if place else ""
    ask = f'{enter} cat "$1"/* > /dev/null; for i in 1 2 3; do "$0" check "$1"; done'
    text = subprocess.run(["sh", "-c", ask, ROOT / inferd, DEMO], text=True, check=True,
                          stdout=subprocess.PIPE, timeout=ENDS).stdout
    plans = [line for line in text.splitlines() if line.startswith("memory ")]
    assert len(plans) == 3 and limit in plans[0], text
    assert place is None or len(set(plans)) == 1, plans


@pytest.mark.parametrize("shards", [1, 2])
def test_a_pickle_that_was_converted_is_served_as_the_safetensors(inferd, base, tmp_path, shards):
    """The same plan and the same file as the base of the cases, which no pickle has been."""
    shutil.copytree(base / "model", tmp_path / "model")
    model = tmp_path / "model"
    (model / "model.safetensors").unlink()
    names = sorted(TENSORS)
    if shards == 1:
        (model / "pytorch_model.bin").write_bytes(pickled(TENSORS))
    else:
        found = {f"pytorch_model-{i + 1}-of-2.bin": names[i::2] for i in range(2)}
        for file, own in found.items():
            (model / file).write_bytes(pickled({n: TENSORS[n] for n in own}))
        (model / "pytorch_model.bin.index.json").write_text(json.dumps(
            {"weight_map": {n: file for file, own in found.items() for n in own}}))
    case = Case("pickle", "converted", "", None, 0)
    assert check(inferd, case, tmp_path)[0] == 66
    done = subprocess.run([ROOT / inferd, "convert", model], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ENDS)
    assert done.returncode == 0 and done.stdout.count("wrote") == shards, done.stdout
    stored = {}
    for file in model.glob("*.safetensors"):
        stored |= {n: (t, s, bytes(b)) for n, t, s, b in read_safetensors(file)}
    assert stored == TENSORS
    for ask in (check, serve):
        assert ask(inferd, case, tmp_path)[0] == 0


TOOLS = "{% for t in tools or [] %}T:{{ t.function.name }} {% endfor %}"
CALL = {"messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
# Where a template for tools may be: files, and how the prompt of a request with tools begins; None:
# the request is refused.
TEMPLATES = {
    "beside the default": ({"chat_template.jinja": "D",
                            "additional_chat_templates/tool_use.jinja": TOOLS}, "T:f"),
    "in the older folder": ({"chat_template.jinja": "D",
                             "chat_templates/tool_use.jinja": TOOLS}, "T:f"),
    "both folders": ({"chat_template.jinja": "D", "chat_templates/tool_use.jinja": "C" + TOOLS,
                      "additional_chat_templates/tool_use.jinja": "A" + TOOLS}, "CT:f"),
    "the default of a folder": ({"additional_chat_templates/default.jinja": "D",
                                 "additional_chat_templates/tool_use.jinja": TOOLS}, "T:f"),
    "in a list": ({"tokenizer_config.json": json.dumps({"chat_template": [
        {"name": "default", "template": "D"}, {"name": "tool_use", "template": TOOLS}]})}, "T:f"),
    "of another name": ({"chat_template.jinja": "D",
                         "additional_chat_templates/rag.jinja": TOOLS}, None),
    "alone": ({"additional_chat_templates/tool_use.jinja": TOOLS}, "T:f"),
    "alone in a list": ({"tokenizer_config.json": json.dumps({"chat_template": [
        {"name": "tool_use", "template": TOOLS}]})}, "T:f"),
    "none": ({"chat_template.jinja": "D"}, None),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_for_tools_is_found(start, base, tmp_path, name):
    files, begins = TEMPLATES[name]
    shutil.copytree(base / "model", tmp_path / "model")
    for own in (tmp_path / "model").glob("*chat_template*"):
        own.unlink()
    (tmp_path / "model/tokenizer_config.json").write_text("{}")
    for file, text in files.items():
        written(file, text)(tmp_path)
    server = start(tmp_path / "model", *FLAGS, "--tool-call-parser", "hermes")
    answer = server.post("/v1/chat/completions/render", CALL)
    if begins is None:
        assert answer.status == 400 and "does not take tools" in answer.error["message"]
    else:
        assert answer.json["prompt"].startswith(begins), answer.json
    plain = server.post("/v1/chat/completions/render", {"messages": CALL["messages"]})
    if name.startswith("alone"):  # as transformers: no default is specified
        assert plain.status == 400 and "send tools" in plain.error["message"], plain
    else:
        assert plain.json["prompt"] == "D"


@pytest.mark.parametrize("name", ["bert-mean", "bert-max", "bert-cls-bf16", "bert-rank",
                                  "bert-labels", "distilbert-mean", "distilbert-rank"])
def test_old_names_of_norms_have_the_same_numbers(start, tmp_path, name):
    """What candle#1887 and transformers#11809 met: gamma and beta instead of weight and bias."""
    source, answers = ROOT / "tests/vectors/encoders" / name, []
    shutil.copytree(source, tmp_path / "model")
    weights = tmp_path / "model/model.safetensors"
    found = {n: (t, s, b) for n, t, s, b in read_safetensors(weights)}
    renamed = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"): value for n, value in found.items()}
    assert renamed.keys() != found.keys()
    weights.write_bytes(safetensors(renamed))
    route = "/rerank" if "rank" in name else "/classify" if "labels" in name else "/v1/embeddings"
    body = {"input": ["a", "b c"]}
    if "rank" in name:
        body = {"query": "a", "documents": ["b", "c d"]}
    for folder in (source, tmp_path / "model"):
        answer = start(folder).post(route, body)
        assert answer.status == 200, answer
        answers.append(answer.json.get("data") or answer.json["results"])
    assert answers[0] == answers[1]


GIB = 1 << 30
V2 = {"memory.max": "max", "memory.high": "max", "memory.current": 0,
      "memory.stat": {"anon": 7, "active_file": 0, "inactive_file": 0, "slab_reclaimable": 0}}
V1 = {"memory/memory.limit_in_bytes": 9223372036854771712, "memory/memory.usage_in_bytes": 0,
      "memory/memory.stat": {"total_rss": 7, "total_active_file": 0, "total_inactive_file": 0}}
# A container as its kernel shows it: the files at the first start, what the two later ones see, and
# the limit that the plan must name. Each is as large as the first where the cache of files grew.
VIEWS = {
    "the cache in use": (V2, {"memory.max": 4 * GIB}, "active_file", "memory.max 4.00 GiB"),
    "the cache unused": (V2, {"memory.max": 4 * GIB}, "inactive_file", "memory.max 4.00 GiB"),
    "slab": (V2, {"memory.max": 4 * GIB}, "slab_reclaimable", "memory.max 4.00 GiB"),
    "memory.high": (V2, {"memory.high": 3 * GIB}, "active_file", "memory.high 3.00 GiB"),
    "high below max": (V2, {"memory.high": 2 * GIB, "memory.max": 4 * GIB}, "active_file",
                       "memory.high 2.00 GiB"),
    "version 1": (V1, {"memory/memory.limit_in_bytes": 4 * GIB}, "total_active_file",
                  "memory.limit_in_bytes 4.00 GiB"),
    "version 1, unused": (V1, {"memory/memory.limit_in_bytes": 2 * GIB}, "total_inactive_file",
                          "memory.limit_in_bytes 2.00 GiB"),
}


def write_view(folder, files):
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = value.items() if isinstance(value, dict) else [(value,)]
        (folder / name).write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))


def namespace():
    """What gives a command mounts of its own; None where the machine lets nobody have them."""
    for words in (["unshare", "-m"], ["unshare", "-rm"]):
        if subprocess.run([*words, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return words
    return None


def plan_in_view(inferd, folder, words):
    """The plan of the demo model under `folder` as /sys/fs/cgroup."""
    mount = 'mount --bind "$0" /sys/fs/cgroup &&' if words else ""
    ask = mount + ' exec "$1" check "$2" --max-num-seqs 16'
    done = subprocess.run([*(words or []), "sh", "-c", ask, folder, ROOT / inferd, DEMO], text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=ENDS)
    lines = [line for line in done.stdout.splitlines() if line.startswith("memory ")]
    assert done.returncode == 0 and len(lines) == 1, done.stdout
    return lines[0]


@pytest.mark.parametrize("name", VIEWS)
def test_three_starts_plan_the_same_in_a_view_of_a_container(inferd, tmp_path, name):
    """What the first start left in the cache is free for the later ones. Without mounts of its own
    the test reads this machine; the unit tests of engine/cpu have the same files."""
    own = namespace()
    files, limits, cache, words = VIEWS[name]
    stat = next(k for k in files if k.endswith("memory.stat"))
    usage = next(k for k in files if k.endswith(("current", "usage_in_bytes")))
    plans = []
    for held in (0, GIB + 12288, int(1.9 * GIB)):
        write_view(tmp_path, {**files, **limits, usage: held, stat: {**files[stat], cache: held}})
        plans.append(plan_in_view(inferd, tmp_path, own))
    if own is None:
        assert all(re.search(r"free [0-9.]+ GiB \(\w", plan) for plan in plans), plans
        return
    assert words in plans[0] and len(set(plans)) == 1, plans
    write_view(tmp_path, {usage: int(1.9 * GIB), stat: {**files[stat], cache: 0}})
    other = plan_in_view(inferd, tmp_path, own)
    assert other != plans[0] and words in other, other


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield (name, entry["dtype"], entry["shape"],
                   data[8 + length + begin:8 + length + end])
