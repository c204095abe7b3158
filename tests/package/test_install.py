"""What `make install` puts on a disk: programs, pages, completions, configuration, unit.

    build/venv/bin/python -m pytest tests/package --inferd build/inferd

Nothing is installed on this machine: everything goes below a folder of its own.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def rows(name):
    """Names and second spellings of options.def, with the kind of each."""
    text = (ROOT / "config/options.def").read_text()
    for kind, field, rest in re.findall(r"^OPTION\((\w+), (\w+), (.*)\)$", text, re.MULTILINE):
        alias = re.findall(r'"((?:[^"\\]|\\.)*)"', rest)[-3]
        yield kind, (field, alias)[name]


def flags():
    """Every flag that `inferd serve` takes, as it is typed."""
    for name in (0, 1):
        for kind, word in rows(name):
            if word:
                word = word.replace("_", "-")
                yield f"--{word}"
                if kind == "BOOL":
                    yield f"--no-{word}"


def make(request, *arguments):
    build = Path(request.config.getoption("--inferd")).resolve().parent
    cuda = (build / "libgpu.a").exists()
    done = subprocess.run(["make", f"BUILD={build}", f"CUDA={cuda:d}", *arguments], cwd=ROOT,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def root(request, tmp_path_factory):
    """A folder in which `make install PREFIX=/usr` has been run."""
    folder = tmp_path_factory.mktemp("root")
    make(request, "install", f"DESTDIR={folder}", "PREFIX=/usr")
    return folder


def test_programs_run_and_carry_no_symbols(root):
    for name in ("inferd", "inferd-bench", "inferd-pull"):
        program = root / "usr/bin" / name
        assert program.stat().st_mode & 0o777 == 0o755
        symbols = subprocess.run(["nm", program], text=True, capture_output=True)
        assert "no symbols" in symbols.stderr
    version = subprocess.run([root / "usr/bin/inferd", "version"], text=True, capture_output=True)
    assert version.returncode == 0 and version.stdout.startswith("inferd ")
    # inferd finds the programs beside it.
    pull = subprocess.run([root / "usr/bin/inferd", "pull", "--help"], text=True,
                          capture_output=True)
    assert pull.returncode == 0 and "ORG/NAME" in pull.stdout


def test_ranks_of_mpirun_find_the_plugin(root, tmp_path):
    """An installed program, started by mpirun, opens lib/inferd/inferd-mpi.so."""
    assert (root / "usr/lib/inferd/inferd-mpi.so").stat().st_mode & 0o777 == 0o644
    model = tmp_path / "none"
    done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2",
                           root / "usr/bin/inferd", "serve", model], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert "inferd-mpi.so does not open" not in done.stdout
    assert str(model) in done.stdout, done.stdout  # both ranks got as far as looking for it


@pytest.mark.parametrize("page", ["man8/inferd.8", "man5/inferd.conf.5"])
def test_every_option_is_once_in_each_manual_page(root, page):
    path = root / "usr/share/man" / page
    shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tascii", path], text=True,
                           capture_output=True, env={"PATH": "/usr/bin:/bin"})
    assert shown.returncode == 0 and shown.stderr == ""
    text = re.sub(".\b", "", shown.stdout)
    start = r"-" if page == "man8/inferd.8" else r"\S"  # not those of commands
    heads = re.findall(rf"^ {{7}}({start}.*)$", text, re.MULTILINE)
    words = [word for head in heads for word in re.findall(r"--[\w\[\]-]+|^\w+(?= +=| *$)", head)]
    for kind, name in rows(0):
        flag = name.replace("_", "-")
        wanted = {"man8/inferd.8": f"--[no-]{flag}" if kind == "BOOL" else f"--{flag}",
                  "man5/inferd.conf.5": name}[page]
        assert words.count(wanted) == 1, wanted


def bash_proposals(root, *words):
    """What bash proposes for the last of `words`."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _inferd; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    file = root / "usr/share/bash-completion/completions/inferd"
    done = subprocess.run(["bash", "-c", script, "bash", file, *words], text=True,
                          capture_output=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_proposes_every_flag_once(root):
    proposed = bash_proposals(root, "inferd", "serve", "--")
    for flag in flags():
        assert proposed.count(flag) == 1, flag


def test_bash_proposes_commands_values_and_own_flags(root):
    assert set(bash_proposals(root, "inferd", "")) >= {"serve", "check", "pull", "health"}
    assert bash_proposals(root, "inferd", "serve", "--log-level", "w") == ["warn"]
    assert "--ready" in bash_proposals(root, "inferd", "health", "--rea")
    assert "--ready" not in bash_proposals(root, "inferd", "serve", "--rea")
    assert set(bash_proposals(root, "inferd", "config", "")) == {"dump", "check"}


def test_zsh_and_fish_files_hold_every_flag_once(root):
    zsh = (root / "usr/share/zsh/site-functions/_inferd").read_text()
    fish = (root / "usr/share/fish/vendor_completions.d/inferd.fish").read_text()
    for flag in flags():
        assert len(re.findall(rf"'\*?{flag}[=\[]", zsh)) == 1, flag
        assert len(re.findall(rf" -l {flag[2:]} ", fish)) == 1, flag
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=zsh, text=True, check=True)


