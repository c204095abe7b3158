"""`prompt_embeds`: embeddings in the place of tokens. Rows of the model's own table are its tokens,
bit for bit; what transformers makes of drawn ones is in tests/parity/parity_rows.py."""

import base64
import concurrent.futures
import io
import json
import math
import re
import struct
import zipfile

import numpy as np
import openai
import pytest

from harness import ROOT, Server, Stream, dummy_model, run

MODEL = ROOT / "tests/vectors/models/files-llama-own-head"
ON = "--enable-prompt-embeds"
IDS = (ON, "--skip-tokenizer-init")  # the model's files have no tokenizer
NAMES = {"<f4": "F32", "<f2": "F16"}
STEPS = 12


def tensor_of(name):
    """A tensor of the model's files, as float32."""
    for path in sorted(MODEL.glob("*.safetensors")):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        entry = json.loads(data[8:8 + size]).get(name)
        if entry is None:
            continue
        begin, end = entry["data_offsets"]
        numbers = data[8 + size + begin:8 + size + end]
        if entry["dtype"] == "BF16":
            wide = np.frombuffer(numbers, "<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(entry["shape"])
        kind = {name: kind for kind, name in NAMES.items()}[entry["dtype"]]
        return np.frombuffer(numbers, kind).astype(np.float32).reshape(entry["shape"])
    raise KeyError(name)


TABLE = tensor_of("model.embed_tokens.weight")
VOCABULARY, HIDDEN = TABLE.shape


def file_of(array, dtype=None, name="prompt_embeds", **changes):
    """A file of safetensors. `changes`: what its header says instead of the truth."""
    data = array.tobytes()
    entry = {"dtype": dtype or NAMES[array.dtype.str], "shape": list(array.shape),
             "data_offsets": [0, len(data)], **changes}
    return header_of({name: entry}) + data


def header_of(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def text_of(file):
    return base64.b64encode(file).decode()


def pickled(number):
    if number < 256:
        return b"K" + struct.pack("<B", number)
    return b"M" + struct.pack("<H", number) if number < 65536 else b"J" + struct.pack("<i", number)


def program_of(shape, stride, kind="FloatStorage", elements=None, offset=0):
    """The pickle that torch.save writes of a tensor; parity_rows.py has real ones."""
    elements = math.prod(shape) if elements is None else elements
    tuples = [b"".join(map(pickled, sizes)) + bytes([0x84 + len(sizes)])
              for sizes in (shape, stride)]
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00((X\x07\0\0\0storageq\x01ctorch\n"
            + kind.encode() + b"\nq\x02X\x01\0\0\x000q\x03X\x03\0\0\0cpuq\x04" + pickled(elements)
            + b"tq\x05Q" + pickled(offset) + tuples[0] + b"q\x06" + tuples[1]
            + b"q\x07\x89ccollections\nOrderedDict\nq\x08)Rq\ttq\nRq\x0b.")


def zip_of(program, data, order=b"little", method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in (("data.pkl", program), ("byteorder", order), ("data/0", data),
                              ("version", b"3\n")):
            archive.writestr(f"archive/{name}", content)
    return out.getvalue()


def torch_of(array, **program):
    stride = [math.prod(array.shape[i + 1:]) for i in range(array.ndim)]
    return zip_of(program_of(**{"shape": array.shape, "stride": stride, **program}),
                  array.tobytes())


def embeds(array, **options):
    return text_of(file_of(np.ascontiguousarray(array, "<f4"), **options))


def drawn(seed, tokens):
    return np.random.default_rng(seed).normal(0, 0.5, (tokens, HIDDEN)).astype("<f4")


def post(server, rows, **fields):
    return server.post("/v1/completions", {
        "prompt_embeds": rows, "max_tokens": STEPS, "temperature": 0, "logprobs": 3,
        "return_token_ids": True, "ignore_eos": True, **fields})


def parts(choice):
    logprobs = choice["logprobs"]
    return choice["token_ids"], logprobs["token_logprobs"], logprobs["top_logprobs"]


def ask(server, rows, **fields):
    answer = post(server, rows, **fields)
    assert answer.status == 200, answer
    return parts(answer.json["choices"][0])


def ask_ids(server, ids, **fields):
    answer = post(server, None, prompt=ids, **fields)
    assert answer.status == 200, answer
    return parts(answer.json["choices"][0])


def ids_of(seed, count):
    return np.random.default_rng(seed).integers(3, VOCABULARY, count).tolist()


def test_rows_of_the_table_are_its_tokens(start):
    server = start(MODEL, *IDS, "--dtype", "float32", "--no-enable-prefix-caching")
    for seed, count in ((1, 1), (2, 15), (3, 16), (4, 17), (5, 60)):
        ids = ids_of(seed, count)
        assert ask(server, embeds(TABLE[ids])) == ask_ids(server, ids)


def test_usage_counts_rows_and_no_ids_are_told(start):
    server = start(MODEL, *IDS)
    answer = post(server, embeds(drawn(1, 23))).json
    assert answer["usage"]["prompt_tokens"] == 23
    assert server.metric("inferd_prompt_tokens_total") == 23
    assert answer["choices"][0]["prompt_token_ids"] is None
    assert answer["choices"][0]["finish_reason"] == "length"


def test_types_of_numbers(start):
    """Of f16 and bf16 the values are those of the file, not rounded again."""
    server = start(MODEL, *IDS, "--dtype", "float32", "--no-enable-prefix-caching")
    rows = drawn(7, 9)
    half = rows.astype("<f2")
    cut = (rows.view(np.uint32) >> 16).astype("<u2")
    wide = (cut.astype(np.uint32) << 16).view(np.float32)
    assert ask(server, text_of(file_of(half))) == ask(server, embeds(half.astype("<f4")))
    assert ask(server, text_of(file_of(cut, dtype="BF16"))) == ask(server, embeds(wide))
    assert ask(server, embeds(rows[None])) == ask(server, embeds(rows)), "a batch of one"
    assert ask(server, text_of(torch_of(rows))) == ask(server, embeds(rows))
    assert ask(server, text_of(torch_of(rows[None]))) == ask(server, embeds(rows))
    assert ask(server, text_of(torch_of(half, kind="HalfStorage"))) == \
        ask(server, text_of(file_of(half)))
    assert ask(server, text_of(torch_of(cut, kind="BFloat16Storage"))) == ask(server, embeds(wide))
    part = zip_of(program_of((3, HIDDEN), (HIDDEN, 1), elements=9 * HIDDEN, offset=2 * HIDDEN),
                  rows.tobytes())
    assert ask(server, text_of(part)) == ask(server, embeds(rows[2:5])), "a view of a storage"


def test_the_answer_does_not_depend_on_the_batch(start):
    server = start(MODEL, *IDS, "--max-num-seqs", 8)
    all_rows = [embeds(drawn(seed, 3 + 7 * seed)) for seed in range(6)]
    alone = [ask(server, rows) for rows in all_rows]
    together = post(server, all_rows * 2).json["choices"]
    assert [parts(choice) for choice in together] == alone * 2
    other = start(MODEL, *IDS, "--threads", 1, "--block-size", 4, "--max-num-batched-tokens", 8,
                  "--max-num-seqs", 4, "--no-enable-prefix-caching")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda rows: ask(other, rows), all_rows)) == alone


def cached(server, rows, **fields):
    answer = post(server, rows, **fields).json
    return (parts(answer["choices"][0]),
            answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_the_prefix_cache_tells_rows_apart(start):
    server = start(MODEL, *IDS, "--block-size", 4)
    plain = start(MODEL, *IDS, "--block-size", 4, "--no-enable-prefix-caching")
    rows = drawn(1, 30)
    other = rows.copy()
    other[13, HIDDEN - 1] += 0.5
    right = [ask(plain, embeds(r)) for r in (rows, other)]
    assert right[0] != right[1]
    assert cached(server, embeds(rows)) == (right[0], 0)
    assert cached(server, embeds(rows)) == (right[0], 29)
    assert cached(server, embeds(other)) == (right[1], 12)
    assert cached(server, None, prompt=[0] * 30)[1] == 0, "ids are no rows"
    assert cached(server, embeds(rows), cache_salt="mine") == (right[0], 0)


def test_choices_beams_stops_and_penalties(start):
    server = start(MODEL, *IDS, "--dtype", "float32", "--no-enable-prefix-caching")
    ids = ids_of(9, 21)
    rows = embeds(TABLE[ids])
    for fields in ({"n": 3, "temperature": 1, "seed": 5},
                   {"n": 2, "best_of": 3, "use_beam_search": True, "logprobs": None},
                   {"frequency_penalty": 1.5, "presence_penalty": 0.5},
                   {"min_tokens": 3, "logit_bias": {"7": 5}}):
        made = post(server, rows, **fields).json["choices"]
        right = post(server, None, prompt=ids, **fields).json["choices"]
        for choice in made + right:
            choice.pop("prompt_token_ids")
        assert made == right, fields
    free = ask(server, rows)
    token = free[0][0]
    stopped = post(server, rows, stop_token_ids=[token]).json["choices"][0]
    assert stopped["token_ids"] == [token] and stopped["finish_reason"] == "stop"


def test_id_0_is_not_penalised(start):
    """The ids of a prompt of rows stand for nothing, also the one that the engine puts there."""
    server = start(MODEL, *IDS, "--dtype", "float32", "--max-logprobs", -1)
    tried = 0
    for seed in range(8):
        rows = embeds(drawn(seed, 8))
        scores = ask(server, rows, logprobs=VOCABULARY, max_tokens=1)[2][0]
        ranked = sorted(scores, key=scores.get, reverse=True)
        behind = ranked[ranked.index("token_id:0") + 1:][:1]
        if not behind:
            continue
        tried += 1
        pair = [0, int(behind[0].split(":")[1])]
        made = ask(server, rows, repetition_penalty=3, allowed_token_ids=pair, max_tokens=1)
        assert made[0] == [0]
    assert tried > 4


def test_constraints_and_text(start, tmp_path):
    server = start(dummy_model(tmp_path / "model", hidden_size=64, head_dim=16), ON,
                   "--load-format", "dummy")
    rows = np.random.default_rng(1).normal(0, 0.5, (12, 64)).astype("<f4")
    answer = server.post("/v1/completions", {
        "prompt_embeds": embeds(rows), "guided_regex": "[a-c]{3}", "max_tokens": STEPS})
    assert re.fullmatch("[a-c]{3}", answer.json["choices"][0]["text"]), answer
    free = {"prompt_embeds": embeds(rows), "temperature": 0, "ignore_eos": True, "max_tokens": 30}
    text = server.post("/v1/completions", free).json["choices"][0]["text"]
    word = text[len(text) // 2:][:4]
    stopped = server.post("/v1/completions", {**free, "stop": word}).json["choices"][0]
    assert stopped["text"] == text[:text.index(word)] and stopped["finish_reason"] == "stop"


def test_embeddings_come_before_prompts(start):
    """As in vLLM: those of `prompt_embeds`, then those of `prompt`."""
    server = start(MODEL, *IDS)
    ids, rows = ids_of(2, 5), [embeds(drawn(1, 4)), embeds(drawn(2, 6))]
    right = [ask(server, rows[0]), ask(server, rows[1]), ask_ids(server, ids)]
    answer = post(server, rows, prompt=ids)
    assert answer.status == 200, answer
    assert [parts(choice) for choice in answer.json["choices"]] == right
    assert answer.json["usage"]["prompt_tokens"] == 15
    told = [choice["prompt_token_ids"] for choice in answer.json["choices"]]
    assert told == [None, None, ids]
    for nothing in ("", [], None):
        assert ask(server, rows[0], prompt=nothing) == right[0]


def test_preempted_prompts_have_their_rows_again(start):
    all_rows = [embeds(drawn(seed, 9)) for seed in range(6)]
    calm = start(MODEL, *IDS, "--block-size", 4)
    right = [ask(calm, rows, max_tokens=24) for rows in all_rows]
    tight = start(MODEL, *IDS, "--block-size", 4, "--num-blocks", 18, "--max-model-len", 48,
                  "--max-num-seqs", 6)
    made = post(tight, all_rows, max_tokens=24)
    assert made.status == 200, made
    assert [parts(choice) for choice in made.json["choices"]] == right
    assert tight.metric("inferd_preemptions_total") > 0


def test_a_stream_and_a_client_that_leaves(start):
    server = start(MODEL, *IDS)
    rows = embeds(drawn(1, 40))
    right = ask(server, rows)[0]
    body = {"prompt_embeds": rows, "max_tokens": STEPS, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}
    stream = Stream(server, body)
    ids = []
    for chunk in stream.chunks():
        for choice in chunk["choices"]:
            ids += choice.get("token_ids") or []
    assert ids == right
    for _ in range(4):
        Stream(server, {**body, "max_tokens": 100}).close()
    assert ask(server, rows)[0] == right


def test_openai_client(start):
    """As docs/prompt-embeds.md has it."""
    server = start(MODEL, *IDS)
    rows = embeds(drawn(1, 7))
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="-") as client:
        for prompt in (None, ""):
            made = client.completions.create(
                model=MODEL.name, prompt=prompt, max_tokens=STEPS, temperature=0,
                extra_body={"prompt_embeds": rows, "return_token_ids": True, "ignore_eos": True})
            assert made.choices[0].token_ids == ask(server, rows)[0]
            assert made.usage.prompt_tokens == 7


def test_the_context_is_the_limit(start):
    server = start(MODEL, *IDS, "--max-model-len", 32)
    for tokens, fits in ((30, True), (31, True), (32, False), (33, False)):
        answer = post(server, embeds(drawn(1, tokens)), max_tokens=1)
        assert (answer.status == 200) == fits, (tokens, answer)
        if not fits:
            assert answer.error["code"] == "context_length_exceeded"
            assert answer.error["param"] == "prompt_embeds"
            assert "32 tokens" in answer.error["message"]
    answer = post(server, [embeds(drawn(1, 2)), embeds(drawn(1, 33))], max_tokens=1)
    assert answer.error["param"] == "prompt_embeds[1]"


def numpy_file(rows):
    out = io.BytesIO()
    np.save(out, rows)
    return out.getvalue()


ROWS = drawn(1, 3)
RIGHT = file_of(ROWS)
WRONG = [
    ("no base64", "***", "no base64"),
    ("cut base64", text_of(RIGHT)[:-3], "no base64"),
    ("line breaks", text_of(RIGHT)[:76] + "\n" + text_of(RIGHT)[76:], "no base64"),
    ("nothing", "", "non-empty"),
    ("short", text_of(b"\x01"), "too short"),
    ("seven bytes", text_of(RIGHT[:7]), "too short"),
    ("header alone", text_of(RIGHT[:8]), "cut off"),
    ("cut numbers", text_of(RIGHT[:-1]), "bytes of numbers"),
    ("one byte more", text_of(RIGHT + b"\0"), "bytes of numbers"),
    ("torch, a dictionary", text_of(zip_of(b"\x80\x02}q\x00.", b"")), "no other program"),
    ("torch, a call", text_of(zip_of(b"\x80\x02cposix\nsystem\nq\x00X\2\0\0\0idq\x01\x85R.", b"")),
     "no other program"),
    ("torch, behind its end", text_of(zip_of(program_of((3, HIDDEN), (HIDDEN, 1)) + b".",
                                             ROWS.tobytes())), "no other program"),
    ("torch, doubles", text_of(torch_of(ROWS.astype("<f8"), kind="DoubleStorage")), "float32"),
    ("torch, turned", text_of(torch_of(ROWS, stride=(1, 3))), "contiguous"),
    ("torch, repeated", text_of(torch_of(ROWS, stride=(0, 1))), "contiguous"),
    ("torch, one dimension", text_of(torch_of(ROWS[0])), "two dimensions"),
    ("torch, two matrices", text_of(torch_of(np.stack([ROWS, ROWS]))), "several matrices"),
    ("torch, too large", text_of(torch_of(ROWS, shape=(4, HIDDEN))), "damaged"),
    ("torch, too far", text_of(torch_of(ROWS, offset=1)), "damaged"),
    ("torch, other size", text_of(torch_of(ROWS, elements=3)), "damaged"),
    ("torch, big endian", text_of(zip_of(program_of((3, HIDDEN), (HIDDEN, 1)), ROWS.tobytes(),
                                         b"big")), "little endian"),
    ("torch, packed", text_of(zip_of(program_of((3, HIDDEN), (HIDDEN, 1)), ROWS.tobytes(),
                                     method=zipfile.ZIP_DEFLATED)), "damaged"),
    ("torch, cut", text_of(torch_of(ROWS)[:-1]), "damaged"),
    ("torch, narrow", text_of(torch_of(np.ascontiguousarray(ROWS[:, 1:]))), "values"),
    ("a zip", text_of(zip_of(b"", b"").replace(b"data.pkl", b"data.pkk")), "has not written"),
    ("pickle", text_of(b"\x80\x04\x95"), "pickle"),
    ("numpy", text_of(numpy_file(ROWS)), "numpy.save"),
    ("long header", text_of(struct.pack("<Q", 16385) + b" " * 16385), "at most 16384"),
    ("no JSON", text_of(struct.pack("<Q", 2) + b"{,"), "no JSON"),
    ("a list", text_of(header_of([])), "no object"),
    ("no tensor", text_of(header_of({"__metadata__": {}})), "0 tensors"),
    ("two tensors", text_of(header_of({
        "a": {"dtype": "F32", "shape": [1, HIDDEN], "data_offsets": [0, 4 * HIDDEN]},
        "b": {"dtype": "F32", "shape": [1, HIDDEN], "data_offsets": [4 * HIDDEN, 8 * HIDDEN]},
    }) + bytes(8 * HIDDEN)), "2 tensors"),
    ("F64", text_of(file_of(ROWS.astype("<f8"), dtype="F64")), "F64"),
    ("ids", text_of(file_of(ROWS.view("<i4"), dtype="I32")), "I32"),
    ("no type", text_of(file_of(ROWS, dtype="F32").replace(b'"dtype"', b'"dtypo"')), "dtype"),
    ("one dimension", embeds(ROWS[0]), "1 dimensions"),
    ("four dimensions", embeds(ROWS[None, None]), "4 dimensions"),
    ("two matrices", embeds(np.stack([ROWS, ROWS])), "2 matrices"),
    ("no rows", embeds(ROWS[:0]), "at least 1"),
    ("half a row", text_of(file_of(ROWS, shape=[2.5, HIDDEN])), "at least 1"),
    ("larger than memory", text_of(file_of(ROWS, shape=[1 << 40, 1 << 40])), "than there can be"),
    ("more rows than bytes", text_of(file_of(ROWS, shape=[4, HIDDEN])), "bytes of numbers"),
    ("other place", text_of(file_of(ROWS, data_offsets=[4, 4 + ROWS.nbytes])), "bytes of numbers"),
    ("negative place", text_of(file_of(ROWS, data_offsets=[-4, ROWS.nbytes])), "bytes of numbers"),
    ("narrow", embeds(ROWS[:, :-1]), f"have {HIDDEN - 1} values"),
    ("wide", embeds(np.pad(ROWS, ((0, 0), (0, 1)))), f"have {HIDDEN + 1} values"),
    *[(f"{value} at {row}, {column}", embeds(np.where(
        (np.arange(3)[:, None] == row) & (np.arange(HIDDEN) == column), value, ROWS)),
        f"value {column} of row {row} is not finite")
      for value, row, column in ((np.nan, 0, 0), (np.inf, 1, 5), (-np.inf, 2, HIDDEN - 1))],
    ("f16 infinity", text_of(file_of(np.full((1, HIDDEN), np.inf, "<f2"))), "not finite"),
]


@pytest.fixture(scope="module")
def one(inferd):
    server = Server(inferd, MODEL, *IDS, "--num-blocks", 2050)
    yield server
    server.stop()


@pytest.mark.parametrize("text, words", [case[1:] for case in WRONG],
                         ids=[case[0].replace(" ", "-") for case in WRONG])
def test_wrong_files_are_refused_by_name(one, text, words):
    answer = post(one, text)
    assert answer.status == 400, answer
    assert answer.error["param"] == "prompt_embeds"
    assert words in answer.error["message"], answer
    answer = post(one, [text_of(RIGHT), text])
    assert answer.status == 400, answer
    assert answer.error["param"] == "prompt_embeds[1]"


@pytest.mark.parametrize("field, value", [
    ("echo", True), ("prompt_logprobs", 0), ("suffix", "x"), ("truncate_prompt_tokens", 2)])
def test_what_needs_tokens_is_refused(one, field, value):
    answer = post(one, text_of(RIGHT), **{field: value})
    assert (answer.status, answer.error["param"]) == (400, field), answer
    assert answer.error["code"] == "unsupported_parameter"


def test_other_shapes_of_the_field(one):
    assert post(one, 3).error["param"] == "prompt_embeds"
    assert post(one, [text_of(RIGHT), 3]).error["param"] == "prompt_embeds[1]"
    assert post(one, []).error["code"] == "missing_required_parameter"
    assert post(one, [text_of(RIGHT)] * 129).status == 400
    assert post(one, [text_of(RIGHT)] * 127, prompt=[[3], [4]], max_tokens=1).status == 400
    many = post(one, [text_of(RIGHT)] * 127, prompt=[[3]], max_tokens=1, logprobs=None)
    assert len(many.json["choices"]) == 128
    render = one.post("/v1/completions/render", {"prompt_embeds": text_of(RIGHT)})
    assert render.error["param"] == "prompt_embeds"
    chat = one.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "a"}], "prompt_embeds": text_of(RIGHT)})
    assert (chat.status, chat.error["param"]) == (400, "prompt_embeds")


