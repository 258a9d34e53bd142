"""`evaluate`: agreement of an imputed file with the truth, compared with a guess by allele frequency."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from spinimpute.errors import InputError
from spinimpute.evaluation.genotype_file import MISSING, GenotypeFile
from spinimpute.evaluation.html_report import evaluation_report
from spinimpute.evaluation.imputed_file import BLOCK_SITES, ImputedReader
from spinimpute.evaluation.result import BASELINE, IMPUTED, Evaluation
from spinimpute.evaluation.tables import REPORT_FILES, check_out, write_report
from spinimpute.evaluation.truth import Truth, read_panel, read_truth, read_typed_sites
from spinimpute.output_files import check_output, written_whole
from spinimpute.quality.metrics import (
    DEFAULT_BINS,
    SITE_STATISTICS,
    GenotypeCalibration,
    frequency_rows,
    minor_concordance,
    pooled_r2,
    site_statistics,
    turn_probabilities_to_minor,
    turn_to_minor,
)


def evaluate(
    truth: str | os.PathLike[str],
    imputed: str | os.PathLike[str],
    panel: str | os.PathLike[str],
    typed: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    bins: Sequence[float] = DEFAULT_BINS,
    force: bool = False,
    report: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Score imputed dosages against true genotypes, by minor allele frequency in the panel.

    Scored are the biallelic sites of the truth that are polymorphic in the panel and not typed, matched by
    (chromosome without "chr", position, REF, ALT), for the samples that both files name, whatever their
    order. Dosages are turned to the panel's minor allele first. A site or genotype that the imputed file
    lacks counts as the panel's frequency; a genotype that the truth lacks is not scored.

    Parameters
    ----------
    truth : path
        VCF or BCF with true genotypes (GT).
    imputed : path
        VCF or BCF with DS, HDS, GP or GT, taken in that order.
    panel : path
        The reference panel, `.spin`, `.spip`, VCF or BCF.
    typed : path
        The target file that was imputed; its sites are not scored.
    out : path or None
        Folder for accuracy.tsv, accuracy.png, samples.tsv and, where the imputed file has GP,
        calibration.tsv.
    bins : sequence of float
        Increasing edges of minor allele frequency, between 0 and 0.5.
    force : bool
        Replace reports that are already there.
    report : path or None
        A page (HTML) to write.

    Returns
    -------
    Evaluation
        The tables and counts.

    Raises
    ------
    InputError
        A file cannot be read or lacks what is needed, no sample or site is common, `bins` are not increasing,
        or `out` is a file or holds reports and `force` is not given.
    """
    _check_bins(bins)
    if out is not None:
        check_out(Path(out), force)
        if report is not None and Path(out).resolve() == Path(report).resolve():
            raise InputError(
                f"the report cannot be {report}: it is the folder of the tables; give another name"
            )
        for name in REPORT_FILES:
            path = Path(out) / name
            if path.exists():
                check_output(path, force, [truth, imputed, panel, typed])
            if report is not None and path.resolve() == Path(report).resolve():
                raise InputError(f"the report cannot be {report}: {name} goes there; give another name")
    page = None if report is None else check_output(Path(report), force, [truth, imputed, panel, typed])
    truth_file = GenotypeFile(truth, "truth")
    imputed_file = GenotypeFile(imputed, "imputed")
    samples = _common_samples(truth_file, imputed_file)
    frequencies = read_panel(panel)
    typed_keys = read_typed_sites(typed, frequencies)
    known = read_truth(truth_file, samples, frequencies, typed_keys)
    scores = _score(known, ImputedReader(imputed_file, samples, known))
    if scores.missing.all():
        raise InputError(
            f"none of the {len(known.keys):,} sites to score is in the {imputed_file.name}. "
            f"Truth: {truth_file.describe_spans()}. Imputed: {imputed_file.describe_spans()}. "
            "Both must be of the same region and genome build, with the same REF and ALT"
        )

    minor_frequency = np.minimum(known.frequency, 1 - known.frequency)
    everywhere = np.ones(len(known.keys), dtype=bool)  # the baseline imputes no site
    rows = frequency_rows(BASELINE, scores.baseline, minor_frequency, everywhere, bins)
    rows += frequency_rows(IMPUTED, scores.imputed, minor_frequency, scores.missing, bins)
    calibration = scores.calibration.rows()
    common = set(samples)
    panel_samples = set(frequencies.samples)
    result = Evaluation(
        by_frequency=pd.DataFrame(rows),
        by_sample=pd.DataFrame(_sample_rows(samples, scores.of_samples)),
        calibration=pd.DataFrame(calibration) if calibration else None,
        scored_sites=len(known.keys),
        missing_sites=int(scores.missing.sum()),
        missing_genotypes=scores.missing_genotypes,
        unknown_genotypes=int((known.count == MISSING).sum()),
        samples=samples,
        truth_only_samples=[name for name in truth_file.samples if name not in common],
        imputed_only_samples=[name for name in imputed_file.samples if name not in common],
        samples_in_panel=[name for name in samples if name in panel_samples],
        left_out=known.left_out,
        fields_used=scores.fields_used,
    )
    if out is not None:
        write_report(result, Path(out), force)
    if page is not None:
        with written_whole(page) as partial:
            text = evaluation_report(result, Path(imputed).name, Path(truth).name)
            partial.write_text(text, encoding="utf-8", errors="xmlcharrefreplace")
    return result


