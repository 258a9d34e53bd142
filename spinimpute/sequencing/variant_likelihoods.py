"""Genotype likelihoods from a VCF, VCF.gz or BCF: PL, GL or calls at a panel's sites.

Records are matched by position and alleles; those whose alleles are exchanged or of the other strand are
repaired as an array's sites are.

Axes: S sites, X samples; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.ploidy import HAPLOID_DIPLOID
from spinimpute.genotypes.sites import (
    ALLELES_DIFFER,
    DUPLICATE,
    NO_ALT,
    POSITION_NOT_IN_PANEL,
    NoMatch,
    Region,
    complement,
    unusable_alt,
)
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import argument
from spinimpute.sequencing.likelihoods import (
    GenotypeLikelihoods,
    check_region,
    known_ploidy,
    stored_depth,
    stored_phred,
)
from spinimpute.sequencing.record_likelihoods import LIKELIHOODS, stated_likelihoods
from spinimpute.sequencing.strands import REPAIRS, choose_strands, is_of_other_strand
from spinimpute.targets.liftover import Lift
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.header import definition
from spinimpute.vcf.text_faults import NO_SAMPLES
from spinimpute.vcf.variant_file import Record, VariantFile

LEAST_SHARE = 0.5  # of the records at the panel's positions must have its alleles (one in six has by chance),
FEW_RECORDS = 20  # unless there are so few
LEAST_SHARE_OF_OTHER_BUILD = 0.1  # of all sites, where the headers state different builds
LEAST_SHARE_OF_STRANDS = 0.8  # where either strand counts: half of them fit by chance
_BLOCK_SITES = 256  # converted at once
_TYPE = re.compile(r"[<,] *Type=(Integer|Float|String|Character|Flag)[,>]")
_NUMBERS = ("Integer", "Float")
_DEPTHS = ("AD", "DP")  # FORMAT fields with numbers of reads
ANY_OTHER_ALLELE = frozenset({"<*>", "<NON_REF>", "<X>"})
"""What callers write for all alleles that they have not seen: the panel's ALT may be one of them."""


def read_variant_likelihoods(
    path: str | Path,
    panel: ReferencePanel,
    region: Region | None = None,
    *,
    chain: str | Path | None = None,
    sexes: dict[str, bool] | None = None,
    role: str = "target",
) -> GenotypeLikelihoods:
    """Read the genotype likelihoods that a file states at the sites of a panel.

    What a record states of a sample is its PL, else its GL, else its genotype; nothing if it has none.
    Of a record with several ALT alleles those of the panel are taken, each with REF. A SNP whose REF and ALT
    are exchanged in the file is turned, one of the other strand is complemented; where there are such,
    A/T and C/G are taken on the strand that fits the panel's frequency, or left out.

    Parameters
    ----------
    path : str or Path
        A VCF, VCF.gz or BCF.
    panel : ReferencePanel
        A panel, or a part of one of X.
    region : Region or None
        The records to read: through the file's index if there is one that is not older than the file, else by
        reading all of it. None for all of the chromosome.
    chain : str, Path or None
        A chain file from the file's genome build to the panel's; then all of the chromosome is read.
    sexes : dict of str to bool or None
        Sample -> whether male, for X. The ploidy of others is that of most of what the file states of them.
    role : str
        What the file is, for messages.

    Returns
    -------
    GenotypeLikelihoods
        At the sites of the panel that the file has. Depths are those of AD, or else of DP.

    Raises
    ------
    InputError
        The file is missing, damaged or no VCF, or the chain file is none (see `Lift`); it has no samples,
        nothing on the chromosome (`NoRecord`), no record of a panel site (`NoMatch`), or other alleles at the
        panel's positions; or nowhere likelihoods or calls; or a value cannot be one.
    """
    check_region(region, panel)
    with VariantFile(path, role) as file:
        if not file.samples:
            raise file.error(NO_SAMPLES)
        lift = None if chain is None else Lift(chain, panel.chrom)
        records = ChromosomeRecords(file, None if lift else region, panel.chrom)
        found = _Found(file, panel, region, lift)
        for record in records:
            found.add(record)
        found.check(records)
        return found.likelihoods(sexes, records.skipped)


