"""Genotype likelihoods from a VCF, VCF.gz or BCF: PL, GL or calls at a panel's sites.

Records are matched by position and alleles. Exchanged alleles and alleles of the other strand are repaired
like those of an array.

Axes: S sites, X samples; 3: copies of ALT, 0 to 2.
"""

import math
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
    Sites,
    complement,
    unusable_alt,
)
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, argument
from spinimpute.sequencing.likelihoods import (
    GenotypeLikelihoods,
    check_region,
    known_ploidy,
    stored_depth,
    stored_phred,
)
from spinimpute.sequencing.record_likelihoods import LIKELIHOODS, likelihoods_of_record
from spinimpute.targets.liftover import Lift
from spinimpute.targets.repair import (
    BOTH,
    MIN_LOG_ODDS,
    OTHER_STRAND,
    STRAND_BY_FREQUENCY,
    STRAND_UNKNOWN,
    SWAPPED,
)
from spinimpute.vcf.chromosome_records import ChromosomeRecords
from spinimpute.vcf.variant_file import NO_SAMPLES, Record, VariantFile

# minimum share of the records at positions of the panel that have its alleles, unless there are few records;
# one in six has by chance
MIN_SHARE = 0.5
FEW_RECORDS = 20
MIN_SHARE_OTHER_BUILD = 0.1  # of all sites, if the headers name different builds
MIN_SHARE_BOTH_STRANDS = 0.8  # if either strand counts: half of the records fit by chance
_BLOCK_SITES = 256  # sites that are converted at once
_DEPTHS = ("AD", "DP")  # FORMAT fields with numbers of reads
# symbols of callers for all alleles that they have not observed, which may include the panel's ALT
ANY_OTHER_ALLELE = frozenset({"<*>", "<NON_REF>", "<X>"})
# the repair of a record, by whether its REF is the panel's ALT and whether it is of the other strand
_REPAIRS = {
    (False, False): "",
    (True, False): SWAPPED,
    (False, True): OTHER_STRAND,
    (True, True): BOTH,
}


def read_variant_likelihoods(
    path: str | Path,
    panel: ReferencePanel,
    region: Region | None = None,
    *,
    chain: str | Path | None = None,
    sexes: dict[str, bool] | None = None,
    role: str = "target",
) -> GenotypeLikelihoods:
    """The genotype likelihoods of a file at the sites of a panel.

    For each sample, a record's PL counts, else its GL, else its genotype. The ALT alleles of the panel are
    taken from records with several ALT alleles, each with REF. Exchanged and complemented SNPs are repaired;
    where there are complemented ones, A/T and C/G SNPs are taken on the strand that fits the panel's
    frequency, or left out. Depths are those of AD, else of DP.

    A region is read through the file's index, unless the index is missing or older than the file. With a
    `chain` file to the panel's build the whole chromosome is read. `sexes` maps samples to whether they are
    male, for X; the ploidy of other samples is the most frequent one of their data.

    Raises InputError for a missing or damaged file, for invalid values, without samples, without a record of
    the chromosome (`NoRecord`), without a record of a panel site or without data (`NoMatch`), or if alleles
    differ from the panel's.
    """
    check_region(region, panel)
    with VariantFile(path, role) as file:
        if not file.samples:
            raise file.error(NO_SAMPLES)
        lift = None if chain is None else Lift(chain, panel.chrom)
        records = ChromosomeRecords(file, None if lift else region, panel.chrom)
        collector = _RecordCollector(file, panel, region, lift)
        for record in records:
            collector.add(record)
        collector.check(records)
        return collector.likelihoods(sexes, records.skipped)


