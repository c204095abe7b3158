"""/v1/conversations, and answers that belong to one, by OpenAI's client and its Agents SDK."""

import asyncio
import sqlite3
import sys
import threading

import agents
import openai
import pytest
from harness import DEMO, ROOT, Server, wait_until
from openai.types.conversations import Conversation, ConversationItemList
from openai.types.responses import Response
from storing import ALICE, alice, bob, client, keys, server, start  # noqa: F401

sys.path.append(str(ROOT / "tests/clients"))
from scripted import scripted_model  # noqa: E402 pylint: disable=wrong-import-position

QUESTION = "Once upon a time"
SAID, AGAIN = "Paris is sunny.", "No more of that."
LAST = "messages[-1].role == '%s' and '%s' in messages[-1].content"
AGENT = [(LAST % ("user", "weather"), '<tool_call>\n{"name": "get_weather", "arguments": '
          '{"city": "Paris"}}\n</tool_call>'),
         (LAST % ("tool", "Sunny"), SAID), ("true", AGAIN)]


def ask(client, text=QUESTION, tokens=12, **fields):
    return client.responses.create(model="demo", input=text, max_output_tokens=tokens,
                                   temperature=0, **fields)


def user(text):
    return {"type": "message", "role": "user", "content": text}


def texts(client, key, **page):
    """The texts of all its items."""
    return [item.content[0].text for item in
            client.conversations.items.list(key, **({"order": "asc"} | page))]


# ---- made, changed, removed


def test_a_conversation_is_made_changed_and_removed(alice):
    made = alice.conversations.create(metadata={"a": "b"})
    assert made.id.startswith("conv_") and made.object == "conversation"
    Conversation.model_validate(made.model_dump(), strict=True)
    assert made.metadata == {"a": "b"} and alice.conversations.retrieve(made.id) == made
    alice.conversations.items.create(made.id, items=[user("one")])
    changed = alice.conversations.update(made.id, metadata={"c": "d"})
    assert (changed.id, changed.created_at, changed.metadata) == (
        made.id, made.created_at, {"c": "d"})
    assert alice.conversations.retrieve(made.id) == changed
    assert texts(alice, made.id) == ["one"]
    gone = alice.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    for call in (alice.conversations.retrieve, alice.conversations.delete,
                 lambda key: alice.conversations.update(key, metadata={}),
                 alice.conversations.items.list,
                 lambda key: alice.conversations.items.create(key, items=[user("two")])):
        with pytest.raises(openai.NotFoundError) as error:
            call(made.id)
        assert error.value.code == "not_found" and made.id in str(error.value)
    assert alice.conversations.create().metadata == {}


def test_items_are_listed_page_by_page(alice):
    key = alice.conversations.create(items=[user("0"), user("1")]).id
    added = alice.conversations.items.create(key, items=[user(str(i)) for i in range(2, 7)])
    ConversationItemList.model_validate(added.model_dump())
    assert [item.content[0].text for item in added.data] == ["2", "3", "4", "5", "6"]
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id)
    assert texts(alice, key, limit=3) == list("0123456")
    assert texts(alice, key, order="desc", limit=2) == list("6543210")
    page = alice.conversations.items.list(key, limit=7)
    assert not page.has_more and page.last_id == page.data[-1].id
    page = alice.conversations.items.list(key, limit=6)
    assert page.has_more and len(page.data) == 6
    one = alice.conversations.items.retrieve(added.data[1].id, conversation_id=key)
    assert one == added.data[1]
    left = alice.conversations.items.delete(one.id, conversation_id=key)
    assert left == alice.conversations.retrieve(key)
    assert texts(alice, key) == list("012456")
    for call in (alice.conversations.items.retrieve, alice.conversations.items.delete):
        with pytest.raises(openai.NotFoundError) as error:
            call(one.id, conversation_id=key)
        assert error.value.code == "not_found"


