"""Models that see images around text models of several families, for the reference vectors and
`make parity`. Their towers are tiny: only the text part is compared.

As decoder_cases.py: `DRAWS` draws a random config.json, `CASES` are the committed ones.
"""

from model_cases import (TINY, deepseek_v3, gemma3, glm4_moe, llama, llama_like, ministral3,
                         mistral, phi3, qwen2, qwen3, qwen3_moe, with_tower, without)
from decoder_cases import exaone4
from recent_cases import mistral4
from state_cases import lfm2, lfm3, qwen3_5

SIGHT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
         "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
TURNED = {"depth": 1, "hidden_size": 16, "num_heads": 2, "num_key_value_heads": 2,
          "intermediate_size": 16, "patch_size": 2, "window_size": 8, "fullatt_block_indexes": [0]}


def glm4v_text(*args, **more):
    return llama_like("", "glm4v_text", *args, **{"rope_theta": 1e4, **more})


def wrap(architecture, kind, tower):
    """A maker of such models: of a text config, and whether the head is the embedding."""
    def wrapped(text, tied=False, dtype="float32", **more):
        sight = {**tower, **({"out_hidden_size": text["hidden_size"]} if "depth" in tower else {})}
        made = with_tower(architecture, kind, {**text, "tie_word_embeddings": tied}, dtype, **sight)
        return {**made, "tie_word_embeddings": tied, **more}
    return wrapped


internvl = wrap("InternVLForConditionalGeneration", "internvl", {
    **SIGHT, "model_type": "internvl_vision", "image_size": [8, 8], "patch_size": [4, 4]})
lfm2_vl = wrap("Lfm2VlForConditionalGeneration", "lfm2_vl", {
    **SIGHT, "model_type": "siglip2_vision_model", "num_patches": 4})
lfm3_vl = wrap("Lfm3VlForConditionalGeneration", "lfm3_vl", {
    **SIGHT, "model_type": "lfm3_vl_vision", "num_key_value_heads": 1,
    "layer_types": ["full_attention"]})


def minicpm(architecture, kind):
    """A layer of the tower joins patches; hidden sizes of the text follow from nothing."""
    return wrap(architecture, kind, {
        **SIGHT, "model_type": f"{kind}_vision", "insert_layer_id": 0, "num_hidden_layers": 2})


minicpm_v46 = minicpm("MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6")
minicpm_v47 = minicpm("MiniCPMV4_7ForConditionalGeneration", "minicpmv4_7")
minicpm_ocr = minicpm("MiniCPMOcrForConditionalGeneration", "minicpm_ocr")
llava = wrap("LlavaForConditionalGeneration", "llava", {
    **SIGHT, "model_type": "clip_vision_model", "projection_dim": 8})
llava_next = wrap("LlavaNextForConditionalGeneration", "llava_next", {
    **SIGHT, "model_type": "clip_vision_model", "projection_dim": 8})
llava_onevision = wrap("LlavaOnevisionForConditionalGeneration", "llava_onevision", {
    **SIGHT, "model_type": "siglip_vision_model"})
smolvlm = wrap("SmolVLMForConditionalGeneration", "smolvlm", SIGHT)
idefics3 = wrap("Idefics3ForConditionalGeneration", "idefics3", SIGHT)
gemma3_images = wrap("Gemma3ForConditionalGeneration", "gemma3", {
    **SIGHT, "model_type": "siglip_vision_model"})
mistral3 = wrap("Mistral3ForConditionalGeneration", "mistral3", {
    **SIGHT, "model_type": "pixtral", "head_dim": 8})
exaone4_5 = wrap("Exaone4_5_ForConditionalGeneration", "exaone4_5", {
    **TURNED, "model_type": "exaone4_5_vision"})
kimi_k25 = wrap("Kimi_K25ForConditionalGeneration", "kimi_k25", {
    "model_type": "kimi_k25_vision", "hidden_size": 16, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 4,
    "pos_emb_width": 4})

HEARING = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
           "hidden_size": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "d_model": 16,
           "encoder_ffn_dim": 16}


