"""The benchmark of inducing panels: attacks that must succeed or fail by construction, and its commands."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from benchmarks.imputation.cases import REPOSITORY, Case
from benchmarks.inducing.attacks import (
    JUMP,
    LinkedBlocks,
    carrier_ranks,
    count_features,
    dosage_features,
    file_features,
)
from benchmarks.inducing.decisions import Trial, area, best_feature, found_at, learned
from benchmarks.inducing.membership import draw
from spinimpute.panels.soft_alleles import PointStates

pytestmark = pytest.mark.slow


def test_area_and_threshold() -> None:
    member = np.array([True, True, False, False])
    assert area(np.array([3.0, 2.0, 1.0, 0.0]), member) == 1
    assert area(np.array([0.0, 0.0, 1.0, 1.0]), member) == 0
    assert area(np.zeros(4), member) == 0.5
    assert area(np.array([2.0, 0.0, 1.0, 0.0]), member) == pytest.approx(0.625)
    score = np.concatenate([np.arange(1_000.0), [988.5, 2_000.0]])
    inside = np.arange(1_002) >= 1_000
    assert found_at(score, inside) == 0.5  # 10 of 1,000 others may lie above the threshold
    assert found_at(np.zeros(4), member) == 0


def test_what_is_learned_from_other_halves(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: bench)")
    rng = np.random.default_rng(1)
    told, silent = [], []
    for _ in range(3):
        member = np.arange(400) < 200
        noise = rng.normal(size=(400, 1))
        # neither feature tells anything alone
        together = np.concatenate([noise * 20 + member[:, None], noise * 20], axis=1)
        told.append(Trial(together, member))
        silent.append(Trial(rng.normal(size=(400, 2)), member))
    assert best_feature(told).auc < 0.6
    assert learned(told).auc > 0.95
    assert 0.4 < learned(silent).auc < 0.6
    assert learned(silent).found < 0.06


def test_ranks_of_carriers() -> None:
    alleles = np.array([[0, 1, 0, 0], [1, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]], dtype=np.uint8)
    p = np.array([[0.1, 0.2, 0, 0], [0.9, 0.9, 0.95, 0.9], [1, 0, 0, 0], [0.3, 0, 0, 0.3]])
    # site 2 has two carriers; at site 1 the carrier of REF looks least like one; at 3 there is a tie
    assert carrier_ranks(alleles, p, np.arange(4)) == (3, 1)


@pytest.fixture(scope="module")
def half_files(simulated: Case, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple]:
    """A half of a tiny panel and its file with as many inducing points as fit."""
    work = tmp_path_factory.mktemp("half")
    with spinimpute.build_panel(simulated.panel, work / "p.spin", simulated.genetic_map) as whole:
        half = draw(whole, simulated, 1, 20, work)
        with half.panel as panel, half.reference as reference:
            target, build = simulated.target, spinimpute.build_inducing_panel
            one, other = (build(p, work / f"{p.path.stem}.spip", target, 1_000) for p in (panel, reference))
            with one, other:
                yield half, one, other


def test_files_of_all_haplotypes_give_their_people_away(half_files: tuple) -> None:
    half, file, reference = half_files
    everywhere = np.ones(file.n_sites, dtype=bool)
    assert half.member.sum() == 20
    features, linked = file_features(half.alleles_XQ, file, everywhere)
    # 30 kb have few haplotypes: others have the same ones
    assert area(features["wide 0.001"], half.member) > 0.58
    assert area(linked["own 0.001, linked"], half.member) > area(features["own 0.001"], half.member)
    counts = count_features(half.alleles_XQ, file, reference, everywhere)
    assert (counts["impossible"][half.member] == 0).all()
    nothing = count_features(half.alleles_XQ, file, reference, ~everywhere)
    assert all((values == 0).all() for values in nothing.values())


def test_linked_blocks_sum_over_all_paths() -> None:
    rng = np.random.default_rng(3)
    sizes, n_queries = (3, 4, 2), 5
    fits = [rng.normal(size=(n, n_queries)) for n in sizes]
    shares = [rng.dirichlet(np.ones(n)) for n in sizes]
    links = [rng.dirichlet(np.ones(after), before) for before, after in pairwise(sizes)]
    links[0][1] = 0  # a point without links
    links[1][0] = 0, 1
    chain = LinkedBlocks()
    for b, n in enumerate(sizes):
        link_PH = links[b - 1] if b else np.zeros((0, n))
        first_P1 = np.concatenate([[0], (link_PH > 0).sum(1).cumsum()]).astype(np.int64)
        states = PointStates(
            shares[b], np.zeros((0, n)), first_P1, link_PH.nonzero()[1], link_PH[link_PH > 0]
        )
        chain.add(fits[b], shares[b], states)
    expected_Q = np.zeros(n_queries)
    for path in itertools.product(*map(range, sizes)):
        p = shares[0][path[0]]
        for (before, after), link_PH, share_H in zip(pairwise(path), links, shares[1:], strict=True):
            follows = (1 - JUMP) * link_PH[before].sum()
            p *= (1 - JUMP) * link_PH[before, after] + (1 - follows) * share_H[after]
        expected_Q += p * np.exp(sum(fit_HQ[h] for fit_HQ, h in zip(fits, path, strict=True)))
    np.testing.assert_allclose(chain.likelihood_Q, np.log(expected_Q))


def test_loss_of_the_truth_is_least(half_files: tuple) -> None:
    half, *_ = half_files
    truth = half.alleles_XQ.astype(np.float32)
    everywhere = np.ones(len(truth), dtype=bool)
    right, wrong = (dosage_features(half.alleles_XQ, p, everywhere) for p in (truth, 1 - truth))
    assert (right["loss"] > wrong["loss"]).all()
    assert (right["missed"] == 0).all()


def test_commands(simulated: Case, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: bench)")
    words = [
        "-m",
        "benchmarks.inducing",
        "membership",
        str(simulated.panel.parent),
        "--results",
        str(tmp_path),
    ]
    sizes = ["--points", "4", "--dosage-points", "4", "--seeds", "2", "--dosage-seeds", "1", "--people", "10"]
    subprocess.run([sys.executable, *words, *sizes], check=True, cwd=REPOSITORY, capture_output=True)
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {"configuration.json", "membership.tsv", "report.md"}
    report = (folder / "report.md").read_text()
    for attack in (
        "allele counts",
        "the file without links, h = 4",
        "the file, h = 4",
        "imputed dosages, h = 4",
        "the panel itself (100%",
    ):
        assert f"| {attack}" in report
    assert str(tmp_path) not in (folder / "configuration.json").read_text()