def test_off_unless_the_option_is_given(start):
    answer = post(start(MODEL, "--skip-tokenizer-init"), text_of(RIGHT))
    assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter"), answer
    assert "--enable-prompt-embeds" in answer.error["message"]


@pytest.mark.parametrize("model, flags, words", [
    ("embeddings/qwen2-mean", ("--load-format", "dummy"), "vectors"), ("crossed/t5", (), "encoder"),
    ("models/files-llama-own-head", ("--skip-tokenizer-init", "--task", "embed"), "vectors"),
    ("models/gemma4-e", ("--skip-tokenizer-init", "--load-format", "dummy"), "every layer")])
def test_models_that_take_none_say_why(inferd, model, flags, words):
    made = run(inferd, "check", ROOT / "tests/vectors" / model, ON, *flags)
    assert made.returncode != 0
    assert "enable_prompt_embeds" in made.stdout and words in made.stdout, made.stdout


@pytest.mark.parametrize("name", ["gemma3", "granite", "gpt2", "decoder-cohere",
                                  "files-qwen2-5-vl"])
def test_families_with_what_stands_before_their_layers(start, name):
    """Learned positions, scales, M-RoPE; parity_rows.py has their numbers."""
    model = ROOT / "tests/vectors/models" / name
    config = json.loads((model / "config.json").read_text())
    text = config.get("text_config", config)
    width = text.get("hidden_size") or text["n_embd"]
    dummy = () if (model / "model.safetensors").exists() else ("--load-format", "dummy")
    server = start(model, *IDS, *dummy)
    rows = np.random.default_rng(1).normal(0, 0.5, (2, 9, width)).astype("<f4")
    one, two = ask(server, embeds(rows[0])), ask(server, embeds(rows[1]))
    assert one != two and ask(server, embeds(rows[0])) == one
