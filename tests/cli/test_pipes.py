"""`-` as a file: standard input and standard output."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spinimpute.targets.formats import STDIN_NAME

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
CONSOLE_SCRIPT = [sys.executable, "-c", "from spinimpute.__main__ import main; main()"]

# runs commands one after another, and prints their exit statuses
SEVERAL = """
import sys
from spinimpute.cli.main import run_command
for words in sys.argv[1:]:
    print(run_command(words.split("\\n")))
"""
EOF_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
Piped = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def piped(tmp_path: Path) -> Piped:
    """piped(input, *arguments): a process that reads these bytes; its temporary files are in tmp_path/t."""
    (tmp_path / "t").mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "SPINIMPUTE_PANEL"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path / "t")}

    def run(given: bytes, *arguments: object) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*CONSOLE_SCRIPT, *map(str, arguments)],
            input=given,
            capture_output=True,
            env=environment,
            timeout=300,
        )

    return run


def without_command(vcf: bytes) -> list[bytes]:
    """The lines of a VCF but that which quotes the command."""
    return [line for line in vcf.splitlines() if not line.startswith(b"##spinimpute_command")]


def temporary_files(tmp_path: Path) -> list[str]:
    return [name for name in os.listdir(tmp_path / "t") if name.startswith("spinimpute-")]


@pytest.mark.parametrize("command", ["impute", "phase", "convert"])
def test_the_same_as_from_file_to_file(run, piped, example, panel, tmp_path, command):
    target = example / "target.vcf.gz"
    run(command, "--vcf", target, "--panel", panel, "-o", tmp_path / "o.vcf", "-q").ok()
    done = piped(target.read_bytes(), command, "--vcf", "-", "--panel", panel, "--out", "-")
    assert done.returncode == 0, done.stderr
    assert without_command(done.stdout) == without_command((tmp_path / "o.vcf").read_bytes())
    assert b" --vcf - " in done.stdout  # the command is quoted as it was given
    assert b"output:   -" in done.stderr
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("command", ["impute", "phase", "convert"])
def test_words_in_braces_are_refused_before_anything_is_read(panel, tmp_path, command):
    """Whoever writes into the pipe may take hours."""
    words = [*CONSOLE_SCRIPT, command, "--vcf", "-", "--panel", panel, "--out", tmp_path / "o.{chr}.vcf"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.wait(300) == 2
        assert process.stderr is not None
        assert b"unknown placeholder {chr}" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("form", "suffix"), [("z", ".vcf.gz"), ("b", ".bcf")])
def test_packed_output(run, piped, example, panel, tmp_path, form, suffix):
    target = example / "target.vcf.gz"
    out, text, again = tmp_path / f"o{suffix}", tmp_path / "o.vcf", tmp_path / "again.vcf"
    for path in (out, text):
        run.convert(target, panel, path).ok()
    done = piped(target.read_bytes(), "convert", "--vcf", "-", "--panel", panel, "-o", "-", "-O", form)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(EOF_BLOCK)
    # the headers quote other commands
    assert gzip.decompress(done.stdout)[-5_000:] == gzip.decompress(out.read_bytes())[-5_000:]
    read = piped(done.stdout, "convert", "--vcf", "-", "--panel", panel, "-o", again, "-q")
    assert read.returncode == 0, read.stderr
    assert again.read_bytes().splitlines()[-1] == text.read_bytes().splitlines()[-1]


def test_a_panel_comes_through_a_pipe(run, piped, example, tmp_path):
    source, out = example / "panel.vcf.gz", tmp_path / "o.vcf"
    run.convert(example / "target.vcf.gz", source, out).ok()
    words = ["convert", "--vcf", example / "target.vcf.gz", "--out", "-", "--panel", "-"]
    done = piped(source.read_bytes(), *words)
    assert done.returncode == 0, done.stderr
    assert without_command(done.stdout) == without_command(out.read_bytes())
    assert temporary_files(tmp_path) == []


def test_evaluate(run, piped, example, panel, tmp_path):
    out = tmp_path / "o.vcf"
    run.impute(example / "target.vcf.gz", panel, out).ok()
    truth, typed = example / "truth.vcf.gz", example / "target.vcf.gz"
    common = ["evaluate", "--truth", truth, "--panel", panel, "--typed", typed]
    done = piped(out.read_bytes(), *common, "--imputed", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == run(*common, "--imputed", out).out
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("form", ["v", "z"])
def test_a_reader_that_goes(example, panel, form):
    target = example / "target.vcf.gz"
    process = subprocess.Popen(
        [*CONSOLE_SCRIPT, "impute", "--vcf", target, "--panel", panel, "-o", "-", "-O", form, "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert len(process.stdout.read(10)) == 10
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(300) == 1


@pytest.mark.parametrize("form", ["v", "z", "b"])
def test_what_an_error_ends_does_not_look_whole(monkeypatch, capfdbinary, example, panel, form):
    """The report fails when all genotypes are written."""
    from spinimpute.cli.main import run_command

    from spinimpute.pipeline import impute
    from spinimpute.runtime.errors import InputError

    def fails(*_: object) -> None:
        raise InputError("content", "the report fails")

    monkeypatch.setattr(impute, "_write_reports", fails)
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "-o", "-", "-O", form]
    assert run_command([*map(str, words), "--report", str(example / "no.html")]) == 2
    out, err = capfdbinary.readouterr()
    assert err.count(b"error:") == 1
    assert len(out) > 10_000
    assert not out.endswith((b"\n", EOF_BLOCK))


def test_errors(piped, example, panel, tmp_path):
    def fails(given: bytes, *words: object) -> str:
        done = piped(given, *words)
        said = done.stderr.decode()
        assert (done.returncode, done.stdout, said.count("error:")) == (2, b"", 1), said
        assert temporary_files(tmp_path) == []
        return said

    both = fails(b"", "impute", "--vcf", "-", "--panel", "-", "--out", "-")
    assert "--vcf and --panel both read standard input" in both
    said = fails(b"", "phase", "--vcf", "-", "--panel", panel, "--out", "-")
    assert "target standard input: the file is empty" in said
    assert STDIN_NAME not in said
    cut = (example / "target.vcf.gz").read_bytes()[:-28]
    said = fails(cut, "convert", "--vcf", "-", "--panel", panel, "--out", "-")
    assert "target standard input: the file is truncated" in said
    words = ["--vcf", example / "target.vcf.gz", "--panel", panel, "--out", "-", "--report", "-"]
    assert "Give a file name" in fails(b"", "impute", *words)


def test_outputs_are_refused_before_standard_input_is_read(example, panel, tmp_path):
    """Its writer never ends."""
    for name in ("o.vcf", "page.html", "loo.sites.tsv"):
        (tmp_path / name).write_text("kept")
    (tmp_path / "no").mkdir()
    common = ("impute", "--vcf", "-", "--panel", panel)
    files = ("--truth", example / "truth.vcf.gz", "--imputed", "-", "--panel", panel)
    commands = (
        ((*common, "--out", tmp_path / "o.vcf"), "o.vcf already exists; use --force"),
        ((*common, "--out", "-", "--report", tmp_path / "page.html"), "page.html already exists"),
        ((*common, "--out", "-", "--loo", tmp_path / "loo"), "loo.sites.tsv already exists"),
        ((*common, "--out", tmp_path / "o.txt"), "has no known format"),
        (("phase", *common[1:], "--out", tmp_path / "no"), "no: it is a folder"),
        (("convert", *common[1:], "--out", tmp_path / "o.vcf"), "o.vcf already exists"),
        (("evaluate", *files, "--report", tmp_path / "page.html"), "page.html already exists"),
        (("evaluate", *files, "--out", tmp_path / "page.html"), "page.html"),
    )
    process = subprocess.Popen(
        [sys.executable, "-c", SEVERAL, *("\n".join(map(str, words)) for words, _ in commands)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.wait(300) == 0
    out, err = process.communicate()
    assert out == "2\n" * len(commands)
    for line, (_, said) in zip(err.splitlines(), commands, strict=True):
        assert said in line


@pytest.mark.parametrize(("form", "called"), [("b", "BCF"), ("z", "compressed VCF")])
@pytest.mark.parametrize("command", ["impute", "phase"])
def test_nothing_packed_goes_to_a_terminal(example, panel, form, called, command):
    pty = pytest.importorskip("pty")
    ours, terminal = pty.openpty()
    words = [command, "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", "-", "-O", form]
    done = subprocess.run(
        [*CONSOLE_SCRIPT, *map(str, words)], stdout=terminal, stderr=subprocess.PIPE, timeout=300
    )
    os.close(terminal)
    assert done.returncode == 2
    assert f"{called} cannot be written to a terminal. Redirect" in done.stderr.decode()
    assert "or write text with --output-type v" in done.stderr.decode()
    with suppress(OSError):  # so Linux says that a terminal's other end is closed
        assert os.read(ours, 1) == b""
    os.close(ours)


def test_text_goes_to_a_terminal(example, panel):
    pty = pytest.importorskip("pty")
    ours, terminal = pty.openpty()
    words = ["convert", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", "-", "-q"]
    with subprocess.Popen([*CONSOLE_SCRIPT, *map(str, words)], stdout=terminal) as process:
        os.close(terminal)
        text = b""
        try:
            while piece := os.read(ours, 65_536):
                text += piece
        except OSError:
            pass
    os.close(ours)
    assert process.returncode == 0
    assert text.startswith(b"##fileformat=VCF")


@pytest.mark.parametrize("command", ["impute", "convert", "phase"])
def test_standard_output_that_is_an_input(example, panel, tmp_path, command):
    """The shell empties the file of `> target.vcf` before the command starts."""
    target = tmp_path / "target.vcf"
    target.write_bytes(gzip.decompress((example / "target.vcf.gz").read_bytes()))
    words = map(str, [*CONSOLE_SCRIPT, command, "--vcf", target, "--panel", panel, "-o", "-", "-q"])
    with target.open("ab") as output:
        done = subprocess.run([*words], stdout=output, stderr=subprocess.PIPE, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"spinimpute: error: {target}: standard output is redirected to this input, so the shell may have "
        "emptied it. Restore it, and redirect the output to another file\n"
    )
    assert target.read_bytes() == gzip.decompress((example / "target.vcf.gz").read_bytes())
