"""The models with layers that keep a state, as model_cases.py has the others: how each is saved, or
None for dummy weights, and its config.json. The run of 105 tokens crosses the border of a chunk of
transformers' (64), and its greedy part goes through its recurrent form."""

from model_cases import llama_like, without

STATE_TINY = {"vocab_size": 67, "max_position_embeddings": 128}


def lfm2(*args, **more):
    """block_ff_dim is written for an MLP of two matrices; transformers makes a third smaller."""
    made = llama_like("Lfm2ForCausalLM", "lfm2", *args, **{
        "norm_eps": 1e-5, "rope_theta": 1e6, "conv_L_cache": 3, "conv_bias": False,
        "block_multiple_of": 16, "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "conv"], **more})
    return without(made, "hidden_act")


STATE_CASES = {
    "state-lfm2": (None, lfm2(96, 6, 2, 150)),
    "state-lfm2-old-bf16": (None, without(lfm2(
        64, 4, 1, 160, "bfloat16", full_attn_idxs=[1, 2], conv_bias=True, conv_L_cache=4,
        block_ff_dim=200, block_ffn_dim_multiplier=1.3, tie_embedding=False),
        "layer_types", "intermediate_size")),
    "state-files-lfm2": ("plain", lfm2(48, 3, 1, 96, block_auto_adjust_ff_dim=False,
                                       tie_word_embeddings=True, **STATE_TINY)),
}
