"""Odd and broken checkpoints, adapters and hosts, drawn from public reports.

A case: its kind, its name, the report in own words, how it is made of the base of disk_base.py, the
exit status (0: it is served) and words of the sentence. The report is of any program: what matters
is what the person had on the disk."""

import json
import struct
from dataclasses import dataclass, field
from typing import Callable

from disk_base import (CONFIG, HIDDEN, LAYERS, REMOVED, TENSORS, VOCAB, adapter, after, both,
                       config, cut, directory, edited, extra, lacks, linked, moved, pipe, recast,
                       renamed, safetensors, secret, sharded, tensors, whole, without, wrapped,
                       written)

LFS = "version https://git-lfs.github.com/spec"
OK, BAD, MISSING, DENIED, WRONG = 0, 65, 66, 77, 78


@dataclass
class Case:
    kind: str
    name: str
    source: str
    make: Callable
    status: int
    words: list = field(default_factory=list)
    flags: list = field(default_factory=list)
    model: str = "{here}/model"
    host: str = ""


CASES = []


def add(kind, source, *rows, flags=(), **more):
    for name, make, status, *words in rows:
        CASES.append(Case(kind, f"{kind}: {name}", source, make, status, words, list(flags),
                          **more))


EMBED, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
Q = "model.layers.0.self_attn.q_proj.weight"
UP = "model.layers.1.mlp.up_proj.weight"

add("index", "huggingface_hub#4725: the index names mtp.fc.weight, the shard has none",
    ("as it should be", sharded(), OK),
    ("a name of no shard", sharded({"mtp.fc.weight": "b.safetensors"}), OK, "mtp.fc.weight"),
    ("a layer that is cut off", sharded({"model.layers.9.mlp.up_proj.weight": "a.safetensors"}), OK,
     "of the index in no shard"),
    ("a tower that is not there", sharded({"visual.patch.weight": "a.safetensors"}), OK, "visual"),
    ("two names of no shard", sharded({"x": "a.safetensors", "y": "b.safetensors"}), OK,
     "2 tensors are of the index in no shard"),
    ("a name that is empty", sharded({"": "a.safetensors"}), OK, "of the index in no shard"),
    ("the wrong shard", sharded({NORM: "a.safetensors"}), OK, "another shard than the index says"),
    ("a name that it does not have", sharded({NORM: REMOVED}), OK),
    ("a needed tensor is nowhere", both(sharded(), written("b.safetensors", safetensors(
        {NORM: TENSORS[NORM]}))), BAD, "is missing"))
add("overlay", "repaired checkpoints: a further shard replaces a tensor of an older one",
    ("the index names the last", sharded(overlaid=[NORM]), OK, "stored in several shards"),
    ("the index names the first", sharded({NORM: "a.safetensors"}, overlaid=[NORM]), BAD,
     "is stored twice"),
    ("two tensors", sharded(overlaid=[NORM, UP]), OK, "2 tensors are stored in several shards"),
    ("the index does not name it", sharded({NORM: REMOVED}, overlaid=[NORM]), BAD, "stored twice"),
    ("names of two files, first", sharded({NORM: "a.safetensors", UP: "a.safetensors"},
                                          overlaid=[NORM, UP]), BAD, "stored twice"))
add("shards", "downloads that stopped: a shard of the index is not on the disk",
    ("a shard is gone", sharded(second="gone"), MISSING, "b.safetensors"),
    ("a shard of another folder", sharded({NORM: "../b.safetensors"}), BAD, "plain file name"),
    ("an absolute path", sharded({NORM: "/etc/passwd"}), BAD, "plain file name"),
    ("a number as shard", sharded({NORM: 7}), BAD, "plain file name"),
    ("an index without a map", both(sharded(), written("model.safetensors.index.json", "{}")), BAD,
     "has no weight_map"),
    ("an empty map", both(sharded(), written("model.safetensors.index.json",
                                             '{"weight_map": {}}')), BAD, "has no weight_map"),
    ("a list as index", both(sharded(), written("model.safetensors.index.json", "[]")), BAD,
     "must be a JSON object"),
    ("half an index", both(sharded(), cut("model.safetensors.index.json", 50)), BAD,
     "model.safetensors.index.json"),
    ("an index beside one file", written("model.safetensors.index.json", json.dumps(
        {"weight_map": {NORM: "model.safetensors"}})), OK),
    ("a shard cut off", both(sharded(), cut("b.safetensors", -10)), BAD, "truncated"),
    ("a shard that is a pipe", both(sharded(), pipe("b.safetensors")), BAD, "regular file"))
