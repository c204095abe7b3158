"""instructor: a pydantic model as a forced tool, and as a schema of the answer."""

import instructor
import openai
import pytest
from shapes import Person, Team

ASK = {"model": "demo", "max_retries": 0, "temperature": 0, "max_tokens": 400,
       "messages": [{"role": "user", "content": "Make up a person."}]}


@pytest.fixture(params=["TOOLS", "JSON_SCHEMA"])
def client(request, url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
        yield instructor.from_openai(sdk, mode=instructor.Mode[request.param])


@pytest.mark.parametrize("kind", [Person, Team])
def test_the_answer_is_the_model(client, kind):
    answer, completion = client.create_with_completion(response_model=kind, **ASK)
    assert isinstance(answer, kind)
    assert completion.usage.completion_tokens > 0
    assert client.create(response_model=kind, **ASK).model_dump() == answer.model_dump()


def test_a_partial_stream_grows_to_the_model(client):
    states = [piece.model_dump(exclude_none=True)
              for piece in client.create_partial(response_model=Person, **ASK)]
    sizes = [len(state) for state in states]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1] == 3
    Person.model_validate(states[-1])
