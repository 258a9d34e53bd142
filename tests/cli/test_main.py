"""The group itself: help, versions, mistakes in the command line, and how it ends."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from unittest import mock

import pytest
from spinimpute.cli.main import COMMANDS, _show_warning

from spinimpute.predictors.loading import FORMAT
from spinimpute.predictors.registry import row_by_name
from spinimpute.runtime.tensor_files import fingerprint, load_tensors

HEAVY = ("torch", "numpy", "cyvcf2", "pandas", "matplotlib", "rich")


@pytest.mark.parametrize("arguments", [["-h"], ["impute", "-h"], ["panel", "build", "-h"], ["train", "-h"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys, json\n"
        "from spinimpute.cli.main import run_command\n"
        "code = run_command()\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(json.dumps([code, loaded]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=240, check=True
    )
    shown, status = done.stdout.rstrip().rsplit("\n", 1)
    assert json.loads(status) == [0, []]
    assert shown.startswith("Usage: spinimpute")
    assert "--help" in shown


def test_group_help_lists_every_command(run):
    shown = run("-h").ok()
    for name in ("panel", "impute", "evaluate", "train"):
        assert name in COMMANDS
        assert f"\n  {name} " in shown.out


@pytest.mark.parametrize("command", [*COMMANDS, "panel build", "panel info", "panel verify"])
def test_every_command_explains_itself(run, command):
    shown = run(*command.split(), "-h").ok()
    assert shown.out.startswith(f"Usage: spinimpute {command}")


def test_version_names_models_and_libraries(run):
    told = json.loads(run("version", "--json").out)
    assert told["spinimpute"] == run("--version").out.split()[1]
    for sort in ("haplotype", "spin"):
        weights, _ = load_tensors(row_by_name(sort).shipped_checkpoint, FORMAT, "model")
        assert told[f"model {sort}"] == fingerprint(weights)
    for library in ("numpy", "torch", "cyvcf2", "numba", "safetensors", "scikit-learn"):
        assert told[library] == version(library)
    assert not {"pytest", "snakemake"} & told.keys()
    lines = run("version").out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == list(told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage: spinimpute"),
        (["panel"], "Usage: spinimpute panel"),
        (["imputate"], "imputate"),
        (["impute", "--vfc", "x"], "--vfc"),
        (["impute"], "--vcf"),
        (["impute", "--vcf", "t.vcf", "--out", "o.vcf"], "Compile it once with 'spinimpute panel build"),
        (["impute", "--vcf", "t.vcf", "--out", "o.vcf", "--threads", "0"], "--threads"),
        (["impute", "--vcf", "t.vcf", "--out", "o.vcf", "--device", "tpu"], "tpu"),
        (["impute", "--vcf", "t.vcf", "--out", "o.vcf", "-O", "x"], "-O"),
        (["evaluate", "--truth", "a.vcf", "--truth=b.vcf"], "--truth is given 2 times: give it once"),
        (
            ["phase", "--bfile", "a", "--vcf", "b.vcf", "-o", "o.vcf", "--out", "p.vcf"],
            "--out is given 2 times",
        ),
        (["impute", "--regions-file", "a.bed", "-R", "b.bed"], "--regions-file is given 2 times"),
        (["ligate", "a.vcf", "b.vcf", "--panel", "p.spin", "--panel", "q.spin"], "--panel is given 2 times"),
        (["impute", "t.vcf", "--panel", "p.spin", "--out", "o.vcf"], "'t.vcf' stands without an option"),
        (["check", "--vcf", "t.vcf", "u.vcf", "w.vcf"], "'u.vcf', 'w.vcf' stand without an option"),
        (["evaluate", "t.vcf"], "'t.vcf'"),
        (["panel", "build", "t.vcf"], "'t.vcf'"),
    ],
)
def test_mistakes_in_the_command_line(run, arguments, said):
    failed = run(*arguments).refused()
    assert failed.out == ""
    assert said in failed.err


@pytest.mark.parametrize(
    ("command", "option", "advice"),
    [
        *(
            ("impute", option, "Give a file name, or leave the option out")
            for option in (
                "--report",
                "--multiqc",
                "--log",
                "--sex",
                "--chain",
                "--model",
                "--vcf",
                "--panel",
            )
        ),
        ("impute", "--report-figures", "Give a folder name, or leave the option out"),
        ("impute", "--loo", "Give the beginning of file names, or leave the option out"),
        ("impute", "--out", "Give a file name\n"),
        ("evaluate", "--out", "Give a folder name, or leave the option out"),
        ("ligate", "--panel", "Give a file name, or leave the option out"),
        ("tabular fit", "--table", "Give a file name"),
    ],
)
def test_an_empty_name_is_no_name(run, command, option, advice):
    """Such as of a variable that is not set; not the folder where one is."""
    for words in ([option, ""], [f"{option}="]):
        failed = run(*command.split(), *words).refused()
        assert failed.err.startswith(f"spinimpute: error: {option} has an empty name. {advice}")


@pytest.mark.parametrize(
    ("command", "words", "name"),
    [
        ("ligate", ["", "", "--out", "x.vcf"], "CHUNK..."),
        ("ligate", ["a.vcf", "", "--out", "x.vcf"], "CHUNK..."),
        ("panel merge", ["", "", "--out", "x.spin"], "FILE FILE..."),
        *((f"panel {command}", [""], "FILE") for command in ("info", "chunks", "verify")),
        ("np evaluate", [""], "MODELS"),
        ("tabular info", [""], "MODEL"),
    ],
)
def test_an_empty_argument_is_no_name(run, command, words, name):
    failed = run(*command.split(), *words).refused()
    assert failed.err == f"spinimpute: error: {name} has an empty name. Give a file name\n"


def test_warnings_of_the_library_are_plain_text(run, example, tmp_path):
    out = tmp_path / "p.spin"
    done = run("panel", "build", "--vcf", example / "panel.vcf.gz", "--out", out).ok(
        "spinimpute: warning: no genetic map"
    )
    assert ".py:" not in done.err


def test_a_traceback_that_a_warning_quotes_is_left_out(capsys):
    _show_warning(
        "'abc' could not be parsed.\nThe parse failed:\nTraceback (most recent call last):\n  int(x)"
    )
    assert capsys.readouterr().err == "spinimpute: warning: 'abc' could not be parsed.\n"


def test_an_interrupt_is_one_line(run, tmp_path):
    with mock.patch("spinimpute.pipeline.impute.impute", side_effect=KeyboardInterrupt):
        stopped = run.impute("t.vcf", "p.spin", tmp_path / "o.vcf")
    assert stopped.code == 130
    assert len(stopped.err.strip().splitlines()) == 1
    assert stopped.err.strip().startswith("spinimpute: interrupted")


def test_too_little_memory_is_one_line(run, tmp_path):
    with mock.patch("spinimpute.pipeline.impute.impute", side_effect=MemoryError):
        failed = run.impute("t.vcf", "p.spin", tmp_path / "o.vcf")
    assert failed.code == 2
    assert failed.err.startswith("spinimpute: error: there is not enough memory")
    assert failed.err.count("\n") == 1


def test_a_bug_of_ours_keeps_its_traceback(run, tmp_path):
    with (
        mock.patch("spinimpute.pipeline.impute.impute", side_effect=ZeroDivisionError),
        pytest.raises(ZeroDivisionError),
    ):
        run.impute("t.vcf", "p.spin", tmp_path / "o.vcf")


def test_the_reason_of_the_operating_system_is_reported(run, tmp_path):
    for error, message in (
        (
            PermissionError(13, "Permission denied", "a/b"),
            "a/b: Permission denied. Check the permissions of its folder",
        ),
        (OSError(5, "Input/output error", "a/b"), "a/b: Input/output error"),
    ):
        with mock.patch("spinimpute.pipeline.impute.impute", side_effect=error):
            done = run.impute("t.vcf", "p.spin", tmp_path / "o.vcf")
        assert (done.code, done.err) == (2, f"spinimpute: error: {message}\n")


def test_a_closed_pipe_is_no_news(start, panel):
    process = start("panel", "info", panel)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=240) == 1
    assert err == ""


def test_a_command_starts_no_threads_for_every_core():
    """Numpy's BLAS would, when it is imported; what the user has set stays."""
    script = (
        "import os, sys, types\n"
        "from spinimpute.__main__ import main\n"
        "def report():\n"
        "    assert 'numpy' not in sys.modules\n"
        "    print(os.environ['OPENBLAS_NUM_THREADS'])\n"
        "sys.modules['spinimpute.cli.main'] = types.SimpleNamespace(main=report)\n"
        "main()"
    )
    for given, expected in ((None, "1"), ("3", "3")):
        environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
        if given is not None:
            environment["OPENBLAS_NUM_THREADS"] = given
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == expected


def test_tables_are_utf8_in_every_locale(script, panel, edited_target, tmp_path, monkeypatch):
    name = "Jürgen 日本"
    target = edited_target(lambda text: text.replace("target_AFR_02", name))
    (tmp_path / "names").write_text(f"{name}\n", encoding="utf-8")
    for variable, value in (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")):
        monkeypatch.setenv(variable, value)
    script(
        "check",
        "--vcf",
        target,
        "--panel",
        panel,
        "-o",
        tmp_path / "c.tsv",
        "--samples-out",
        tmp_path / "s.tsv",
    ).ok()
    assert f"\n{name}\t" in (tmp_path / "s.tsv").read_text(encoding="utf-8")
    options = ("--samples-file", tmp_path / "names", "--loo", tmp_path / "loo")
    script.impute(target, panel, tmp_path / "o.vcf", *options).ok()
    assert f"\n{name}\t" in (tmp_path / "loo.samples.tsv").read_text(encoding="utf-8")
    assert f"\tFORMAT\t{name}\n" in (tmp_path / "o.vcf").read_text(encoding="utf-8")
