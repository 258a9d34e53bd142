"""The data of sequenced samples: genotype likelihoods, reads, array genotypes, or several of these together.

`LikelihoodReader` converts all of them to genotype likelihoods at panel sites and combines them.

Axes: S panel sites, T sites with data, X samples, Q haplotypes; a trailing 3 is 0, 1 or 2 copies of ALT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TypeVar

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.sites import NoMatch, NoRecord, Region
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.matched_target import MatchedTarget, read_matched
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import is_same_file
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods, merge_likelihoods, stored_phred
from spinimpute.sequencing.pileup import PileupSettings, read_alignments
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.variant_file import VariantFile

Read = TypeVar("Read")

CALL_ERROR_PHRED = 33  # Phred-scaled probability that an allele of an array genotype is wrong


@dataclass(frozen=True)
class SequencingSettings:
    """The files of sequenced samples. If several files have data of the same samples, they are combined.

    Attributes
    ----------
    likelihoods : str, Path, sequence of them, or None
        A VCF, VCF.gz or BCF with PL, GL or GT. Or several files of the same samples, one per chromosome.
    alignments : sequence of str or Path
        BAM or CRAM files, one per sample.
    names : sequence of str or None
        Sample name of each file of `alignments`. None or no names: use the name in the read groups.
    array : str, Path or None
        Array genotypes of the samples, in any format that `impute` reads.
    reference : str, Path or None
        Reference genome (FASTA), for CRAM files.
    pileup : PileupSettings
        Which reads and bases to use.
    chain : str, Path or None
        A chain file that lifts positions from the genome build of the likelihoods to the panel's.
    sexes : dict or None
        For chromosome X: True for each male sample.
    """

    likelihoods: str | Path | Sequence[str | Path] | None = None
    alignments: Sequence[str | Path] = ()
    names: Sequence[str | None] = field(default=(), kw_only=True)
    chain: str | Path | None = field(default=None, kw_only=True)
    array: str | Path | None = None
    reference: str | Path | None = None
    pileup: PileupSettings = field(default_factory=PileupSettings)
    sexes: dict[str, bool] | None = None

    @property
    def paths(self) -> list[str | Path | None]:
        """All files that are read."""
        return [*self.likelihood_files, *self.alignments, self.array, self.reference, self.chain]

    @property
    def likelihood_files(self) -> list[str | Path]:
        """The files of likelihoods as a list."""
        likelihoods_given = self.likelihoods
        if likelihoods_given is None or isinstance(likelihoods_given, str | Path):
            return [] if likelihoods_given is None else [likelihoods_given]
        return list(likelihoods_given)

    @property
    def description(self) -> str:
        """Description of the files for a report."""
        files = [Path(path).name for path in self.likelihood_files]
        if len(files) > 1:
            files = [f"{len(files)} files of likelihoods"]
        files += [] if self.array is None else [Path(self.array).name]
        if len(self.alignments) == 1:
            files.append(Path(self.alignments[0]).name)
        elif self.alignments:
            files.append(f"{len(self.alignments)} files of reads")
        return " and ".join(files)


class LikelihoodReader:
    """Reader of genotype likelihoods at the sites of a panel's parts.

    Samples are in the order of the likelihoods; without likelihoods, in the order of the array, or else of
    the files of reads. With `force`, array genotypes that do not fit the panel are accepted, and
    likelihoods and reads may cover the same sites. `warnings` collects warnings to the user, and
    `no_data_reasons` the reasons why files have no data in a region.
    """

    def __init__(self, settings: SequencingSettings, panels: Sequence[Panel], *, force: bool = False) -> None:
        files = settings.likelihood_files
        if not files and settings.array is None and not settings.alignments:
            raise InputError("arguments", "no data of the samples: give a file of likelihoods, or reads")
        if len(files) > 1:
            raise InputError(
                "arguments", f"got {len(files)} files of likelihoods for one chromosome: give one of them"
            )
        for path in files:
            if is_same_file(path, settings.array):
                raise InputError(
                    "arguments",
                    f"{path} is given as array genotypes ({argument('vcf')}) and as likelihoods "
                    f"({argument('gl')}), so its data would count twice. Give it once",
                )
        self.settings, self.warnings, self.no_data_reasons = settings, list[str](), list[str]()
        self._force = force
        self._likelihoods = files[0] if files else None
        self._array_targets: dict[str, MatchedTarget] = {}
        self._samples: list[str] | None = None
        if settings.array is not None:
            target = TargetSettings(sexes=settings.sexes)
            try:
                read = read_matched(panels, settings.array, target, force=force)
            except NoRecord as error:
                # The array may lack a chromosome that was sequenced.
                if self._likelihoods is None and not settings.alignments:
                    raise
                self.warnings.append(f"{error}; imputed without it")
            else:
                self._array_targets = {matched.panel.checksum: matched for matched in read.matched}
                self._samples = read.matched[0].target.samples
                self.warnings += read.warnings
        if self._likelihoods is not None:
            with VariantFile(Path(self._likelihoods), "target") as file:
                self._samples = list(file.samples)

    def read(self, panel: Panel, region: Region | None) -> GenotypeLikelihoods | None:
        """Return the combined likelihoods at a panel's sites in a region (None: all sites).

        Returns None if the region has no data. Raises InputError if the files have different samples. Without
        `force`, also raises InputError if likelihoods and reads cover the same sites of a sample.
        """
        likelihoods = calls = reads = None
        if self._likelihoods is not None:
            likelihoods = self._none_if_absent(region, partial(self._read_likelihoods, panel, region))
        if panel.checksum in self._array_targets:
            calls = likelihoods_from_calls(self._array_targets[panel.checksum], region)
        if self.settings.alignments:
            reads = self._none_if_absent(region, partial(self._read_alignments, panel, region))
        if likelihoods is not None and reads is not None:
            self._check_independent(likelihoods, reads)
        sources = [part for part in (likelihoods, calls, reads) if part is not None]
        if self._samples is not None:
            sources = [part.reorder_samples(self._samples) for part in sources]
        return reduce(merge_likelihoods, sources) if sources else None

    def _check_independent(self, likelihoods: GenotypeLikelihoods, reads: GenotypeLikelihoods) -> None:
        """Raise InputError if likelihoods and reads cover the same sites of a sample.

        If the likelihoods were computed from these reads, the reads would count twice. With `force`, the user
        states that both are of different libraries; then only a warning is added.
        """
        samples, settings = likelihoods.samples, self.settings
        _, at_likelihoods, at_reads = np.intersect1d(
            likelihoods.panel_index, reads.panel_index, assume_unique=True, return_indices=True
        )
        both_SX = likelihoods.known_SX[at_likelihoods] & reads.reorder_samples(samples).known_SX[at_reads]
        n_sites_X = both_SX.sum(axis=0)
        if not n_sites_X.any():
            return
        x = int(n_sites_X.argmax())
        path = settings.alignments[reads.samples.index(samples[x])]
        if not self._force:
            raise InputError(
                "mismatch",
                f"target {self._likelihoods}: its likelihoods and the reads {path} cover the same "
                f"{n_sites_X[x]:,} sites of sample {samples[x]}. If the likelihoods were made from these "
                "reads, they would count twice: give the reads only. If they are of different libraries, add "
                f"{argument('force', True)}",
            )
        warning = (
            f"target {self._likelihoods}: its likelihoods and the reads cover the same sites; both are used"
        )
        if warning not in self.warnings:
            self.warnings.append(warning)

    def has_records(self, panel: Panel, region: Region | None) -> bool:
        """Return whether `read` may find data. Only the first record of the likelihoods is read.

        If their header has another genome build, they are read completely to raise the error of `read`.
        """
        found = None
        if self._likelihoods is not None:
            found = self._none_if_absent(region, partial(self._has_likelihoods, panel, region))
        return bool(found or self.settings.alignments or panel.checksum in self._array_targets)

    def _has_likelihoods(self, panel: Panel, region: Region | None) -> bool:
        assert self._likelihoods is not None
        lifted = self.settings.chain is not None
        with VariantFile(Path(self._likelihoods), "target") as file:
            records = ChromosomeRecords(file, None if lifted else region, panel.chrom)
            next(iter(records))
        builds = [infer_build(one.contig_line, panel.chrom) for one in (records, panel)]
        if not lifted and all(builds) and builds[0] != builds[1]:
            self._read_likelihoods(panel, region)
        return True

    def _read_likelihoods(self, panel: Panel, region: Region | None) -> GenotypeLikelihoods:
        assert self._likelihoods is not None
        settings = self.settings
        return read_variant_likelihoods(
            self._likelihoods, panel, region, chain=settings.chain, sexes=settings.sexes
        )

    def _read_alignments(self, panel: Panel, region: Region | None) -> GenotypeLikelihoods:
        settings = self.settings
        return read_alignments(
            settings.alignments,
            panel,
            region,
            names=settings.names,
            reference=settings.reference,
            sexes=settings.sexes,
            settings=settings.pileup,
        )

    def _none_if_absent(self, region: Region | None, read: Callable[[], Read]) -> Read | None:
        """Return the result of `read`; None without data in a region: other files may have data there."""
        try:
            return read()
        except (NoRecord, NoMatch) as error:
            if region is None:
                raise
            if str(error) not in self.no_data_reasons:
                self.no_data_reasons.append(str(error))
            return None


def likelihoods_from_calls(matched: MatchedTarget, region: Region | None = None) -> GenotypeLikelihoods:
    """Convert array genotypes at the matched sites in a region (None: all) to genotype likelihoods.

    Each allele is wrong with probability 10 ** (-CALL_ERROR_PHRED / 10). Missing genotypes are no data.
    """
    target, match = matched.target, matched.match
    position_T = matched.panel.position[match.panel_index]
    wanted_T = np.ones(len(position_T), bool)
    if region is not None:
        wanted_T = (region.start <= position_T) & (position_T <= region.end)
    alleles_TQ = target.alleles[match.target_index[wanted_T]]
    haploid_X = target.ploidy == 1
    first_X = np.cumsum(target.ploidy.astype(np.int64)) - target.ploidy
    first_TX, second_TX = alleles_TQ[:, first_X], alleles_TQ[:, first_X + ~haploid_X]
    missing_TX = (first_TX < 0) | (second_TX < 0)
    copies_TX3 = np.arange(3)
    phred_TX3 = CALL_ERROR_PHRED * np.abs((first_TX + second_TX)[..., None] - copies_TX3)
    # the allele of a haploid genotype was counted twice: halve its distance
    phred_TX3 = np.where(haploid_X[:, None], phred_TX3 // 2, phred_TX3)
    phred_TX3[missing_TX] = 0
    return GenotypeLikelihoods(
        target.samples,
        target.ploidy,
        match.panel_index[wanted_T],
        stored_phred(phred_TX3.astype(float), haploid_X),
        None,
        len(target.sites),
        dict(target.skipped),
    )


def require_haplotypes(panel: ReferencePanel) -> Panel:
    """Return the panel as a panel of haplotypes. Raises InputError if it contains inducing points."""
    if panel.haplotypes is None:
        raise InputError(
            "mismatch",
            f"panel {panel.path}: sequenced samples cannot be imputed from {panel.holds}. Give a .spin file, "
            "a VCF or a BCF",
        )
    return panel.haplotypes


def expand_to_all_sites(likelihoods: GenotypeLikelihoods, first: int, last: int) -> np.ndarray:
    """Return the likelihoods at the panel sites [first, last), uint8 (S, X, 3); 0 without data."""
    low, high = np.searchsorted(likelihoods.panel_index, [first, last])
    phred_SX3 = np.zeros((last - first, len(likelihoods.samples), 3), np.uint8)
    here = likelihoods.take(slice(low, high))
    # Without data, the stored likelihoods of haploid samples are not all equal: set them to 0.
    phred_SX3[here.panel_index - first] = np.where(here.known_SX[..., None], here.phred_SX3, 0)
    return phred_SX3
