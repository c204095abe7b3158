#!/usr/bin/env python3
"""Compares adapters drawn over the fields of PEFT's LoraConfig with PEFT itself.

    tests/parity/parity_adapters.py --build build [--seed N] [--count 60] [--device cpu]
        [--fields use_dora,bias]

Every field of PEFT's LoraConfig, read by introspection, has a line in DRAWS; a PEFT with a new
field fails here until someone has said what the field does, and
engine/model/adapter/adapter_keys.def, which must name exactly the same fields, knows it. Each
adapter draws some fields, gets random weights (all drawn from --seed, which is new each time and
printed) and is loaded by a running server and by PeftModel.from_pretrained. The log probabilities
of a prompt, of the adapter and of the base, must be equal (1e-5 in float32, relative to the
largest logit above 1), or the server refuses the adapter and names the field or the tensor. What
PEFT refuses, the server must refuse, too.

Ends with `N equal, N refused, N served with other numbers`; exit 1 when the last is not 0, or when
fewer than half were served.
"""

import argparse
import collections
import dataclasses
import json
import os
import random
import re
import sys
import tempfile
import urllib.error
import urllib.request
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import torch  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

import decoder_cases  # noqa: E402
import model_cases  # noqa: E402
import models  # noqa: E402
from model_files import save  # noqa: E402
from model_weights import fill  # noqa: E402
from parity_embeddings import serve  # noqa: E402
from parity_served import post  # noqa: E402

LENGTH, TOLERANCE, BY_MODEL = 24, 1e-5, 5
FIELDS = {field.name for field in dataclasses.fields(LoraConfig)}
KINDS = {"llama": lambda: model_cases.llama(64, 4, 2, 96, head_dim=16),
         "tied": lambda: model_cases.llama(64, 4, 2, 96, head_dim=16, tie_word_embeddings=True),
         "qwen2": lambda: model_cases.qwen2(64, 4, 2, 96),
         "qwen3": lambda: model_cases.qwen3(64, 4, 2, 96, head_dim=16),
         "opt": lambda: model_cases.opt(64, 4, 96),
         "gpt2": lambda: model_cases.gpt2(64, 2),
         "phi3": lambda: model_cases.phi3(64, 4, 2, 96),
         "gemma2": lambda: model_cases.gemma2(64, 4, 2, 96, head_dim=16),
         "gemma3": lambda: model_cases.gemma3(64, 4, 2, 96, head_dim=16),
         "mixtral": lambda: model_cases.mixtral(64, 4, 2, 96),
         "qwen3-moe": lambda: model_cases.qwen3_moe(64, 4, 2, 96, head_dim=16),
         "olmo2": lambda: model_cases.olmo2(64, 4, 2, 96),
         "granite": lambda: model_cases.granite(64, 4, 2, 96),
         "starcoder2": lambda: model_cases.starcoder2(64, 4, 2, 96),
         "gpt-neox": lambda: decoder_cases.gpt_neox(64, 4, 96),
         "falcon": lambda: decoder_cases.falcon(64, 4, new_decoder_architecture=True,
                                                num_kv_heads=2, num_ln_in_parallel_attn=2),
         "stablelm": lambda: decoder_cases.stablelm(64, 4, 2, 96, qk_layernorm=True),
         "cohere": lambda: decoder_cases.cohere(64, 4, 2, 96),
         "glm": lambda: decoder_cases.glm(64, 4, 2, 96),
         "glm4": lambda: decoder_cases.glm4(64, 4, 2, 96),
         "exaone4": lambda: decoder_cases.exaone4(64, 4, 2, 96),
         "ernie4_5": lambda: decoder_cases.ernie4_5(64, 4, 2, 96),
         "helium": lambda: decoder_cases.helium(64, 4, 2, 96),
         "phi": lambda: decoder_cases.phi(64, 4, 96),
         "gptj": lambda: decoder_cases.gptj(64, 4),
         "gpt-bigcode": lambda: decoder_cases.gpt_bigcode(64, 4),
         "nemotron": lambda: decoder_cases.nemotron(64, 4, 2, 96),
         "hunyuan": lambda: decoder_cases.hunyuan(64, 4, 2, 96),
         "olmo": lambda: decoder_cases.olmo(64, 4, 2, 96)}


