"""Truth for evaluation: panel frequencies, typed sites and true genotypes.

Truth is kept as int8, ploidy as bits, for the sites that are scored alone: 1.1 bytes for each genotype.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.evaluation.genotype_file import MISSING, GenotypeFile, SiteKey, describe_spans
from spinimpute.genotypes.sites import plain_chromosome
from spinimpute.genotypes.x_chromosome import is_x
from spinimpute.panels.opening import is_panel_file, open_panel_file
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, call
from spinimpute.runtime.progress import Progress
from spinimpute.vcf.variant_file import Record

_TOLD_AFTER = 1_000  # records: how far it is


@dataclass(frozen=True)
class PanelFrequencies:
    """ALT frequency of each site of the panel that is not (split from) a multi-allelic one.

    Attributes
    ----------
    frequency : dict of SiteKey to float
        ALT frequency of each site.
    samples : list of str
        Names of the panel's samples.
    where : str
        Chromosomes and ranges, for messages.
    """

    frequency: dict[SiteKey, float]
    samples: list[str]
    where: str

    def chromosomes(self) -> set[str]:
        """Plain names of its chromosomes."""
        return {key[0] for key in self.frequency}


def read_panel(panel: ReferencePanel | str | Path) -> PanelFrequencies:
    """Allele frequencies of a panel.

    Parameters
    ----------
    panel : ReferencePanel, str or Path
        An open panel, or a file: `.spin`, `.spip`, or a VCF or BCF, whose genotypes are counted.

    Returns
    -------
    PanelFrequencies
        Frequencies of its biallelic sites.

    Raises
    ------
    InputError
        The file does not exist, is neither, has no genotypes, or is damaged.
    """
    if not isinstance(panel, str | Path):
        return _frequencies_of([panel])
    path = Path(panel)
    if path.suffix == ".spin" or is_panel_file(path):
        with open_panel_file(path) as panels:
            return _frequencies_of(panels)
    file = GenotypeFile(path, "panel")
    if not file.samples or "GT" not in file.fields():
        raise InputError(
            "content", f"{file.name} has no genotypes (GT); give the panel that the samples were imputed from"
        )
    frequency: dict[SiteKey, float] = {}
    for record in file.records():
        keys = file.site_keys(record)
        if len(keys) != 1 or "GT" not in file.formats(record):
            continue
        alleles = file.genotypes(record)[:, :-1]
        known = np.count_nonzero(alleles >= 0)
        if known:
            frequency.setdefault(keys[0], np.count_nonzero(alleles > 0) / known)
    return PanelFrequencies(frequency, file.samples, file.describe_spans())


def _frequencies_of(panels: Sequence[ReferencePanel]) -> PanelFrequencies:
    """Frequencies of all parts of a chromosome."""
    chrom = plain_chromosome(panels[0].chrom)
    frequency: dict[SiteKey, float] = {}
    for panel in panels:
        counts = np.asarray(panel.allele_count) / panel.n_haplotypes
        for (position, ref, alt), f, of_many in zip(
            panel.sites.keys(), counts.tolist(), panel.multiallelic.tolist(), strict=True
        ):
            if not of_many:
                frequency.setdefault((chrom, int(position), ref.upper(), alt.upper()), f)
    n_sites = sum(panel.n_sites for panel in panels)
    spans = {chrom: (int(panels[0].position[0]), int(panels[-1].position[-1]), n_sites)} if n_sites else {}
    return PanelFrequencies(frequency, list(panels[0].samples), describe_spans(spans))


def read_typed_sites(path: str | os.PathLike[str], panel: PanelFrequencies) -> set[SiteKey]:
    """Keys of the typed sites; warns if none is in the panel.

    Parameters
    ----------
    path : path
        The target file that was imputed.
    panel : PanelFrequencies
        What it was imputed from.

    Returns
    -------
    set of SiteKey
        A key for every ALT of every record.

    Raises
    ------
    InputError
        The file does not exist, is no VCF or BCF, or is damaged.
    """
    file = GenotypeFile(path, "typed")
    file.match_names(panel.chromosomes())
    typed = {key for record in file.records() for key in file.site_keys(record)}
    if typed.isdisjoint(panel.frequency):
        what = (
            f"none of its {len(typed):,} sites is in the panel ({file.describe_spans()}; the panel: "
            f"{panel.where})"
            if typed
            else "it holds no site"
        )
        warnings.warn(
            f"{file.name}: {what}: no site is left out as typed; give the target that was imputed",
            stacklevel=3,
        )
    return typed


class _PloidyChanges:
    """Refuses samples whose ploidy changes along a chromosome, but for men along X."""

    def __init__(self, file: GenotypeFile, samples: Sequence[str]) -> None:
        self._file, self._samples = file, samples
        self._chrom = ""
        self._last = np.zeros(len(samples), dtype=np.int8)  # 0: no genotype of the sample was seen
        self._left_haploid = np.zeros(len(samples), dtype=bool)

    def check(self, record: Record, chrom: str, ploidy: np.ndarray) -> None:
        """Raise InputError if the ploidy of a sample, int8 (n_samples,), 0 for unknown, may not follow."""
        if chrom != self._chrom:
            self._chrom = chrom
            self._last[:] = 0
            self._left_haploid[:] = False
        if np.array_equal(ploidy, self._last):
            return
        changed = (ploidy > 0) & (self._last > 0) & (ploidy != self._last)
        if changed.any():
            clash = np.flatnonzero(changed & self._left_haploid if is_x(chrom) else changed)
            if len(clash):
                i = int(clash[0])
                before = f"{self._last[i]} before" + (" and 1 before that" if is_x(chrom) else "")
                raise InputError(
                    "content",
                    f"{self._file.name}: sample {self._samples[i]} has {n_alleles(int(ploidy[i]))} at "
                    f"{record.CHROM}:{record.POS}, {before}; {what_ploidy(chrom)}",
                )
            self._left_haploid |= changed & (ploidy == 2)
        self._last = np.where(ploidy > 0, ploidy, self._last)


def n_alleles(number: int) -> str:
    """A number of alleles, for messages."""
    return "1 allele" if number == 1 else f"{number} alleles"


def what_ploidy(chrom: str) -> str:
    """How many alleles samples must have on a chromosome, for messages."""
    if is_x(chrom):
        return (
            "on X men must have one allele between the pseudo-autosomal ends, in both files; "
            f"{call('convert')} writes a truth so"
        )
    return "a sample must have the same number of alleles at all sites of a chromosome, in both files"


@dataclass(frozen=True)
class Truth:
    """True genotypes of the sites that are scored, in the order of the truth file.

    Attributes
    ----------
    keys : list of SiteKey
        The sites.
    frequency : float64 (n_sites,)
        ALT frequency in the panel.
    count : int8 (n_sites, n_samples)
        ALT count, -1 where unknown.
    haploid : uint8 (n_sites, ceil(n_samples / 8))
        Bits as of `numpy.packbits`: the genotype is known and has one allele.
    left_out : dict of str to int
        Reason -> sites of the truth that are not scored.
    """

    keys: list[SiteKey]
    frequency: np.ndarray
    count: np.ndarray
    haploid: np.ndarray
    left_out: dict[str, int]

    def ploidy(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """How many alleles the known genotypes of some sites have.

        Parameters
        ----------
        rows : int64 (n,) or slice
            Indices into `keys`.

        Returns
        -------
        int8 (n, n_samples)
            1 or 2; 2 where the genotype is unknown.
        """
        bits = np.unpackbits(self.haploid[rows], axis=1, count=self.count.shape[1])
        return np.int8(2) - bits.astype(np.int8)


def read_truth(
    file: GenotypeFile,
    samples: Sequence[str],
    panel: PanelFrequencies,
    typed: Collection[SiteKey],
    progress: Progress | None = None,
) -> Truth:
    """True genotypes at the untyped sites that are polymorphic in the panel.

    Parameters
    ----------
    file : GenotypeFile
        The truth, just opened.
    samples : sequence of str
        Names of the samples to read, in the order wanted.
    panel : PanelFrequencies
        Frequencies; a site that is not in it is not scored.
    typed : collection of SiteKey
        Keys that are not scored.
    progress : callable, optional
        Called with the number of records that were read as a fraction of the panel's sites.

    Returns
    -------
    Truth
        The sites to score and their genotypes.

    Raises
    ------
    InputError
        The file has no GT, no site is left to score, or a sample's ploidy changes other than that of a man
        does along X, who has one allele in one stretch of it.
    """
    file.match_names(panel.chromosomes())
    if "GT" not in file.fields():
        raise InputError(
            "content", f"{file.name} has no genotypes (GT); the truth must hold called genotypes"
        )
    columns = np.array([file.samples.index(name) for name in samples], dtype=np.int64)
    left_out: Counter[str] = Counter()
    counts: dict[SiteKey, np.ndarray] = {}
    haploid: list[np.ndarray] = []
    changes = _PloidyChanges(file, samples)
    for number, record in enumerate(file.records()):
        if progress is not None and number % _TOLD_AFTER == 0:
            progress(min(number / max(len(panel.frequency), 1), 1.0))
        keys = file.site_keys(record)
        if len(keys) != 1:
            left_out["multi-allelic in the truth" if keys else "without ALT in the truth"] += 1
            continue
        (key,) = keys
        frequency = panel.frequency.get(key)
        if frequency is None:
            left_out["not in the panel"] += 1
        elif key in typed:
            left_out["typed"] += 1
        elif not 0 < frequency < 1:
            left_out["monomorphic in the panel"] += 1
        elif key in counts:
            left_out["repeated in the truth"] += 1
        elif "GT" not in file.formats(record):
            left_out["without GT in the truth"] += 1
        else:
            count, ploidy = file.allele_counts(record, columns)
            known = count != MISSING
            changes.check(record, key[0], np.where(known, ploidy, 0))
            counts[key] = count
            haploid.append(np.packbits(known & (ploidy == 1)))
    if not counts:
        raise InputError(
            "mismatch",
            f"no site to score: of {sum(left_out.values()):,} sites of the {file.name}, "
            + ", ".join(f"{n:,} are {reason}" for reason, n in left_out.items())
            + f". Truth: {file.describe_spans()}. Panel: {panel.where}. "
            "The truth must hold untyped sites of the panel, on the same genome build",
        )
    keys = list(counts)
    return Truth(
        keys=keys,
        frequency=np.array([panel.frequency[key] for key in keys]),
        count=np.stack(list(counts.values())),
        haploid=np.stack(haploid),
        left_out=dict(left_out),
    )