def test_an_item_has_an_id_of_its_own(alice):
    """Two of one id could not be told apart."""
    item = {**user("x"), "id": "msg_chosen"}
    key = alice.conversations.create(items=[item, item]).id
    alice.conversations.items.create(key, items=[item])
    ids = [item.id for item in alice.conversations.items.list(key)]
    assert len({*ids, "msg_chosen"}) == 4


@pytest.mark.parametrize("body, status, param", [
    ({"items": []}, 200, None), ({"items": None, "metadata": None}, 200, None),
    ({"items": [user("a")] * 20}, 200, None), ({"items": [user("a")] * 21}, 400, "items"),
    ({"items": "a"}, 400, "items"), ({"items": ["a"]}, 400, "items[0]"),
    ({"items": [user("a"), {"role": "user", "content": 5}]}, None, "items[1].content"),
    ({"items": [{"type": "function_call_output", "call_id": "c", "output": "2"}]}, 200, None),
    ({"items": [{"type": "function_call", "call_id": "c"}]}, 400, "items[0].name"),
    ({"metadata": {str(i): "" for i in range(16)}}, 200, None),
    ({"metadata": {str(i): "" for i in range(17)}}, 400, "metadata"),
    ({"metadata": {"a": 1}}, 400, "metadata"), ({"metadata": []}, 400, "metadata")])
def test_a_wrong_body_is_refused_by_name(server, body, status, param):
    answer = server.post("/v1/conversations", body)
    assert answer.status == status or status is None, answer
    if answer.status != 200:
        assert answer.json["error"]["param"].startswith(param), answer


def test_the_fields_of_the_other_route_are_refused(server, alice):
    key, both = alice.conversations.create().id, {"items": [user("a")], "metadata": {"a": "b"}}
    for path, param in ((key, "items"), (f"{key}/items", "metadata")):
        answer = server.post(f"/v1/conversations/{path}", both)
        assert (answer.status, answer.error["param"]) == (400, param), answer
        assert server.post(f"/v1/conversations/{path}", {**both, param: None}).status == 200


@pytest.mark.parametrize("query, field", [
    ("limit=0", "limit"), ("limit=101", "limit"), ("limit=100", None), ("limit=1", None),
    ("order=up", "order"), ("after=", "after"), ("after=nothing", None),
    ("include[]=message.output_text.logprobs", None)])
def test_a_wrong_page_is_refused_by_name(server, alice, query, field):
    key = alice.conversations.create(items=[user("a")]).id
    answer = server.get(f"/v1/conversations/{key}/items?{query}")
    assert answer.status == (400 if field else 200), answer
    if field:
        assert answer.json["error"]["param"] == field, answer


@pytest.fixture(scope="module")
def others(alice):
    return alice.conversations.create().id, ask(alice, tokens=1).id


