"""The Snakemake wrapper: as its own test uses it, odd names, mistakes, and what its description says."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.workflow.runs import ENVIRONMENT, PATH, REPOSITORY

pytest.importorskip("snakemake", reason="snakemake is not installed: pip install 'spinimpute[workflow]'")
import yaml

pytestmark = pytest.mark.slow

WRAPPER = REPOSITORY / "workflows" / "wrapper" / "spinimpute" / "impute"


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "--directory", str(folder), "--cores", "2", *arguments],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def records(path: Path) -> list[str]:
    done = subprocess.run(["bcftools", "view", "-H", path], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder whose name needs quoting, with the wrapper's test files."""
    folder = tmp_path / "Anna's $(touch run) {x}"
    shutil.copytree(WRAPPER / "test", folder)
    return folder


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_as_the_wrapper_repository_runs_it(inputs: Path, tmp_path: Path) -> None:
    """With its Snakefile, whose wrapper is looked up below a prefix."""
    place = tmp_path / "master" / "bio" / "spinimpute"
    place.mkdir(parents=True)
    (place / "impute").symlink_to(WRAPPER)
    arguments = ["--snakefile", str(inputs / "Snakefile"), "--wrapper-prefix", f"file://{tmp_path}/"]
    done = snakemake(inputs, *arguments, "imputed/target.vcf.gz")
    assert done.returncode == 0, done.stderr[-3000:]
    made = sorted(path.name for path in (inputs / "imputed").iterdir())
    assert made == ["target.html", *(f"target.quality.{t}.tsv" for t in ("samples", "sites", "windows")),
                    "target.vcf.gz", "target.vcf.gz.tbi", "target_mqc.json"]  # fmt: skip
    assert "732 sites" in (inputs / "logs" / "target.log").read_text()
    alone = tmp_path / "alone.vcf.gz"
    files = ["--vcf", inputs / "target.vcf.gz", "--panel", inputs / "panel.vcf.gz"]
    files += ["--map", inputs / "genetic.map"]
    options = ["--format", "GT,DS,GP", "--loo", tmp_path / "q", "--out", alone, "-q"]
    program = shutil.which("spinimpute", path=PATH) or ""
    subprocess.run([program, "impute", *files, *options], env=ENVIRONMENT, check=True)
    assert records(inputs / "imputed" / "target.vcf.gz") == records(alone)


def workflow(folder: Path, target: str, out: str, log: str = "", inputs: str = "") -> list[str]:
    rule = f"""
rule impute:
    input: vcf="{target}", panel="panel.vcf.gz", map="genetic.map", {inputs}
    output: vcf="{out}",
    {f'log: "{log}"' if log else ""}
    wrapper: "file://{WRAPPER}"
"""
    (folder / "mine.smk").write_text(rule)
    return ["--snakefile", str(folder / "mine.smk")]


def test_names_are_not_run_by_the_shell(inputs: Path) -> None:
    odd = 'Bob\'s $(touch run); \\"touch run\\"'
    name = odd.replace("\\", "")
    (inputs / "target.vcf.gz").rename(inputs / f"{name}.vcf.gz")
    (inputs / f"{name} sexes").write_text("target_EUR_01 F\ntarget_AFR_01 F\n")
    arguments = workflow(inputs, f"{odd}.vcf.gz", f"{odd} out.bcf", f"{odd}.log", f'sex="{odd} sexes",')
    done = snakemake(inputs, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (inputs / f"{name} out.bcf").is_file()
    assert "732 sites" in (inputs / f"{name}.log").read_text()
    assert not list(inputs.glob("run*"))


def test_a_mistake_is_one_line_in_the_log(inputs: Path) -> None:
    (inputs / "bad.vcf").write_text("no genotypes\n")
    failed = snakemake(inputs, *workflow(inputs, "bad.vcf", "imputed.vcf.gz", "impute.log"))
    assert failed.returncode != 0
    (line,) = (inputs / "impute.log").read_text().splitlines()
    assert line.startswith("spinimpute: error: ")
    assert "bad.vcf" in line
    assert not (inputs / "imputed.vcf.gz").exists()
    failed = snakemake(inputs, *workflow(inputs, "bad.vcf", "imputed.vcf.gz"))  # without a log it is shown
    assert failed.returncode != 0
    assert re.search("^spinimpute: error: .*bad.vcf", failed.stderr, re.M)


def test_the_description_names_all_that_the_wrapper_takes() -> None:
    meta = yaml.safe_load((WRAPPER / "meta.yaml").read_text())
    assert set(meta) == {"name", "description", "url", "authors", "input", "output", "params", "notes"}
    code = (WRAPPER / "wrapper.py").read_text()
    pattern = r'snakemake\.{}(?:\.(?!get)|\.get\(")(\w+)'
    used = {kind: set(re.findall(pattern.format(kind), code)) for kind in ("input", "output", "params")}
    (files,) = re.findall(r"^FILES = \((.+)\)$", code, re.M)
    used["input"] |= set(re.findall(r'"(\w+)"', files))
    assert used["input"] == set(meta["input"])
    assert used["output"] | {"index"} == set(meta["output"])
    assert used["params"] == set(meta["params"])


def test_the_environment_pins_this_version() -> None:
    environment = yaml.safe_load((WRAPPER / "environment.yaml").read_text())
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert environment["dependencies"] == [f"spinimpute ={version}"]
    assert environment["channels"][-1] == "nodefaults"


def test_lint(inputs: Path) -> None:
    linted = snakemake(inputs, "--snakefile", str(inputs / "Snakefile"), "--lint")
    assert linted.returncode == 0, linted.stderr
