"""Events of the prefix cache over ZeroMQ, read as vLLM's own subscribers read them.

The classes are written after vllm/distributed/kv_events.py, with events by position (before 0.26)
and by name; the batch is an array in both. msgspec refuses what does not fit them.
"""

import subprocess
import time

import msgspec
import pytest
import zmq

from harness import DEMO, PATIENCE, dummy_model, wait_until
from test_lora import FLAGS as LORA_FLAGS, write_adapter

BLOCK = 16
END = (2**64 - 1).to_bytes(8, "big")
TOPIC = "kv@pod-1@demo"


def classes(by_place):
    """The batch, with its three events."""
    class Event(msgspec.Struct, array_like=by_place, omit_defaults=True, tag=True):
        pass

    class BlockStored(Event):
        block_hashes: list[bytes | int]
        parent_block_hash: bytes | int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None
        extra_keys: list[tuple | None] | None = None
        group_idx: int | None = None

    class BlockRemoved(Event):
        block_hashes: list[bytes | int]
        medium: str | None
        group_idx: int | None = None

    class AllBlocksCleared(Event):
        pass

    class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
        ts: float
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]
        data_parallel_rank: int | None = None

    return Batch


class Cache:
    """What a router believes of a server: hash -> (hash before it, token ids)."""

    def __init__(self, by_place=True):
        self.decoder = msgspec.msgpack.Decoder(classes(by_place))
        self.blocks, self.names, self.next_seq = {}, set(), 0

    def take(self, seq, payload):
        assert seq == self.next_seq
        self.next_seq += 1
        batch = self.decoder.decode(payload)
        assert abs(batch.ts - time.time()) < 600 and batch.data_parallel_rank == 0
        for event in batch.events:
            assert event.medium == "GPU"
            if type(event).__name__ == "BlockRemoved":
                for block in event.block_hashes:
                    del self.blocks[block]
                continue
            assert event.block_size == BLOCK
            self.names.add(event.lora_name)
            before = event.parent_block_hash
            assert before is None or before in self.blocks
            for i, block in enumerate(event.block_hashes):
                self.blocks[block] = before, event.token_ids[i * BLOCK:(i + 1) * BLOCK]
                before = block

    def prefixes(self):
        """The token ids of every prefix that ends in a block."""
        def whole(block):
            before, ids = self.blocks[block]
            return (whole(before) if before is not None else ()) + tuple(ids)
        return {whole(block) for block in self.blocks}


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


def addresses(folder):
    return [f"ipc://{folder}/events", f"ipc://{folder}/replay"]


def subscribe(context, address, topic=""):
    socket = context.socket(zmq.SUB)
    socket.connect(address)
    socket.setsockopt_string(zmq.SUBSCRIBE, topic)
    return socket


def replay(context, address, seq):
    """The batches from `seq` on, as (topic, number, payload), by a DEALER as llm-d asks."""
    socket = context.socket(zmq.DEALER)
    socket.connect(address)
    socket.send_multipart([b"", seq.to_bytes(8, "big")])
    found = []
    while True:
        assert socket.poll(30000), "no end of the replay"
        empty, topic, number, payload = socket.recv_multipart()
        assert empty == b""
        if payload == b"":
            assert (topic, number) == (b"", END)
            return found
        found.append((topic.decode(), int.from_bytes(number, "big"), payload))


def prompt_blocks(ids):
    """The prefixes of a prompt that full blocks hold."""
    return {tuple(ids[:end]) for end in range(BLOCK, len(ids) + 1, BLOCK)}


@pytest.mark.parametrize("form", ["array", "map"])
def test_subscribers_know_what_the_cache_holds(start, tmp_path, context, form):
    """Prompts that share prefixes, more than the cache holds; a subscriber that came late asks for
    what was before. What both believe is what the metrics count."""
    events, again = addresses(tmp_path)
    server = start(DEMO, "--kv-events-endpoint", events, "--kv-events-replay", again,
                   "--kv-events-topic", TOPIC, "--kv-events-format", form, "--num-blocks", 40,
                   "--block-size", BLOCK, "--max-model-len", 512)
    socket = subscribe(context, events, "kv@")
    early, seen, others = Cache(form == "array"), [], 0
    while not socket.poll(100):  # what is published before a subscription has come is lost
        server.post("/v1/completions", {"prompt": [200 + others] * 2 * BLOCK, "max_tokens": 1})
        others += 1
        assert others < 1000, "no event comes"
    ids = [[5 + (7 * i + k * k) % 90 for k in range(70 + 16 * (i % 5))] for i in range(12)]
    for i, prompt in enumerate(ids):
        server.post("/v1/completions", {"prompt": ids[i % 3][:48] + prompt, "max_tokens": 20,
                                        "temperature": 0, "ignore_eos": True})
    wait_until(server.idle, "the server to be idle", context=server.usage)
    while socket.poll(500):
        topic, number, payload = socket.recv_multipart()
        assert topic.decode() == TOPIC
        seen.append((int.from_bytes(number, "big"), payload))
    everything = replay(context, again, 0)
    for topic, seq, payload in everything:
        assert topic == TOPIC
        early.take(seq, payload)
    assert dict(seen).items() <= {seq: payload for _, seq, payload in everything}.items()
    assert seen, "the live socket has batches too"
    cached = server.metric("inferd_kv_blocks", pool="device", state="cached")
    partly = cached - len(early.blocks)
    assert 0 <= partly <= len(ids) + others, "blocks that are not full are cached, and not told of"
    assert prompt_blocks(ids[11 % 3][:48] + ids[11]) <= early.prefixes()
    removed = sum(1 for _, _, payload in everything if b"BlockRemoved" in payload)
    assert removed > 0, "the cache was too small for all"
    assert server.metric("inferd_kv_event_batches_total") == len(everything)
    assert server.metric("inferd_kv_events_dropped_total") == 0


