"""tests/mutate/mutate_engine --all: mistakes made by machine in every line, one at a time.

A mistake changes one operator, constant or condition, or leaves one statement out. It is caught
when the simulator breaks a promise, a unit test fails, or either does not end. What compiles to the
code that was there is no mistake and counts for nothing, nor does what the compiler refuses. Left
out: headers, comments, and lines that only check, say or fetch ahead (SKIPPED).

Results are kept in a file of JSON lines, each by the text of its line, so a run goes on where the
one before was stopped, and a file that has changed is tried again where it has.
"""

import hashlib
import json
import math
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

# What is mutated, and the unit tests that are asked: a program, its suites.
SUITES = ("scheduler fairness block prefix sharing slices slo snapshots swap waiting pace looks "
          "floor draft drafter predict sequence share mailbox quota batch windows best_effort "
          "pictures cross_blocks sources choices beam states").split()
ENGINE = ("engine", "@(" + "|".join(SUITES) + ")/*")
TARGETS = (("engine/schedule/**/*.c", ENGINE), ("engine/mailbox.c", ENGINE),
           ("engine/share.c", ENGINE), ("server/ledger/*.c", ("ledger", "*")))

SKIPPED = re.compile(r"CHECK|_Static_assert|#|prefetch|error_set|activity_for|^\s*(static )?"
                     r"(const )?\w+_t \w+\(|^\s*(enum|typedef|struct)\b")