add("file", "vllm and transformers reports of weights that were not downloaded whole",
    ("whole", whole, OK),
    ("a byte too few", cut("model.safetensors", -1), BAD, "truncated"),
    ("a byte too many", after("model.safetensors", b"x"), BAD, "too long"),
    ("only the header", cut("model.safetensors", 3000), BAD, "model.safetensors"),
    ("seven bytes", cut("model.safetensors", 7), BAD, "no header"),
    ("empty", cut("model.safetensors", 0), BAD, "model.safetensors"),
    ("a header of a terabyte", written("model.safetensors", struct.pack("<Q", 1 << 40) + b"{}"),
     BAD, "header length"),
    ("a header of two bytes", written("model.safetensors", struct.pack("<Q", 2) + b"{}"), BAD,
     "is missing"),
    ("a header of no JSON", written("model.safetensors", struct.pack("<Q", 8) + b"{\"a\": 1,"), BAD,
     "model.safetensors"),
    ("a pointer of Git LFS", written("model.safetensors", LFS),
     BAD, "git lfs pull"),
    ("a page of an error", written("model.safetensors", "<!doctype html><html>not found</html>"),
     BAD, "model.safetensors"),
    ("a pipe", pipe("model.safetensors"), BAD, "regular file"),
    ("a folder", directory("model.safetensors"), BAD, "regular file"),
    ("a link into the void", linked("model.safetensors", "../blobs/none"), MISSING,
     "model.safetensors"),
    ("a link to itself", linked("model.safetensors", "model.safetensors"), 74,
     "symbolic links"),
    ("a pickle alone", moved("model/model.safetensors", "model/pytorch_model.bin"), MISSING,
     "pickle files", "inferd convert {here}/model"),
    ("shards of pickles", both(moved("model/model.safetensors", "model/pytorch_model-1.bin"),
                               written("pytorch_model.bin.index.json", "{}")), MISSING,
     "inferd convert {here}/model"),
    ("a pickle of another name", moved("model/model.safetensors", "model/weights.pt"), MISSING,
     "pickle files (weights.pt) are never read"),
    ("Mistral's own name", moved("model/model.safetensors", "model/consolidated.safetensors"),
     MISSING, "consolidated.safetensors"),
    ("Meta's own name", moved("model/model.safetensors", "model/consolidated.00.pth"), MISSING,
     "no model.safetensors"),
    ("metadata of the format", tensors(lambda t: None, {"format": "pt"}), OK),
    ("metadata of numbers", tensors(lambda t: None, {"format": 1}), BAD, "__metadata__"))