def test_the_configuration_is_valid_and_its_model_is_there(root):
    conf = root / "etc/inferd/inferd.conf"
    checked = subprocess.run([root / "usr/bin/inferd", "config", "check", conf], text=True,
                             capture_output=True)
    assert checked.stdout == "ok\n"
    model = re.search(r"^model = (.*)$", conf.read_text(), re.MULTILINE)[1]
    plan = subprocess.run([root / "usr/bin/inferd", "check", f"{root}{model}"], text=True,
                          capture_output=True)
    assert plan.returncode == 0, plan.stderr


def test_the_socket_stands_where_the_configuration_listens(root):
    socket = (root / "usr/lib/systemd/system/inferd.socket").read_text()
    conf = (root / "etc/inferd/inferd.conf").read_text()
    host, port = (re.search(rf"^{name} = (.*)$", conf, re.MULTILINE)[1]
                  for name in ("host", "port"))
    assert re.findall(r"^ListenStream=(.*)$", socket, re.MULTILINE) == [f"{host}:{port}"]


def test_several_models_as_the_unit_runs_them(root, tmp_path):
    """The line of models_dir as it stands there, and a file in the directory that was installed."""
    conf, folder = tmp_path / "inferd.conf", root / "etc/inferd/models.d"
    runtime = Path(tempfile.mkdtemp(dir="/tmp"))  # the path of a socket is short
    text = (root / "etc/inferd/inferd.conf").read_text()
    text = text.replace("# models_dir = /etc", f"models_dir = {root}/etc")
    conf.write_text(text.replace("port = 8000", f"uds = {runtime}/inferd.sock")
                    .replace("model = /usr", f"model = {root}/usr").replace("host =", "# host ="))
    section = f"[model second]\nmodel = {root}/usr/share/inferd/models/demo\n"
    (folder / "more.conf").write_text(section)
    unit = (root / "usr/lib/systemd/system/inferd.service").read_text()
    with subprocess.Popen([root / "usr/bin/inferd", "serve", "--config", conf, "--port", "0"],
                          env={"RUNTIME_DIRECTORY": str(runtime), "HOME": "/nonexistent"},
                          stderr=subprocess.PIPE, text=True, umask=0o077) as server:
        try:
            ask = [root / "usr/bin/inferd"], ["--uds", runtime / "inferd.sock"]
            for line in server.stderr:
                if "several models behind" in line:
                    break
            for name in ("demo", "second"):  # the first is loaded at the start, but when?
                loaded = subprocess.run([*ask[0], "load", name, *ask[1]], text=True,
                                        capture_output=True)
                assert loaded.stdout == f"{name} is ready\n", loaded
            listed = subprocess.run([*ask[0], "ps", *ask[1]], text=True, capture_output=True)
            assert re.findall(r"^(\w+) +ready", listed.stdout, re.MULTILINE) == ["demo", "second"]
            sockets = [path for path in runtime.iterdir() if path.is_dir()]
            assert len(sockets) == 1 and sockets[0].stat().st_mode & 0o777 == 0o700
            assert {path.stat().st_mode & 0o077 for path in sockets[0].iterdir()} == {0}
            children = [Path(f"/proc/{pid}/task") for pid in Path(
                f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]
            threads = max(len(list(tasks.iterdir())) for tasks in children) - os.cpu_count()
            most = int(re.search(r"^TasksMax=(\d+)$", unit, re.MULTILINE)[1])
            assert most >= 16 * (threads + 256), "16 models on 256 processors"
        finally:
            server.terminate()
            server.stderr.read()
            assert server.wait() == 0
            (folder / "more.conf").unlink()
    runtime.rmdir()  # nothing is left in it


def test_a_second_installation_keeps_the_configuration(request, tmp_path):
    make(request, "install", f"DESTDIR={tmp_path}")
    conf = tmp_path / "etc/inferd/inferd.conf"
    conf.write_text("port = 9\n")
    make(request, "install", f"DESTDIR={tmp_path}")
    assert conf.read_text() == "port = 9\n"
    assert "port = 8000" in conf.with_suffix(".conf.new").read_text()
    unit = (tmp_path / "usr/local/lib/systemd/system/inferd.service").read_text()
    assert "ExecStart=/usr/local/bin/inferd serve --config /etc/inferd/inferd.conf" in unit


def test_uninstall_leaves_the_configuration_alone(request, tmp_path):
    make(request, "install", f"DESTDIR={tmp_path}")
    make(request, "uninstall", f"DESTDIR={tmp_path}")
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ["etc/inferd/inferd.conf"]
