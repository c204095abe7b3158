"""Tiny random models that hear beside text (Qwen2-Audio, Audio Flamingo 3, Voxtral, GLM-ASR,
Qwen3-ASR, the part of Qwen3-Omni that hears and writes), made without torch: a directory as
transformers saves it. The weights are drawn from a seed; hearing.py draws the sounds.

The tokenizer has a token for each byte, and the special ones of the family."""

import base64
import json
import shutil
import struct
from pathlib import Path

import hearing
import seeing

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_bos|>", "<|audio_eos|>",
           "<|AUDIO|>"]
PAD = 256 + SPECIAL.index("<|AUDIO|>")
MESSAGES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
KINDS = {"qwen2_audio": SPECIAL,  # their last one stands for a sound
         "voxtral": ["<s>", "[INST]", "</s>", "[/INST]", "[BEGIN_AUDIO]", "[AUDIO]"],
         "audioflamingo3": [*MESSAGES, "<one>", "<two>", "<sound>"],
         "glmasr": ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|begin_of_audio|>",
                    "<|end_of_audio|>", "<|pad|>"],
         "qwen3_asr": [*MESSAGES, "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>"],
         "qwen3_omni_moe_thinker": [*MESSAGES, "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>"]}
CHUNKED = ("qwen3_asr", "qwen3_omni_moe_thinker")
TAG, TAG_ID = "<asr_text>", 262  # of Qwen3-ASR, between the language and the text
TEXT = {"voxtral": "llama", "glmasr": "llama", "qwen3_asr": "qwen3",
        "qwen3_omni_moe_thinker": "qwen3_omni_moe_text"}  # else qwen2
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

# Of the others, with what stands in it in capitals: their own take one sound, and no history.
PLAIN = """{%- for message in messages -%}
BEGIN{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else -%}
{%- for content in message['content'] -%}
{%- if content['type'] in ('audio', 'audio_url', 'input_audio') -%}
SOUND
{%- elif 'text' in content %}{{ content['text'] }}{% endif -%}
{%- endfor -%}
{%- endif -%}
END
{% endfor -%}
{%- if add_generation_prompt %}BEGINassistant
{% endif -%}
"""

VOXTRAL = Path(__file__).resolve().parents[1] / "docs/examples/voxtral.jinja"


def tower_of(kind, encoder, out):
    """audio_config: the names of the family, in which Whisper's stand for others."""
    name = "qwen3_omni_moe_audio" if kind == "qwen3_omni_moe_thinker" else kind
    tower = {"model_type": f"{name}_encoder", "num_mel_bins": 128, "d_model": 48,
             "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 80,
             "max_source_positions": 1500, "activation_function": "gelu", **dict(encoder)}
    if kind == "qwen2_audio":
        return tower
    if kind in CHUNKED:
        del tower["max_source_positions"]
        return {**tower, "output_dim": out, "downsample_hidden_size": 7}
    names = {"d_model": "hidden_size", "encoder_layers": "num_hidden_layers",
             "encoder_attention_heads": "num_attention_heads",
             "encoder_ffn_dim": "intermediate_size"}
    tower = {names.get(key, key): value for key, value in tower.items()}
    if kind != "audioflamingo3":  # four positions side by side are as wide as the MLP
        tower["intermediate_size"] = 4 * tower["hidden_size"]
    if kind == "glmasr":
        tower["hidden_act"] = tower.pop("activation_function")
        tower["max_position_embeddings"] = tower.pop("max_source_positions")
        tower["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0,
                                    "partial_rotary_factor": 0.5}
    return tower


def config_of(kind="qwen2_audio", text=(), encoder=()):
    made = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 48,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 4096, "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
            "hidden_act": "silu", "bos_token_id": 256, "eos_token_id": 258,
            "model_type": TEXT.get(kind, "qwen2"),
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    if kind in TEXT:
        made["head_dim"] = 16
    others = {}
    if kind == "qwen3_omni_moe_thinker":  # no layer has experts, and nothing sees
        made.update(mlp_only_layers=list(range(made["num_hidden_layers"])), num_experts=4,
                    num_experts_per_tok=2)
        others = {"audio_start_token_id": 259, "vision_start_token_id": 262, "vision_config": {
            "depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16,
            "out_hidden_size": made["hidden_size"], "deepstack_visual_indexes": [0]}}
    made.update(text)
    name = {"qwen2_audio": "Qwen2Audio", "voxtral": "Voxtral", "audioflamingo3": "AudioFlamingo3",
            "glmasr": "GlmAsr", "qwen3_asr": "Qwen3ASR",
            "qwen3_omni_moe_thinker": "Qwen3OmniMoeThinker"}[kind]
    index = "audio_token_index" if kind == "qwen2_audio" else "audio_token_id"
    if kind not in ("qwen2_audio", *CHUNKED):
        others["projector_hidden_act"] = "gelu"
    return {"architectures": [f"{name}ForConditionalGeneration"], "model_type": kind, index: PAD,
            "dtype": "float32", **others, "tie_word_embeddings": made["tie_word_embeddings"],
            "text_config": made, "audio_config": tower_of(kind, encoder, made["hidden_size"])}


