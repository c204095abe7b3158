"""gpu_run: the parts of gpu_check, each a process group with a limit of time, and what they found.

A part is a command. What it prints is read line by line: a line that holds a JSON object with a
`part` is a figure, kept at once and printed; other lines are its log. A line that cannot be read
is counted. Whatever a part does, nothing of its group is left when it is over. The JSON file is
written beside itself and renamed after every part, so it is whole whenever the run is cut.
"""

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

GRACE_S = 3          # between SIGTERM and SIGKILL
LOOK_S = 1.5         # between looks at the card's clock
LOG_BYTES = 40000    # of a part's log that the JSON keeps
DRIVER_TOOLS = "/usr/local/nvidia/bin"  # where some containers have them, without a PATH to it
UNREAD = re.compile(r":\s*[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
BAD = ("FAILED", "not finished")
NOT_HERE = 77        # status of a step that this machine lacks something for, and says what


def figure(line):
    """The object of a line, with null for what JSON has no number for; None when it is none."""
    try:
        value = json.loads(UNREAD.sub(": null", line))
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("part"), str) else None


def tell(text):
    """Prints a line; a terminal or a pipe that is gone must not end the run."""
    try:
        print(text, flush=True)
    except (OSError, ValueError):
        pass


# ---- the driver's tool ----

