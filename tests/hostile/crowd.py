"""Clients of an attack: each sends its bodies on a connection of its own, round after round."""

import contextlib
import http.client
import itertools
import json
import socket
import threading


class Crowd:
    """The clients of an attack, `most` of them at most. Each goes on until it is stopped, or until
    `enough` is set and it has sent `rounds` rounds. `answers` grows as (status, body) meanwhile."""

    def __init__(self, server, attack, key, rounds=1, most=None):
        self.answers, self.failures, self.connections = [], [], []
        self.stopped, self.enough = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=self._client, daemon=True,
                                         args=(server, attack, key, rounds, k))
                        for k in range(min(attack.connections, most or attack.connections))]
        for thread in self.threads:
            thread.start()

    def _client(self, server, attack, key, rounds, number):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection = server.connection(120)
        self.connections.append(connection)
        try:
            for i in itertools.count():
                if i >= rounds and self.enough.is_set():
                    return
                for path, body in attack.bodies(number + i * attack.connections):
                    if self.stopped.is_set():
                        return
                    text = body if isinstance(body, bytes) else json.dumps(body)
                    self._send(connection, path, text, headers)
        except Exception as failure:  # pylint: disable=broad-except
            self.failures.append(failure)
        finally:
            connection.close()

    def _send(self, connection, path, body, headers):
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            connection.close()  # refused before the body was read, and closed
            return
        try:
            self.answers.append((answer.status, answer.read()))
        except (OSError, http.client.IncompleteRead):
            assert self.stopped.is_set(), "an answer was cut"
            connection.close()

    def running(self):
        return any(thread.is_alive() for thread in self.threads)

    def leave(self):
        """Every client closes its connection, whatever it waits for."""
        self.stopped.set()
        for connection in self.connections:
            with contextlib.suppress(OSError, AttributeError):  # not connected now
                connection.sock.shutdown(socket.SHUT_RDWR)
        return self.join()

    def join(self):
        for thread in self.threads:
            thread.join(600)
            assert not thread.is_alive(), "a client of the attack got no answer"
        assert not self.failures, self.failures
        return self.answers