class Shape:
    """Names of a model's modules, read off it: of its linear layers, tables, norms, and layers."""

    def __init__(self, kind, model):
        found = dict(model.named_modules())
        names = {id(module): name.split(".")[-1] for name, module in found.items()}
        layers = next(n for n, m in found.items()
                      if isinstance(m, torch.nn.ModuleList) and len(m) == 2)
        inside = [m for n, m in found.items() if n.startswith(f"{layers}.")]
        linear = [m for m in inside if isinstance(m, (torch.nn.Linear, Conv1D))]
        self.kind, self.layers = kind, names[id(found[layers])]
        self.linear = sorted({names[id(m)] for m in linear})
        self.turned = isinstance(linear[0], Conv1D)
        self.embedding = names[id(model.get_input_embeddings())]
        self.head = names[id(model.get_output_embeddings())]
        self.norms = sorted({n.split(".")[-1] for n, m in found.items()
                             if "norm" in n.split(".")[-1] or "ln_" in n.split(".")[-1]})


class Draw:
    """What is given to LoraConfig, and what is written into the saved adapter_config.json after."""

    def __init__(self, rng, shape, ids):
        self.rng, self.shape, self.ids = rng, shape, ids
        self.linear, self.embedding, self.head = shape.linear, shape.embedding, shape.head
        count = rng.randint(1, len(self.linear))
        self.given = {"r": rng.randint(1, 12), "lora_alpha": rng.randint(1, 24),
                      "target_modules": rng.sample(self.linear, count), "task_type": "CAUSAL_LM",
                      "fan_in_fan_out": shape.turned}
        self.written, self.is_bare = {}, False

    def one(self):
        return self.rng.choice(self.linear)

    def layer(self):
        return self.shape.layers

    def pattern(self):
        """A key of rank_pattern or alpha_pattern: a name, a path, or a regular expression."""
        name = self.rng.choice(self.given["target_modules"]) \
            if isinstance(self.given["target_modules"], list) else self.one()
        return self.rng.choice([name, f"0.{self.rng.choice(['self_attn', 'mlp', 'attn'])}.{name}",
                                f".*{self.layer()}.1.*{name}", f"({name}|{self.one()})",
                                rf"{self.layer()}\.[01]\..*", name[1:], f"^{name}", "nothing"])

    def targets(self):
        names = self.given["target_modules"]
        joined = "|".join(names)
        return self.rng.choice([
            "all-linear", rf".*\.({joined})", rf".*{self.layer()}\.0\..*\.({joined})",
            rf"(?:.*?)\.({joined})$", [f"{self.layer()}.1.{n}" for n in names],
            [*names, "score"], [*names, self.embedding], [*names, self.head]])


def numbers(rng):
    return rng.randint(1, 16)