def ask_smi(fields):
    """What nvidia-smi says of these fields of the GPU that CUDA takes first; None when it fails or
    knows one of them not."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    which = ["-i", first] if first.isdigit() or first.startswith("GPU-") else []
    tool = shutil.which("nvidia-smi") or DRIVER_TOOLS + "/nvidia-smi"
    try:
        done = subprocess.run([tool, *which, "--query-gpu=" + ",".join(fields),
                               "--format=csv,noheader"], stdout=subprocess.PIPE, timeout=30,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    values = lines[0].split(", ") if lines else []  # a line a GPU
    good = done.returncode == 0 and len(values) == len(fields)
    return dict(zip(fields, (value.strip() for value in values))) if good else None


def smi(fields, patience_s=8):
    """The same, without the fields that this release of the tool does not know."""
    known, until = ask_smi(fields), time.monotonic() + patience_s
    if known is not None:
        return known
    known = {}
    for field in fields:
        if time.monotonic() < until:
            known.update(ask_smi([field]) or {})
    return known


class Watch:
    """The card's clock, power and temperature while a step runs: a look in LOOK_S. A card that is
    held back by its power or its heat shows so."""
    FIELDS = ["clocks.sm", "power.draw", "temperature.gpu"]

    def __init__(self):
        self.seen, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.ended.wait(LOOK_S):
            numbers = [re.match(r"\d+", value) for value in (ask_smi(self.FIELDS) or {}).values()]
            if numbers and all(numbers):
                self.seen.append([int(number[0]) for number in numbers])

    def end(self, name):
        """A figure, or None when there was no look."""
        self.ended.set()
        self.thread.join(GRACE_S)
        if not self.seen:
            return None
        clocks, power, heat = zip(*self.seen)
        return {"part": "clock", "what": name, "looks": len(clocks), "least_mhz": min(clocks),
                "most_mhz": max(clocks), "most_w": max(power), "most_c": max(heat)}


# ---- steps ----

class Stopped(Exception):
    """gpu_check itself was told to end."""


class Starting:
    """A signal that comes while a process is started waits until it can be ended."""
    here, name = False, None

    @classmethod
    def end(cls):
        cls.here = False
        if cls.name:
            raise Stopped(cls.name)


def stop_on_signals():
    def stop(number, _):
        Starting.name = signal.Signals(number).name
        if not Starting.here:
            raise Stopped(Starting.name)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
            signal.signal(number, stop)


def end_group(process):
    """Kills what is left of a process's group, and waits until it is gone: memory of a GPU is free
    only then."""
    until = time.monotonic() + GRACE_S
    try:
        os.killpg(process.pid, signal.SIGKILL)
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    except (ProcessLookupError, PermissionError):
        pass


class Run:
    """What has been run and found so far."""

    def __init__(self, path, device, total_s, begin=None):
        self.path, self.device, self.total_s = path, device, total_s
        self.begin = time.monotonic() if begin is None else begin
        self.results, self.verdicts, self.unread = [], [], 0
        # All that is asked is on this machine: no proxy has it. And nvidia-smi counts GPUs so.
        self.environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                            **{k: v for k, v in os.environ.items()
                               if not k.lower().endswith("_proxy")}}

    def left(self):
        return self.total_s - (time.monotonic() - self.begin)

    def failed(self):
        return any(v["state"] in BAD and v["counts"] for v in self.verdicts)

    def save(self):
        """The whole file or the one before. Where it cannot be written another folder gets it, and
        a disk that is full does not end the run."""
        text = json.dumps({"device": self.device, "unread_lines": self.unread,
                           "date": datetime.datetime.now().isoformat(timespec="seconds"),
                           "verdicts": self.verdicts, "results": self.results}, indent=1)
        for path in (self.path, Path(tempfile.gettempdir()) / self.path.name):
            beside = path.with_name(path.name + ".part")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                beside.write_text(text + "\n")
                os.replace(beside, path)
                self.path = path
                return
            except OSError as fault:
                tell(f"gpu_check: {path} cannot be written: {fault}")

    def verdict(self, name, state, note, seconds=0.0, counts=True, log=""):
        """One line of the table. `counts`: whether a bad state fails the whole run."""
        self.verdicts.append({"name": name, "state": state, "note": note, "counts": counts,
                              "seconds": round(seconds, 1), "log": log if state != "ok" else ""})
        self.save()
        tell(f"{state:12} {name}: {note} ({seconds:.1f} s)")
        if state in BAD:
            tell("\n".join("    " + line for line in log[-3000:].splitlines()))

    def read(self, process, log):
        """Runs in a thread until the other end of the pipe is closed."""
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            found = figure(line) if line.startswith("{") else None
            if found:
                self.results.append(found)
                tell(line)
                continue
            self.unread += line.startswith('{"part"')
            log.append(line)

    def part(self, name, command, limit_s, counts=True, proof="", watched=False, **settings):
        """Runs a command; its exit status and last line are the verdict, and `proof`, which must
        stand in its log. Returns the state."""
        before, log, begin = len(self.results), [], time.monotonic()
        limit_s = min(limit_s, self.left())
        Starting.here = True
        try:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**self.environment, "GPU_CHECK_LIMIT_S": f"{limit_s:.1f}", **settings})
        except OSError as missing:
            Starting.end()
            self.verdict(name, "FAILED", str(missing), counts=counts)
            return "FAILED"
        reader = threading.Thread(target=self.read, args=(process, log), daemon=True)
        watch = Watch() if watched else None
        reader.start()
        try:
            Starting.end()
            status = self.wait(process, limit_s)
        finally:
            end_group(process)
            reader.join(GRACE_S)
            seen = watch.end(name) if watch else None
        self.results += [seen] if seen else []
        lines = [line for line in log if line.strip()]
        note = lines[-1].strip()[:120] if lines else f"{len(self.results) - before} figures"
        state = "ok" if status == 0 else "FAILED"
        if state == "ok" and proof not in "\n".join(log):
            state, note = "FAILED", f"nothing says '{proof}': {note}"
        if status == NOT_HERE:
            state = "not run"
        elif status is None:
            state, note = "not finished", f"ended after {limit_s:.0f} s: {note}"
        elif status < 0:
            note = f"signal {-status}: {note}"
        self.verdict(name, state, note, time.monotonic() - begin, counts,
                     "\n".join(log)[-LOG_BYTES:])
        return state

    @staticmethod
    def wait(process, limit_s):
        """The exit status; None past the limit, after a chance to end by itself."""
        try:
            return process.wait(max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(GRACE_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                end_group(process)  # where a driver holds it nothing more can be done
            return None
