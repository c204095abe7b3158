"""gpu_model: a small model of GPUs, for tests/gpu/gpu_report: times of kernels and steps.

A kernel takes the longest of what bounds it: bytes of device memory, bytes in flight over the
latency, instructions issued, those of narrow pipes (exponentials, doubles, conversions), products,
shared memory; and a start. Counts are those of the machine code (gpu_sass). No product is taken to
be faster than one that somebody measured. Figures rank the kernels and show a change of one; none
was ever measured. What is assumed stands in MACHINES and in the constants below it.
"""

import math

# Data sheets: 16-bit flop a clock and multiprocessor (dense), memory in bytes/s.
MACHINES = {
    "A100": {"target": "sm_80", "sms": 108, "clock": 1.41e9, "memory": 2.039e12, "flop": 2048,
             "shared": 164 << 10, "threads": 2048, "blocks": 32, "gap": 1.0, "capability": 80},
    "L40S": {"target": "sm_80", "sms": 142, "clock": 2.52e9, "memory": 0.864e12, "flop": 1024,
             "shared": 100 << 10, "threads": 1536, "blocks": 24, "gap": 1.0, "capability": 89},
    "H100": {"target": "sm_90a", "sms": 132, "clock": 1.755e9, "memory": 3.35e12, "flop": 4096,
             "shared": 228 << 10, "threads": 2048, "blocks": 32, "gap": 1.0, "capability": 90},
}
# Results a clock and multiprocessor of the narrow pipes, CUDA C++ Programming Guide, "Throughput of
# Native Arithmetic Instructions": special functions, doubles, conversions of 64 bits and others.
PIPES = {80: {"special": 16, "double": 32, "wide": 16, "converts": 64},
         89: {"special": 16, "double": 2, "wide": 2, "converts": 64},
         90: {"special": 16, "double": 64, "wide": 16, "converts": 64},
         120: {"special": 16, "double": 2, "wide": 2, "converts": 64}}
# The most of the tensor cores that attention of a prompt was measured to reach, causal, heads of
# 128: FlashAttention-3 602 of 989 TFLOP/s on an H100; FlashAttention-2 at most 73 % on an A100.
ATTENTION_SHARE = {"sm_80": 0.73, "sm_90a": 602 / 989}
READ_SHARE = 0.92     # of the data sheet's bandwidth that a read stream gets
MMA_SHARE = {"sm_80": 1.0, "sm_90a": 0.62}  # of the flop that mma.sync reaches
LIBRARY_SHARE = 0.80  # of the flop or bytes, of cuBLASLt
LATENCY = 0.75        # us, device memory under load
L2_LATENCY = 0.30     # us
OVERLAPPED = 0.4      # us between dependent kernels that overlap (H100), else `gap`
SHARED_A_CLOCK = 128  # bytes
L2_A_CLOCK = 64       # bytes that one multiprocessor reads
RESERVED = 1024       # bytes of shared memory of a block that the driver takes
SM_REGISTERS, GRAIN = 65536, 256
TRIPS_AHEAD = 2       # of a warp of a linear layer: one in registers, one in L2

MODELS = {
    "1B": {"layers": 16, "hidden": 2048, "heads": 32, "kv": 8, "dim": 64, "width": 8192,
           "vocab": 128256},
    "8B": {"layers": 32, "hidden": 4096, "heads": 32, "kv": 8, "dim": 128, "width": 14336,
           "vocab": 128256},
    "30B-A3B": {"layers": 48, "hidden": 2048, "heads": 32, "kv": 4, "dim": 128, "width": 768,
                "vocab": 151936, "experts": 128, "top_k": 8, "head_norms": True},
}
CONTEXT, PREFILL = 1024, 8192
HALF = "__nv_bfloat16"


# ---- packed weights ----

