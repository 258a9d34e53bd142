"""The example as a panel file, small simulated segments, and models with random or shipped weights."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import spinimpute
from spinimpute.imputation.allele_predictor import AllelePredictor
from spinimpute.imputation.inducing import AlleleCIPNP, InducingSettings
from spinimpute.imputation.kmer_spin import KmerPredictor, KmerSettings, KmerSPIN
from spinimpute.imputation.simulation import Segment, SimulationSettings, simulate_segment

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def mosaic() -> Callable[..., np.ndarray]:
    """Haplotypes (sites, n) copied from few founders: many ties, and matches that errors interrupt."""

    def draw(
        rng: np.random.Generator, n_sites: int, n: int, founders: int = 4, errors: float = 0.03
    ) -> np.ndarray:
        base = rng.integers(0, 2, (n_sites, founders))
        return (base[:, rng.integers(0, founders, n)] ^ (rng.random((n_sites, n)) < errors)).astype(np.uint8)

    return draw


@pytest.fixture(scope="session")
def example() -> Path:
    return REPOSITORY / "data" / "example"


@pytest.fixture(scope="session")
def example_panel(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[spinimpute.Panel]:
    path = tmp_path_factory.mktemp("panel") / "panel.spin"
    with spinimpute.build_panel(example / "panel.vcf.gz", path, example / "genetic.map") as panel:
        yield panel


@pytest.fixture(scope="session")
def segment() -> Segment:
    settings = SimulationSettings(
        length=(120_000, 120_001), people=(60, 61), recombination_rate=(1e-8, 1.001e-8)
    )
    return simulate_segment(5, settings)


@pytest.fixture
def random_predictor() -> AllelePredictor:
    """Random weights, also where training starts from zero: nothing may hold by accident."""
    torch.manual_seed(0)
    model = AlleleCIPNP(InducingSettings(core=3, flank=5, candidates=6, rounds=2))
    for parameter in model.predictor.decoder[-1].parameters():
        torch.nn.init.normal_(parameter)
    return AllelePredictor(model, "random", torch.device("cpu"), 12)


@pytest.fixture
def random_kmer_predictor() -> KmerPredictor:
    torch.manual_seed(0)
    settings = KmerSettings(
        core=3, flank=5, labels=17, width=8, inducing_points=4, latent_attributes=3, blocks=1, heads=2
    )
    return KmerPredictor(KmerSPIN(settings), "random", torch.device("cpu"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
