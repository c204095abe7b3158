"""A model directory whose answers are known: the real server, engine and parsers with a script.

The model is a Llama whose layer adds nothing, so that its next token depends on the last one alone.
Every piece of every answer is a token that no other piece uses and leads to the next piece; the
chat template ends a prompt with a token that leads to the first piece of the answer that fits the
conversation. The right token is ahead by 79 in logits: no temperature draws another.
"""

import json
import struct

from harness import DEMO

WIDTH = 128       # one dimension a piece, so the scripts hold at most so many pieces
PIECE = 5         # characters of a piece; more where those are used, up to twice as many at the end
CONTEXT = 131072
TURN = "{{- '<|im_start|>assistant\\n' }}{%- endif %}"


def byte_characters():
    """The character by which a byte-level vocabulary writes each byte (GPT-2's table)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in kept}
    others = [byte for byte in range(256) if byte not in table]
    return {**table, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def pieces_of(text, vocabulary, used):
    """Ids of tokens that spell `text`, none of which is in `used`; makes the tokens that lack."""
    letters = byte_characters()
    spelled = "".join(letters[byte] for byte in text.encode())
    begin, ids = 0, []
    while begin < len(spelled):
        end = begin + PIECE
        while vocabulary.get(spelled[begin:end]) in used and end < len(spelled):
            end += 1
        if len(spelled) - end < PIECE:
            end = len(spelled)
        piece = vocabulary.setdefault(spelled[begin:end], len(vocabulary))
        assert piece not in used, f"the end of {text!r} is that of another answer"
        used.add(piece)
        ids.append(piece)
        begin = end
    return ids


def table_of(rows, width, entries):
    """`rows` x `width` in f32, zero but for entries (row, column, value)."""
    data = bytearray(4 * rows * width)
    for row, column, value in entries:
        struct.pack_into("<f", data, 4 * (row * width + column), value)
    return data, [rows, width]


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (data, shape) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data, _ in tensors.values():
            file.write(data)


def weights(num_tokens, steps):
    """steps: pairs (id, next id), each with a dimension of its own."""
    assert len(steps) <= WIDTH, f"{len(steps)} pieces, {WIDTH} at most"
    ones = struct.pack("<f", 1.0) * WIDTH, [WIDTH]
    layer = "model.layers.0."
    zero = {"self_attn.q_proj": (16, WIDTH), "self_attn.k_proj": (16, WIDTH),
            "self_attn.v_proj": (16, WIDTH), "self_attn.o_proj": (WIDTH, 16),
            "mlp.gate_proj": (16, WIDTH), "mlp.up_proj": (16, WIDTH),
            "mlp.down_proj": (WIDTH, 16)}
    return {
        "model.embed_tokens.weight": table_of(
            num_tokens, WIDTH, [(now, i, 1.0) for i, (now, _) in enumerate(steps)]),
        **{f"{layer}{name}.weight": table_of(*shape, []) for name, shape in zero.items()},
        f"{layer}input_layernorm.weight": ones,
        f"{layer}post_attention_layernorm.weight": ones,
        "model.norm.weight": ones,
        # The norm makes the one of the embedding sqrt(WIDTH) = 11.3.
        "lm_head.weight": table_of(num_tokens, WIDTH,
                                   [(then, i, 7.0) for i, (_, then) in enumerate(steps)]),
    }


def scripted_model(directory, answers):
    """Makes the model. `answers`: pairs (condition of Jinja over what a template sees, text); the
    first whose condition holds is the answer. The other rules are the demo model's."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    settings = json.loads((DEMO / "tokenizer_config.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    end, used, steps, cases = vocabulary["<|im_end|>"], set(), [], []
    for i, (condition, text) in enumerate(answers):
        begin = f"<|answer_{i}|>"
        vocabulary[begin] = len(vocabulary)
        tokenizer["added_tokens"].append({
            "id": vocabulary[begin], "content": begin, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True})
        ids = [vocabulary[begin], *pieces_of(text, vocabulary, used), end]
        steps += zip(ids, ids[1:])
        cases.append(f"{{%- {'el' if i else ''}if {condition} %}}{{{{- '{begin}' }}}}")
    template = settings["chat_template"]
    assert TURN in template, "the demo's template ends otherwise"
    settings["chat_template"] = template.replace(
        TURN, TURN.replace("{%- endif %}", "".join(cases) + "{%- endif %}{%- endif %}"))
    settings["model_max_length"] = CONTEXT
    config = json.loads((DEMO / "config.json").read_text())
    config.update(vocab_size=len(vocabulary), hidden_size=WIDTH, intermediate_size=16,
                  num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=16,
                  max_position_embeddings=CONTEXT, tie_word_embeddings=False,
                  torch_dtype="float32")
    for name, value in (("tokenizer", tokenizer), ("tokenizer_config", settings),
                        ("config", config)):
        (directory / f"{name}.json").write_text(json.dumps(value))
    write_safetensors(directory / "model.safetensors", weights(len(vocabulary), steps))
    return directory
