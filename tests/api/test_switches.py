"""What operators close: kinds of constraints."""

import pytest

from harness import DEMO

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "n",
                                                                     "schema": SCHEMA}}}


@pytest.mark.parametrize("closed, field, body", [
    ("regex", "regex", {"regex": "a+"}),
    ("grammar", "grammar", {"grammar": 'root ::= "a"'}),
    ("schema", "response_format", FORMAT),
])
def test_a_kind_of_constraint_is_closed(start, closed, field, body):
    server = start(DEMO, "--disable-grammar", closed)
    for path, prompt in (("/v1/completions", {"prompt": "a"}),
                         ("/v1/chat/completions", {"messages": [{"role": "user",
                                                                 "content": "a"}]})):
        answer = server.post(path, {**prompt, "max_tokens": 2, **body})
        assert answer.status == 400, answer
        assert answer.error["code"] == "unsupported_parameter"
        assert answer.error["param"] == field
        assert f"'{field}'" in answer.error["message"]
        assert f"--disable-grammar {closed}" in answer.error["message"]
    assert server.metric("inferd_grammar_cache_misses_total") == 0, "something was compiled"
    assert server.metric("inferd_rejected_total", reason="unsupported") == 2
    for other in ({"regex": "a+"}, {"grammar": 'root ::= "a"'}, FORMAT):
        if other != body:
            assert server.choice("a", max_tokens=30, **other)["text"]
