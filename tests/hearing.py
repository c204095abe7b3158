"""Tiny random Whisper models, made without torch: a directory as transformers saves it. The
weights are drawn from a seed. Sounds are drawn, too.

The tokenizer has a token for each byte, and the special ones of Whisper with three languages."""

import json
import math
import random
import struct
from pathlib import Path

import seeing

LANGUAGES = ("en", "de", "fr")
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES),
           "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>",
           "<|notimestamps|>"]
IDS = {name: 256 + i for i, name in enumerate(SPECIAL)}
FIRST_STAMP = 256 + len(SPECIAL)
VOCABULARY = FIRST_STAMP + 1501
RATE = 16000


def config_of(**changes):
    return {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper",
            "dtype": "float32", "vocab_size": VOCABULARY, "num_mel_bins": 80, "d_model": 64,
            "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 96,
            "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96,
            "max_source_positions": 1500, "max_target_positions": 448,
            "activation_function": "gelu", "scale_embedding": False,
            "bos_token_id": 256, "eos_token_id": 256, "pad_token_id": 256,
            "decoder_start_token_id": IDS["<|startoftranscript|>"], "is_encoder_decoder": True,
            "begin_suppress_tokens": [32, 256], **changes}


def generation_of(english=False):
    made = {"bos_token_id": 256, "eos_token_id": 256, "pad_token_id": 256,
            "decoder_start_token_id": IDS["<|startoftranscript|>"],
            "begin_suppress_tokens": [32, 256], "max_length": 448,
            "max_initial_timestamp_index": 50, "no_timestamps_token_id": IDS["<|notimestamps|>"],
            "prev_sot_token_id": IDS["<|startofprev|>"], "return_timestamps": False,
            "suppress_tokens": [33, 35, *range(257, IDS["<|notimestamps|>"])],
            "is_multilingual": not english}
    if not english:
        made["lang_to_id"] = {f"<|{code}|>": IDS[f"<|{code}|>"] for code in LANGUAGES}
        made["task_to_id"] = {task: IDS[f"<|{task}|>"] for task in ("transcribe", "translate")}
    return made


def write_tokenizer(directory):
    letters = seeing.byte_letters()
    names = SPECIAL + [f"<|{i / 50:.2f}|>" for i in range(1501)]
    added = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": i < len(SPECIAL)}
             for i, name in enumerate(names)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}}))
    (directory / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "WhisperTokenizer", "bos_token": "<|endoftext|>",
        "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}))


def attention(at, width):
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        yield f"{at}.{name}.weight", (width, width)
        if name != "k_proj":
            yield f"{at}.{name}.bias", (width,)


def norm(at, width):
    yield f"{at}.weight", (width,)
    yield f"{at}.bias", (width,)


def stack(side, config):
    width, inner = config["d_model"], config[f"{side}_ffn_dim"]
    at = f"model.{side}"
    for i in range(config[f"{side}_layers"]):
        layer = f"{at}.layers.{i}"
        yield from attention(f"{layer}.self_attn", width)
        yield from norm(f"{layer}.self_attn_layer_norm", width)
        if side == "decoder":
            yield from attention(f"{layer}.encoder_attn", width)
            yield from norm(f"{layer}.encoder_attn_layer_norm", width)
        yield f"{layer}.fc1.weight", (inner, width)
        yield f"{layer}.fc1.bias", (inner,)
        yield f"{layer}.fc2.weight", (width, inner)
        yield f"{layer}.fc2.bias", (width,)
        yield from norm(f"{layer}.final_layer_norm", width)
    yield from norm(f"{at}.layer_norm", width)


def tensors(config):
    width = config["d_model"]
    yield "model.encoder.conv1.weight", (width, config["num_mel_bins"], 3)
    yield "model.encoder.conv1.bias", (width,)
    yield "model.encoder.conv2.weight", (width, width, 3)
    yield "model.encoder.conv2.bias", (width,)
    yield "model.encoder.embed_positions.weight", (config["max_source_positions"], width)
    yield from stack("encoder", config)
    yield "model.decoder.embed_tokens.weight", (config["vocab_size"], width)
    yield "model.decoder.embed_positions.weight", (config["max_target_positions"], width)
    yield from stack("decoder", config)


def quieten_stamps(path, width):
    """Gives stamps logits of 0, below those of the likeliest text."""
    data = bytearray(path.read_bytes())
    head = 8 + struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:head])["model.decoder.embed_tokens.weight"]["data_offsets"]
    first = head + begin + FIRST_STAMP * width * 4
    data[first:head + end] = bytes(head + end - first)
    path.write_bytes(data)


def heads_of(config):
    """Every second head of the decoder, as if their attention followed the sound."""
    return [[layer, head] for layer in range(config["decoder_layers"])
            for head in range(0, config["decoder_attention_heads"], 2)]


def make(directory, seed=1, english=False, talks=False, heads=None, **changes):
    """A model; `changes` are of config.json. `talks`: it draws text where it may draw stamps.
    `heads`: its alignment_heads; [] = its files name none."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = config_of(**changes)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    generation = generation_of(english)
    heads = heads_of(config) if heads is None else heads
    if heads:
        generation["alignment_heads"] = heads
    (directory / "generation_config.json").write_text(json.dumps(generation))
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "feature_extractor_type": "WhisperFeatureExtractor", "feature_size":
        config["num_mel_bins"], "sampling_rate": RATE, "hop_length": 160, "n_fft": 400,
        "chunk_length": 30, "n_samples": 480000, "nb_max_frames": 3000, "padding_value": 0.0}))
    write_tokenizer(directory)
    seeing.write_weights(directory / "model.safetensors", tensors(config), seed)
    if talks:
        quieten_stamps(directory / "model.safetensors", config["d_model"])
    return directory


# ---- sounds ----

def samples(seconds, seed=0, rate=RATE):
    """Whole numbers of 16 bits: some tones that come and go over noise."""
    rng = random.Random(f"{seconds} {seed}")
    tones = [(rng.uniform(80, 3000), rng.uniform(0.2, 3)) for _ in range(4)]
    out = []
    for i in range(int(seconds * rate)):
        at = i / rate
        value = sum(math.sin(2 * math.pi * hz * at) * (1 + math.sin(at * slow)) for hz, slow in
                    tones) * 1500 + rng.randrange(-600, 600)
        out.append(int(max(-32768, min(32767, value))))
    return out


def wav(seconds, seed=0, rate=RATE, channels=1):
    values = [value for value in samples(seconds, seed, rate) for _ in range(channels)]
    return wav_of(struct.pack(f"<{len(values)}h", *values), rate, channels)


def wav_of(data, rate=RATE, channels=1, bits=16, kind=1):
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", len(data) + 36, b"WAVE", b"fmt ", 16, kind,
                       channels, rate, rate * channels * bits // 8, channels * bits // 8, bits,
                       b"data", len(data))
    return head + data