class _RecordCollector:
    """Collects the likelihoods of a file's records at the panel's sites."""

    def __init__(
        self, file: VariantFile, panel: ReferencePanel, region: Region | None, lift: Lift | None
    ) -> None:
        self._file, self._panel, self._region, self._lift = file, panel, region, lift
        self._keys = panel.sites.keys()
        self._position: list[int] = panel.position.tolist()
        self._match_rank = bytearray(len(self._position))  # 1 by a repaired record, 2 by an unchanged one
        self._skipped: Counter[str] = Counter()
        self._n_sites = 0  # biallelic sites of the file
        # records at the panel's positions, those with its alleles, and those that also have likelihoods
        self._n_at_panel = self._n_matched = self._n_with_data = 0
        self._n_other_strand = 0  # of the records with the panel's alleles
        self._repairs: list[str] = []  # of each of _panel_index
        self._panel_index: list[int] = []
        self._counted_index: list[int] = []
        self._rows = _Rows(len(file.samples))
        self._warned = set[str]()

    def add(self, record: Record) -> None:
        """Add the likelihoods of the panel's alleles, and count other alleles."""
        ref, alts = self._file.alleles(record)
        alleles = [ref.upper(), *(alt.upper() for alt in alts)]
        position = record.POS
        if self._lift is not None:
            lifted = self._lift.convert_alleles(position, alleles)
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
            pair, other_strand = find_alleles(alleles, ref, alt), False
            if pair is None:
                pair, other_strand = find_alleles_on_other_strand(alleles, ref, alt), True
            if pair is not None:
                pairs[site], repairs[site] = pair, _REPAIRS[pair[0] > 0, other_strand]
        self._count_alleles(alleles, stop > first, pairs)
        self._n_other_strand += any(map(_is_other_strand, repairs.values()))
        # a repaired record never replaces one that needs no repair
        new = [site for site in pairs if self._match_rank[site] < (1 if repairs[site] else 2)]
        if not new:
            return
        found = likelihoods_of_record(self._file, record, len(alleles), [pairs[site] for site in new])
        if found is None:
            return
        self._n_with_data += 1
        for site, phred_X3 in zip(new, found.phreds, strict=True):
            self._match_rank[site] = 1 if repairs[site] else 2
            self._panel_index.append(site)
            self._repairs.append(repairs[site])
            reads_X = self._read_depths(record, pairs[site])
            if reads_X is not None:
                self._counted_index.append(site)
            self._rows.add(phred_X3, found.copies_X, reads_X)

    def _count_alleles(
        self, alleles: Sequence[str], at_panel: bool, pairs: dict[int, tuple[int, int]]
    ) -> None:
        if len(alleles) == 1:
            self._skipped[NO_ALT] += 1
            return
        used = {number for pair in pairs.values() for number in pair}
        for number, alt in enumerate(alleles[1:], start=1):
            if number not in used:
                elsewhere = ALLELES_DIFFER if at_panel else POSITION_NOT_IN_PANEL
                self._skipped[unusable_alt(alt) or elsewhere] += 1
        self._skipped[DUPLICATE] += sum(self._match_rank[site] > 0 for site in pairs)
        if at_panel and (pairs or not all(map(unusable_alt, alleles[1:]))):
            self._n_at_panel += 1
            self._n_matched += bool(pairs)

    def _read_depths(self, record: Record, pair: tuple[int, int]) -> np.ndarray | None:
        """Numbers of reads of the samples, NaN if missing; None if all are missing."""
        formats = self._file.formats(record)
        for key in _DEPTHS:
            if key not in formats:
                continue
            try:
                reads = self._file.numbers(record, key).values
            except InputError:
                self._warn_of_depths(key)
                continue
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
        """Raise InputError unless records fit the panel and its genome build, and have likelihoods."""
        counts = ", ".join(f"{reason}: {count}" for reason, count in (+self._skipped).items())
        chrom, position = self._panel.chrom, self._position
        build, panel_build = (infer_build(x.contig_line, chrom) for x in (records, self._panel))
        differ = bool(build and panel_build and build != panel_build and self._lift is None)
        cause = (
            f"The file is on {build} according to its header, the panel on {panel_build}"
            if differ
            else "The file is probably on another genome build than the panel"
        )
        advice = f"Align and call on the panel's build, or lift the file over ({argument('chain')})."
        if not self._n_matched:
            raise self._file.error(
                f"none of its {self._n_sites} sites is one of the panel, {chrom}:{position[0]}-"
                f"{position[-1]} ({counts}). {cause}, or of another region. Call the panel's sites.",
                kind=NoMatch,
            )
        if differ and self._n_matched < MIN_SHARE_OTHER_BUILD * self._n_sites:
            raise self._file.error(
                f"only {self._n_matched} of its {self._n_sites} sites are sites of the panel ({counts}). "
                f"{cause}. {advice}"
            )
        n_same = self._n_matched - self._n_other_strand
        if (
            self._n_at_panel >= FEW_RECORDS
            and n_same < MIN_SHARE * self._n_at_panel
            and self._n_matched < MIN_SHARE_BOTH_STRANDS * self._n_at_panel
        ):
            other = f", and {self._n_other_strand} on the other strand" if self._n_other_strand else ""
            raise self._file.error(
                f"only {n_same} of its {self._n_at_panel} records at positions of the panel have the "
                f"panel's alleles{other} ({counts}). {cause}. {advice}"
            )
        if not self._n_with_data:
            declared = " and ".join(key for key in LIKELIHOODS if self._file.declares(key))
            raise self._file.error(
                "no record of a panel site has likelihoods (PL or GL) or genotypes (GT); its header defines "
                f"{declared or 'none of them'}. Call them: bcftools mpileup -a AD | bcftools call -m -A"
            )

    def likelihoods(self, sexes: dict[str, bool] | None, skipped: dict[str, int]) -> GenotypeLikelihoods:
        """The likelihoods in the order of the panel; `skipped` counts records that were not added."""
        samples = self._file.samples
        panel_index = np.array(self._panel_index, np.int64)
        order = np.argsort(panel_index, kind="stable")
        order = order[np.diff(panel_index[order], append=-1) != 0]  # the last added record of each site
        phred_SX3, copies_SX, depth_SX = self._rows.select(order)
        repairs = [self._repairs[i] for i in order.tolist()]
        panel_index = panel_index[order]
        if self._n_other_strand:
            sites = self._panel.sites.take(panel_index)
            kept_S = _choose_strands(sites, self._panel.frequency[panel_index], phred_SX3, repairs)
            panel_index, phred_SX3 = panel_index[kept_S], phred_SX3[kept_S]
            copies_SX, depth_SX = copies_SX[kept_S], depth_SX[kept_S]
        haploid_call_SX = copies_SX == 1
        known_X = known_ploidy(self._panel, samples, sexes)
        mostly_one_X = haploid_call_SX.sum(axis=0) > (copies_SX == 2).sum(axis=0)
        ploidy_X = np.where(known_X > 0, known_X, np.where(mostly_one_X, 1, 2)).astype(np.uint8)
        haploid_X = ploidy_X == 1
        if haploid_call_SX.any() or haploid_X.any():
            unexpected_SX = haploid_call_SX & ~haploid_X
            if unexpected_SX.any():
                self._skipped[HAPLOID_DIPLOID] += int(unexpected_SX.sum())
                phred_SX3[unexpected_SX] = 0
            phred_SX3[:, haploid_X] = stored_phred(phred_SX3[:, haploid_X].astype(np.int16), True)
        if not (phred_SX3[:, :, ::2].any() or phred_SX3[:, ~haploid_X].any()):
            raise self._file.error(
                f"all likelihoods and genotypes are missing, of all {len(samples)} samples at its "
                f"{len(panel_index)} sites of the panel. Nothing can be imputed.",
                kind=NoMatch,
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


class _Rows:
    """Growing arrays with a row for each site; converting many rows at once saves most of the time."""

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

    def select(self, order_S: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Some rows: likelihoods uint8 (S, X, 3), ploidies uint8 (S, X), depths uint16 (S, X)."""
        if self._new:
            self._convert()
        shape = (-1, self._n_samples)
        phred_SX3 = np.frombuffer(self._phred, np.uint8).reshape(*shape, 3)[order_S]
        copies_SX = np.frombuffer(self._copies, np.uint8).reshape(shape)[order_S]
        depth_SX = np.frombuffer(self._depth, np.uint16).reshape(shape)[order_S]
        return phred_SX3, copies_SX, depth_SX


def _is_other_strand(repair: str) -> bool:
    """Whether the repaired record is of the other strand."""
    return repair in (OTHER_STRAND, BOTH)


def _choose_strands(
    sites: Sites, frequency_S: np.ndarray, phred_SX3: np.ndarray, repairs: list[str]
) -> np.ndarray:
    """Decide the strand of A/T and C/G SNPs by the panel's frequencies, if other SNPs are of both strands.

    Likelihoods of SNPs on the other strand are turned, and `repairs` changed, in place. Returns which sites
    to keep, bool (S,): not those of unknown strand.
    """
    pairs = zip(sites.ref, sites.alt, strict=True)
    ambiguous_S = np.array([complement(ref.upper()) == alt.upper() for ref, alt in pairs])
    others = [repair for repair, ambiguous in zip(repairs, ambiguous_S, strict=True) if not ambiguous]
    flipped = sum(map(_is_other_strand, others))
    prior = math.log((len(others) - flipped + 1) / (flipped + 1))
    kept_S = np.ones(len(repairs), bool)
    for s in np.flatnonzero(ambiguous_S).tolist():
        p = float(np.clip(frequency_S[s], 1e-3, 1 - 1e-3))
        genotype_3 = np.array([(1 - p) ** 2, 2 * p * (1 - p), p**2])
        likelihood_X3 = 10 ** (phred_SX3[s] / -10.0)
        as_written_X, turned_X = likelihood_X3 @ genotype_3, likelihood_X3 @ genotype_3[::-1]
        evidence = prior + float(np.log(as_written_X / turned_X).sum())
        if evidence >= MIN_LOG_ODDS:
            continue
        kept_S[s] = evidence <= -MIN_LOG_ODDS
        repairs[s] = STRAND_BY_FREQUENCY if kept_S[s] else STRAND_UNKNOWN
        phred_SX3[s] = phred_SX3[s, :, ::-1]
    return kept_S


def find_alleles_on_other_strand(alleles: Sequence[str], ref: str, alt: str) -> tuple[int, int] | None:
    """Numbers of the alleles in a record of the other strand, as in `find_alleles`.

    None if the site is not a SNP, if it reads equally from both strands, if the record lacks an allele, or if
    neither is its REF: two ALTs are another site of this strand.
    """
    other_ref, other_alt = complement(ref), complement(alt)
    if len(ref) > 1 or len(alt) > 1 or other_ref == alt or not {other_ref, other_alt} <= set(alleles):
        return None
    pair = find_alleles(alleles, other_ref, other_alt)
    return pair if pair is not None and 0 in pair else None


def find_alleles(alleles: Sequence[str], ref: str, alt: str) -> tuple[int, int] | None:
    """Numbers of a panel site's REF and ALT among a record's alleles, in upper case; None if one is missing.

    A single base that the record does not list is one of its "any other allele". REF may be an ALT of the
    record only if both have the same length: an insertion is not a deletion of the same letters.
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
