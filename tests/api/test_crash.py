"""What is left when a defect kills the daemon: the report on standard error, and the core file only
where the operator asked for one."""

import ctypes
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from certificates import certificate
from harness import DEMO, ROOT
from test_tls import tls  # noqa: F401

PLAIN = os.environ.get("INFERD_TEST_FLAVOUR", "plain") == "plain"
libc = ctypes.CDLL(None, use_errno=True)


def thread_named(server, name):
    """The id of a thread of the server."""
    found = [int(task.name) for task in Path(f"/proc/{server.process.pid}/task").iterdir()
             if (task / "comm").read_text().strip() == name]
    assert found, f"no thread {name}"
    return found[0]


def crash(server, thread, number):
    """Sends the signal to one thread; returns the report once the process has died of it."""
    server.expected_exit = -number
    assert libc.tgkill(server.process.pid, thread, number) == 0, ctypes.get_errno()
    assert server.wait_exit(60) == -number, server.log()
    return server.log()


def functions_of(inferd, report):
    """The functions of ours on the stack, innermost first, as addr2line names them."""
    offsets = re.findall(r"^inferd: frame \d+: 0x[0-9a-f]+ inferd\+(0x[0-9a-f]+)$", report, re.M)
    assert offsets, report
    found = subprocess.run(["addr2line", "-f", "-i", "-e", str(ROOT / inferd), *offsets],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    return list(zip(found[::2], found[1::2]))


@pytest.mark.parametrize("name,number,function,file", [
    ("inferd", signal.SIGSEGV, "serve", "server/serve.c"),
    ("engine", signal.SIGBUS, "engine_main", "engine/engine.c"),
    ("cpu-1", signal.SIGFPE, "pool__worker", "engine/cpu/threads.c"),
])
def test_a_crash_says_where(start, inferd, name, number, function, file):
    """In each thread, those that block signals among them."""
    server = start(DEMO, "--threads", 2)
    thread = thread_named(server, name)
    if not PLAIN:  # the sanitizers' handlers stay in place, and their reports say more
        server.process.send_signal(number)
        server.expected_exit = server.wait_exit(60)
        assert server.expected_exit != 0 and "inferd: crashed" not in server.log()
        return
    report = crash(server, thread, number)
    assert f"inferd: crashed by {number.name} in thread {name}\n" in report
    version, commit = re.search(r"inferd (\S+) \((\S+)\)", subprocess.run(
        [str(ROOT / inferd), "version"], capture_output=True, text=True).stdout).groups()
    notes = subprocess.run(["readelf", "-n", str(ROOT / inferd)], check=True, capture_output=True,
                           text=True).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)[1]
    assert f"inferd: version {version} ({commit}), build id {build_id}, loaded at 0x" in report
    assert re.search(r"^inferd: at 0x[0-9a-f]+ \S+\+0x[0-9a-f]+$", report, re.M), report
    functions = functions_of(inferd, report)
    assert any(f == function and at.split(":")[0].endswith(file) for f, at in functions), (
        functions, report)


@pytest.mark.parametrize("name", ["send", "kv-events", "traces", "tls-relay"])
def test_a_crash_of_a_thread_beside_the_loop(tls, tmp_path, name):
    certificate(tmp_path)
    server = tls(tmp_path, "--send-thread", "on", "--kv-events-endpoint",
                 f"ipc://{tmp_path}/events", "--otlp-endpoint", "http://127.0.0.1:9")
    thread = thread_named(server, name)
    status = Path(f"/proc/{server.process.pid}/task/{thread}/status").read_text()
    blocked = int(re.search(r"^SigBlk:\s+(\S+)$", status, re.M)[1], 16)
    assert blocked >> signal.SIGTERM - 1 & 1 == 1 and blocked >> signal.SIGSEGV - 1 & 1 == 0
    if PLAIN:
        report = crash(server, thread, signal.SIGSEGV)
        assert f"inferd: crashed by SIGSEGV in thread {name}\n" in report


def warned(server):
    """Whether the log, the whole of it, says that there can be no core file."""
    text = Path(server.log_file.name).read_text()
    return "core_dumps: the hard limit of core files is 0" in text


def limit_of_core_files(server):
    line = next(line for line in Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
                if line.startswith("Max core file size"))
    return line.split()[4:6]  # soft, hard


def test_core_files_only_on_demand(start):
    server = start(DEMO)
    assert limit_of_core_files(server)[0] == "0"
    server = start(DEMO, "--core-dumps", shell='ulimit -Sc 0 && ulimit -Hc 8 && exec "$@"')
    assert limit_of_core_files(server) == ["4096", "4096"]
    assert not warned(server)


def test_a_hard_limit_on_core_files_is_said(start):
    server = start(DEMO, "--core-dumps", shell='ulimit -Hc 0 && exec "$@"')
    assert limit_of_core_files(server) == ["0", "0"]
    assert warned(server)


@pytest.mark.parametrize("leaks", [False, True])
def test_leaks_are_checked_at_the_exit(start, tmp_path, leaks):
    """Under AddressSanitizer, whose runtime gives each thread an alternate stack and takes it
    back where the thread ends. In the plain build the runtime is loaded before all else."""
    if not PLAIN:  # where each server of this run ends so
        assert start(DEMO).stop() == 0
        return
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True,
                             capture_output=True, text=True).stdout.strip()
    loaded = [runtime]
    if leaks:
        source, library = tmp_path / "leak.c", tmp_path / "leak.so"
        source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void leak(void)"
                          " { *(volatile char *)malloc(12345) = 1; }\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
        loaded.append(str(library))
    server = start(DEMO, "--threads", 2, "--mask-threads", 1, "--send-thread", "on",
                   shell=f"ASAN_OPTIONS=exitcode=77 LD_PRELOAD={':'.join(loaded)} exec \"$@\"")
    assert server.complete("a b", max_tokens=2, regex="[ab]{9}")["usage"]["completion_tokens"] == 2
    server.expected_exit = 77 if leaks else 0
    assert server.stop() == server.expected_exit, server.log()
    assert ("12345 byte(s) leaked" in server.log()) == leaks, server.log()