SWAPS = ((r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
         (r" != ", " == "), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "),
         (r" % ", " / "), (r" && ", " || "), (r" \|\| ", " && "), (r" & ", " | "),
         (r" \+= ", " -= "), (r" -= ", " += "), (r"\+\+", "--"), (r"(?<=[\w\])])--", "++"),
         (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\bMIN\(", "MAX("),
         (r"\bMAX\(", "MIN("), (r"(?<![\w!=])!(?=[\w(])", ""))
NUMBER = re.compile(r"(?<![\w.\"])(\d+)(?![\w.])")
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()(.*)(\)(?: \{| [^;{]*;)?)$")
STATEMENT = re.compile(r"^\s+(?!return \w|else\b|case\b|default:|const |static |goto )"
                       r"(?:[\w>.\[\]()*&-]+(?: [-+*/%&|^]?=)? .*|[\w>.\[\]-]+\(.*\)|break|"
                       r"continue|return|.*(?:\+\+|--)|(?:\+\+|--).*);$")
DECLARATION = re.compile(r"^\s+(?:(?:const|unsigned|struct|enum) )*(?:\w+_t|int|bool|char|size_t|"
                         r"float|double|long|unsigned)\b \*?\w+")


def without_comments(text):
    """The text with comments and strings blanked, in the same places."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", blank, text,
                  flags=re.DOTALL)


def changes_of(line, code, before):
    """Yields (what, the line as it becomes). `code` is the line without comments, `before` the
    line of code in front of it."""
    for old, new in SWAPS:
        for match in re.finditer(old, code):
            says = f"`{match[0].strip()}` -> `{new.strip()}`"
            yield says, line[:match.start()] + new + line[match.end():]
    for match in NUMBER.finditer(code):
        value = int(match[1])
        for new in {value + 1, max(value - 1, 0)} - {value}:
            yield f"`{value}` -> `{new}`", line[:match.start()] + str(new) + line[match.end():]
    condition = CONDITION.match(code.rstrip())
    if condition and condition[2].count("(") == condition[2].count(")"):
        start, end = condition.end(1), condition.end(2)
        yield "never", line[:start] + "0 && (" + line[start:end] + ")" + line[end:]
        if "while" not in condition[1]:
            yield "always", line[:start] + "1 || (" + line[start:end] + ")" + line[end:]
    whole = code.rstrip()
    begins = before.rstrip()[-1:] in (";", "{", "}", ")", ":")
    if begins and whole.count("(") == whole.count(")") and STATEMENT.match(whole) and \
            not DECLARATION.match(whole):
        yield "left out", whole[:len(whole) - len(whole.lstrip())] + ";"


def mistakes_of(root, name):
    """Yields {file, line number, what, old, new, key} of one file."""
    text = (root / name).read_text("utf-8")
    lines, codes = text.split("\n"), without_comments(text).split("\n")
    before, seen = ";", {}
    for number, (line, code) in enumerate(zip(lines, codes)):
        if not code.strip():
            continue
        if not SKIPPED.search(code):
            for what, new in changes_of(line, code, before):
                place = (line, before, what, new)
                seen[place] = seen.get(place, 0) + 1
                key = hashlib.sha256(repr((name, place, seen[place])).encode()).hexdigest()[:16]
                yield {"file": name, "line": number, "what": what, "old": line, "new": new,
                       "key": key}
        before = code


def all_mistakes(root, names=()):
    found = []
    for pattern, tests in TARGETS:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if names and not any(name.startswith(wanted) for wanted in names):
                continue
            found += [{**mistake, "tests": tests} for mistake in mistakes_of(root, name)]
    return found


def run(command, tree, limit_s):
    """(exit status, output); None = it did not end. Its children end with it."""
    with subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:
        try:
            said = process.communicate(timeout=limit_s)[0]
            return process.returncode, said
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""


def make(tree, *goals):
    return run(["make", "-s", "BUILD=build", "CUDA=0", "-j2", *goals], tree, 1800)


def code_of(tree, name):
    """What the file compiles to, without what only a debugger reads."""
    made = tree / "build" / Path(name).with_suffix(".o")
    bare = tree / "build/bare.o"
    subprocess.run(["strip", "-o", str(bare), str(made)], check=True)
    return bare.read_bytes()


class Judge:
    """Tries mistakes in a copy of the tree that builds."""

    def __init__(self, tree, seed, steps):
        self.tree, self.seed, self.steps = tree, seed, steps
        self.rooms = sorted({tests[0] for _, tests in TARGETS})
        goals = ["build/sim"] + [f"build/tests/{room}/run" for room in self.rooms]
        status, said = make(tree, *goals)
        if status != 0:
            raise SystemExit(f"the tree does not build:\n{said}")
        self.limits = {}
        for way, command in [("sim", self.simulator())] + [(room, self.unit(room, filters))
                                                           for _, (room, filters) in TARGETS]:
            begun = time.monotonic()
            status, said = run(command, tree, 1800)
            if status != 0:
                raise SystemExit(f"the unchanged tree fails: {' '.join(command)}\n{said[-2000:]}")
            self.limits[way] = 60 + 8 * (time.monotonic() - begun)

    def simulator(self):
        return ["build/sim", "--seed", str(self.seed), "--steps", str(self.steps), "--no-shrink"]

    @staticmethod
    def unit(room, filters):
        return [f"build/tests/{room}/run", "-j2", "--filter", filters]

    def try_one(self, mistake):
        """(verdict, by what): caught, missed, same, refused."""
        path = self.tree / mistake["file"]
        text = path.read_text("utf-8")
        lines = text.split("\n")
        before = code_of(self.tree, mistake["file"])
        lines[mistake["line"]] = mistake["new"]
        path.write_text("\n".join(lines), "utf-8")
        try:
            return self.verdict(mistake, before)
        finally:
            path.write_text(text, "utf-8")
            make(self.tree, "build/" + str(Path(mistake["file"]).with_suffix(".o")))

    def verdict(self, mistake, before):
        room, filters = mistake["tests"]
        made = make(self.tree, "WARN=-w", "build/" + str(Path(mistake["file"]).with_suffix(".o")))
        if made[0] != 0:
            return "refused", ""
        if code_of(self.tree, mistake["file"]) == before:
            return "same", ""
        if make(self.tree, "build/sim", f"build/tests/{room}/run")[0] != 0:
            return "refused", ""
        status, said = run(self.simulator(), self.tree, self.limits["sim"])
        if status != 0:
            found = re.search(r"FAILED after (\d+) steps in \d+ seeds: (?:iteration \d+, step \d+: "
                              r")?(.*)", said)
            return "caught", f"sim: {found[2][:80] if found else 'it does not end'}"
        status, said = run(self.unit(room, filters), self.tree, self.limits[room])
        if status != 0:
            found = re.search(r"\[FAIL\] (\S+?):|\[FAIL\] (\S+)", said)
            name = (found[1] or found[2]) if found else "it does not end"
            return "caught", f"test: {name}"
        return "missed", ""


def interval(caught, tried):
    """Wilson's interval of the share that is caught, 95 %."""
    if tried == 0:
        return 0.0, 1.0
    z, share = 1.96, caught / tried
    middle = (share + z * z / (2 * tried)) / (1 + z * z / tried)
    half = z / (1 + z * z / tried) * math.sqrt(share * (1 - share) / tried
                                               + z * z / (4 * tried * tried))
    return max(middle - half, 0), min(middle + half, 1)


def read_results(path):
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return {result["key"]: result for result in map(json.loads, lines)}


def read_judged(path):
    """What was said of each survivor, in a table that was written before."""
    judged = {}
    for line in path.read_text("utf-8").splitlines() if path.is_file() else []:
        found = re.match(r"\| `(\w{16})` \|.*\| ([^|]*) \|$", line)
        if found:
            judged[found[1]] = found[2]
    return judged


def write_table(path, mistakes, results, commit, steps):
    """The share that is caught, and every survivor with what was said of it."""
    judged, files = read_judged(path), {}
    for mistake in mistakes:
        row = files.setdefault(mistake["file"], {"all": 0, "caught": 0, "missed": 0, "same": 0,
                                                 "refused": 0})
        row["all"] += 1
        if mistake["key"] in results:
            row[results[mistake["key"]]["verdict"]] += 1
    total = {key: sum(row[key] for row in files.values()) for key in
             ("all", "caught", "missed", "same", "refused")}
    tried = total["caught"] + total["missed"]
    low, high = interval(total["caught"], tried)
    out = ["# Mistakes made by machine, and what catches them", "",
           "Made by `tests/mutate/mutate_engine --all --sample N --table tests/sim/MUTATION.md`, "
           "which says what a mistake is.", f"Simulator of {steps} steps, then the unit tests of "
           f"the part; commit {commit}.", "",
           f"Of {total['all']} mistakes {tried + total['same'] + total['refused']} were tried. "
           f"{total['same']} compile to the same code and {total['refused']} not at all.",
           f"Of the other {tried}, **{total['caught']} are caught, "
           f"{100 * total['caught'] / max(tried, 1):.0f} %** "
           f"(95 % interval {100 * low:.0f} to {100 * high:.0f} %).", "",
           "| file | mistakes | caught | missed | the same code | refused |",
           "|---|---:|---:|---:|---:|---:|"]
    out += [f"| {name} | {row['all']} | {row['caught']} | {row['missed']} | {row['same']} | "
            f"{row['refused']} |" for name, row in sorted(files.items())]
    out += ["", "## Survivors", "", "| key | where | line | mistake | judged |",
            "|---|---|---|---|---|"]
    for mistake in mistakes:
        if results.get(mistake["key"], {}).get("verdict") != "missed":
            continue
        line = mistake["old"].strip().replace("|", "\\|")
        what = mistake["what"].replace("|", "\\|")
        out.append(f"| `{mistake['key']}` | {mistake['file']}:{mistake['line'] + 1} | `{line}` | "
                   f"{what} | {judged.get(mistake['key'], 'not yet')} |")
    path.write_text("\n".join(out) + "\n", "utf-8")


def sweep(root, tree, options, commit):
    """Tries the mistakes that have no result yet; with a sample, so many drawn by the seed.
    Returns how many of those that are mistakes are caught, their number, and both in words."""
    mistakes = all_mistakes(root, options.names)
    wanted = list(mistakes)
    if options.sample:
        random.Random(options.seed).shuffle(wanted)
        wanted = wanted[:options.sample]
    results = read_results(options.results)
    results = {m["key"]: results[m["key"]] for m in mistakes if m["key"] in results}
    todo = [m for m in wanted if m["key"] not in results]
    print(f"mutants: {len(mistakes)} mistakes, {len(wanted)} wanted, {len(todo)} to try",
          flush=True)
    judge = Judge(tree, 1, options.steps) if todo else None
    for mistake in todo:
        verdict, by = judge.try_one(mistake)
        result = {"key": mistake["key"], "verdict": verdict, "by": by, "file": mistake["file"],
                  "commit": commit}
        results[mistake["key"]] = result
        with options.results.open("a", encoding="utf-8") as out:
            out.write(json.dumps(result) + "\n")
        print(f"{verdict:7} {mistake['file']}:{mistake['line'] + 1} {mistake['what']}: "
              f"{mistake['old'].strip()[:60]}  {by}", flush=True)
        if options.table:
            write_table(options.table, mistakes, results, commit, options.steps)
    drawn = [results[m["key"]]["verdict"] for m in wanted if m["key"] in results]
    caught, tried = drawn.count("caught"), drawn.count("caught") + drawn.count("missed")
    low, high = interval(caught, tried)
    said = (f"{caught} of {tried} caught, {100 * caught / max(tried, 1):.1f} % "
            f"(95 %: {100 * low:.0f} to {100 * high:.0f} %); {drawn.count('same')} compile to the "
            f"same code, {drawn.count('refused')} not at all")
    print(f"mutants: {said}")
    return caught, tried, said
