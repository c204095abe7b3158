"""Files of the product call each other in one direction, so that each can be read without those
that call it."""

import re

from .functions import STRING
from .names import HEAD, PRODUCT, blank_comments

# Circles that are there: {one of its files: (how many files it has, why)}. A circle that has become
# smaller is a complaint too, so that it does not grow again.
UNDER = "a reader of one kind and what all kinds share stand in files that know each other"
KNOWN = {
    "config/config.c": (2, "the check of all options asks which were given"),
    "cuda/step.c": (2, "a copy of blocks ends the step that is being recorded"),
    "engine/cpu/weight.c": (3, "a weight is packed, probed and multiplied by the same scratch"),
    "engine/commit.c": (5, "beams, grammars and a replay end groups, as a commit does"),
    "engine/engine.c": (6, "a rank that follows another one makes an engine, and runs its steps"),
    "engine/file/gguf.c": (2, UNDER),
    "engine/sample/sampling.c": (2, "a model that drafts draws, and sees what was drawn"),
    "engine/grammar/compile.c": (2, "a kept source is compiled again"),
    "engine/grammar/automaton/lexeme.c": (5, "names of objects are lexemes, their texts nodes"),
    "engine/grammar/automaton/regex_look.c": (2, "what is looked at is an expression, too"),
    "engine/grammar/language/ebnf.c": (3, UNDER),
    "engine/grammar/language/schema.c": (21, "schemas have schemas in them"),
    "engine/grammar/lark/lark.c": (2, UNDER),
    "engine/model/forward/model.c": (2, "a layer that predicts runs as the model's own do"),
    "engine/model/source/safetensors.c": (2, UNDER),
    "engine/model/weights/weights_check.c": (2, UNDER),
    "engine/picture/decode.c": (3, UNDER),
    "engine/schedule/block.c": (2, "a block that is taken leaves the prefix cache"),
    "engine/schedule/pictures.c": (2, "pictures and sources of encoders take turns by one order"),
    "engine/template/chat/chat_template.c": (2, UNDER),
    "engine/template/compile/compile_template.c": (4, "statements have expressions, and tokens"),
    "engine/template/run/eval.c": (17, "filters call tests, and values print themselves"),
    "engine/text/load/load_gguf.c": (2, UNDER),
    "engine/text/load/load_model.c": (2, UNDER),
    "engine/text/tokenizer.c": (2, "spans are of the bytes of tokens"),
    "server/completion/model_names.c": (2, "an adapter's name is no model's, and the reverse"),
    "server/messages/request.c": (3, UNDER),
    "server/observe/metrics_page.c": (2, UNDER),
    "server/completion/completion.c": (8, "a prompt is read by parts that encode as it does"),
    "server/http/http.c": (18, "an exchange is read, sent and lent by files that end it, too; with "
                               "several models it is handed to their router"),
    "server/responses/request.c": (2, UNDER),
    "server/store/store.c": (2, UNDER),
}
LEFT_OUT = ("cuda/kernels/", "cuda/dev/", "cuda/device_code/")  # each is compiled as one text


def definitions(text):
    """(exported, static) functions that a file defines; an inline one of a header is exported."""
    exported, static = set(), set()
    for head in HEAD.finditer(text):
        if head[0].endswith("{"):
            is_static = head[0].startswith("static") and "inline" not in head[0].split("(")[0]
            (static if is_static else exported).add(head[1])
    return exported, static


def bodies(name, text):
    """What can call: of a header the inline functions, without prototypes; members are no calls."""
    if name.endswith(".h"):
        text = "".join(text[head.end():text.find("\n}", head.end())]
                       for head in HEAD.finditer(text) if head[0].endswith("{"))
    return set(re.findall(r"(?<![.>\w])[A-Za-z_]\w*", text))


def stem(name):
    return name.rsplit(".", 1)[0]


def call_graph(texts):
    """{file: {file whose function it names: [functions]}}. A function that several files define, as
    the tiers of a CPU kernel do, belongs to none of them. A header and its source are one."""
    found = {name: definitions(text) for name, text in texts.items()}
    homes = {}
    for name, (exported, _) in found.items():
        for function in exported:
            homes.setdefault(function, []).append(name)
    graph = {name: {} for name in texts}
    for name, text in texts.items():
        for word in sorted(bodies(name, text) - found[name][1]):
            home = homes.get(word, [])
            if len(home) == 1 and stem(home[0]) != stem(name):
                graph[name].setdefault(home[0], []).append(word)
    return graph


def circles(graph):
    """The strongly connected parts of more than one file (Tarjan 1972), without recursion."""
    index, low, stack, on_stack, parts = {}, {}, [], set(), []
    for root in graph:
        work = [] if root in index else [(root, iter(graph[root]))]
        while work:
            name, edges = work[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                stack.append(name)
                on_stack.add(name)
            target = next((t for t in edges if t not in index or t in on_stack), None)
            if target is not None and target not in index:
                work.append((target, iter(graph[target])))
                continue
            if target is not None:
                low[name] = min(low[name], index[target])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == index[name]:
                at = stack.index(name)
                part, stack[at:] = stack[at:], []
                on_stack -= set(part)
                if len(part) > 1:
                    parts.append(sorted(part))
    return sorted(parts)


def check_circles(tree):
    """Calls between files make no circle, but for those that are known."""
    texts = {f.name: STRING.sub('""', blank_comments(f.text)) for f in tree
             if f.is_c and f.name.startswith(PRODUCT) and not f.name.startswith(LEFT_OUT)}
    graph, left = call_graph(texts), {name: most for name, (most, _) in KNOWN.items()}
    for part in circles(graph):
        most = sum(left.pop(name, 0) for name in part)
        if most == len(part):
            continue
        if most > len(part):
            yield f"scripts/tidy_rules/circles.py: that of {part[0]} has {len(part)} files now"
            continue
        calls = [f"{name} calls {', '.join(graph[name][target])} of {target}"
                 for name in part for target in part if target in graph[name]][:8]
        said = "; ".join(calls)
        yield f"{part[0]}: {len(part)} files call each other ({most} are known): {said}"
    for name in sorted(left.keys() & texts.keys()):
        yield f"scripts/tidy_rules/circles.py: {name} is in no circle now"