def template_of(kind):
    if kind == "qwen2_audio":
        return TEMPLATE
    if kind == "voxtral":
        return VOXTRAL.read_text()
    marks = KINDS[kind]
    sound = marks[5] if kind == "audioflamingo3" else marks[3] + marks[5] + marks[4]
    if kind != "glmasr":
        return PLAIN.replace("BEGIN", marks[1]).replace("SOUND", sound).replace("END", marks[2])
    made = PLAIN.replace("BEGIN{{ message['role'] }}", "{% if message['role'] == 'assistant' %}"
                         "<|assistant|>{% else %}<|user|>{% endif %}\n")
    return made.replace("BEGINassistant", marks[2]).replace("SOUND", sound).replace("END\n", "\n")


def write_tokenizer(directory, kind):
    template = template_of(kind)
    letters = seeing.byte_letters()
    added = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, name in enumerate(KINDS[kind])]
    if kind == "qwen3_asr":
        added.append({**added[0], "id": TAG_ID, "content": TAG, "special": False})
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


def layer_tensors(at, width, inner):
    yield from hearing.attention(f"{at}.self_attn", width)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        yield from hearing.norm(f"{at}.{name}", width)
    yield from seeing.with_bias([(f"{at}.fc1.weight", (inner, width)),
                                 (f"{at}.fc2.weight", (width, inner))])


def turned_tensors(at, width, inner):
    """A layer of GLM-ASR."""
    for name, shape in layer_tensors(at, width, inner):
        for old, new in ((".out_proj", ".o_proj"), (".fc", ".mlp.fc"),
                         (".self_attn_layer_norm", ".input_layernorm"),
                         (".final_layer_norm", ".post_attention_layernorm")):
            name = name.replace(old, new)
        yield name, shape


def projector_tensors(shapes, biased=True):
    made = [(f"model.multi_modal_projector.linear_{i + 1}.weight", shape)
            for i, shape in enumerate(shapes)]
    return seeing.with_bias(made) if biased else made


