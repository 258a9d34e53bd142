"""Small sets for the benchmarks, and how their commands are called."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.imputation.__main__ import make_parser
from benchmarks.imputation.cases import SHARED, Case, find_case
from benchmarks.imputation.programs import NEEDED


@pytest.fixture(scope="session")
def bcftools() -> str:
    found = shutil.which("bcftools")
    if found is None:
        pytest.skip("bcftools is not installed")
    return found


@pytest.fixture(scope="session")
def programs(bcftools: str) -> None:
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@pytest.fixture(scope="session")
def scorer() -> Path:
    path = SHARED / "tools" / "score_imputation.py"
    if not path.is_file():
        pytest.skip(f"the scorer is not at {path}: set SPINIMPUTE_SHARED")
    return path


@pytest.fixture
def command(programs: None, scorer: Path, tmp_path: Path) -> Callable[..., Path]:
    """command(*words): run `benchmarks.imputation` with these words; returns its folder of results."""

    def run(*words: object) -> Path:
        shared = ["--scorer", scorer, "--results", tmp_path / "results", "--threads", 1]
        arguments = make_parser().parse_args([str(word) for word in [*words, *shared]])
        arguments.function(arguments)
        (folder,) = (tmp_path / "results").iterdir()
        return folder

    return run


@pytest.fixture(scope="session")
def simulated(bcftools: str, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """120 panel and 24 target haplotypes of four populations, 30 kb, 15 typed sites."""
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    from benchmarks.imputation.simulated_set import History, Sizes, simulate, write_set

    folder = tmp_path_factory.mktemp("simulated") / "tiny"
    history = History(people=80, length=30_000, centimorgans=0.05, seed=3)
    write_set(simulate(history), history, Sizes(120, 24, 15), folder)
    return find_case(str(folder), folder)