# By field: how a Draw changes. None: the field cannot change the numbers that PEFT computes.
DRAWS = {
    "task_type": lambda d: d.given.update(task_type=d.rng.choice([None, "FEATURE_EXTRACTION"])),
    "peft_type": lambda d: d.written.update(peft_type=d.rng.choice(["LOHA", "ADALORA", "X"])),
    "auto_mapping": lambda d: d.written.update(auto_mapping={"parent_library": "x"}),
    "peft_version": lambda d: d.written.update(peft_version="0.99.0"),
    "base_model_name_or_path": lambda d: d.written.update(base_model_name_or_path="/nowhere"),
    "revision": lambda d: d.written.update(revision="main"),
    "inference_mode": lambda d: d.written.update(inference_mode=False),
    "r": lambda d: d.written.update(r=d.given["r"] + d.rng.choice([-1, 1, 3])),
    "target_modules": lambda d: d.given.update(target_modules=d.targets()),
    "exclude_modules": lambda d: d.given.update(exclude_modules=d.rng.choice(
        [[d.one()], rf".*{d.layer()}\.0\..*", ["nothing"], [f"1.{d.one()}"]])),
    "lora_alpha": lambda d: d.given.update(lora_alpha=d.rng.choice([1, 7, 64])),
    "lora_dropout": lambda d: d.given.update(lora_dropout=0.5),
    "fan_in_fan_out": lambda d: d.given.update(fan_in_fan_out=not d.shape.turned),
    "bias": lambda d: d.given.update(bias=d.rng.choice(["all", "lora_only"])),
    "use_rslora": lambda d: d.given.update(use_rslora=True),
    "modules_to_save": lambda d: d.given.update(modules_to_save=[d.rng.choice(
        [d.head, d.embedding, *d.shape.norms])]),
    "init_lora_weights": lambda d: d.written.update(init_lora_weights=d.rng.choice(
        [False, "gaussian", "pissa", "pissa_niter_4", "olora", "orthogonal", "eva", "mica"])),
    "layers_to_transform": lambda d: d.given.update(layers_to_transform=d.rng.choice([0, 1, [1]])),
    "layers_pattern": lambda d: d.given.update(layers_to_transform=[0], layers_pattern=d.rng.choice(
        [d.layer(), [d.layer()], "[lh].*", ["blocks", d.layer()]])),
    "rank_pattern": lambda d: d.given.update(rank_pattern={
        d.pattern(): numbers(d.rng) for _ in range(d.rng.randint(1, 3))}),
    "alpha_pattern": lambda d: d.given.update(alpha_pattern={
        d.pattern(): numbers(d.rng) for _ in range(d.rng.randint(1, 3))}),
    "megatron_config": lambda d: d.written.update(megatron_config={"x": 1}),
    "megatron_core": lambda d: d.written.update(megatron_core="other.core"),
    "trainable_token_indices": lambda d: d.given.update(
        trainable_token_indices=d.rng.sample(range(199), 3)),
    "loftq_config": lambda d: d.written.update(loftq_config={"loftq_bits": 4}),
    "eva_config": lambda d: d.written.update(eva_config={"rho": 1.5}),
    "corda_config": lambda d: d.written.update(corda_config={"corda_method": "kpm"}),
    "lora_ga_config": lambda d: d.written.update(lora_ga_config={"direction": "ArB2r"}),
    "use_dora": lambda d: d.given.update(use_dora=True),
    "velora_config": lambda d: d.written.update(velora_config={"num_groups": 2}),
    "alora_invocation_tokens": lambda d: d.given.update(alora_invocation_tokens=d.rng.choice(
        [d.ids[10:12], d.ids[-1:], d.ids[:1], d.ids[7:10], [198, 198, 198]])),
    "use_qalora": lambda d: d.written.update(use_qalora=True),
    "qalora_group_size": lambda d: d.written.update(qalora_group_size=4),
    "monteclora_config": lambda d: d.written.update(monteclora_config={"num_samples": 2}),
    "layer_replication": lambda d: d.given.update(layer_replication=[[0, 2], [1, 2]]),
    "runtime_config": None,
    "lora_bias": lambda d: d.given.update(lora_bias=True),
    "target_parameters": lambda d: d.given.update(
        target_parameters=["mlp.experts.gate_up_proj"] if d.shape.kind == "mixtral"
        else [f"{d.one()}.weight"]),
    "use_bdlora": lambda d: d.written.update(use_bdlora={
        "target_modules_bd_a": [d.one()], "target_modules_bd_b": [d.one()], "nblocks": 2}),
    "arrow_config": lambda d: d.written.update(arrow_config={"top_k": 1}),
    "kasa_config": lambda d: d.written.update(kasa_config={"beta": 0.1}),
    "ensure_weight_tying": lambda d: d.given.update(
        ensure_weight_tying=True, target_modules=[*d.given["target_modules"], d.embedding]),
}
# What is no field: a key that nobody knows, and a configuration that does not fit the tensors.
OTHERS = {
    "(unknown key)": lambda d: d.written.update(
        {d.rng.choice(["use_banana", "lora_gamma", "use_RSLora"]): d.rng.choice([True, 3, "x"])}),
    "(fewer targets)": lambda d: d.written.update(target_modules=[d.given["target_modules"][0]]),
    "(other layers)": lambda d: d.written.update(layers_to_transform=[1]),
    "(other exclusion)": lambda d: d.written.update(exclude_modules=[d.given["target_modules"][0]]),
    "(other ranks)": lambda d: d.written.update(rank_pattern={d.pattern(): numbers(d.rng)}),
    "(no targets)": lambda d: d.written.update(target_modules=None),
    "(tables)": lambda d: d.given.update(
        target_modules=[*d.given["target_modules"], d.embedding, d.head],
        use_dora=d.rng.choice([False, True])),
    "(whole tables)": lambda d: d.given.update(
        modules_to_save=d.rng.choice([[d.embedding, d.head], [d.head], [d.embedding]]),
        use_dora=d.rng.choice([False, True])),
    "(biases)": lambda d: d.given.update(
        target_modules=[*d.given["target_modules"], d.head],
        bias=d.rng.choice(["none", "lora_only"]), lora_bias=True),
    "(invoked head)": lambda d: d.given.update(
        target_modules=[*d.given["target_modules"], d.head],
        lora_bias=d.rng.choice([False, True]), alora_invocation_tokens=d.ids[8:10]),
    "(of the model without its head)": lambda d: setattr(d, "is_bare", True),
    "(plain)": lambda d: None,
}


