#!/usr/bin/env python3
"""Compares inferd's template interpreter with Jinja2 in the environment of transformers.

    tests/parity/parity_templates.py [--build DIR] [--random N] [--seed S]   compare; ends with a
                                                                             table
    tests/parity/parity_templates.py --write tests/vectors/templates.json    keep what Jinja2 says
    tests/parity/parity_templates.py --bench     microseconds a render of 20 messages, ours and
                                                 Jinja2's

Needs jinja2 (3.1.6 or later) and the program template_driver. A difference is different text, or
one side raising and the other not. What inferd refuses by name ("is not supported") counts apart.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

sys.path.insert(0, str(Path(__file__).resolve().parent))
import template_cases  # noqa: E402
import template_contexts  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NOW = 1753436117  # what strftime_now sees, in both


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            TemplateNamespace._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        TemplateNamespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format):
        import datetime

        return datetime.datetime.fromtimestamp(NOW).strftime(format)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["namespace"] = TemplateNamespace
    return env


class Driver:
    def __init__(self, program, *arguments):
        self.process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def render(self, template, context):
        return self.send({"template": template, "context": context, "now": NOW})

    def send(self, request):
        line = json.dumps(request)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the driver died on {line[:3000]}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def reference(env, template, context, cache={}):
    """("text", output) or ("error", reason)"""
    try:
        if template not in cache:
            cache.clear()
            cache[template] = env.from_string(template)
        return "text", cache[template].render(**context)
    except RecursionError:
        return "skip", "recursion"
    except Exception as error:  # noqa: BLE001 any exception is Jinja's refusal
        return "error", f"{type(error).__name__}: {error}"


def compare(want, got):
    """ "same", "refused" (by name), "limit" or "different"."""
    kind, value = want
    if kind == "skip":
        return "skip"
    error = got.get("error", "")
    if got.get("stage") == "compile" and "no filter or test" in error and kind == "text":
        return "refused"  # in a constant that Jinja2 has folded away
    if kind == "error" and error:
        return "same"
    if "not supported" in error or "dict view" in error:  # in Python a view is a set, too
        return "refused"
    if re.search(
        r"beyond 64 bits|cannot be printed|no text to continue|than \d+ steps|"
        r"too (long|large|wide|many)|larger than",
        error,
    ):
        return "refused"
    if kind == "text" and " object at 0x" in value:
        return "skip"
    if kind == "text":
        return "same" if got.get("text") == value else "different"
    return "different"


def report(title, counts):
    print(
        f"{title:<16}"
        + "".join(f"{key} {counts[key]:>6}  " for key in ("same", "different", "refused", "skip"))
    )


class Comparison:
    def __init__(self, driver, show):
        self.driver, self.env, self.show = driver, environment(), show
        self.total, self.refusals = Counter(), Counter()

    def run(self, template, context, counts):
        want = reference(self.env, template, context)
        got = self.driver.render(template, context)
        verdict = compare(want, got)
        counts[verdict] += 1
        self.total[verdict] += 1
        if verdict == "refused":
            self.refusals[re.sub(r"template, line \d+: ", "", got["error"])] += 1
        if verdict == "different" and self.show > 0:
            self.show -= 1
            print("TEMPLATE", repr(template)[:1500], "\n  CONTEXT", repr(context)[:600])
            print("  WANT", want, "\n  GOT ", got)
        return want, verdict

    def families(self, keep):
        for path in sorted((ROOT / "tests/fixtures/templates").glob("*.jinja")):
            counts, source = Counter(), path.read_text("utf-8")
            for index, (name, context) in enumerate(template_contexts.matrix()):
                want, verdict = self.run(source, context, counts)
                keep(path.stem, name, index, want, verdict)
            report(path.stem, counts)

    def random(self, count, seed, keep):
        counts, rng = Counter(), random.Random(seed)
        for _ in range(count):
            template = template_cases.Maker(rng).template()
            want, verdict = self.run(template, template_cases.CONTEXT, counts)
            keep(template, want, verdict)
        report("random snippets", counts)


def shaped(messages, source, iterates):
    """What inferd's chat path does to messages before a template sees them."""
    out = []
    for message in messages:
        message = dict(message)
        if message.get("role") == "developer" and "developer" not in source:
            message["role"] = "system"
        if message.get("tool_calls") == []:
            del message["tool_calls"]
        content = message.get("content")
        if isinstance(content, list) and not iterates:
            message["content"] = "\n".join(p["text"] for p in content if "text" in p)
        message = {key: value for key, value in message.items()
                   if value is not None or key == "content"}
        is_answer = message.get("role") == "assistant" and "tool_calls" not in message
        if is_answer and message.get("content") is None:
            message["content"] = [] if iterates else ""
        out.append(message)
    return out


def as_sent(messages):
    """Arguments of calls are JSON texts on the wire."""
    out = []
    for message in messages:
        message = dict(message)
        if message.get("tool_calls"):
            message["tool_calls"] = [
                {
                    **c,
                    "function": {
                        **c["function"],
                        "arguments": json.dumps(c["function"]["arguments"]),
                    },
                }
                for c in message["tool_calls"]
            ]
        out.append(message)
    return out


PARTS = {"llama3", "gemma3"}  # templates that loop over the parts of a content