add("names", "transformers#11809 and checkpoints saved by other programs: names of tensors",
    ("the norm is missing", lacks(NORM), BAD, NORM, "is missing"),
    ("a projection is missing", lacks(Q), BAD, Q),
    ("the head is missing", lacks(HEAD), BAD, "tie_word_embeddings"),
    ("the embedding is missing", lacks(EMBED), BAD, EMBED),
    ("without model.", renamed("model.", ""), OK),
    ("behind model.language_model.", renamed("model.", "model.language_model."), OK),
    ("behind language_model.model.", renamed("model.", "language_model.model."), OK),
    ("behind base_model.model.", renamed("model.", "base_model.model."), BAD, "is missing"),
    ("behind module.", renamed("model.", "module.model."), BAD, "is missing"),
    ("of torch.compile", renamed("model.", "_orig_mod.model."), BAD, "is missing"),
    ("one that nobody knows", extra("model.banana.weight"), BAD, "unexpected tensor",
     "model.banana.weight"),
    ("seven that nobody knows", both(extra("x0")), BAD, "1 unexpected tensor"),
    ("a tower of images", extra("visual.blocks.0.weight"), OK, "skipped"),
    ("a tower of sound", extra("audio_tower.conv.weight"), OK, "skipped"),
    ("layers that predict", extra("mtp.layers.0.weight"), OK, "skipped"),
    ("a layer behind the last", extra("model.layers.2.mlp.up_proj.weight"), OK, "layers from 2"),
    ("rotary buffers", extra("model.layers.0.self_attn.rotary_emb.inv_freq", (8,), "F32"), OK),
    ("a bias that the family lacks", extra("model.layers.0.self_attn.q_proj.bias", (32,)), BAD,
     "unexpected tensor"))
CHAT = ("InternVLChatModel", "language_model.", "llm_config")
add("wrappers", "vllm#16782 and InternVL on the hub: a text model inside of one that sees",
    ("of the hub", wrapped(*CHAT), OK, "skipped   vision_model.*"),
    ("with a bridge", wrapped(*CHAT, tower="mlp1.0.weight"), OK, "skipped   mlp1.*"),
    ("of remote code", wrapped(*CHAT, auto_map={"AutoModel": "m.InternVLChatModel"}), OK),
    ("keys outside are of the whole", wrapped(*CHAT, hidden_size=7, num_hidden_layers=1), OK),
    ("a text model under another name", wrapped("InternVLChatModel", "language_model.",
                                                "text_config"), BAD, "llm_config", "is missing"),
    ("a list as text model", wrapped(*CHAT, llm_config=[]), BAD, "llm_config", "an object"),
    ("a text model that is not served", wrapped(*CHAT, llm_config={**CONFIG, "model_type": "moss"}),
     BAD, "moss", "InternVLChatModel"),
    ("a thinker", wrapped("Qwen2_5OmniModel", "thinker.", "thinker_config", "text_config",
                          tower="talker.model.norm.weight"), OK, "skipped   talker.*"),
    ("a thinker that is missing", wrapped("Qwen2_5OmniModel", "thinker.", "text_config"), BAD,
     "thinker_config"),
    ("a tower that nobody knows", wrapped(*CHAT, tower="banana.weight"), BAD, "banana.weight"),
    ("of Kimi-VL", wrapped("KimiVLForConditionalGeneration", "language_model.", "text_config",
                           tower="vision_tower.norm.weight"), OK, "vision_tower"),
    ("prompts seen both ways", wrapped("PaliGemmaForConditionalGeneration", "language_model.",
                                       "text_config"), BAD, "both directions"))
add("tensors", "gguf and safetensors reports of wrong types and shapes",
    ("a transposed projection", recast(UP, shape=[HIDDEN, 48]), BAD, UP),
    ("a flat matrix", recast(UP, shape=[48 * HIDDEN]), BAD, UP),
    ("a dimension of one too many", recast(NORM, shape=[1, HIDDEN]), BAD, NORM),
    ("a dimension of zero", recast(NORM, shape=[0], body=b""), BAD, "at least 1"),
    ("float32 among bfloat16", recast(NORM, kind="F32", body=struct.pack("<f", 1) * HIDDEN), OK),
    ("float16 among bfloat16", recast(NORM, kind="F16"), OK),
    ("integers", recast(NORM, kind="I16"), BAD, NORM),
    ("bytes", recast(UP, kind="U8", body=bytes(48 * HIDDEN)), BAD, UP),
    ("8 bits without a configuration", recast(UP, kind="F8_E4M3", body=bytes(48 * HIDDEN)),
     BAD, UP),
    ("a type that nobody knows", recast(NORM, kind="X160"), BAD, "X160"),
    ("codes without a configuration", tensors(lambda t: {
        k.replace("up_proj.weight", "up_proj.qweight"): v for k, v in t.items()}), BAD,
     "quantization_config"))
