"""Windows of the genome as in the SPIN paper (A.3): 100 untyped SNPs and the 150 nearest typed SNPs.

Panel haplotypes are the training data; some of the panel's people are held out for validation. Targets are
read only for scoring.

Axes: N panel haplotypes, Q target haplotypes (those of a person are adjacent), S typed sites, U untyped
sites, V all sites of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import cyvcf2
import numpy as np

from benchmarks.imputation.cases import Case

CASES = ("chr20_eur", "chr22_1kg")  # whose windows the tables are of
VALIDATION = 0.12 / 0.98  # the paper keeps .86, .12 and .02; here targets are in files of their own
PLACES_SEED, PEOPLE_SEED = 2023, 17  # of the windows' places; of who is kept apart

Site = tuple[int, str, str]


@dataclass(frozen=True)
class Cut:
    """Number of windows, and numbers of untyped SNPs and typed sites of a window."""

    windows: int = 5
    untyped: int = 100
    typed: int = 150


class Sites(NamedTuple):
    """Sites of a file: position, REF and ALT, and the alleles (V, haplotypes)."""

    sites: list[Site]
    allele_VX: np.ndarray


@dataclass(frozen=True)
class Window:
    """Training data of a window; `start` and `stop` are the first and last untyped position."""

    case: Case
    number: int
    start: int
    stop: int
    typed_sites: list[Site]
    untyped_sites: list[Site]
    typed_NS: np.ndarray
    label_NU: np.ndarray
    is_validation_N: np.ndarray

    @property
    def frequency_U(self) -> np.ndarray:
        frequency: np.ndarray = self.label_NU.mean(0)
        return frequency


class Targets(NamedTuple):
    """Data that only tests read."""

    typed_QS: np.ndarray
    truth_QU: np.ndarray


def read_sites(path: Path) -> Sites:
    """Read all biallelic sites, which must be phased and complete; otherwise raise SystemExit."""
    file = cyvcf2.VCF(str(path))
    sites, alleles = [], []
    for record in file:
        if len(record.ALT) == 1:
            sites.append((record.POS, record.REF, record.ALT[0]))
            alleles.append(record.genotype.array()[:, :2].ravel().astype(np.int8))
    file.close()
    allele_VX = np.stack(alleles)
    if (allele_VX < 0).any():
        raise SystemExit(f"{path}: alleles are missing. Windows need all of them.")
    return Sites(sites, allele_VX)


def nearest_typed(position_T: np.ndarray, start: int, stop: int, number: int) -> np.ndarray:
    """Return the indices, in order, of the typed sites nearest to the interval from start to stop."""
    distance_T = np.maximum(np.maximum(start - position_T, position_T - stop), 0)
    chosen: np.ndarray = np.sort(np.argsort(distance_T, kind="stable")[:number])
    return chosen


def first_untyped(n_untyped: int, cut: Cut) -> list[int]:
    """Return the first untyped SNP of each window, drawn at random within equal parts of the untyped SNPs."""
    rng = np.random.default_rng(PLACES_SEED)
    edges = np.linspace(0, n_untyped, cut.windows + 1).astype(int)
    return [int(rng.integers(low, high - cut.untyped + 1)) for low, high in pairwise(edges)]


def is_snp(site: Site) -> bool:
    return len(site[1]) == 1 and len(site[2]) == 1


def read_window(case: Case, number: int, cut: Cut = Cut()) -> Window:
    """Read one of the windows, counted from 1."""
    return read_windows(case, cut)[number - 1]


def read_windows(case: Case, cut: Cut) -> list[Window]:
    """Read all windows of a case. Of the target's and the truth's files, only the sites are read."""
    panel = read_sites(case.panel)
    typed, true = set(_site_names(case.target)), set(_site_names(case.truth))
    varies_V = panel.allele_VX.min(1) < panel.allele_VX.max(1)
    untyped = np.array(
        [i for i, site in enumerate(panel.sites)
         if varies_V[i] and is_snp(site) and site in true and site not in typed]
    )  # fmt: skip
    on_array = np.array([i for i, site in enumerate(panel.sites) if site in typed])
    position_T = np.array([panel.sites[i][0] for i in on_array])
    apart_N = kept_apart(panel.allele_VX.shape[1] // 2)
    windows = []
    for number, first in enumerate(first_untyped(len(untyped), cut), 1):
        asked = untyped[first : first + cut.untyped]
        start, stop = panel.sites[asked[0]][0], panel.sites[asked[-1]][0]
        near = on_array[nearest_typed(position_T, start, stop, cut.typed)]
        window = Window(
            case, number, start, stop,
            [panel.sites[i] for i in near], [panel.sites[i] for i in asked],
            np.ascontiguousarray(panel.allele_VX[near].T), np.ascontiguousarray(panel.allele_VX[asked].T),
            apart_N,
        )  # fmt: skip
        windows.append(window)
    return windows


def kept_apart(n_people: int) -> np.ndarray:
    """Return which haplotypes are for validation, bool; both haplotypes of a person, or neither."""
    order = np.random.default_rng(PEOPLE_SEED).permutation(n_people)
    chosen = np.zeros(n_people, bool)
    chosen[order[: round(VALIDATION * n_people)]] = True
    return chosen.repeat(2)


def read_targets(window: Window) -> Targets:
    """Return the alleles of the targets at the window's sites."""
    typed_VQ, truth_VQ = (
        _alleles_at(path, sites)
        for path, sites in (
            (window.case.target, window.typed_sites),
            (window.case.truth, window.untyped_sites),
        )
    )
    return Targets(typed_VQ.T, truth_VQ.T)


def _alleles_at(path: Path, wanted: list[Site]) -> np.ndarray:
    found = read_sites(path)
    row = {site: i for i, site in enumerate(found.sites)}
    return found.allele_VX[[row[site] for site in wanted]]


def _site_names(path: Path) -> list[Site]:
    file = cyvcf2.VCF(str(path), lazy=True)
    return [(record.POS, record.REF, record.ALT[0]) for record in file if len(record.ALT) == 1]
