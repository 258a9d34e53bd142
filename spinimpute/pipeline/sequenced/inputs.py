"""What sequenced samples are read from: likelihoods, reads, an array, or several of them of the same samples.

Axes: S and T sites, X samples, Q haplotypes; 3: copies of ALT, 0 to 2.
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
from spinimpute.pipeline.prepare import Prepared, prepare
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError, argument
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods, merge_likelihoods, stored_phred
from spinimpute.sequencing.pileup import PileupSettings, read_alignments
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.variant_file import VariantFile

Read = TypeVar("Read")

CALL_ERROR = 33  # Phred-scaled: an array's allele is wrong


@dataclass(frozen=True)
class SequencingSettings:
    """What is known of the samples. What is given of the same samples is taken together.

    Attributes
    ----------
    likelihoods : str, Path, sequence of them, or None
        A VCF, VCF.gz or BCF with PL, GL or GT, see `read_variant_likelihoods`; or several of the same
        samples, one for each chromosome.
    alignments : sequence of str or Path
        BAM or CRAM files, one for each sample, see `read_alignments`.
    names : sequence of str or None
        Of the samples of these files; None for that of the read groups, as are all by default.
    array : str, Path or None
        Typed calls, in any form of `read_target`.
    reference : str, Path or None
        The reference genome that CRAMs were written with.
    pileup : PileupSettings
        Which bases of reads count.
    chain : str, Path or None
        A chain file from the genome build of the likelihoods to the panel's.
    sexes : dict or None
        Whether each sample is male, for chromosome X.
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
        """The files of likelihoods."""
        given = self.likelihoods
        if given is None or isinstance(given, str | Path):
            return [] if given is None else [given]
        return list(given)

    @property
    def named(self) -> str:
        """What the samples are read from, for a report."""
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
    """Reads what is known of the samples at panels that are the parts of one.

    The samples' order is that of the first file: of likelihoods, of the array, or of the reads.

    Parameters
    ----------
    settings : SequencingSettings
        What is read; of likelihoods one file at most.
    panels : sequence of Panel
        Open.
    force : bool
        Go on though the array's calls do not fit the panel, or likelihoods and reads cover the same sites.

    Attributes
    ----------
    warnings : list of str
        What is doubtful; `read` adds to them.
    absent : list of str
        Why a file knows nothing of what was read.

    Raises
    ------
    InputError
        Nothing is given, or as `prepare` of the array.
    """

    def __init__(self, settings: SequencingSettings, panels: Sequence[Panel], *, force: bool = False) -> None:
        files = settings.likelihood_files
        if not files and settings.array is None and not settings.alignments:
            raise InputError(
                "content", "nothing is known of the samples: give a file of likelihoods, or reads"
            )
        if len(files) > 1:
            raise InputError(
                "content", f"{len(files)} files of likelihoods are given: give that of this chromosome alone"
            )
        self.settings, self.warnings, self.absent = settings, list[str](), list[str]()
        self._force = force
        self._likelihoods = files[0] if files else None
        self._calls: dict[str, Prepared] = {}
        self._samples: list[str] | None = None
        if settings.array is not None:
            summary = ImputationSummary()
            target = TargetSettings(sexes=settings.sexes)
            try:
                prepared = prepare(panels, settings.array, summary, target, force=force)
            except NoRecord as error:
                # of a genome, the array may lack a chromosome that was sequenced
                if self._likelihoods is None and not settings.alignments:
                    raise
                self.warnings.append(f"{error}; imputed without it")
            else:
                self._calls = {part.panel.checksum: part for part in prepared}
                self._samples = prepared[0].target.samples
            self.warnings += summary.warnings
        if self._likelihoods is not None:
            with VariantFile(Path(self._likelihoods), "target") as file:
                self._samples = list(file.samples)

    def read(self, panel: Panel, region: Region | None) -> GenotypeLikelihoods | None:
        """Likelihoods at the sites of one of the panels.

        Parameters
        ----------
        panel : Panel
            One of them.
        region : Region or None
            Of the chromosome; None for all.

        Returns
        -------
        GenotypeLikelihoods or None
            None if nothing is known at any site.

        Raises
        ------
        InputError
            As the readers; the files are of different samples; or likelihoods and reads cover the same sites
            of a sample, without `force`. With a region, `NoRecord` and `NoMatch` are answered with None.
        """
        stated = calls = reads = None
        if self._likelihoods is not None:
            stated = self._unless_absent(region, partial(self._read_likelihoods, panel, region))
        if panel.checksum in self._calls:
            calls = likelihoods_of_calls(self._calls[panel.checksum], region)
        if self.settings.alignments:
            reads = self._unless_absent(region, partial(self._read_alignments, panel, region))
        if stated is not None and reads is not None:
            self._check_independent(stated, reads)
        known = [part for part in (stated, calls, reads) if part is not None]
        if self._samples is not None:
            known = [part.reorder_samples(self._samples) for part in known]
        return reduce(merge_likelihoods, known) if known else None

    def _check_independent(self, stated: GenotypeLikelihoods, reads: GenotypeLikelihoods) -> None:
        """Refuse likelihoods and reads of the same sites: reads would count twice in their own likelihoods.

        With `force` they are of different libraries, and a warning is enough.
        """
        samples, settings = stated.samples, self.settings
        _, at_stated, at_reads = np.intersect1d(
            stated.panel_index, reads.panel_index, assume_unique=True, return_indices=True
        )
        both_SX = stated.known_SX[at_stated] & reads.reorder_samples(samples).known_SX[at_reads]
        n_sites_X = both_SX.sum(axis=0)
        if not n_sites_X.any():
            return
        x = int(n_sites_X.argmax())
        path = settings.alignments[reads.samples.index(samples[x])]
        if not self._force:
            raise InputError(
                "mismatch",
                f"target {self._likelihoods}: its likelihoods and the reads {path} cover {n_sites_X[x]:,} of "
                f"the same sites of sample {samples[x]}. Likelihoods made of these reads would count them "
                f"twice: give the reads alone. Add {argument('force', True)} if they are of "
                f"different libraries",
            )
        warning = (
            f"target {self._likelihoods}: its likelihoods and the reads cover the same sites, and both count "
            "in full"
        )
        if warning not in self.warnings:
            self.warnings.append(warning)

    def begins(self, panel: Panel, region: Region | None) -> bool:
        """Whether `read` may know something, by no more than a file's first record.

        Parameters
        ----------
        panel, region
            As of `read`.

        Returns
        -------
        bool
            False if nothing is known at any site.

        Raises
        ------
        InputError
            As of `read`. Of likelihoods all are read if by its header the file is on another genome build.
        """
        begun = None
        if self._likelihoods is not None:
            begun = self._unless_absent(region, partial(self._begin_likelihoods, panel, region))
        return bool(begun or self.settings.alignments or panel.checksum in self._calls)

    def _begin_likelihoods(self, panel: Panel, region: Region | None) -> bool:
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

    def _unless_absent(self, region: Region | None, read: Callable[[], Read]) -> Read | None:
        """What is read; None where a file holds nothing of a region, of which others may know something."""
        try:
            return read()
        except (NoRecord, NoMatch) as error:
            if region is None:
                raise
            if str(error) not in self.absent:
                self.absent.append(str(error))
            return None


