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
import signal
import subprocess
import threading
import time

GRACE_S = 3          # between SIGTERM and SIGKILL
LOG_BYTES = 6000     # of a part's log that the JSON keeps
UNREAD = re.compile(r":\s*[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
BAD = ("FAILED", "not finished")


def figure(line):
    """The object of a line, with null for what JSON has no number for; None when it is none."""
    try:
        value = json.loads(UNREAD.sub(": null", line))
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("part"), str) else None


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

    def __init__(self, path, device, total_s):
        self.path, self.device, self.total_s = path, device, total_s
        self.begin = time.monotonic()
        self.results, self.verdicts, self.unread = [], [], 0
        self.environment = dict(os.environ)

    def left(self):
        return self.total_s - (time.monotonic() - self.begin)

    def failed(self):
        return any(v["state"] in BAD and v["counts"] for v in self.verdicts)

    def save(self):
        """The whole file or the one before; a disk that is full must not end the run."""
        text = json.dumps({"device": self.device, "unread_lines": self.unread,
                           "date": datetime.datetime.now().isoformat(timespec="seconds"),
                           "verdicts": self.verdicts, "results": self.results}, indent=1)
        beside = self.path.with_name(self.path.name + ".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text + "\n")
            os.replace(beside, self.path)
        except OSError as fault:
            print(f"gpu_check: {self.path} cannot be written: {fault}", flush=True)

    def verdict(self, name, state, note, seconds=0.0, counts=True, log=""):
        """One line of the table. `counts`: whether a bad state fails the whole run."""
        self.verdicts.append({"name": name, "state": state, "note": note, "counts": counts,
                              "seconds": round(seconds, 1), "log": log if state != "ok" else ""})
        print(f"{state:12} {name}: {note} ({seconds:.1f} s)", flush=True)
        if state in BAD:
            print("\n".join("    " + line for line in log[-3000:].splitlines()), flush=True)
        self.save()

    def read(self, process, log):
        """Runs in a thread until the other end of the pipe is closed."""
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            found = figure(line) if line.startswith("{") else None
            if found:
                self.results.append(found)
                print(line, flush=True)
                continue
            self.unread += line.startswith('{"part"')
            log.append(line)

    def part(self, name, command, limit_s, counts=True, **settings):
        """Runs a command; its exit status and last line are the verdict. Returns the state."""
        before, log, begin = len(self.results), [], time.monotonic()
        limit_s = min(limit_s, self.left())
        Starting.here = True
        try:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**self.environment, **settings})
        except OSError as missing:
            Starting.end()
            self.verdict(name, "FAILED", str(missing), counts=counts)
            return "FAILED"
        reader = threading.Thread(target=self.read, args=(process, log), daemon=True)
        reader.start()
        try:
            Starting.end()
            status = self.wait(process, limit_s)
        finally:
            end_group(process)
            reader.join(GRACE_S)
        lines = [line for line in log if line.strip()]
        note = lines[-1].strip()[:120] if lines else f"{len(self.results) - before} figures"
        state = "ok" if status == 0 else "FAILED"
        if status is None:
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