def fields_listed():
    """The keys of engine/model/adapter/adapter_keys.def."""
    path = ROOT / "engine/model/adapter/adapter_keys.def"
    if not path.exists():
        return FIELDS
    return set(re.findall(r"^ADAPTER_KEY\((\w+),", path.read_text(), re.M))


def randomise(model, rng):
    """All that training may change, so that nothing of it is without effect."""
    torch.manual_seed(rng.getrandbits(62))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_magnitude" in name:
                parameter.mul_(1 + 0.3 * torch.rand_like(parameter))
            elif "lora_" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.1)
            elif parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)


def make(draw, base, directory):
    """Saves the adapter, as PEFT does; then writes what was drawn into the configuration."""
    wrapped = get_peft_model(base, LoraConfig(**draw.given))
    randomise(wrapped, draw.rng)
    wrapped.peft_config["default"].base_model_name_or_path = "base"
    wrapped.save_pretrained(directory)
    path = directory / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **draw.written}))
    if draw.is_bare:
        weights = directory / "adapter_model.safetensors"
        save_file({re.sub(r"^base_model\.model\.\w+\.", "base_model.model.", name): tensor
                   for name, tensor in load_file(weights).items()}, weights)


def logprobs(model, ids):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].float()
    rows = torch.log_softmax(logits, dim=-1)
    return ([float(rows[i, ids[i + 1]]) for i in range(len(ids) - 1)],
            float(logits.abs().max()))


def told(port, name, ids):
    status, answer = post(port, "/v1/completions", {
        "model": name, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0})
    assert status == 200, answer
    rows = answer["choices"][0]["prompt_logprobs"][1:]
    return [row[str(token)]["logprob"] for row, token in zip(rows, ids[1:], strict=True)]


