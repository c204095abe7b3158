"""Starts that fail by a common mistake: the last line on standard error, on a terminal, in a
container and in the journal, names the cause and what to do, and the exit status tells a supervisor
not to try again.
"""

import json
import os
import re
import shutil
import socket
import subprocess

import pytest

from harness import DEMO, PATIENCE, ROOT


def whole(folder):
    """A copy of the demo model, and its path as text."""
    shutil.copytree(DEMO, folder / "model")
    return folder / "model"


def without(name):
    def make(folder):
        (whole(folder) / name).unlink()
    return make


def renamed(old, new):
    def make(folder):
        (whole(folder) / old).rename(folder / "model" / new)
    return make


def with_text(name, text):
    def make(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return make


def model_with(name, text):
    def make(folder):
        (whole(folder) / name).write_text(text)
    return make


def other_family(folder):
    config = whole(folder) / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "RwkvForCausalLM"))


def cut_weights(folder):
    weights = whole(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:3000])


def keys_of_mode(mode, text="k1\n"):
    def make(folder):
        (folder / "keys").write_text(text)
        (folder / "keys").chmod(mode)
    return make


def weights_of_type(name):
    """Replaces the type of the first tensors in the header, byte for byte."""
    def make(folder):
        weights = whole(folder) / "model.safetensors"
        content = weights.read_bytes()
        assert b'"BF16"' in content and len(name) == len(b"BF16")
        weights.write_bytes(content.replace(b'"BF16"', b'"%s"' % name))
    return make


def unreadable(path):
    def make(folder):
        whole(folder)
        (folder / path).chmod(0)
    return make


