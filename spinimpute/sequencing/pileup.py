"""Genotype likelihoods from BAM and CRAM files.

The alleles that reads have at the panel's SNPs (and, if requested, indels) are collected, combined into
fragments, and turned into genotype likelihoods.

Axes: S sites, X samples, and an axis of length 3 for genotypes with 0, 1 and 2 copies of ALT.
"""

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
from spinimpute.sequencing.aligned_blocks import AlignedBlock, aligned_blocks, sites_in_read
from spinimpute.sequencing.alignment_file import AlignmentFile
from spinimpute.sequencing.fragments import (
    OTHER_ALLELE,
    FragmentBases,
    ReadBases,
    fragment_bases,
    phred_of_bases,
)
from spinimpute.sequencing.indels import allele_in_read, find_indel
from spinimpute.sequencing.likelihoods import (
    GenotypeLikelihoods,
    check_region,
    known_ploidy,
    stored_depth,
    stored_phred,
)

# SAM flags of reads that are not used: unmapped, secondary, failed quality checks, duplicate, supplementary
_SKIPPED_FLAGS = 0x4 | 0x100 | 0x200 | 0x400 | 0x800
_BASES = frozenset("ACGT")
_NOT_LEFTMOST = "insertions and deletions that the panel does not place as far to the left as they go"
_MAX_BASE_QUALITY = 93  # highest quality in SAM; higher values such as 255 mean that the quality is unknown


