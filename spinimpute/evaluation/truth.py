"""Reading what `evaluate` compares with: panel frequencies, typed sites and true genotypes.

True genotypes of the scored sites are kept in memory. They take 1.1 bytes each: one for the ALT count and a
bit for the ploidy.
"""

import os
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.evaluation.genotype_file import MISSING, GenotypeFile, SiteKey, describe_ranges
from spinimpute.evaluation.whole_genotypes import LeftOutAlleles, multiallelic_records
from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import plain_chromosome
from spinimpute.panels.formats.detection import is_m3vcf
from spinimpute.panels.opening import is_panel_file, open_panel_file, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, call
from spinimpute.runtime.progress import Progress
from spinimpute.vcf.variant_file import Record

_RECORDS_PER_PROGRESS = 1_000


@dataclass(frozen=True)
class PanelFrequencies:
    """ALT frequencies of the sites of a panel."""

    frequency: dict[SiteKey, float]
    samples: list[str]  # names of the panel's samples
    where: str  # range of the sites' positions, for messages

    def chromosomes(self) -> set[str]:
        """Return the plain names of the chromosomes."""
        return {key[0] for key in self.frequency}


def read_panel(panel: ReferencePanel | str | Path) -> PanelFrequencies:
    """Return the frequencies of a panel: an open panel, or a `.spin`, `.spip`, VCF, BCF or M3VCF file."""
    if not isinstance(panel, str | Path):
        return _panel_frequencies([panel])
    path = Path(panel)
    if path.suffix == ".spin" or is_panel_file(path):
        with open_panel_file(path) as panels:
            return _panel_frequencies(panels)
    if is_m3vcf(path):
        with open_reference(path, GeneticMap.constant()) as panels:
            return _panel_frequencies(panels)
    file = GenotypeFile(path, "panel")
    if not file.samples or "GT" not in file.fields():
        raise InputError(
            "content",
            f"{file.name} has no genotypes (GT). Give the panel from which the samples were imputed.",
        )
    frequency: dict[SiteKey, float] = {}
    for record in file.records():
        if "GT" not in file.formats(record):
            continue
        alleles = file.genotypes(record)[:, :-1]
        known = np.count_nonzero(alleles >= 0)
        for number, key in enumerate(file.site_keys(record) if known else [], start=1):
            frequency.setdefault(key, np.count_nonzero(alleles == number) / known)
    return PanelFrequencies(frequency, file.samples, describe_ranges(file.ranges))


def _panel_frequencies(panels: Sequence[ReferencePanel]) -> PanelFrequencies:
    """Return the frequencies in the panels of one chromosome. Only X has several panels."""
    chrom = plain_chromosome(panels[0].chrom)
    frequency: dict[SiteKey, float] = {}
    for panel in panels:
        frequencies = np.asarray(panel.allele_count) / panel.n_haplotypes
        for key, f in zip(panel.sites.keys(), frequencies.tolist(), strict=True):
            frequency.setdefault((chrom, *key), f)
    n_sites = sum(panel.n_sites for panel in panels)
    ranges = {chrom: (int(panels[0].position[0]), int(panels[-1].position[-1]), n_sites)} if n_sites else {}
    return PanelFrequencies(frequency, list(panels[0].samples), describe_ranges(ranges))


def read_typed_sites(path: str | os.PathLike[str], panel: PanelFrequencies) -> set[SiteKey]:
    """Return the site keys of the target that was imputed. Warn if none of them is in the panel."""
    file = GenotypeFile(path, "typed")
    file.match_names(panel.chromosomes())
    typed = {key for record in file.records() for key in file.site_keys(record)}
    if typed.isdisjoint(panel.frequency):
        problem = (
            f"none of its {len(typed):,} sites is in the panel ({describe_ranges(file.ranges)}; the panel: "
            f"{panel.where})"
            if typed
            else "the file has no sites"
        )
        warnings.warn(
            f"{file.name}: {problem}. No site is excluded as typed. Give the target that was imputed.",
            stacklevel=3,
        )
    return typed


class _PloidyCheck:
    """Check that a sample's ploidy does not change along a chromosome. If it does, `add` raises InputError.

    On X, males are diploid in PAR1, haploid after it, and diploid again in PAR2. A change from 2 to 1 and
    back to 2 is therefore accepted, but no further change.
    """

    def __init__(self, file: GenotypeFile, samples: Sequence[str]) -> None:
        self._file, self._samples = file, samples
        self._chrom = ""
        self._last_ploidy = np.zeros(len(samples), dtype=np.int8)  # 0: no genotype of the sample yet
        self._became_diploid = np.zeros(len(samples), dtype=bool)

    def add(self, record: Record, chrom: str, ploidy: np.ndarray) -> None:
        """Check the ploidies at the next record, int8 (n_samples,); 0 for unknown genotypes."""
        if chrom != self._chrom:
            self._chrom = chrom
            self._last_ploidy[:] = 0
            self._became_diploid[:] = False
        if np.array_equal(ploidy, self._last_ploidy):
            return
        changed = (ploidy > 0) & (self._last_ploidy > 0) & (ploidy != self._last_ploidy)
        if changed.any():
            clash = np.flatnonzero(changed & self._became_diploid if is_x(chrom) else changed)
            if len(clash):
                i = int(clash[0])
                before = f"{self._last_ploidy[i]} before" + (" and 1 before that" if is_x(chrom) else "")
                raise InputError(
                    "content",
                    f"{self._file.name}: sample {self._samples[i]} has {n_alleles(int(ploidy[i]))} at "
                    f"{record.CHROM}:{record.POS}, {before}. {ploidy_rule(chrom)}",
                )
            self._became_diploid |= changed & (ploidy == 2)
        self._last_ploidy = np.where(ploidy > 0, ploidy, self._last_ploidy)