add("config", "reports of configurations that were edited by hand or cut off",
    ("empty", written("config.json", ""), BAD, "config.json"),
    ("no JSON", written("config.json", "<!doctype html>"), BAD, "config.json"),
    ("a list", written("config.json", "[]"), BAD, "must be a JSON object"),
    ("cut off", cut("config.json", 100), BAD, "config.json"),
    ("a comma too many", written("config.json", '{"model_type": "llama",}'), BAD, "config.json"),
    ("UTF-16", written("config.json", "{}".encode("utf-16")), BAD, "config.json"),
    ("a byte order mark", written("config.json", b"\xef\xbb\xbf" + json.dumps(CONFIG).encode()),
     OK),
    ("NaN", written("config.json", '{"rope_theta": NaN}'), BAD, "config.json"),
    ("a pipe", pipe("config.json"), BAD, "regular file"),
    ("gone", without("config.json"), MISSING, "no config.json"),
    ("no architectures, but a type", config(architectures=REMOVED), OK),
    ("an empty list of architectures", config(architectures=[]), OK),
    ("neither architectures nor a type", config(architectures=REMOVED, model_type=REMOVED), BAD,
     "is not supported"),
    ("an architecture that is none", config(architectures=["BananaForCausalLM"]), BAD, "Banana"),
    ("an architecture of sound", config(architectures=["MoonshineForConditionalGeneration"]), BAD,
     "Moonshine"),
    ("an encoder and decoder", config(architectures=["PLBartForConditionalGeneration"]), BAD,
     "PLBart"),
    ("a recurrent model", config(architectures=["RwkvForCausalLM"]), BAD, "Rwkv"))
add("sizes", "merges and pruned models whose configuration and tensors disagree",
    ("no layers", config(num_hidden_layers=0), BAD, "num_hidden_layers"),
    ("a layer too many", config(num_hidden_layers=LAYERS + 1), BAD, "model.layers.2", "is missing"),
    ("a layer fewer", config(num_hidden_layers=LAYERS - 1), OK, "layers from 1"),
    ("layers below zero", config(num_hidden_layers=-1), BAD, "num_hidden_layers"),
    ("a million layers", config(num_hidden_layers=1000000), BAD, "num_hidden_layers"),
    ("layers as text", config(num_hidden_layers="2"), BAD, "num_hidden_layers"),
    ("layers as a fraction", config(num_hidden_layers=2.5), BAD, "num_hidden_layers"),
    ("another hidden size", config(hidden_size=64), BAD, "hidden_size"),
    ("no hidden size", config(hidden_size=REMOVED), BAD),
    ("a hidden size of zero", config(hidden_size=0), BAD, "hidden_size"),
    ("heads that do not divide", config(num_attention_heads=3), BAD),
    ("more key heads than heads", config(num_key_value_heads=4), BAD, "num_key_value_heads"),
    ("no heads", config(num_attention_heads=0), BAD, "num_attention_heads"),
    ("another head_dim", config(head_dim=32), BAD),
    ("an odd head_dim", config(head_dim=15), BAD, "head_dim"),
    ("no head_dim", config(head_dim=REMOVED), OK),
    ("another vocabulary", config(vocab_size=VOCAB + 64), BAD, "vocab_size"),
    ("a vocabulary of none", config(vocab_size=0), BAD, "vocab_size"),
    ("another width", config(intermediate_size=64), BAD, "intermediate_size"),
    ("no positions", config(max_position_embeddings=0), BAD, "max_position_embeddings"))