def hear(architecture, kind, tower):
    """The same of models that hear: the key in text_config ties, if one does."""
    def wrapped(text, tied=False, dtype="float32", **more):
        made = with_tower(architecture, kind, {**text, "tie_word_embeddings": tied}, dtype, **tower)
        made["audio_config"] = made.pop("vision_config")
        return {**made, "tie_word_embeddings": tied, **more}
    return wrapped


idefics2 = wrap("Idefics2ForConditionalGeneration", "idefics2", {
    **SIGHT, "model_type": "idefics2_vision"})
llava_video = wrap("LlavaNextVideoForConditionalGeneration", "llava_next_video", {
    **SIGHT, "model_type": "clip_vision_model", "projection_dim": 8})
video_llava = wrap("VideoLlavaForConditionalGeneration", "video_llava", {
    **SIGHT, "model_type": "clip_vision_model", "projection_dim": 8})
vip_llava = wrap("VipLlavaForConditionalGeneration", "vipllava", {
    **SIGHT, "model_type": "clip_vision_model", "projection_dim": 8})
video_llama3 = wrap("VideoLlama3ForConditionalGeneration", "video_llama_3", {
    **SIGHT, "model_type": "video_llama_3_vision"})
ovis2_plain = wrap("Ovis2ForConditionalGeneration", "ovis2", {
    **SIGHT, "model_type": "ovis2_vision", "vocab_size": 32, "num_visual_indicator_tokens": 2})
lighton_ocr = wrap("LightOnOcrForConditionalGeneration", "lighton_ocr", {
    **SIGHT, "model_type": "pixtral", "head_dim": 8})
qianfan_ocr = wrap("QianfanOCRForConditionalGeneration", "qianfan_ocr", {
    **SIGHT, "model_type": "qianfan_ocr_vision", "image_size": [8, 8], "patch_size": [4, 4]})
got_ocr2 = wrap("GotOcr2ForConditionalGeneration", "got_ocr2", {
    **SIGHT, "output_channels": 8, "mlp_dim": 16, "global_attn_indexes": [0], "window_size": 2})
janus = wrap("JanusForConditionalGeneration", "janus", {
    **SIGHT, "model_type": "janus_vision_model", "projection_dim": 16})
deepseek_vl = wrap("DeepseekVLForConditionalGeneration", "deepseek_vl", {
    **SIGHT, "model_type": "siglip_vision_model"})
audio_flamingo3 = hear("AudioFlamingo3ForConditionalGeneration", "audioflamingo3", {
    **HEARING, "model_type": "audioflamingo3_encoder"})
qwen2_audio = hear("Qwen2AudioForConditionalGeneration", "qwen2_audio", {
    **HEARING, "model_type": "qwen2_audio_encoder"})
voxtral = hear("VoxtralForConditionalGeneration", "voxtral", {
    **HEARING, "model_type": "voxtral_encoder"})
glm_asr = hear("GlmAsrForConditionalGeneration", "glmasr", {
    **HEARING, "model_type": "glmasr_encoder"})


def qwen3_asr(text, *how, **more):
    return hear("Qwen3ASRForConditionalGeneration", "qwen3_asr", {
        **HEARING, "model_type": "qwen3_asr_encoder", "num_mel_bins": 8,
        "downsample_hidden_size": 4, "output_dim": text["hidden_size"]})(text, *how, **more)


def ovis2(text, *how):
    return ovis2_plain(text, *how, vocab_size=text["vocab_size"], hidden_size=text["hidden_size"])


