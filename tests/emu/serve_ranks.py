"""One model on several emulated GPUs, a process each: the bits of one GPU, and what is refused.

Run by serve.py. They exchange by a double of NCCL (tests/emu/nccl), and without the library through
host memory. On a machine with one real GPU there is nothing to run.
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from serve_default import model_folder
from serve_faults import EXIT_DEVICE_LOST
from serve_lora import ADMIN_KEY, post, write_adapter
from serving import LONG, REAL_GPU, Server, check_logprobs, prompts

SHAPE = {"vocab_size": 383, "hidden_size": 96, "intermediate_size": 96, "num_hidden_layers": 1,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
         "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": None,
         "eos_token_id": [0], "tie_word_embeddings": False}
DENSE = dict(SHAPE, model_type="qwen2", architectures=["Qwen2ForCausalLM"])  # has biases
MIXTURE = dict(SHAPE, model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"],
               num_experts=9, num_experts_per_tok=2, moe_intermediate_size=32,
               shared_expert_intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1)
FLAGS = ["--load-format", "dummy", "--seed", "11", "--max-num-seqs", "6",
         "--max-num-batched-tokens", "64"]


def ranks(program, folder, size, *flags, nccl=True, **settings):
    library = Path(program).resolve().parent.parent / "nccl"
    assert (library / "libnccl.so.2").exists(), library
    if not nccl:  # the machine may have the real one
        library = Path(folder) / "none"
        library.mkdir(exist_ok=True)
        (library / "libnccl.so.2").write_text("no library")
    return Server(program, "cuda", *FLAGS, "--tensor-parallel-size", size, *flags, model=folder,
                  **{"EMU_DEVICES": str(size), "LD_LIBRARY_PATH": str(library), **settings})


def answers(server, says=""):
    """Of prompts in several steps, greedy and drawn. `says` must stand in the log."""
    drawn = prompts(5, 70, seed=3)
    found = server.all([{"prompt": prompt, "max_tokens": 6, "logprobs": 3, "prompt_logprobs": 1,
                         "temperature": i % 3 / 2, "seed": i} for i, prompt in enumerate(drawn)])
    assert server.stop() == 0, server.text()
    assert says in server.text(), server.text()
    return found


def compare_ranks(program, config, sizes):
    staged, direct = "exchange  through host memory", "exchange  from GPU to GPU by NCCL 2.28.9"
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, config)
        alone = answers(Server(program, "cuda", *FLAGS, model=folder))
        for size in sizes if LONG else {sizes[0], sizes[-1]}:
            server = ranks(program, folder, size)
            assert answers(server, direct) == alone, f"{size} ranks: {server.text()}"
            assert f"ranks     {size} over" in server.text(), server.text()
        server = ranks(program, folder, sizes[0], nccl=False)
        assert answers(server, staged) == alone, server.text()
        assert "libnccl.so.2: file too short" in server.text(), server.text()
        fast = ["--tensor-parallel-mode", "fast"]
        found = [answers(ranks(program, folder, sizes[-1], *fast, nccl=nccl, EMU_ORDER=order),
                         direct if nccl else staged)
                 for nccl, order in ((True, "fwd"), (False, "rev"))]
        assert found[0] == found[1], "the bits of sums are not those of the run before"
        check_near(alone, found[0])


def check_near(alone, fast):
    """Sums of parts round otherwise: the logprobs of prompts move a little, whatever is drawn; more
    where a rounding has chosen another expert."""
    differences = []
    for left, right in zip(alone, fast):
        for expected, got in zip(left["prompt_logprobs"][1:], right["prompt_logprobs"][1:]):
            differences += [expected[token]["logprob"] - got[token]["logprob"]
                            for token in set(expected) & set(got)]
    assert len(differences) > 100, len(differences)
    assert any(differences), "sums of parts have the bits of whole sums"
    check_logprobs(sorted(differences, key=abs)[:len(differences) * 9 // 10])


def test_dense_ranks_have_the_bits_of_one(program):
    if not REAL_GPU:
        compare_ranks(program, DENSE, (2, 3, 4))


def test_ranks_of_experts_have_the_bits_of_one(program):
    if not REAL_GPU:
        compare_ranks(program, MIXTURE, (2, 4))


def test_a_model_on_one_gpu_drafts_for_ranks(program):
    """The first rank drafts on its GPU; the others verify."""
    if REAL_GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        alone = answers(Server(program, "cuda", *FLAGS, model=folder))
        for nccl in (True, False):
            server = ranks(program, folder, 2, "--num-speculative-tokens", "3",
                           "--speculative-model", folder, nccl=nccl)
            assert answers(server, "drafts    by ") == alone, server.text()


def test_long_sums_in_two_steps_have_the_same_bits(program):
    """Of so many rows each rank adds up some columns, where NCCL brings them; gathered through the
    host they must be the same."""
    if REAL_GPU:
        return
    wide = dict(DENSE, hidden_size=1088, intermediate_size=64)
    fast = ["--tensor-parallel-mode", "fast", "--max-num-batched-tokens", "512"]
    bodies = [{"prompt": prompt, "max_tokens": 3, "logprobs": 3} for prompt in prompts(2, 500, 1)]
    bodies[0]["prompt"] = (bodies[0]["prompt"] * 500)[:500]
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, wide)
        found = []
        for nccl in (True, False):
            server = ranks(program, folder, 3, *fast, nccl=nccl)
            found.append(server.all(bodies))
            assert server.stop() == 0, server.text()
    assert found[0] == found[1]


def adapted(server, adapter):
    """A request is under way while the adapter is loaded; another one has it then."""
    body = {"prompt": [5, 6, 7], "logprobs": 3}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(server.all, [{**body, "model": "base", "max_tokens": 150}])
        while not re.search(r"^inferd_generation_tokens_total\S* [1-9]", server.metrics(), re.M):
            time.sleep(0.02)
        post(server, "/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(adapter)})
        assert not under_way.done()
        found = server.all([{**body, "model": "one", "max_tokens": 6}]) + under_way.result()
    assert found[0]["logprobs"]["token_logprobs"][0] != found[1]["logprobs"]["token_logprobs"][0]
    assert server.stop() == 0, server.text()
    return found


def test_ranks_get_an_adapter_between_steps_in_flight(program):
    if REAL_GPU:
        return
    flags = ["--served-model-name", "base", "--enable-lora", "--allow-runtime-lora", "--admin-key",
             ADMIN_KEY]
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        adapter = write_adapter(Path(folder) / "one", 4, {"self_attn.o_proj": (96, 128),
                                                          "mlp.up_proj": (96, 96)}, Path(folder))
        alone = adapted(Server(program, "cuda", *FLAGS, *flags, model=folder), adapter)
        for nccl in (True, False):
            assert adapted(ranks(program, folder, 2, *flags, nccl=nccl), adapter) == alone


def test_ranks_without_a_device_each_are_refused(program):
    if REAL_GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        server = ranks(program, folder, 3, EMU_DEVICES="2")
        assert server.process.wait(60) == 78, server.text()
        assert ("3 ranks on this host need a CUDA device each from cuda:0 on; there are 2"
                in server.text()), server.text()
        model_folder(folder, dict(DENSE, intermediate_size=16))
        server = ranks(program, folder, 4)
        assert server.process.wait(60) == 78, server.text()
        assert "the model has 2 groups of 8 columns, so it must be at most 2" in server.text()


def children(pid):
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children")
            for child in path.read_text().split()]


def lose_rank(program, folder, how, *flags, **settings):
    """A rank is killed or stopped while rank 0 has requests: they hear of it, all end."""
    server = ranks(program, folder, 2, "--watchdog-interval", "2s", *flags, **settings)
    assert server.process.poll() is None, server.text()
    other = children(server.process.pid)[0]
    command = json.dumps({"prompt": [5, 6, 7], "max_tokens": 450, "ignore_eos": True})
    asked = subprocess.Popen(["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", "-d", command,
                              "-H", "Content-Type: application/json",
                              f"http://127.0.0.1:{server.port}/v1/completions"],
                             stdout=subprocess.PIPE, text=True)
    time.sleep(0.7)
    os.kill(other, how)
    assert asked.communicate(timeout=60)[0] == "500", server.text()
    assert server.process.wait(60) == EXIT_DEVICE_LOST, server.text()
    until = time.monotonic() + 10  # it is killed when rank 0 ends, and waited for by others
    while Path(f"/proc/{other}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{other}").exists(), server.text()
    return server.text()


def test_a_lost_rank_ends_the_server(program):
    if REAL_GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        for nccl in (True, False):
            text = lose_rank(program, folder, signal.SIGKILL, nccl=nccl)
            assert "rank 1 has ended" in text or "a process exited" in text, text
        text = lose_rank(program, folder, signal.SIGSTOP, nccl=False)
        assert "rank 1 does not answer" in text, text
        text = lose_rank(program, folder, signal.SIGSTOP, "--watchdog-interval", "1s")
        assert "does not answer" in text or "a process exited" in text, text


def test_a_communicator_that_does_not_end_keeps_nobody(program):
    """ncclCommDestroy waits for ranks that have ended without a word."""
    if REAL_GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        server = ranks(program, folder, 2, NCCL_DOUBLE_STUCK="1")
        assert server.all([{"prompt": [5, 6, 7], "max_tokens": 3}])
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0, server.text()


def test_what_nccl_refuses_is_said(program):
    if REAL_GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        for fault, said in (("ncclCommInitRank:1", "NCCL does not start: unhandled system error"),
                            ("ncclAllGather:3", "NCCL, a gather: internal error")):
            server = ranks(program, folder, 2, NCCL_DOUBLE_FAIL=fault)
            assert server.process.wait(60) in (70, EXIT_DEVICE_LOST), server.text()
            assert said in server.text(), server.text()
            room = os.statvfs("/dev/shm") if os.path.exists("/dev/shm") else None
            is_small = room is None or room.f_blocks * room.f_frsize < 512 << 20
            assert ("; /dev/shm has " in server.text() and "--shm-size=1g" in server.text()) == \
                (is_small and "start" in said), server.text()


def test_a_rank_that_ends_while_nccl_starts_ends_all(program):
    """ncclCommInitRank itself would wait for it for ever."""
    if REAL_GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, DENSE)
        for lost in (1, 2):
            server = ranks(program, folder, 3, NCCL_DOUBLE_END=str(lost))
            assert server.process.wait(60) in (70, EXIT_DEVICE_LOST), server.text()
            assert f"rank {lost} has ended" in server.text(), server.text()
