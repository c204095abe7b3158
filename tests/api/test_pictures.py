"""Pictures in requests to tiny random models that see: the same bits however they are computed, and
what is refused. tests/parity/parity_seen.py compares the answers with transformers'."""

import base64
import concurrent.futures
import json

import openai
import pytest

import seeing
import seeing_gemma4
import seeing_internvl
import seeing_llava
from harness import PATIENCE, Server, Stream, run, wait_until

BLOCK = 16
A, B, C = seeing.png(60, 40, 1), seeing.png(30, 90, 2), seeing.png(60, 40, 3)


def part(file):
    return {"type": "image_url", "image_url": {"url": seeing.url(file)}}


def user(*parts):
    return {"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str)
                                        else part(p) for p in parts]}


def post(server, *messages, **fields):
    return server.post("/v1/chat/completions", {
        "messages": list(messages), "max_tokens": 8, "temperature": 0, "logprobs": True,
        "return_token_ids": True, "ignore_eos": True, **fields})


def ask(server, *messages, **fields):
    """([(ids, log-probabilities) of each choice], cached tokens)"""
    answer = post(server, *messages, **fields)
    assert answer.status == 200, answer
    made = answer.json
    return [(choice["token_ids"], [e["logprob"] for e in choice["logprobs"]["content"]])
            for choice in made["choices"]], made["usage"]["prompt_tokens_details"]["cached_tokens"]


LONG = [user("first", A), {"role": "assistant", "content": "a colour"}, user("then", B, C, "?")]
QUESTIONS = [LONG, [user(A, "what is this")], [user("compare", C, B)], [user("only words")],
             [user(B, B)]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    return {**{kind: seeing.make(folder / kind, kind) for kind in seeing.KINDS},
            **{kind: seeing_llava.make(folder / kind, kind) for kind in seeing_llava.KINDS},
            "gemma4": seeing_gemma4.make(folder / "gemma4"),
            "gemma4-large": seeing_gemma4.make(folder / "gemma4-large", large=True)}


@pytest.fixture(scope="module")
def seer(inferd, models):
    server = Server(inferd, models["qwen3_vl"], "--served-model-name", "seer")
    yield server
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "the ledger to be empty")
    assert server.stop() == 0, server.log()


@pytest.fixture
def server(seer):
    yield seer
    assert seer.alive(), seer.log()
    wait_until(seer.idle, "the server to be idle again", context=seer.usage)


# ---- the same bits ----

@pytest.mark.parametrize("kind", [*seeing.KINDS, *seeing_llava.KINDS, "gemma4", "gemma4-large"])
def test_bits_do_not_depend_on_steps_others_and_blocks(start, models, kind):
    """Prompts in steps of few tokens, all at once, in so few blocks that choices are preempted."""
    plain = start(models[kind], "--no-enable-prefix-caching")
    alone = [ask(plain, *question)[0] for question in QUESTIONS]
    assert len({str(answer) for answer in alone}) == len(alone)
    longest = post(plain, *LONG).json["usage"]["prompt_tokens"]
    blocks = (longest + 150) // BLOCK + 4
    sides = 12 if kind.startswith("gemma4") else 0  # of layers with a window
    step = seeing_gemma4.TOKENS + 4 if kind == "gemma4-large" else 24  # a picture is whole there
    few = start(models[kind], "--max-num-batched-tokens", step, "--max-num-seqs", 4,
                "--num-blocks", blocks + sides, "--max-model-len", (blocks - 2) * BLOCK)
    for turn in range(20):  # until some were preempted: a slow machine may compute one at a time
        with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
            made = list(pool.map(lambda q: ask(few, *q, max_tokens=140, n=3,
                                               cache_salt=str(turn))[0], QUESTIONS))
        for got, expected in zip(made, alone):
            assert [(ids[:8], scores[:8]) for ids, scores in got] == expected * 3
        if few.metric("inferd_preemptions_total") > 0:
            break
    assert few.metric("inferd_preemptions_total") > 0
    assert few.metric("inferd_images_total") >= 4


def test_files_of_opengvlab_have_the_answers_of_the_same_numbers(start, tmp_path):
    """Texts of a message stand in lines of their own there, and so does a picture."""
    own = start(seeing_internvl.make(tmp_path / "own"))
    hub = start(seeing_internvl.make(tmp_path / "hub", hub=True))
    for question in QUESTIONS:
        assert ask(hub, *question) == ask(own, *question)
    spelled = user("<IMG_CONTEXT> <img>", A)
    lengths = [post(hub, message).json["usage"]["prompt_tokens"]
               for message in (spelled, user("x" * len("<IMG_CONTEXT> <img>"), A))]
    assert lengths[0] == lengths[1], "a text that spells the marks of pictures is text"


