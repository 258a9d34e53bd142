"""The benchmarks are not installed: tests import them from the checkout. Small sets to try them on."""

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from benchmarks.imputation.cases import Case, find_case  # noqa: E402
from benchmarks.imputation.programs import NEEDED  # noqa: E402


@pytest.fixture(scope="session")
def bcftools() -> str:
    import shutil

    found = shutil.which("bcftools")
    if found is None:
        pytest.skip("bcftools is not installed")
    return found


@pytest.fixture(scope="session")
def programs(bcftools: str) -> None:
    import shutil

    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@pytest.fixture(scope="session")
def simulated(bcftools: str, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """120 panel and 24 target haplotypes of four populations, 30 kb, 15 typed sites."""
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    from benchmarks.imputation.simulated_set import History, Sizes, simulate, write_set

    folder = tmp_path_factory.mktemp("simulated") / "tiny"
    history = History(people=80, length=30_000, centimorgans=0.05, seed=3)
    write_set(simulate(history), history, Sizes(120, 24, 15), folder)
    return find_case(str(folder), folder)