def likelihoods_of_calls(part: Prepared, region: Region | None = None) -> GenotypeLikelihoods:
    """What an array's calls say, each allele of them wrong with a probability of 10 ** (-CALL_ERROR / 10).

    Parameters
    ----------
    part : Prepared
        A target with the alleles of the panel.
    region : Region or None
        Of the chromosome; None for all.

    Returns
    -------
    GenotypeLikelihoods
        At the matched sites; nothing is known where a call is missing.
    """
    target, match = part.target, part.match
    position_T = part.panel.position[match.panel_index]
    wanted_T = np.ones(len(position_T), bool)
    if region is not None:
        wanted_T = (region.start <= position_T) & (position_T <= region.end)
    alleles_TQ = target.alleles[match.target_index[wanted_T]]
    haploid_X = target.ploidy == 1
    first_X = np.cumsum(target.ploidy.astype(np.int64)) - target.ploidy
    one_TX, other_TX = alleles_TQ[:, first_X], alleles_TQ[:, first_X + ~haploid_X]
    missing_TX = (one_TX < 0) | (other_TX < 0)
    copies_TX3 = np.arange(3)
    phred_TX3 = CALL_ERROR * np.abs((one_TX + other_TX)[..., None] - copies_TX3)
    phred_TX3 = np.where(haploid_X[:, None], phred_TX3 // 2, phred_TX3)  # one allele, not two
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


def haplotypes_of(panel: ReferencePanel) -> Panel:
    """The panel, if it is one of haplotypes. Raises InputError for one of inducing points."""
    if panel.haplotypes is None:
        raise InputError(
            "content",
            f"panel {panel.path}: sequenced samples cannot be imputed from {panel.holds}; give a .spin "
            "file, a VCF or a BCF",
        )
    return panel.haplotypes


def at_all_sites(likelihoods: GenotypeLikelihoods, first: int, last: int) -> np.ndarray:
    """Likelihoods at the panel sites [first, last), uint8 (S, X, 3); all 0 where nothing is known."""
    low, high = np.searchsorted(likelihoods.panel_index, [first, last])
    phred_SX3 = np.zeros((last - first, len(likelihoods.samples), 3), np.uint8)
    here = likelihoods.take(slice(low, high))
    # of a haploid sample without reads the stored ones are not all the same
    phred_SX3[here.panel_index - first] = np.where(here.known_SX[..., None], here.phred_SX3, 0)
    return phred_SX3