def test_choices_and_beams(server):
    alone, _ = ask(server, *LONG)
    drawn, _ = ask(server, *LONG, n=3, temperature=0.8, seed=5)
    again, _ = ask(server, *LONG, n=3, temperature=0.8, seed=5, cache_salt="other")
    assert drawn == again and len({str(choice) for choice in drawn}) > 1
    assert ask(server, *LONG, n=2)[0] == alone * 2
    one, _ = ask(server, *LONG, use_beam_search=True, n=1)
    assert one == alone


def test_drafts_and_grammars_beside_pictures(start, server, models):
    """Drafts of a prompt end before placeholders; text that repeats makes some."""
    words = user(A, "abcabcabc abcabcabc abcabcabc", C)
    drafts = start(models["qwen3_vl"], "--num-speculative-tokens", 4)
    assert ask(drafts, words, max_tokens=60) == ask(server, words, max_tokens=60)
    assert drafts.metric("inferd_spec_decode_draft_tokens_total") > 0
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["n"], "additionalProperties": False}}}
    made = post(server, words, response_format=schema, max_tokens=40, ignore_eos=False).json
    assert json.loads(made["choices"][0]["message"]["content"])["n"] in range(10)


# ---- the cache ----

def test_the_second_question_about_a_picture_is_a_hit(server):
    first, _ = ask(server, user(B, "what is this"), cache_salt="second")
    seen = server.metric("inferd_images_total")
    made = post(server, user(B, "what is that"), cache_salt="second").json
    tokens = made["usage"]["prompt_tokens"]
    assert made["usage"]["prompt_tokens_details"]["cached_tokens"] > tokens - 40 > BLOCK
    assert server.metric("inferd_images_total") == seen, "its rows were kept"
    assert ask(server, user(B, "what is this"), cache_salt="second")[0] == first


def test_pictures_of_the_same_size_share_nothing(server):
    """A and C have the same ids."""
    a, _ = ask(server, user(A, "what"), cache_salt="sizes")
    c, cached = ask(server, user(C, "what"), cache_salt="sizes")
    assert a != c and cached < BLOCK
    assert ask(server, user("x", A, "what"), cache_salt="sizes")[1] < BLOCK


def test_another_tower_does_not_find_blocks_of_before(start, tmp_path):
    """The text model is the same; only a bias of the tower differs."""
    directory = seeing.make(tmp_path / "model", "qwen3_vl")
    flags = ("--prefix-cache-file", tmp_path / "blocks", "--prefix-cache-space", 0.0625)
    first = start(directory, *flags)
    before = ask(first, *LONG)[0]
    assert first.stop() == 0
    again = start(directory, *flags)
    got, cached = ask(again, *LONG)
    assert got == before and cached > 4 * BLOCK
    assert again.stop() == 0
    path = directory / "model.safetensors"
    bytes_ = bytearray(path.read_bytes())
    length = int.from_bytes(bytes_[:8], "little")
    at = json.loads(bytes_[8:8 + length])["model.visual.merger.linear_fc2.bias"]["data_offsets"][0]
    bytes_[8 + length + at:8 + length + at + 4] = b"\0\0\x20\x40"
    path.write_bytes(bytes_)
    other = start(directory, *flags)
    assert "what it held is ignored" in other.log()
    got, cached = ask(other, *LONG)
    assert got != before and cached == 0


# ---- the three dialects ----

def test_counts_are_the_same_everywhere(server):
    """Header alone: what is counted is not decoded, so a file that is cut counts, too."""
    whole = post(server, user(A, "what")).json["usage"]["prompt_tokens"]
    cut = user(A[:200], "what")
    made = server.post("/tokenize", {"messages": [cut]}).json
    assert made["count"] == whole and made["tokens"].count(seeing.PAD) == 40
    items = [{"role": "user", "content": [
        {"type": "input_image", "image_url": seeing.url(A[:200])},
        {"type": "input_text", "text": "what"}]}]
    made = server.post("/v1/responses/input_tokens", {"input": items})
    assert made.json["input_tokens"] == whole, made
    blocks = [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                           "data": base64.b64encode(A[:200]).decode()}},
              {"type": "text", "text": "what"}]
    made = server.post("/v1/messages/count_tokens", {
        "model": "seer", "messages": [{"role": "user", "content": blocks}]})
    assert made.json["input_tokens"] == whole, made


def test_openai_sdk(server):
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                       timeout=60 * PATIENCE, max_retries=0) as client:
        chat = client.chat.completions.create(
            model="seer", messages=[user(A, "what")], temperature=0, max_tokens=8,
            extra_body={"ignore_eos": True})
        answer = client.responses.create(
            model="seer", temperature=0, max_output_tokens=8, extra_body={"ignore_eos": True},
            input=[{"role": "user", "content": [
                {"type": "input_image", "image_url": seeing.url(A), "detail": "auto"},
                {"type": "input_text", "text": "what"}]}])
    assert answer.output_text == chat.choices[0].message.content
    assert answer.usage.input_tokens == chat.usage.prompt_tokens > 40


