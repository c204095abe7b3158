"""Families that transformers does not have, as files made from their twin, which computes the same:
InternLM 2 and EXAONE 3 are Llama with other names; InternLM 2 has q, k and v fused in groups."""

import json

import torch

INTERNLM2 = {"embed_tokens": "tok_embeddings", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo",
             "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "lm_head": "output"}
EXAONE = {"model.layers": "transformer.h", "model.embed_tokens": "transformer.wte",
          "model.norm": "transformer.ln_f", "input_layernorm": "ln_1",
          "post_attention_layernorm": "ln_2", "self_attn": "attn.attention", "o_proj": "out_proj",
          "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"}


def renamed(tensors, names):
    out = {}
    for name, tensor in tensors.items():
        for part, new in names.items():
            name = name.replace(part, new)
        out[name] = tensor
    return out


def in_groups(tensors, heads, kv_heads):
    """q, k and v of each layer as one tensor: the heads of q of a group, its k, its v."""
    for name in [n for n in tensors if ".self_attn.q_proj." in n]:
        parts = [tensors.pop(name.replace("q_proj", p)) for p in ("q_proj", "k_proj", "v_proj")]
        size = len(parts[0]) // heads
        parts = [p.reshape(kv_heads, -1, size, *p.shape[1:]) for p in parts]
        fused = torch.cat(parts, dim=1).flatten(0, 2)
        tensors[name.replace("self_attn.q_proj", "attention.wqkv")] = fused.contiguous()
    return tensors


def as_internlm2(tensors, config):
    heads = config["num_attention_heads"]
    tensors = in_groups(tensors, heads, config["num_key_value_heads"])
    config = {**config, "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2",
              "bias": config.pop("attention_bias", False), "auto_map": {"AutoConfig": "x.Y"}}
    return renamed(tensors, INTERNLM2), config


def as_exaone(tensors, config):
    keys = {"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon",
            "hidden_act": "activation_function"}
    config = {keys.get(k, k): v for k, v in config.items()}
    config |= {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone"}
    return renamed(tensors, EXAONE), config


def around(architecture, path, prefix, more, text_of=None):
    """A text model inside of one that sees or hears, as the hub has it: its keys stand in the
    objects of `path`, and its names behind `prefix`; `more` are names of the other parts."""
    sight = {"vision_config": {"hidden_size": 8}}

    def wrapped(tensors, config):
        if text_of is not None:
            tensors, config = text_of(tensors, config)
        own = {"architectures": [architecture], "auto_map": {"AutoConfig": "x.Y"}, **sight,
               "torch_dtype": config.get("torch_dtype") or config["dtype"]}
        out = {prefix + name: tensor for name, tensor in tensors.items()}
        out |= {name + ".weight": torch.ones(2, 3) for name in more}
        if not path:
            return out, {**config, **own}
        inner = {path[-1]: config}
        if len(path) > 1:
            tied = config.get("tie_word_embeddings", False)
            inner = {path[0]: {**inner, **sight, "tie_word_embeddings": tied}}
        return out, {"model_type": "wrapper", **inner, **own}
    return wrapped


def inside_gemma3n(tensors, config):
    return renamed(tensors, {"model.": "model.language_model."}), config


def named(kind):
    return lambda tensors, config: (tensors, {**config, "model_type": kind})


CHAT = (["llm_config"], "language_model.", ["vision_model.encoder.layers.0.norm1", "mlp1.0"])
THINKER = (["thinker_config", "text_config"], "thinker.",
           ["thinker.visual.norm", "thinker.audio_tower.conv", "talker.model.x", "token2wav.x",
            "code2wav.y"])
AROUND = {
    "chat_qwen2": around("InternVLChatModel", *CHAT),
    "chat_qwen3_moe": around("InternVLChatModel", *CHAT),
    "chat_phi3": around("InternVLChatModel", *CHAT),
    "chat_internlm2": around("InternVLChatModel", *CHAT, text_of=as_internlm2),
    "nano_vl_llama": around("Llama_Nemotron_Nano_VL", *CHAT),
    "nano_vl_nemotron_h": around("NemotronH_Nano_VL_V2", *CHAT),
    "ovis2_5": around("Ovis2_5", ["llm_config"], "llm.",
                      ["visual_tokenizer.vit.norm", "vte"]),
    "kimi_vl": around("KimiVLForConditionalGeneration", ["text_config"], "language_model.",
                      ["vision_tower.norm", "multi_modal_projector.linear_1"]),
    "ovis": around("Ovis", ["llm_config"], "llm.", ["visual_tokenizer.head", "vte"]),
    "qwen3_omni": around("Qwen3OmniMoeForConditionalGeneration", *THINKER,
                         named("qwen3_omni_moe_text")),
    "qwen3_asr_own": around("Qwen3ASRForConditionalGeneration", *THINKER, named("qwen3_asr_text")),
    "qwen2_5_omni_model": around("Qwen2_5OmniModel", *THINKER, named("qwen2_5_omni_text")),
    "qwen2_5_omni_whole": around("Qwen2_5OmniForConditionalGeneration", *THINKER,
                                 named("qwen2_5_omni_text")),
    "gemma3n_seen": around("Gemma3nForConditionalGeneration", ["text_config"], "", [
        "model.vision_tower.timm_model.conv_stem.conv", "model.audio_tower.conformer.0.norm",
        "model.embed_vision.embedding", "model.embed_audio.embedding"], inside_gemma3n),
    "dots_ocr": around("DotsOCRForCausalLM", [], "", ["vision_tower.norm"]),
    "phi3_v": around("Phi3VForCausalLM", [], "", ["model.vision_embed_tokens.x"])}
TWINS = {"internlm2": as_internlm2, "exaone": as_exaone, **AROUND}


def save_twin(tensors, config, directory, how):
    """Writes config.json; returns the tensors under the names of the family."""
    tensors, config = TWINS[how](tensors, dict(config))
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return tensors