# Cards whose own code nobody counts: they are taken to run that of the target.
CARDS = {
    **MACHINES,
    "H200": {**MACHINES["H100"], "memory": 4.8e12},
    "RTX 4090": {**MACHINES["L40S"], "sms": 128, "memory": 1.008e12, "flop": 512},
    "RTX 5090": {**MACHINES["L40S"], "sms": 170, "clock": 2.41e9, "memory": 1.792e12, "flop": 512,
                 "capability": 120},
}
# Codes, scales and unpacking of a kernel (kernel_types.h), and bytes of 1,024 weights.
PACKED = {
    "FP8, a scale a row": ((3, 4, 0), 1056),
    "Q8_0": ((2, 1, 2), 1088),
    "Q6_K": ((2, 2, 0), 1104),
    "Q4_0": ((1, 1, 2), 576),
    "Q4_K": ((1, 2, 1), 608),
    "4 bits, groups of 128": ((1, 4, 2), 576),
    "the same, scales of 16 bits": ((1, 5, 2), 544),
}
PACKED_EXPERTS = {"MXFP4": ((5, 3, 2), 544)}
PLAIN = ((0, 0, 0), 2048)
PACKED_CHUNKED_ROWS = 128     # in launches of 32 (packed_chunks.h)
PACKED_NORM_VALUES = 16384    # GPU_PACKED_NORM_VALUES
PACKED_ROWS = (1, 8, 16, 32, 33, 64, 256, 8192)
SLICE_BYTES = 64 << 20        # of a matrix that is unpacked for many rows (cuda/unpacked.c)

# What docs/ranks.md has estimates of, by the ranks that share the model.
FP8 = "FP8, a scale a row"
RANK_MODELS = {
    "Llama 3.1 8B, FP8": {**MODELS["8B"], "weights": FP8},
    "Llama 3.1 70B, FP8": {"layers": 80, "hidden": 8192, "heads": 64, "kv": 8, "dim": 128,
                           "width": 28672, "vocab": 128256, "weights": FP8},
    "gpt-oss-120b, MXFP4": {"layers": 36, "hidden": 2880, "heads": 64, "kv": 8, "dim": 64,
                            "width": 2880, "vocab": 201088, "experts": 128, "top_k": 4,
                            "experts_in": "MXFP4"},
}
RANKS, RANK_ROWS = (1, 2, 4, 8), (1, 64)


def is_of_4_bits(weights):
    return PACKED.get(weights, PLAIN)[0][0] == 1


# ---- one kernel ----

