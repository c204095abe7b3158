"""The core file of a crash, written only where the operator asked for one."""

from pathlib import Path

from harness import DEMO, wait_until


def limit_of_core_files(server):
    line = next(line for line in Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
                if line.startswith("Max core file size"))
    return line.split()[4:6]  # soft, hard


def test_core_files_only_on_demand(start):
    server = start(DEMO)
    assert limit_of_core_files(server)[0] == "0"
    server = start(DEMO, "--core-dumps", shell='ulimit -Sc 0 && ulimit -Hc 8 && exec "$@"')
    assert limit_of_core_files(server) == ["4096", "4096"]
    assert "core_dumps" not in server.log()


def test_a_hard_limit_on_core_files_is_said(start):
    server = start(DEMO, "--core-dumps", shell='ulimit -Hc 0 && exec "$@"')
    assert limit_of_core_files(server) == ["0", "0"]
    wait_until(lambda: "core_dumps: the hard limit of core files is 0" in server.log(),
               "the warning", 5)