NOTHING = None
SERVE = ["serve", "{demo}", "--port", "0"]
MISTAKES = {  # name: (what is made, arguments, exit status, words of the message)
    "a letter of the path": (whole, ["serve", "{here}/modle"], 66, ["did you mean {here}/model?"]),
    "a letter of a folder": (whole, ["serve", "{here}/../{name}x/model"], 66, ["did you mean "]),
    "the weights, not the folder": (NOTHING, ["serve", "{demo}/model.safetensors"], 65,
                                    ["give the directory of the model"]),
    "an address": (NOTHING, ["serve", "https://huggingface.co/a/b/tree/main"], 66,
                   ["is an address", "give a/b, and get it with: inferd pull a/b"]),
    "a name that no cache has": (NOTHING, ["serve", "no-such-org/model"], 66,
                                 ["inferd pull no-such-org/model"]),
    "no model": (NOTHING, ["serve"], 64, ["inferd serve MODEL"]),
    "one model twice": (NOTHING, ["serve", "{demo}", "{demo}"], 78, ["two models are called demo"]),
    "a word too many": (NOTHING, ["serve", "{demo}", "extra", "--port", "0"], 66, ["extra"]),
    "several models of a check": (NOTHING, ["check", "{demo}", "{demo}"], 64,
                                  ["more than one model"]),
    "no tokenizer": (without("tokenizer.json"), ["serve", "{here}/model"], 66,
                     ["no tokenizer.json", "--skip-tokenizer-init"]),
    "no weights": (without("model.safetensors"), ["serve", "{here}/model"], 66,
                   ["no model.safetensors", "weights are missing"]),
    "a letter of a file": (renamed("config.json", "Config.json"), ["serve", "{here}/model"], 66,
                           ["no config.json"]),
    "half a download": (cut_weights, ["serve", "{here}/model"], 65, ["download it again"]),
    "a pointer of Git LFS": (model_with("model.safetensors", "version https://git-lfs.github.com"),
                             ["serve", "{here}/model"], 65, ["git lfs pull"]),
    "a page instead of a file": (model_with("config.json", "<!doctype html>"),
                                 ["serve", "{here}/model"], 65, ["config.json", "byte 0"]),
    "an unknown family": (other_family, ["serve", "{here}/model"], 65,
                          ["RwkvForCausalLM", "docs/models.md lists those that are"]),
    "a flag": (NOTHING, [*SERVE, "--max-model-length", "64"], 64,
               ["did you mean --max-model-len?"]),
    "a command": (NOTHING, ["server", "{demo}"], 64, ["did you mean inferd serve?"]),
    "a command of Ollama": (NOTHING, ["run", "llama3"], 64, ["Ollama; here: inferd serve MODEL"]),
    "a command of vLLM": (NOTHING, ["chat"], 64, ["a command of vLLM; here: the page at /"]),
    "a flag as command": (NOTHING, ["--port", "8000"], 64, ["inferd serve MODEL [flags]"]),
    "no command": (NOTHING, ["{demo}"], 64, ["inferd serve {demo}"]),
    "a port too high": (NOTHING, ["serve", "{demo}", "--port", "80000"], 64, ["0 to 65535"]),
    "a key of the file": (with_text("conf", "prot = 1\n"), [*SERVE, "--config", "{here}/conf"], 78,
                          ["{here}/conf: line 1: prot is unknown; did you mean port?"]),
    "a section of the file": (with_text("conf", "[server]\n"), [*SERVE, "--config", "{here}/conf"],
                              78, ["line 1: a section is [model NAME]", "options of the server"]),
    "a folder as file": (NOTHING, [*SERVE, "--config", "{here}"], 78, ["Is a directory"]),
    "no such file": (NOTHING, [*SERVE, "--config", "{here}/conf"], 78,
                     ["{here}/conf: No such file"]),
    "keys that others may read": (keys_of_mode(0o644), [*SERVE, "--api-key-file", "{here}/keys"],
                                  77, ["mode 0644", "0600 or 0640"]),
    "keys that are not there": (NOTHING, [*SERVE, "--api-key-file", "{here}/keys"], 78,
                                ["{here}/keys: No such file"]),
    "an empty file of keys": (keys_of_mode(0o600, ""), [*SERVE, "--api-key-file", "{here}/keys"],
                              78, ["has 0 bytes"]),
    "another machine's address": (NOTHING, [*SERVE, "--host", "192.0.2.1"], 78,
                                  ["192.0.2.1:0", "no interface of this machine", "--host"]),
    "all addresses without a key": (NOTHING, [*SERVE, "--host", "0.0.0.0"], 78,
                                    ["set --api-key", "--allow-unauthenticated"]),
    "a socket in no folder": (NOTHING, ["serve", "{demo}", "--uds", "{here}/no/s"], 78,
                              ["its directory does not exist"]),
    "a log in no folder": (NOTHING, [*SERVE, "--log-file", "{here}/no/log"], 78,
                           ["{here}/no/log: No such file"]),
    "a device that is none": (NOTHING, [*SERVE, "--device", "gpu"], 78, ["auto, cpu or cuda[:N]"]),
    "a context too long": (NOTHING, [*SERVE, "--max-model-len", "100000"], 78,
                           ["the model allows 1 to 8192"]),
    "weights that cannot be read": (unreadable("model/model.safetensors"),
                                         ["serve", "{here}/model", "--port", "0"], 77,
                                         ["model.safetensors", "ermission denied"]),
    "a folder that cannot be entered": (unreadable("model"), ["serve", "{here}/model"], 77,
                                           ["permission denied", "{here}/model"]),
    "an unknown type of weights": (weights_of_type(b"X160"), ["serve", "{here}/model"], 65,
                                   ["model.safetensors", 'dtype "X160" is not known']),
    "a type that is none": (NOTHING, [*SERVE, "--dtype", "int8"], 64,
                            ["--dtype", "'int8'", "bfloat16"]),
    "too little memory": (NOTHING, [*SERVE, "--kv-cache-bytes", "1000"], 78,
                          ["max_model_len is 8192", "raise --kv-cache-bytes"]),
    "a device that is not there": (NOTHING, [*SERVE, "--device", "cuda:9"], 78,
                                   ["(set by --device)"]),
    "a template that is not there": (NOTHING, [*SERVE, "--chat-template", "{here}/t.jinja"], 78,
                                     ["{here}/t.jinja", "no such file", "--chat-template"]),
    "an adapter without its switch": (NOTHING, [*SERVE, "--lora-modules", "a={here}"], 78,
                                      ["set --enable-lora"]),
    "a certificate that is not there": (NOTHING, [*SERVE, "--tls-cert", "{here}/c.pem"], 78,
                                        ["tls_cert: cannot open {here}/c.pem", "--tls-cert"]),
    "a key without its certificate": (NOTHING, [*SERVE, "--tls-key", "{here}/k.pem"], 78,
                                      ["tls_key is set, but tls_cert is not"]),
    "a collector by gRPC": (NOTHING, [*SERVE, "--otlp-endpoint", "localhost:4317"], 78,
                            ["otlp_endpoint", "not by gRPC"]),
    "a draft model that is not there": (NOTHING, [*SERVE, "--speculative-model", "/no/such",
                                                  "--num-speculative-tokens", "3"], 66,
                                        ["/no/such: No such file", "--speculative-model"]),
    "stages of parts": (NOTHING, [*SERVE, "-pp", "2", "-tp", "2"], 78,
                        ["pipeline_parallel_size is 2 and tensor_parallel_size is 2"]),
}


