"""kill -9 at 200 random moments, under load and while the model loads: the next process serves.

What a killed process leaves behind (sockets in files, connections, half-written answers) must not
stop the one that follows it on the same addresses.
"""

import random
import re
import signal
import time
from pathlib import Path

from harness import DEMO, Server, wait_until
from load import BODIES, Load

KILLS = 200
SECONDS_MORE = 1.0  # than the server says that it took to load, while it has a processor
ALIVE_S = 0.6       # at most, between the start and the kill


class DirectLoad(Load):
    """The same clients, without a proxy: what is lost is lost, and they ask again."""

    def ask(self, connection, number):
        try:
            return super().ask(connection, number)
        except OSError:
            time.sleep(0.02)
            raise


def load_seconds(server):
    """What the line of the start says, which comes a moment after the first answer."""
    line = re.compile(r"ready in ([0-9.]+) s")
    wait_until(lambda: line.search(server.log()), "the line of the start", context=server.log)
    return float(line.search(server.log())[1])


def waited_s(pid):
    """How long a process was ready to run and had no processor: its first thread, and of the
    others the one that waited longest (Documentation/scheduler/sched-stats.rst)."""
    first, *others = (int(path.read_text().split()[1]) / 1e9 for path in sorted(
        Path(f"/proc/{pid}/task").glob("*/schedstat"), key=lambda path: int(path.parent.name)))
    return first + max(others, default=0)


def test_a_killed_server_serves_again(inferd, texts, tmp_path):
    rng = random.Random(9)
    flags = ("--hand-over", tmp_path / "hand.sock", "--uds", tmp_path / "api.sock",
             "--listen", "127.0.0.1:{port}", "--kv-events-endpoint", f"ipc://{tmp_path}/events")
    server = Server(inferd, DEMO)
    port = server.port
    flags = [str(flag).format(port=port) for flag in flags]
    load = DirectLoad(port, texts, 0)
    later, seconds, while_loading = [], [], 0
    for kill in range(KILLS):
        time.sleep(rng.random() * ALIVE_S)
        server.process.send_signal(signal.SIGKILL)
        assert server.wait_exit(60) == -signal.SIGKILL
        if kill % 10 == 0:  # once more while it loads
            half = Server(inferd, DEMO, *flags, port=port, wait=False)
            time.sleep(rng.random() * min(seconds, default=0.2))
            half.process.send_signal(signal.SIGKILL)
            assert half.wait_exit(60) == -signal.SIGKILL
            while_loading += 1
        begin, waited = time.monotonic(), waited_s("self")
        server = Server(inferd, DEMO, *flags, port=port)
        answer = server.post("/v1/completions", BODIES[kill % len(BODIES)])
        taken = time.monotonic() - begin
        waited = waited_s("self") - waited + waited_s(server.process.pid)
        assert answer.json["choices"][0]["text"] == texts[kill % len(BODIES)]
        seconds.append(taken)
        later.append(taken - waited - load_seconds(server))
    load.finish()
    wrong = [failure for failure in load.failures if failure[1].startswith("wrong")]
    print(f"{KILLS} kills and {while_loading} while loading: serving after "
          f"{sorted(seconds)[KILLS // 2]:.2f} s (median), {max(seconds):.2f} s at most; "
          f"{max(later):.2f} s at most beyond the load; {dict(load.outcomes)}")
    assert server.stop() == 0, server.log()
    assert wrong == [] and load.outcomes["right"] > KILLS
    assert max(later) < SECONDS_MORE
