"""`spinimpute panel build --inducing` and what follows from it."""

from pathlib import Path

import pytest

from spinimpute.panels.inducing_panel import KIND as INDUCING_PANEL
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.predictors.registry import WEIGHTS

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "haplotype.toml"


@pytest.fixture
def arguments(example: Path, tmp_path: Path) -> list[object]:
    return ["panel", "build", "--vcf", example / "panel.vcf.gz", "--map", example / "genetic.map"]


def test_build_info_verify_impute_evaluate(run, arguments, example, tmp_path):
    out = tmp_path / "p.spip"
    run(
        *arguments, "--region", "20:1-300000", "--inducing", 16, "--array", example / "array.txt",
        "--threads", 1, "--out", out,
    ).ok("300 haplotypes of 150 samples", "array sites not used: not in the panel")  # fmt: skip
    with InducingPanel.open(out) as made:
        checksum, panel_checksum = made.checksum, made.panel_checksum
        assert made.provenance["command"].endswith(f"--inducing 16 --array {example / 'array.txt'}")

    told = run("panel", "info", out).ok()
    for fact in ("at most 16 a block", "fewer than 2: ", "model", checksum, panel_checksum, "panel.vcf.gz"):
        assert fact in told.out
    assert run("panel", "verify", out).out == f"{out}: intact\n"

    imputed = tmp_path / "i.vcf.gz"
    run.impute(example / "target.vcf.gz", out, imputed).ok("of the panel's array are typed")
    run(
        "evaluate", "--truth", example / "truth.vcf.gz", "--imputed", imputed, "--panel", out,
        "--typed", example / "target.vcf.gz", "--out", tmp_path / "scores",
    ).ok()  # fmt: skip

    run(*arguments, "--inducing", 16, "--array", example / "array.txt", "--out", out).refused(
        "already exists; use --force to overwrite"
    )


def test_from_a_panel_file(run, panel, example, tmp_path):
    chosen = ["--inducing", 4, "--array", example / "array.txt", "--out", tmp_path / "p.spip"]
    run("panel", "build", "--vcf", panel, "--map", example / "genetic.map", *chosen).refused(
        "its map, region, samples and phase were chosen when it was built"
    )
    run("panel", "build", "--vcf", panel, *chosen).ok()
    with InducingPanel.open(tmp_path / "p.spip") as made:
        assert made.n_haplotypes == 300
        assert made.provenance["panel"] == "panel.vcf.gz"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--inducing", 8], "--inducing needs --array FILE"),
        (["--array", "a.txt"], "--array and --model need --inducing H"),
        (["--model", "m"], "--array and --model need --inducing H"),
        (["--inducing", 1, "--array", "a.txt"], "1 is not in the range 2<=x<="),
        (["--inducing", 8, "--array", "absent"], "array absent: there is no such file"),
        (["--inducing", 8, "--array", "PANEL", "--model", "absent"], "model absent: there is no such file"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_refusals(given, said, run, arguments, example, tmp_path):
    chosen = [example / "panel.vcf.gz" if word == "PANEL" else word for word in given]
    out = tmp_path / "o" / ("p.spip" if "--inducing" in given and "--array" in given else "p.spin")
    run(*arguments, *chosen, "--out", out).refused()
    (tmp_path / "o").mkdir()
    run(*arguments, *chosen, "--out", out).refused(said)
    assert not list((tmp_path / "o").iterdir())


def test_a_model_of_another_predictor_is_named(run, panel, example, tmp_path):
    model = tmp_path / "m.safetensors"
    model.write_bytes((WEIGHTS / "haplotype.safetensors").read_bytes())
    run(
        "panel", "build", "--vcf", panel, "--inducing", 8, "--array", example / "array.txt", "--model", model,
        "--out", tmp_path / "p.spip",
    ).refused(f"model {model}: the predictor 'haplotype' does not take --inducing-points")  # fmt: skip


def test_the_suffix_is_not_for_panels(run, arguments, tmp_path):
    run(*arguments, "--out", tmp_path / "p.spip").refused("needs --inducing H --array FILE")


def test_help_says_what_the_file_holds(run):
    told = " ".join(run("panel", "build", "-h").out.split())
    assert "no haplotypes and no names" in told
    assert "compressed, not anonymous" in told


@pytest.mark.parametrize(
    "command",
    [
        ["panel", "tune", "--panel", "PANEL", "--array", "array.txt", "--out", "p.spin"],
        ["panel", "build", "--vcf", "PANEL", "--inducing", 8, "--array", "array.txt", "--out", "p.spip"],
        ["train", "--config", "CONFIG", "--panel", "PANEL", "--out", "m.safetensors"],
    ],
    ids=["tune", "build", "train"],
)
def test_where_haplotypes_are_needed(command, run, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = Path("points.spip")
    given.write_bytes(INDUCING_PANEL.magic + bytes(200))
    words = {"CONFIG": CONFIG, "PANEL": given, "array.txt": example / "array.txt"}
    failed = run(*(words.get(word, word) for word in command))  # type: ignore[call-overload]
    assert failed.code == 2
    assert "points.spip: this is an inducing panel, which has no haplotypes. Give the panel" in failed.err
    assert [path.name for path in tmp_path.iterdir()] == ["points.spip"]
