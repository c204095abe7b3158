"""`inferd pull` against a hub that misbehaves; what it leaves, huggingface_hub and `serve` find."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, snapshot_download

from disk_base import pickled
from harness import DEMO, PATIENCE, ROOT, wait_until
from hub import COMMIT, Hub, etag, git_sha1

NAME = "someone/Demo-26M"
BIG = "someone/Big"
FOLDER = "models--someone--Demo-26M"
SERVED = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
          "tokenizer_config.json"}


@pytest.fixture(scope="module", name="repositories")
def make_repositories(tmp_path_factory):
    """The demo model among files that nobody reads, a large one in shards, and GGUF files."""
    demo, big, gguf, other = (tmp_path_factory.mktemp(n) for n in ("demo", "big", "gguf", "other"))
    for name in SERVED:
        shutil.copy(DEMO / name, demo / name)
    for name in ("README.md", "pytorch_model.bin", "consolidated.safetensors", ".gitattributes",
                 "original/params.json", "onnx/model.onnx", "preprocessor_config.json"):
        (demo / name).parent.mkdir(exist_ok=True)
        (demo / name).write_text(name)
    (big / "config.json").write_text("{}")
    (big / "model.safetensors.index.json").write_text("{}")
    for shard, size in ((1, 30_000_000), (2, 17_000_001)):
        (big / f"model-0000{shard}-of-00002.safetensors").write_bytes(os.urandom(size))
    for name in ("x-Q4_K_M.gguf", "x-UD-Q4_K_M.gguf", "Q8_0/x-Q8_0-00001-of-00002.gguf",
                 "Q8_0/x-Q8_0-00002-of-00002.gguf", "mmproj-F16.gguf"):
        (gguf / name).parent.mkdir(exist_ok=True)
        (gguf / name).write_text(name)
    (other / "pytorch_model.bin").write_bytes(pickled({"a": ("F32", [1], bytes(4))}))
    (other / "config.json").write_text("{}")
    none = tmp_path_factory.mktemp("none")
    for name in ("config.json", "weights.bin"):
        (none / name).write_text("{}")
    return {NAME: demo, BIG: big, "someone/x-GGUF": gguf, "someone/pickle": other,
            "someone/other": none}


@pytest.fixture(name="hub")
def start_hub(repositories):
    hub = Hub(repositories)
    yield hub
    hub.close()


class Puller:
    def __init__(self, inferd, hub, cache):
        self.program, self.hub, self.cache = str(ROOT / inferd), hub, cache

    def environment(self, **more):
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        return {**plain, "HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache),
                "HOME": str(self.cache), **more}

    def begin(self, *arguments, **more):
        return subprocess.Popen([self.program, "pull", *map(str, arguments)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.environment(**more))

    def end(self, process):
        out, err = process.communicate(timeout=120 * PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def __call__(self, *arguments, **more):
        return self.end(self.begin(*arguments, **more))

    def refused(self, status, *arguments, **more):
        """Runs a pull that must fail with this status; returns its only message."""
        done = self(*arguments, **more)
        assert done.returncode == status, done
        assert done.stderr.startswith("inferd: ") and not done.stdout, done
        assert not list(self.cache.glob("models--*/snapshots/*")), done
        return done.stderr

    def good(self, *arguments, **more):
        done = self(*arguments, **more)
        assert done.returncode == 0, done
        return Path(done.stdout.strip())

    def partial(self):
        """Bytes of each download that was begun; one may end while this looks."""
        found = {}
        for path in self.cache.glob("models--*/blobs/*.incomplete"):
            try:
                found[path.name] = path.stat().st_size
            except FileNotFoundError:
                continue
        return found


@pytest.fixture(name="pull")
def make_puller(inferd, hub, tmp_path):
    return Puller(inferd, hub, tmp_path / "hub")


def check(snapshot, folder, names):
    """Exactly these files, as relative links to blobs that are named by their sums."""
    there = {str(p.relative_to(snapshot)) for p in snapshot.rglob("*") if not p.is_dir()}
    assert there == set(names)
    for name in names:
        link = os.readlink(snapshot / name)
        assert link == "../" * (2 + name.count("/")) + "blobs/" + etag(folder / name)
        assert (snapshot / name).read_bytes() == (folder / name).read_bytes()
    assert not list(snapshot.parent.parent.glob("blobs/*.incomplete"))


def cut(place, name, after, times=1):
    """A fault: the answer ends after so many bytes."""
    left = [times]

    def fault(request):
        if request.place != place or request.name != name or not left[0]:
            return False
        left[0] -= 1
        path = fault.folder / name
        body, headers, status = path.read_bytes(), {"ETag": f'"{etag(path)}"'}, 200
        if request.range:
            first, last = map(int, re.findall(r"\d+", request.range))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            body, status = body[first:last + 1], 206
        Hub.send(request.handler, status, body, headers, cut=after)
        return True

    return fault


def answer(status, place, name=None, headers=None, times=1000, body=b""):
    left = [times]

    def fault(request):
        if request.place != place or (name and request.name != name) or not left[0]:
            return False
        left[0] -= 1
        Hub.send(request.handler, status, body, headers)
        return True

    return fault


# ---- what comes, and who finds it ----

@pytest.mark.parametrize("blobs", [True, False])
def test_files_of_a_model(repositories, inferd, start, tmp_path, monkeypatch, blobs):
    hub = Hub(repositories, blobs)
    try:
        pull = Puller(inferd, hub, tmp_path / "hub")
        snapshot = pull.good(NAME)
    finally:
        hub.close()
    assert snapshot == pull.cache / FOLDER / "snapshots" / COMMIT
    check(snapshot, repositories[NAME], SERVED)
    assert (pull.cache / FOLDER / "refs/main").read_text() == COMMIT
    assert not list((pull.cache / FOLDER).glob(".*"))
    assert snapshot_download(NAME, cache_dir=pull.cache, local_files_only=True) == str(snapshot)
    for name in SERVED:
        found = hf_hub_download(NAME, name, cache_dir=pull.cache, local_files_only=True)
        assert Path(found) == snapshot / name
    monkeypatch.setenv("HF_HUB_CACHE", str(pull.cache))
    server = start(NAME, "--max-model-len", 256)
    assert [m["id"] for m in server.get("/v1/models").json["data"]] == [NAME]
    assert server.complete("Once upon a time", max_tokens=4, temperature=0)["choices"][0]["text"]


def test_a_second_pull_downloads_nothing(hub, pull):
    pull.good(NAME)
    hub.seen.clear()
    pull.good(NAME)
    assert [request.place for request in hub.seen] == ["api"]


def test_what_huggingface_hub_has_is_not_downloaded_again(hub, pull, repositories):
    snapshot_download(NAME, cache_dir=pull.cache, endpoint=hub.url, token=False,
                      allow_patterns=["*.json"])
    hub.seen.clear()
    snapshot = pull.good(NAME)
    assert {r.name for r in hub.seen if r.place != "api"} == {"model.safetensors"}
    assert all((snapshot / name).is_symlink() for name in SERVED)
    hub.seen.clear()
    whole = snapshot_download(NAME, cache_dir=pull.cache, endpoint=hub.url, token=False)
    assert (Path(whole) / "README.md").exists()
    fetched = {r.name for r in hub.seen if r.place != "api" and r.method == "GET"}
    assert not fetched & SERVED, "huggingface_hub takes the blobs that a pull made"


def test_shards_come_in_parallel_pieces(hub, pull, repositories):
    snapshot = pull.good(BIG, "--jobs", 4)
    check(snapshot, repositories[BIG], [p.name for p in repositories[BIG].iterdir()])
    pieces = [r.range for r in hub.seen if r.place == "cdn" and "00001" in r.name]
    assert len(pieces) == 4 and "bytes=0-8388607" in pieces
    through_hub = [r for r in hub.seen if r.place == "hub" and "00001" in r.name]
    assert through_hub, "the first pieces ask the hub"


def test_dry_run(pull):
    done = pull(NAME, "--dry-run")
    assert done.returncode == 0 and not pull.cache.exists()
    assert all(name in done.stdout for name in SERVED) and "consolidated" not in done.stdout
    assert "5 files" in done.stdout and COMMIT in done.stdout


def test_quantisations(pull, repositories):
    message = pull.refused(66, "someone/x-GGUF")
    assert "has 3 GGUF files" in message and "someone/x-GGUF:Q4_K_M" in message
    assert "no GGUF file is of Q2_K" in pull.refused(66, "someone/x-GGUF:Q2_K")
    folder = repositories["someone/x-GGUF"]
    snapshot = pull.good("someone/x-GGUF:q4_k_m")
    check(snapshot, folder, ["x-Q4_K_M.gguf"])
    split = [f"Q8_0/x-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    assert pull.good("someone/x-GGUF:Q8_0") == snapshot
    check(snapshot, folder, ["x-Q4_K_M.gguf", *split])


def test_pickles_are_pulled_where_there_is_nothing_else(pull, inferd):
    """And converted in the cache by the command that the end names; another pull takes nothing."""
    done = pull("someone/pickle")
    assert done.returncode == 0 and "convert it by: inferd convert someone/pickle" in done.stderr
    snapshot = Path(done.stdout.strip())
    assert {p.name for p in snapshot.iterdir()} == {"config.json", "pytorch_model.bin"}
    converted = subprocess.run([ROOT / inferd, "convert", "someone/pickle"], text=True, check=True,
                               stdout=subprocess.PIPE, env=pull.environment())
    assert "wrote     model.safetensors: 1 tensor," in converted.stdout
    assert (snapshot / "model.safetensors").exists()
    assert pull.good("someone/pickle") == snapshot


def test_nothing_that_can_be_served(pull):
    message = pull.refused(66, "someone/other")
    assert "pickle files alone" in message and "weights.bin" in message


def test_revisions(repositories, inferd, tmp_path):
    other = "ab12" * 10
    hub = Hub({NAME: repositories[NAME]},
              revisions={"main": COMMIT, "v1.0": other, "refs/pr/3": other})
    try:
        pull = Puller(inferd, hub, tmp_path / "hub")
        message = pull.refused(66, NAME, "--revision", "nowhere")
        assert "no branch, tag or commit 'nowhere'" in message
        for revision in ("v1.0", "refs/pr/3", other):
            assert pull.good(NAME, "--revision", revision).name == other
        refs = pull.cache / FOLDER / "refs"
        assert {str(p.relative_to(refs)) for p in refs.rglob("*") if p.is_file()} == \
            {"v1.0", "refs/pr/3"}
        assert pull.good(NAME).name == COMMIT
        assert pull.good(f"{NAME}@v1.0").name == other
        done = pull(f"{NAME}@refs/pr/3")
        assert f"serve it by: inferd serve {NAME}@refs/pr/3\n" in done.stderr, done
        for bad in ("../../x", "/etc", "a/../b"):
            for words in ([NAME, "--revision", bad], [f"{NAME}@{bad}"]):
                done = pull(*words)
                assert done.returncode == 64, done
    finally:
        hub.close()


# ---- who may see the token ----

def test_the_token_stays_with_the_hub(hub, pull, tmp_path):
    pull.good(NAME, HF_TOKEN="hf_Secret1")
    for request in hub.seen:
        wanted = None if request.place == "cdn" else "Bearer hf_Secret1"
        assert request.token == wanted, request
    assert any(request.place == "cdn" for request in hub.seen)


def test_where_the_token_comes_from(hub, pull, tmp_path):
    places = {name: tmp_path / name for name in ("flag", "path", "home/token")}
    (tmp_path / "home").mkdir()
    for name, path in places.items():
        path.write_text(f"hf_{name[:4]}\n")
    environment = {"HF_HOME": str(tmp_path / "home")}

    def token(*arguments):
        hub.seen.clear()
        done = pull(NAME, "--dry-run", *arguments, **environment)
        assert done.returncode == 0 and "hf_" not in done.stdout + done.stderr, done
        return hub.seen[0].token

    assert token() == "Bearer hf_home"
    environment["HF_TOKEN_PATH"] = str(places["path"])
    assert token() == "Bearer hf_path"
    environment["HF_TOKEN"] = "hf_variable"
    assert token() == "Bearer hf_variable"
    assert token("--token-file", places["flag"]) == "Bearer hf_flag"
    assert "nowhere" in pull.refused(66, NAME, "--token-file", tmp_path / "nowhere")
    (tmp_path / "bad").write_text("hf_a\nhf_b")
    assert "hf_a" not in pull.refused(78, NAME, "--token-file", tmp_path / "bad")


# ---- refusals ----

@pytest.mark.parametrize("status, code, exit_status, parts", [
    (403, "GatedRepo", 77, ["is gated (status 403)", "accept its terms on", "HF_TOKEN"]),
    (401, "GatedRepo", 77, ["is gated (status 401)", "--token-file"]),
    (401, "RepoNotFound", 66, ["no such model", "status 401", "private"]),
    (404, "RepoNotFound", 66, ["no such model", "status 404"]),
    (401, None, 77, ["denies access (status 401)", "HF_TOKEN"]),
    (400, None, 74, ["answered 400", "is HF_ENDPOINT a hub"]),
])
def test_the_hub_refuses(hub, pull, status, code, exit_status, parts):
    hub.faults.append(answer(status, "api", headers={"X-Error-Code": code} if code else None))
    message = pull.refused(exit_status, NAME)
    assert all(part in message for part in [NAME, *parts]), message
    assert len(hub.seen) == 1, "a refusal is not asked for again"


def test_a_gated_file(hub, pull):
    hub.faults.append(answer(403, "hub", "model.safetensors", {"X-Error-Code": "GatedRepo"}))
    assert "is gated (status 403)" in pull.refused(77, NAME, HF_TOKEN="hf_x")


def test_answers_that_are_none(hub, pull):
    for body in (b"<html>", b"{}", b'{"sha": "x", "siblings": []}', b'{"sha": 1}'):
        hub.faults[:] = [answer(200, "api", body=body)]
        assert NAME in pull.refused(65, NAME)


@pytest.mark.parametrize("name", ["../../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a\\b", "",
                                  "model.safetensors\x01"])
def test_names_that_leave_the_folder(hub, pull, name):
    hub.siblings.append(name)
    assert "not a path inside a repository" in pull.refused(65, NAME)


def test_usage(pull, tmp_path):
    for arguments in ([], ["a/b/c"], ["../x"], [NAME, "--jobs", "0"], [NAME, "more"],
                      [NAME, "--nothing"], [f"{NAME}:a/b"], [NAME, "--revision"]):
        assert pull(*arguments).returncode == 64, arguments
    assert "HF_HUB_OFFLINE" in pull.refused(78, NAME, HF_HUB_OFFLINE="1")
    assert "HF_ENDPOINT" in pull.refused(78, NAME, HF_ENDPOINT="ftp://x")
    assert "--revision" in pull("--help").stdout
    (tmp_path / "file").write_text("")
    assert pull(NAME, "--cache-dir", tmp_path / "file/hub").returncode in (66, 74)


def test_no_hub_at_all(pull):
    message = pull.refused(74, NAME, "--retries", "1", HF_ENDPOINT="http://127.0.0.1:9")
    assert "http://127.0.0.1:9" in message and "next try in 0.5 s" in message


def test_more_than_the_disk_has(hub, pull):
    hub.sizes["model.safetensors"] = 1 << 60
    message = pull.refused(74, NAME)
    assert "are needed in" in message and str(1 << 60)[:6] in message and "are free" in message


# ---- faults on the way ----

def test_cuts_are_repaired(hub, pull, repositories):
    shard = "model-00001-of-00002.safetensors"
    fault = cut("cdn", shard, 3_000_000, times=4)
    fault.folder = repositories[BIG]
    hub.faults.append(fault)
    check(pull.good(BIG), repositories[BIG], [p.name for p in repositories[BIG].iterdir()])
    begins = [int(r.range[6:].split("-")[0]) for r in hub.seen if r.name == shard and r.range]
    assert any(begin % (8 << 20) == 3_000_000 for begin in begins), "goes on where it was cut"


def test_too_many_cuts(hub, pull, repositories):
    fault = cut("cdn", "model.safetensors", 100_000, times=1000)
    fault.folder = repositories[NAME]
    hub.faults.append(fault)
    message = pull.refused(74, NAME, "--retries", "2", "--jobs", "1")
    assert "model.safetensors" in message and "pull again" in message
    there = pull.partial()[etag(repositories[NAME] / "model.safetensors") + ".incomplete"]
    assert there == 300_000, "three tries of 100,000 bytes each"
    hub.faults.clear()
    hub.seen.clear()
    check(pull.good(NAME), repositories[NAME], SERVED)
    assert f"bytes={there}-" in str(hub.seen), "the second pull goes on"


def test_busy_servers(hub, pull, repositories):
    hub.faults += [answer(500, "api", times=1), answer(503, "hub", "config.json", times=1),
                   answer(429, "cdn", "model.safetensors", {"Retry-After": "1"}, times=1)]
    began = time.monotonic()
    check(pull.good(NAME), repositories[NAME], SERVED)
    assert time.monotonic() - began > 1, "Retry-After is waited for"


def test_servers_that_stay_busy(hub, pull):
    hub.faults[:] = [answer(500, "cdn", "model.safetensors")]
    message = pull.refused(74, NAME, "--retries", "1")
    assert "model.safetensors" in message and "500" in message
    hub.faults[:] = [answer(429, "api", headers={"Retry-After": "100000"})]
    hub.seen.clear()
    assert "429 (too many requests)" in pull.refused(74, NAME)
    # A piece of the pull before may still be on its way.
    asked = [request for request in hub.seen if request.place == "api"]
    assert len(asked) == 1, "nobody waits for a day"


def test_redirects_in_a_circle(hub, pull):
    def fault(request):
        if request.place == "cdn":
            Hub.send(request.handler, 302, b"", {"Location": request.path})
        return request.place == "cdn"

    hub.faults.append(fault)
    message = pull.refused(74, NAME)
    assert "redirects" in message and "model.safetensors" in message
    assert "signature" not in message


def test_wrong_bytes_once_and_always(hub, pull, repositories):
    folder = repositories[NAME]
    wrong = bytes(reversed((folder / "config.json").read_bytes()))
    hub.faults.append(answer(200, "hub", "config.json", times=1, body=wrong))
    done = pull(NAME)
    assert done.returncode == 0 and "git sha1 is wrong; downloading it again" in done.stderr
    check(Path(done.stdout.strip()), folder, SERVED)
    shutil.rmtree(pull.cache)
    size = (folder / "model.safetensors").stat().st_size
    hub.faults[:] = [answer(200, "cdn", "model.safetensors", body=bytes(size))]
    message = pull.refused(74, NAME)
    assert "sha256 is wrong again" in message and etag(folder / "model.safetensors") in message


@pytest.mark.parametrize("told", [5, 100_000_000])
def test_sizes_that_are_lies(hub, pull, told):
    hub.sizes["model.safetensors"] = told
    message = pull.refused(74, NAME)
    assert f"announces {told} bytes" in message and "model.safetensors" in message


def test_a_server_without_ranges(hub, pull, repositories):
    def fault(request):
        request.range = None
        return False

    hub.faults.append(fault)
    check(pull.good(BIG), repositories[BIG], [p.name for p in repositories[BIG].iterdir()])


def test_a_server_without_ranges_goes_on(hub, pull, repositories):
    shard = "model-00001-of-00002.safetensors"
    fault = cut("cdn", shard, 9_500_000, times=1)
    fault.folder = repositories[BIG]

    def without(request):
        request.range = None
        return False

    hub.faults += [without, fault]
    check(pull.good(BIG), repositories[BIG], [p.name for p in repositories[BIG].iterdir()])


def test_a_connection_that_drips(hub, pull, repositories):
    slow = threading.Event()

    def fault(request):
        if request.place != "cdn" or slow.is_set():
            return False
        slow.set()
        body = (repositories[NAME] / request.name).read_bytes()
        first = int(request.range[6:].split("-")[0]) if request.range else 0
        assert first == 0
        headers = {"Content-Range": f"bytes 0-8388607/{len(body)}"}
        Hub.send(request.handler, 206, body[:8 << 20], headers, pause_s=0.5, chunk=1)
        return True

    hub.faults.append(fault)
    check(pull.good(NAME, HF_HUB_DOWNLOAD_TIMEOUT="2"), repositories[NAME], SERVED)
    assert slow.is_set()


# ---- the end of the process in the middle ----

def slow_down(hub, seconds):
    def fault(request):
        if request.place == "cdn":
            time.sleep(seconds)
        return False

    hub.faults.append(fault)


def test_killed_again_and_again(hub, pull, repositories):
    """After kill -9 at any moment the next pull goes on; nothing half is ever visible."""
    slow_down(hub, 0.05)
    most = 0
    for turn in range(12):
        process = pull.begin(BIG, "--jobs", "2")
        time.sleep(0.05 + 0.03 * turn)
        process.kill()
        pull.end(process)
        snapshots = list(pull.cache.glob("models--*/snapshots/*"))
        for snapshot in snapshots:
            check(snapshot, repositories[BIG], [p.name for p in repositories[BIG].iterdir()])
        there = sum(p.stat().st_size for p in pull.cache.glob("models--*/blobs/*"))
        assert there >= most, "progress is kept"
        most = there
    check(pull.good(BIG), repositories[BIG], [p.name for p in repositories[BIG].iterdir()])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(hub, pull, repositories, number):
    name = "model-00001-of-00002.safetensors"
    stop = threading.Event()

    def fault(request):
        """The first 3,000,000 bytes of the first piece, then nothing."""
        if request.place != "cdn":
            return False
        body = (repositories[BIG] / request.name).read_bytes()
        first, last = map(int, re.findall(r"\d+", request.range))
        handler = request.handler
        handler.send_response(206)
        handler.send_header("Content-Length", str(last + 1 - first))
        handler.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
        handler.end_headers()
        handler.wfile.write(body[first:first + 3_000_000])
        stop.wait(60)
        handler.close_connection = True
        return True

    hub.faults.append(fault)
    process = pull.begin(BIG)
    begun = etag(repositories[BIG] / name) + ".incomplete"
    wait_until(lambda: pull.partial().get(begun, 0) >= 2_000_000, "bytes")
    process.send_signal(number)
    done = pull.end(process)
    stop.set()
    assert done.returncode == -number and "the same command continues" in done.stderr, done
    there = pull.partial()[begun]
    assert 2_000_000 <= there <= 3_000_000
    assert not list(pull.cache.glob("models--*/snapshots/*"))
    hub.faults.clear()
    hub.seen.clear()
    check(pull.good(BIG), repositories[BIG], [p.name for p in repositories[BIG].iterdir()])
    assert any(r.range and r.range.startswith(f"bytes={there}-") for r in hub.seen)


def test_huggingface_hub_goes_on(hub, pull, repositories):
    fault = cut("cdn", "model.safetensors", 100_000, times=1000)
    fault.folder = repositories[NAME]
    hub.faults.append(fault)
    pull.refused(74, NAME, "--retries", "0")
    hub.faults.clear()
    whole = Path(snapshot_download(NAME, cache_dir=pull.cache, endpoint=hub.url, token=False))
    for name in SERVED:
        assert (whole / name).read_bytes() == (repositories[NAME] / name).read_bytes()


def test_remains_that_are_wrong(pull, repositories):
    """What a crash of the machine may leave: zeros at the end, or more bytes than there are."""
    folder, blobs = repositories[NAME], pull.cache / FOLDER / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (etag(folder / "model.safetensors") + ".incomplete")).write_bytes(bytes(1_000_000))
    (blobs / (etag(folder / "config.json") + ".incomplete")).write_bytes(bytes(1_000_000))
    done = pull(NAME)
    assert done.returncode == 0 and "sha256 is wrong; downloading it again" in done.stderr, done
    check(Path(done.stdout.strip()), folder, SERVED)


def test_two_pulls_at_once(hub, pull, repositories):
    slow_down(hub, 0.2)
    both = [pull.begin(BIG, "--jobs", "2") for _ in range(2)]
    for done in map(pull.end, both):
        assert done.returncode == 0, done
        check(Path(done.stdout.strip()), repositories[BIG],
              [p.name for p in repositories[BIG].iterdir()])
    pieces = [(r.name, r.range) for r in hub.seen if r.place == "cdn"]
    assert len(pieces) == len(set(pieces)), "no piece came twice"


# ---- serve ----

def test_serve_pulls_first(hub, pull, start, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(pull.cache))
    server = start(NAME, "--pull", "--max-model-len", 256)
    assert [m["id"] for m in server.get("/v1/models").json["data"]] == [NAME]
    assert server.complete("Once", max_tokens=2)["usage"]["completion_tokens"] == 2
    asked = len(hub.seen)
    again = start(NAME, "--pull", "--max-model-len", 256)
    assert again.ready() and len(hub.seen) == asked, "what is there is not asked for"


def serve(pull, *arguments):
    """What a start says that must fail."""
    return subprocess.run([pull.program, "serve", *arguments], text=True, stderr=subprocess.STDOUT,
                          stdout=subprocess.PIPE, check=False, env=pull.environment(),
                          timeout=60 * PATIENCE)


def test_a_model_that_is_there_in_part(hub, pull, repositories, start, monkeypatch):
    """huggingface_hub shows each file as it comes, so a cut download leaves a part of a model."""
    folder = snapshot_download(BIG, cache_dir=pull.cache, endpoint=hub.url, token=False,
                               allow_patterns=["*.json"])
    (Path(folder) / "config.json").unlink()
    shutil.copy(DEMO / "config.json", folder)
    index = Path(folder) / "model.safetensors.index.json"
    index.unlink()
    index.write_text('{"weight_map": {"a": "model-00002-of-00002.safetensors"}}')
    done = serve(pull, BIG, "--skip-tokenizer-init")
    assert done.returncode == 66 and "model-00002-of-00002.safetensors" in done.stdout, done
    assert f"finish its download by: inferd pull {BIG}" in done.stdout, done
    snapshot_download(NAME, cache_dir=pull.cache, endpoint=hub.url, token=False,
                      allow_patterns=["*.json"])
    done = serve(pull, NAME)
    assert done.returncode == 66 and f"inferd pull {NAME}" in done.stdout, done
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(pull.cache))
    server = start(NAME, "--pull", "--max-model-len", 256)
    assert server.complete("Once", max_tokens=2)["usage"]["completion_tokens"] == 2


def test_serve_pulls_what_does_not_exist(hub, pull):
    done = serve(pull, "someone/nothing", "--pull")
    assert done.returncode == 66 and "no such model" in done.stdout, done


def test_a_journal_gets_the_priority_of_a_pull(hub, pull, tmp_path):
    """`pull = true` in the file of a service: why it failed is in `journalctl -p warning`."""
    with open(tmp_path / "journal", "w+", encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        environment = pull.environment(JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
        done = subprocess.run([pull.program, "serve", "someone/nothing", "--pull"], check=False,
                              stderr=file, env=environment, timeout=60 * PATIENCE)
        file.seek(0)
        last = file.read().splitlines()[-1]
    assert done.returncode == 66 and last.startswith("<3>inferd: "), last
    assert "no such model" in last


def test_sums_of_the_double():
    """The double's git sha1 is git's: `printf hello | git hash-object --stdin`."""
    assert git_sha1(b"hello") == "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"
