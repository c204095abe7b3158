"""The tower of a model in a mmproj file, written with llama.cpp's package `gguf`: names by its
table, keys by its writer. The answers are those of the same values in safetensors, bit by bit, also
where the file has them as float16 or in blocks."""

import json
import struct

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type, GGUFWriter, MODEL_ARCH, TENSOR_NAMES, MODEL_TENSOR
from gguf import GGUFType, VisionProjectorType, get_tensor_name_map
from gguf.quants import dequantize, quantize

import seeing
import seeing_llava
from harness import Server, run
from test_pictures import A, B, ask, user

QUESTIONS = [[user("first", A, "then", B, "?")], [user(B, "what is this")], [user("words")]]
KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
WIDE = {"hidden_size": 64, "num_heads": 2, "intermediate_size": 96}  # whole blocks of 32 columns


def read(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    return {name: np.frombuffer(data[8 + length:][slice(*said["data_offsets"])], np.float32
                                ).reshape(said["shape"]) for name, said in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head
                     + b"".join(values.tobytes() for values in tensors.values()))


def stored(values, kind):
    """What a file of this type has of a matrix, its type there, and the values that this is."""
    if values.ndim < 2 or kind == Type.F32 or values.shape[-1] % 32 and kind == Type.Q8_0:
        return values, None, values
    if kind == Type.F16:
        half = values.astype(np.float16)
        return half, None, half.astype(np.float32)
    blocks = quantize(values, kind)
    return blocks, kind, dequantize(blocks, kind)


def add(writer, name, values, kind):
    data, raw, same = stored(np.ascontiguousarray(values), kind)
    writer.add_tensor(name, data, raw_dtype=raw)
    return same


def add_tower(writer, name, values, kind, table, deep):
    """As llama.cpp's converter names and cuts tensors of Qwen's towers; returns their values."""
    short = name[name.index("visual."):]
    patch = TENSOR_NAMES[MODEL_TENSOR.V_ENC_EMBD_PATCH]
    if short == "visual.patch_embed.proj.weight":
        kind = Type.F16 if kind == Type.F16 else Type.F32
        frames = [add(writer, f"{patch}.weight{end}", values[:, :, i], kind)
                  for i, end in enumerate(("", ".1"))]
        return np.stack(frames, 2)
    if short == "visual.patch_embed.proj.bias":
        return add(writer, f"{patch}.bias", values, kind)
    if ".qkv." in short and not deep:
        names = [table.get_name(short.replace("qkv", part), (".weight", ".bias"))
                 for part in "qkv"]
        return np.concatenate([add(writer, name, rows, kind)
                               for name, rows in zip(names, np.split(values, 3))])
    if "deepstack_merger_list" in short:
        _, _, number, part, end = short.split(".")
        role = {"norm": MODEL_TENSOR.V_DS_NORM, "linear_fc1": MODEL_TENSOR.V_DS_FC1,
                "linear_fc2": MODEL_TENSOR.V_DS_FC2}[part]
        stem = TENSOR_NAMES[role].format(bid=deep[int(number)])
        return add(writer, f"{stem}.{end}", values, kind)
    if short.startswith("visual.merger.linear_fc"):
        number, end = short[len("visual.merger.linear_fc"):].split(".")
        return add(writer, f"mm.{2 * (int(number) - 1)}.{end}", values, kind)
    if short.startswith(("visual.merger.norm.", "visual.merger.ln_q.")):
        return add(writer, f"v.post_ln.{short.rsplit('.', 1)[1]}", values, kind)
    return add(writer, table.get_name(short, (".weight", ".bias")), values, kind)


def make(folder, model, kind=Type.F32, twin=None, **said):
    """The mmproj file of a model of seeing.py; `twin`: where the model with its values goes."""
    config = json.loads((model / "config.json").read_text())
    sight = config["vision_config"]
    deep = sight.get("deepstack_visual_indexes", [])
    writer = GGUFWriter(folder / "mmproj-model.gguf", "clip")
    writer.add_type(GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    side = int(sight.get("num_position_embeddings", 1) ** 0.5)
    writer.add_vision_image_size(560 if config["model_type"] in seeing.OLD
                                 else side * sight["patch_size"])
    writer.add_vision_patch_size(sight["patch_size"])
    writer.add_vision_embedding_length(sight.get("embed_dim", sight["hidden_size"]))
    writer.add_vision_feed_forward_length(  # of Qwen2-VL the converter writes another number
        sight.get("intermediate_size", sight["hidden_size"]))
    writer.add_vision_block_count(sight["depth"])
    writer.add_vision_head_count(sight["num_heads"])
    writer.add_vision_projection_dim(said.get("width", config["text_config"]["hidden_size"]))
    writer.add_vision_image_mean([0.48145466, 0.4578275, 0.40821073])
    writer.add_vision_image_std([0.26862954, 0.26130258, 0.27577711])
    writer.add_vision_attention_layernorm_eps(1e-6)
    if config["model_type"] == "qwen2_vl":
        writer.add_clip_projector_type(VisionProjectorType.QWEN2VL)
    elif config["model_type"] == "qwen2_5_vl":
        writer.add_clip_projector_type(said.get("projector", VisionProjectorType.QWEN25VL))
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(sight["fullatt_block_indexes"][0] + 1)
    else:
        writer.add_clip_projector_type(said.get("projector", VisionProjectorType.QWEN3VL))
        writer.add_vision_use_gelu(True)
        writer.add_vision_spatial_merge_size(sight["spatial_merge_size"])
        writer.add_vision_is_deepstack_layers([i in deep for i in range(sight["depth"])])
    table = get_tensor_name_map(MODEL_ARCH.MMPROJ, sight["depth"])
    tensors = read(model / "model.safetensors")
    for name, values in tensors.items():
        if "visual." in name and name != said.get("without"):
            tensors[name] = add_tower(writer, name, values, kind, table, deep)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if twin is not None:
        twin.mkdir()
        for path in model.iterdir():
            if path.name != "model.safetensors":
                (twin / path.name).write_bytes(path.read_bytes())
        write(twin / "model.safetensors", tensors)
    return folder / "mmproj-model.gguf"


def model_of(directory, kind):
    """The limits of pictures are those of the class, which is all that a mmproj file says."""
    sight = {**WIDE, **({"window_size": 112, "fullatt_block_indexes": [1]}
                        if kind == "qwen2_5_vl" else {})}
    if kind == "qwen2_vl":
        sight = {"embed_dim": WIDE["hidden_size"], "num_heads": WIDE["num_heads"], "mlp_ratio": 2}
    return seeing.make(directory, kind, sight=sight, pixels=(56 * 56, 28 * 28 * 1280))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_of", [Type.F32, Type.F16, Type.Q8_0], ids=lambda one: one.name)
def test_the_answers_are_those_of_safetensors(start, tmp_path, kind, type_of):
    model, twin = model_of(tmp_path / "model", kind), tmp_path / "twin"
    file = make(tmp_path, model, type_of, twin)
    plain = start(twin)
    expected = [ask(plain, *question)[0] for question in QUESTIONS]
    assert str(expected[0]) != str(expected[1])
    other = start(model, "--mmproj", file)
    assert [ask(other, *question)[0] for question in QUESTIONS] == expected
    assert f"images    by {file}" in other.log(), other.log()


# In this order, as the script for LLaVA in llama.cpp's tools/mtmd/legacy-models has them.
OLD_WORDS = (("multi_modal_projector.linear_1", "mm.0"), ("multi_modal_projector.linear_2", "mm.2"),
             ("vision_tower.vision_model", "v"), ("encoder.layers", "blk"), ("embeddings.", ""),
             ("_proj", ""), ("self_attn.", "attn_"), ("layer_norm", "ln"), ("layernorm", "ln"),
             ("mlp.fc1", "ffn_down"), ("mlp.fc2", "ffn_up"), ("embedding", "embd"),
             ("layrnorm", "ln"), ("image_newline", "model.image_newline"))
DROPPED = ("language_model.", "vision_tower.vision_model.post_layernorm.",
           f"vision_tower.vision_model.encoder.layers.{seeing_llava.LAYERS - 1}.")


def make_old(folder, model, kind, twin, **said):
    """The file that the old script makes of a LLaVA-NeXT: without what is behind the layer that is
    read, the matrices of an MLP under each other's names."""
    writer = GGUFWriter(folder / "mmproj-model.gguf", "clip")
    writer.add_string("clip.projector_type", "mlp")
    for name, number in {"image_size": seeing_llava.SIDE, "patch_size": seeing_llava.PATCH,
                         "embedding_length": seeing_llava.SIGHT, "projection_dim": 8,
                         "feed_forward_length": seeing_llava.INNER, "attention.head_count": 3,
                         "block_count": seeing_llava.LAYERS - 1}.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_grid_pinpoints",
                     said.get("pinpoints", [side for pair in seeing_llava.PINPOINTS
                                            for side in pair]))
    if "layers" in said:
        writer.add_array("clip.vision.feature_layer", said["layers"])
    writer.add_vision_image_mean([0.48145466, 0.4578275, 0.40821073])
    writer.add_vision_image_std([0.26862954, 0.26130258, 0.27577711])
    writer.add_bool("clip.use_gelu", False)
    tensors = read(model / "model.safetensors")
    for name, values in tensors.items():
        if name.startswith(DROPPED):
            continue
        short, half = name, "projector" in name or "patch_embedding" in name
        for old, new in OLD_WORDS:
            short = short.replace(old, new)
        tensors[name] = add(writer, short.replace("v.class_embd.weight", "v.class_embd"), values,
                            Type.F16 if half else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    twin.mkdir()
    for path in model.iterdir():
        if path.name != "model.safetensors":
            (twin / path.name).write_bytes(path.read_bytes())
    write(twin / "model.safetensors", tensors)
    return folder / "mmproj-model.gguf"


def old_model(directory):
    """Its placeholder is called as in LLaVA's tokenizer."""
    seeing_llava.make(directory, "llava_next")
    for path in directory.glob("*.j*"):
        path.write_text(path.read_text().replace("<|image_pad|>", "<image>"))
    return directory


@pytest.mark.parametrize("kind", [Type.F32, Type.F16], ids=lambda one: one.name)
def test_files_of_the_old_script_are_read(start, tmp_path, kind):
    model, twin = old_model(tmp_path / "model"), tmp_path / "twin"
    file = make_old(tmp_path, model, kind, twin, layers=[seeing_llava.LAYERS - 1])
    plain = start(twin)
    expected = [ask(plain, *question)[0] for question in QUESTIONS]
    other = start(model, "--mmproj", file)
    assert [ask(other, *question)[0] for question in QUESTIONS] == expected
    assert f"images    by {file}" in other.log(), other.log()


@pytest.mark.parametrize("said, words", [
    ({"layers": [1, 2]}, "feature_layer"), ({"layers": [1]}, "feature_layer"),
    ({"pinpoints": [40, 80, 40]}, "image_grid_pinpoints")])
def test_old_files_that_ask_for_more_are_refused(inferd, tmp_path, said, words):
    model = old_model(tmp_path / "model")
    file = make_old(tmp_path, model, Type.F32, tmp_path / "twin", **said)
    server = Server(inferd, model, "--mmproj", file, wait=False)
    assert server.wait_exit(60) != 0
    assert words in server.log(), server.log()


def test_check_names_the_file(inferd, tmp_path):
    model = model_of(tmp_path / "model", "qwen3_vl")
    file = make(tmp_path, model)
    said = run(inferd, "check", model, "--mmproj", file)
    assert said.returncode == 0 and f"images    by {file}" in said.stdout, said
    assert "images    one of 1024 x 768 is" in said.stdout, said


@pytest.mark.parametrize("said, words", [
    ({"projector": "resampler"}, "supported: qwen2vl_merger"),
    ({"width": 65}, "makes rows of 65 values, the text model reads 64"),
    ({"without": "model.visual.blocks.1.attn.proj.weight"},
     "tensor v.blk.1.attn_out.weight is missing")])
def test_files_that_do_not_fit_are_refused(inferd, tmp_path, said, words):
    model = model_of(tmp_path / "model", "qwen3_vl")
    server = Server(inferd, model, "--mmproj", make(tmp_path, model, **said), wait=False)
    assert server.wait_exit(60) != 0
    assert words in server.log(), server.log()


def test_files_that_are_none_are_refused(inferd, tmp_path):
    model = model_of(tmp_path / "model", "qwen3_vl")
    (tmp_path / "words.gguf").write_text("words")
    for file in (tmp_path / "words.gguf", tmp_path / "none.gguf", model):
        server = Server(inferd, model, "--mmproj", file, wait=False)
        assert server.wait_exit(60) != 0, file
        assert "mmproj: " in server.log(), server.log()
