"""Records with several ALT alleles, joined from the biallelic rows that the pipeline computes.

`writer` and `merge` join the texts of sites and INFO fields. `multiallelic_fields` computes the columns of
samples. On each haplotype, the probabilities of all alleles are rounded so that their sum is exactly 1; so is
the sum of GP.

Axes: R records, K ALT alleles of a record, A all its alleles, G its genotypes, Q haplotypes, N samples,
P haplotypes of a sample.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.structural import join_variants
from spinimpute.vcf.record_fields import (
    ALLELE_ABSENT,
    ALLELE_MISSING,
    InfoColumns,
    NumberCodes,
    SampleFields,
    SampleLayout,
)

_STEP_VALUES = 2**20  # values of GP to compute at a time


def record_intervals(continues: np.ndarray) -> list[Interval]:
    """Return the rows of each record. `continues` is that of a `RecordBlock`, bool (r,)."""
    starts = np.flatnonzero(~continues)
    stops = np.append(starts[1:], len(continues))
    return [Interval(*rows) for rows in zip(starts.tolist(), stops.tolist(), strict=True)]


def join_sites(sites: Sites, records: Sequence[Interval]) -> Sites:
    """Return one site for each record. Its ALT is the text of the column ALT, with commas."""
    starts = [rows.start for rows in records]
    structural = {}
    if sites.structural:
        joined = [join_variants([sites.structural.get(row) for row in range(*rows)]) for rows in records]
        structural = {number: variant for number, variant in enumerate(joined) if variant is not None}
    return Sites(
        sites.chrom,
        sites.position[starts],
        [sites.ref[start] for start in starts],
        [",".join(sites.alt[rows.slice]) for rows in records],
        [sites.id[start] for start in starts],
        structural,
    )


def join_columns(columns: InfoColumns, records: Sequence[Interval]) -> InfoColumns:
    """Return the INFO texts of each record, with commas between the values of its ALT alleles.

    A record is TYPED if any of its alleles is. It has another flag if all of its alleles have it.
    """
    return {
        key: [
            texts[rows.start] if rows.n_sites == 1 else _join_texts(key, texts[rows.slice])
            for rows in records
        ]
        for key, texts in columns.items()
    }


def _join_texts(key: str, texts: Sequence[str | None]) -> str | None:
    if not any(text is not None for text in texts):
        return None
    if "" in texts:  # a flag
        return "" if key == "TYPED" or None not in texts else None
    return ",".join("." if text is None else text for text in texts)


def multiallelic_fields(
    layout: SampleLayout, p_RKQ: np.ndarray, length_RA: np.ndarray | None = None
) -> SampleFields:
    """Compute the sample columns of records with K ALT alleles from P(ALT), float32; NaN if missing.

    The called allele is the most likely ALT allele if it is at least as likely as REF, otherwise REF.
    `length_RA` are `allele_lengths`, for ML.
    """
    shape_RKNP = (*p_RKQ.shape[:2], layout.n_samples, layout.max_ploidy)
    alleles = layout.to_samples(_most_likely_alleles(p_RKQ), ALLELE_ABSENT)
    numbers: dict[str, list[np.ndarray]] = {}
    length_texts: Sequence[str] = ()
    if layout.n_values.keys() != {"GT"}:
        units_RKQ = _shares_in_units(p_RKQ, layout.codes)
        units_RKNP = layout.to_samples(units_RKQ.reshape(-1, p_RKQ.shape[2]), 0).reshape(shape_RKNP)
        compute = {"DS": _dosages, "HDS": _haplotype_dosages, "GP": _genotype_probabilities}
        numbers = {key: list(compute[key](layout, units_RKNP)) for key in layout.n_values if key in compute}
        if length_RA is not None:
            numbers["ML"], length_texts = layout.mean_lengths(units_RKNP, length_RA)
    return SampleFields(alleles, None, numbers, length_texts)


def _most_likely_alleles(p_RKQ: np.ndarray) -> np.ndarray:
    """Return the number of the most likely allele of each haplotype, int8 or int16 (R, Q)."""
    best_RQ = p_RKQ.argmax(axis=1)
    p_best_RQ, p_ref_RQ = p_RKQ.max(axis=1), 1 - p_RKQ.sum(axis=1)
    few = p_RKQ.shape[1] < np.iinfo(np.int8).max - 2
    allele_RQ = np.where(p_best_RQ >= p_ref_RQ, best_RQ + 1, 0).astype(np.int8 if few else np.int16)
    allele_RQ[np.isnan(p_ref_RQ)] = ALLELE_MISSING
    return allele_RQ


def _shares_in_units(p_RKQ: np.ndarray, codes: NumberCodes) -> np.ndarray:
    """Round P(ALT) to units of the last decimal, float32. The sum of the ALT alleles is at most 1."""
    total_RQ = p_RKQ.sum(axis=1, keepdims=True, dtype=np.float64)
    shares_RKQ = (p_RKQ / np.maximum(total_RQ, 1)).astype(np.float32)
    units_RKQ = codes.units(shares_RKQ)
    surplus_RKQ = units_RKQ - shares_RKQ * np.float32(codes.one)  # what rounding has added
    while (rows_RQ := units_RKQ.sum(axis=1) > codes.one).any():
        r, q = np.nonzero(rows_RQ)
        k = surplus_RKQ[r, :, q].argmax(axis=1)
        units_RKQ[r, k, q] -= 1
        surplus_RKQ[r, k, q] -= 1
    units_RKQ[np.broadcast_to(np.isnan(total_RQ), units_RKQ.shape)] = np.nan
    return units_RKQ


def _dosages(layout: SampleLayout, units_RKNP: np.ndarray) -> Iterator[np.ndarray]:
    for k in range(units_RKNP.shape[1]):
        yield layout.to_codes(units_RKNP[:, k].sum(axis=2))


def _haplotype_dosages(layout: SampleLayout, units_RKNP: np.ndarray) -> Iterator[np.ndarray]:
    for haplotype in range(layout.max_ploidy):
        for k in range(units_RKNP.shape[1]):
            codes_RN = layout.to_codes(units_RKNP[:, k, :, haplotype])
            if haplotype:
                codes_RN[:, layout.haploid] = layout.codes.absent
            yield codes_RN


def _genotype_probabilities(layout: SampleLayout, units_RKNP: np.ndarray) -> np.ndarray:
    """Return the codes of GP, int32 (G, R, N), in the order of the VCF specification (0/0, 0/1, 1/1 ...)."""
    codes, one = layout.codes, layout.codes.one
    unknown_RN = np.isnan(units_RKNP).any(axis=(1, 3))
    units_RKNP = np.nan_to_num(units_RKNP)
    units_RANP = np.concatenate([one - units_RKNP.sum(axis=1, keepdims=True), units_RKNP], axis=1)
    first_ARN, n_alleles = units_RANP[..., 0].swapaxes(0, 1).astype(np.float64), units_RANP.shape[1]
    if layout.max_ploidy == 1:
        values_GRN = first_ARN.astype(np.int32)
    else:
        second_ARN = units_RANP[..., 1].swapaxes(0, 1).astype(np.float64)
        pairs = [(a, b) for b in range(n_alleles) for a in range(b + 1)]
        values_GRN = np.empty((len(pairs), *first_ARN.shape[1:]), np.int32)
        n_step = max(1, _STEP_VALUES // (len(pairs) * len(units_RANP)))
        for start in range(0, layout.n_samples, n_step):
            step = slice(start, start + n_step)
            one_ARN, other_ARN = first_ARN[..., step], second_ARN[..., step]
            joint_GRN = np.stack(
                [one_ARN[a] * other_ARN[b] + (one_ARN[b] * other_ARN[a] if a < b else 0) for a, b in pairs]
            )
            values_GRN[..., step] = _round_to_sum(joint_GRN / one, one)
        haploid = layout.haploid
        values_GRN[:n_alleles, :, haploid] = first_ARN[:, :, haploid]
        values_GRN[n_alleles:, :, haploid] = codes.absent
    values_GRN[0, unknown_RN] = codes.missing
    values_GRN[1:, unknown_RN] = codes.absent
    return values_GRN


def _round_to_sum(values_GRN: np.ndarray, total: int) -> np.ndarray:
    """Round values whose sum over G is `total` to integers, int32, with the same sum.

    They are rounded down, and those with the largest fractions are increased by 1.
    """
    down_GRN = np.floor(values_GRN + 1e-9)
    fraction_GRN = values_GRN - down_GRN
    rank_GRN = np.argsort(np.argsort(-fraction_GRN, axis=0, kind="stable"), axis=0, kind="stable")
    return (down_GRN + (rank_GRN < total - down_GRN.sum(axis=0))).astype(np.int32)
