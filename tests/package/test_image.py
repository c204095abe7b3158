"""The image, as far as its Dockerfile says: what a container's supervisor relies on. The image
itself is built where a builder is."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKER_STOP_S = 10  # then `docker stop` kills


def instructions():
    """(word, rest) of each instruction of the last stage; lines that continue are joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and line[0] not in "# "]
    last = max(i for i, line in enumerate(lines) if line[0] == "FROM")
    return lines, lines[last:]


def environment():
    words = shlex.split(" ".join(rest for word, rest in instructions()[1] if word == "ENV"))
    return dict(word.split("=", 1) for word in words)


def test_a_stop_ends_before_the_supervisor_kills(request):
    """Delay and drain, with two seconds for the rest, fit into the time that Docker gives."""
    inferd = Path(request.config.getoption("--inferd")).resolve()
    dump = subprocess.run([inferd, "config", "dump"], env={**os.environ, **environment()},
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds = {name: float(value) for name, value in
               re.findall(r"^(drain_delay|drain_timeout) = ([0-9.]+)s?\b", dump, re.M)}
    assert 0 < seconds["drain_delay"] and 0 < seconds["drain_timeout"], dump
    assert sum(seconds.values()) + 2 <= DOCKER_STOP_S


def test_a_container_is_healthy_when_it_is_ready():
    check = [rest for word, rest in instructions()[1] if word == "HEALTHCHECK"]
    assert len(check) == 1 and '"health", "--ready"' in check[0]
    assert "--start-period=15m" in check[0], "a large model may load for minutes"


def test_the_commit_reaches_the_program(tmp_path):
    """.git is not in the context: the argument COMMIT is what /version says."""
    stages, last = instructions()
    assert any(word == "RUN" and re.search(r"\bmake [^&]*COMMIT=\$\{COMMIT\}", rest)
               for word, rest in stages)
    assert any("org.opencontainers.image.revision=${COMMIT}" in rest for word, rest in last)
    source = f"{tmp_path}/server/api/version.o"
    plan = subprocess.run(["make", "-n", f"BUILD={tmp_path}", "CUDA=0", "COMMIT=0123456789ab",
                           source], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert """-DINFERD_COMMIT='"0123456789ab"'""" in plan


def test_an_image_without_its_cublas_is_not_made(tmp_path):
    """image_root looks for the library that the program opens by name, and says if it lacks."""
    programs = tmp_path / "installed/usr/bin"
    programs.mkdir(parents=True)
    for name in ("inferd", "inferd-pull"):
        shutil.copy(ROOT / "build" / name, programs)
    program = (programs / "inferd").read_bytes() + b"libcublasLt.so.99\0"
    (programs / "inferd").write_bytes(re.sub(rb"(libcublasLt\.so\.)\d\d", rb"\g<1>99", program))
    command = [ROOT / "scripts/image_root", tmp_path / "installed", tmp_path / "out"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "libcublasLt.so.99" in done.stderr


def test_an_image_has_the_libraries_of_several_cards(tmp_path):
    """cuBLASLt and NCCL, each in the folder of its layer; without NCCL a line says so."""
    programs, libraries = tmp_path / "installed/usr/bin", tmp_path / "cuda"
    (tmp_path / "installed/usr/share").mkdir(parents=True)
    programs.mkdir(parents=True)
    libraries.mkdir()
    for name in ("inferd", "inferd-pull"):
        shutil.copy(ROOT / "build" / name, programs)
    (programs / "inferd").write_bytes((programs / "inferd").read_bytes() + b"libcublasLt.so.99\0")
    name = re.search(rb"libcublasLt\.so\.\d+", (programs / "inferd").read_bytes())[0].decode()
    shutil.copy("/bin/true", libraries / name)
    command = [ROOT / "scripts/image_root", tmp_path / "installed"]
    settings = {**os.environ, "CUDA_LIBRARIES": str(libraries)}
    for out, has in (("without", False), ("with", True)):
        if has:
            shutil.copy("/bin/true", libraries / "libnccl.so.2")
        done = subprocess.run([*command, tmp_path / out], env=settings, stderr=subprocess.PIPE,
                              text=True)
        assert (tmp_path / out / "cublas/usr/lib" / name).is_file(), done.stderr
        assert (tmp_path / out / "nccl/usr/lib/libnccl.so.2").is_file() == has, done.stderr
        assert ("no libnccl.so.2 here" in done.stderr) == (not has), done.stderr


def test_every_layer_of_image_root_is_in_the_image():
    made = re.findall(r'"\$out/(\w+)', (ROOT / "scripts/image_root").read_text())
    copied = [re.search(r"/layers/(\w+)", rest)[1] for word, rest in instructions()[1]
              if word == "COPY"]
    assert set(copied) == set(made) - {"tmp"}, (copied, made)
