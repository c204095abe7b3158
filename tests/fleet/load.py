"""Clients that never ask twice, and what became of each request: lost (no answer, or an error), cut
(a stream without its end), or wrong (a text that a server alone does not give)."""

import http.client
import json
import threading
from collections import Counter

CLIENTS = 8
BODIES = [{"model": "demo", "prompt": f"Once upon a time there were {n}", "max_tokens": 4 + n % 9,
           "temperature": 0, "ignore_eos": True} for n in range(40)]


def text_of(answer, streamed):
    """The text of an answer's body; None if it ends too early."""
    if not streamed:
        return json.loads(answer)["choices"][0]["text"]
    events = [line[6:] for line in answer.decode().splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return None
    chunks = [json.loads(event) for event in events[:-1]]
    if any("error" in chunk for chunk in chunks):
        return None
    return "".join(choice.get("text") or "" for chunk in chunks for choice in chunk["choices"])


class Load:
    """Clients that ask through a proxy, without a retry of their own, until `stop`."""

    def __init__(self, port, texts, count, streams=True):
        self.port, self.texts, self.count, self.streams = port, texts, count, streams
        self.outcomes, self.failures = Counter(), []
        self.lock = threading.Lock()
        self.begun = 0
        self.busy = True  # more than `count` if the restarts take longer
        self.threads = [threading.Thread(target=self.run, daemon=True)
                        for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def next(self):
        with self.lock:
            if self.begun >= self.count and not self.busy:
                return None
            self.begun += 1
            return self.begun

    def ask(self, connection, number):
        body = BODIES[number % len(BODIES)]
        streamed = self.streams and number % 2 == 0
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": streamed}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        payload = answer.read()
        if answer.status != 200:
            return f"lost: {answer.status} {payload[:200]}"
        text = text_of(payload, streamed)
        if text is None:
            return f"cut: {payload[-200:]}"
        return "right" if text == self.texts[number % len(BODIES)] else f"wrong: {text}"

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while number := self.next():
            try:
                outcome = self.ask(connection, number)
            except (OSError, http.client.HTTPException) as fault:
                outcome = f"lost: {fault!r}"
                connection.close()
            with self.lock:
                self.outcomes[outcome.split(":")[0]] += 1
                if outcome != "right":
                    self.failures.append((number, outcome))
        connection.close()

    def finish(self):
        self.busy = False
        for thread in self.threads:
            thread.join(600)
