"""Genotype likelihoods from BAM and CRAM files: the bases of reads over a panel's SNPs.

Which of a read's bases lie at sites follows from its CIGAR. Indels get no likelihoods: aligners place the
same one in several ways.

Axes: S sites, X samples; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.errors import InputError, repeated
from spinimpute.genotypes.sites import NoRecord, Region, Sites
from spinimpute.panels.reference import ReferencePanel
from spinimpute.sequencing.alignment_file import AlignmentFile, Read
from spinimpute.sequencing.fragments import (
    OTHER_ALLELE,
    FragmentBases,
    ReadBases,
    fragment_bases,
    phred_of_bases,
)
from spinimpute.sequencing.likelihoods import (
    GenotypeLikelihoods,
    check_region,
    known_ploidy,
    stored_depth,
    stored_phred,
)

# unmapped, secondary, failed quality checks, duplicate, supplementary
_NOT_COUNTED = 0x4 | 0x100 | 0x200 | 0x400 | 0x800
_MATCHES, _IN_READ, _IN_REFERENCE = (0, 7, 8), (1, 4), (2, 3)  # CIGAR: M = X; I S; D N
_BASES = frozenset("ACGT")


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
    """

    min_mapping_quality: int = 10
    min_base_quality: int = 10
    max_depth: int = 40


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
    """Read what BAM or CRAM files show at the SNPs of a panel.

    Duplicates and secondary, supplementary and failed alignments do not count. Mates of a pair count once
    where they overlap. Bases other than REF and ALT are ignored.

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
        At the SNPs that a counted base of any sample covers, with the bases. They do not depend on the
        order of reads with the same place.

    Raises
    ------
    InputError
        As of `AlignmentFile`; no file, or two of one sample; not as many names as files; the panel has no SNP
        in the region, or no base counts (`NoRecord`).
    """
    if not paths:
        raise InputError("there is no file of reads: give a BAM or CRAM for each sample")
    if names and len(names) != len(paths):
        raise InputError(f"there are {len(names)} names of samples for {len(paths)} files of reads")
    check_region(region, panel)
    snps = _snps(panel.sites, region)
    if not len(snps.panel_index):
        raise NoRecord(f"the panel has no SNP in {region or panel.chrom}: reads cannot be used there")
    samples: list[str] = []
    fragments: list[FragmentBases] = []
    skipped: Counter[str] = Counter()
    for path, name in zip(paths, names or [None] * len(paths), strict=True):
        with AlignmentFile(path, panel, reference) as file:
            samples.append(name or file.sample)
            bases = _bases_of_reads(file, snps, settings, skipped)
        fragments.append(fragment_bases(bases, settings.max_depth, skipped))
    if (twice := repeated(samples)) is not None:
        both = [str(path) for path, name in zip(paths, samples, strict=True) if name == twice]
        raise InputError(f"reads of sample {twice} are in {' and '.join(both)}; join them (samtools merge)")
    n_snps = len(snps.panel_index)
    if not any(len(one.fragment) for one in fragments):
        counts = ", ".join(f"{reason}: {count}" for reason, count in (+skipped).items())
        raise NoRecord(
            f"reads {', '.join(map(str, paths))}: no base counts at the {n_snps} SNPs of the panel in "
            f"{region or panel.chrom} ({counts or 'no read is there'})"
        )
    return _likelihoods(samples, fragments, panel, snps.panel_index, skipped, sexes)


class _Snps(NamedTuple):
    """Panel sites of single bases: index in the panel, 0-based position, letters."""

    panel_index: np.ndarray
    position: list[int]
    ref: list[str]
    alt: list[str]


def _snps(sites: Sites, region: Region | None) -> _Snps:
    chosen = [
        (index, position - 1, ref, alt)
        for index, (position, ref, alt) in enumerate(sites.keys())
        if {ref, alt} <= _BASES and (region is None or region.start <= position <= region.end)
    ]
    index, position, ref, alt = map(list, zip(*chosen, strict=True)) if chosen else ([], [], [], [])
    return _Snps(np.array(index, np.int64), position, ref, alt)


def _bases_of_reads(
    file: AlignmentFile, snps: _Snps, settings: PileupSettings, skipped: Counter[str]
) -> ReadBases:
    """The bases at the SNPs that are good enough."""
    hashes, sites, alleles, qualities = array("Q"), array("q"), array("B"), array("B")
    position, ref, alt = snps.position, snps.ref, snps.alt
    least = settings.min_base_quality
    n_marked = n_misplaced = n_bare = n_poor = 0
    for read in file.reads(position[0] + 1, position[-1] + 1):
        if read.flag & _NOT_COUNTED:
            n_marked += 1
            continue
        if read.mapping_quality < settings.min_mapping_quality:
            n_misplaced += 1
            continue
        end = read.reference_end  # None without a CIGAR
        first = bisect_left(position, read.reference_start)
        if end is not None and (first == len(position) or position[first] >= end):
            continue
        letters, quality = read.query_sequence, read.query_qualities
        if end is None or letters is None or quality is None:
            n_bare += 1
            continue
        digest = blake2b(file.fragment(read).encode(), digest_size=8).digest()
        fragment_hash = int.from_bytes(digest, "little")
        for site, offset in _sites_in_read(read, position, first):
            if quality[offset] < least:
                n_poor += 1
                continue
            letter = letters[offset]
            hashes.append(fragment_hash)
            sites.append(site)
            # "=" stands for the base of the reference genome
            is_ref = letter in (ref[site], "=")
            alleles.append(0 if is_ref else 1 if letter == alt[site] else OTHER_ALLELE)
            qualities.append(quality[offset])
    skipped["reads marked as duplicate, secondary, supplementary, unmapped or failed"] += n_marked
    skipped[f"reads with a mapping quality below {settings.min_mapping_quality}"] += n_misplaced
    skipped["reads without bases, qualities or CIGAR"] += n_bare
    skipped[f"bases with a quality below {least}"] += n_poor
    return ReadBases(
        np.array(hashes, np.uint64),
        snps.panel_index[np.array(sites, np.int64)],
        np.array(alleles, np.uint8),
        np.array(qualities, np.uint8),
    )


def _sites_in_read(read: Read, position: list[int], site: int) -> list[tuple[int, int]]:
    """(site, place in the read's sequence) of the sites from number `site` on that a read has a base at."""
    found = []
    at, offset, n_sites = read.reference_start, 0, len(position)
    for operation, length in read.cigartuples:
        if operation in _MATCHES:
            stop = at + length
            while site < n_sites and position[site] < stop:
                found.append((site, offset + position[site] - at))
                site += 1
            at, offset = stop, offset + length
        elif operation in _IN_READ:
            offset += length
        elif operation in _IN_REFERENCE:
            at += length
            site = bisect_left(position, at, site)
    return found


def _likelihoods(
    samples: list[str],
    fragments: list[FragmentBases],
    panel: ReferencePanel,
    snp_index: np.ndarray,
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
        len(snp_index),
        dict(+skipped),
        snp_index,
        bases_X=fragments,
    )
