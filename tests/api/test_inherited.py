"""Sockets that the service manager holds: the port outlives the process."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness import DEMO, Stream, run, wait_until


def test_a_socket_of_the_service_manager(start):
    """The port is bound before the start (inferd.socket), and stays when the server ends: what
    comes meanwhile waits for the next process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = start(DEMO, listener=listener)
        assert first.choice("Once", max_tokens=2)["text"]
        refused = first.get("/v1/models", headers={"Host": "evil.example"})
        assert refused.status == 403, "it is known to be on loopback"
        assert first.stop() == 0
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(first.get, "/v1/models") for _ in range(8)]
            second = start(DEMO, listener=listener)
            assert [each.result().status for each in asked] == [200] * 8
        assert second.port == first.port


def test_a_restart_behind_a_socket_loses_no_request(start):
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        server = start(DEMO, "--drain-delay", "1s", listener=listener)
        body = {"prompt": "Once", "max_tokens": 8, "ignore_eos": True}
        with ThreadPoolExecutor(4) as pool:
            answers = []
            for _ in range(3):
                asked = [pool.submit(server.post, "/v1/completions", body) for _ in range(60)]
                server.process.send_signal(signal.SIGTERM)
                assert server.wait_exit(60) == 0, server.log()
                server = start(DEMO, "--drain-delay", "1s", listener=listener)
                answers += [each.result() for each in asked]
        assert [answer.status for answer in answers] == [200] * 180


def test_a_server_that_is_not_ready_refuses_connections(start, slow_model):
    """--refuse-unready, for proxies without health checks: a request is answered, or its connection
    is refused; none is reset, and none gets 503."""
    def outcome(server):
        try:
            return server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status
        except ConnectionRefusedError:
            return "refused"

    server = start(slow_model, "--load-format", "dummy", "--refuse-unready", "--drain-delay",
                   "0.5s", wait=False)
    first = []
    wait_until(lambda: first.append(outcome(server)) or first[-1] == 200, "the model", 120,
               server.log)
    assert first[0] == "refused" and set(first) == {"refused", 200}
    with ThreadPoolExecutor(9) as pool:
        long = pool.submit(server.post, "/v1/completions", {"prompt": "a", "max_tokens": 8000,
                                                            "ignore_eos": True})

        def ask_on():
            found = []
            while "refused" not in found:
                found.append(outcome(server))
            return found

        asked = [pool.submit(ask_on) for _ in range(8)]
        wait_until(lambda: server.metric("inferd_requests_running") >= 1, "load")
        server.process.send_signal(signal.SIGTERM)
        found = {each for clients in asked for each in clients.result()}
        assert found == {200, "refused"}
        assert server.alive() and not long.done(), "it refuses while it drains"
        server.process.send_signal(signal.SIGTERM)
        assert long.result().json["error"]["code"] == "draining"
    assert server.wait_exit(60) == 0


def test_a_successor_takes_over_without_a_refused_connection(start, slow_model, tmp_path):
    """--take-over: the old process serves until the new one is ready. A stream that runs in the old
    one ends well, and no connection is refused or reset at any moment."""
    flags = ("--load-format", "dummy", "--seed", 3, "--max-num-seqs", 4,
             "--drain-timeout", "600s", "--hand-over", tmp_path / "hand.sock")
    old = start(slow_model, *flags)
    wait_until((tmp_path / "hand.sock").exists, "its socket", context=old.log)
    assert (tmp_path / "hand.sock").stat().st_mode & 0o777 == 0o600
    body = {"prompt": "Once", "max_tokens": 2, "ignore_eos": True}
    stop = threading.Event()
    statuses = []

    def ask_on():
        while not stop.is_set():
            statuses.append(old.post("/v1/completions", body).status)

    stream = Stream(old, {"prompt": "a", "max_tokens": 150, "ignore_eos": True})
    events = stream.events()
    next(events)
    with ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(ask_on) for _ in range(6)]
        try:
            new = start(slow_model, *flags, "--take-over", port=old.port, wait=False)
            wait_until(lambda: "next process serves" in old.log(), "the successor", 120, new.log)
            served = len(statuses)
            wait_until(lambda: len(statuses) > served + 6, "answers of the successor", 120)
            assert len(list(events)) + 1 == 150 and stream.done
            assert old.wait_exit(300) == 0
        finally:
            stop.set()
        for client in clients:
            client.result()
    assert set(statuses) == {200}
    assert new.get("/readyz").status == 200
    assert (tmp_path / "hand.sock").exists(), "for the next one"


