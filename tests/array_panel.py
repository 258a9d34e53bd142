"""A panel for algorithms that read only some of its attributes, from arrays."""

from dataclasses import dataclass, field

import numpy as np

from spinimpute.genotypes.records import RecordRows
from spinimpute.genotypes.sites import Sites
from spinimpute.hmm.pbwt import Candidates


@dataclass
class ArrayPanel:
    """Alleles (X, N) and genetic positions; trusted sites, 1,000 base pairs apart."""

    alleles_XN: np.ndarray
    cM: np.ndarray
    position: np.ndarray = field(init=False)
    trust: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.position = 1_000 * np.arange(self.n_sites) + 1
        self.trust = np.ones(self.n_sites, np.float32)

    @property
    def n_sites(self) -> int:
        return len(self.alleles_XN)

    @property
    def n_haplotypes(self) -> int:
        return self.alleles_XN.shape[1]

    @property
    def allele_count(self) -> np.ndarray:
        return self.alleles_XN.sum(axis=1, dtype=np.int64)

    @property
    def frequency(self) -> np.ndarray:
        return self.alleles_XN.mean(axis=1)

    @property
    def records(self) -> RecordRows:
        return RecordRows.separate(self.n_sites)

    @property
    def sites(self) -> Sites:
        n = self.n_sites
        return Sites("20", self.position, ["A"] * n, ["C"] * n, ["."] * n)

    def alleles(self, start: int, stop: int) -> np.ndarray:
        return self.alleles_XN[start:stop]

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        return np.packbits(self.alleles_XN[index], axis=1)


def candidates_from_mask(chosen_BQN: np.ndarray) -> Candidates:
    """Return the candidates where a boolean array is True."""
    count_BQ = chosen_BQN.sum(axis=2)
    last_BQ = np.cumsum(count_BQ.ravel()).reshape(count_BQ.shape)
    first_BQ1 = np.concatenate([(last_BQ - count_BQ)[:, :1], last_BQ], axis=1)
    return Candidates(np.nonzero(chosen_BQN)[2].astype(np.int32), first_BQ1.astype(np.int64))
