"""Files of all samples of the example, and of batches of them."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cyvcf2
import pytest

import spinimpute

SUFFIXES = (".vcf.gz", ".bcf", ".vcf")


@pytest.fixture(params=SUFFIXES)
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def names(example: Path) -> list[str]:
    """Names of the samples of the example's target."""
    return list(cyvcf2.VCF(str(example / "target.vcf.gz")).samples)


@pytest.fixture(scope="session")
def small(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The example's panel in its first 400 kb, opened."""
    path = tmp_path_factory.mktemp("small") / "small.spin"
    region = spinimpute.genotypes.sites.Region("20", 1, 400_000)
    with spinimpute.build_panel(example / "panel.vcf.gz", path, example / "genetic.map", region) as panel:
        yield panel


@pytest.fixture(scope="session")
def impute(example: Path, small: Any) -> Callable[..., Path]:
    """impute(out, samples=None, region=None, target=..., panel=..., **output): a mergeable file."""

    def run(
        out: Path,
        samples: Sequence[str] | None = None,
        region: str | None = None,
        target: Path | None = None,
        panel: Any = None,
        **output: Any,
    ) -> Path:
        output = {"formats": ("GT", "DS", "HDS", "GP"), "leave_one_out": True, "mergeable": True} | output
        spinimpute.impute(
            target or example / "target.vcf.gz",
            out,
            panel or small,
            target=spinimpute.TargetSettings(samples=samples),
            region=spinimpute.RegionSettings(region=region),
            resources=spinimpute.Resources(threads=1),
            output=spinimpute.OutputSettings(**output),
            force=True,
        )
        return out

    return run


@pytest.fixture(scope="session")
def made(names: list[str], impute: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole.*, and the batches 0.*, 1.* and 2.*; the second has one sample.

    plain.* is like whole.*, but not mergeable.
    """
    folder = tmp_path_factory.mktemp("batches")
    for suffix in SUFFIXES:
        impute(folder / f"whole{suffix}")
        impute(folder / f"plain{suffix}", mergeable=False)
        for number, samples in enumerate((names[:11], names[11:12], names[12:])):
            impute(folder / f"{number}{suffix}", samples)
    return folder


@pytest.fixture(scope="session")
def content() -> Callable[[Path], bytes]:
    """content(path): of a file, uncompressed."""

    def read(path: Path) -> bytes:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data

    return read