def test_a_replay_has_what_was_asked_for(start, tmp_path, context):
    events, again = addresses(tmp_path)
    server = start(DEMO, "--kv-events-endpoint", events, "--kv-events-replay", again,
                   "--kv-events-keep", 3, "--block-size", BLOCK)
    for i in range(6):  # events that wait go in one batch: these shall be six
        server.post("/v1/completions", {"prompt": [10 + i] * 40, "max_tokens": 1})
        wait_until(lambda sent=i: server.metric("inferd_kv_event_batches_total") > sent, "a batch")
    numbers = [seq for _, seq, _ in replay(context, again, 0)]
    assert len(numbers) == 3 and numbers == sorted(numbers) and numbers[0] > 0
    assert [seq for _, seq, _ in replay(context, again, numbers[1])] == numbers[1:]
    assert replay(context, again, numbers[-1] + 1) == []
    strange = context.socket(zmq.DEALER)
    strange.connect(again)
    strange.send_multipart([b"", b"x" * 8, b"more"])
    strange.send_multipart([b"short"])
    assert len(replay(context, again, 0)) == 3, "others are answered"


def test_a_client_that_does_not_read_stops_nobody(start, tmp_path, context):
    events, again = addresses(tmp_path)
    server = start(DEMO, "--kv-events-endpoint", events, "--kv-events-replay", again,
                   "--block-size", 1)
    silent = context.socket(zmq.DEALER)
    silent.setsockopt(zmq.RCVHWM, 1)
    silent.setsockopt(zmq.RCVBUF, 4096)
    silent.connect(again)
    for i in range(8):
        server.post("/v1/completions", {"prompt": [10 + i] * 600, "max_tokens": 8})
    for _ in range(30):
        silent.send_multipart([b"", bytes(8)])
    assert server.post("/v1/completions", {"prompt": [9] * 600, "max_tokens": 8}).status == 200
    wait_until(lambda: len(replay(context, again, 0)) ==
               server.metric("inferd_kv_event_batches_total") > 0, "all of it")


def test_adapters_are_named(start, tmp_path, context):
    events, again = addresses(tmp_path)
    model = dummy_model(tmp_path / "model")
    adapter = write_adapter(tmp_path / "adapter", model, 1)
    server = start(model, *LORA_FLAGS, "--lora-modules", f"mine={adapter}",
                   "--kv-events-endpoint", events, "--kv-events-replay", again)
    for name in ("mine", "base"):
        server.post("/v1/completions", {"prompt": [7] * 40, "max_tokens": 1, "model": name})
    caches = []

    def both_told():
        caches.append(Cache())
        for _, seq, payload in replay(context, again, 0):
            caches[-1].take(seq, payload)
        return len(caches[-1].names) == 2

    wait_until(both_told, "the events of both", context=lambda: caches[-1].names)
    cache = caches[-1]
    assert cache.names == {"mine", None}
    assert len(cache.blocks) == 2 * len(cache.prefixes()) > 0, "one domain each"


@pytest.mark.parametrize("flags, said", [
    (["--kv-events-endpoint", "udp://x:1"], "kv_events_endpoint"),
    (["--kv-events-replay", "tcp://*:5558"], "kv_events_endpoint is not set"),
    (["--kv-events-endpoint", "tcp://*:5557", "--no-enable-prefix-caching"], "prefix cache"),
    (["--kv-events-endpoint", "ipc:///nowhere/at/all"], "kv_events_endpoint"),
])
def test_what_cannot_work_is_refused(inferd, flags, said):
    done = subprocess.run([inferd, "serve", DEMO, "--port", "0", *flags], text=True,
                          timeout=60 * PATIENCE, capture_output=True)
    assert done.returncode in (64, 69, 74, 77, 78) and said in done.stderr, done