def n_alleles(number: int) -> str:
    """Return a number of alleles as text, for messages."""
    return "1 allele" if number == 1 else f"{number} alleles"


def ploidy_rule(chrom: str) -> str:
    """Return a sentence about the number of alleles that samples must have on a chromosome."""
    if is_x(chrom):
        return (
            "In both files, males must have one allele on X between the pseudo-autosomal regions. "
            f"{call('convert')} writes such a truth file."
        )
    return "In both files, a sample must have the same number of alleles at all sites of a chromosome."


@dataclass(frozen=True)
class Truth:
    """True genotypes of the scored sites, in the order of the truth file."""

    keys: list[SiteKey]
    frequency: np.ndarray  # float64 (n_sites,): ALT frequency in the panel
    count: np.ndarray  # int8 (n_sites, n_samples): ALT count, MISSING where unknown
    # uint8 (n_sites, ceil(n_samples / 8)), from `numpy.packbits`: whether the genotype is known and haploid
    haploid: np.ndarray
    left_out: dict[str, int]  # reason -> number of sites of the truth that are not scored
    left_out_alleles: LeftOutAlleles  # those at positions where the panel has several ALT alleles

    def ploidy(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the ploidy of genotypes at some sites, int8 (n, n_samples); 2 if a genotype is unknown."""
        bits = np.unpackbits(self.haploid[rows], axis=1, count=self.count.shape[1])
        return np.int8(2) - bits.astype(np.int8)


def read_truth(
    file: GenotypeFile,
    samples: Sequence[str],
    panel: PanelFrequencies,
    typed: Collection[SiteKey],
    progress: Progress | None = None,
) -> Truth:
    """Read the true genotypes of `samples` at the untyped sites that are polymorphic in the panel.

    Raises InputError if the file has no GT, if no site can be scored, or if a sample's ploidy changes along a
    chromosome (see `_PloidyCheck`).
    """
    file.match_names(panel.chromosomes())
    if "GT" not in file.fields():
        raise InputError("content", f"{file.name} has no genotypes (GT). Give a file with called genotypes.")
    columns = np.array([file.samples.index(name) for name in samples], dtype=np.int64)
    left_out: Counter[str] = Counter()
    left_out_alleles = LeftOutAlleles(multiallelic_records(panel.frequency))
    counts: dict[SiteKey, np.ndarray] = {}
    haploid: list[np.ndarray] = []
    ploidy_check = _PloidyCheck(file, samples)
    for number, record in enumerate(file.records()):
        if progress is not None and number % _RECORDS_PER_PROGRESS == 0:
            progress(min(number / max(len(panel.frequency), 1), 1.0))
        keys = file.site_keys(record)
        is_needed = any(
            key not in typed and (0 < panel.frequency.get(key, 0) < 1 or key[:3] in left_out_alleles.records)
            for key in keys
        )
        calls = file.calls(record, columns) if is_needed and "GT" in file.formats(record) else None
        if not keys:
            left_out["without ALT in the truth"] += 1
        for allele, key in enumerate(keys, start=1):
            frequency = panel.frequency.get(key)
            if key in typed:
                left_out_alleles.typed.add(key[:3])
            elif calls is not None and not 0 < (frequency or 0) < 1 and key[:3] in left_out_alleles.records:
                left_out_alleles.add(key[:3], calls.copies(allele))
            if frequency is None:
                left_out["not in the panel"] += 1
            elif key in typed:
                left_out["typed"] += 1
            elif not 0 < frequency < 1:
                left_out["monomorphic in the panel"] += 1
            elif key in counts:
                left_out["repeated in the truth"] += 1
            elif calls is None:
                left_out["without GT in the truth"] += 1
            else:
                count = calls.copies(allele)
                known = count != MISSING
                ploidy_check.add(record, key[0], np.where(known, calls.ploidy, 0))
                counts[key] = count
                haploid.append(np.packbits(known & (calls.ploidy == 1)))
    if not counts:
        raise InputError(
            "mismatch",
            f"{file.name}: no site can be scored: of {sum(left_out.values()):,} sites, "
            + ", ".join(f"{n:,} are {reason}" for reason, n in left_out.items())
            + f". Truth: {describe_ranges(file.ranges)}. Panel: {panel.where}. "
            "The truth must have untyped sites of the panel, on the same genome build.",
        )
    keys = list(counts)
    return Truth(
        keys=keys,
        frequency=np.array([panel.frequency[key] for key in keys]),
        count=np.stack(list(counts.values())),
        haploid=np.stack(haploid),
        left_out=dict(left_out),
        left_out_alleles=left_out_alleles,
    )
