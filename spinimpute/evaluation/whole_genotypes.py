"""Whole genotypes of multi-allelic records: concordance, and calibration of the most likely genotype.

Everything else in `evaluate` compares the ALT alleles of a record one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from spinimpute.evaluation.genotype_file import MISSING, SiteKey
from spinimpute.quality.metrics import (
    ALL_FREQUENCIES,
    DEFAULT_BINS,
    ProbabilityBins,
    frequency_bins,
    mean_variant_r2,
    pooled_r2,
)

RecordKey = tuple[str, int, str]  # plain chromosome, position, REF


def multiallelic_records(keys: Iterable[SiteKey]) -> set[RecordKey]:
    """Return the positions and REF alleles with several ALT alleles. `keys` are in order of position."""
    neighbours = {key for pair in pairwise(keys) if pair[0][1] == pair[1][1] for key in pair}
    n_alts = Counter(key[:3] for key in neighbours)
    return {record for record, n in n_alts.items() if n > 1}


@dataclass
class LeftOutAlleles:
    """ALT alleles of the truth that are not scored, at positions where the panel has several ALT alleles."""

    records: set[RecordKey]  # of the panel, with several ALT alleles
    # int8 (n_samples,): number of copies of alleles that are not in the panel, or do not vary there
    count: dict[RecordKey, np.ndarray] = field(default_factory=dict)
    typed: set[RecordKey] = field(default_factory=set)  # records with typed alleles

    def add(self, record: RecordKey, count: np.ndarray) -> None:
        """Add the copies of an allele, int8 (n_samples,); MISSING where unknown."""
        before = self.count.get(record, np.zeros_like(count))
        self.count[record] = np.where((count == MISSING) | (before == MISSING), MISSING, before + count)


class BestGenotypes:
    """The most likely genotypes of a record with several ALT alleles.

    Attributes
    ----------
    count_NK : ndarray
        Copies of each ALT allele, int8 (n_samples, n_alts); MISSING where unknown.
    probability_N : ndarray or None
        Probability of the genotype, float32 (n_samples,); None if the record has no GP.
    """

    def __init__(self, count_NK: np.ndarray, probability_N: np.ndarray | None) -> None:
        self.count_NK, self.probability_N = count_NK, probability_N

    @classmethod
    def of_calls(cls, alleles_NP: np.ndarray, n_alts: int) -> BestGenotypes:
        """Return called genotypes. alleles_NP: numbers of alleles, -1 if missing, -2 beyond the ploidy."""
        count_NK = (alleles_NP[:, :, None] == np.arange(1, n_alts + 1)).sum(axis=1, dtype=np.int8)
        count_NK[(alleles_NP == -1).any(axis=1)] = MISSING
        return cls(count_NK, None)

    @classmethod
    def of_probabilities(cls, p_NG: np.ndarray, n_alts: int, ploidy: np.ndarray) -> BestGenotypes:
        """Return the genotypes with the largest GP. p_NG: in the order of VCF, NaN where missing."""
        second, first = np.tril_indices(n_alts + 1)  # 0/0, 0/1, 1/1, 0/2 ...
        alleles_N2 = np.full((len(p_NG), 2), -2)
        best_N = np.nan_to_num(p_NG, nan=-1).argmax(axis=1)
        haploid_N = ploidy == 1
        alleles_N2[haploid_N, 0] = best_N[haploid_N]
        diploid_N = ~haploid_N
        alleles_N2[diploid_N] = np.stack([first, second], axis=1)[best_N[diploid_N]]
        probability_N = p_NG[np.arange(len(p_NG)), best_N]
        alleles_N2[np.isnan(probability_N)] = -1
        return cls(cls.of_calls(alleles_N2, n_alts).count_NK, probability_N)


class WholeGenotypes:
    """Counts of right genotypes in each multi-allelic record that is compared.

    Parameters
    ----------
    keys : sequence of SiteKey
        The scored sites.
    count : ndarray
        True copies of ALT at these sites, int8 (n_sites, n_samples).
    frequency : mapping
        ALT frequency of each site of the panel.
    left_out : LeftOutAlleles
        Alleles of the truth that are not scored.
    """

    def __init__(
        self,
        keys: Sequence[SiteKey],
        count: np.ndarray,
        frequency: Mapping[SiteKey, float],
        left_out: LeftOutAlleles,
    ) -> None:
        self._count, self._left_out = count, left_out
        self._rows: dict[RecordKey, dict[SiteKey, int]] = {}
        for row, key in enumerate(keys):
            if key[:3] in left_out.records:
                self._rows.setdefault(key[:3], {})[key] = row
        self._alt_frequency: dict[RecordKey, dict[SiteKey, float]] = {}
        for key, f in frequency.items():
            if key[:3] in self._rows:
                self._alt_frequency.setdefault(key[:3], {})[key] = f
        self._frequency: list[float] = []  # of each compared record: of all alleles but the most frequent one
        # genotypes, right ones, those with a minor allele, right ones of them
        self._counts: list[np.ndarray] = []
        self._scored_rows: list[int] = []
        self._calibration = ProbabilityBins()

    def compares(self, record: RecordKey) -> bool:
        """Return whether a record has scored sites, several ALT alleles in the panel, and no typed allele."""
        return record in self._rows and record not in self._left_out.typed

    def add(self, keys: Sequence[SiteKey], best: BestGenotypes, ploidy: np.ndarray) -> None:
        """Compare the genotypes of a record. `keys` are the sites of its ALT alleles; ploidy (n_samples,).

        A record without all of the panel's ALT alleles at this position and REF is not compared: the others
        are in a record of their own.
        """
        record = keys[0][:3]
        if not {key for key, f in self._alt_frequency[record].items() if f} <= set(keys):
            return
        rows = self._rows.pop(record)  # a record that is repeated is not compared again
        n_samples = len(ploidy)
        other_N = self._left_out.count.get(record, np.zeros(n_samples, np.int8))
        known_N = (other_N != MISSING) & (best.count_NK != MISSING).all(axis=1)
        right_N = other_N == 0
        true_of, best_of = {key: self._count[row] for key, row in rows.items()}, {}
        for k, key in enumerate(keys):
            best_of[key] = best.count_NK[:, k]
        nothing_N = np.zeros(n_samples, np.int8)
        for key in true_of | best_of:
            true_N = true_of.get(key, nothing_N)
            known_N &= true_N != MISSING
            right_N &= true_N == best_of.get(key, nothing_N)
        alt_frequency = self._alt_frequency[record]
        major = max(alt_frequency, key=lambda key: alt_frequency[key])
        p_ref = max(0.0, 1 - sum(alt_frequency.values()))
        if p_ref >= alt_frequency[major]:
            true_major_N = sum(true_of.values(), nothing_N) + other_N == 0
            best_major_N = best.count_NK.sum(axis=1) == 0
        else:
            true_major_N = true_of.get(major, nothing_N) == ploidy
            best_major_N = best_of.get(major, nothing_N) == ploidy
        minor_N = known_N & ~(true_major_N & best_major_N)
        frequency = min(0.5, 1 - max(p_ref, alt_frequency[major]))
        counted = np.stack([known_N, known_N & right_N, minor_N, minor_N & right_N])
        self._frequency.append(frequency)
        self._counts.append(counted.sum(axis=1))
        self._scored_rows += rows.values()
        if best.probability_N is not None:
            self._calibration.add(best.probability_N[known_N], right_N[known_N])

    def frequency_rows(
        self, statistics: np.ndarray, minor_frequency: np.ndarray, bins: Sequence[float] = DEFAULT_BINS
    ) -> list[dict[str, Any]]:
        """Return a row for all records, and for each bin with any; no row if no record was compared.

        `statistics` and `minor_frequency` have a row for each scored site. Columns: bin, records, genotypes,
        concordance (share of right genotypes), nrc (among those with any other allele than the most frequent
        one, in the truth or in the most likely genotype), alleles, pooled_r2 and mean_r2. A record is in the
        bin of the frequency of all alleles but the most frequent one, which counts as 0.5 if it is larger. An
        ALT allele is in the bin of its own minor frequency.
        """
        if not self._counts:
            return []
        frequency, count_R4 = np.array(self._frequency), np.array(self._counts)
        alleles = np.array(self._scored_rows)
        result = []
        for one in (ALL_FREQUENCIES, *frequency_bins(bins)):
            chosen = one.contains(frequency)
            rows = alleles[one.contains(minor_frequency[alleles])]
            if not chosen.any() and not len(rows):
                continue
            genotypes, right, minor, minor_right = count_R4[chosen].sum(axis=0).tolist()
            result.append(
                {
                    "bin": one.label,
                    "records": int(chosen.sum()),
                    "genotypes": genotypes,
                    "concordance": right / genotypes if genotypes else float("nan"),
                    "nrc": minor_right / minor if minor else float("nan"),
                    "alleles": len(rows),
                    "pooled_r2": pooled_r2(statistics[rows]),
                    "mean_r2": mean_variant_r2(statistics[rows]),
                }
            )
        return result

    def calibration_rows(self) -> list[dict[str, Any]]:
        """Return the calibration of the probabilities of the most likely genotypes; empty without GP."""
        return self._calibration.rows()