@pytest.mark.parametrize("path", ["conv_0", "conv_0/items", "conv_0/items/", "conv_0/items/a/b",
                                  "conv_0/item", "resp_0", "x" * 200, "conv_" + "x" * 155,
                                  "conv_0/items/" + "x" * 160, "a%2Fb", "{made}/x", "{resp}"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_other_path_is_a_conversation(server, alice, others, method, path):
    made, resp = others
    path = path.replace("{made}", made).replace("{resp}", resp)
    fields = {"items": [user("a")]} if "items" in path else {"metadata": {}}
    body = fields if method == "POST" else None
    answer = server.request(method, f"/v1/conversations/{path}", body)
    assert answer.status == 404 and answer.json["error"]["code"] == "not_found", answer
    assert server.get(f"/v1/responses/{made}").status == 404, "nor the other way round"
    assert server.request("DELETE", f"/v1/responses/{made}").status == 404
    assert alice.conversations.retrieve(made).id == made


# ---- answers


def test_a_conversation_of_many_turns_is_as_if_all_was_sent(alice):
    key, history, before = alice.conversations.create(items=[user("Be brief.")]).id, [], 0
    history.append(user("Be brief."))
    for turn in range(6):
        stream, question = turn % 3 == 2, user(f"Tell me about the number {turn}.")
        made = ask(alice, [question], conversation=key if turn % 2 else {"id": key}, stream=stream)
        if stream:
            made = list(made)[-1].response
        history.append(question)
        whole = ask(alice, history, store=False)
        assert made.output_text == whole.output_text
        assert made.usage.input_tokens == whole.usage.input_tokens
        assert made.conversation.id == key and made.previous_response_id is None
        assert made.usage.input_tokens_details.cached_tokens >= before // 16 * 16
        before = made.usage.input_tokens
        history += [item.model_dump(exclude_unset=True) for item in made.output]
        assert [item.id for item in alice.conversations.items.list(key, limit=1)][0] == \
            made.output[-1].id, "it is there when the answer ends"
    assert len(texts(alice, key, limit=5)) == 1 + 6 * 2
    Response.model_validate(alice.responses.retrieve(made.id).model_dump())
    assert alice.responses.retrieve(made.id).conversation.id == key


def test_an_answer_that_is_not_kept_belongs_to_it_too(alice):
    key = alice.conversations.create().id
    made = ask(alice, store=False, conversation=key)
    assert made.store is False and made.conversation.id == key
    assert texts(alice, key) == [QUESTION, made.output_text]
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(made.id)


def test_an_answer_of_the_background_belongs_to_it(alice):
    key = alice.conversations.create(items=[user("first")]).id
    made = ask(alice, background=True, conversation=key)
    assert made.status == "queued" and made.conversation.id == key
    wait_until(lambda: alice.responses.retrieve(made.id).status == "incomplete", "the end", 20)
    done = alice.responses.retrieve(made.id)
    assert texts(alice, key) == ["first", QUESTION, done.output_text]
    events = list(ask(alice, "x", background=True, stream=True, conversation=key))
    assert texts(alice, key)[3:] == ["x", events[-1].response.output_text]


def test_input_tokens_are_counted_and_nothing_is_appended(server, alice):
    key = alice.conversations.create(items=[user("first")]).id
    body = {"model": "demo", "input": "And then?", "conversation": key}
    counted = server.post("/v1/responses/input_tokens", body)
    assert texts(alice, key) == ["first"]
    assert counted.json["input_tokens"] == ask(alice, "And then?",
                                               conversation=key).usage.input_tokens


def test_an_answer_that_fails_appends_nothing(server, alice):
    key = alice.conversations.create(items=[user("first")]).id
    answer = server.post("/v1/responses", {"input": "word " * 20_000, "conversation": key})
    assert answer.status == 400, answer
    with pytest.raises(openai.BadRequestError):
        ask(alice, conversation=key, extra_body={"text": {"format": {"type": "nothing"}}})
    made = ask(alice, tokens=4000, background=True, conversation=key,
               extra_body={"ignore_eos": True})
    alice.responses.cancel(made.id)
    wait_until(lambda: server.metric("inferd_background_responses") == 0, "the run", 20)
    assert texts(alice, key) == ["first"]


def test_answers_at_once_append_whole_turns(alice):
    key = alice.conversations.create().id
    made = []

    def talk(number):
        made.append((f"{number}", ask(alice, f"{number}", conversation=key).output_text))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(alice, key)
    assert sorted(zip(found[::2], found[1::2])) == sorted(made) and len(made) == 6


def test_an_answer_outlives_its_conversation(alice):
    key = alice.conversations.create().id
    made = ask(alice, conversation=key)
    with pytest.raises(openai.BadRequestError) as error:
        ask(alice, "x", previous_response_id=made.id)
    assert error.value.param == "previous_response_id" and key in str(error.value)
    alice.conversations.delete(key)
    assert alice.responses.retrieve(made.id).output_text == made.output_text
    with pytest.raises(openai.NotFoundError) as error:
        ask(alice, conversation=key)
    assert error.value.param == "conversation"


@pytest.mark.parametrize("value, status, param", [
    ("conv_0", 404, "conversation"), ({"id": "conv_0"}, 404, "conversation"), ("", 200, None),
    ({}, 400, "conversation"), ({"id": 1}, 400, "conversation"), (7, 400, "conversation"),
    (None, 200, None), ("conv_" + "x" * 155, 404, "conversation"), ("conv_a\u0000b", 400, None),
    ("resp_0", 404, "conversation"), ({"id": ""}, 400, "conversation")])
def test_a_wrong_conversation_is_refused(server, value, status, param):
    answer = server.post("/v1/responses", {"input": QUESTION, "max_output_tokens": 4,
                                           "conversation": value})
    assert answer.status == status, answer
    if param:
        assert answer.json["error"]["param"] == param, answer


def test_it_excludes_a_previous_answer(server, alice):
    made, key = ask(alice), alice.conversations.create().id
    answer = server.post("/v1/responses", {"input": "x", "conversation": key,
                                           "previous_response_id": made.id})
    assert answer.status == 400 and answer.json["error"]["param"] == "previous_response_id"
    assert "exclude" in answer.json["error"]["message"]


def test_a_history_that_is_too_large_is_named(start, tmp_path):
    server = start(tmp_path / "answers.db", "--max-body-bytes", "2000")
    mine = client(server)
    key = mine.conversations.create(items=[user("a" * 1200)]).id
    assert ask(mine, "x", conversation=key, tokens=1).status
    mine.conversations.items.create(key, items=[user("a" * 1200)])
    with pytest.raises(openai.BadRequestError) as error:
        ask(mine, "x", conversation=key)
    assert error.value.param == "conversation" and "2000" in str(error.value)
    assert server.stop() == 0, server.log()


# ---- the file


def test_a_conversation_outlives_a_kill_and_an_answer_that_is_not_ended(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    key = mine.conversations.create(items=[user("first")]).id
    said = ask(mine, conversation=key).output_text
    made = ask(mine, tokens=200, background=True, conversation=key,
               extra_body={"ignore_eos": True})
    wait_until(lambda: mine.responses.retrieve(made.id).status == "in_progress", "the run", 20)
    server.process.kill()
    server.process.wait()
    again = start(file)
    mine = client(again)
    wait_until(lambda: mine.responses.retrieve(made.id).status == "incomplete", "the end", 30)
    done = mine.responses.retrieve(made.id)
    assert texts(mine, key) == ["first", QUESTION, said, QUESTION, done.output_text]
    assert again.stop() == 0, again.log()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_cannot_be_written_fails(start, tmp_path, stream):
    """Else the client would take it for a part of the conversation."""
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    key = mine.conversations.create(items=[user("first")]).id
    with sqlite3.connect(file) as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON item "
                   "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    if stream:
        last = list(ask(mine, conversation=key, stream=True))[-1]
        assert last.type == "response.failed" and last.response.store is False
    else:
        answer = server.post("/v1/responses", {"input": "x", "conversation": key,
                                               "max_output_tokens": 4})
        assert answer.status == 507 and answer.json["error"]["code"] == "store_failed", answer
    answer = server.post(f"/v1/conversations/{key}/items", {"items": [user("x")]})
    assert answer.status == 507, answer
    with sqlite3.connect(file) as db:
        db.execute("DROP TRIGGER full")
    assert texts(mine, key) == ["first"]
    assert server.stop() == 0, server.log()


def test_without_a_store_they_are_refused(inferd):
    server = Server(inferd, DEMO)
    for method, path in [("POST", ""), ("GET", "/conv_1"), ("POST", "/conv_1"),
                         ("DELETE", "/conv_1"), ("GET", "/conv_1/items")]:
        body = {} if method == "POST" else None
        answer = server.request(method, f"/v1/conversations{path}", body)
        assert answer.status == 404 and answer.json["error"]["code"] == "unsupported_endpoint"
    answer = server.post("/v1/responses", {"input": QUESTION, "conversation": "conv_1"})
    assert answer.status == 400 and answer.json["error"]["code"] == "unsupported_parameter"
    assert "--store" in answer.json["error"]["message"]
    assert server.stop() == 0, server.log()


# ---- whose


def test_another_key_has_nothing_of_it(server, alice, bob):
    made = alice.conversations.create(items=[user("secret")])
    item = alice.conversations.items.list(made.id).data[0].id
    for call in (bob.conversations.retrieve, bob.conversations.delete,
                 lambda key: bob.conversations.update(key, metadata={"a": "b"}),
                 bob.conversations.items.list,
                 lambda key: bob.conversations.items.list(key, after=item),
                 lambda key: bob.conversations.items.create(key, items=[user("evil")]),
                 lambda key: bob.conversations.items.retrieve(item, conversation_id=key),
                 lambda key: bob.conversations.items.delete(item, conversation_id=key),
                 lambda key: ask(bob, conversation=key),
                 lambda key: ask(bob, conversation=key, background=True)):
        with pytest.raises(openai.NotFoundError) as error:
            call(made.id)
        assert error.value.code == "not_found" and "secret" not in str(error.value)
    own = bob.conversations.create().id
    with pytest.raises(openai.NotFoundError):
        bob.conversations.items.retrieve(item, conversation_id=own)
    with pytest.raises(openai.NotFoundError):
        bob.conversations.items.delete(item, conversation_id=own)
    assert list(bob.conversations.items.list(own, after=item)) == []
    assert server.request("GET", f"/v1/conversations/{made.id}",
                          headers={"Authorization": "Bearer nothing"}).status == 401
    assert texts(alice, made.id) == ["secret"]
    assert alice.conversations.retrieve(made.id) == made


# ---- the Agents SDK


def test_the_agents_sdk_keeps_its_conversations_here(start, tmp_path):
    """Both ways: a session of the SDK, and a conversation that the server continues."""
    model, asked = scripted_model(tmp_path / "model", AGENT), []

    @agents.function_tool(strict_mode=False)
    def get_weather(city: str) -> str:
        """The weather."""
        asked.append(city)
        return "Sunny, 21 degrees."

    server = start(tmp_path / "answers.db", model=model)

    async def run():
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=ALICE,
                                      max_retries=0) as sdk:
            agents.set_tracing_disabled(True)
            agents.set_default_openai_client(sdk, use_for_tracing=False)
            agent = agents.Agent(name="weather", model="demo", tools=[get_weather],
                                 model_settings=agents.ModelSettings(temperature=0, max_tokens=60))
            session = agents.OpenAIConversationsSession(openai_client=sdk)
            first = await agents.Runner.run(agent, "weather in Paris", session=session)
            second = await agents.Runner.run(agent, "again", session=session)
            items = await session.get_items()
            last = await session.pop_item()
            left = await session.get_items()
            key = (await sdk.conversations.create()).id
            third = await agents.Runner.run(agent, "weather in Paris", conversation_id=key)
            fourth = await agents.Runner.run(agent, "again", conversation_id=key)
            listed = [item async for item in sdk.conversations.items.list(key, order="asc")]
            await session.clear_session()
            return first, second, items, last, left, third, fourth, listed

    first, second, items, last, left, third, fourth, listed = asyncio.run(run())
    kinds = [item["type"] for item in items]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message",
                     "message"], kinds
    assert first.final_output == third.final_output == SAID
    assert second.final_output == fourth.final_output == AGAIN
    assert left == items[:-1] and last == items[-1]
    assert [item.type for item in listed] == kinds
    assert asked == ["Paris", "Paris"]
    assert server.stop() == 0, server.log()