def read_terminal(descriptor):
    """What was written to a terminal, until nobody has it open any more."""
    text = b""
    while True:
        try:
            text += os.read(descriptor, 1 << 16)
        except OSError:  # EIO: the other side is closed
            return text.decode()


def standard_error(where, folder, command):
    """(exit status, lines) of a command whose standard error is a pipe, as in a container, a
    terminal, or the journal of systemd. Root gets no rights beyond those of the files."""
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    command, options = [*powerless, *command], {"stdout": subprocess.DEVNULL}
    if where == "pipe":
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE,
                              **options)
        return done.returncode, done.stderr.splitlines()
    if where == "terminal":
        ours, theirs = os.openpty()
        with subprocess.Popen(command, stderr=theirs, **options) as process:
            os.close(theirs)
            text = read_terminal(ours)
        os.close(ours)
        return process.returncode, text.splitlines()
    with open(folder / "journal", "w+", encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        done = subprocess.run(command, stderr=file, timeout=60 * PATIENCE,
                              env={**os.environ, "JOURNAL_STREAM": stream}, **options)
        file.seek(0)
        return done.returncode, file.read().splitlines()


def message(where, lines):
    """The text of the last line, which has the form of its place and says that it is an error."""
    line = lines[-1]
    if where == "journal":
        assert line.startswith("<3>"), lines
        assert not [other for other in lines[:-1] if other.startswith("<3>inferd: ")], lines
        return line
    if where == "pipe" and line.startswith("{"):
        entry = json.loads(line)
        assert entry["level"] == "error", lines
        return entry["msg"]
    assert not line.startswith(("{", "<")), lines
    return line


@pytest.mark.parametrize("where", ["pipe", "terminal", "journal"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(inferd, tmp_path, name, where):
    make, arguments, status, words = MISTAKES[name]
    if make is not None:
        make(tmp_path)

    def fill(text):
        return text.format(here=tmp_path, name=tmp_path.name, demo=DEMO)

    found, lines = standard_error(where, tmp_path, [ROOT / inferd, *map(fill, arguments)])
    line = message(where, lines)
    assert found == status, line
    for word in map(fill, words):
        assert word in line, (word, line)


def test_a_port_in_use_is_named(inferd):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        status, lines = standard_error("pipe", None, [ROOT / inferd, "serve", DEMO, "--port",
                                                      str(port)])
    line = message("pipe", lines)
    assert status == 69, line
    assert f"127.0.0.1:{port}: Address already in use; stop the process" in line


def test_a_key_of_another_server_is_noticed(start, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "of-another-server")
    said = "VLLM_API_KEY in the environment is no key of this server; set INFERD_API_KEY"
    log = start(DEMO).log()
    assert said in log and "of-another-server" not in log
    assert said not in start(DEMO, "--api-key", "k", key="k").log()


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True).stdout


def test_what_runs_before_main_runs_on_every_processor(inferd):
    """The tables of the tiers are completed by constructors, which no test of the processor guards.
    """
    sections = output_of("readelf", "-SW", ROOT / inferd)
    start, size = (int(word, 16) for word in re.search(
        r"\.init_array\s+INIT_ARRAY\s+(\w+)\s+\w+\s+(\w+)", sections).groups())
    moved = re.findall(r"^(\w+)\s+\w+\s+R_\w+_RELATIV\w*\s+(\w+)$",
                       output_of("readelf", "-rW", ROOT / inferd), re.M)
    first = [int(target, 16) for at, target in moved if start <= int(at, 16) < start + size]
    assert len(first) * 8 == size
    for address in first:
        code = output_of("objdump", "-d", f"--start-address={address}",
                         f"--stop-address={address + 4096}", ROOT / inferd)
        function = re.search(r"^\w+ <(\w+)>:\n((?:.+\n)+)", code, re.M)
        assert not re.search(r"%[yz]mm|\tv[a-z]+", function[2]), function[0]