def turned(architecture, kind, dims, text_kind=None):
    """The same of text models whose rope counts in three directions; `dims` of a head turn."""
    tower = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16,
             "patch_size": 2, "image_size": 8}
    if kind == "qwen2_5_vl":
        tower = {**TURNED, "model_type": "qwen2_5_vl"}
    around = wrap(architecture, kind, tower)

    def wrapped(text, tied=False, dtype="float32", **more):
        if kind == "paddleocr_vl":
            text = {**text, "head_dim": head_of(text)}
        half = dims(text) // 2
        rope = {"rope_type": "default", "rope_theta": text["rope_theta"],
                "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}
        if kind.startswith("qwen3_vl"):
            rope["mrope_interleaved"] = True
        if kind == "glm4v_moe":
            rope["partial_rotary_factor"] = 0.5
        made = around({**without(text, "rope_theta"), "rope_parameters": rope,
                       "model_type": text_kind or f"{kind}_text"}, tied, dtype, **more)
        if kind.startswith("qwen3_vl"):
            made["vision_config"] |= {"num_position_embeddings": 16,
                                      "deepstack_visual_indexes": [0]}
        if "omni" in kind:
            made["audio_config"] = {**HEARING, "output_dim": text["hidden_size"],
                                    "downsample_hidden_size": 8}
        if kind == "qwen2_vl":
            made["vision_config"] |= {"embed_dim": 16, "hidden_size": text["hidden_size"]}
        return made
    return wrapped


def head_of(text):
    return text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]


qwen3_vl_moe = turned("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", head_of)
qwen2_vl = turned("Qwen2VLForConditionalGeneration", "qwen2_vl", head_of)
qwen2_5_vl = turned("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", head_of)
qwen3_vl = turned("Qwen3VLForConditionalGeneration", "qwen3_vl", head_of)
glm46v = turned("Glm46VForConditionalGeneration", "glm46v", head_of, "glm4v_text")
glm4v = turned("Glm4vForConditionalGeneration", "glm4v", head_of)
glm_ocr = turned("GlmOcrForConditionalGeneration", "glm_ocr", head_of)
paddleocr = turned("PaddleOCRVLForConditionalGeneration", "paddleocr_vl", head_of)
qwen2_5_omni = turned("Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_thinker",
                      head_of, "qwen2_5_omni_text")
qwen3_omni = turned("Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_thinker",
                    head_of, "qwen3_omni_moe_text")
