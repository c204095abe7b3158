"""Devices that fail, hang or are too small: what clients, operators and supervisors see.

Run by serve.py.
"""

import concurrent.futures
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from serving import FEW, PATIENCE_S, TINY, Server

EXIT_DEVICE_LOST = 71


def check_error(error):
    """What a request in flight hears, in OpenAI's shape."""
    assert error.keys() == {"message", "type", "param", "code"}, error
    assert (error["type"], error["code"]) == ("server_error", "device_failed"), error
    assert error["message"] == "The device has failed." and error["param"] is None, error


def lose_device(program, fault):
    server = Server(program, "cuda", *FEW, EMU_FAIL=fault)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        whole = [pool.submit(server.ask, prompt=[5, 6, 7], max_tokens=400) for _ in range(3)]
        status, headers, events = pool.submit(server.stream, prompt=[8, 9], max_tokens=400).result()
        lost = time.monotonic()
        while (ready := server.status("/readyz")) == 200 and time.monotonic() < lost + 1:
            pass
        answers = [each.result() for each in whole]
    assert ready in (0, 503), f"{fault}: still ready a second later"
    for code, answer in answers:
        assert code == 500, f"{fault}: {answer}"
        check_error(answer["error"])
    assert server.refusal["x-should-retry"] == "true" and server.refusal["Retry-After"], fault
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), fault
    assert len(events) > 2 and events[-1] == "[DONE]", events
    check_error(json.loads(events[-2])["error"])
    assert "text" in json.loads(events[-3])["choices"][0], events
    assert server.process.wait(10) == EXIT_DEVICE_LOST, server.text()
    assert "the device failed at" in server.text(), server.text()


def test_a_lost_device_ends_the_server(program):
    """A refused call, and kernels that fault while the host waits for them."""
    for fault in ("cudaGraphLaunch:20:700", "cudaEventSynchronize:45:719",
                  "cudaEventRecord:300:700"):
        lose_device(program, fault)


def test_a_device_lost_just_before_a_signal_is_named(program):
    """No tick of the loop has seen it yet: its reason and status are those of any lost device."""
    server = Server(program, "cuda", *FEW, EMU_FAIL="cudaGraphLaunch:5:700")
    code = 200
    while code == 200:
        code, answer = server.ask(prompt=[5, 6, 7], max_tokens=8)
    server.process.send_signal(signal.SIGTERM)
    assert code == 500, answer
    assert server.process.wait(10) == EXIT_DEVICE_LOST, server.text()
    assert "the device failed at" in server.text(), server.text()


class Notify:
    """The service manager's socket."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.heard = []

    def hears(self, message, patience_s):
        """Whether the message comes, among others, in time."""
        deadline = time.monotonic() + patience_s
        while message not in self.heard and time.monotonic() < deadline:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                self.heard += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                break
        return message in self.heard


def test_a_stuck_device_is_noticed(program):
    """A kernel never ends: the watchdog starves, probes fail, and the daemon can still be ended."""
    with tempfile.TemporaryDirectory() as folder:
        notify = Notify(folder)
        server = Server(program, "cuda", *FEW, "--watchdog-interval", "1s", "--drain-timeout", "1s",
                        EMU_FAIL="cudaEventSynchronize:45:hang", NOTIFY_SOCKET=notify.path,
                        WATCHDOG_USEC="1000000")
        assert notify.hears("WATCHDOG=1", 10), notify.heard
        assert server.status("/livez") == server.status("/readyz") == 200
        asked = threading.Thread(target=server.stream, daemon=True,
                                 kwargs={"prompt": [5, 6], "max_tokens": 400})
        asked.start()
        for _ in range(30):  # on a busy machine a slow step may look like the hang before it comes
            assert notify.hears("WATCHDOG=trigger", 20), notify.heard
            notify.heard = []
            if not notify.hears("WATCHDOG=1", 2):
                break
        else:
            raise AssertionError("the watchdog is fed while the device hangs")
        assert server.status("/livez") == server.status("/readyz") == 503
        assert "no step for" in server.text(), server.text()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == EXIT_DEVICE_LOST, server.text()


def test_warm_up_runs_have_more_time_to_start(program):
    """The service manager would end a start in which a driver makes a GPU's code."""
    with tempfile.TemporaryDirectory() as folder:
        notify = Notify(folder)
        server = Server(program, "cuda", *FEW, NOTIFY_SOCKET=notify.path)
        assert notify.hears("EXTEND_TIMEOUT_USEC=600000000", 10), notify.heard
        assert server.stop() == 0, server.text()


def test_a_launch_that_hangs_is_the_device(program):
    """A launch never returns: that too is told from a host that is late, and ends with 71."""
    server = Server(program, "cuda", *FEW, "--watchdog-interval", "1s", "--drain-timeout", "1s",
                    EMU_FAIL="cudaGraphLaunch:20:hang")
    asked = threading.Thread(target=server.stream, daemon=True,
                             kwargs={"prompt": [5, 6], "max_tokens": 400})
    asked.start()
    until, failed = time.monotonic() + PATIENCE_S, 0
    while failed < 10 and time.monotonic() < until:  # a slow launch may look like it for a moment
        failed = failed + 1 if server.status("/livez") == 503 else 0
        time.sleep(0.1)
    assert failed == 10, server.text()
    assert "the device hangs while launching a step" in server.text(), server.text()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == EXIT_DEVICE_LOST, server.text()