class _Found:
    """What records of a file state at the panel's sites."""

    def __init__(
        self, file: VariantFile, panel: ReferencePanel, region: Region | None, lift: Lift | None
    ) -> None:
        self._file, self._panel, self._region, self._lift = file, panel, region, lift
        self._keys = panel.sites.keys()
        self._position: list[int] = panel.position.tolist()
        self._taken = bytearray(len(self._position))  # 1 from a repaired record, 2 from one as it is
        self._skipped: Counter[str] = Counter()
        self._n_sites = 0  # biallelic ones, of the file
        # records at the panel's positions, those of them with its alleles, those that state something
        self._n_at_panel = self._n_fit = self._n_stated = 0
        self._n_other_strand = 0  # of those that fit
        self._repairs: list[str] = []  # what is done to each of _panel_index
        self._panel_index: list[int] = []
        self._counted_index: list[int] = []
        self._rows = _Rows(len(file.samples))
        self._types = _types_of_formats(file)
        self._warned = set[str]()

    def add(self, record: Record) -> None:
        """Take the likelihoods of the panel's alleles, and count the others."""
        ref, alts = self._file.alleles(record)
        alleles = [ref.upper(), *(alt.upper() for alt in alts)]
        position = record.POS
        if self._lift is not None:
            lifted = self._lift.alleles(position, alleles)
            if isinstance(lifted, str):
                self._n_sites += len(alts)
                self._skipped[lifted] += len(alts)
                return
            position, alleles = lifted
            if self._region is not None and not self._region.start <= position <= self._region.end:
                return
        self._n_sites += len(alts)
        first, stop = bisect_left(self._position, position), bisect_right(self._position, position)
        pairs, repairs = {}, {}
        for site in range(first, stop):
            _, ref, alt = self._keys[site]
            pair, other_strand = allele_numbers(alleles, ref, alt), False
            if pair is None:
                pair, other_strand = numbers_on_other_strand(alleles, ref, alt), True
            if pair is not None:
                pairs[site], repairs[site] = pair, REPAIRS[pair[0] > 0, other_strand]
        self._count(alleles, stop > first, pairs)
        self._n_other_strand += any(map(is_of_other_strand, repairs.values()))
        # a repaired record never takes the place of one that needs no repair
        new = [site for site in pairs if self._taken[site] < (1 if repairs[site] else 2)]
        if not new:
            return
        stated = stated_likelihoods(self._file, record, len(alleles), [pairs[site] for site in new])
        if stated is None:
            return
        self._n_stated += 1
        for site, phred_X3 in zip(new, stated.phreds, strict=True):
            self._taken[site] = 1 if repairs[site] else 2
            self._panel_index.append(site)
            self._repairs.append(repairs[site])
            reads_X = self._reads(record, pairs[site])
            if reads_X is not None:
                self._counted_index.append(site)
            self._rows.add(phred_X3, stated.copies_X, reads_X)

    def _count(self, alleles: Sequence[str], at_panel: bool, pairs: dict[int, tuple[int, int]]) -> None:
        if len(alleles) == 1:
            self._skipped[NO_ALT] += 1
            return
        used = {number for pair in pairs.values() for number in pair}
        for number, alt in enumerate(alleles[1:], start=1):
            if number not in used:
                elsewhere = ALLELES_DIFFER if at_panel else POSITION_NOT_IN_PANEL
                self._skipped[unusable_alt(alt) or elsewhere] += 1
        self._skipped[DUPLICATE] += sum(self._taken[site] > 0 for site in pairs)
        if at_panel and (pairs or not all(map(unusable_alt, alleles[1:]))):
            self._n_at_panel += 1
            self._n_fit += bool(pairs)

    def _reads(self, record: Record, pair: tuple[int, int]) -> np.ndarray | None:
        """How many reads each sample has, (X,), NaN where it is not said; None if it is of no sample."""
        formats = self._file.formats(record)
        for key in _DEPTHS:
            if key not in formats:
                continue
            if self._types.get(key) not in _NUMBERS:
                self._warn_of_depths(key)
                continue
            reads = self._file.numbers(record, key).values
            if key == "DP":
                reads_X = reads[:, 0]
            elif reads.shape[1] > max(pair):
                reads_X = reads[:, pair[0]] + reads[:, pair[1]]
            else:
                continue
            if not np.isnan(reads_X).all():
                return reads_X
        return None

    def _warn_of_depths(self, key: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            message = f"the header does not define {key} as numbers (Type=Integer): its depths are ignored"
            warnings.warn(str(self._file.error(message)), stacklevel=2)

    def check(self, records: ChromosomeRecords) -> None:
        """Raise InputError unless sites are the panel's and of its genome build, and something is stated."""
        counts = ", ".join(f"{reason}: {count}" for reason, count in (+self._skipped).items())
        chrom, position = self._panel.chrom, self._position
        built, panel_built = (infer_build(x.contig_line, chrom) for x in (records, self._panel))
        differ = bool(built and panel_built and built != panel_built and self._lift is None)
        stated = (
            f"The file is on {built} by its header, the panel on {panel_built}"
            if differ
            else "The file is probably on another genome build than the panel"
        )
        if not self._n_fit:
            raise self._file.error(
                f"none of its {self._n_sites} sites is one of the panel, {chrom}:{position[0]}-"
                f"{position[-1]} ({counts}). {stated}, or of another region: call the panel's sites",
                NoMatch,
            )
        if differ and self._n_fit < LEAST_SHARE_OF_OTHER_BUILD * self._n_sites:
            raise self._file.error(
                f"only {self._n_fit} of its {self._n_sites} sites are sites of the panel ({counts}). "
                f"{stated}: align and call on the panel's build, or lift the file over ({argument('chain')})"
            )
        n_same = self._n_fit - self._n_other_strand
        if (
            self._n_at_panel >= FEW_RECORDS
            and n_same < LEAST_SHARE * self._n_at_panel
            and self._n_fit < LEAST_SHARE_OF_STRANDS * self._n_at_panel
        ):
            other = f", and {self._n_other_strand} on the other strand" if self._n_other_strand else ""
            raise self._file.error(
                f"only {n_same} of its {self._n_at_panel} records at positions of the panel have the "
                f"panel's alleles{other} ({counts}). {stated}: align and call on the panel's build, or lift "
                f"the file over ({argument('chain')})"
            )
        if not self._n_stated:
            declared = " and ".join(key for key in LIKELIHOODS if self._file.declares(key))
            raise self._file.error(
                "no record of a panel site has likelihoods (PL or GL) or genotypes (GT); its header defines "
                f"{declared or 'none of them'}. Call them: bcftools mpileup -a AD | bcftools call -m -A"
            )

    def likelihoods(self, sexes: dict[str, bool] | None, skipped: dict[str, int]) -> GenotypeLikelihoods:
        """All of it in the order of the panel, each sample with one ploidy; `skipped` were not added."""
        samples = self._file.samples
        panel_index = np.array(self._panel_index, np.int64)
        order = np.argsort(panel_index, kind="stable")
        order = order[
            np.diff(panel_index[order], append=-1) != 0
        ]  # the last record that was taken for a site
        phred_SX3, copies_SX, depth_SX = self._rows.joined(order)
        repairs = [self._repairs[i] for i in order.tolist()]
        panel_index = panel_index[order]
        if self._n_other_strand:
            sites = self._panel.sites.take(panel_index)
            kept_S = choose_strands(sites, self._panel.frequency[panel_index], phred_SX3, repairs)
            panel_index, phred_SX3 = panel_index[kept_S], phred_SX3[kept_S]
            copies_SX, depth_SX = copies_SX[kept_S], depth_SX[kept_S]
        one_SX = copies_SX == 1
        known_X = known_ploidy(self._panel, samples, sexes)
        mostly_one_X = one_SX.sum(axis=0) > (copies_SX == 2).sum(axis=0)
        ploidy_X = np.where(known_X > 0, known_X, np.where(mostly_one_X, 1, 2)).astype(np.uint8)
        haploid_X = ploidy_X == 1
        if one_SX.any() or haploid_X.any():
            halved_SX = one_SX & ~haploid_X
            if halved_SX.any():
                self._skipped[HAPLOID_DIPLOID] += int(halved_SX.sum())
                phred_SX3[halved_SX] = 0
            phred_SX3[:, haploid_X] = stored_phred(phred_SX3[:, haploid_X].astype(np.int16), True)
        if not (phred_SX3[:, :, ::2].any() or phred_SX3[:, ~haploid_X].any()):
            raise self._file.error(
                f"all likelihoods and genotypes are missing, of all {len(samples)} samples at the "
                f"{len(panel_index)} sites of the panel that it has: there is nothing to impute from",
                NoMatch,
            )
        return GenotypeLikelihoods(
            samples,
            ploidy_X,
            panel_index,
            phred_SX3,
            depth_SX if self._counted_index else None,
            self._n_sites,
            dict(self._skipped + Counter(skipped)),
            np.intersect1d(np.array(self._counted_index, np.int64), panel_index),
            dict(Counter(filter(None, repairs))),
        )


def _types_of_formats(file: VariantFile) -> dict[str, str]:
    """The types of FORMAT fields by a file's header; "" for none of those that there are.

    Raises InputError for likelihoods without a type, which cannot be read.
    """
    types: dict[str, str] = {}
    for line in file.header.splitlines():
        kind, key = definition(line) or ("", "")
        if kind == "FORMAT":
            stated = _TYPE.search(line)
            types.setdefault(key, stated[1] if stated else "")
    for key, right in (("PL", "Integer"), ("GL", "Float")):
        if types.get(key) == "":
            raise file.error(
                f"its header line of {key} states no valid Type; write Type={right} there (bcftools reheader)"
            )
    return types


class _Rows:
    """Arrays that grow by a site; sites are converted many at a time, which saves most of the time."""

    def __init__(self, n_samples: int) -> None:
        self._n_samples = n_samples
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._no_reads = np.zeros(n_samples, np.float32)
        self._phred, self._copies, self._depth = bytearray(), bytearray(), bytearray()

    def add(self, phred_X3: np.ndarray, copies_X: np.ndarray, reads_X: np.ndarray | None) -> None:
        self._new.append((phred_X3, copies_X, self._no_reads if reads_X is None else reads_X))
        if len(self._new) == _BLOCK_SITES:
            self._convert()

    def _convert(self) -> None:
        phred_SX3, copies_SX, reads_SX = map(np.array, zip(*self._new, strict=True))
        self._phred += stored_phred(phred_SX3, copies_SX == 1).tobytes()
        self._copies += copies_SX.tobytes()
        self._depth += stored_depth(np.nan_to_num(reads_SX)).tobytes()
        self._new = []

    def joined(self, order_S: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Likelihoods uint8 (S, X, 3), numbers of alleles uint8 (S, X), depths uint16 (S, X) of rows."""
        if self._new:
            self._convert()
        shape = (-1, self._n_samples)
        phred_SX3 = np.frombuffer(self._phred, np.uint8).reshape(*shape, 3)[order_S]
        copies_SX = np.frombuffer(self._copies, np.uint8).reshape(shape)[order_S]
        depth_SX = np.frombuffer(self._depth, np.uint16).reshape(shape)[order_S]
        return phred_SX3, copies_SX, depth_SX


def numbers_on_other_strand(alleles: Sequence[str], ref: str, alt: str) -> tuple[int, int] | None:
    """Which alleles of a record are those of a panel site, read from the other strand.

    Parameters
    ----------
    alleles, ref, alt : sequence of str, str, str
        As of `allele_numbers`.

    Returns
    -------
    (int, int) or None
        Their numbers; None if the site is no SNP, if it reads the same from both strands, if the record does
        not list both alleles, or if neither is its REF: two ALTs are another site of this strand.
    """
    other_ref, other_alt = complement(ref), complement(alt)
    if len(ref) > 1 or len(alt) > 1 or other_ref == alt or not {other_ref, other_alt} <= set(alleles):
        return None
    pair = allele_numbers(alleles, other_ref, other_alt)
    return pair if pair is not None and 0 in pair else None


def allele_numbers(alleles: Sequence[str], ref: str, alt: str) -> tuple[int, int] | None:
    """Which alleles of a record are those of a panel site.

    Parameters
    ----------
    alleles : sequence of str
        REF and the ALT alleles of the record, in upper case.
    ref, alt : str
        Of the panel site, in upper case.

    Returns
    -------
    (int, int) or None
        Their numbers; None if they are not all there. A single base that the record does not list is what it
        lists as any other allele. REF is another one than the record's only where both have the same length:
        an insertion is no deletion of the same letters.
    """
    if ref not in alleles:
        return None
    number = {allele: i for i, allele in reversed(list(enumerate(alleles)))}
    if number[ref] and len(ref) != len(alt):
        return None
    if alt in number:
        return number[ref], number[alt]
    any_other = next((number[allele] for allele in ANY_OTHER_ALLELE if allele in number), None)
    return None if any_other is None or len(ref) > 1 or len(alt) > 1 else (number[ref], any_other)
