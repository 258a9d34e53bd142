"""Genotype likelihoods from BAM and CRAM files: what reads show at a panel's SNPs, and at its indels.

Which of a read's bases lie at sites follows from its CIGAR.

Axes: S sites, X samples; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

import warnings
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from spinimpute.genotypes.sites import NoRecord, Region, Sites
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.sequencing.aligned_blocks import AlignedBlock, aligned_blocks, places_in_read
from spinimpute.sequencing.alignment_file import AlignmentFile
from spinimpute.sequencing.fragments import (
    OTHER_ALLELE,
    FragmentBases,
    ReadBases,
    fragment_bases,
    phred_of_bases,
)
from spinimpute.sequencing.indels import indel_of, shown_by_read
from spinimpute.sequencing.likelihoods import (
    GenotypeLikelihoods,
    check_region,
    known_ploidy,
    stored_depth,
    stored_phred,
)

# unmapped, secondary, failed quality checks, duplicate, supplementary
_NOT_COUNTED = 0x4 | 0x100 | 0x200 | 0x400 | 0x800
_BASES = frozenset("ACGT")
_NOT_LEFTMOST = "insertions and deletions that the panel does not place as far to the left as they go"
_HIGHEST_QUALITY = 93  # of a base in SAM; what is above, as 255, says that it is not known


@dataclass(frozen=True)
class PileupSettings:
    """Which bases of reads count.

    Attributes
    ----------
    min_mapping_quality : int
        Of the read; Phred-scaled probability that it belongs elsewhere.
    min_base_quality : int
        Of the base.
    max_depth : int
        Fragments that count at a site.
    indels : bool
        Whether insertions and deletions count, see `indels`.
    """

    min_mapping_quality: int = 10
    min_base_quality: int = 10
    max_depth: int = 40
    indels: bool = False


def read_alignments(
    paths: Sequence[str | Path],
    panel: ReferencePanel,
    region: Region | None = None,
    *,
    names: Sequence[str | None] = (),
    reference: str | Path | None = None,
    sexes: dict[str, bool] | None = None,
    settings: PileupSettings = PileupSettings(),
) -> GenotypeLikelihoods:
    """Read what BAM or CRAM files show at the SNPs of a panel, and at its insertions and deletions.

    Duplicates and secondary, supplementary and failed alignments do not count. Mates of a pair count once
    where they overlap. Alleles other than REF and ALT are ignored.

    Parameters
    ----------
    paths : sequence of str or Path
        One indexed file for each sample.
    panel : ReferencePanel
        A panel, or a part of one of X.
    region : Region or None
        Which of the panel's sites are wanted; None for all.
    names : sequence of str or None
        Of the samples, in the order of the paths; None for that of the read groups, as are all by default.
    reference : str, Path or None
        The reference genome, FASTA with .fai, that CRAMs were written with.
    sexes : dict of str to bool or None
        Sample -> whether male, for X: others have two copies there.
    settings : PileupSettings
        Which bases count.

    Returns
    -------
    GenotypeLikelihoods
        At the sites that a counted base of any sample covers, with the bases. They do not depend on the
        order of reads with the same place.

    Raises
    ------
    InputError
        As of `AlignmentFile`; no file, one that is given twice, or two of one sample; not as many names
        as files; the panel has no such site in the region, or no base counts (`NoRecord`).
    """
    if not paths:
        raise InputError("content", "there is no file of reads: give a BAM or CRAM for each sample")
    if names and len(names) != len(paths):
        raise InputError(
            "content", f"there are {len(names)} names of samples for {len(paths)} files of reads"
        )
    check_region(region, panel)
    samples: list[str] = []
    fragments: list[FragmentBases] = []
    skipped: Counter[str] = Counter()
    snps, indels = _wanted(panel.sites, region, settings, skipped)
    panel_index = np.sort(np.array([*snps.panel_index, *indels.panel_index], np.int64))
    kinds = "SNP" + ", insertion or deletion" * settings.indels
    if not len(panel_index):
        raise NoRecord(
            "content", f"the panel has no {kinds} in {region or panel.chrom}: reads cannot be used there"
        )
    for path, name in zip(paths, names or [None] * len(paths), strict=True):
        with AlignmentFile(path, panel, reference) as file:
            samples.append(name or file.sample)
            bases = _bases_of_reads(file, snps, indels, settings, skipped)
        fragments.append(fragment_bases(bases, settings.max_depth, skipped))
    _check_given_once(paths, samples)
    if not any(len(one.fragment) for one in fragments):
        counts = ", ".join(f"{reason}: {count}" for reason, count in (+skipped).items())
        raise NoRecord(
            "content",
            f"reads {', '.join(map(str, paths))}: no base counts at the {len(panel_index)} {kinds}s of "
            f"the panel in {region or panel.chrom} ({counts or 'no read is there'})",
        )
    return _likelihoods(samples, fragments, panel, panel_index, skipped, sexes)


def _check_given_once(paths: Sequence[str | Path], samples: Sequence[str]) -> None:
    """Raise InputError for two files of one sample; warn of one file that is given as two samples."""
    first: dict[Path, tuple[str | Path, str]] = {}
    for path, sample in zip(paths, samples, strict=True):
        before, other = first.setdefault(Path(path).resolve(), (path, sample))
        if sample != other:
            warnings.warn(
                f"reads {before}: the file is given twice, as samples {other} and {sample}", stacklevel=3
            )
    if (twice := repeated(samples)) is None:
        return
    both = [path for path, name in zip(paths, samples, strict=True) if name == twice]
    resolved = [Path(path).resolve() for path in both]
    if len(set(resolved)) == len(resolved):
        named = " and ".join(map(str, both))
        raise InputError("content", f"reads of sample {twice} are in {named}; join them (samtools merge)")
    same = [path for path, real in zip(both, resolved, strict=True) if resolved.count(real) > 1][:2]
    also = f", also as {same[1]}" if str(same[0]) != str(same[1]) else ""
    raise InputError("content", f"reads {same[0]}: the file is given twice{also}; give it once")


class _Places(NamedTuple):
    """Panel sites that reads are looked at for: 0-based position, index in the panel, what may be there.

    That is REF and ALT of SNPs; indels have the position of the letter before them.
    """

    position: list[int]
    panel_index: list[int]
    alleles: list[Any]

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, Any]]) -> Self:
        columns = zip(*sorted(rows, key=lambda row: row[:2]), strict=True)
        return cls(*(map(list, columns) if rows else ([], [], [])))


def _wanted(
    sites: Sites, region: Region | None, settings: PileupSettings, skipped: Counter[str]
) -> tuple[_Places, _Places]:
    """SNPs and indels of a panel."""
    snps, indels = list[tuple[int, int, Any]](), list[tuple[int, int, Any]]()
    for index, (position, ref, alt) in enumerate(sites.keys()):
        if region is not None and not region.start <= position <= region.end:
            continue
        if {ref, alt} <= _BASES:
            snps.append((position - 1, index, (ref, alt)))
        elif settings.indels and (indel := indel_of(position, ref, alt)) is not None:
            if indel.is_leftmost:
                indels.append((indel.before, index, indel))
            else:
                skipped[_NOT_LEFTMOST] += 1
    return _Places.of(snps), _Places.of(indels)


def _bases_of_reads(
    file: AlignmentFile, snps: _Places, indels: _Places, settings: PileupSettings, skipped: Counter[str]
) -> ReadBases:
    """What reads show at the sites, where they are good enough."""
    hashes, sites, alleles, qualities = array("Q"), array("q"), array("B"), array("B")
    least = settings.min_base_quality
    n_marked = n_misplaced = n_bare = n_poor = n_unstated = 0
    position = sorted([*snps.position, *indels.position])
    for read in file.reads(position[0] + 1, position[-1] + 1):
        if read.flag & _NOT_COUNTED:
            n_marked += 1
            continue
        if read.mapping_quality < settings.min_mapping_quality:
            n_misplaced += 1
            continue
        start, end = read.reference_start, read.reference_end  # None without a CIGAR
        first = bisect_left(position, start)
        if end is not None and (first == len(position) or position[first] >= end):
            continue
        letters, quality = read.query_sequence, read.query_qualities
        if end is None or letters is None or quality is None:
            n_bare += 1
            continue
        digest = blake2b(file.fragment(read).encode(), digest_size=8).digest()
        fragment_hash = int.from_bytes(digest, "little")
        blocks = aligned_blocks(read)
        shown = _bases(snps, blocks, letters, quality)
        if indels.position:
            shown += _indels(indels, blocks, letters, quality)
        for site, allele, of_bases, highest in shown:
            if of_bases > _HIGHEST_QUALITY:
                n_unstated += 1
            elif of_bases < least:
                n_poor += 1
            else:
                hashes.append(fragment_hash)
                sites.append(site)
                alleles.append(allele)
                qualities.append(min(of_bases, highest))
    skipped["reads marked as duplicate, secondary, supplementary, unmapped or failed"] += n_marked
    skipped[f"reads with a mapping quality below {settings.min_mapping_quality}"] += n_misplaced
    skipped["reads without bases, qualities or CIGAR"] += n_bare
    skipped[f"bases with a quality below {least}"] += n_poor
    skipped["bases without a quality"] += n_unstated
    return ReadBases(
        np.array(hashes, np.uint64),
        np.array(sites, np.int64),
        np.array(alleles, np.uint8),
        np.array(qualities, np.uint8),
    )


_Shown = tuple[int, int, int, int]  # panel site, allele, quality of bases, and the highest that counts


def _bases(
    snps: _Places, blocks: Sequence[AlignedBlock], letters: str, quality: Sequence[int]
) -> list[_Shown]:
    """What a read shows of the SNPs."""
    found = []
    for site, offset in places_in_read(blocks, snps.position):
        letter, (ref, alt) = letters[offset], snps.alleles[site]
        # "=" stands for the base of the reference genome
        allele = 0 if letter in (ref, "=") else 1 if letter == alt else OTHER_ALLELE
        found.append((snps.panel_index[site], allele, quality[offset], _HIGHEST_QUALITY))
    return found


def _indels(
    indels: _Places, blocks: Sequence[AlignedBlock], letters: str, quality: Sequence[int]
) -> Iterator[_Shown]:
    """What a read shows of the insertions and deletions."""
    for site, _ in places_in_read(blocks, indels.position):
        shown = shown_by_read(blocks, letters, indels.alleles[site])
        if shown is not None:
            # either one may lack
            lowest, highest = sorted((quality[shown.before], quality[shown.behind]))
            of_bases = highest if highest > _HIGHEST_QUALITY else lowest
            yield indels.panel_index[site], shown.allele, of_bases, shown.highest_quality


def _likelihoods(
    samples: list[str],
    fragments: list[FragmentBases],
    panel: ReferencePanel,
    site_index: np.ndarray,
    skipped: Counter[str],
    sexes: dict[str, bool] | None,
) -> GenotypeLikelihoods:
    panel_index = np.unique(np.concatenate([one.panel_index for one in fragments]))
    ploidy_X = known_ploidy(panel, samples, sexes)
    ploidy_X[ploidy_X == 0] = 2
    phred_SX3 = np.empty((len(panel_index), len(samples), 3), np.uint8)
    depth_SX = np.empty(phred_SX3.shape[:2], np.uint16)
    for s, bases in enumerate(fragments):
        phred_S3, depth_S = phred_of_bases(bases, panel_index)
        phred_SX3[:, s] = stored_phred(phred_S3, ploidy_X[s] == 1)
        depth_SX[:, s] = stored_depth(depth_S)
    return GenotypeLikelihoods(
        samples,
        ploidy_X,
        panel_index,
        phred_SX3,
        depth_SX,
        len(site_index),
        dict(+skipped),
        site_index,
        bases_X=fragments,
    )