def occupancy(kernel, machine):
    """Blocks of a kernel that a multiprocessor holds."""
    warps = kernel["block"] // 32
    of_warp = -(-kernel["registers"] * 32 // GRAIN) * GRAIN
    by_registers = SM_REGISTERS // of_warp // 4 * 4 // warps
    shared = kernel["static"] + kernel["dynamic"] + (0 if kernel["static"] else RESERVED)
    return max(0, min(by_registers, machine["threads"] // kernel["block"], machine["blocks"],
                      machine["shared"] // shared))


def in_flight(kernel, machine, blocks=None):
    """Bytes of a multiprocessor that are on their way, with `blocks` blocks in the grid."""
    held = occupancy(kernel, machine)
    if blocks is not None:
        held = min(held, max(1, blocks // machine["sms"]))
    return held * (kernel["block"] // 32) * kernel["hot"]["streamed"] * kernel.get("stages", 1)


def start(kernel, machine):
    """From the end of the kernel before to the first work of this one."""
    overlaps = machine["target"] == "sm_90a" and kernel["dependent"]
    return OVERLAPPED if overlaps else machine["gap"]


def issue_us(instructions, machine, sms):
    return instructions / (4 * machine["clock"] * sms) * 1e6


def trip_clocks(hot, machine):
    """Clocks of a multiprocessor for one trip of a warp: four issue at once; pipes are narrower."""
    pipes = PIPES[machine["capability"]]
    return max(hot["instructions"] / 4, *(hot[pipe] * 32 / lanes for pipe, lanes in pipes.items()))


def stream_us(kernel, machine, nbytes, blocks, rate=None):
    """A kernel that reads `nbytes` once; blocks beyond those that fit take further turns."""
    hot, sms = kernel["hot"], min(machine["sms"], blocks)
    trips = nbytes / hot["streamed"]
    return start(kernel, machine) + LATENCY + max(
        nbytes / (rate or machine["memory"] * READ_SHARE) * 1e6,
        nbytes / (sms * in_flight(kernel, machine, blocks)) * LATENCY,
        trips * trip_clocks(hot, machine) / (machine["clock"] * sms) * 1e6,
        trips * hot["shared"] / (SHARED_A_CLOCK * machine["clock"] * sms) * 1e6)


def ahead_us(kernel, machine, nbytes, blocks, idle):
    """What a linear layer has read of its weights when its inputs are there: the memory was idle so
    long, and each block that is there asks for its first trips."""
    if start(kernel, machine) != OVERLAPPED:
        return 0
    held = min(blocks, occupancy(kernel, machine) * machine["sms"])
    asked = held * (kernel["block"] // 32) * kernel["hot"]["streamed"] * TRIPS_AHEAD
    return min(idle, min(nbytes, asked) / (machine["memory"] * READ_SHARE) * 1e6)


def product_us(kernel, machine, flop, blocks, share=1.0):
    """A kernel of `flop` flop on the tensor cores, shared evenly by `blocks`; at most `share` of
    what the tensor cores reach."""
    hot, wgmma = kernel["hot"], kernel["hgmma"] > 0
    held = occupancy(kernel, machine) * machine["sms"]
    full = max(1.0, math.ceil(blocks / held) * held / blocks)  # the last turn is not full
    rate = machine["flop"] * (1 if wgmma else MMA_SHARE[machine["target"]])
    trips = flop / hot["flop"]
    rate = min(rate, machine["flop"] * share)
    seconds = max(flop / rate, trips * trip_clocks(hot, machine),
                  trips * hot["shared"] / SHARED_A_CLOCK) / (machine["clock"] * machine["sms"])
    return start(kernel, machine) + LATENCY + seconds * full * 1e6


def chain_us(kernel, machine, trips):
    """A small kernel: so many dependent loads of what lies in L2."""
    return start(kernel, machine) + trips * L2_LATENCY


def library_us(machine, rows, n, k):
    flop, nbytes = 2 * rows * n * k, 2 * (n * k + rows * (n + k))
    return machine["gap"] + LATENCY + max(
        flop / (machine["flop"] * machine["clock"] * machine["sms"]),
        nbytes / (machine["memory"] * READ_SHARE)) / LIBRARY_SHARE * 1e6


def unpacks(machine):
    """Whether its tensor cores outrun kernels that unpack (device_t.unpacks)."""
    return machine["capability"] in (80, 90)


def unpack_us(kernels, machine, count, weights, slices):
    """Kernels that unpack `count` weights: each warp 1,024 of them, in one pass of its code; that
    of the kind of scales that takes the fewest instructions."""
    kind, unit_bytes = PACKED[weights]
    kernel = kernels[f"unpack_kernel<{HALF}, {kind[0]}>"]
    return slices * (machine["gap"] + LATENCY) + max(
        count * (unit_bytes / 1024 + 2) / (machine["memory"] * READ_SHARE) * 1e6,
        issue_us(count / 1024 * kernel["pass"], machine, machine["sms"]))


# ---- the kernels of a step ----

class Step:
    """The launches of one step: [(name, us, times)]."""

    def __init__(self, kernels, machine, model):
        self.kernels, self.machine, self.model = kernels, machine, model
        self.launches = []
        self.idle = 0  # us that the memory was idle in the kernel before

    @staticmethod
    def normed(rows):
        """Whether a layer of so many rows norms its inputs itself."""
        return rows <= NORM_ROWS

    def add(self, name, us, times=1, idle=0):
        self.launches.append((name, us, times))
        self.idle = idle

    def kernel(self, name):
        return self.kernels[name]

    def small(self, name, trips, times=1):
        self.add(name, chain_us(self.kernel(name), self.machine, trips), times, trips * L2_LATENCY)

    def stores(self, rows):
        """Whether the layer of q, k and v rotates and stores them itself (gemm_qkv.cu)."""
        return rows <= 32 and "head_norms" not in self.model and "weights" not in self.model

    def linear(self, what, rows, n, k, norm, times, stores=False):
        """A layer of n outputs (gate and up count) of k inputs."""
        if "weights" in self.model and what != "logits":
            return self.packed(what, rows, n, k, norm, times)
        if rows > 32:
            return self.add(what, library_us(self.machine, rows, n, k), times)
        groups, tiles = (1, 1) if rows <= 8 else (2, 2) if rows <= 16 else (4, 2)
        name = "qkv_skinny_kernel" if stores else "skinny_kernel"
        kernel = self.kernel(f"{name}<{HALF}, {groups}, {tiles}, {str(norm).lower()}>")
        blocks = -(-n // (16 * tiles))
        split = 1
        while split < 4 and blocks * split < self.machine["sms"]:
            split *= 2
        us = stream_us(kernel, self.machine, 2 * n * k, blocks * split)
        us -= ahead_us(kernel, self.machine, 2 * n * k, blocks * split, self.idle)
        if norm:  # each warp walks its rows, a row's loads at once
            us += -(-rows // 8) * L2_LATENCY * max(1, k * 2 // 4096)
        if stores:  # slots and angles
            us += L2_LATENCY
        self.add(what, us, times)
        return None

    def packed(self, what, rows, n, k, norm, times):
        """The same with packed weights, and the norm where it is a kernel of its own: a chunk of 32
        rows reads them all; beyond they are unpacked, where the tensor cores are fast."""
        kind, unit_bytes = PACKED[self.model["weights"]]
        machine, codes_bytes = self.machine, n * k // (2 if kind[0] in (1, 4) else 1)
        rate = machine["memory"] * READ_SHARE * codes_bytes * 1024 / (unit_bytes * n * k)
        inside = norm and rows * k <= PACKED_NORM_VALUES and self.normed(rows)
        if norm and not inside:
            self.norms(rows, times)
        if rows > PACKED_CHUNKED_ROWS and unpacks(machine):
            slices = -(-2 * n * k // SLICE_BYTES)
            self.add(what, unpack_us(self.kernels, machine, n * k, self.model["weights"], slices) +
                     slices * library_us(machine, rows, n // slices, k), times)
            return
        if rows > PACKED_CHUNKED_ROWS:
            kernel = self.kernel(f"packed_tiled_kernel<{HALF}, {kind[0]}>")
            us = max(product_us(kernel, machine, 2 * rows * n * k, n // 128 * -(-rows // 128)),
                     codes_bytes / rate * 1e6)
            self.add(what, us, times)
        for first in range(0, rows if rows <= PACKED_CHUNKED_ROWS else 0, 32):
            count = min(32, rows - first)
            groups, tiles = (1, 1) if count <= 8 else (2, 2) if count <= 16 else (4, 2)
            kernel = self.kernel(f"packed_skinny_kernel<{HALF}, {kind[0]}, {kind[1]}, {kind[2]}, "
                                 f"{groups}, {tiles}, {str(inside).lower()}>")
            split = 1
            while split < 4 and n // (16 * tiles) * split < machine["sms"]:
                split *= 2
            us = stream_us(kernel, machine, codes_bytes, n // (16 * tiles) * split, rate)
            self.add(what, us + (L2_LATENCY * max(1, k * 2 // 4096) if inside else 0), times)

    def experts(self, rows, times):
        """The products of the experts that are here."""
        model, machine = self.model, self.machine
        ranks, name = model.get("ranks", 1), model.get("experts_in")
        kind, unit_bytes = PACKED_EXPERTS[name] if name else PLAIN
        pairs, experts = rows * model["top_k"] / ranks, model["experts"] / ranks
        met, few = met_experts(model, rows) / ranks, pairs / experts <= 32
        kernel = self.kernel(f"expert_skinny_kernel<{HALF}, {kind[0]}, {kind[1]}, {kind[2]}>" if few
                             else f"expert_tiled_kernel<{HALF}, {kind[0]}>")
        hidden, width, streamed = model["hidden"], model["width"], 0.5 if name else 2
        rate = machine["memory"] * READ_SHARE * streamed * 1024 / unit_bytes
        for what, n, k in (("expert up", 2 * width, hidden), ("expert down", hidden, width)):
            nbytes = met * n * k * streamed
            us = (stream_us(kernel, machine, nbytes, max(1, int(met * n / 16)), rate) if few else
                  max(product_us(kernel, machine, 2 * pairs * n * k, int(met * n / 128)),
                      nbytes / rate * 1e6))
            self.add(what, us, times)

    def norms(self, rows, times):
        self.small(f"norm_kernel<{HALF}>", 3 + rows * self.model["hidden"] / 4e6, times)

    def total(self):
        return sum(us * times for _, us, times in self.launches)

    def count(self):
        return sum(times for _, _, times in self.launches)


def cuts_of(context):
    """Pieces of a row (pieces.h): 128 keys each up to 2,048, then 16 a doubling."""
    return -(-context // 128) if context <= 2048 else round(16 * math.log2(context / 1024))


def decode_us(kernel, machine, model, rows, queries, context):
    """Attention of rows of few query tokens, and the fold of their cuts by the last of each; and
    how long the memory is idle meanwhile."""
    group, warps = model["heads"] // model["kv"], kernel["block"] // 32
    shares = max(1, 16 // group)          # query tokens of a tile
    tiles, cuts = -(-queries // shares), cuts_of(context)
    read = rows * context * 2 * model["kv"] * model["dim"] * 2
    blocks = max(1, rows * model["kv"] * tiles * cuts // warps)
    us = stream_us(kernel, machine, read, blocks)
    free = max(0, 1 - blocks / machine["sms"])  # multiprocessors with room for the next kernel
    again = stream_us(kernel, machine, read * tiles, blocks, L2_A_CLOCK * machine["clock"] *
                      machine["sms"])     # further tiles find the keys in L2
    vectors = -(-min(queries, shares) * group * model["dim"] // (4 * 32 * 4))
    us = max(us, again) + (4 + 2 + vectors * -(-cuts // 4)) * L2_LATENCY
    busy = start(kernel, machine) + read / (machine["memory"] * READ_SHARE) * 1e6
    return us, max(0, us - busy) * free


def attention(step, rows, queries):
    """Rotation and attention of one layer; few queries a row are a decode."""
    model, machine, layers = step.model, step.machine, step.model["layers"]
    tokens = rows * queries
    if not step.stores(tokens):
        step.small(f"rope_store_kernel<{HALF}>",
                   4 + tokens * (model["heads"] + 2 * model["kv"]) / (machine["sms"] * 64), layers)
    if queries <= DECODE_QUERIES:
        kernel = step.kernel(f"decode_kernel<{HALF}, {HALF}, {model['dim']}>")
        us, idle = decode_us(kernel, machine, model, rows, queries, CONTEXT)
        step.add("attention", us, layers, idle)
        return
    hopper = machine["target"] == "sm_90a"
    kernel = step.kernel(f"hopper_prefill_kernel<{HALF}, {model['dim']}>" if hopper else
                         f"prefill_kernel<{HALF}, {HALF}, {model['dim']}>")
    flop = 2 * queries * queries * model["heads"] * model["dim"]
    step.add("attention", product_us(kernel, machine, flop, model["heads"] * queries // 128,
                                     ATTENTION_SHARE[machine["target"]]), layers)


def dense_block(step, rows, layers):
    model = step.model
    step.linear("gate and up", rows, 2 * model["width"], model["hidden"], step.normed(rows), layers)
    if rows > 32:
        step.small(f"activation_kernel<{HALF}, 4>", 2 + rows * model["width"] / 4e6, layers)
    step.linear("down", rows, model["hidden"], model["width"], False, layers)


def met_experts(model, rows):
    """Of all experts, those that so many rows chose, each expert being as likely as the others."""
    return model["experts"] * (1 - (1 - model["top_k"] / model["experts"]) ** rows)


def expert_block(step, rows, layers):
    """Router, choice, places, experts, their sum."""
    model = step.model
    top_k, hidden = model["top_k"], model["hidden"]
    pairs = rows * top_k
    step.norms(rows, layers)
    step.add("route", route_us(step, rows), layers)
    if rows > ROUTE_FEW:
        step.small("choose_kernel", 3 + top_k, layers)
    step.small("place_kernel", 6 + pairs / 256 * 2 + (1 + top_k) * (rows <= ROUTE_FEW), layers)
    step.experts(rows, layers)
    step.small(f"mix_kernel<{HALF}>", 3 + rows * top_k * hidden / 1e7, layers)


def linears(model):
    """(outputs, inputs, whether they are normed) of the linear layers of a dense layer."""
    hidden, inner = model["hidden"], model["heads"] * model["dim"]
    return [(inner + 2 * model["kv"] * model["dim"], hidden, True), (hidden, inner, False),
            (2 * model["width"], hidden, True), (hidden, model["width"], False)]


def plain_linears_us(kernels, machine, model, rows):
    """The linear layers of a step with 16-bit weights, and their norms."""
    step = Step(kernels, machine, model)
    for n, k, norm in linears(model):
        step.linear("linear", rows, n, k, norm and step.normed(rows), model["layers"])
    if not step.normed(rows):
        step.norms(rows, 2 * model["layers"])
    return step.total()


def packed_linears_us(kernels, machine, model, rows, weights):
    """The same with packed weights."""
    step = Step(kernels, machine, {**model, "weights": weights})
    for n, k, norm in linears(model):
        step.packed("linear", rows, n, k, norm, model["layers"])
    return step.total()


def bytes_us(machine, model, unit_bytes):
    """What reading all linear layers takes, 1,024 weights being so many bytes."""
    count = sum(n * k for n, k, _ in linears(model)) * model["layers"]
    return count * unit_bytes / 1024 / (machine["memory"] * READ_SHARE) * 1e6


def expert_bytes_us(machine, model, rows, unit_bytes):
    """The same of the experts that so many rows meet."""
    experts = met_experts(model, rows)
    count = 3 * model["hidden"] * model["width"] * experts * model["layers"]
    return count * unit_bytes / 1024 / (machine["memory"] * READ_SHARE) * 1e6


def experts_us(kernels, machine, model, rows, weights=None):
    """The experts of a step; 16-bit weights without a name."""
    step = Step(kernels, machine, {**model, "experts_in": weights})
    step.experts(rows, model["layers"])
    return step.total()


DECODE_QUERIES = 16  # of a row that the decode kernel takes (GPU_DECODE_QUERIES_MAX)
ROUTE_FEW = 32     # rows up to which place_kernel routes them (moe.cu)
NORM_ROWS = 8      # rows up to which a norm is part of the layer's kernel (GPU_NORM_ROWS_MAX)
SAMPLE_PASSES = 2  # over a row with top_k and top_p
SAMPLE_LIST = 4.0  # us for the list: bound, ranks, barriers, the draw


def route_us(step, rows):
    """The router's logits: a warp has one expert of 2 or 8 rows, 256 columns a trip."""
    model, machine = step.model, step.machine
    few = 2 if rows <= ROUTE_FEW else 8
    kernel = step.kernel(f"route_kernel<{HALF}, {few}>")
    hot, warps = kernel["hot"], kernel["block"] // 32
    groups, blocks = -(-rows // few), -(-model["experts"] // warps) * -(-rows // few)
    sms = min(machine["sms"], blocks)
    of_one = max(1, (hot["loads"] - hot["narrow"]) // (2 + few))  # trips that became one
    trips = model["hidden"] / 256 / of_one
    turns = -(-blocks // (machine["sms"] * occupancy(kernel, machine)))
    read = model["experts"] * model["hidden"] * 4
    return start(kernel, machine) + LATENCY + max(
        turns * trips * L2_LATENCY,
        issue_us(blocks * warps * trips * hot["instructions"], machine, sms),
        read * groups / (L2_A_CLOCK * machine["clock"] * sms) * 1e6,
        read / (machine["memory"] * READ_SHARE) * 1e6)


def sample_us(step, rows):
    """A block a row: passes over the row, which lies in L2, then its list."""
    kernel, machine, vocab = step.kernel("sample_kernel"), step.machine, step.model["vocab"]
    ahead = kernel["hot"]["loads"]
    one = max(vocab * 4 / (L2_A_CLOCK * machine["clock"]) * 1e6,
              vocab / (kernel["block"] * ahead) * L2_LATENCY)
    turns = -(-rows // machine["sms"])
    return start(kernel, machine) + turns * (SAMPLE_PASSES * one + SAMPLE_LIST)


def make_step(kernels, machine, model, rows, queries):
    """The step of `rows` requests of `queries` tokens each."""
    step = Step(kernels, machine, model)
    layers, hidden, tokens = model["layers"], model["hidden"], rows * queries
    qkv = (model["heads"] + 2 * model["kv"]) * model["dim"]
    step.small("inputs_kernel", 4)
    step.small("rope_table_kernel", 3)
    step.small("plan_kernel", 8)
    step.small(f"embed_kernel<{HALF}>", 2 + tokens * hidden / 4e6)
    if not step.normed(tokens):
        step.norms(tokens, 2 * layers if "experts" not in model else layers)
    step.idle = 0  # behind the layer before, not behind the embedding
    step.linear("q, k, v", tokens, qkv, hidden, step.normed(tokens), layers, step.stores(tokens))
    attention(step, rows, queries)
    step.linear("o", tokens, hidden, model["heads"] * model["dim"], False, layers)
    (expert_block if "experts" in model else dense_block)(step, tokens, layers)
    drawn = tokens if queries <= DECODE_QUERIES else rows
    step.linear("logits", drawn, model["vocab"], hidden, step.normed(drawn), 1)
    step.add("sample", sample_us(step, drawn))
    return step


def rank_us(kernels, machine, model, rows, ranks):
    """The step of one of several ranks, without what they exchange: its share of heads, columns,
    experts and vocabulary."""
    share = {**model, "heads": model["heads"] // ranks, "kv": max(1, model["kv"] // ranks),
             "vocab": model["vocab"] // ranks, "ranks": ranks}
    if "experts" not in model:
        share["width"] = model["width"] // ranks
    return make_step(kernels, machine, share, rows, 1).total()


def floor_us(machine, model, rows, queries):
    """What the memory or the tensor cores take at least."""
    layers, hidden, dim, tokens = (model["layers"], model["hidden"], model["dim"], rows * queries)
    inner = (model["heads"] + 2 * model["kv"]) * dim * hidden + model["heads"] * dim * hidden
    expert = 3 * hidden * model["width"]
    if "experts" in model:
        share = 1 - (1 - model["top_k"] / model["experts"]) ** tokens
        read = inner + expert * model["experts"] * share
        used = inner + expert * model["top_k"]
    else:
        read = used = inner + expert
    head = model["vocab"] * hidden
    keys = rows * (CONTEXT if queries <= DECODE_QUERIES else 0) * 2 * model["kv"] * dim * layers
    nbytes = 2 * (read * layers + head + keys)
    flop = 2 * tokens * used * layers + 2 * rows * head
    if queries > DECODE_QUERIES:
        flop += 2 * queries * queries * model["heads"] * dim * layers
    return max(nbytes / (machine["memory"] * READ_SHARE),
               flop / (machine["flop"] * machine["clock"] * machine["sms"])) * 1e6
