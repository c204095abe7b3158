"""The real `openai` SDK against inferd: sync, async, streams, cancellation, errors."""

import asyncio

import openai
import pytest

from harness import PATIENCE, wait_until

P = "Once upon a time"


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                       timeout=60 * PATIENCE, max_retries=0) as made:
        yield made


def asynchronous(server):
    return openai.AsyncOpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                              timeout=120 * PATIENCE, max_retries=0)


def test_completion(client):
    answer = client.completions.create(model="demo", prompt=P, max_tokens=20, temperature=0)
    assert answer.object == "text_completion" and answer.choices[0].text
    assert answer.usage.completion_tokens <= 20
    assert answer._request_id  # pylint: disable=protected-access


def test_every_prompt_form(client, server):
    ids = server.tokens(P)
    for prompt in (P, [P, "The"], ids, [ids, ids]):
        answer = client.completions.create(model="demo", prompt=prompt, max_tokens=4)
        several = isinstance(prompt, list) and not isinstance(prompt[0], int)
        assert len(answer.choices) == (2 if several else 1)


def test_stream(client):
    fields = {"model": "demo", "prompt": P, "max_tokens": 20, "temperature": 0}
    plain = client.completions.create(**fields)
    chunks = list(client.completions.create(**fields, stream=True,
                                            stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == plain.choices[0].text
    assert chunks[-1].usage.total_tokens == plain.usage.total_tokens


def test_logprobs_echo_stop_seed(client):
    answer = client.completions.create(model="demo", prompt=P, max_tokens=8, logprobs=2, echo=True,
                                       seed=4, stop=["zzz"], extra_body={"ignore_eos": True})
    choice = answer.choices[0]
    assert choice.text.startswith(P)
    assert len(choice.logprobs.tokens) == answer.usage.total_tokens
    again = client.completions.create(model="demo", prompt=P, max_tokens=8, logprobs=2, echo=True,
                                      seed=4, stop=["zzz"], extra_body={"ignore_eos": True})
    assert again.choices[0].text == choice.text


def test_models(client):
    assert [m.id for m in client.models.list()] == ["demo", "alias/demo"]
    assert client.models.retrieve("demo").object == "model"
    assert client.models.retrieve("alias/demo").id == "alias/demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_errors_have_their_classes(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="demo", prompt=P, temperature=3)
    assert caught.value.param == "temperature" and caught.value.code
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="nope", prompt=P)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="demo", prompt=P, max_tokens=10 ** 7)
    assert caught.value.code == "context_length_exceeded"


def test_cancel_mid_stream(client, server):
    before = server.metric("inferd_aborted_total", cause="disconnect")
    stream = client.completions.create(model="demo", prompt=P, stream=True,
                                       max_tokens=server.max_model_len() - 32,
                                       extra_body={"ignore_eos": True})
    for _, chunk in zip(range(5), stream):
        assert chunk.choices[0].finish_reason is None
    stream.close()
    wait_until(server.idle, "the cancelled stream to leave", context=server.usage)
    assert server.metric("inferd_aborted_total", cause="disconnect") == before + 1


def test_async_64_at_once(server):
    async def one(client, index):
        fields = {"model": "demo", "prompt": f"{P} {index}", "max_tokens": 24, "seed": index}
        if index % 2:
            return (await client.completions.create(**fields)).choices[0].text
        text = ""
        async for chunk in await client.completions.create(**fields, stream=True):
            text += chunk.choices[0].text
        return text

    async def all_of_them():
        async with asynchronous(server) as client:
            return await asyncio.gather(*(one(client, i) for i in range(64)))

    texts = asyncio.run(all_of_them())
    assert len(texts) == 64
    for index in (0, 31, 62):
        alone = server.choice(f"{P} {index}", max_tokens=24, seed=index)["text"]
        assert texts[index] == alone


def test_async_cancellation(server):
    """Tasks cancelled while they wait for a non-stream answer."""
    length = server.max_model_len() - 32

    async def run():
        async with asynchronous(server) as client:
            tasks = [asyncio.create_task(client.completions.create(
                model="demo", prompt=P, max_tokens=length, extra_body={"ignore_eos": True}))
                for _ in range(16)]
            while server.metric("inferd_requests_running") == 0:
                await asyncio.sleep(0.005)
            for task in tasks:
                task.cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    before = server.metric("inferd_aborted_total", cause="disconnect")
    results = asyncio.run(run())
    assert any(isinstance(r, asyncio.CancelledError) for r in results)
    wait_until(server.idle, "cancelled requests to leave", context=server.usage)
    assert server.metric("inferd_aborted_total", cause="disconnect") > before
