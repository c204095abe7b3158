"""gpu_steps: estimates of whole steps, and the page that tests/gpu/gpu_report writes of them."""

import re

import gpu_model as model

ROWS = (1, 8, 64, 256)
DRAFTS = (1, 16)  # rows that verify 4 draft tokens each
CHOSEN = re.compile(r"^(decode|prefill|hopper_prefill|skinny|tiled|expert_\w+|packed_\w+|sample|"
                    r"route|choose|place|norm|qkv_skinny|rope_store|unpack)_kernel")


def stages(name):
    """Trips of the hot loop whose loads are under way together: the ring of attention_decode.cu."""
    found = re.match(r"decode_kernel<\w+, ([\w ]+), (\d+)>", name)
    if not found:
        return 1
    slot = int(found[2]) * (1 if found[1] == "unsigned char" else 2)
    warps = 4 if slot <= 256 else 2
    return min(6, 96 * 1024 // (warps * 2 * 16 * slot)) - 1


def all_steps(found):
    """Yields (machine, model, what, step, floor in us)."""
    for machine_name, machine in model.MACHINES.items():
        kernels = found.get(machine["target"])
        if not kernels:
            continue
        for name, shape in model.MODELS.items():
            for rows in ROWS:
                yield (machine_name, name, f"{rows} rows",
                       model.make_step(kernels, machine, shape, rows, 1),
                       model.floor_us(machine, shape, rows, 1))
            for rows in DRAFTS:
                yield (machine_name, name, f"{rows} x 5 tokens",
                       model.make_step(kernels, machine, shape, rows, 5),
                       model.floor_us(machine, shape, rows, 5))
            yield (machine_name, name, "prefill 8k",
                   model.make_step(kernels, machine, shape, 1, model.PREFILL),
                   model.floor_us(machine, shape, 1, model.PREFILL))


def packed_layers(found):
    """Yields (card, weights, rows, us with them, us with 16-bit weights, us of their bytes)."""
    dense, sparse = model.MODELS["8B"], model.MODELS["30B-A3B"]
    for card, machine in model.CARDS.items():
        kernels = found.get(machine["target"])
        for rows in model.PACKED_ROWS if kernels else ():
            plain = model.plain_linears_us(kernels, machine, dense, rows)
            for name, (_, unit_bytes) in model.PACKED.items():
                us = model.packed_linears_us(kernels, machine, dense, rows, name)
                yield card, name, rows, us, plain, model.bytes_us(machine, dense, unit_bytes)
            for name, (_, unit_bytes) in model.PACKED_EXPERTS.items():
                yield (card, f"experts in {name}", rows,
                       model.experts_us(kernels, machine, sparse, rows, name),
                       model.experts_us(kernels, machine, sparse, rows),
                       model.expert_bytes_us(machine, sparse, rows, unit_bytes))


def goals_of(weights, rows, us, plain, least):
    """Yields (goal, what it comes to, whether it is held) of packed layers."""
    if rows <= 16:
        yield "share of the time of their bytes >= 0.85", least / us, least / us >= 0.85
    if rows == 8192:
        yield "time over bf16 <= 1.1", us / plain, us / plain <= 1.1
    else:
        yield "time over bf16 <= 1", us / plain, us / plain <= 1
    if rows == 64 and model.is_of_4_bits(weights):
        yield "speed over bf16 >= 1.5", plain / us, plain / us >= 1.5


def all_goals(found):
    """Yields (card, weights, rows, goal, what it comes to, whether it is held)."""
    for card, weights, rows, us, plain, least in packed_layers(found):
        for goal, figure, held in goals_of(weights, rows, us, plain, least):
            if "bytes" not in goal or card != "L40S":
                yield card, weights, rows, goal, figure, held


def reason_of(reasons, card, weights, rows, goal):
    """Why a goal is missed, by the first row of performance.json that matches; None without one."""
    text = f"{card}, {weights}, {rows} rows: {goal}"
    return next((why for pattern, why in reasons if re.search(pattern, text)), None)


def rank_estimates(found):
    """Name -> microseconds of a rank's step, without exchanges, for tests/bench/rank_estimate."""
    machine = model.MACHINES["H100"]
    kernels = found.get(machine["target"])
    return {f"H100 {name}, {rows} rows, 1 of {ranks}":
            round(model.rank_us(kernels, machine, shape, rows, ranks), 1)
            for name, shape in model.RANK_MODELS.items() for rows in model.RANK_ROWS
            for ranks in model.RANKS if kernels}


def estimates(found):
    """Name of a step or of packed layers -> microseconds."""
    steps = {f"{machine} {name} {what}": round(step.total(), 1)
             for machine, name, what, step, _ in all_steps(found)}
    packed = {f"{card} {weights}, {rows} rows": round(us, 1)
              for card, weights, rows, us, _, _ in packed_layers(found)}
    return {**steps, **packed, **rank_estimates(found)}


def merged(rows):
    """Kernels without their 16-bit type: bf16 stands for both."""
    return {re.sub(r"__nv_bfloat16(, )?", "", name).replace("unsigned char", "e4m3")
            .replace("<>", ""): row for name, row in rows.items()
            if "__half" not in name and CHOSEN.match(name)}


def kernel_table(gpu, rows, wavefronts):
    lines = [f"## Kernels, {gpu}, code for {model.MACHINES[gpu]['target']}", "",
             "| kernel | registers | local bytes | blocks an SM | KB in flight | instructions a KB "
             "| a product | wavefronts |", "|---|---|---|---|---|---|---|---|"]
    took = merged(wavefronts)
    for name, row in merged(rows).items():
        cells = [row["registers"], row["spilled"] or "-", row["blocks"], row.get("flight", "-"),
                 row.get("per_kb", "-"), row.get("per_product", "-"), took.get(name, "-")]
        lines.append(f"| `{name}` | " + " | ".join(map(str, cells)) + " |")
    return lines + [""]


def step_table(found):
    lines = ["## Steps", "", "A decode of so many rows over 1,024 tokens each, one of rows with 4 "
             "draft tokens, and the", "forward of a prompt of 8,192, with top_p and top_k. "
             "`limit`: bytes over the read rate, or flop over the", "rate of the tensor cores.", "",
             "| machine | model | step | us | share of the limit | launches | a layer | "
             "longest kernels, share |", "|---|---|---|---|---|---|---|---|"]
    for machine, name, what, step, floor in all_steps(found):
        total, layers = step.total(), model.MODELS[name]["layers"]
        parts = {}
        for kernel, us, times in step.launches:
            parts[kernel] = parts.get(kernel, 0) + us * times
        longest = sorted(parts.items(), key=lambda part: -part[1])[:3]
        text = ", ".join(f"{kernel.split('<')[0]} {us / total:.0%}" for kernel, us in longest)
        a_layer = sum(times for _, _, times in step.launches if times >= layers) / layers
        lines.append(f"| {machine} | {name} | {what} | {total:,.0f} | {floor / total:.0%} | "
                     f"{step.count()} | {a_layer:g} | {text} |")
    return lines + [""]


def packed_table(found):
    rows = model.PACKED_ROWS
    lines = ["## Packed weights", "",
             "Milliseconds a step of all linear layers of the 8B model, or of the experts of "
             "30B-A3B, by rows. H200,", "RTX 4090 and RTX 5090 are taken to run the code that was "
             "counted for H100 and L40S.", "",
             "| card | weights | " + " | ".join(f"{count:,} rows" for count in rows) + " |",
             "|---|---|" + "---|" * len(rows)]
    cells = {}
    for card, weights, _, us, plain, _ in packed_layers(found):
        beside = "experts in bf16" if weights.startswith("experts") else "bf16"
        if weights in (next(iter(model.PACKED)), "experts in MXFP4"):
            cells.setdefault((card, beside), []).append(f"{plain / 1e3:.3g}")
        cells.setdefault((card, weights), []).append(f"{us / 1e3:.3g}")
    for (card, weights), line in cells.items():
        lines.append(f"| {card} | {weights} | " + " | ".join(line) + " |")
    return lines + [""]


def goal_table(found, reasons):
    """How many goals are held, and those that are not, one row for each reason and card."""
    held, missed = {}, {}
    for card, weights, rows, goal, figure, is_held in all_goals(found):
        count = held.setdefault(goal, [0, 0])
        count[0] += is_held
        count[1] += 1
        if not is_held:
            why = reason_of(reasons, card, weights, rows, goal) or "not known"
            missed.setdefault((goal, why), {}).setdefault((card, weights), []).append(
                f"{rows:,}: {figure:.2f}")
    lines = ["### Goals", "", "Of packed weights, at each number of rows of the table above. Bytes "
             "are read at 92 % of the data sheet's rate;", "that goal is not one of the L40S. A "
             "missed goal without a reason fails `make gpu-report`.", "",
             "| goal | held |", "|---|---|"]
    lines += [f"| {goal} | {count[0]} of {count[1]} |" for goal, count in held.items()]
    lines += ["", "| goal | missed, at rows: figure | why |", "|---|---|---|"]
    for (goal, why), places in missed.items():
        text = "; ".join(f"{card}, {weights}, {', '.join(figures)}"
                         for (card, weights), figures in places.items())
        lines.append(f"| {goal} | {text} | {why} |")
    return lines + [""]


HEAD = """\
Generated by tests/gpu/gpu_report

# Speed without a GPU

Counts from the machine code of nvcc {nvcc} ([gpu_sass.py](../gpu/gpu_sass.py)) and estimates
of a small model of GPUs ([gpu_model.py](../gpu/gpu_model.py)). No figure here was
measured: they rank kernels and show what a change does. `make gpu-report` fails when a kernel or a
step becomes worse than this page; `tests/gpu/gpu_report --write` writes it. When a GPU is had, each
estimate will stand beside its measurement.

Instructions are those of one trip of a kernel's hot loop, a KB of weights or keys, or a product of
the tensor cores. On an H100 about 280 a KB are as long as the bytes take; 64 KB in flight an SM are
enough for its latency. `local bytes` are loads and stores of local memory in the code: spills.
`wavefronts` are those of accesses to shared memory for one without a conflict of banks, counted
when `make ptx` runs the first block of each test's launch from PTX (code for sm_90a).
{missing}"""


def changes(data):
    """The slow places, before and after; data["changes"] is written by hand."""
    lines = ["## Slow places, before and after", "",
             "Estimates for an H100 of kernels as they were and as they are. Those of before were "
             "computed by hand", "from the older machine code, and not all by today's formulas: "
             "a ratio is rough.", "",
             "| place | what | before | after | how |", "|---|---|---|---|---|"]
    for row in data["changes"]:
        lines.append("| " + " | ".join(str(cell) for cell in row) + " |")
    return lines + [""]


def missing(rows):
    """A sentence on the machines whose code was not at hand."""
    names = [name for name in model.MACHINES if not rows[name]]
    text = ", ".join(names)
    return f"\nNot at hand when this was written: the code for {text}.\n" if names else ""


def page(found, rows, _, data):
    head = HEAD.format(nvcc=data["nvcc"], missing=missing(rows))
    lines = [head] + changes(data) + packed_table(found) + goal_table(found, data["reasons"])
    lines += step_table(found)
    for gpu, kernels in rows.items():
        lines += kernel_table(gpu, kernels, data["wavefronts"])
    return "\n".join(lines).rstrip() + "\n"
