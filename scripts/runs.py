#!/usr/bin/env python3
"""What last ran when: keeps it in tests/runs.jsonl, and writes the table of tests/RUNS.md.

    scripts/runs.py CHECK COMMAND ...   # runs it, prints what it prints, and keeps what came of it
    scripts/runs.py                     # writes tests/RUNS.md from what is kept

An example: scripts/runs.py sim build/sim --steps 10000000 --seed 900001. `scripts/test --record`
keeps each group that was run whole, `scripts/fuzz --record` each target, `mutate_engine --record`
the share that was caught; then they write the table, too. A line of the file is one run: when, on
which commit (+: with changes that were not committed), seconds of processors, and

count, unit  of what is added up over all runs: steps, inputs, kills, minutes
passed, failed, skipped, programs  of a group of tests
said         the last line of the program, or what was found
"""

import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT, TABLE = ROOT / "tests/runs.jsonl", ROOT / "tests/RUNS.md"
COUNTS = (("steps", r"([\d,]+) steps(?:,| in)"), ("kills", r"([\d,]+) kills"),
          ("inputs", r"([\d,]+) inputs of"))
HEAD = """# What last ran when

Written by [scripts/runs.py](../scripts/runs.py) from [runs.jsonl](runs.jsonl), where whoever has
run a check keeps it: `scripts/test --record` for groups of tests of which every program has ended,
`scripts/fuzz --record` for fuzz targets, `tests/mutate/mutate_engine --record` for mistakes made by
machine, `scripts/runs.py CHECK COMMAND` for all else. `+` behind a commit: with changes that were
not committed. A group that is not here has never been kept.

"""


def commit():
    """The commit of this tree, with + where files were changed since."""
    git = ["git", "-C", ROOT]
    name = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True,
                          check=False).stdout.strip() or "no commit"
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no", "--", ".",
                              ":!tests/runs.jsonl", ":!tests/RUNS.md"],
                             capture_output=True, text=True, check=False).stdout.strip()
    return name + "+" * bool(changed)


def keep(check, **what):
    """Adds one run, and writes the table. Without a time of its own it ended today."""
    line = {"check": check, "when": time.strftime("%Y-%m-%d"), "commit": commit(), **what}
    with KEPT.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
    TABLE.write_text(table(read()), "utf-8")


def read():
    lines = KEPT.read_text("utf-8").splitlines() if KEPT.is_file() else []
    return [json.loads(line) for line in lines]


def row(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def of_groups(runs):
    """The last whole run of each group of scripts/test."""
    last = {run["check"]: run for run in runs if "programs" in run}
    return [row([run["check"], run["when"], run["commit"], run["programs"], f"{run['passed']:,}",
                 run["failed"], run["skipped"], f"{run['cpu_s']:,} s"]) for run in last.values()]


def of_long_runs(runs):
    """What is added up over all runs of a check, and its last run."""
    checks = {}
    for run in runs:
        if "programs" not in run:
            checks.setdefault(run["check"], []).append(run)
    for check, all_runs in sorted(checks.items()):
        last, unit = all_runs[-1], all_runs[-1].get("unit", "")
        sums = [sum(run.get(key, 0) for run in all_runs) for key in ("count", "cpu_s", "failed")]
        said = last.get("said", "").replace("|", "\\|")
        yield row([check, len(all_runs), f"{sums[0]:,} {unit}".strip() if unit else "",
                   f"{sums[1] / 60:,.1f} min", sums[2], last["when"], last["commit"], said])


def table(runs):
    return (HEAD + "## Groups of tests, their last whole run\n\n"
            + row(["group", "last run", "commit", "programs", "passed", "failed", "skipped",
                   "processor"]) + "\n|" + " --- |" * 8 + "\n" + "\n".join(of_groups(runs))
            + "\n\n## Long runs, all of them together\n\n"
            + row(["check", "runs", "in all", "processor", "failed", "last run", "commit",
                   "the last one said"]) + "\n|" + " --- |" * 8 + "\n"
            + "\n".join(of_long_runs(runs)) + "\n")


def run_and_keep(check, command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said, what = "\n".join(lines), {}
    for unit, pattern in COUNTS:
        if found := re.search(pattern, said):
            what = {"count": int(found[1].replace(",", "")), "unit": unit}
    name = check.split(maxsplit=1)[0]
    last = next((line for line in lines if line.startswith(f"{name}:")), (lines or [""])[-1])
    keep(check, cpu_s=round(cpu_s), failed=int(process.returncode != 0), said=last, **what)
    return process.returncode


def main(arguments):
    if len(arguments) == 1 or any(argument in ("-h", "--help") for argument in arguments[:1]):
        print(__doc__)
        return 2
    if arguments:
        return run_and_keep(arguments[0], arguments[1:])
    TABLE.write_text(table(read()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
