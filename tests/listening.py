"""Tiny random models that hear beside text (Qwen2-Audio, Voxtral), made without torch: a directory
as transformers saves it. The weights are drawn from a seed; hearing.py draws the sounds.

The tokenizer has a token for each byte, and the special ones of the family."""

import base64
import json
import struct
from pathlib import Path

import hearing
import seeing

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_bos|>", "<|audio_eos|>",
           "<|AUDIO|>"]
PAD = 256 + SPECIAL.index("<|AUDIO|>")
KINDS = {"qwen2_audio": SPECIAL,  # their last one stands for a sound
         "voxtral": ["<s>", "[INST]", "</s>", "[/INST]", "[BEGIN_AUDIO]", "[AUDIO]"]}
VOCABULARY = 272
# That of Qwen2AudioProcessor, which numbers the sounds.
TEMPLATE = """{% set audio_count = namespace(value=0) -%}
{%- for message in messages -%}
{%- if loop.first and message['role'] != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}<|im_end|>
{% else -%}
{%- for content in message['content'] -%}
{%- if 'audio' in content or 'audio_url' in content or content['type'] == 'audio' -%}
{%- set audio_count.value = audio_count.value + 1 -%}
Audio {{ audio_count.value }}: <|audio_bos|><|AUDIO|><|audio_eos|>
{% elif 'text' in content %}{{ content['text'] }}{% endif -%}
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""

VOXTRAL = Path(__file__).resolve().parents[1] / "docs/examples/voxtral.jinja"


def config_of(kind="qwen2_audio", text=(), encoder=()):
    made = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 48,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 4096, "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
            "hidden_act": "silu", "bos_token_id": 256, "eos_token_id": 258, "model_type": "qwen2",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    if kind == "voxtral":
        made.update(model_type="llama", head_dim=16)
    made.update(text)
    tower = {"model_type": "qwen2_audio_encoder", "num_mel_bins": 128, "d_model": 48,
             "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 80,
             "max_source_positions": 1500, "activation_function": "gelu", **dict(encoder)}
    if kind == "voxtral":  # its own names; four positions side by side are as wide as the MLP
        tower = {"model_type": "voxtral_encoder", "num_mel_bins": tower["num_mel_bins"],
                 "hidden_size": tower["d_model"], "intermediate_size": 4 * tower["d_model"],
                 "num_hidden_layers": tower["encoder_layers"],
                 "num_attention_heads": tower["encoder_attention_heads"],
                 "max_source_positions": 1500, "activation_function": "gelu"}
        return {"architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral",
                "audio_token_id": PAD, "dtype": "float32", "projector_hidden_act": "gelu",
                "tie_word_embeddings": False, "text_config": made, "audio_config": tower}
    return {"architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio",
            "audio_token_index": PAD, "dtype": "float32",
            "tie_word_embeddings": made["tie_word_embeddings"], "text_config": made,
            "audio_config": tower}


def write_tokenizer(directory, kind):
    template = VOXTRAL.read_text() if kind == "voxtral" else TEMPLATE
    letters = seeing.byte_letters()
    added = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, name in enumerate(KINDS[kind])]
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
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": KINDS[kind][0],
        "eos_token": KINDS[kind][2], "pad_token": KINDS[kind][0], "chat_template": template}))
    (directory / "chat_template.jinja").write_text(template)


def tower_tensors(kind, tower, out):
    at = "model.audio_tower"
    names = (("d_model", "encoder_ffn_dim", "encoder_layers") if kind == "qwen2_audio" else
             ("hidden_size", "intermediate_size", "num_hidden_layers"))
    width, inner, layers = (tower[name] for name in names)
    yield f"{at}.conv1.weight", (width, tower["num_mel_bins"], 3)
    yield f"{at}.conv1.bias", (width,)
    yield f"{at}.conv2.weight", (width, width, 3)
    yield f"{at}.conv2.bias", (width,)
    yield f"{at}.embed_positions.weight", (tower["max_source_positions"], width)
    for i in range(layers):
        layer = f"{at}.layers.{i}"
        yield from hearing.attention(f"{layer}.self_attn", width)
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            yield from hearing.norm(f"{layer}.{name}", width)
        yield from seeing.with_bias([(f"{layer}.fc1.weight", (inner, width)),
                                     (f"{layer}.fc2.weight", (width, inner))])
    yield from hearing.norm(f"{at}.layer_norm", width)
    if kind == "voxtral":
        yield "model.multi_modal_projector.linear_1.weight", (out, inner)
        yield "model.multi_modal_projector.linear_2.weight", (out, out)
        return
    yield from seeing.with_bias([("model.multi_modal_projector.linear.weight", (out, width))])


def text_tensors(kind, text):
    for name, shape in seeing.text_tensors("qwen2_5_vl", text):
        if kind == "voxtral" and name.endswith("bias"):
            continue
        yield name.replace("model.", "model.language_model.", 1), shape


def quieten(path, width):
    """Gives the id of a sound a logit of 0, below the likeliest: drawn, it would be none."""
    data = bytearray(path.read_bytes())
    head = 8 + struct.unpack("<Q", data[:8])[0]
    begin = json.loads(data[8:head])["lm_head.weight"]["data_offsets"][0] + PAD * width * 4
    data[head + begin:head + begin + width * 4] = bytes(width * 4)
    path.write_bytes(data)


def make(directory, seed=1, text=(), encoder=(), kind="qwen2_audio"):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = config_of(kind, text, encoder)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 30,
        "feature_size": config["audio_config"]["num_mel_bins"], "hop_length": 160,
        "n_fft": 400, "n_samples": 480000, "nb_max_frames": 3000, "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True, "sampling_rate": 16000}))
    write_tokenizer(directory, kind)
    seeing.write_weights(directory / "model.safetensors", [
        *text_tensors(kind, config["text_config"]),
        *tower_tensors(kind, config["audio_config"], config["text_config"]["hidden_size"])], seed)
    quieten(directory / "model.safetensors", config["text_config"]["hidden_size"])
    return directory


def part(file, kind="wav"):
    """A part of a message, as OpenAI has it."""
    return {"type": "input_audio", "input_audio": {
        "data": base64.b64encode(file).decode(), "format": kind}}


def url(file, kind="wav"):
    return f"data:audio/{kind};base64,{base64.b64encode(file).decode()}"