add("semantics", "keys that change the numbers and that a loader may overlook",
    ("an activation that is none", config(hidden_act="banana"), BAD, "hidden_act"),
    ("a factor of rotation", config(rope_theta=0), BAD, "rope_theta"),
    ("rotation as text", config(rope_theta="10000"), BAD, "rope_theta"),
    ("a rotation that is none", config(rope_scaling={"rope_type": "banana"}), BAD, "banana"),
    ("linear rotation", config(rope_scaling={"type": "linear", "factor": 2.0}), OK),
    ("two types of rotation", config(rope_scaling={"type": "yarn", "rope_type": "linear",
                                                   "factor": 2.0}), OK, "which is taken: linear"),
    ("rotation of one kind of layers", config(rope_parameters={"full_attention": {
        "rope_theta": 500000.0}}), OK, "taken for all layers"),
    ("rotation of two kinds of layers", config(rope_parameters={
        "full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}}), BAD,
     "one set for all layers"),
    ("sections of images", config(rope_scaling={"type": "mrope", "mrope_section": [4, 2, 2]}), OK),
    ("sections beside a type", config(rope_scaling={"rope_type": "linear", "factor": 2.0,
                                                    "mrope_section": [4, 2, 2]}), OK),
    ("dynamic rotation", config(rope_scaling={"type": "dynamic", "factor": 2.0}), OK),
    ("a factor below one", config(rope_scaling={"type": "linear", "factor": -1.0}), BAD, "factor"),
    ("rotation as a list", config(rope_scaling=[1]), BAD, "rope_scaling"),
    ("an epsilon of zero", config(rms_norm_eps=-1), BAD, "rms_norm_eps"),
    ("biases that are not there", config(attention_bias=True), BAD, "is missing"),
    ("biases of the MLP", config(mlp_bias=True), BAD, "is missing"),
    ("tied, with a head of its own", config(tie_word_embeddings=True), OK),
    ("an end that is not in the vocabulary", config(eos_token_id=999999), OK),
    ("an end of several", config(eos_token_id=[0, 2]), OK),
    ("an end below zero", config(eos_token_id=-1), BAD, "eos_token_id"),
    ("a type of weights that is none", config(torch_dtype="banana"), BAD, "torch_dtype"),
    ("float32 said, bfloat16 stored", config(torch_dtype="float32"), OK),
    ("the new name of the type", config(torch_dtype=REMOVED, dtype="bfloat16"), OK))
add("quantised", "reports of quantised files whose configuration does not fit",
    ("a method that is none", config(quantization_config={"quant_method": "banana"}), BAD,
     "banana"),
    ("no method", config(quantization_config={}), BAD, "quant"),
    ("bitsandbytes", config(quantization_config={"quant_method": "bitsandbytes",
                                                 "load_in_4bit": True}), BAD, "bitsandbytes"),
    ("said, but not stored", config(quantization_config={
        "quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False}), BAD),
    ("bits that are none", config(quantization_config={"quant_method": "gptq", "bits": 17}), BAD,
     "bits"),
    ("a list", config(quantization_config=[]), BAD, "quant_method"))
add("tokenizer", "reports of tokenizers that were saved in part",
    ("gone", without("tokenizer.json"), MISSING, "--skip-tokenizer-init"),
    ("empty", written("tokenizer.json", ""), BAD, "tokenizer.json"),
    ("cut off", cut("tokenizer.json", 5000), BAD, "tokenizer.json"),
    ("a list", written("tokenizer.json", "[]"), BAD, "tokenizer.json"),
    ("without a model", edited("tokenizer.json", model=REMOVED), BAD, "tokenizer.json", "model"),
    ("a model that is none", edited("tokenizer.json", model={"type": "Banana"}), BAD, "Banana"),
    ("an empty vocabulary", edited("tokenizer.json", model={"type": "BPE", "vocab": {},
                                                            "merges": []}), OK),
    ("a normaliser that is none", edited("tokenizer.json", normalizer={"type": "Banana"}), BAD,
     "Banana"),
    ("a splitter that is none", edited("tokenizer.json", pre_tokenizer={"type": "Banana"}), BAD,
     "Banana"),
    ("a decoder that is none", edited("tokenizer.json", decoder={"type": "Banana"}), BAD, "Banana"),
    ("a pattern that does not close", edited("tokenizer.json", pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}),
     BAD, "tokenizer.json"),
    ("a pointer of Git LFS", written("tokenizer.json", LFS),
     BAD, "tokenizer.json"),
    ("a pipe", pipe("tokenizer.json"), BAD, "regular file"),
    ("its configuration is no JSON", written("tokenizer_config.json", "{"), BAD,
     "tokenizer_config.json"),
    ("its configuration is gone", without("tokenizer_config.json"), OK))
add("no tokenizer", "reports of checkpoints of token ids alone",
    ("skipped", without("tokenizer.json"), OK), flags=["--skip-tokenizer-init"])
add("template", "transformers#36588 and reports of templates that do not compile",
    ("in a file", written("chat_template.jinja", "{{ messages[0].content }}"), OK),
    ("one more for tools", written("additional_chat_templates/tool_use.jinja", "T"), OK),
    ("one more of another name", written("additional_chat_templates/rag.jinja", "R"), OK),
    ("the older folder", written("chat_templates/tool_use.jinja", "T"), OK),
    ("one that does not compile", written("chat_template.jinja", "{% for %}"), OK),
    ("an empty one", written("chat_template.jinja", ""), OK),
    ("a list in the configuration", edited("tokenizer_config.json", chat_template=[
        {"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]), OK),
    ("a number in the configuration", edited("tokenizer_config.json", chat_template=7), OK))
add("generation", "reports of generation_config.json that contradicts itself",
    ("sampling", written("generation_config.json", '{"temperature": 0.7, "top_p": 0.9}'), OK),
    ("empty", written("generation_config.json", "{}"), OK),
    ("no JSON", written("generation_config.json", "{"), BAD, "generation_config.json"),
    ("a temperature as text", written("generation_config.json", '{"temperature": "hot"}'), BAD,
     "temperature"),
    ("a temperature below zero", written("generation_config.json", '{"temperature": -1}'), BAD,
     "temperature"),
    ("an end that is not in the vocabulary", written("generation_config.json",
                                                     '{"eos_token_id": 999999}'), OK))
add("place", "llama.cpp and Ollama reports of paths: what the person gave was not the model",
    ("a folder of nothing", whole, MISSING, "No such file"), model="{here}/mode")
add("place", "the weights were given instead of the folder",
    ("the file of the weights", whole, BAD, "give the directory"),
    model="{here}/model/model.safetensors")
add("place", "an address of the hub was given instead of a name",
    ("an address", whole, MISSING, "inferd pull"), model="https://huggingface.co/org/name")
add("place", "a name of the hub that is in no cache",
    ("a name", whole, MISSING, "inferd pull org/no-such"), model="org/no-such")
add("place", "only an adapter was downloaded",
    ("an adapter", adapter(), BAD, "low-rank adapter"), model="{here}/adapter")
add("place", "Ollama keeps models as blobs/sha256-... without a suffix; this one is no GGUF",
    ("a blob of another kind", moved("model/config.json", "blobs/sha256-00ff"), BAD,
     "no GGUF file"), model="{here}/blobs/sha256-00ff")
add("place", "a download of a GGUF file that stopped at once",
    ("a blob of the magic alone", written("sha256-aa", b"GGUF"), BAD, "sha256-aa"),
    model="{here}/model/sha256-aa")
add("place", "a GGUF file of a version that nobody writes any more",
    ("a blob of version 1", written("sha256-bb", b"GGUF" + struct.pack("<IQQ", 1, 0, 0)), BAD,
     "version"), model="{here}/model/sha256-bb")
for kib in (64, 128, 256, 512, 1023):
    add("stack", "containers and batch systems that give a small stack; a crash at the start",
        (f"{kib} KiB", whole, WRONG, f"limited to {kib} KiB (ulimit -s)"), host=f"ulimit -s {kib};")
for kib in (1024, 2048, 8192):
    add("stack", "the same, with room enough", (f"{kib} KiB", whole, OK), host=f"ulimit -s {kib};")
add("stack", "a soft limit that the process may raise", ("soft 64 KiB", whole, OK),
    host="ulimit -S -s 64;")
for files in (5, 8, 9, 10, 12, 14, 64, 127):
    add("open files", "containers and batch systems that give few descriptors; the check said ok",
        (f"{files}", whole, WRONG, f"limited to {files} (ulimit -n)"), host=f"ulimit -n {files};")
for files in (128, 129, 1024):
    add("open files", "the same, with room enough", (f"{files}", whole, OK),
        host=f"ulimit -n {files};")
add("open files", "a soft limit that the process may raise", ("soft 8", whole, OK),
    host="ulimit -S -n 8;")
add("open files", "what takes most descriptors at the start, behind the least limit",
    ("128 with all that listens and keeps", whole, OK), host="ulimit -n 128;",
    flags=["--store", "{here}/store", "--otlp-endpoint", "http://127.0.0.1:9",
           "--kv-events-endpoint", "ipc://{here}/events", "--num-speculative-tokens", "2",
           *(word for i in range(15) for word in ("--listen", f"unix:{{here}}/{i}"))])
HOST = "own variation: a start that ends where the check said ok"
for flags, status, words in (
        ("--tls-cert {here}/none", WRONG, "cannot open {here}/none"),
        ("--tls-cert {here}/model/config.json", WRONG, "certificate"),
        ("--chat-template {here}/none", WRONG, "there is no such file"),
        ("--chat-template {here}/model/config.json", OK, ""),
        ("--chat-template {here}/model/bad.jinja", WRONG, "bad.jinja, line 1"),
        ("--api-key-file {here}/none", WRONG, "cannot open {here}/none"),
        ("--api-key-file {here}/model/bad.jinja", DENIED, "mode 0644"),
        ("--admin-key-file {here}/none", WRONG, "cannot open {here}/none"),
        ("--otlp-endpoint banana", WRONG, "http://HOST:PORT"),
        ("--store {here}/none/store", 74, "No such file"),
        ("--store {here}", 74, "Is a directory"),
        ("--log-file {here}/none/log", WRONG, "No such file"),
        ("--prefix-cache-file {here}/none/file", MISSING, "No such file"),
        ("--uds {here}/none/socket", WRONG, "its directory does not exist"),
        ("--uds {here}/model/config.json", WRONG, "is not a socket"),
        ("--listen banana", WRONG, "HOST:PORT"),
        ("--host 256.1.1.1", WRONG, "cannot resolve 256.1.1.1"),
        ("--host 203.0.113.1", WRONG, "no interface of this machine"),
        ("--host 0.0.0.0", WRONG, "open to other machines"),
        ("--host 0.0.0.0 --api-key-file {here}/model/key", OK, ""),
        ("--take-over", WRONG, "take_over needs hand_over"),
        ("--kv-events-endpoint ipc://{here}/e --data-parallel-size 2", WRONG, "one prefix cache")):
    add("start", HOST, (flags, both(written("bad.jinja", "{% if %}"), secret("key")),
                        status, words), flags=flags.split())
LORA = ["--enable-lora", "--max-lora-rank", "16", "--lora-modules", "a={here}/adapter"]
add("adapter", "reports of adapters that were saved in part or by other programs",
    ("as it should be", adapter(), OK),
    ("no weights", adapter(remove=True), MISSING, "adapter_model.safetensors"),
    ("a pickle", both(adapter(remove=True), written("../adapter/adapter_model.bin", "PK")), MISSING,
     "no adapter_model.safetensors", "inferd convert {here}/adapter"),
    ("a rank of zero", adapter(r=0), BAD, "r"),
    ("a rank as text", adapter(r="4"), BAD, "r"),
    ("another kind", adapter(peft_type="IA3"), BAD, "IA3"),
    ("half a pair", adapter({"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":
                             REMOVED}), BAD, "lora_B"),
    ("a layer that is not there", adapter({
        "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight":
        ("F32", [4, HIDDEN], bytes(16 * HIDDEN))}), BAD, "layers.9"),
    flags=LORA)
CALL = {"alora_invocation_tokens": [3000, 42]}
add("adapter keys", "peft#2609, llamadart#321: a key that its reader does not know is not applied",
    ("as it was", adapter(**CALL), OK),
    ("of one token", adapter(alora_invocation_tokens=[42]), OK),
    ("of no token", adapter(alora_invocation_tokens=[]), BAD, "alora_invocation_tokens"),
    ("of a text", adapter(alora_invocation_tokens="<x>"), BAD, "alora_invocation_tokens"),
    ("of a token below zero", adapter(alora_invocation_tokens=[42, -1]), BAD,
     "alora_invocation_tokens"),
    ("of another task", adapter(**CALL, task_type="SEQ_CLS"), BAD, "task_type"),
    ("beside DoRA", adapter(**CALL, use_dora=True), BAD, "alora_invocation_tokens"),
    ("its older name", adapter(invocation_string="<x>"), BAD, "invocation_string", "no key of"),
    ("one of nobody", adapter(use_banana=True), BAD, "use_banana", "no key of"),
    ("one of nobody, off", adapter(use_banana=False), OK),
    ("in other letters", adapter(use_RSLora=True), BAD, "use_RSLora"),
    ("blocks", adapter(use_bdlora={"nblocks": 2}), BAD, "use_bdlora"),
    ("a router", adapter(arrow_config={"top_k": 1}), BAD, "arrow_config"),
    ("groups", adapter(use_qalora=True), BAD, "use_qalora"),
    ("layers twice", adapter(layer_replication=[[0, 2], [1, 2]]), BAD, "layer_replication"),
    ("matrices without a module", adapter(target_parameters=["experts.up_proj"]), BAD,
     "target_parameters"), flags=LORA)
add("adapter patterns", "axolotl#3673, vllm#10798: ranks and scales of their own for some layers",
    ("as it was", adapter(r=16, rank_pattern={"q_proj": 4}, alpha_pattern={"q_proj": 32}), OK),
    ("ranks alone", adapter(r=1, rank_pattern={"q_proj": 4}), OK),
    ("scales alone", adapter(alpha_pattern={"q_proj": 0.5}), OK),
    ("of a path", adapter(r=2, rank_pattern={"layers.0.self_attn.q_proj": 4}), OK),
    ("an expression", adapter(r=2, rank_pattern={r"layers\.\d\..*": 4}), OK),
    ("of nothing", adapter(rank_pattern={"k_proj": 9}, alpha_pattern={"up_proj": 9}), OK),
    ("another rank than the tensor's", adapter(rank_pattern={"q_proj": 8}), BAD,
     "rank 4, but adapter_config.json gives it 8"),
    ("part of a name", adapter(r=2, rank_pattern={"roj": 4}), BAD, "gives it 2"),
    ("a rank of zero", adapter(rank_pattern={"q_proj": 0}), BAD, "rank_pattern"),
    ("a rank of a half", adapter(rank_pattern={"q_proj": 4.5}), BAD, "rank_pattern"),
    ("a rank as text", adapter(rank_pattern={"q_proj": "4"}), BAD, "rank_pattern"),
    ("a list", adapter(rank_pattern=["q_proj"]), BAD, "rank_pattern"),
    ("a scale as text", adapter(alpha_pattern={"q_proj": "x"}), BAD, "alpha_pattern"),
    ("an expression of another language", adapter(alpha_pattern={"(?R)": 3}), BAD, "(?R)"),
    ("above --max-lora-rank", adapter({
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":
        ("F32", [17, HIDDEN], bytes(4 * 17 * HIDDEN)),
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":
        ("F32", [32, 17], bytes(4 * 32 * 17))}, rank_pattern={"q_proj": 17}), BAD,
     "rank 17, supported: 1..16"), flags=LORA)
