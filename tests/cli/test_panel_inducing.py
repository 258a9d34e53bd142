"""`spinimpute panel build --inducing` and what follows from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spinimpute.panels.inducing_panel import KIND as INDUCING_PANEL
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.predictors.registry import WEIGHTS

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "haplotype.toml"
Run = Callable[..., Any]


@pytest.fixture
def arguments(example: Path, tmp_path: Path) -> list[object]:
    return ["panel", "build", "--vcf", example / "panel.vcf.gz", "--map", example / "genetic.map"]


def test_build_info_verify_impute_evaluate(
    run: Run, arguments: list[object], example: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.spip"
    # fmt: off
    built = run(
        *arguments, "--region", "20:1-300000", "--inducing", 16, "--array", example / "array.txt",
        "--threads", 1, "--out", out,
    )
    # fmt: on
    assert built.code == 0, built.err
    assert "300 haplotypes of 150 samples" in built.err
    assert "array sites not used: not in the panel" in built.err
    with InducingPanel.open(out) as made:
        checksum, panel_checksum = made.checksum, made.panel_checksum
        assert made.provenance["command"].endswith(f"--inducing 16 --array {example / 'array.txt'}")

    told = run("panel", "info", out)
    assert told.code == 0
    for fact in ("at most 16 a block", "fewer than 2: ", "model", checksum, panel_checksum, "panel.vcf.gz"):
        assert fact in told.out
    assert run("panel", "verify", out).out == f"{out}: intact\n"

    imputed = tmp_path / "i.vcf.gz"
    done = run("impute", "--vcf", example / "target.vcf.gz", "--panel", out, "--out", imputed)
    assert done.code == 0, done.err
    assert "of the panel's array are typed" in done.err
    # fmt: off
    scored = run(
        "evaluate", "--truth", example / "truth.vcf.gz", "--imputed", imputed, "--panel", out,
        "--typed", example / "target.vcf.gz", "--out", tmp_path / "scores",
    )
    # fmt: on
    assert scored.code == 0, scored.err

    again = run(*arguments, "--inducing", 16, "--array", example / "array.txt", "--out", out)
    assert again.code == 2
    assert "already exists; use --force to overwrite" in again.err


def test_from_a_panel_file(run: Run, panel: Path, example: Path, tmp_path: Path) -> None:
    chosen = ["--inducing", 4, "--array", example / "array.txt", "--out", tmp_path / "p.spip"]
    failed = run("panel", "build", "--vcf", panel, "--map", example / "genetic.map", *chosen)
    assert failed.code == 2
    assert "its map, region, samples and phase were chosen when it was built" in failed.err
    assert run("panel", "build", "--vcf", panel, *chosen).code == 0
    with InducingPanel.open(tmp_path / "p.spip") as made:
        assert made.n_haplotypes == 300
        assert made.provenance["panel"] == "panel.vcf.gz"


def test_verify_finds_damage_that_info_does_not_look_for(
    run: Run, arguments: list[object], example: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.spip"
    # fmt: off
    run(
        *arguments, "-r", "20:1-100000", "--inducing", 4, "--array", example / "array.txt", "-q",
        "--out", out,
    )
    # fmt: on
    content = bytearray(out.read_bytes())
    content[100] ^= 1
    out.write_bytes(content)
    assert run("panel", "info", out).code == 0
    failed = run("panel", "verify", out)
    assert failed.code == 2
    assert failed.err.startswith(f"spinimpute: error: inducing panel {out}: damaged: the block 1 of")
    out.write_bytes(content[:-1])
    for command in ("info", "verify"):
        failed = run("panel", command, out)
        assert failed.code == 2
        assert "truncated" in failed.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--inducing", 8], "--inducing needs --array FILE"),
        (["--array", "a.txt"], "--array and --model go with --inducing H"),
        (["--model", "m"], "--array and --model go with --inducing H"),
        (["--inducing", 1, "--array", "a.txt"], "1 is not in the range 2<=x<="),
        (["--inducing", 8, "--array", "absent"], "array absent: there is no such file"),
        (["--inducing", 8, "--array", "PANEL", "--model", "absent"], "model absent: there is no such file"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_refusals(
    given: list[object], said: str, run: Run, arguments: list[object], example: Path, tmp_path: Path
) -> None:
    chosen = [example / "panel.vcf.gz" if word == "PANEL" else word for word in given]
    failed = run(*arguments, *chosen, "--out", tmp_path / "o" / "p.spin")
    assert failed.code == 2
    (tmp_path / "o").mkdir()
    failed = run(*arguments, *chosen, "--out", tmp_path / "o" / "p.spin")
    assert failed.code == 2
    assert said in failed.err
    assert not list((tmp_path / "o").iterdir())


def test_a_model_of_another_predictor_is_named(run: Run, panel: Path, example: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    model.write_bytes((WEIGHTS / "haplotype.safetensors").read_bytes())
    done = run(
        "panel", "build", "--vcf", panel, "--inducing", 8, "--array", example / "array.txt", "--model", model,
        "--out", tmp_path / "p.spip",
    )  # fmt: skip
    assert done.code == 2
    assert f"model {model}: the predictor 'haplotype' does not take --inducing-points" in done.err


def test_the_suffix_is_not_for_panels(run: Run, arguments: list[object], tmp_path: Path) -> None:
    failed = run(*arguments, "--out", tmp_path / "p.spip")
    assert failed.code == 2
    assert "made with --inducing H --array FILE" in failed.err


def test_help_says_what_the_file_holds(run: Run) -> None:
    told = " ".join(run("panel", "build", "-h").out.split())
    assert "no haplotype and no name" in told
    assert "no proof of privacy" in told


@pytest.mark.parametrize(
    "command",
    [
        ["panel", "tune", "--panel", "PANEL", "--array", "array.txt", "--out", "p.spin"],
        ["panel", "build", "--vcf", "PANEL", "--inducing", 8, "--array", "array.txt", "--out", "p.spip"],
        ["train", "--config", "CONFIG", "--panel", "PANEL", "--out", "m.safetensors"],
    ],
    ids=["tune", "build", "train"],
)
def test_where_haplotypes_are_needed(
    command: list[object], run: Run, example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = Path("points.spip")
    given.write_bytes(INDUCING_PANEL.magic + bytes(200))
    words = {"CONFIG": CONFIG, "PANEL": given, "array.txt": example / "array.txt"}
    failed = run(*(words.get(word, word) for word in command))  # type: ignore[call-overload]
    assert failed.code == 2
    assert "points.spip: this is an inducing panel, which has no haplotypes. Give the panel" in failed.err
    assert [path.name for path in tmp_path.iterdir()] == ["points.spip"]