glm4v_moe = turned("Glm4vMoeForConditionalGeneration", "glm4v_moe", lambda t: head_of(t) // 2)


def draw(make, text_of, **more):
    """Around a text model of sizes that are drawn; a run of 16 bits takes all experts."""
    def drawn(rng, dtype):
        heads, width = rng.choice([1, 2, 3]), rng.choice([16, 32, 48])
        own = {**TINY, "num_hidden_layers": rng.randint(1, 3)}
        if text_of is mistral4:
            own = {"num_hidden_layers": own["num_hidden_layers"], "vocab_size": 67,
                   **({} if dtype == "float32" else {"num_experts_per_tok": 8, "topk_group": 4})}
            text = text_of(heads * width, heads, 8 * rng.randint(4, 20), **own)
        elif text_of is deepseek_v3:
            own |= {} if dtype == "float32" else {"num_experts_per_tok": 8, "topk_group": 4}
            text = text_of(heads * width, heads, 8 * rng.randint(4, 20), **own)
        elif text_of in (lfm2, lfm3, qwen3_5):
            del own["num_hidden_layers"]
            own["max_position_embeddings"] = 256
            text = text_of(heads * width, heads, 1, 8 * rng.randint(4, 20), **own)
        elif text_of in (glm4_moe, qwen3_moe):
            more_own = {} if dtype == "float32" else {"num_experts_per_tok": 8}
            text = text_of(heads * width, heads, 1, 8 * rng.randint(4, 20), head_dim=width,
                           **own, **more_own)
        elif text_of is gemma3:
            text = text_of(heads * width, heads, 1, 8 * rng.randint(4, 20), head_dim=width,
                           sliding_window=rng.choice([5, 16, 30]), **own)
        elif text_of is mistral:
            text = text_of(heads * width, heads, 1, 8 * rng.randint(4, 20), sliding_window=None,
                           **own)
        elif text_of is ministral3:
            text = text_of(heads * width, heads, 1, 8 * rng.randint(4, 20),
                           num_hidden_layers=own["num_hidden_layers"], vocab_size=67)
        else:
            text = text_of(heads * width, heads, 1, 8 * rng.randint(4, 20), **own)
        return make(text, rng.random() < 0.5, dtype, **more)
    return drawn


DRAWS = {
    "internvl_qwen2": draw(internvl, qwen2), "internvl_qwen3": draw(internvl, qwen3),
    "lfm2_vl": draw(lfm2_vl, lfm2, projector_hidden_size=16), "llava": draw(llava, llama),
    "llava_next": draw(llava_next, llama), "llava_onevision": draw(llava_onevision, qwen2),
    "idefics3": draw(idefics3, llama), "gemma3_images": draw(gemma3_images, gemma3),
    "mistral3": draw(mistral3, mistral),
    "mistral3_ministral": draw(mistral3, ministral3),
    "mistral3_mistral4": draw(mistral3, mistral4),
    "qwen2_vl": draw(qwen2_vl, qwen2), "qwen2_5_vl": draw(qwen2_5_vl, qwen2),
    "qwen3_vl": draw(qwen3_vl, qwen3), "glm46v": draw(glm46v, glm4v_text),
    "smolvlm": draw(smolvlm, llama), "exaone4_5": draw(exaone4_5, exaone4),
    "qwen3_vl_moe": draw(qwen3_vl_moe, qwen3_moe), "glm4v": draw(glm4v, glm4v_text),
    "glm4v_moe": draw(glm4v_moe, glm4_moe),
    "idefics2": draw(idefics2, mistral), "llava_next_video": draw(llava_video, llama),
    "video_llava": draw(video_llava, llama), "vipllava": draw(vip_llava, llama),
    "video_llama_3": draw(video_llama3, qwen2), "ovis2": draw(ovis2, qwen2),
    "lighton_ocr": draw(lighton_ocr, qwen3), "qianfan_ocr": draw(qianfan_ocr, qwen3),
    "got_ocr2": draw(got_ocr2, qwen2), "janus": draw(janus, llama),
    "deepseek_vl": draw(deepseek_vl, llama), "audioflamingo3": draw(audio_flamingo3, qwen2),
    "qwen2_audio": draw(qwen2_audio, qwen2), "voxtral": draw(voxtral, llama),
    "qwen3_asr": draw(qwen3_asr, qwen3), "glmasr": draw(glm_asr, llama),
    "glm_ocr": draw(glm_ocr, glm4v_text),
    "paddleocr_vl": draw(paddleocr, llama), "qwen2_5_omni": draw(qwen2_5_omni, qwen2),
    "qwen3_omni_moe": draw(qwen3_omni, qwen3_moe),
    "kimi_k25": draw(kimi_k25, deepseek_v3, projection_hidden_size=16),
    "lfm3_vl": draw(lfm3_vl, lfm3, projector_hidden_size=16),
    "minicpmv4_6": draw(minicpm_v46, qwen3_5, insert_layer_id=0),
    "minicpmv4_7": draw(minicpm_v47, qwen3_5, insert_layer_id=0),
    "minicpm_ocr": draw(minicpm_ocr, qwen3_5, insert_layer_id=0),
}

# Those whose text model has layers with a state, which amplify rounding.
WITH_STATES = ("lfm3_vl", "minicpmv4_6", "minicpmv4_7", "minicpm_ocr")

# Text models inside of what transformers does not have: saved so, computed alone (twin_files.py).
INSIDE = {"chat_qwen2": "qwen2", "chat_qwen3_moe": "qwen3_moe", "chat_phi3": "phi3",
          "nano_vl_llama": "llama", "ovis2_5": "qwen3", "kimi_vl": "deepseek_v3",
          "ovis": "qwen2", "qwen2_5_omni_model": "qwen2", "qwen2_5_omni_whole": "qwen2",
          "qwen3_omni": "qwen3_moe", "qwen3_asr_own": "qwen3", "dots_ocr": "qwen2",
          "phi3_v": "phi3",
          "nano_vl_nemotron_h": "nemotron_h", "chat_internlm2": "internlm2",
          "gemma3n_seen": "gemma3n"}
TWINS = {kind: kind for kind in INSIDE}

CASES = {
    "wrapped-internvl": ("plain", internvl(qwen3(48, 2, 1, 64, head_dim=32, **TINY))),
    "wrapped-internvl-tied-bf16": ("plain", internvl(qwen2(48, 2, 1, 64, **TINY), True,
                                                     "bfloat16")),
    "wrapped-lfm2-vl": ("plain", lfm2_vl(lfm2(48, 2, 1, 64, **TINY), True,
                                          projector_hidden_size=16)),
    "wrapped-llava": ("plain", llava(llama(48, 2, 1, 64, **TINY))),
    "wrapped-smolvlm": ("plain", smolvlm(llama(48, 3, 1, 64, **TINY))),
    "wrapped-exaone4-5": ("plain", exaone4_5(exaone4(48, 2, 1, 64, **TINY))),
    "wrapped-kimi-k25": ("plain", kimi_k25(deepseek_v3(48, 2, 64, **TINY),
                                           projection_hidden_size=16)),
    "wrapped-qwen3-vl-moe": ("plain", qwen3_vl_moe(qwen3_moe(48, 2, 1, 64, head_dim=32, **TINY))),
    "wrapped-glm4v": ("plain", glm4v(glm4v_text(64, 2, 1, 64, **TINY))),
    "wrapped-glm4v-moe": ("plain", glm4v_moe(glm4_moe(48, 2, 1, 64, head_dim=32, **TINY))),
    "wrapped-internvl-chat": ("chat_qwen2", qwen2(48, 2, 1, 64, **TINY)),
    "wrapped-internvl-chat-internlm2": ("chat_internlm2", llama(48, 2, 1, 64, **TINY)),
    "wrapped-qwen3-omni": ("qwen3_omni", qwen3_moe(48, 2, 1, 64, head_dim=32, **TINY)),
    "wrapped-phi3-vision": ("phi3_v", phi3(48, 2, 2, 64, **TINY)),
    "wrapped-paddleocr-vl": ("plain", paddleocr(llama(48, 2, 1, 64, **TINY), True)),
    "wrapped-glm-ocr": ("plain", glm_ocr(glm4v_text(64, 2, 1, 64, **TINY))),
    "wrapped-voxtral": ("plain", voxtral(llama(48, 2, 1, 64, **TINY))),
    "wrapped-qwen2-5-omni": ("plain", qwen2_5_omni(qwen2(48, 2, 1, 64, **TINY))),
    "wrapped-glm-asr": ("plain", glm_asr(llama(48, 2, 1, 64, **TINY))),
    "wrapped-qwen3-omni-thinker-bf16": ("plain", qwen3_omni(
        qwen3_moe(32, 2, 1, 32, head_dim=16, **{**TINY, "num_experts_per_tok": 8}), False,
        "bfloat16")),
    "wrapped-kimi-k25-saved": ("sharded", kimi_k25(
        deepseek_v3(48, 2, 64, **{**TINY, "n_routed_experts": 4, "n_group": 2, "topk_group": 1,
                                  "num_experts_per_tok": 2}), projection_hidden_size=16)),
    "wrapped-mistral3-mistral4": ("plain", mistral3(mistral4(
        48, 2, 64, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2,
        num_hidden_layers=2, vocab_size=67), True)),
    "wrapped-qianfan-ocr-saved": ("sharded", qianfan_ocr(qwen3(48, 2, 1, 64, head_dim=32, **TINY))),
    "wrapped-lfm3-vl": ("plain", lfm3_vl(lfm3(48, 3, 1, 64, **TINY), True,
                                          projector_hidden_size=16)),
    "wrapped-minicpmv4-6": ("plain", minicpm_v46(qwen3_5(
        48, 2, 1, 64, num_hidden_layers=2, full_attention_interval=2, **TINY), insert_layer_id=0)),
    "wrapped-qwen3-asr": ("plain", qwen3_asr(qwen3(48, 2, 1, 64, head_dim=32, **TINY), True)),
    "wrapped-qwen3-asr-own": ("qwen3_asr_own", qwen3(48, 2, 1, 64, head_dim=32, **TINY)),
}