def test_take_over_needs_a_place_and_no_process(start, inferd, tmp_path):
    refused = run(inferd, "serve", DEMO, "--port", 0, "--take-over")
    assert refused.returncode == 78 and "take_over needs hand_over" in refused.stdout
    server = start(DEMO, "--hand-over", tmp_path / "hand.sock", "--take-over")
    assert server.choice("Once", max_tokens=1)["text"] and "nothing to take over" in server.log()


def test_a_process_that_does_not_answer_holds_up_no_start(start, tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "hand.sock"))
        silent.listen()
        server = start(DEMO, "--hand-over", tmp_path / "hand.sock", "--take-over")
        assert server.choice("Once", max_tokens=1)["text"]
        assert "nothing to take over" in server.log()


def test_a_successor_that_dies_changes_nothing(start, slow_model, tmp_path):
    flags = ("--load-format", "dummy", "--hand-over", tmp_path / "hand.sock")
    old = start(slow_model, *flags)
    wait_until((tmp_path / "hand.sock").exists, "its socket", context=old.log)
    new = start(slow_model, *flags, "--take-over", wait=False, expected_exit=-signal.SIGKILL)
    wait_until(lambda: "lent to the next process" in old.log(), "the successor", 60, new.log)
    new.process.kill()
    new.process.wait()
    for _ in range(10):
        assert old.choice("Once", max_tokens=1)["text"] is not None


def test_the_permissions_of_unix_sockets(start, inferd, tmp_path):
    for flags, mode in (((), 0o660), (("--uds-mode", "0600"), 0o600),
                        (("--uds-mode", "0666"), 0o666)):
        path = tmp_path / f"{mode:o}.sock"
        server = start(DEMO, *flags, uds=path)
        assert path.stat().st_mode & 0o777 == mode
        assert server.get("/v1/models").status == 200
    refused = run(inferd, "serve", DEMO, "--uds", tmp_path / "s", "--uds-mode", "0777")
    assert refused.returncode in (64, 78) and "0600" in refused.stdout


def test_visitors_that_say_nothing_hold_nobody(start, tmp_path):
    """Processes of our own user that connect for a hand-over and send nothing: requests are
    answered meanwhile, a successor is served at once, and who speaks late is served, too."""
    def visit():
        visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        visitor.settimeout(60)
        visitor.connect(str(tmp_path / "hand.sock"))
        return visitor

    server = start(DEMO, "--hand-over", tmp_path / "hand.sock")
    wait_until((tmp_path / "hand.sock").exists, "its socket", context=server.log)
    silent = [visit() for _ in range(4)]
    assert server.choice("Once", max_tokens=2)["text"]
    eager = visit()
    eager.sendall(b"t")
    byte, descriptors, _, _ = socket.recv_fds(eager, 1, 8)
    assert byte == b"t" and len(descriptors) == 1
    time.sleep(0.5)  # longer than the server ever waited for a byte
    silent[3].sendall(b"t")
    byte, more, _, _ = socket.recv_fds(silent[3], 1, 8)
    assert byte == b"t" and len(more) == 1 and silent[3].recv(1) == b""
    wait_until(lambda: server.log().count("lent to the next process") == 2, "both loans")
    crowd = [visit() for _ in range(2)]  # five are silent: the one that came first makes room
    assert silent[0].recv(1) == b""
    crowd[1].sendall(b"?")  # no word that is known
    assert crowd[1].recv(1) == b""
    assert server.choice("Once", max_tokens=2)["text"] and server.stop() == 0
    for each in [*silent, *crowd, eager]:
        each.close()
    for descriptor in [*descriptors, *more]:
        os.close(descriptor)