def load(port, name, directory):
    """None, or the message of the refusal."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/load_lora_adapter",
        json.dumps({"lora_name": name, "lora_path": str(directory)}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer root"})
    try:
        urllib.request.urlopen(request, timeout=60).close()
        return None
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]["message"]


def reference(base, directory, ids):
    """What PEFT computes, or why it does not."""
    try:
        model = PeftModel.from_pretrained(base(), directory).eval()
        return logprobs(model, ids), None
    except Exception as error:  # noqa: BLE001, whatever PEFT raises
        return None, f"{type(error).__name__}: {str(error)[:90]}"


def ask(port, cases):
    answers = []
    for case in cases:
        why = load(port, case["name"], case["directory"])
        answers.append((why, None if why else told(port, case["name"], case["ids"])))
    base = told(port, "base", cases[0]["ids"])
    return answers, base


def draw_cases(rng, kind, fields, base, work):
    """A directory for each of the fields, with what PEFT computes."""
    shape = Shape(kind, base())
    for number, field in enumerate(fields):
        while True:
            ids = [rng.randrange(3, 198) for _ in range(LENGTH)]
            draw = Draw(rng, shape, ids)
            others = rng.sample(["use_rslora", "rank_pattern", "alpha_pattern", "lora_dropout"],
                                rng.choice([0, 0, 1, 2]))
            directory = work / f"{number:02d}"
            try:
                for name in [field, *(o for o in others if not field.startswith("("))]:
                    (DRAWS.get(name) or OTHERS[name])(draw)
                make(draw, base(), directory)
                break
            except (ValueError, TypeError, AttributeError, NotImplementedError) as error:
                print(f"     {kind} {field}: PEFT makes none of this: {str(error)[:80]}")
                field = rng.choice(["rank_pattern", "alpha_pattern", "use_rslora"])
        exact, why = reference(base, directory, ids)
        yield {"name": f"a{number}", "field": field, "directory": directory, "ids": ids,
               "exact": exact, "why": why, "given": {**draw.given, **draw.written}}


def judge(case, refused, said):
    """(verdict, line)"""
    what = {k: v for k, v in case["given"].items() if k not in ("task_type", "fan_in_fan_out")}
    if refused is not None:
        peft = "PEFT loads it" if case["why"] is None else f"PEFT: {case['why']}"
        return "refused", f"{case['field']}: {refused[-150:]} ({peft})"
    if case["exact"] is None:
        return "other", f"{case['field']}: served, but PEFT: {case['why']}  {what}"
    exact, largest = case["exact"]
    worst = max(abs(a - b) for a, b in zip(said, exact))
    if worst > TOLERANCE * max(1.0, largest):
        return "other", f"{case['field']}: differs by {worst:.1e}  {what}"
    return "equal", f"{case['field']}: within {worst:.1e}"


def run_model(options, rng, kind, fields, score):
    config = KINDS[kind]()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        directory = work / "base"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config))
        seed = rng.getrandbits(62)

        def base():
            model = models.build(directory, config)
            fill(model, seed, torch.float32)
            return model.eval()

        save(base(), config, directory, "plain", torch.float32)
        cases = list(draw_cases(rng, kind, fields, base, work))
        flags = ["--skip-tokenizer-init", "--enable-lora", "--allow-runtime-lora", "--admin-key",
                 "root", "--max-loras", len(cases), "--max-lora-rank", 64, "--device",
                 options.device, "--served-model-name", "base", "--max-model-len", 64]
        answers, plain = serve(options.build, directory, flags, ask, cases)
        exact, largest = logprobs(base(), cases[0]["ids"])
    worst = max(abs(a - b) for a, b in zip(plain, exact))
    assert worst <= TOLERANCE * max(1.0, largest), f"{kind}: the base differs by {worst:.1e}"
    for case, (refused, said) in zip(cases, answers, strict=True):
        verdict, line = judge(case, refused, said)
        score[verdict] += 1
        print(f"{verdict:7s} {kind} {line}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fields", help="draw these alone, comma-separated")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"seed {options.seed}", flush=True)
    for what, names in (("DRAWS", set(DRAWS)), ("adapter_keys.def", fields_listed())):
        if names != FIELDS:
            sys.exit(f"PEFT's LoraConfig and {what} differ in: {sorted(names ^ FIELDS)}")
    rng = random.Random(options.seed)
    names = sorted(name for name, draw in {**DRAWS, **OTHERS}.items() if draw is not None)
    names = options.fields.split(",") if options.fields else names
    rng.shuffle(names)
    fields = (names * (options.count // len(names) + 1))[:options.count]
    score = collections.Counter()
    kinds = rng.sample(sorted(KINDS), len(KINDS))
    for first in range(0, options.count, BY_MODEL):
        kind = kinds[first // BY_MODEL % len(kinds)]
        run_model(options, rng, kind, fields[first:first + BY_MODEL], score)
    print(f"{score['equal']} equal, {score['refused']} refused, "
          f"{score['other']} served with other numbers")
    sys.exit(score["other"] > 0 or score["equal"] * 2 < options.count)


if __name__ == "__main__":
    main()
