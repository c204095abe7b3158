"""traceparent and spans: what a collector of OpenTelemetry receives. It is a server of our own
here, and the messages are read by the definitions of OTLP (opentelemetry-proto)."""

import base64
import http.server
import json
import threading
import time

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness import DEMO, Stream, run, wait_until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "ignore_eos": True}


def parent(flags="01", trace=TRACE, span=PARENT):
    return {"traceparent": f"00-{trace}-{span}-{flags}"}


def hex_to_base64(value):
    """The JSON of OTLP has ids in hex where protobuf's own mapping has base64."""
    if isinstance(value, list):
        return [hex_to_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {name: base64.b64encode(bytes.fromhex(item)).decode() if name in ids
            else hex_to_base64(item) for name, item in value.items()}


class Collector:
    """Takes POSTs of spans; `answers` are the statuses of the next ones, then 200."""

    def __init__(self):
        self.batches, self.headers, self.answers, self.hold = [], [], [], None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.hold:
                    outer.hold.wait(60)
                status = outer.answers.pop(0) if outer.answers else 200
                if status == 200:
                    outer.headers.append((self.path, dict(self.headers)))
                    message = ExportTraceServiceRequest()
                    json_format.ParseDict(hex_to_base64(json.loads(body)), message)
                    outer.batches.append(message)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [span for batch in self.batches for resource in batch.resource_spans
                for scope in resource.scope_spans for span in scope.spans]

    def of_request(self, identifier):
        """{name: span} of the request with this id."""
        for span in self.spans():
            if attributes(span).get("inferd.request.id") == identifier:
                below = [s for s in self.spans() if s.parent_span_id == span.span_id]
                return {"server": span, **{s.name: s for s in below}}
        return None


def plain(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind)


def attributes(of):
    return {item.key: plain(item.value) for item in of.attributes}


@pytest.fixture
def collector(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES",
                       "deployment.environment=night%20shift,service.name=other")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "llm")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=a%3Db, x-second=2")
    made = Collector()
    yield made
    made.server.shutdown()


def test_a_request_is_a_span_with_its_stages(start, collector):
    server = start(DEMO, "--otlp-endpoint", collector.url, "--served-model-name", "tiny")
    before = time.time_ns()
    answer = server.post("/v1/completions", BODY, headers={**parent(), "x-request-id": "r1",
                                                           "tracestate": "vendor=1"})
    assert answer.status == 200
    after = time.time_ns()
    wait_until(lambda: collector.of_request("r1"), "the spans", context=server.log)
    path, headers = collector.headers[0]
    assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
    assert headers["x-token"] == "a=b" and headers["x-second"] == "2"
    resource = attributes(collector.batches[0].resource_spans[0].resource)
    assert resource["service.name"] == "llm" and resource["service.version"]
    assert resource["deployment.environment"] == "night shift"
    spans = collector.of_request("r1")
    assert set(spans) == {"server", "queue", "prefill", "decode"}
    top = spans["server"]
    assert (top.trace_id.hex(), top.parent_span_id.hex()) == (TRACE, PARENT)
    assert top.trace_state == "vendor=1" and top.name == "text_completion tiny"
    assert top.kind == 2 and len(top.span_id) == 8
    said = attributes(top)
    assert said["gen_ai.usage.output_tokens"] == 5 and said["http.response.status_code"] == 200
    assert said["gen_ai.usage.input_tokens"] == answer.json["usage"]["prompt_tokens"]
    assert said["gen_ai.operation.name"] == "text_completion" and said["http.route"]
    assert said["gen_ai.response.finish_reasons"] == ["length"]
    stages = [spans[name] for name in ("queue", "prefill", "decode")]
    assert all(stage.trace_id == top.trace_id and stage.kind == 1 for stage in stages)
    times = [before, top.start_time_unix_nano, stages[0].start_time_unix_nano,
             stages[0].end_time_unix_nano, stages[1].end_time_unix_nano,
             stages[2].end_time_unix_nano, top.end_time_unix_nano]
    assert times == sorted(times)
    assert abs(top.end_time_unix_nano - after) < 60e9
    assert stages[1].start_time_unix_nano == stages[0].end_time_unix_nano
    assert len({span.span_id for span in collector.spans()}) == len(collector.spans())


