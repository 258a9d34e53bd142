"""The Snakemake workflow without a shared file system: jobs fetch inputs from a storage and store outputs."""

import shutil
from pathlib import Path

import cyvcf2
import pytest

import spinimpute
from benchmarks.workflow.runs import CHUNKS, WORKFLOW, copy_example, snakemake

pytestmark = pytest.mark.slow

pytest.importorskip(
    "snakemake_storage_plugin_fs",
    reason="a plugin of Snakemake is not installed: pip install snakemake-storage-plugin-fs",
)
if shutil.which("rsync") is None:
    pytest.skip("rsync is not installed", allow_module_level=True)

JOINED = "imputed/example.20.vcf.gz"


def in_storage(storage: Path) -> tuple[str, ...]:
    return ("--default-storage-provider", "fs", "--default-storage-prefix", str(storage))


def records(path: Path) -> list[str]:
    return [str(record) for record in cyvcf2.VCF(str(path))]


def test_results_in_a_storage_are_those_of_a_single_run(tmp_path: Path) -> None:
    storage, work, whole = copy_example(tmp_path / "storage"), tmp_path / "work", tmp_path / "whole.vcf.gz"
    work.mkdir()
    done = snakemake(work, JOINED, *CHUNKS, *in_storage(storage), "--shared-fs-usage", "none")
    assert done.returncode == 0, done.stderr[-3000:]
    made = storage / "imputed"
    spinimpute.impute(made / "example" / "20" / "phased.vcf.gz", whole, made / "panels" / "20.spin")
    assert records(storage / JOINED) == records(whole)
    chunks = [f"chunk.{number}.vcf.gz" for number in (1, 2, 3)]
    stored = [path.name for path in made.rglob("*.vcf.gz")]
    assert sorted(stored) == [*chunks, "example.20.vcf.gz", "phased.vcf.gz"]
    left = [path for path in work.rglob("*.vcf.gz") if path.is_file()]
    assert not left, "local copies are removed"


def test_a_file_that_the_storage_lacks_is_reported(tmp_path: Path) -> None:
    storage = copy_example(tmp_path / "storage")
    (storage / "data" / "example" / "truth.vcf.gz").unlink()
    failed = snakemake(tmp_path, "--dry-run", *in_storage(storage))
    assert failed.returncode != 0
    said = failed.stdout + failed.stderr
    assert "target example: there is no file data/example/truth.vcf.gz (truth)" in said


def test_the_kubernetes_profile_plans_every_step(tmp_path: Path) -> None:
    """With a folder in place of S3, as a dry run looks for the inputs."""
    for plugin in ("snakemake_executor_plugin_kubernetes", "snakemake_storage_plugin_s3"):
        pytest.importorskip(plugin, reason="plugins are not installed: pip install 'spinimpute[kubernetes]'")
    storage = copy_example(tmp_path / "storage")
    profile = str(WORKFLOW / "profiles" / "kubernetes")
    planned = snakemake(tmp_path, "--dry-run", "--profile", profile, *in_storage(storage))
    assert planned.returncode == 0, planned.stderr
    assert "ligate" in planned.stdout + planned.stderr
