"""`spinimpute evaluate`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from spinimpute.quality.metrics import DEFAULT_BINS

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def imputed(example: Path, panel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import spinimpute

    path = tmp_path_factory.mktemp("imputed") / "imputed.bcf"
    output = spinimpute.OutputSettings(formats=("GT", "DS", "GP"))
    spinimpute.impute(example / "target.vcf.gz", path, panel, output=output)
    return path


@pytest.fixture
def files(example: Path, panel: Path, imputed: Path) -> dict[str, Path]:
    return {
        "truth": example / "truth.vcf.gz",
        "imputed": imputed,
        "panel": panel,
        "typed": example / "target.vcf.gz",
    }


def as_arguments(options: dict[str, Any]) -> list[str]:
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]


def test_reports(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "evaluation"
    done = run("evaluate", *as_arguments(files), "--out", out)
    assert done.code == 0
    assert "4,207 sites, 20 samples" in done.out
    assert "concordance" in done.out
    table = pd.read_csv(out / "accuracy.tsv", sep="\t")
    assert set(table["imputer"]) == {"allele-frequency", "imputed"}
    everything = table[table["bin"] == "all"].set_index("imputer")["pooled_r2"]
    assert everything["imputed"] > everything["allele-frequency"]
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "calibration.tsv").exists()

    again = run("evaluate", *as_arguments(files), "--out", out)
    assert again.code == 2
    assert "already exists; use --force to overwrite" in again.err
    more = ("--bins", "0,0.05,0.5", "--concordance", out / "chr20")
    done = run("evaluate", *as_arguments(files), "--out", out, "--force", *more)
    assert done.code == 0
    assert f"concordance: {out / 'chr20'}.*.txt.gz" in done.err
    assert len(list(out.glob("chr20.*.txt.gz"))) == 5
    table = pd.read_csv(out / "accuracy.tsv", sep="\t")
    assert set(table["bin"]) == {"all", "(0,0.05]", "(0.05,0.5]"}


def test_a_terminal_without_our_characters(
    script: Run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = script("evaluate", *as_arguments(files), "--out", files["imputed"].with_name("ascii"))
    assert done.err.count("Traceback") == 0
    assert done.code == 0
    assert "4,207 sites" in done.out


def test_arguments(run: Run, tmp_path: Path) -> None:
    options = {"truth": "t.bcf", "imputed": "i.bcf", "panel": "p.spin", "typed": "x.bcf", "out": "o"}
    for more, bins in ([], DEFAULT_BINS), (["--bins", "0, 0.01,0.5"], (0.0, 0.01, 0.5)):
        with (
            mock.patch("spinimpute.evaluation.evaluate.evaluate") as library,
            mock.patch("spinimpute.evaluation.result.summary_table", return_value="the table"),
        ):
            library.return_value.left_out = {}
            done = run("evaluate", *as_arguments(options), *more)
        assert done.code == 0
        assert done.out == "the table\n"
        assert [str(value) for value in library.call_args.args[:4]] == ["t.bcf", "i.bcf", "p.spin", "x.bcf"]
        given = library.call_args.kwargs
        assert (str(given["out"]), tuple(given["bins"]), given["force"]) == ("o", bins, False)
        assert given["regions"] is given["samples"] is None


@pytest.mark.parametrize(
    "bins", ["", "a,b", "0.1", "0.1,0.1", "0.5,0.1", "0,0.7", "-1,0.5", "0,nan", "nan,0.5"]
)
def test_bad_bins(run: Run, files: dict[str, Path], tmp_path: Path, bins: str) -> None:
    failed = run("evaluate", *as_arguments(files), "--out", tmp_path / "o", f"--bins={bins}")
    assert failed.code == 2
    assert failed.err.startswith("spinimpute: error: ")
    assert "bins" in failed.err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["truth", "imputed", "panel", "typed"])
def test_missing_files(run: Run, files: dict[str, Path], tmp_path: Path, name: str) -> None:
    absent = tmp_path / ("absent.spin" if name == "panel" else "absent.bcf")
    failed = run("evaluate", *as_arguments(files | {name: absent}), "--out", tmp_path / "o")
    assert failed.code == 2
    assert failed.err.startswith("spinimpute: error: ")
    assert str(absent) in failed.err
    assert not (tmp_path / "o").exists()


def test_some_regions_and_samples(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("target_AFR_01\n\ntarget_EUR_02\n")
    places = ("--region", "20:1-100,000", "-r", "20:90000-150000", "--region", "20:300000-")
    report = tmp_path / "report.html"
    by_file = run("evaluate", *as_arguments(files), *places, "--samples-file", names, "--report", report)
    assert by_file.code == 0, by_file.err
    assert "2 samples, 20:1-150000, 20:300000-" in " ".join(by_file.out.split())
    assert "20:1-150000, 20:300000-" in report.read_text()
    listed = "target_EUR_02,target_AFR_01"
    by_list = run("evaluate", *as_arguments(files), *places, "--samples", listed)
    assert by_list.out == by_file.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples", "nobody"], "truth {truth}: 1 of the requested samples are not in the file: nobody"),
        (["--samples", ","], "--samples ',': a name is empty"),
        (["--samples", "a", "--samples-file", "b"], "--samples and --samples-file exclude each other"),
        (["--samples-file", "absent"], "samples file absent: cannot be read"),
        (["--region", "20:5-1"], "the region '20:5-1' is empty or out of range"),
        (["--region", "21:1-1000"], "truth {truth}: no record in 21:1-1000"),
    ],
)
def test_regions_and_samples_that_are_not_there(
    run: Run, files: dict[str, Path], tmp_path: Path, options: list[str], message: str
) -> None:
    failed = run("evaluate", *as_arguments(files), "--out", tmp_path / "o", *options)
    assert failed.code == 2
    assert failed.err.startswith(f"spinimpute: error: {message.format(**files)}")
    assert not (tmp_path / "o").exists()


def test_the_folder_is_not_standard_output(
    run: Run, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = run("evaluate", *as_arguments(files), "--out", "-")
    assert failed.code == 2
    assert failed.out == ""
    assert "--out is a folder, got -" in failed.err
    assert not Path("-").exists()
