"""The bare Debian that boot and image share: who comes second waits for the first."""

import os
import runpy
import threading
from pathlib import Path

BOOT = Path(__file__).resolve().parent / "boot"
FAKE = """#!/bin/sh
# debootstrap, as slow as it takes two to meet: it fails if its folder is removed meanwhile.
for folder; do case $folder in /*) break ;; esac; done
mkdir -p "$folder/etc" && touch "$folder/begun" && sleep 1 && rm "$folder/begun" || exit 1
echo made >>"$FAKE_LOG"
touch "$folder/etc/os-release"
"""


def test_two_at_once_make_one_debian(tmp_path, monkeypatch):
    program, log, base = tmp_path / "debootstrap", tmp_path / "log", tmp_path / "root"
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(log))
    boot, faults = runpy.run_path(str(BOOT)), []

    def make():
        try:
            boot["debian"](base, "http://mirror")
        except (boot["Impossible"], OSError) as fault:
            faults.append(fault)

    makers = [threading.Thread(target=make) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert faults == [] and log.read_text() == "made\n" and (base / "etc/os-release").exists()