def chat_path(options):
    """The whole path of the server against transformers' own rendering, where it is installed."""
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError:
        print("transformers is not installed: the chat path is not compared")
        return 0
    import datetime
    import tempfile

    driver, total = Driver(f"{options.build}/template_driver"), Counter()
    now = int(datetime.datetime.now().timestamp())
    for path in sorted((ROOT / "tests/fixtures/templates").glob("*.jinja")):
        counts, source = Counter(), path.read_text("utf-8")
        with tempfile.TemporaryDirectory() as place:
            config = {"chat_template": source, "bos_token": "<s>", "eos_token": {"content": "</s>"}}
            Path(place, "tokenizer_config.json").write_text(json.dumps(config))
            for _, context in template_contexts.matrix():
                for final in (False, True):
                    if final and context["add_generation_prompt"]:
                        continue
                    rest = {k: v for k, v in context.items() if k.endswith(("thinking", "effort"))}
                    try:
                        want = (
                            "text",
                            render_jinja_template(
                                [shaped(context["messages"], source, path.stem in PARTS)],
                                context["tools"],
                                context["documents"],
                                source,
                                continue_final_message=final,
                                bos_token="<s>",
                                eos_token="</s>",
                                add_generation_prompt=context["add_generation_prompt"],
                                **rest,
                            )[0][0],
                        )
                    except Exception as error:  # noqa: BLE001 any exception is a refusal
                        want = "error", str(error)
                    chat = {
                        **context,
                        "messages": as_sent(context["messages"]),
                        "chat_template_kwargs": rest,
                        "continue_final_message": final,
                        "now": now,
                    }
                    got = driver.send({"dir": place, "chat": chat})
                    verdict = compare(want, got)
                    counts[verdict] += 1
                    if (
                        verdict == "different"
                        and total["different"] + counts["different"] <= options.show
                    ):
                        print(path.stem, final, chat, "\n  WANT", want, "\n  GOT ", got)
        report(f"chat {path.stem}", counts)
        total += counts
    return total["different"]


def write_vectors(path, comparison, options):
    """A fixed part of the matrix and of the snippets, as C tests read them."""
    contexts, cases, used = [template_cases.CONTEXT], [], {}
    every = list(template_contexts.matrix())

    def keep_family(family, name, index, want, verdict):
        if verdict != "same" or index % 11 != hash_of(family) % 11:
            return
        if index not in used:
            used[index] = len(contexts)
            contexts.append(every[index][1])
        cases.append({"family": family, "context": used[index], **outcome(want)})

    def keep_snippet(template, want, verdict):
        if verdict == "same" and len(template) < 300:
            cases.append({"template": template, "context": 0, **outcome(want)})

    comparison.families(keep_family)
    comparison.random(options.random, options.seed or 0, keep_snippet)
    head = {"made_by": "tests/parity/parity_templates.py", "jinja2": jinja2.__version__, "now": NOW}
    lists = [",\n".join(json.dumps(item) for item in items) for items in (contexts, cases)]
    text = json.dumps(head)[:-1] + ',\n"contexts": [\n%s],\n"cases": [\n%s]}\n' % tuple(lists)
    Path(path).write_text(text, "utf-8")
    print(f"{len(cases)} cases in {path}")


def bench(options):
    """Each template with a chat of 20 messages, in turns with Jinja2 in the same run."""
    repeats, env, rows = 201, environment(), []
    driver = Driver(f"{options.build}/template_driver", "--time", str(repeats))
    text = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 3
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": f"{i}: {text}"} for i in range(20)
    ]
    context = {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>",
               "eos_token": "</s>"}
    for file in sorted((ROOT / "tests/fixtures/templates").glob("*.jinja")):
        source = file.read_text("utf-8")
        answer, template = driver.render(source, context), env.from_string(source)
        if "error" in answer:
            raise SystemExit(f"{file.stem}: {answer['error']}")
        times = []
        for _ in range(repeats):
            begin = time.perf_counter_ns()
            template.render(**context)
            times.append(time.perf_counter_ns() - begin)
        rows.append((file.stem, answer["ns"] / 1e3, statistics.median(times) / 1e3))
    driver.close()
    print("| template | µs | Jinja2 µs | ratio |\n| --- | --- | --- | --- |")
    for name, ours, theirs in rows:
        print(f"| {name} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.1f} |")
    middle = statistics.median(ours for _, ours, _ in rows)
    print(f"median of the templates: {middle:.1f} µs, largest {max(r[1] for r in rows):.1f}")


def hash_of(name):
    return sum(name.encode())


def outcome(want):
    return {"text": want[1]} if want[0] == "text" else {"error": True}


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--build", default="build")
    parser.add_argument("--random", type=int, default=5000, help="random snippets")
    parser.add_argument("--seed", type=int, help="of the snippets (default: another each time)")
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--bench", action="store_true")
    options = parser.parse_args()
    if options.bench:
        return bench(options)
    comparison = Comparison(Driver(f"{options.build}/template_driver"), options.show)
    if options.write:
        write_vectors(options.write, comparison, options)
    else:
        seed = options.seed if options.seed is not None else random.randrange(1 << 30)
        comparison.families(lambda *_: None)
        comparison.random(options.random, seed, lambda *_: None)
        report(f"seed {seed}", comparison.total)
    for reason, count in comparison.refusals.most_common(12):
        print(f"  refused {count:5d}: {reason}")
    different = 0 if options.write else chat_path(options)
    return 1 if comparison.total["different"] + different else 0


if __name__ == "__main__":
    sys.exit(main())
