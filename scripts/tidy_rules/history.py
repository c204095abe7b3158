"""The history: the subjects of commits."""

import re
import shutil
import subprocess
from pathlib import Path

PRODUCT = ("server/", "engine/", "cuda/", "config/")
SUBJECT_COLUMNS_MAX = 72
THIS_FILE = "scripts/tidy_rules/history.py"  # the commit that brought it is the last of the free
# What a subject may begin with, besides the name of a folder of the product.
AREAS = {"all", "bench", "build", "demo", "docs", "emu", "errors", "fuzz", "gpu", "metrics",
         "parity", "release", "scripts", "sim", "tests", "tidy", "tree"}
# Pushed with a wrong subject, which is not rewritten under those who have pulled it.
EXCUSED = {"9673b1be", "d71ee06a", "04fad890", "ba940946", "f172f2b4", "ae1043c2",
           "835cc9ee", "2a270b71"}


def git(tree, *arguments):
    done = subprocess.run(["git", *arguments], cwd=tree.root, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return done.stdout if done.returncode == 0 else ""


def areas(tree):
    folders = {part for name in tree.names if name.startswith(PRODUCT)
               for part in Path(name).parent.parts}
    return AREAS | folders


def check_commits(tree):
    """A subject is `area: what`, at most 72 columns, with an area that one can look up."""
    if not (tree.root / ".git").exists() or not shutil.which("git"):
        return
    brought = git(tree, "log", "--diff-filter=A", "--format=%H", "--", THIS_FILE).split()
    begins = tree.commits_after or (brought[-1] if brought else "HEAD")
    known = areas(tree)
    for line in git(tree, "log", "--no-merges", "--format=%h %s", f"{begins}..HEAD").splitlines():
        commit, subject = line.split(" ", 1)
        if commit[:8] in EXCUSED:
            continue
        area = re.match(r"([\w/]+(?:, [\w/]+)*): \S", subject)
        if len(subject) > SUBJECT_COLUMNS_MAX:
            yield (f"commit {commit}: `{subject}` has {len(subject)} columns, at most "
                   f"{SUBJECT_COLUMNS_MAX}")
        if not area or not set(re.split("/|, ", area[1])) <= known:
            yield (f"commit {commit}: `{subject}` does not begin with an area, which is a folder "
                   f"of the product or one of {', '.join(sorted(AREAS))}")