def check(program, device, **settings):
    """(exit status, output) of `inferd check`."""
    command = [program, "check", str(TINY), "--load-format", "dummy", "--device", device,
               "--max-model-len", "128", "--max-num-seqs", "4", "--num-blocks", "40",
               "--max-num-batched-tokens", "16", "--dtype", "bfloat16"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE_S, env={**os.environ, **settings})
    return done.returncode, done.stdout


def test_auto_says_which_back_end_and_why(program):
    status, text = check(program, "auto")
    assert status == 0 and "backend   cuda: emulated GPU" in text, text
    assert text.count("backend ") == 1 and "code from PTX" not in text, text
    status, text = check(program, "auto", EMU_SM="120")
    assert status == 0 and "sm_120, driver 13.0" in text and "code from PTX" not in text, text
    status, text = check(program, "auto", EMU_SM="110")
    assert status == 0 and "sm_110, driver 13.0, code from PTX" in text, text
    reasons = [({"EMU_SM": "75"}, "compute capability 7.5; 8.0 is the least"),
               ({"EMU_FAIL": "cudaStreamCreate:1:2"}, "opening the device"),
               ({"EMU_DRIVER": "0"}, "no NVIDIA driver is found"),
               ({"EMU_DRIVER": "12040"}, "the NVIDIA driver is one for CUDA 12.4, and this build "
                                         "needs one for CUDA 13.0 or later: release 580"),
               ({"EMU_FAIL": "cudaGetDeviceCount:2:100", "CUDA_VISIBLE_DEVICES": "7"},
                "; CUDA_VISIBLE_DEVICES is 7"),
               ({"EMU_FAIL": "cudaFuncGetAttributes:1:209"}, "this build has no code for it"),
               ({"EMU_FAIL": "cudaGetDeviceCount:2:35"}, "no CUDA device can be used")]
    for settings, reason in reasons:
        status, text = check(program, "auto", **settings)
        line = next(line for line in text.splitlines() if line.startswith("backend "))
        assert status == 0 and line.startswith("backend   cpu: ") and reason in line, text
        assert "device    cpu, " in text and text.count("backend ") == 1, text
        settings = {name: re.sub(r"^(cudaGetDeviceCount):2:", r"\1:1:", value)
                    for name, value in settings.items()}
        status, text = check(program, "cuda", **settings)
        assert status in (70, 78) and reason in text and "device    " not in text, text
    status, text = check(program, "cpu")
    assert status == 0 and "backend " not in text, text


def test_a_plan_that_does_not_fit_is_refused(program):
    server = Server(program, "cuda", EMU_MEMORY=str(200 << 10))
    assert server.stop() == 78, server.text()
    assert "GiB too few" in server.text() and "--max-num-seqs" in server.text(), server.text()


def test_a_host_pool_that_does_not_fit_is_refused(program):
    """The driver would pin it, and the kernel end the process."""
    server = Server(program, "cuda", *FEW, "--swap-space", "65536")
    assert server.stop() == 78, server.text()
    assert "GiB of host memory are free" in server.text(), server.text()


def test_memory_that_lacks_behind_the_plan_names_the_option(program):
    """What the driver takes for code and graphs is not in the plan to the byte."""
    server = Server(program, "cuda", *FEW, EMU_FAIL="cudaGraphUpload:1:2")
    assert server.stop() in (70, EXIT_DEVICE_LOST), server.text()
    assert "at the upload of a graph: " in server.text(), server.text()
    assert "a lower --memory" in server.text(), server.text()


def test_every_call_may_fail_at_start(program):
    """Whatever the driver refuses while the server starts: a reason, an exit status, no crash."""
    calls = ["cudaGetDeviceCount:1", "cudaSetDevice:1", "cudaStreamCreate:1",
             "cudaGetDeviceProperties:1", "cudaMallocHost:1", "cudaEventCreate:1",
             "cudaGraphInstantiate:1", "cudaStreamBeginCapture:1", "launch:1", "cublasLtMatmul:1",
             "cublasLtCreate:1"]
    # The first two synchronisations close the device that the plan was made on: nothing needs their
    # result any more.
    for name, first, end in (("cudaMalloc", 1, 40), ("cudaMemcpyAsync", 1, 25),
                             ("cudaMallocHost", 1, 6), ("cudaMemsetAsync", 1, 40),
                             ("launch", 1, 150), ("cudaEventCreate", 1, 4),
                             ("cudaStreamSynchronize", 3, 11), ("cudaGraphInstantiate", 1, 4),
                             ("cudaGraphUpload", 1, 5)):
        calls += [f"{name}:{random.randrange(first, end)}",
                  f"{name}:{random.randrange(first, end)}:2"]

    def start(call):
        command = [program, "check", str(TINY), "--load", "--load-format", "dummy",
                   "--device", "cuda", "--max-model-len", "128", "--max-num-seqs", "8",
                   "--num-blocks", "40", "--max-num-batched-tokens", "40", "--swap-space", "0.01"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE_S, env={**os.environ, "EMU_FAIL": call,
                                                       "XDG_CACHE_HOME": "", "HOME": ""})
        # Without the library the own kernels do all products; a trial that fails is no choice.
        expected = {"cublasLt": (0,), "launch": (0, 70)}
        expected = next((codes for name, codes in expected.items() if call.startswith(name)),
                        (70, 78))
        assert done.returncode in expected, f"{call}: {done.returncode}\n{done.stdout}"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(start, calls))
