"""The WDL workflow: miniwdl checks it, and runs it without containers."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import cyvcf2
import pytest

import spinimpute
from benchmarks.workflow.runs import ENVIRONMENT, REPOSITORY

pytestmark = pytest.mark.slow

pytest.importorskip("WDL", reason="miniwdl is not installed: pip install miniwdl miniwdl-backend-bare")

WDL = REPOSITORY / "workflows" / "wdl" / "impute.wdl"
EXAMPLE = REPOSITORY / "data" / "example"
BACKENDS = entry_points(group="miniwdl.plugin.container_backend")


def miniwdl(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "WDL", *map(str, arguments)], cwd=folder,
        env=ENVIRONMENT | {"MINIWDL__SCHEDULER__CONTAINER_BACKEND": "bare"}, capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip


def test_miniwdl_finds_no_fault(tmp_path: Path) -> None:
    done = miniwdl("check", "--strict", "--suppress", "CommandShellCheck", WDL, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_task_names_the_image_and_its_needs() -> None:
    """As Terra wants them."""
    text = WDL.read_text()
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert f'docker = "spinimpute:{version}"' in text
    tasks = text.split("\ntask ")[1:]
    for name in ("docker", "cpu", "memory", "disks", "preemptible"):
        assert all(re.search(rf"^        {name}: ", task, re.M) for task in tasks)


def test_the_inputs_of_the_example_are_those_of_the_workflow(tmp_path: Path) -> None:
    inputs = json.loads((WDL.parent / "inputs.json").read_text())
    template = json.loads(miniwdl("input_template", WDL, folder=tmp_path).stdout)
    assert set(template) <= set(inputs)
    names = {name.removeprefix("ImputeChromosome.") for name in inputs}
    assert names <= set(re.findall(r"^        (\w+): \"", WDL.read_text(), re.M))


def write_samples(vcf: Path, names: list[str]) -> str:
    """A file with some samples of a file, beside it."""
    out = vcf.with_name(f"{len(names)} samples.vcf.gz")
    reader = cyvcf2.VCF(str(vcf), samples=names)
    writer = cyvcf2.Writer(str(out), reader, "wz")
    for record in reader:
        writer.write_record(record)
    writer.close()
    return str(out)


@pytest.mark.skipif("bare" not in BACKENDS.names, reason="miniwdl-backend-bare is not installed")
def test_regions_and_batches_are_those_of_a_single_run(tmp_path: Path) -> None:
    """Two batches of samples in two regions, in files whose names have blanks."""
    folder = tmp_path / "my files"
    folder.mkdir()
    panel, phased, whole = (folder / name for name in ("panel.spin", "phased.vcf.gz", "whole.vcf.gz"))

    spinimpute.build_panel(EXAMPLE / "panel.vcf.gz", panel, EXAMPLE / "genetic.map").close()
    spinimpute.phase(EXAMPLE / "target.vcf.gz", phased, panel)
    output = spinimpute.OutputSettings(formats=("GT", "DS"))
    spinimpute.impute(phased, whole, panel, output=output)
    names = cyvcf2.VCF(str(phased)).samples
    inputs = {
        "targets": [write_samples(phased, names[:8]), write_samples(phased, names[8:])],
        "panel": str(panel),
        "prefix": "all of it",
        "chunk_cM": 0.8,
        "threads": 2,
        "memory_gb": 2,
    }
    named = {f"ImputeChromosome.{name}": value for name, value in inputs.items()}
    (folder / "inputs.json").write_text(json.dumps(named))
    done = miniwdl("run", WDL, "--input", folder / "inputs.json", "--dir", tmp_path / "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = json.loads(done.stdout)["outputs"]
    imputed = Path(outputs["ImputeChromosome.imputed"])
    assert imputed.name == "all of it.vcf.gz"
    assert cyvcf2.VCF(str(imputed)).samples == names
    assert [str(record) for record in cyvcf2.VCF(str(imputed))] == [
        str(record) for record in cyvcf2.VCF(str(whole))
    ]
    assert Path(outputs["ImputeChromosome.imputed_index"]).is_file()