def chunk_tensors(kind, tower, out):
    at = "model.audio_tower" if kind == "qwen3_asr" else "audio_tower"
    channels, width = tower["downsample_hidden_size"], tower["d_model"]
    for i in range(3):
        yield f"{at}.conv2d{i + 1}.weight", (channels, channels if i else 1, 3, 3)
        yield f"{at}.conv2d{i + 1}.bias", (channels,)
    yield f"{at}.conv_out.weight", (width, channels * -(-tower["num_mel_bins"] // 8))
    for i in range(tower["encoder_layers"]):
        yield from layer_tensors(f"{at}.layers.{i}", width, tower["encoder_ffn_dim"])
        yield f"{at}.layers.{i}.self_attn.k_proj.bias", (width,)
    yield from hearing.norm(f"{at}.ln_post", width)
    for name, shape in projector_tensors([(width, width), (out, width)]):
        yield (name if kind == "qwen3_asr" else name.replace(
            "model.multi_modal_projector.linear_", f"{at}.proj")), shape


def tower_tensors(kind, tower, out):
    if kind in CHUNKED:
        yield from chunk_tensors(kind, tower, out)
        return
    at = "model.audio_tower"
    names = (("d_model", "encoder_ffn_dim", "encoder_layers") if kind == "qwen2_audio" else
             ("hidden_size", "intermediate_size", "num_hidden_layers"))
    width, inner, layers = (tower[name] for name in names)
    yield f"{at}.conv1.weight", (width, tower["num_mel_bins"], 3)
    yield f"{at}.conv1.bias", (width,)
    yield f"{at}.conv2.weight", (width, width, 3)
    yield f"{at}.conv2.bias", (width,)
    if kind != "glmasr":
        yield f"{at}.embed_positions.weight", (tower["max_source_positions"], width)
    layer = turned_tensors if kind == "glmasr" else layer_tensors
    for i in range(layers):
        yield from layer(f"{at}.layers.{i}", width, inner)
    yield from hearing.norm(f"{at}.norm" if kind == "glmasr" else f"{at}.layer_norm", width)
    if kind == "qwen2_audio":
        yield from seeing.with_bias([("model.multi_modal_projector.linear.weight", (out, width))])
    elif kind == "audioflamingo3":
        yield from projector_tensors([(out, width), (out, out)])
    elif kind == "glmasr":
        yield from projector_tensors([(2 * out, inner), (out, 2 * out)])
    else:
        yield from projector_tensors([(out, inner), (out, out)], False)


def text_tensors(kind, text):
    for name, shape in seeing.text_tensors("qwen3_vl" if kind in CHUNKED else "qwen2_5_vl", {
            key: value for key, value in text.items() if key != "num_experts"}):
        if TEXT.get(kind) == "llama" and name.endswith("bias"):
            continue
        if not name.startswith(("model.language_model.", "lm_head")):
            name = name.replace("model.", "model.language_model.", 1)
        if kind == "qwen3_omni_moe_thinker":
            name = name.replace("model.language_model.", "model.")
        yield name, shape


def change_logit(path, width, index, factor):
    """Multiplies the logit of an id."""
    data = bytearray(path.read_bytes())
    head = 8 + struct.unpack("<Q", data[:8])[0]
    begin = head + json.loads(data[8:head])["lm_head.weight"]["data_offsets"][0] + index * width * 4
    row = [factor * value for value in struct.unpack_from(f"<{width}f", data, begin)]
    struct.pack_into(f"<{width}f", data, begin, *row)
    path.write_bytes(data)


def make(directory, seed=1, text=(), encoder=(), kind="qwen2_audio"):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = config_of(kind, text, encoder)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    own = {"n_window": 50, "min_length": 8000} if kind == "qwen3_asr" else {}
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "feature_extractor_type": "Qwen3ASRFeatureExtractor" if own else "WhisperFeatureExtractor",
        **own, "chunk_length": 30,
        "feature_size": config["audio_config"]["num_mel_bins"], "hop_length": 160,
        "n_fft": 400, "n_samples": 480000, "nb_max_frames": 3000, "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True, "sampling_rate": 16000}))
    write_tokenizer(directory, kind)
    seeing.write_weights(directory / "model.safetensors", [
        *text_tensors(kind, config["text_config"]),
        *tower_tensors(kind, config["audio_config"], config["text_config"]["hidden_size"])], seed)
    width = config["text_config"]["hidden_size"]
    # Below the likeliest: the id of a sound, drawn, would be none.
    change_logit(directory / "model.safetensors", width, PAD, 0)
    if kind == "qwen3_asr":
        change_logit(directory / "model.safetensors", width, TAG_ID, 1.5)
    return directory


def respell(directory, out):
    """The files of a Qwen3-ASR as Qwen has them: what hears and writes is inside of a thinker."""
    names = (("model.language_model.", "thinker.model."), ("lm_head.", "thinker.lm_head."),
             ("model.multi_modal_projector.linear_", "thinker.audio_tower.proj"),
             ("model.audio_tower.", "thinker.audio_tower."))
    shutil.copytree(directory, out)
    path = out / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    made = {}
    for name, value in json.loads(data[8:8 + size]).items():
        for old, new in names:
            if name.startswith(old):
                name = new + name[len(old):]
                break
        made[name] = value
    head = json.dumps(made).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data[8 + size:])
    config = json.loads((out / "config.json").read_text())
    config["audio_config"].update(model_type="qwen3_asr_audio_encoder", n_window=50,
                                  n_window_infer=800, max_source_positions=1500)
    config["text_config"].update(model_type="qwen3_asr_text", rope_theta=10000.0, rope_scaling={
        "interleaved": True, "mrope_interleaved": True, "mrope_section": [4, 2, 2],
        "rope_type": "default", "type": "default"})
    del config["text_config"]["rope_parameters"]
    inner = {key: config.pop(key) for key in ("audio_config", "text_config", "audio_token_id")}
    del config["tie_word_embeddings"]
    (out / "config.json").write_text(json.dumps({**config, "thinker_config": inner}))
    said = json.loads((out / "preprocessor_config.json").read_text())
    said["feature_extractor_type"] = "WhisperFeatureExtractor"
    (out / "preprocessor_config.json").write_text(json.dumps(said))
    return out


def part(file, kind="wav"):
    """A part of a message, as OpenAI has it."""
    return {"type": "input_audio", "input_audio": {
        "data": base64.b64encode(file).decode(), "format": kind}}


def url(file, kind="wav"):
    return f"data:audio/{kind};base64,{base64.b64encode(file).decode()}"
