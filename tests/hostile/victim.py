"""The honest ones beside an attack: a stream of one key, whose tokens are known, and chats."""

import contextlib
import itertools
import socket

from harness import Background, wait_until

STREAM = {"prompt": [1000, 2000, 3000], "max_tokens": 800, "ignore_eos": True, "temperature": 0.8,
          "seed": 11, "return_token_ids": True}
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


def ids(stream, most=None):
    """The tokens so far, or the first of them: to look at all again and again takes the processor
    from the thread that reads the stream, and a client that reads too slowly is cut off."""
    return list(itertools.islice((token for chunk in stream.chunks_seen
                                  for choice in chunk["choices"]
                                  for token in choice.get("token_ids") or []), most))


@contextlib.contextmanager
def beside(server, alone, chats=4):
    """Runs its block beside a long stream, and then asks for chats: the stream's tokens are those
    that it has `alone`, every chat is answered. The stream's client leaves at the end."""
    stream = Background(server, {**STREAM, "max_tokens": 30000})
    assert stream.started.wait(60) and stream.failure is None, stream.failure
    yield stream
    for _ in range(chats):
        answer = server.post("/v1/chat/completions", CHAT)
        assert answer.status == 200, answer
        assert server.get("/livez").status == 200
    wait_until(lambda: len(ids(stream, len(alone))) == len(alone) or stream.failure, "the stream")
    assert stream.failure is None, f"{stream.failure}: {server.log()}"
    with contextlib.suppress(OSError, AttributeError):  # it has ended
        stream.stream.connection.sock.shutdown(socket.SHUT_RDWR)
    stream.join()
    assert ids(stream, len(alone)) == alone
