"""hostile_crowd: the attackers of tests/hostile as processes, for bench_hostile and soak.

They run at the lowest priority, so that what is measured is the server and not the work of their
Python on the same processors. Each client class has a key of its own.
"""

import http.client
import json
import multiprocessing
import os
import resource
import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/hostile"))
import vocabulary  # noqa: E402 pylint: disable=wrong-import-position
from attacks import ATTACKS  # noqa: E402,F401 pylint: disable=wrong-import-position

STREAMER, HONEST, ATTACKER = (f"sk-{name}-0123456789abcdef"
                              for name in ("streamer", "honest", "attacker"))


def command(folder, build, size, with_keys=True, **config):
    """How to serve a small model with random weights and a vocabulary of this size, with the three
    keys or without any; its files are written into `folder`."""
    words = [build / "inferd", "serve", vocabulary.model(folder / "model", size, **config),
             "--load-format", "dummy", "--seed", "7"]
    if not with_keys:
        return words
    keys = folder / "keys"
    keys.write_text(f"{STREAMER} streamer\n{HONEST} honest\n{ATTACKER} attacker\n")
    keys.chmod(0o600)
    return [*words, "--api-key-file", keys]


def connect(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=600)


def post(connection, path, body, key):
    connection.request("POST", path, json.dumps(body), {
        "Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    return connection.getresponse()


def refused(connection):
    """After a connection that was not accepted or was cut: begins anew, not at once."""
    connection.close()
    time.sleep(0.02)


def attacker(port, attack, number, answers):
    """A process: sends rounds until it is ended; counts statuses."""
    os.nice(19)
    connection, i = connect(port), number
    while True:
        for path, body in attack.bodies(i):
            try:
                answer = post(connection, path, body, ATTACKER)
                answer.read()
                answers[answer.status] += 1
            except (OSError, http.client.HTTPException):
                refused(connection)
        i += attack.connections


class Together:
    """One process with many connections, which all send a request that is refused at the same
    moment, and again when all are answered."""

    connections = 1

    def __init__(self, count):
        self.count, self.name = count, f"{count:,} connections that all ask at the same moment"

    def run(self, port, answers):
        os.nice(19)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        body = b'{"prompt": "a", "max_tokens": -1}'
        request = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                   f"{ATTACKER}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
                   "\r\n\r\n").encode() + body
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(self.count)]
        while True:
            for client in clients:
                client.sendall(request)
            for client in clients:
                answers[int(client.recv(65536).split()[1])] += 1


def begin(port, attacks):
    """The processes of these attacks, and for each its answers counted by status. No lock: a
    process that is ended while it holds one would keep it."""
    crowd, answers = [], []
    for attack in attacks:
        for number in range(attack.connections):
            answers.append(multiprocessing.RawArray("i", 600))
            target, arguments = attacker, (port, attack, number, answers[-1])
            if isinstance(attack, Together):
                target, arguments = attack.run, (port, answers[-1])
            crowd.append(multiprocessing.Process(target=target, args=arguments, daemon=True))
    for process in crowd:
        process.start()
    return crowd, answers


def by_status(answers):
    """{status: answers} of all processes together."""
    return {status: sum(counts) for status, counts in enumerate(zip(*answers)) if any(counts)}


def end(crowd):
    """Ends them by SIGKILL: the handler of SIGTERM that they have from their parent may be lost."""
    for process in crowd:
        process.kill()
        process.join()
