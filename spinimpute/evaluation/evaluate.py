"""`evaluate`: compare imputed with true genotypes.

The baseline, for comparison, uses the panel's allele frequencies as dosages.
"""

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.evaluation.files import EvaluationFiles
from spinimpute.evaluation.genotype_file import MISSING, GenotypeFile, describe_ranges
from spinimpute.evaluation.imputed_file import BLOCK_SITES, ImputedReader
from spinimpute.evaluation.result import BASELINE, IMPUTED, Evaluation, check_bins
from spinimpute.evaluation.truth import Truth, read_panel, read_truth, read_typed_sites
from spinimpute.evaluation.whole_genotypes import WholeGenotypes
from spinimpute.genotypes.regions import parse_regions, summarize_regions
from spinimpute.genotypes.sites import NoRecord, Region
from spinimpute.panels.opening import get_panel_paths
from spinimpute.panels.reference import ReferencePanel
from spinimpute.quality.concordance import Concordance, MinorGenotypes, variant_kind
from spinimpute.quality.metrics import (
    DEFAULT_BINS,
    SITE_STATISTICS,
    GenotypeCalibration,
    count_good_sites,
    frequency_rows,
    minor_allele_dosage,
    minor_allele_probabilities,
    minor_concordance,
    pooled_r2,
    site_statistics,
)
from spinimpute.runtime.errors import InputError, argument, refuse_pipe
from spinimpute.runtime.output_files import is_same_file
from spinimpute.runtime.progress import Progress, begin_stage, split_progress
from spinimpute.vcf.reader import check_samples


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

    Scored sites are the biallelic sites of the truth that are polymorphic in the panel and not typed. Sites
    are matched by chromosome (without "chr"), position, REF and ALT; samples are matched by name. Dosages are
    counted in copies of the panel's minor allele. Sites or genotypes that are missing in the imputed file are
    scored with the panel's allele frequency as the dosage. Genotypes that are missing in the truth are not
    scored. One file may contain all of chromosome X; males have one allele between its pseudo-autosomal
    regions.

    Parameters
    ----------
    truth : path
        VCF or BCF with true genotypes (GT).
    imputed : path
        VCF or BCF with DS, HDS, GP or GT; the first of these that a record has is used.
    panel : ReferencePanel or path
        An open reference panel, or a `.spin`, `.spip`, VCF, BCF or M3VCF file.
    typed : path or None
        The target file that was imputed; its sites are not scored. None for sequenced samples, for which all
        sites are scored.
    out : path or None
        Folder for accuracy.tsv, samples.tsv, accuracy.png (if Matplotlib is installed) and, if the imputed
        file has GP, calibration.tsv. Two more tables are written if the imputed file has multi-allelic
        records: multiallelic.tsv and, with GP, multiallelic_calibration.tsv.
    bins : sequence of float
        Increasing bounds of the minor allele frequency bins, between 0 and 0.5.
    force : bool
        Replace existing outputs.
    report : path or None
        Write a report page (HTML).
    regions : iterable of str or Region, str, Region or None
        Compare only sites in these regions, such as "20:1000000-2000000". Indexes are used where they exist.
        A region in which a file has no record gives a warning.
    samples : sequence of str or None
        Compare only these samples; both files must have them.
    concordance : path or None
        Write the files of GLIMPSE2_concordance with this prefix, see Notes.
    regions_file : path or None
        A BED file with the regions, in place of `regions`.
    progress : callable, optional
        Called with the completed fraction.

    Returns
    -------
    Evaluation
        Tables, as lists of rows, and counts.

    Raises
    ------
    InputError
        A file cannot be read or lacks a required field, the files share no sample or site, one of `samples`
        or `regions` does not exist, a sample's ploidy differs between the files, `bins` are not increasing,
        `typed` is None and the imputed file has typed sites, an output exists and `force` is False, or
        `report` is given and Matplotlib is not installed.

    Notes
    -----
    mean_r2 is the mean over sites of Pearson's squared correlation of dosages and true counts. pooled_r2 is
    the squared correlation over all genotypes of a bin. `bcftools stats` with two files computes another
    pooled r2: it compares calls (GT) instead of dosages, counts ALT instead of minor alleles, groups sites by
    ALT frequency, and its bins include the lower edge instead of the upper.

    ALT alleles of a multi-allelic record are compared one by one. The whole genotypes of a record are
    compared, too, if the record has several ALT alleles in the panel and in the imputed file, and none of
    them is typed. The imputed genotype is the most likely one by GP, or GT without GP. Alleles that the panel
    lacks are wrong.

    The files of GLIMPSE2_concordance are PREFIX.error.spl.txt.gz, .error.grp, .error.cal, .rsquare.grp and
    .rsquare.spl. They follow the definitions of that program: genotypes that are not imputed do not count;
    SNPs and indels are separate, and other variants are skipped; the imputed genotype is the most likely one
    by GP, or the rounded dosage without GP; all `bins` are listed, including empty ones; haploid 0 and 1
    count as homozygous. As in the tables, typed sites do not count. Without GP there is no .error.cal.
    """
    check_bins(bins)
    selected_regions = parse_regions(regions, None if regions_file is None else Path(regions_file))
    reference = Path(panel) if isinstance(panel, os.PathLike) else panel
    inputs = [truth, imputed, *get_panel_paths(reference), typed, regions_file]
    files = EvaluationFiles(
        None if out is None else Path(out), None if report is None else Path(report), concordance, force
    )
    files.check(inputs)
    _check_inputs_differ(truth, imputed, typed)
    if selected_regions:  # the file is opened again for each region
        refuse_pipe(Path(truth), "truth file")
        refuse_pipe(Path(imputed), "imputed file")
    truth_file = GenotypeFile(truth, "truth", selected_regions)
    imputed_file = GenotypeFile(imputed, "imputed", selected_regions)
    if set(imputed_file.fields()) == {"GT"} < set(truth_file.fields()):
        warnings.warn(
            f"{truth_file.name} has dosages or probabilities, and {imputed_file.name} has only GT. Are the "
            "two files exchanged?",
            stacklevel=2,
        )
    compared = _compared_samples(truth_file, imputed_file, samples)
    begin_stage(progress, "reading the panel")
    frequencies = read_panel(reference)
    typed_keys = set() if typed is None else read_typed_sites(typed, frequencies)
    try:
        shares = split_progress(progress, [1, 1])
        begin_stage(progress, "reading the truth")
        true_genotypes = read_truth(truth_file, compared, frequencies, typed_keys, shares[0])
        tally = None if concordance is None else Concordance(len(compared), bins)
        begin_stage(progress, "comparing")
        whole_genotypes = WholeGenotypes(
            true_genotypes.keys, true_genotypes.count, frequencies.frequency, true_genotypes.left_out_alleles
        )
        reader = ImputedReader(
            imputed_file, compared, true_genotypes, whole_genotypes, refuse_typed=typed is None
        )
        scores = _score(true_genotypes, reader, tally, shares[1])
    except NoRecord as error:
        raise InputError(
            "content",
            f"{error}. Panel: {frequencies.where}. Give regions in which the truth and the imputed file have "
            "records.",
        ) from error
    _warn_of_empty_regions(truth_file, imputed_file)
    if scores.missing.all():
        raise InputError(
            "mismatch",
            f"{imputed_file.name}: none of the {len(true_genotypes.keys):,} sites to score is in the file. "
            f"Truth: {describe_ranges(truth_file.ranges)}. Imputed: {describe_ranges(imputed_file.ranges)}. "
            "Both files must be of the same region and genome build, with the same REF and ALT.",
        )

    minor_frequency = np.minimum(true_genotypes.frequency, 1 - true_genotypes.frequency)
    all_missing = np.ones(len(true_genotypes.keys), dtype=bool)  # the baseline imputes no site
    rows = frequency_rows(BASELINE, scores.baseline, minor_frequency, all_missing, bins)
    rows += frequency_rows(IMPUTED, scores.imputed, minor_frequency, scores.missing, bins)
    common = set(compared) if samples is None else {*truth_file.samples, *imputed_file.samples}
    panel_samples = set(frequencies.samples)
    result = Evaluation(
        by_frequency=rows,
        good_sites=count_good_sites(scores.imputed, minor_frequency),
        by_sample=_sample_rows(compared, scores.by_sample),
        calibration=scores.calibration.rows() or None,
        multiallelic=whole_genotypes.frequency_rows(scores.imputed, minor_frequency, bins) or None,
        multiallelic_calibration=whole_genotypes.calibration_rows() or None,
        scored_sites=len(true_genotypes.keys),
        missing_sites=int(scores.missing.sum()),
        missing_genotypes=scores.missing_genotypes,
        unknown_genotypes=int((true_genotypes.count == MISSING).sum()),
        samples=compared,
        truth_only_samples=[name for name in truth_file.samples if name not in common],
        imputed_only_samples=[name for name in imputed_file.samples if name not in common],
        samples_in_panel=[name for name in compared if name in panel_samples],
        left_out=true_genotypes.left_out,
        fields_used=scores.fields_used,
        regions=[str(region) for region in selected_regions],
    )
    files.write(result, tally, Path(imputed), Path(truth))
    return result


def _compared_samples(
    truth: GenotypeFile, imputed: GenotypeFile, selected: Sequence[str] | None
) -> list[str]:
    """Return the selected samples, or all samples that are in both files, in the order of the truth."""
    for file in (truth, imputed):
        if not file.samples:
            raise InputError("content", f"{file.name} has no samples")
        if selected is not None:
            check_samples(file, selected)
    wanted = set(imputed.samples if selected is None else selected)
    common = [name for name in truth.samples if name in wanted]
    if not common:
        raise InputError(
            "mismatch",
            f"no sample is in both the {truth.name} ({_first_names(truth.samples)}) and the {imputed.name} "
            f"({_first_names(imputed.samples)}). Samples are matched by name: rename them in one file "
            "(bcftools reheader).",
        )
    return common


def _first_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _warn_of_empty_regions(truth: GenotypeFile, imputed: GenotypeFile) -> None:
    """Warn about regions in which a file has no record."""
    if truth.empty:
        warnings.warn(
            f"{truth.name}: no record in {summarize_regions(truth.empty)}. Nothing is compared there",
            stacklevel=3,
        )
    empty = [region for region in imputed.empty if region not in truth.empty]
    if empty:
        warnings.warn(
            f"{imputed.name}: no record in {summarize_regions(empty)}. Sites of the truth there are scored "
            "with the panel's frequency",
            stacklevel=3,
        )


@dataclass(frozen=True)
class _Scores:
    baseline: np.ndarray  # SITE_STATISTICS (n_sites,) with the panel's frequencies as dosages
    imputed: np.ndarray  # SITE_STATISTICS (n_sites,) of the imputed file
    missing: np.ndarray  # bool (n_sites,): whether the imputed file lacks the site
    missing_genotypes: int  # their number, at sites that the imputed file has
    calibration: GenotypeCalibration
    fields_used: tuple[str, ...]
    by_sample: list[np.ndarray]  # for each block of sites, SITE_STATISTICS (n_samples,) over its sites


def _sample_rows(samples: Sequence[str], statistics: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(samples):
        sample = np.array([block[i] for block in statistics], dtype=SITE_STATISTICS)
        rows.append(
            {
                "sample": name,
                "pooled_r2": pooled_r2(sample),
                "nrc": minor_concordance(sample),
                "genotypes": int(sample["genotypes"].sum()),
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
        baseline[rows] = site_statistics(*_count_minor_alleles(truth, rows, _baseline_dosage(truth, rows)))

    imputed = baseline.copy()  # sites that are missing in the imputed file keep the baseline's statistics
    missing = np.ones(n_sites, dtype=bool)
    missing_genotypes = 0
    calibration = GenotypeCalibration()
    by_sample: list[np.ndarray] = []
    for block in reader.blocks():
        is_missing = np.isnan(block.dosage) & (truth.count[block.rows] != MISSING)
        missing_genotypes += int(is_missing.sum())
        dosage = np.where(is_missing, _baseline_dosage(truth, block.rows), block.dosage)
        true, dosage = _count_minor_alleles(truth, block.rows, dosage)
        imputed[block.rows] = site_statistics(true, dosage)
        by_sample.append(site_statistics(true.T, dosage.T))
        missing[block.rows] = False
        if progress is not None:
            progress(1 - np.count_nonzero(missing) / n_sites)
        frequency, ploidy = truth.frequency[block.rows], truth.ploidy(block.rows)
        probability = None
        if block.probability is not None:
            probability = minor_allele_probabilities(block.probability, frequency, ploidy)
            calibration.add(true, probability)
        if concordance is not None:
            imputed_dosage = np.where(np.isnan(block.dosage), np.nan, dosage)
            kind = np.array([variant_kind(*truth.keys[row][2:]) for row in block.rows])
            concordance.add(
                MinorGenotypes(true, imputed_dosage, probability, ploidy == 1),
                np.minimum(frequency, 1 - frequency),
                kind,
            )
    missing_rows = np.flatnonzero(missing)
    for start in range(0, len(missing_rows), BLOCK_SITES):
        rows = missing_rows[start : start + BLOCK_SITES]
        true, dosage = _count_minor_alleles(truth, rows, _baseline_dosage(truth, rows))
        by_sample.append(site_statistics(true.T, dosage.T))
    used = tuple(sorted(reader.fields_used))
    return _Scores(baseline, imputed, missing, missing_genotypes, calibration, used, by_sample)


def _baseline_dosage(truth: Truth, rows: np.ndarray) -> np.ndarray:
    """Return the dosages that the panel's frequencies predict, float32 (n_rows, n_samples)."""
    return (truth.frequency[rows, None] * truth.ploidy(rows)).astype(np.float32)


def _count_minor_alleles(truth: Truth, rows: np.ndarray, dosage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return true counts (NaN if unknown) and dosages of the minor allele, each (n_rows, n_samples)."""
    count = truth.count[rows]
    true = np.where(count == MISSING, np.nan, count).astype(np.float32)
    frequency, ploidy = truth.frequency[rows], truth.ploidy(rows)
    return minor_allele_dosage(true, frequency, ploidy)[0], minor_allele_dosage(dosage, frequency, ploidy)[0]


def _check_inputs_differ(truth: object, imputed: object, typed: object) -> None:
    """Raise InputError if the imputed file is also the truth or the target."""
    for other, role in ((truth, "truth"), (typed, "typed")):
        if is_same_file(imputed, other):
            raise InputError(
                "arguments",
                f"{imputed} is given as {argument('imputed')} and as {argument(role)}. Give two files",
            )