@dataclass(frozen=True)
class PileupSettings:
    """Settings that decide which bases of reads are used.

    Attributes
    ----------
    min_mapping_quality : int
        Minimum mapping quality of the reads to use: the Phred-scaled probability that the read is from
        another place in the genome.
    min_base_quality : int
        Minimum quality of the bases to use.
    max_depth : int
        Maximum number of fragments to use at a site.
    indels : bool
        Whether to use the panel's insertions and deletions in addition to its SNPs.
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
    """Return the genotype likelihoods at a panel's SNPs and indels from one BAM or CRAM file per sample.

    Duplicates and secondary, supplementary and failed alignments are not used. Mates of a pair count once
    where they overlap. Alleles other than REF and ALT are ignored. `names` replaces the sample names in the
    files; None keeps a name. `sexes` maps samples to whether they are male, for X. The result has the sites
    at which any sample has a base that is used. It does not depend on the order of reads at the same
    position.

    Raises InputError for the errors of `AlignmentFile`, if a file or sample is given twice, or if no base can
    be used (`NoRecord`).
    """
    if not paths:
        raise InputError("arguments", "there is no file of reads. Give a BAM or CRAM for each sample.")
    if names and len(names) != len(paths):
        raise InputError(
            "arguments", f"there are {len(names)} names of samples for {len(paths)} files of reads"
        )
    check_region(region, panel)
    samples: list[str] = []
    fragments: list[FragmentBases] = []
    skipped: Counter[str] = Counter()
    snps, indels = _panel_sites(panel.sites, region, settings, skipped)
    requested_index = np.sort(np.array([*snps.panel_index, *indels.panel_index], np.int64))
    kinds = "SNP" + ", insertion or deletion" * settings.indels
    if not len(requested_index):
        raise NoRecord(
            "content", f"the panel has no {kinds} in {region or panel.chrom}, so reads cannot be used there"
        )
    for path, name in zip(paths, names or [None] * len(paths), strict=True):
        with AlignmentFile(path, panel, reference) as file:
            samples.append(name or file.sample)
            bases = _bases_of_reads(file, snps, indels, settings, skipped)
        fragments.append(fragment_bases(bases, settings.max_depth, skipped))
    _check_duplicate_inputs(paths, samples)
    if not any(len(one.fragment) for one in fragments):
        counts = ", ".join(f"{reason}: {count}" for reason, count in (+skipped).items())
        raise NoRecord(
            "content",
            f"reads {', '.join(map(str, paths))}: no base can be used at the {len(requested_index)} "
            f"{'SNPs, insertions and deletions' if settings.indels else 'SNPs'} of the "
            f"panel in {region or panel.chrom} ({counts or 'there are no reads'})",
        )
    return _likelihoods(samples, fragments, panel, requested_index, skipped, sexes)


def _check_duplicate_inputs(paths: Sequence[str | Path], samples: Sequence[str]) -> None:
    """Raise InputError if two files are of one sample. Warn if one file is used for two samples."""
    first: dict[Path, tuple[str | Path, str]] = {}
    for path, sample in zip(paths, samples, strict=True):
        before, other = first.setdefault(Path(path).resolve(), (path, sample))
        if sample != other:
            warnings.warn(
                f"reads {before}: the file is given twice, as samples {other} and {sample}", stacklevel=3
            )
    if (duplicate := repeated(samples)) is None:
        return
    both = [path for path, name in zip(paths, samples, strict=True) if name == duplicate]
    resolved = [Path(path).resolve() for path in both]
    if len(set(resolved)) == len(resolved):
        named = " and ".join(map(str, both))
        raise InputError(
            "arguments", f"reads of sample {duplicate} are in {named}. Join them (samtools merge)."
        )
    same = [path for path, real in zip(both, resolved, strict=True) if resolved.count(real) > 1][:2]
    also = f", also as {same[1]}" if str(same[0]) != str(same[1]) else ""
    raise InputError("arguments", f"reads {same[0]}: the file is given twice{also}. Give it once.")


class _PanelSites(NamedTuple):
    """Panel sites to look for in reads."""

    position: list[int]  # 0-based, increasing; for an indel, the position of the base before it
    panel_index: list[int]
    alleles: list[Any]  # (REF, ALT) of a SNP, or an `Indel`

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, int, Any]]) -> Self:
        columns = zip(*sorted(rows, key=lambda row: row[:2]), strict=True)
        return cls(*(map(list, columns) if rows else ([], [], [])))


def _panel_sites(
    sites: Sites, region: Region | None, settings: PileupSettings, skipped: Counter[str]
) -> tuple[_PanelSites, _PanelSites]:
    """Return the SNPs and the indels of a panel in a region."""
    snps, indels = list[tuple[int, int, Any]](), list[tuple[int, int, Any]]()
    for index, (position, ref, alt) in enumerate(sites.keys()):
        if region is not None and not region.start <= position <= region.end:
            continue
        if {ref, alt} <= _BASES:
            snps.append((position - 1, index, (ref, alt)))
        elif settings.indels and (indel := find_indel(position, ref, alt)) is not None:
            if indel.is_leftmost:
                indels.append((indel.before, index, indel))
            else:
                skipped[_NOT_LEFTMOST] += 1
    return _PanelSites.from_rows(snps), _PanelSites.from_rows(indels)


def _bases_of_reads(
    file: AlignmentFile,
    snps: _PanelSites,
    indels: _PanelSites,
    settings: PileupSettings,
    skipped: Counter[str],
) -> ReadBases:
    """Return the alleles that reads of sufficient quality have at the sites."""
    hashes, sites, alleles, qualities = array("Q"), array("q"), array("B"), array("B")
    min_quality = settings.min_base_quality
    n_flagged = n_low_mapping = n_incomplete = n_low_quality = n_no_quality = 0
    position = sorted([*snps.position, *indels.position])
    for read in file.reads(position[0] + 1, position[-1] + 1):
        if read.flag & _SKIPPED_FLAGS:
            n_flagged += 1
            continue
        if read.mapping_quality < settings.min_mapping_quality:
            n_low_mapping += 1
            continue
        start, end = read.reference_start, read.reference_end  # None without a CIGAR
        first = bisect_left(position, start)
        if end is not None and (first == len(position) or position[first] >= end):
            continue
        sequence, quality = read.query_sequence, read.query_qualities
        if end is None or sequence is None or quality is None:
            n_incomplete += 1
            continue
        digest = blake2b(file.fragment(read).encode(), digest_size=8).digest()
        fragment_hash = int.from_bytes(digest, "little")
        blocks = aligned_blocks(read)
        observed = _snps_in_read(snps, blocks, sequence, quality)
        if indels.position:
            observed += _indels_in_read(indels, blocks, sequence, quality)
        for site, allele, base_quality, highest in observed:
            if base_quality > _MAX_BASE_QUALITY:
                n_no_quality += 1
            elif base_quality < min_quality:
                n_low_quality += 1
            else:
                hashes.append(fragment_hash)
                sites.append(site)
                alleles.append(allele)
                qualities.append(min(base_quality, highest))
    skipped["reads marked as duplicate, secondary, supplementary, unmapped or failed"] += n_flagged
    skipped[f"reads with a mapping quality below {settings.min_mapping_quality}"] += n_low_mapping
    skipped["reads without bases, qualities or CIGAR"] += n_incomplete
    skipped[f"bases with a quality below {min_quality}"] += n_low_quality
    skipped["bases without a quality"] += n_no_quality
    return ReadBases(
        np.array(hashes, np.uint64),
        np.array(sites, np.int64),
        np.array(alleles, np.uint8),
        np.array(qualities, np.uint8),
    )


# panel site, allele, quality in the read, upper limit of the quality
_ObservedBase = tuple[int, int, int, int]


def _snps_in_read(
    snps: _PanelSites, blocks: Sequence[AlignedBlock], sequence: str, quality: Sequence[int]
) -> list[_ObservedBase]:
    """Return the alleles that a read has at SNPs."""
    observed = []
    for site, offset in sites_in_read(blocks, snps.position):
        base, (ref, alt) = sequence[offset], snps.alleles[site]
        # "=" stands for the base of the reference genome
        allele = 0 if base in (ref, "=") else 1 if base == alt else OTHER_ALLELE
        observed.append((snps.panel_index[site], allele, quality[offset], _MAX_BASE_QUALITY))
    return observed


def _indels_in_read(
    indels: _PanelSites, blocks: Sequence[AlignedBlock], sequence: str, quality: Sequence[int]
) -> Iterator[_ObservedBase]:
    """Yield the alleles that a read has at indels."""
    for site, _ in sites_in_read(blocks, indels.position):
        observed = allele_in_read(blocks, sequence, indels.alleles[site])
        if observed is not None:
            # the lower of the two qualities, or an unknown quality if either is unknown
            lowest, highest = sorted((quality[observed.index_before], quality[observed.index_after]))
            base_quality = highest if highest > _MAX_BASE_QUALITY else lowest
            yield indels.panel_index[site], observed.allele, base_quality, observed.max_quality


def _likelihoods(
    samples: list[str],
    fragments: list[FragmentBases],
    panel: ReferencePanel,
    requested_index: np.ndarray,
    skipped: Counter[str],
    sexes: dict[str, bool] | None,
) -> GenotypeLikelihoods:
    panel_index = np.unique(np.concatenate([one.panel_index for one in fragments]))
    ploidy_X = known_ploidy(panel, samples, sexes)
    ploidy_X[ploidy_X == 0] = 2
    phred_SX3 = np.empty((len(panel_index), len(samples), 3), np.uint8)
    depth_SX = np.empty(phred_SX3.shape[:2], np.uint16)
    for x, bases in enumerate(fragments):
        phred_S3, depth_S = phred_of_bases(bases, panel_index)
        phred_SX3[:, x] = stored_phred(phred_S3, ploidy_X[x] == 1)
        depth_SX[:, x] = stored_depth(depth_S)
    return GenotypeLikelihoods(
        samples,
        ploidy_X,
        panel_index,
        phred_SX3,
        depth_SX,
        len(requested_index),
        dict(+skipped),
        requested_index,
        bases_X=fragments,
    )
