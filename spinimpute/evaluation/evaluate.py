"""`evaluate`: agreement of an imputed file with the truth, compared with a guess by allele frequency."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from spinimpute.evaluation.genotype_file import MISSING, GenotypeFile
from spinimpute.evaluation.imputed_file import BLOCK_SITES, ImputedReader
from spinimpute.evaluation.outputs import Outputs
from spinimpute.evaluation.result import BASELINE, IMPUTED, Evaluation
from spinimpute.evaluation.selection import compared_samples
from spinimpute.evaluation.truth import Truth, read_panel, read_truth, read_typed_sites
from spinimpute.genotypes.regions import chosen_regions, some_regions
from spinimpute.genotypes.sites import NoRecord, Region
from spinimpute.panels.opening import path_of
from spinimpute.panels.reference import ReferencePanel
from spinimpute.quality.concordance import Concordance, MinorGenotypes, kind_of
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
from spinimpute.runtime.errors import InputError, refuse_pipe
from spinimpute.runtime.progress import Progress, Shares, begin_stage


def evaluate(
    truth: str | os.PathLike[str],
    imputed: str | os.PathLike[str],
    panel: ReferencePanel | str | os.PathLike[str],
    typed: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    bins: Sequence[float] = DEFAULT_BINS,
    force: bool = False,
    report: str | os.PathLike[str] | None = None,
    regions: Iterable[str | Region] | str | Region | None = None,
    samples: Sequence[str] | None = None,
    concordance: str | os.PathLike[str] | None = None,
    *,
    regions_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score imputed dosages against true genotypes, by minor allele frequency in the panel.

    Scored are the biallelic sites of the truth that are polymorphic in the panel and not typed, matched by
    (chromosome without "chr", position, REF, ALT), for the samples that both files name, whatever their
    order. Dosages are turned to the panel's minor allele first. A site or genotype that the imputed file
    lacks counts as the panel's frequency; a genotype that the truth lacks is not scored. Of chromosome X
    all parts may be in one file: men have one allele between its pseudo-autosomal ends.

    Parameters
    ----------
    truth : path
        VCF or BCF with true genotypes (GT).
    imputed : path
        VCF or BCF with DS, HDS, GP or GT, taken in that order.
    panel : ReferencePanel or path
        The reference panel: an open one, or `.spin`, `.spip`, VCF or BCF.
    typed : path or None
        The target file that was imputed; its sites are not scored. None for sequenced samples, of which all
        sites are.
    out : path or None
        Folder for accuracy.tsv, accuracy.png, samples.tsv and, where the imputed file has GP,
        calibration.tsv.
    bins : sequence of float
        Increasing edges of minor allele frequency, between 0 and 0.5.
    force : bool
        Replace reports that are already there.
    report : path or None
        A page (HTML) to write.
    regions : iterable of str or Region, str, Region or None
        Compare the sites in these only, such as "20:1000000-2000000"; there is a warning of those in which a
        file has no record. They are read through indexes where there are any.
    samples : sequence of str or None
        Compare these samples only; both files must have them.
    concordance : path or None
        What the names of the files of GLIMPSE2_concordance are to begin with, see Notes.
    regions_file : path or None
        A BED file with the regions, in place of `regions`.
    progress : callable, optional
        Called with the fraction that is done.

    Returns
    -------
    Evaluation
        The tables and counts.

    Raises
    ------
    InputError
        A file cannot be read or lacks what is needed, no sample or site is common, one of `samples` or
        `regions` is not there, a sample's ploidy differs between the files, `bins` are not increasing,
        `typed` is None and the imputed file has typed sites, or an output is there and `force` is not given.

    Notes
    -----
    The r2 of a site, as of mean_r2, is Pearson's correlation of dosages and true counts, squared; pooled_r2
    is that of all genotypes of a bin. `bcftools stats` with two files has another pooled one: of calls (GT),
    never dosages, by frequency of ALT, without a turn to the minor allele, in bins that are open on the
    right. It is equal where the imputed file has GT alone and ALT is the minor allele of all sites.

    The files of GLIMPSE2_concordance, PREFIX.error.spl.txt.gz, .error.grp, .error.cal, .rsquare.grp and
    .rsquare.spl, follow its definitions, not those of the tables: a genotype that is not imputed does not
    count; SNPs and indels are apart, other variants left out; the imputed genotype is the likeliest by GP, or
    without GP the rounded dosage; all `bins` are listed, also empty ones. Typed sites do not count, as in the
    tables, and 0 and 1 of a sample with one allele do as homozygous. Without GP there is no .error.cal.
    """
    _check_bins(bins)
    chosen = chosen_regions(regions, None if regions_file is None else Path(regions_file))
    reference = Path(panel) if isinstance(panel, os.PathLike) else panel
    inputs = [truth, imputed, path_of(reference), typed, regions_file]
    outputs = Outputs(
        None if out is None else Path(out), None if report is None else Path(report), concordance, force
    )
    outputs.check(inputs)
    if chosen:  # each is read on its own
        refuse_pipe(Path(truth), "truth file")
        refuse_pipe(Path(imputed), "imputed file")
    truth_file = GenotypeFile(truth, "truth", chosen)
    imputed_file = GenotypeFile(imputed, "imputed", chosen)
    compared = compared_samples(truth_file, imputed_file, samples)
    begin_stage(progress, "reading the panel")
    frequencies = read_panel(reference)
    typed_keys = set() if typed is None else read_typed_sites(typed, frequencies)
    try:
        shares = Shares(progress, [1, 1])
        begin_stage(progress, "reading the truth")
        known = read_truth(truth_file, compared, frequencies, typed_keys, shares.of(0))
        tally = None if concordance is None else Concordance(len(compared), bins)
        begin_stage(progress, "comparing")
        reader = ImputedReader(imputed_file, compared, known, refuse_typed=typed is None)
        scores = _score(known, reader, tally, shares.of(1))
    except NoRecord as error:
        raise InputError(
            "content",
            f"{error}. Panel: {frequencies.where}. Give regions in which truth and imputed file have records",
        ) from error
    _warn_of_empty(truth_file, imputed_file)
    if scores.missing.all():
        raise InputError(
            "mismatch",
            f"none of the {len(known.keys):,} sites to score is in the {imputed_file.name}. "
            f"Truth: {truth_file.describe_spans()}. Imputed: {imputed_file.describe_spans()}. "
            "Both must be of the same region and genome build, with the same REF and ALT",
        )

    minor_frequency = np.minimum(known.frequency, 1 - known.frequency)
    everywhere = np.ones(len(known.keys), dtype=bool)  # the baseline imputes no site
    rows = frequency_rows(BASELINE, scores.baseline, minor_frequency, everywhere, bins)
    rows += frequency_rows(IMPUTED, scores.imputed, minor_frequency, scores.missing, bins)
    calibration = scores.calibration.rows()
    common = set(compared) if samples is None else {*truth_file.samples, *imputed_file.samples}
    panel_samples = set(frequencies.samples)
    result = Evaluation(
        by_frequency=pd.DataFrame(rows),
        by_sample=pd.DataFrame(_sample_rows(compared, scores.of_samples)),
        calibration=pd.DataFrame(calibration) if calibration else None,
        scored_sites=len(known.keys),
        missing_sites=int(scores.missing.sum()),
        missing_genotypes=scores.missing_genotypes,
        unknown_genotypes=int((known.count == MISSING).sum()),
        samples=compared,
        truth_only_samples=[name for name in truth_file.samples if name not in common],
        imputed_only_samples=[name for name in imputed_file.samples if name not in common],
        samples_in_panel=[name for name in compared if name in panel_samples],
        left_out=known.left_out,
        fields_used=scores.fields_used,
        regions=[str(region) for region in chosen],
    )
    outputs.write(result, tally, Path(imputed), Path(truth))
    return result


