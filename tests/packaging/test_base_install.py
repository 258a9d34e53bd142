"""The base installation has none of the optional packages. Here they are hidden from a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from spinimpute.runtime.packages import OPTIONAL

HIDDEN = f"import sys; sys.modules.update(dict.fromkeys({sorted(OPTIONAL)}))\n"
RUN = HIDDEN + "from spinimpute.cli.main import run_command; sys.exit(run_command())"


def base(words: str, folder: Path) -> tuple[int, str]:
    """Run a command without optional packages. Return its status and what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, its panel and imputed genotypes, made without optional packages."""
    folder: Path = tmp_path_factory.mktemp("base")
    for path in example.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for words in (
        "panel build --vcf panel.vcf.gz --map genetic.map --out panel.spin",
        "impute --vcf target.vcf.gz --panel panel.spin --out imputed.vcf",
    ):
        status, printed = base(words, folder)
        assert status == 0, printed
    return folder


def test_imputes_the_same_genotypes(folder: Path, run, tmp_path: Path) -> None:
    out = tmp_path / "imputed.vcf"
    run("impute", "--vcf", folder / "target.vcf.gz", "--panel", folder / "panel.spin", "--out", out)
    ours, others = (
        [line for line in path.read_text().splitlines() if not line.startswith("#")]
        for path in (folder / "imputed.vcf", out)
    )
    assert len(ours) > 4_000
    assert ours == others


@pytest.mark.parametrize(
    "words",
    [
        "panel info panel.spin",
        "check --vcf target.vcf.gz --panel panel.spin --out sites.tsv",
        "phase --vcf target.vcf.gz --panel panel.spin --out phased.bcf",
        "convert --vcf target.vcf.gz --panel panel.spin --out typed.bgen",
        "impute --vcf target.vcf.gz --panel panel.spin --out imputed.bgen",
        "impute --vcf target.vcf.gz --panel panel.spin --out of_spin.vcf --predictor spin",
        "panel build --vcf panel.spin --out panel.spip --inducing 64 --array target.vcf.gz",
        "version",
        *(f"{command} -h" for command in ("impute", "evaluate", "train", "np", "tabular")),
    ],
)
def test_runs(words: str, folder: Path) -> None:
    status, printed = base(words, folder)
    assert status == 0, printed


def test_evaluates_without_a_chart(folder: Path) -> None:
    words = (
        "evaluate --truth truth.vcf.gz --imputed imputed.vcf --panel panel.spin --typed target.vcf.gz "
        "--out scores"
    )
    (folder / "scores").mkdir()
    (folder / "scores" / "accuracy.png").write_text("of an earlier run")
    status, printed = base(f"{words} --force", folder)
    assert status == 0
    assert "accuracy.png is not drawn" in printed
    assert "pip install 'spinimpute[charts]'" in printed
    assert sorted(path.name for path in (folder / "scores").iterdir()) == ["accuracy.tsv", "samples.tsv"]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("impute --vcf target.vcf.gz --panel panel.spin --out o.vcf --report report.html", "charts"),
        ("impute --vcf target.vcf.gz --panel panel.spin --out o.vcf --report-figures figures", "charts"),
        (
            "evaluate --truth truth.vcf.gz --imputed imputed.vcf --panel panel.spin --typed target.vcf.gz "
            "--report report.html",
            "charts",
        ),
        ("impute --vcf target.vcf.gz --panel panel.spin --out o.vcf --device cuda", "torch"),
        ("np evaluate model.safetensors", "torch"),
        ("train --config configuration.toml --out o.safetensors", "torch"),
        ("impute --vcf target.vcf.gz --panel panel.spin --out o.pgen", "plink"),
        ("tabular fit --table table.csv --target y --out o.safetensors", "tables"),
    ],
)
def test_a_missing_package_is_named(words: str, extra: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    status, printed = base(words, folder)
    assert status == 2, printed
    assert printed.count("\n") == 1, printed
    assert f"not installed. Install it: pip install 'spinimpute[{extra}]'\n" in printed
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["train", "tabular"])
def test_python_names_the_missing_package(name: str) -> None:
    script = f"""
try:
    from spinimpute import {name}
except ImportError as error:
    print(error)
"""
    printed = subprocess.check_output([sys.executable, "-c", HIDDEN + script], text=True)
    assert printed.startswith(f"spinimpute.{name} needs the package"), printed
