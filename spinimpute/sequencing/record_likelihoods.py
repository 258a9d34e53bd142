"""What a record of a variant file states of its samples: PL, else GL, else the genotype.

PL and GL list the genotypes j/k of all alleles, j no larger than k, by k and then by j: that of j/k is number
k (k + 1) / 2 + j (VCF specification 4.3, section 1.6.2). For a haploid sample they list the alleles.

Axes: X samples; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.likelihoods import HIGHEST
from spinimpute.vcf.variant_file import Record, VariantFile

LIKELIHOODS = ("PL", "GL", "GT")
"""FORMAT fields, the first one that a sample has counts: most programs agree on PL, and a call says least."""

CALL_PHRED = 40
"""Of a call that is wrong: a chance of 1 in 10,000, about that of arrays.

Both other genotypes have it, as the alleles of a wrong call are mostly wrong together. Three reads of quality
20 outweigh it: where reads are added to a wrong call it does not silence them.
"""

_ROUNDING = 0.01  # GL above 0 that come of it
_IMPOSSIBLE = 1e6  # Phred of a likelihood of 0
_HALF = 3  # Phred of 1/2: what a heterozygote shows of either allele
# of calls, by first and second allele (0 REF, 1 ALT, -1 not known), and by the one allele of a haploid sample
_DIPLOID_CALLS = np.array(
    [
        [[0, CALL_PHRED, CALL_PHRED], [CALL_PHRED, 0, CALL_PHRED], [0, _HALF, CALL_PHRED]],
        [[CALL_PHRED, 0, CALL_PHRED], [CALL_PHRED, CALL_PHRED, 0], [CALL_PHRED, _HALF, 0]],
        [[0, _HALF, CALL_PHRED], [CALL_PHRED, _HALF, 0], [0, 0, 0]],
    ],
    np.float32,
)
_HAPLOID_CALLS = np.array([[0, HIGHEST, CALL_PHRED], [CALL_PHRED, HIGHEST, 0], [0, HIGHEST, 0]], np.float32)


class Stated(NamedTuple):
    """What a record states of the samples.

    Attributes
    ----------
    phreds : list of float32 or int32 (X, 3)
        For each pair of alleles that was asked for, on any level; 0, 0, 0 where nothing is stated. What is in
        the middle for a haploid sample means nothing.
    copies_X : uint8 (X,)
        1 for what is stated of one allele, 2 of two, 0 where nothing is.
    """

    phreds: list[np.ndarray]
    copies_X: np.ndarray

    def filled(self, other: Stated) -> Stated:
        """With what another field states of samples of which this one states nothing."""
        nothing_X = self.copies_X == 0
        return Stated(
            [
                np.where(nothing_X[:, None], two, one)
                for one, two in zip(self.phreds, other.phreds, strict=True)
            ],
            np.where(nothing_X, other.copies_X, self.copies_X),
        )


def genotype_number(first: int, second: int) -> int:
    """The place of a genotype of two alleles, by their numbers, in PL and GL."""
    low, high = sorted((first, second))
    return high * (high + 1) // 2 + low


def stated_likelihoods(
    file: VariantFile, record: Record, n_alleles: int, pairs: Sequence[tuple[int, int]]
) -> Stated | None:
    """The likelihoods that a record states, for pairs of its alleles.

    Genotypes with other alleles are left out; a call tells as much as its alleles that are of the pair.

    Parameters
    ----------
    file : VariantFile
        Whose record it is.
    record : Record
        The record.
    n_alleles : int
        REF and all ALT alleles.
    pairs : sequence of (int, int)
        Numbers of two alleles of the record; copies of the second are counted.

    Returns
    -------
    Stated or None
        None if the record has neither PL, GL nor GT.

    Raises
    ------
    InputError
        A field is not what it should be.
    """
    formats = file.formats(record)
    stated: Stated | None = None
    for key in LIKELIHOODS:
        if key not in formats:
            continue
        if key == "GT":
            more = _of_calls(file, record, n_alleles, pairs)
        else:
            more = _of_numbers(file, record, key, n_alleles, pairs)
        stated = more if stated is None else stated.filled(more)
        if stated.copies_X.all():
            break
    return stated


def _of_numbers(
    file: VariantFile, record: Record, key: str, n_alleles: int, pairs: Iterable[tuple[int, int]]
) -> Stated:
    """What PL or GL state."""
    values, count_X = file.numbers(record, key)
    n_genotypes = genotype_number(0, n_alleles)  # that of the first with one allele more
    if count_X is None and values.shape[1] == n_genotypes:
        copies_X = np.full(len(values), 2, np.uint8)
    else:
        count_X = np.full(len(values), values.shape[1]) if count_X is None else count_X
        known_X = ~np.isnan(values).all(axis=1)
        copies_X = (known_X * (2 * (count_X == n_genotypes) + (count_X == n_alleles))).astype(np.uint8)
        wrong_X = known_X & (copies_X == 0)
        if wrong_X.any():
            s = int(np.argmax(wrong_X))
            raise _error(
                file,
                record,
                s,
                f"{count_X[s]} values of {key}; {n_alleles} alleles have {n_genotypes}, or {n_alleles} in a "
                "haploid sample. Alleles may have been removed without their values; call the sites again",
            )
    if key == "GL":
        wrong = values > _ROUNDING
        rule = "GL are logarithms of likelihoods, 0 at most; are they Phred-scaled, that is PL?"
        phred = np.minimum(-10 * values, np.float32(_IMPOSSIBLE))
    else:
        wrong = values < 0
        rule = "PL are Phred-scaled likelihoods, 0 at least; are they logarithms, that is GL?"
        phred = values
    if wrong.any():
        s, v = np.argwhere(wrong)[0]
        raise _error(file, record, int(s), f"{values[s, v]:g} in {key}; {rule}")
    return Stated([_of_pair(phred, copies_X, pair) for pair in pairs], copies_X)


def _of_pair(phred: np.ndarray, copies_X: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
    """Those of the genotypes with two alleles alone, (X, 3), of all that are listed, (X, values)."""
    first, second = pair
    chosen = [genotype_number(first, first), genotype_number(first, second), genotype_number(second, second)]
    if copies_X.min() == 2:
        phred_X3 = phred[:, chosen]
    else:
        phred_X3 = np.zeros((len(phred), 3), np.float32)
        for copies, columns in ((1, [first, first, second]), (2, chosen)):
            of_such_X = copies_X == copies
            if of_such_X.any():
                phred_X3[of_such_X] = phred[of_such_X][:, columns]
    if phred_X3.dtype.kind == "f":
        # where files were joined, samples lack the likelihoods of alleles that only others' files had
        phred_X3[np.isnan(phred_X3).any(axis=1)] = 0
    return phred_X3


def _of_calls(file: VariantFile, record: Record, n_alleles: int, pairs: Iterable[tuple[int, int]]) -> Stated:
    """What genotypes state."""
    called = file.genotypes(record)[:, :-1]
    if called.shape[1] > 2:
        s = int(np.argmax((called > -2).sum(axis=1)))
        raise _error(file, record, s, f"a call of {called.shape[1]} alleles; samples have one or two")
    if (called >= n_alleles).any():
        s = int(np.argmax((called >= n_alleles).any(axis=1)))
        raise _error(file, record, s, "a genotype that names an ALT allele which the record does not have")
    one_X = called[:, -1] == -2 if called.shape[1] == 2 else np.ones(len(called), bool)
    copies_X = np.where((called >= 0).any(axis=1), np.where(one_X, 1, 2), 0).astype(np.uint8)
    phreds = []
    for pair in pairs:
        of_pair = np.full(n_alleles + 2, -1)
        of_pair[list(pair)] = 0, 1  # the last two are those of -2 and -1
        first_X, last_X = of_pair[called[:, 0]], of_pair[called[:, -1]]
        haploid_X1 = copies_X[:, None] == 1
        phreds.append(np.where(haploid_X1, _HAPLOID_CALLS[first_X], _DIPLOID_CALLS[first_X, last_X]))
    return Stated(phreds, copies_X)


def _error(file: VariantFile, record: Record, sample: int, what: str) -> InputError:
    return file.error(f"sample {file.samples[sample]} has, at {record.CHROM}:{record.POS}, {what}")
