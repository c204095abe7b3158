"""The doctor of schemas: `inferd check --schema` and POST /v1/schema/check say the same, and what
they say is what a request meets."""

import json
import subprocess

import pytest

from harness import PATIENCE, ROOT

WHOLE = {"additionalProperties": False}
A = {"type": "object", "required": ["a"]}
# (schema, places that are refused when it is strict, and when it is not; None: it is accepted)
SCHEMAS = [
    ({**A, **WHOLE, "properties": {"a": {"type": "integer", "minimum": 2}}}, None, None),
    ({**A, "properties": {"a": {"type": "integer"}}, "title": "t"}, [""], None),
    (True, [""], None),
    (False, [""], [""]),
    ({"type": "array", "uniqueItems": True}, [""], [""]),
    ({**A, **WHOLE, "properties": {"a": {"type": "string", "pattern": "(a)\\1"}}},
     ["/properties/a"], ["/properties/a"]),
    ({**A, **WHOLE, "properties": {"a": {"type": "string", "odd": 1}}}, ["/properties/a"],
     None),
]


def command(inferd, *arguments, text=None):
    done = subprocess.run([str(ROOT / inferd), "check", *map(str, arguments)], input=text,
                          capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def steady(report):
    """A report without the time that it took."""
    if report["cost"]:
        report["cost"].pop("compile_us")
    return report


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("row", SCHEMAS, ids=range(len(SCHEMAS)))
def test_the_command_and_the_route_agree(server, inferd, tmp_path, row, strict):
    schema, places = row[0], row[1 if strict else 2]
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    flags = ["--strict"] if strict else []
    status, out, err = command(inferd, "--schema", file, *flags)
    assert (status, err) == (0 if places is None else 1, "")
    report = steady(json.loads(out))
    assert report["accepted"] == (places is None) and report["complete"], report
    assert [place["pointer"] for place in report["refused"]] == (places or [])
    answer = server.post("/v1/schema/check", {"schema": schema, "strict": strict})
    assert answer.status == 200 and steady(answer.json) == report
    if isinstance(schema, dict):
        spelled = server.post("/v1/schema/check", {"schema": json.dumps(schema), "strict": strict})
        assert steady(spelled.json) == report
    for order in (["--strict", "--schema", file], ["--schema", "-", "--strict"]):
        again, out, _ = command(inferd, *(order if strict else [w for w in order
                                                               if w != "--strict"]),
                                text=json.dumps(schema))
        assert again == status and steady(json.loads(out)) == report
    asked = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "a"}], "max_tokens": 1,
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "schema": schema, "strict": strict}}})
    assert asked.status == (200 if places is None else 400), asked
    if places is not None:
        assert report["error"]["message"] in asked.error["message"], (report, asked)


def test_what_is_no_schema(inferd, tmp_path):
    for text, status in (("{", 65), ("", 65), ("3", 1), ("[]", 1), ('{"type": "x"}', 1)):
        found, out, err = command(inferd, "--schema", "-", text=text)
        assert found == status, (text, found, out, err)
        assert (err != "") == (status == 65)
    missing = tmp_path / "missing.json"
    status, out, err = command(inferd, "--schema", missing)
    assert status not in (0, 1) and out == "" and str(missing) in err


@pytest.mark.parametrize("words", [["--schema"], ["--schema", "a", "b"], ["--schema", "--odd"],
                                   ["--schema", "--strict"]])
def test_a_wrong_command_line(inferd, words):
    status, out, err = command(inferd, *words)
    assert (status, out) == (64, "") and "inferd check --schema FILE" in err


def test_strict_is_for_schemas_alone(inferd):
    status, _, err = command(inferd, "models/demo", "--strict")
    assert status != 0 and "--strict" in err