def _warn_of_empty(truth: GenotypeFile, imputed: GenotypeFile) -> None:
    """Warn of regions in which a file has no record."""
    if truth.empty:
        warnings.warn(
            f"{truth.name}: no record in {some_regions(truth.empty)}: nothing is compared there", stacklevel=3
        )
    lacking = [region for region in imputed.empty if region not in truth.empty]
    if lacking:
        warnings.warn(
            f"{imputed.name}: no record in {some_regions(lacking)}: sites of the truth there count as the "
            "panel's frequency",
            stacklevel=3,
        )


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


def _score(
    truth: Truth, reader: ImputedReader, concordance: Concordance | None, progress: Progress | None
) -> _Scores:
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
        lacking = np.isnan(block.dosage) & (truth.count[block.rows] != MISSING)
        missing_genotypes += int(lacking.sum())
        dosage = np.where(lacking, _frequency_dosage(truth, block.rows), block.dosage)
        true, dosage = _turned(truth, block.rows, dosage)
        imputed[block.rows] = site_statistics(true, dosage)
        of_samples.append(site_statistics(true.T, dosage.T))
        missing[block.rows] = False
        if progress is not None:
            progress(1 - np.count_nonzero(missing) / n_sites)
        frequency, ploidy = truth.frequency[block.rows], truth.ploidy(block.rows)
        probability = None
        if block.probability is not None:
            probability = turn_probabilities_to_minor(block.probability, frequency, ploidy)
            calibration.add(true, probability)
        if concordance is not None:
            imputed_dosage = np.where(np.isnan(block.dosage), np.nan, dosage)
            kind = np.array([kind_of(*truth.keys[row][2:]) for row in block.rows])
            concordance.add(
                MinorGenotypes(true, imputed_dosage, probability, ploidy == 1),
                np.minimum(frequency, 1 - frequency),
                kind,
            )
    never_found = np.flatnonzero(missing)
    for start in range(0, len(never_found), BLOCK_SITES):
        rows = never_found[start : start + BLOCK_SITES]
        true, dosage = _turned(truth, rows, _frequency_dosage(truth, rows))
        of_samples.append(site_statistics(true.T, dosage.T))
    used = tuple(sorted(reader.fields_used))
    return _Scores(baseline, imputed, missing, missing_genotypes, calibration, used, of_samples)


def _frequency_dosage(truth: Truth, rows: np.ndarray) -> np.ndarray:
    """Dosages predicted from the panel's frequencies alone, float32 (n_rows, n_samples)."""
    return (truth.frequency[rows, None] * truth.ploidy(rows)).astype(np.float32)


def _turned(truth: Truth, rows: np.ndarray, dosage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True counts (NaN where unknown) and dosages of the panel's minor allele, each (n_rows, n_samples)."""
    count = truth.count[rows]
    true = np.where(count == MISSING, np.nan, count).astype(np.float32)
    frequency, ploidy = truth.frequency[rows], truth.ploidy(rows)
    return turn_to_minor(true, frequency, ploidy)[0], turn_to_minor(dosage, frequency, ploidy)[0]


def _check_bins(bins: Sequence[float]) -> None:
    ordered = all(low < high for low, high in pairwise(bins))
    if len(bins) < 2 or not ordered or bins[0] < 0 or bins[-1] > 0.5:
        raise InputError(
            "content",
            f"bins must be two or more increasing minor allele frequencies between 0 and 0.5, however: "
            f"{', '.join(f'{edge:g}' for edge in bins) or 'none'}",
        )
