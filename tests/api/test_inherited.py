"""Sockets that the service manager holds: the port outlives the process."""

import signal
import socket
from concurrent.futures import ThreadPoolExecutor

from harness import DEMO


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
