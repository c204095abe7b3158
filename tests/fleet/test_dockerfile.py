"""The Dockerfile, judged by hadolint."""

import subprocess

from conftest import ROOT

HADOLINT = ROOT / "build/venv-fleet/bin/hadolint"


def judge(path):
    return subprocess.run([HADOLINT, "--no-color", path], text=True, capture_output=True)


def test_the_judge_finds_a_mistake(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN cd /tmp && sudo make\n")
    assert "DL3004" in judge(tmp_path / "Dockerfile").stdout


def test_the_dockerfile_is_clean():
    done = judge(ROOT / "Dockerfile")
    assert done.returncode == 0, done.stdout
