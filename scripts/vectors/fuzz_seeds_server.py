#!/usr/bin/env python3
"""Writes seeds of tests/fuzz/corpus for what the server reads: scripts/vectors/fuzz_seeds_server.py

api/      handler, formats, a body, 0xFF, steps (tests/server/api/fuzz_api.c)
adapter/  adapter_config.json, 0xFF, the header of adapter_model.safetensors
options/  a configuration file; keys/ a key file; answer/ what a server sends to inferd-bench
stops/    stop strings behind their lengths, 0, pairs of bytes that choose tokens
form/     a byte that chooses steps, a form of /v1/audio with the boundary b
ebnf/hostile_*, schema/hostile_*  grammars of tests/hostile/attacks.py, 0xFF, tokens
"""

import json
import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "tests/hostile"))
import attacks  # noqa: E402 pylint: disable=wrong-import-position

OUT = Path(__file__).resolve().parent.parent.parent / "tests/fuzz/corpus"
CHAT, COMPLETION, TOKENIZE, DETOKENIZE, LOAD, UNLOAD = range(6)
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False}


def save(target, name, data):
    (OUT / target).mkdir(parents=True, exist_ok=True)
    (OUT / target / name).write_bytes(data)


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def tool(name, **fields):
    return {"type": "function", "function": {"name": name, **fields}}


def tokens(*texts):
    """Steps: each gives choice 0 the token whose byte chooses this text of fuzz_api.c."""
    return bytes(byte for text in texts for byte in (4, text))


def api(name, handler, body, steps=b"", formats=0):
    save("api", name, bytes([handler, formats]) + compact(body) + b"\xff" + steps)


