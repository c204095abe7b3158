"""The copy of the tree in which mutate_engine and mutate_kernels plant mistakes.

A copy that is kept for the next run must end up as the tree is, and make must see every file whose
text changed: also one whose mistake was taken back after the last build."""

import subprocess
import sys

MARK = ".mutants-copy"


def copy_tree(root, work, parts):
    """Makes `work` hold the files of `parts` (paths and patterns of git) that git tracks or would
    track in `root`. Files that are the same keep their time, so that make builds little; files that
    `root` has no longer go, except below build/. So a folder that is no such copy is refused."""
    work.mkdir(parents=True, exist_ok=True)
    if any(work.iterdir()) and not (work / MARK).exists():
        sys.exit(f"{work} is not empty and no copy of this script: choose another --work")
    (work / MARK).touch()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *parts], cwd=root,
                            check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    names = {name for name in listed if (root / name).is_file()}
    for name in sorted(names):
        source, target = root / name, work / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())  # the time of now, not that of the source
        target.chmod(source.stat().st_mode)
    for path in work.rglob("*"):
        name = path.relative_to(work).as_posix()
        if path.is_file() and name not in {MARK, *names} and not name.startswith("build/"):
            path.unlink()
