"""Genotype likelihoods in one record of a variant file, from PL, GL or the called genotype (GT).

PL are Phred-scaled likelihoods, GL are log10 of likelihoods. In both, genotype j/k with j <= k has the index
k (k + 1) / 2 + j (VCF specification 4.3, section 1.6.2). Haploid samples have one value for each allele.

Axes: X samples, and an axis of length 3 for genotypes with 0, 1 and 2 copies of ALT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.likelihoods import MAX_PHRED
from spinimpute.vcf.variant_file import Record, VariantFile

# For each sample, the first of these FORMAT fields that has a value is used. PL comes first because most
# programs write it in the same way, and GT last because a call has the least information.
LIKELIHOODS = ("PL", "GL", "GT")

# Phred-scaled probability of a wrong call: 1 in 10,000, as in genotyping arrays. Both other genotypes get it,
# because usually both alleles of a wrong call are wrong. Three reads of quality 20 outweigh a wrong call.
CALL_PHRED = 40

_ROUNDING = 0.01  # GL is at most 0; values up to this one are accepted as rounding errors
_IMPOSSIBLE = 1e6  # Phred-scaled likelihood that stands for a likelihood of 0
_HALF_PHRED = 3  # Phred-scaled 1/2: if one allele is known, a heterozygote has it with probability 1/2
# Phred-scaled likelihoods of 0, 1 and 2 copies of ALT, given a call. They are indexed by the first and the
# second allele of the call, or by the allele of a haploid call: 0 REF, 1 ALT, -1 unknown.
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
        Phred-scaled likelihoods, one array for each requested pair of alleles. Only their differences have a
        meaning. They are 0, 0, 0 without data. For a haploid sample, the middle value has no meaning.
    call_ploidy_X : uint8 (X,)
        Number of alleles of the sample, 0 without data.
    """

    phreds: list[np.ndarray]
    call_ploidy_X: np.ndarray

    def fill_missing(self, other: RecordLikelihoods) -> RecordLikelihoods:
        """Return a copy that takes the likelihoods of samples without data from another field."""
        no_data_X = self.call_ploidy_X == 0
        return RecordLikelihoods(
            [
                np.where(no_data_X[:, None], filling, own)
                for own, filling in zip(self.phreds, other.phreds, strict=True)
            ],
            np.where(no_data_X, other.call_ploidy_X, self.call_ploidy_X),
        )


def genotype_index(first: int, second: int) -> int:
    """Return the index in PL and GL of the genotype with two alleles. Alleles are numbered from 0 (REF)."""
    low, high = sorted((first, second))
    return high * (high + 1) // 2 + low


def likelihoods_of_record(
    file: VariantFile, record: Record, n_alleles: int, pairs: Sequence[tuple[int, int]]
) -> RecordLikelihoods | None:
    """Return the likelihoods of 0, 1 and 2 copies of the second allele of each pair; None without data.

    `pairs` are allele numbers of the record, and `n_alleles` counts REF, too. Genotypes with alleles that are
    not in the pair are ignored; in a call, such alleles count as unknown. Raises InputError for invalid
    values.
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
        if likelihoods.call_ploidy_X.all():
            break
    return likelihoods


def _from_numbers(
    file: VariantFile, record: Record, key: str, n_alleles: int, pairs: Iterable[tuple[int, int]]
) -> RecordLikelihoods:
    """Return the likelihoods from field `key`, PL or GL."""
    values, count_X = file.numbers(record, key)
    n_genotypes = genotype_index(0, n_alleles)  # index of the first genotype with one more allele
    if count_X is None and values.shape[1] == n_genotypes:
        call_ploidy_X = np.full(len(values), 2, np.uint8)
    else:
        count_X = np.full(len(values), values.shape[1]) if count_X is None else count_X
        known_X = ~np.isnan(values).all(axis=1)
        call_ploidy_X = (known_X * (2 * (count_X == n_genotypes) + (count_X == n_alleles))).astype(np.uint8)
        is_invalid_X = known_X & (call_ploidy_X == 0)
        if is_invalid_X.any():
            x = int(np.argmax(is_invalid_X))
            raise _error(
                file,
                record,
                x,
                f"{count_X[x]} values of {key}; {n_alleles} alleles have {n_genotypes}, or {n_alleles} in a "
                "haploid sample. Alleles may have been removed without their values; call the sites again",
            )
    if key == "GL":
        is_invalid = values > _ROUNDING
        rule = "GL are logarithms of likelihoods, at most 0; are they Phred-scaled, that is PL?"
        phred = np.minimum(-10 * values, np.float32(_IMPOSSIBLE))
    else:
        is_invalid = values < 0
        rule = "PL are Phred-scaled likelihoods, at least 0; are they logarithms, that is GL?"
        phred = values
    if is_invalid.any():
        x, v = np.argwhere(is_invalid)[0]
        raise _error(file, record, int(x), f"{values[x, v]:g} in {key}; {rule}")
    return RecordLikelihoods([_select_pair(phred, call_ploidy_X, pair) for pair in pairs], call_ploidy_X)


def _select_pair(phred: np.ndarray, call_ploidy_X: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
    """Return the likelihoods of two alleles' genotypes (X, 3) from those of all genotypes (X, values)."""
    first, second = pair
    chosen = [genotype_index(first, first), genotype_index(first, second), genotype_index(second, second)]
    if call_ploidy_X.min() == 2:
        phred_X3 = phred[:, chosen]
    else:
        phred_X3 = np.zeros((len(phred), 3), np.float32)
        for ploidy, columns in ((1, [first, first, second]), (2, chosen)):
            chosen_X = call_ploidy_X == ploidy
            if chosen_X.any():
                phred_X3[chosen_X] = phred[chosen_X][:, columns]
    if phred_X3.dtype.kind == "f":
        # merged files lack the likelihoods of an allele for samples whose own file lacked the allele
        phred_X3[np.isnan(phred_X3).any(axis=1)] = 0
    return phred_X3


def _from_calls(
    file: VariantFile, record: Record, n_alleles: int, pairs: Iterable[tuple[int, int]]
) -> RecordLikelihoods:
    """Return the likelihoods from called genotypes (GT)."""
    called = file.genotypes(record)[:, :-1]
    if called.shape[1] > 2:
        x = int(np.argmax((called > -2).sum(axis=1)))
        raise _error(file, record, x, f"a call of {called.shape[1]} alleles; samples have one or two")
    if (called >= n_alleles).any():
        x = int(np.argmax((called >= n_alleles).any(axis=1)))
        raise _error(file, record, x, "a genotype that names an ALT allele which the record does not have")
    is_haploid_X = called[:, -1] == -2 if called.shape[1] == 2 else np.ones(len(called), bool)
    call_ploidy_X = np.where((called >= 0).any(axis=1), np.where(is_haploid_X, 1, 2), 0).astype(np.uint8)
    phreds = []
    for pair in pairs:
        index_in_pair = np.full(n_alleles + 2, -1)
        # alleles -2 (haploid) and -1 (missing) read the last two entries, which stay -1
        index_in_pair[list(pair)] = 0, 1
        first_X, last_X = index_in_pair[called[:, 0]], index_in_pair[called[:, -1]]
        haploid_X1 = call_ploidy_X[:, None] == 1
        phreds.append(np.where(haploid_X1, _HAPLOID_CALLS[first_X], _DIPLOID_CALLS[first_X, last_X]))
    return RecordLikelihoods(phreds, call_ploidy_X)


def _error(file: VariantFile, record: Record, sample: int, what: str) -> InputError:
    return file.error(f"sample {file.samples[sample]} has, at {record.CHROM}:{record.POS}, {what}")
