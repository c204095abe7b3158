"""bench_server: a server under test for the benchmark scripts, and what they print in common.

Starts a program on a free port, waits until it answers, reads its CPU and memory from /proc.
"""

import atexit
import datetime
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server. `command` gets `--port N` (and further words) at its end."""

    def __init__(self, command, log, environment=None, ready_path="/readyz", limit_s=300):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = Path(log)
        begin = time.monotonic()
        with open(log, "wb") as out:
            self.process = subprocess.Popen([*map(str, command), "--port", str(port)], stdout=out,
                                            stderr=out, env=environment)
        self.pid = self.process.pid
        atexit.register(self.process.kill)  # harmless once it has ended
        while not self.answers(ready_path):
            if self.process.poll() is not None or time.monotonic() - begin > limit_s:
                self.process.kill()
                sys.exit(f"{command[0]} did not become ready:\n{self.log.read_text()[-2000:]}")
            # A look takes processor time from the server: the longer the wait, the fewer.
            time.sleep(max(0.002, (time.monotonic() - begin) / 100))
        self.ready_s = time.monotonic() - begin

    def answers(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def page(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read().decode()

    def cpu(self):
        """Seconds of CPU so far: of the main (loop) thread, its user part, the engine thread, and
        of all threads. The last two are exact; the others are counted in ticks."""
        times = {"loop": 0.0, "loop_user": 0.0, "engine": 0.0, "all": 0.0}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            user, system = int(fields[11]) / TICKS, int(fields[12]) / TICKS
            exact = int((task / "schedstat").read_text().split()[0]) / 1e9
            times["all"] += exact
            if (task / "comm").read_text().strip() == "engine":
                times["engine"] = exact
            if task.name == str(self.pid):
                times["loop"], times["loop_user"] = user + system, user
        return times

    def resident_kib(self):
        """None where the system shows no such thing."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0])
        except (OSError, IndexError):
            return None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def machine_busy():
    """Seconds of CPU that all processes and the hypervisor's other guests have taken so far."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def machine():
    """One line: processor, cores, system, date, load."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.machine())
    return (f"{model}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, "
            f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}")


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