@dataclass(frozen=True)
class _Scores:
    baseline: np.ndarray  # SITE_STATISTICS (n_sites,)
    imputed: np.ndarray  # SITE_STATISTICS (n_sites,)
    missing: np.ndarray  # bool (n_sites,)
    missing_genotypes: int
    calibration: GenotypeCalibration
    fields_used: tuple[str, ...]
    of_samples: list[np.ndarray]  # SITE_STATISTICS (n_samples,) each, with a sample's sites as its genotypes


def _sample_rows(samples: Sequence[str], statistics: Sequence[np.ndarray]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for i, name in enumerate(samples):
        of_sample = np.array([block[i] for block in statistics], dtype=SITE_STATISTICS)
        rows.append(
            {
                "sample": name,
                "pooled_r2": pooled_r2(of_sample),
                "nrc": minor_concordance(of_sample),
                "genotypes": int(of_sample["genotypes"].sum()),
            }
        )
    return rows


def _score(truth: Truth, reader: ImputedReader) -> _Scores:
    n_sites = len(truth.keys)
    baseline = np.zeros(n_sites, dtype=SITE_STATISTICS)
    for start in range(0, n_sites, BLOCK_SITES):
        rows = np.arange(start, min(start + BLOCK_SITES, n_sites))
        baseline[rows] = site_statistics(*_turned(truth, rows, _frequency_dosage(truth, rows)))

    imputed = baseline.copy()  # what is never found keeps the panel's frequency
    missing = np.ones(n_sites, dtype=bool)
    missing_genotypes = 0
    calibration = GenotypeCalibration()
    of_samples: list[np.ndarray] = []
    for block in reader.blocks():
        lacking = np.isnan(block.dosage)
        missing_genotypes += int(lacking.sum())
        dosage = np.where(lacking, _frequency_dosage(truth, block.rows), block.dosage)
        true, dosage = _turned(truth, block.rows, dosage)
        imputed[block.rows] = site_statistics(true, dosage)
        of_samples.append(site_statistics(true.T, dosage.T))
        missing[block.rows] = False
        if block.probability is not None:
            frequency = truth.frequency[block.rows]
            calibration.add(true, turn_probabilities_to_minor(block.probability, frequency, truth.ploidy))
    never_found = np.flatnonzero(missing)
    for start in range(0, len(never_found), BLOCK_SITES):
        rows = never_found[start : start + BLOCK_SITES]
        true, dosage = _turned(truth, rows, _frequency_dosage(truth, rows))
        of_samples.append(site_statistics(true.T, dosage.T))
    used = tuple(sorted(reader.fields_used))
    return _Scores(baseline, imputed, missing, missing_genotypes, calibration, used, of_samples)


def _frequency_dosage(truth: Truth, rows: np.ndarray) -> np.ndarray:
    """Dosages predicted from the panel's frequencies alone, float32 (n_rows, n_samples)."""
    return (truth.frequency[rows, None] * truth.ploidy[None, :]).astype(np.float32)


def _turned(truth: Truth, rows: np.ndarray, dosage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True counts (NaN where unknown) and dosages of the panel's minor allele, each (n_rows, n_samples)."""
    count = truth.count[rows]
    true = np.where(count == MISSING, np.nan, count).astype(np.float32)
    frequency = truth.frequency[rows]
    return turn_to_minor(true, frequency, truth.ploidy)[0], turn_to_minor(dosage, frequency, truth.ploidy)[0]


def _check_bins(bins: Sequence[float]) -> None:
    ordered = all(low < high for low, high in pairwise(bins))
    if len(bins) < 2 or not ordered or bins[0] < 0 or bins[-1] > 0.5:
        raise InputError(
            f"bins must be two or more increasing minor allele frequencies between 0 and 0.5, however: "
            f"{', '.join(f'{edge:g}' for edge in bins) or 'none'}"
        )


def _common_samples(truth: GenotypeFile, imputed: GenotypeFile) -> list[str]:
    """Names that both files have, in the order of the truth."""
    for file in (truth, imputed):
        if not file.samples:
            raise InputError(f"{file.name} has no samples")
    of_imputed = set(imputed.samples)
    common = [name for name in truth.samples if name in of_imputed]
    if not common:
        raise InputError(
            f"no sample is both in the {truth.name} ({_some(truth.samples)}) and in the {imputed.name} "
            f"({_some(imputed.samples)}); samples are matched by name, rename them in one file "
            "(bcftools reheader)"
        )
    return common


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
