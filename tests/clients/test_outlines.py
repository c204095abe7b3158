"""outlines over OpenAI's API, and over vLLM's with every kind of constraint."""

import re
from typing import Literal

import openai
import outlines
import pytest
from outlines.types import CFG, Regex
from shapes import Person, Team

COLD = {"temperature": 0, "max_tokens": 400}


@pytest.fixture
def sdk(url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(params=["from_openai", "from_vllm"])
def model(request, sdk):
    return getattr(outlines, request.param)(sdk, "demo")


@pytest.mark.parametrize("kind", [Person, Team])
def test_schema(model, kind):
    text = model("Make up a person.", kind, **COLD)
    kind.model_validate_json(text)
    assert "".join(model.stream("Make up a person.", kind, **COLD)) == text


def test_free_text(model):
    assert model("What is 2 plus 3?", **COLD) == "2 plus 3 is 5."


@pytest.mark.parametrize("constraint, expected", [
    (Literal["yellow", "violet"], r"yellow|violet"),
    (Regex(r"[0-9]{3}-[a-z]{2}"), r"[0-9]{3}-[a-z]{2}"),
    (CFG('start: item ("+" item)~2\nitem: "x" | "y"'), r"[xy]\+[xy]\+[xy]"),
], ids=["choice", "regex", "grammar"])
def test_other_constraints(sdk, constraint, expected):
    text = outlines.from_vllm(sdk, "demo")("Say something.", constraint, **COLD)
    assert re.fullmatch(expected, text), text
