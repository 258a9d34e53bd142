"""`spinimpute evaluate`."""

from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from spinimpute.quality.metrics import DEFAULT_BINS


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


def test_reports(run, files, tmp_path):
    out = tmp_path / "evaluation"
    done = run("evaluate", *as_arguments(files), "--out", out).ok()
    assert "4,207 sites, 20 samples" in done.out
    assert "concordance" in done.out
    table = pd.read_csv(out / "accuracy.tsv", sep="\t")
    assert set(table["imputer"]) == {"allele-frequency", "imputed"}
    everything = table[table["bin"] == "all"].set_index("imputer")["pooled_r2"]
    assert everything["imputed"] > everything["allele-frequency"]
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "calibration.tsv").exists()

    run("evaluate", *as_arguments(files), "--out", out).refused("already exists; use --force to overwrite")
    more = ("--bins", "0,0.05,0.5", "--concordance", out / "chr20")
    run("evaluate", *as_arguments(files), "--out", out, "--force", *more).ok(
        f"concordance: {out / 'chr20'}.*.txt.gz"
    )
    assert len(list(out.glob("chr20.*.txt.gz"))) == 5
    table = pd.read_csv(out / "accuracy.tsv", sep="\t")
    assert set(table["bin"]) == {"all", "(0,0.05]", "(0.05,0.5]"}


def test_files_that_are_given_twice_or_exchanged(run, files, tmp_path):
    twin = tmp_path / "twin.bcf"
    twin.symlink_to(files["imputed"])
    run("evaluate", *as_arguments(files | {"truth": twin}), "--out", tmp_path / "o").refused(
        f"{files['imputed']} is given as --imputed and as --truth. Give two files"
    )
    run("evaluate", *as_arguments(files | {"typed": files["imputed"]}), "--out", tmp_path / "o").refused(
        "is given as --imputed and as --typed. Give two files"
    )
    assert not (tmp_path / "o").exists()
    exchanged = files | {"truth": files["imputed"], "imputed": files["truth"]}
    done = run("evaluate", *as_arguments(exchanged), "-q").ok()
    assert f"truth file {files['imputed']} has dosages or probabilities, and imputed file" in done.err
    assert "has only GT. Are the two files exchanged?" in done.err
    assert "exchanged" not in run("evaluate", *as_arguments(files), "-q").ok().err


@pytest.mark.parametrize("suffix", [".vcf", ".vcf.gz"])
def test_chunks_that_were_joined_by_cat(run, files, panel, example, tmp_path, suffix):
    chunks = [tmp_path / f"{number}{suffix}" for number in range(2)]
    for number, chunk in enumerate(chunks):
        run.impute(files["typed"], panel, chunk, "--region", f"20:{number + 1}00000-{number + 1}20000").ok()
    joined = tmp_path / f"joined{suffix}"
    joined.write_bytes(b"".join(chunk.read_bytes() for chunk in chunks))
    for words in (
        ("evaluate", *as_arguments(files | {"imputed": joined})),
        ("impute", "--vcf", joined, "--panel", panel, "--out", tmp_path / "o.vcf"),
    ):
        run(*words).refused(
            "is a header line: this is several files, one after the other. Join chunks with 'spinimpute "
            "ligate', and other files with 'bcftools concat'"
        )


def test_a_terminal_without_our_characters(script, files, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = script("evaluate", *as_arguments(files), "--out", files["imputed"].with_name("ascii"))
    assert done.err.count("Traceback") == 0
    assert done.code == 0
    assert "4,207 sites" in done.out


def test_arguments(run, tmp_path):
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
def test_bad_bins(run, files, tmp_path, bins):
    failed = run("evaluate", *as_arguments(files), "--out", tmp_path / "o", f"--bins={bins}").refused()
    assert failed.err.startswith("spinimpute: error: ")
    assert "bins" in failed.err
    assert not (tmp_path / "o").exists()


def test_some_regions_and_samples(run, files, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("target_AFR_01\n\ntarget_EUR_02\n")
    places = ("--region", "20:1-100,000", "-r", "20:90000-150000", "--region", "20:300000-")
    report = tmp_path / "report.html"
    by_file = run("evaluate", *as_arguments(files), *places, "--samples-file", names, "--report", report).ok()
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
        (["--samples-file", "absent"], "samples file absent: it cannot be read"),
        (["--region", "20:5-1"], "the region '20:5-1' is empty or out of range"),
        (["--region", "21:1-1000"], "truth {truth}: no record in 21:1-1000"),
    ],
)
def test_regions_and_samples_that_are_not_there(run, files, tmp_path, options, message):
    failed = run("evaluate", *as_arguments(files), "--out", tmp_path / "o", *options).refused()
    assert failed.err.startswith(f"spinimpute: error: {message.format(**files)}")
    assert not (tmp_path / "o").exists()


def test_the_folder_is_not_standard_output(run, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed = run("evaluate", *as_arguments(files), "--out", "-").refused()
    assert failed.out == ""
    assert "--out is a folder, got -" in failed.err
    assert not Path("-").exists()
