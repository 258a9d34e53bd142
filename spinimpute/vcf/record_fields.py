"""Compute and round the values of output records: INFO fields, and GT, DS, HDS, GP and ML of each sample.

Values are rounded here, before they are encoded, so VCF and BCF contain the same values. INFO values become
text. Values of samples become small integer codes, which the encoders look up in a table.

P(ALT) of each haplotype is rounded first, and DS and GP are computed from the rounded P(ALT). Therefore the
two HDS sum exactly to DS, GP sums exactly to 1, and P(0/1) + 2 P(1/1) equals DS exactly.

Shapes: r records, n samples, p the largest ploidy (1 or 2). Axes: R records, K ALT alleles of a record, A all
its alleles, N samples, P haplotypes of a sample, X a list of values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.structural import INFO_KEYS
from spinimpute.runtime.kernels import kernel
from spinimpute.vcf.header import OutputHeader

MAX_DECIMALS = 5  # of DS, HDS and GP; further decimals of a float32 probability would be noise

_INFO_TYPES = ("Float", "Integer", "Flag", "String")
_FREQUENCIES = ("AF", "MAF")
_THOUSANDTHS = {float(number): f"{number / 1_000:g}" for number in range(1_001)}  # texts of 0, 0.001, ..., 1

_LENGTH_DECIMALS = 2  # of ML
_MAX_LENGTH = (
    9_999_999  # bases of an allele in ML; the texts of longer ones would have more than 7 characters
)

ALLELE_MISSING = -1
ALLELE_ABSENT = -2

CERTAIN = 0.75
"""A probability closer to 0 or 1 than this, in units of the last decimal, is written as 0 or 1. (Plain
rounding has a limit of 0.5.) This changes a quarter of the probabilities that plain rounding would leave
between 0 and 1. Files become 4 % smaller and stay as accurate."""


@kernel()
def _round_units(probability_X, one, certain, units_X):  # type: ignore[no-untyped-def]
    """Round probabilities to units of the last decimal. This is the compiled part of `NumberCodes.units`."""
    zero = np.float32(0)
    for x in range(len(probability_X)):
        scaled = probability_X[x] * one
        units = np.rint(scaled)
        if scaled < np.float32(CERTAIN):
            units = zero
        if scaled > certain:
            units = one
        units_X[x] = units


class NumberCodes:
    """The integer codes for the values of DS, HDS and GP.

    The code of a value from 0 to 2 is the value in units of the last decimal, so `one` is the code of 1. The
    next two codes are `missing` and `absent`. For example, the second HDS of a haploid sample is absent.
    """

    def __init__(self, decimals: int) -> None:
        self.decimals = decimals
        self.one = int(10**decimals)
        self.missing = 2 * self.one + 1
        self.absent = self.missing + 1

    def units(self, probability: np.ndarray) -> np.ndarray:
        """Round float32 probabilities to units of the last decimal (`CERTAIN` is the rule near 0 and 1).

        Probabilities are clipped to 0 to 1. NaN stays NaN. The array must have at least one axis.
        """
        probability = np.ascontiguousarray(probability)
        units = np.empty_like(probability)
        _round_units(
            probability.reshape(-1), np.float32(self.one), np.float32(self.one - CERTAIN), units.reshape(-1)
        )
        return units


InfoColumns = dict[str, list[str | None]]
"""For each INFO key, its text in each record: "" for a flag, None if the record lacks the field."""


def info_columns(
    header: OutputHeader, arrays: Mapping[str, np.ndarray | None], typed: np.ndarray
) -> InfoColumns:
    """Format the INFO fields of r records, in the order of the header.

    `arrays` are numbers, booleans for flags, or texts. A record lacks the field if its number is not finite
    or its text is empty. The flag TYPED or IMPUTED comes last. Raises ValueError if the header defines no
    such field.
    """
    unknown = [key for key in arrays if header.info_types.get(key) not in _INFO_TYPES]
    if unknown:
        raise ValueError(f"the header defines no INFO field {', '.join(unknown)}")
    ordered = {key: arrays[key] for key in header.info_types if key in arrays}
    columns: InfoColumns = {}
    for key, values in (ordered | {"TYPED": typed, "IMPUTED": ~typed}).items():
        if values is None:
            continue
        if header.info_types[key] == "Flag":
            columns[key] = ["" if present else None for present in np.asarray(values).tolist()]
        elif header.info_types[key] == "String":
            columns[key] = [text or None for text in values.tolist()]
        else:
            columns[key] = _number_texts(key, header.info_types[key], np.asarray(values, np.float64))
    return columns


def allele_lengths(sites: Sites) -> np.ndarray:
    """Return the length of REF and of the K ALT alleles of each record in bases, float64 (R, K + 1).

    The row of a record is NaN if its alleles have equal lengths, or if one of them is not a sequence, or is
    longer than _MAX_LENGTH.
    """
    rows = []
    for ref, alt in zip(sites.ref, sites.alt, strict=True):
        alleles = [ref, *alt.split(",")]
        lengths = [len(allele) for allele in alleles]
        are_lengths = min(lengths) < max(lengths) <= _MAX_LENGTH and all(map(str.isalpha, alleles))
        rows.append(lengths if are_lengths else [math.nan] * len(lengths))
    return np.array(rows, np.float64)


def _length_text(length: float) -> str:
    """Format a length with as many of _LENGTH_DECIMALS as fit into seven characters."""
    texts = (f"{length:.{decimals}f}" for decimals in range(_LENGTH_DECIMALS, -1, -1))
    text = next(text for text in texts if len(text) <= 7)
    return text.rstrip("0").rstrip(".") if "." in text else text


def structural_columns(sites: Sites) -> InfoColumns:
    """Return the INFO fields END, SVTYPE and SVLEN of each record; none if no record is structural."""
    variants = sites.written_variants()
    if not variants:
        return {}
    rows = [variants.get(row) for row in range(len(sites))]
    texts = [
        [None] * 3 if one is None else [str(one.end), one.svtype or None, one.svlen or None] for one in rows
    ]
    return dict(zip(INFO_KEYS, map(list, zip(*texts, strict=True)), strict=True))


def info_texts(columns: InfoColumns) -> list[str]:
    """Return the INFO column of each record."""
    fields = [
        [value if value is None else f"{key}={value}" if value else key for value in values]
        for key, values in columns.items()
    ]
    return [";".join(filter(None, record)) for record in zip(*fields, strict=True)]


def _number_texts(key: str, info_type: str, values: np.ndarray) -> list[str | None]:
    """Format numbers: integers in full, frequencies with 4 significant digits, others with 3 decimals."""
    if info_type == "Integer":
        return [str(int(value)) if math.isfinite(value) else None for value in values.tolist()]
    if key in _FREQUENCIES:
        return [f"{value:.4g}" if math.isfinite(value) else None for value in values.tolist()]
    return [
        _THOUSANDTHS.get(number) or (f"{number / 1_000:g}" if math.isfinite(number) else None)
        for number in np.rint(values * 1_000).tolist()
    ]


@dataclass(frozen=True)
class SampleFields:
    """The sample columns of r records."""

    alleles: np.ndarray  # number of the allele, ALLELE_MISSING or ALLELE_ABSENT, int8 or int16 (r, n, p)
    unphased: np.ndarray | None  # calls to write as unphased, bool (r, n); None: all calls are phased
    numbers: dict[str, list[np.ndarray]]  # FORMAT key -> codes (r, n) of its first, second ... value
    length_texts: Sequence[str] = ()  # text of each code of ML; the codes of other keys are `NumberCodes`


class SampleLayout:
    """Converter of haplotype dosages to the FORMAT fields of samples with ploidy 1 or 2.

    `n_values` maps each FORMAT key to the number of values of a sample with the largest ploidy, in records
    with `n_alts` ALT alleles. The method `fields` is for biallelic records.
    """

    def __init__(
        self, ploidy: np.ndarray, formats: Sequence[str], codes: NumberCodes, n_alts: int = 1
    ) -> None:
        self.codes = codes
        self.n_alts = n_alts
        self.n_samples = len(ploidy)
        self.max_ploidy = int(ploidy.max())
        n_genotypes = (n_alts + 1) * (n_alts + 2) // 2 if self.max_ploidy == 2 else n_alts + 1
        n_values = {"GT": self.max_ploidy, "DS": n_alts, "HDS": self.max_ploidy * n_alts}
        n_values |= {"GP": n_genotypes, "ML": 1}
        self.n_values = {key: n_values[key] for key in formats}
        self.n_haplotypes = int(ploidy.sum())
        self.uniform = bool((ploidy == self.max_ploidy).all())
        self.haploid = ploidy == 1
        # index of each haplotype in a table with max_ploidy columns per sample
        self._haplotype_columns = np.flatnonzero(np.arange(self.max_ploidy)[None, :] < ploidy[:, None])

    def fields(
        self,
        hap_dosage: np.ndarray,
        haplotypes: np.ndarray | None,
        unphased: np.ndarray | None = None,
        length_RA: np.ndarray | None = None,
    ) -> SampleFields:
        """Compute the fields of r records.

        `hap_dosage`, float32 (r, n_haplotypes), is P(ALT), or NaN if missing. `haplotypes`, int8
        (r, n_haplotypes), are the calls 0, 1 or -1 (missing). Without them, ALT is called if P(ALT) >= 0.5.
        `length_RA` are `allele_lengths`, for ML.
        """
        if haplotypes is None:
            haplotypes = (hap_dosage >= 0.5).astype(np.int8)
            haplotypes[np.isnan(hap_dosage)] = ALLELE_MISSING
        alleles = self.to_samples(haplotypes, ALLELE_ABSENT)
        numbers: dict[str, list[np.ndarray]] = {}
        length_texts: Sequence[str] = ()
        if self.n_values.keys() != {"GT"}:
            units = self.to_samples(self.codes.units(hap_dosage), 0)
            numbers = {key: self._numbers(key, units) for key in self.n_values if key not in ("GT", "ML")}
            if length_RA is not None:
                numbers["ML"], length_texts = self.mean_lengths(units[:, None], length_RA)
        return SampleFields(alleles, unphased, numbers, length_texts)

    def mean_lengths(
        self, units_RKNP: np.ndarray, length_RA: np.ndarray
    ) -> tuple[list[np.ndarray], Sequence[str]]:
        """Compute ML, the expected mean length of a sample's alleles. Return its codes, and their texts.

        `units_RKNP` are P(ALT) in units of the last decimal, or NaN. `length_RA` are `allele_lengths`.
        """
        mean_RN = np.full((len(units_RKNP), self.n_samples), np.nan)
        rows = np.flatnonzero(~np.isnan(length_RA[:, 0]))
        share_RKN = units_RKNP[rows].sum(axis=3) / np.where(self.haploid, 1, self.max_ploidy) / self.codes.one
        change_RK = length_RA[rows, 1:] - length_RA[rows, :1]
        mean_RN[rows] = length_RA[rows, :1] + (change_RK[:, :, None] * share_RKN).sum(axis=1)
        known_RN = ~np.isnan(mean_RN)
        means_X, code_X = np.unique(mean_RN[known_RN].round(_LENGTH_DECIMALS), return_inverse=True)
        codes_RN = np.zeros(mean_RN.shape, np.int32)
        codes_RN[known_RN] = code_X + 1
        return [codes_RN], [".", *map(_length_text, means_X.tolist())]

    def to_samples(self, values: np.ndarray, absent: int) -> np.ndarray:
        """Reshape (r, n_haplotypes) to (r, n, p). The second value of haploid samples becomes `absent`."""
        n_records = len(values)
        if not self.uniform:
            padded = np.full((n_records, self.n_samples * self.max_ploidy), absent, dtype=values.dtype)
            padded[:, self._haplotype_columns] = values
            values = padded
        return values.reshape(n_records, self.n_samples, self.max_ploidy)

    def _numbers(self, key: str, units: np.ndarray) -> list[np.ndarray]:
        """Compute the codes of a field from P(ALT) in units of the last decimal, float32 (r, n, p)."""
        one, missing, absent = self.codes.one, self.codes.missing, self.codes.absent
        haplotypes = [units[:, :, haplotype] for haplotype in range(self.max_ploidy)]
        if key == "DS":
            return [self.to_codes(sum(haplotypes[1:], haplotypes[0]))]
        if key == "HDS":
            values = [self.to_codes(haplotype) for haplotype in haplotypes]
        else:
            dosage = self.to_codes(sum(haplotypes[1:], haplotypes[0]))
            unknown = dosage == missing
            both = np.zeros_like(dosage)
            if len(haplotypes) == 2:
                both = self.to_codes(np.rint(haplotypes[0] * haplotypes[1] / np.float32(one)))
            values = [one - dosage + both, dosage - 2 * both, both][: self.max_ploidy + 1]
            for number, value in enumerate(values):
                value[unknown] = absent if number else missing
        if not self.uniform:
            values[-1][:, self.haploid] = absent
        return values

    def to_codes(self, units: np.ndarray) -> np.ndarray:
        """Convert whole numbers to int32, and NaN to the code of a missing value."""
        unknown = np.isnan(units)
        known = np.where(unknown, np.float32(self.codes.missing), units) if unknown.any() else units
        return known.astype(np.int32)