def test_who_gets_spans(start, collector, monkeypatch):
    """Probes and unknown paths get none, unsampled callers neither; errors and streams do."""
    server = start(DEMO, "--otlp-endpoint", collector.url + "/v1/traces")
    server.get("/nowhere", headers={"x-request-id": "lost"})
    server.get("/readyz", headers={"x-request-id": "probe"})
    server.post("/v1/completions", BODY, headers={**parent("00"), "x-request-id": "unsampled"})
    wrong = server.post("/v1/completions", {**BODY, "max_tokens": -2},
                        headers={"x-request-id": "wrong"})
    assert wrong.status == 400
    stream = Stream(server, {**BODY, "stream": True}, headers={"x-request-id": "stream"})
    stream.chunks()
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    server.post("/v1/chat/completions", chat, headers={"x-request-id": "chat"})
    wait_until(lambda: collector.of_request("chat"), "the spans", context=server.log)
    assert not any(collector.of_request(name) for name in ("lost", "probe", "unsampled"))
    refused = collector.of_request("wrong")
    assert set(refused) == {"server"} and not refused["server"].parent_span_id
    assert attributes(refused["server"])["http.response.status_code"] == 400
    assert attributes(refused["server"])["error.type"] == wrong.error["code"]
    assert attributes(collector.of_request("stream")["server"])["gen_ai.request.stream"] is True
    assert collector.of_request("chat")["server"].name.startswith("chat ")
    ids = {span.trace_id for span in collector.spans()}
    assert len(ids) == 3 and TRACE not in {one.hex() for one in ids}
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    quiet = start(DEMO, "--otlp-endpoint", collector.url)
    quiet.post("/v1/completions", BODY, headers={"x-request-id": "off"})
    quiet.post("/v1/completions", BODY, headers={**parent(), "x-request-id": "on"})
    wait_until(lambda: collector.of_request("on"), "the spans")
    assert not collector.of_request("off")


def test_the_trace_id_is_in_the_access_line(start):
    """Without a collector too; what is no traceparent is ignored."""
    server = start(DEMO)
    good = parent("00")
    bad = [{"traceparent": text} for text in (
        "", "00", f"00-{TRACE}-{PARENT}", f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"01-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g", f"00-{TRACE}-{PARENT}-01-x", f"00_{TRACE}-{PARENT}-01")]
    for i, headers in enumerate([good, *bad]):
        assert server.post("/v1/completions", BODY,
                           headers={**headers, "x-request-id": f"r{i}"}).status == 200
    wait_until(lambda: f'"id":"r{len(bad)}"' in server.log(), "the lines", context=server.log)
    lines = [json.loads(line) for line in server.log().splitlines() if '"id":"r' in line]
    assert [line.get("trace_id") for line in lines] == [TRACE] + [None] * len(bad)
    assert not server.metric("inferd_traces_total"), "no exporter, no family"


def test_a_dead_collector_costs_requests_nothing(start, collector):
    """While the collector holds a POST, thousands of requests are answered; what has no room is
    dropped and counted, and the process ends in time."""
    collector.hold = threading.Event()
    server = start(DEMO, "--otlp-endpoint", collector.url)
    connection = server.connection()
    for _ in range(2600):
        assert server.get("/v1/models", connection=connection).status == 200
    dropped = server.metric("inferd_traces_total", result="dropped")
    assert 2600 - 2048 - 2 * 256 <= dropped <= 2600 - 2048
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 20
    collector.hold.set()


def test_a_collector_that_is_busy_is_asked_again(start, collector):
    collector.answers = [503, 429]
    server = start(DEMO, "--otlp-endpoint", collector.url)
    server.post("/v1/completions", BODY, headers={"x-request-id": "late"})
    wait_until(lambda: collector.of_request("late"), "the spans", context=server.log)
    wait_until(lambda: server.metric("inferd_traces_total", result="exported") == 1, "the count")
    assert server.log().count("takes no spans: it answers with 503") == 1
    collector.answers = [400]
    server.post("/v1/completions", BODY, headers={"x-request-id": "refused"})
    wait_until(lambda: server.metric("inferd_traces_total", result="failed") == 1, "the count")
    server.post("/v1/completions", BODY, headers={"x-request-id": "last"})
    assert server.stop() == 0
    assert collector.of_request("last"), "spans leave before the process ends"


def test_endpoints_that_are_none(inferd, collector, monkeypatch):
    for url, words in (("localhost:4317", "not by gRPC"), ("grpc://x:4317", "not by gRPC"),
                       ("http://", "must be http://HOST:PORT")):
        result = run(inferd, "serve", DEMO, "--port", 0, "--otlp-endpoint", url)
        assert result.returncode == 78 and words in result.stdout, result.stdout
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    result = run(inferd, "serve", DEMO, "--port", 0, "--otlp-endpoint", collector.url)
    assert result.returncode == 78 and "OTEL_TRACES_SAMPLER is 'sometimes'" in result.stdout


def test_the_variables_of_opentelemetry(start, collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/base/")
    server = start(DEMO)
    server.post("/v1/completions", BODY, headers={"x-request-id": "env"})
    wait_until(lambda: collector.of_request("env"), "the spans", context=server.log)
    assert collector.headers[0][0] == "/base/v1/traces"
    assert f"spans go to {collector.url}/base/v1/traces" in server.log()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert "spans go to" not in start(DEMO).log()