def apis():
    call = tokens(3, 4, 8, 0, 8, 5, 6)
    tools = [tool("f", parameters=SCHEMA), tool("g", strict=True, parameters=SCHEMA)]
    api("chat", CHAT, {"messages": [USER], "max_tokens": 9}, tokens(0, 1, 10, 15) + b"\1\1")
    api("stream", CHAT, {"messages": [USER], "stream": True, "max_tokens": 9, "n": 2,
                         "logprobs": True, "top_logprobs": 2,
                         "stream_options": {"include_usage": True}}, tokens(0, 11, 8, 9) * 2)
    api("calls", CHAT, {"messages": [USER], "tools": tools, "stream": True}, call + b"\1\1")
    api("required", CHAT, {"messages": [USER], "tools": tools, "tool_choice": "required"}, call)
    api("named", CHAT, {"messages": [USER], "tools": tools, "parallel_tool_calls": False,
                        "tool_choice": {"type": "function", "function": {"name": "g"}}}, call)
    for formats in range(1, 96, 19):
        api(f"formats_{formats}", CHAT, {"messages": [USER], "tools": tools, "max_tokens": 30,
                                         "tool_choice": "auto"}, tokens(7, 0, 12, 13) + call,
            formats)
    api("schema", CHAT, {"messages": [USER], "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}, tokens(4, 5))
    api("prompts", COMPLETION, {"prompt": ["ab", "c"], "max_tokens": 5, "logprobs": 2,
                                "echo": True, "stop": ["x"], "n": 2}, tokens(0, 1) * 4)
    api("ids", COMPLETION, {"prompt": [[1, 2], [3, 4, 5]], "prompt_logprobs": 1, "stream": True,
                            "return_token_ids": True, "logit_bias": {"5": 1.5}}, tokens(0) * 3)
    api("best_of", COMPLETION, {"prompt": "a", "best_of": 4, "n": 2, "max_tokens": 3}, b"\1\1")
    api("beams", COMPLETION, {"prompt": "a", "use_beam_search": True, "n": 2, "max_tokens": 3})
    api("suffix", COMPLETION, {"prompt": "a", "suffix": "b", "bad_words": ["no"]}, tokens(0))
    api("regex", COMPLETION, {"prompt": "a", "regex": "(ab)+c?"}, tokens(0))
    api("gone", COMPLETION, {"prompt": "a", "stream": True}, tokens(0) + bytes([2, 0]))
    api("failed", COMPLETION, {"prompt": "a", "stream": True}, tokens(0) + bytes([3, 0]))
    api("tokenize", TOKENIZE, {"prompt": "a b", "return_token_strs": True})
    api("tokenize_chat", TOKENIZE, {"messages": [USER], "add_generation_prompt": True})
    api("detokenize", DETOKENIZE, {"tokens": [97, 256, 258]})
    api("load", LOAD, {"lora_name": "a", "lora_path": "/x"})
    api("unload", UNLOAD, {"lora_name": "a"})


def header(rank=2, kind="F32", layers=(0,), modules=("self_attn.q_proj",), rows=8, more=None):
    entries, at = {}, 0
    for layer in layers:
        for module in modules:
            for letter, shape in (("A", [rank, 8]), ("B", [rows, rank])):
                end = at + shape[0] * shape[1] * {"F32": 4}.get(kind, 2)
                entries[f"base_model.model.model.layers.{layer}.{module}.lora_{letter}.weight"] = {
                    "dtype": kind, "shape": shape, "data_offsets": [at, end]}
                at = end
    for name, shape in (more or {}).items():
        end = at + math.prod(shape) * {"F32": 4}.get(kind, 2)
        entries[f"base_model.model.{name}"] = {
            "dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    return compact(entries)


def adapters():
    targets = ["q_proj", "gate_proj", "up_proj"]
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none",
              "target_modules": targets}
    plain = compact(config) + b"\xff"
    save("adapter", "q", plain + header())
    save("adapter", "two_layers", plain + header(layers=(0, 1), kind="BF16"))
    save("adapter", "half", compact(config | {"use_rslora": True}) + b"\xff" + header(kind="F16"))
    save("adapter", "mlp", plain + header(modules=("mlp.gate_proj", "mlp.up_proj"), rows=12))
    save("adapter", "infinite", plain + b"\1" + header())
    save("adapter", "rank_0", plain + header(rank=0))
    save("adapter", "dora", compact(config | {"use_dora": True}) + b"\xff" + header())
    tables = {"model.embed_tokens.lora_embedding_A": [2, 12],
              "model.embed_tokens.lora_embedding_B": [8, 2],
              "lm_head.lora_A.weight": [2, 8], "lm_head.lora_B.weight": [12, 2]}
    lengths = {"model.layers.0.self_attn.q_proj.lora_magnitude_vector": [8]}
    save("adapter", "lengths", compact(config | {"use_dora": True}) + b"\xff" +
         header(more=lengths))
    save("adapter", "tables", compact(config | {
        "target_modules": [*targets, "embed_tokens", "lm_head"]}) + b"\xff" + header(more=tables))
    save("adapter", "biases", compact(config | {"lora_bias": True}) + b"\xff" + header(
        more={"model.layers.0.self_attn.q_proj.lora_B.bias": [8]}))
    save("adapter", "whole", compact(config | {
        "modules_to_save": ["lm_head", "embed_tokens"]}) + b"\xff" + header(
            kind="BF16", more={"lm_head.weight": [12, 8], "model.embed_tokens.weight": [12, 8]}))
    save("adapter", "own", plain + header(more={"model.norm.weight": [8]}))
    save("adapter", "no_tensors", plain + b"{}")
    save("adapter", "type", plain + header(kind="I32"))
    save("adapter", "patterns", compact(config | {
        "rank_pattern": {"q_proj|k_proj": 2, "0.mlp.up_proj": 3}, "alpha_pattern": {".*mlp.*": 1.5},
        "exclude_modules": r".*\.1\..*"}) + b"\xff" + header())
    save("adapter", "layers", compact(config | {
        "layers_to_transform": [0], "layers_pattern": ["blocks", "layers"]}) + b"\xff" + header())
    save("adapter", "regex", compact(config | {
        "target_modules": r"(?:.*?)\.[qk]_proj$"}) + b"\xff" + header())
    save("adapter", "unknown", compact(config | {"use_banana": True}) + b"\xff" + header())


def options():
    lines = {"usual": "model = /m\nport = 8001\n# text\nmax_model_len = 32k\n",
             "sizes": "kv_cache_memory = 1.5GiB\nmax_request_memory=64M\ngpu_memory_utilization"
                      " = 80%\n",
             "lists": "served_model_name = a,b\napi_key = x, y\nallowed_origins = [\"*\"]\n",
             "words": "log_level = debug\nfair_share = no\nrequest_timeout = 90s\n",
             "quotes": "model = \"/a b\"\nchat_template = 'x'\n", "unknown": "prot = 1\n",
             "broken": "[section]\n= 3\nport\n", "twice": "port = 1\nport = 2\n"}
    for name, text in lines.items():
        save("options", name, text.encode())


def keys():
    lines = {"all": "sk-1\tteam-a  max_waiting=64 max_tokens_waiting=200000 grammar=off weight=2 "
                    "requests_per_minute=600 tokens_per_minute=90000 # x=1\r\n",
             "plain": "sk-1\nsk-2 b\n", "blank": "\n \t \n# a\n", "unknown": "k l colour=red\n",
             "numbers": "k weight=0\nk weight=-1\nk max_waiting=99999999999999999999\n",
             "two_labels": "k a b\n", "nul": "k\0 a\nk =\nk =1\n"}
    for name, text in lines.items():
        save("keys", name, text.encode())


def answers():
    head, flag = b"HTTP/1.1 200 OK\r\n", b"\1"
    chunk = b'data: {"choices":[{"text":"a"}]}\n\n'
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    stream = chunk * 2 + usage + b"data: [DONE]\n\n"
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (chunk, chunk, usage))
    body = b'{"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}'
    save("answer", "chunks", flag + head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces
         + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    save("answer", "length", b"\0" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    save("answer", "to_end", flag + b"HTTP/1.0 200 OK\r\n\r\n" + stream)
    save("answer", "continue", b"\0HTTP/1.1 100 Continue\r\n\r\n" + head
         + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
    save("answer", "error", b"\0HTTP/1.1 500 No\r\nContent-Length: 24\r\n\r\n"
         b'{"error":{"message":"x"}}')
    save("answer", "bad_length", b"\0" + head + b"Content-Length: x\r\n\r\n")
    save("answer", "bad_chunk", b"\0" + head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")


def stops():
    def listed(*texts):
        return b"".join(bytes([len(text)]) + text for text in texts) + b"\0"
    ids = bytes(range(60, 120))
    save("stops", "none", b"\0" + ids)
    save("stops", "letters", listed(b"a", b"bc") + ids)
    save("stops", "prefixes", listed(b"aaab", b"aab", b"ab") + ids)
    save("stops", "utf8", listed("é".encode(), "\ufffd".encode()) + ids)
    save("stops", "bad", listed(b"\xc3") + ids)
    save("stops", "sixteen", listed(*(bytes([65 + i]) * 3 for i in range(16))) + ids)


def part(name, value, file=None):
    more = f'; filename="{file}"\r\nContent-Type: audio/wav' if file else ""
    return (f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value
            + b"\r\n")


def forms():
    """What SDKs send, with small files of corpus/sound in them; and what is refused."""
    sounds, end = OUT / "sound", b"--b--\r\n"
    model = part("model", b"ear")
    for path in sorted(sounds.iterdir()):
        file = path.read_bytes()
        if len(file) < 2800:
            save("form", path.name, b"\x40" + model + part("file", file, f"{path.name}.wav") + end)
    wav = part("file", (sounds / "header-alone").read_bytes(), "a.wav")
    fields = (part("language", b"en") + part("prompt", "Umlaut \u00e4".encode())
              + part("temperature", b"0.2") + part("stream", b"true")
              + part("response_format", b"verbose_json")
              + part("timestamp_granularities[]", b"word")
              + part("timestamp_granularities[]", b"segment"))
    save("form", "fields", b"\x05" + wav + fields + model + end)
    save("form", "empty", b"\0" + end)
    save("form", "twice", b"\0" + model + model + end)
    save("form", "open", b"\0" + model + wav)
    save("form", "behind", b"\0" + model + end + b"more")
    save("form", "model-file", b"\0" + part("model", b"ear", "ear.txt") + end)
    save("form", "long-name", b"\xff" + part("model", b"x" * 257) + end)
    save("form", "escaped", b"\1" + part('m\\"odel', b"\r\n--\r\n--a") + end)
    save("form", "headers", b"\1--b\r\nContent-Type: a/b\r\n" + model[5:] + end)


def hostile():
    steps = b"\xff" + b"abcdef"
    save("ebnf", "hostile_chain", attacks.chain(120, "q").encode() + steps)
    save("ebnf", "hostile_side_by_side", attacks.side_by_side(12, "q").encode() + steps)
    schema = attacks.union(8)["json_schema"]["schema"]
    save("schema", "hostile_union", compact(schema) + b'\xff{"u"')


if __name__ == "__main__":
    for write in (apis, adapters, options, keys, answers, stops, forms, hostile):
        write()