def test_a_stream(server):
    stream = Stream(server, {"messages": [user(A, "what")], "max_tokens": 8, "temperature": 0,
                             "ignore_eos": True}, path="/v1/chat/completions")
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in stream.chunks()
                   if c["choices"])
    assert text == post(server, user(A, "what")).json["choices"][0]["message"]["content"]


def test_prompt_logprobs_behind_a_picture(server):
    """What stands behind a picture is scored as if it had been drawn there."""
    made = post(server, user(A, "what"), prompt_logprobs=0, max_tokens=1).json
    positions = made["prompt_logprobs"]
    assert len(positions) == made["usage"]["prompt_tokens"] and positions[0] is None
    assert all(len(position) == 1 for position in positions[1:])


def test_large_pictures_are_made_smaller(start, models, server, tmp_path):
    """By a flag, by a file of the model, and of low detail: the same ids and bits."""
    large = seeing.png(199, 190)  # 24 x 24 patches of 8 pixels
    question = [user(large, "what")]
    low = {"type": "image_url", "image_url": {"url": seeing.url(large), "detail": "low"}}
    told = [{"role": "user", "content": [low, {"type": "text", "text": "what"}]}]
    assert ask(server, *question) != ask(server, *told)
    flag = start(models["qwen3_vl"], "--image-max-tokens", 256)
    made = ask(flag, *question)
    own = start(seeing.make(tmp_path / "own", "qwen3_vl", pixels=(64, 256 * 64)),
                "--image-max-tokens", 0)
    assert made[0] == ask(own, *question)[0] == ask(server, *told)[0] == ask(flag, *told)[0]


# ---- what is refused ----

def place(server, *parts, **fields):
    answer = post(server, user(*parts), **fields)
    assert answer.status == 400, answer
    return answer.error


@pytest.mark.parametrize("file, words", [
    (A[:-30], "too early"), (A[:200], ""), (A[:100] + b"\0" * 40 + A[140:], ""), (b"<svg/>", ""),
    (b"\x89PNG\r\n\x1a\n", ""), (b"", "")], ids=["cut", "cut early", "damaged", "svg", "head",
                                                "empty"])
def test_files_that_are_no_pictures(server, file, words):
    error = place(server, "a", A, file)
    assert error["param"] == "messages[0].content[2]", error
    assert words in error["message"]


def test_what_is_too_large(server):
    assert place(server, *[A] * 17)["param"] == "messages[0].content[16]"
    error = place(server, seeing.png(600, 2))
    assert "600" in error["message"] and error["param"] == "messages[0].content[0]"
    bomb = bytearray(A)
    bomb[16:24] = (30000).to_bytes(4, "big") * 2
    assert "16384" in str(place(server, bytes(bomb))).replace(",", "")
    link = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}
    answer = post(server, {"role": "user", "content": [link]})
    assert answer.status == 400, answer


def test_text_that_spells_a_placeholder_is_text(server):
    """Neither a picture nor a mark: each letter is a token."""
    made = server.post("/tokenize", {"messages": [user("<|image_pad|>", A)]}).json["tokens"]
    assert made.count(seeing.PAD) == 40
    ask(server, user("<|image_pad|><|vision_start|>", A))


@pytest.mark.parametrize("flags, why", [
    (("--limit-images", 0), "turned off"), (("--data-parallel-size", 2), "replicas"),
    (("--load-format", "dummy"), "dummy"),
    (("--speculative-model", "itself", "--num-speculative-tokens", 2), "draft model")],
    ids=["off", "replicas", "dummy", "draft model"])
def test_where_no_pictures_are_seen_the_log_says_why(start, models, flags, why):
    model = models["qwen3_vl"]
    blind = start(model, *[model if flag == "itself" else flag for flag in flags])
    assert f"no pictures: " in blind.log() and why in blind.log()
    answer = post(blind, user(A, "what"))
    assert (answer.status, answer.error["code"]) == (400, "unsupported_content_part"), answer
    assert ask(blind, user("words"))


def test_check_says_what_the_model_sees(inferd, models):
    said = run(inferd, "check", models["qwen3_vl"])
    assert said.returncode == 0 and "images    one of 1024 x 768 is" in said.stdout, said.stdout


def test_a_tower_that_is_damaged_leaves_the_text(start, tmp_path):
    directory = seeing.make(tmp_path / "model", "qwen3_vl")
    path = directory / "model.safetensors"
    name = b"visual.merger.norm.bi"
    path.write_bytes(path.read_bytes().replace(name + b"as", name + b"ts"))
    blind = start(directory)
    assert "no pictures: tensor model.visual.merger.norm.bias is missing" in blind.log()
    assert post(blind, user(A, "what")).status == 400
    assert ask(blind, user("words"))
