"""Genotype likelihoods of a record of a variant file: PL, else GL, else the genotype.

PL and GL list the genotypes j/k of all alleles, j <= k, by k and then by j: the number of j/k is
k (k + 1) / 2 + j (VCF specification 4.3, section 1.6.2). For a haploid sample they list the alleles.

Axes: X samples; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.likelihoods import MAX_PHRED
from spinimpute.vcf.variant_file import Record, VariantFile

# FORMAT fields; the first one with a value of the sample counts. Most programs agree on PL, and a call has
# the least information.
LIKELIHOODS = ("PL", "GL", "GT")

# Phred-scaled probability of a wrong call: 1 in 10,000, about that of arrays. Both other genotypes have it,
# because the alleles of a wrong call are mostly wrong together. Three reads of quality 20 outweigh it, so
# that a wrong call does not suppress reads.
CALL_PHRED = 40

_ROUNDING = 0.01  # GL above 0 by rounding
_IMPOSSIBLE = 1e6  # Phred of a likelihood of 0
_HALF_PHRED = 3  # Phred of 1/2: a heterozygote shows either allele
# likelihoods of calls by first and second allele (0 REF, 1 ALT, -1 unknown), or by the allele of a haploid
_DIPLOID_CALLS = np.array(
    [
        [[0, CALL_PHRED, CALL_PHRED], [CALL_PHRED, 0, CALL_PHRED], [0, _HALF_PHRED, CALL_PHRED]],
        [[CALL_PHRED, 0, CALL_PHRED], [CALL_PHRED, CALL_PHRED, 0], [CALL_PHRED, _HALF_PHRED, 0]],
        [[0, _HALF_PHRED, CALL_PHRED], [CALL_PHRED, _HALF_PHRED, 0], [0, 0, 0]],
    ],
    np.float32,
)
_HAPLOID_CALLS = np.array(
    [[0, MAX_PHRED, CALL_PHRED], [CALL_PHRED, MAX_PHRED, 0], [0, MAX_PHRED, 0]], np.float32
)


class RecordLikelihoods(NamedTuple):
    """Likelihoods of the samples in a record.

    Attributes
    ----------
    phreds : list of float32 or int32 (X, 3)
        For each pair of alleles, with any offset; 0, 0, 0 without data. The middle value of a haploid sample
        has no meaning.
    copies_X : uint8
        Number of alleles of the sample, 0 without data.
    """

    phreds: list[np.ndarray]
    copies_X: np.ndarray

    def fill_missing(self, other: RecordLikelihoods) -> RecordLikelihoods:
        """With the likelihoods of another field for samples without data."""
        no_data_X = self.copies_X == 0
        return RecordLikelihoods(
            [
                np.where(no_data_X[:, None], two, one)
                for one, two in zip(self.phreds, other.phreds, strict=True)
            ],
            np.where(no_data_X, other.copies_X, self.copies_X),
        )


def genotype_index(first: int, second: int) -> int:
    """The index in PL and GL of the genotype of two alleles, given by their numbers."""
    low, high = sorted((first, second))
    return high * (high + 1) // 2 + low


def likelihoods_of_record(
    file: VariantFile, record: Record, n_alleles: int, pairs: Sequence[tuple[int, int]]
) -> RecordLikelihoods | None:
    """The likelihoods of samples for pairs of a record's alleles (their numbers); None without data.

    The copies of the second allele are counted. Genotypes with other alleles are left out; of a call, the
    alleles of the pair count. `n_alleles` includes REF. Raises InputError for invalid values.
    """
    formats = file.formats(record)
    likelihoods: RecordLikelihoods | None = None
    for key in LIKELIHOODS:
        if key not in formats:
            continue
        if key == "GT":
            more = _from_calls(file, record, n_alleles, pairs)
        else:
            more = _from_numbers(file, record, key, n_alleles, pairs)
        likelihoods = more if likelihoods is None else likelihoods.fill_missing(more)
        if likelihoods.copies_X.all():
            break
    return likelihoods


def _from_numbers(
    file: VariantFile, record: Record, key: str, n_alleles: int, pairs: Iterable[tuple[int, int]]
) -> RecordLikelihoods:
    """Likelihoods from PL or GL."""
    values, count_X = file.numbers(record, key)
    n_genotypes = genotype_index(0, n_alleles)  # the first genotype with a further allele
    if count_X is None and values.shape[1] == n_genotypes:
        copies_X = np.full(len(values), 2, np.uint8)
    else:
        count_X = np.full(len(values), values.shape[1]) if count_X is None else count_X
        known_X = ~np.isnan(values).all(axis=1)
        copies_X = (known_X * (2 * (count_X == n_genotypes) + (count_X == n_alleles))).astype(np.uint8)
        is_invalid_X = known_X & (copies_X == 0)
        if is_invalid_X.any():
            s = int(np.argmax(is_invalid_X))
            raise _error(
                file,
                record,
                s,
                f"{count_X[s]} values of {key}; {n_alleles} alleles have {n_genotypes}, or {n_alleles} in a "
                "haploid sample. Alleles may have been removed without their values; call the sites again",
            )
    if key == "GL":
        is_invalid = values > _ROUNDING
        rule = "GL are logarithms of likelihoods, 0 at most; are they Phred-scaled, that is PL?"
        phred = np.minimum(-10 * values, np.float32(_IMPOSSIBLE))
    else:
        is_invalid = values < 0
        rule = "PL are Phred-scaled likelihoods, 0 at least; are they logarithms, that is GL?"
        phred = values
    if is_invalid.any():
        s, v = np.argwhere(is_invalid)[0]
        raise _error(file, record, int(s), f"{values[s, v]:g} in {key}; {rule}")
    return RecordLikelihoods([_select_pair(phred, copies_X, pair) for pair in pairs], copies_X)


def _select_pair(phred: np.ndarray, copies_X: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
    """Likelihoods of the genotypes of two alleles, (X, 3), from those of all genotypes, (X, values)."""
    first, second = pair
    chosen = [genotype_index(first, first), genotype_index(first, second), genotype_index(second, second)]
    if copies_X.min() == 2:
        phred_X3 = phred[:, chosen]
    else:
        phred_X3 = np.zeros((len(phred), 3), np.float32)
        for copies, columns in ((1, [first, first, second]), (2, chosen)):
            chosen_X = copies_X == copies
            if chosen_X.any():
                phred_X3[chosen_X] = phred[chosen_X][:, columns]
    if phred_X3.dtype.kind == "f":
        # in merged files, samples lack the likelihoods of alleles that were only in the files of other
        # samples
        phred_X3[np.isnan(phred_X3).any(axis=1)] = 0
    return phred_X3


def _from_calls(
    file: VariantFile, record: Record, n_alleles: int, pairs: Iterable[tuple[int, int]]
) -> RecordLikelihoods:
    """Likelihoods from genotypes."""
    called = file.genotypes(record)[:, :-1]
    if called.shape[1] > 2:
        s = int(np.argmax((called > -2).sum(axis=1)))
        raise _error(file, record, s, f"a call of {called.shape[1]} alleles; samples have one or two")
    if (called >= n_alleles).any():
        s = int(np.argmax((called >= n_alleles).any(axis=1)))
        raise _error(file, record, s, "a genotype that names an ALT allele which the record does not have")
    is_haploid_X = called[:, -1] == -2 if called.shape[1] == 2 else np.ones(len(called), bool)
    copies_X = np.where((called >= 0).any(axis=1), np.where(is_haploid_X, 1, 2), 0).astype(np.uint8)
    phreds = []
    for pair in pairs:
        index_in_pair = np.full(n_alleles + 2, -1)
        index_in_pair[list(pair)] = 0, 1  # the last two are for -2 and -1
        first_X, last_X = index_in_pair[called[:, 0]], index_in_pair[called[:, -1]]
        haploid_X1 = copies_X[:, None] == 1
        phreds.append(np.where(haploid_X1, _HAPLOID_CALLS[first_X], _DIPLOID_CALLS[first_X, last_X]))
    return RecordLikelihoods(phreds, copies_X)


def _error(file: VariantFile, record: Record, sample: int, what: str) -> InputError:
    return file.error(f"sample {file.samples[sample]} has, at {record.CHROM}:{record.POS}, {what}")
