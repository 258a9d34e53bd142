"""Genotype likelihoods from a VCF, VCF.gz or BCF file: PL, GL or calls at the panel's sites.

Records are matched to panel sites by position and alleles. A record may have REF and ALT exchanged, or the
alleles of the other strand. Such records are repaired, as in array data.

Axes: S sites, X samples, and an axis of length 3 for genotypes with 0, 1 and 2 copies of ALT.
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
from spinimpute.genotypes.structural import ANY_OTHER_ALLELE, SPANNED
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

# A file with at least FEW_RECORDS records at panel positions is refused if less than this share of them has
# the panel's alleles. By chance, a quarter has them (if two of three SNPs are transitions).
MIN_SHARE = 0.5
FEW_RECORDS = 20
# A file whose header names another build than the panel's must have this share of its sites in the panel.
MIN_SHARE_OTHER_BUILD = 0.1
# A file is accepted in spite of MIN_SHARE if this share of the records has the panel's alleles on either
# strand. By chance, half of the records do.
MIN_SHARE_BOTH_STRANDS = 0.8
_BLOCK_SITES = 256  # sites that are converted together, which is faster than one by one
_DEPTHS = ("AD", "DP")  # FORMAT fields with numbers of reads
# kind of repair, by whether the panel's REF is an ALT of the record, and whether it is on the other strand
_REPAIRS = {(False, False): "", (True, False): SWAPPED, (False, True): OTHER_STRAND, (True, True): BOTH}


def read_variant_likelihoods(
    path: str | Path,
    panel: ReferencePanel,
    region: Region | None = None,
    *,
    chain: str | Path | None = None,
    sexes: dict[str, bool] | None = None,
    role: str = "target",
) -> GenotypeLikelihoods:
    """Return the genotype likelihoods in a file at the panel's sites.

    For each sample, PL is used if the record has it, else GL, else the called genotype. A record with several
    ALT alleles can match several panel sites. SNPs with exchanged alleles or alleles of the other strand are
    repaired. If there are SNPs of the other strand, the strand of A/T and C/G SNPs is decided by the panel's
    frequency, and the SNP is skipped if this is uncertain. Depths are read from AD, or else from DP.

    A region is read through the file's index. If the index is missing or older than the file, the file is
    read from its start. With a `chain` file that lifts positions to the panel's build, the whole chromosome
    is read. `sexes` maps samples to whether they are male, for X. A sample that is not in it gets the ploidy
    of most of its genotypes.

    Raises InputError if the file is missing or damaged or has no samples, if values are invalid, or if its
    alleles differ from the panel's; `NoRecord` if it has no record of the chromosome; `NoMatch` if it has no
    record of a panel site, or if all data are missing.
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
    """Collector of the likelihoods that a file's records have at the panel's sites."""

    def __init__(
        self, file: VariantFile, panel: ReferencePanel, region: Region | None, lift: Lift | None
    ) -> None:
        self._file, self._panel, self._region, self._lift = file, panel, region, lift
        self._keys = panel.sites.keys()
        self._position: list[int] = panel.position.tolist()
        # for each panel site: 0 not found, 1 found in a record that needs a repair, 2 found unchanged
        self._match_rank = bytearray(len(self._position))
        self._skipped: Counter[str] = Counter()
        self._n_sites = 0  # biallelic sites of the file
        # number of records at panel positions; of these, with the panel's alleles; of these, with likelihoods
        # (or calls) that were stored
        self._n_at_panel = self._n_matched = self._n_with_data = 0
        self._n_other_strand = 0  # matched records that are on the other strand
        self._repairs: list[str] = []  # kind of repair for each entry of _panel_index, "" for none
        self._panel_index: list[int] = []
        self._depth_index: list[int] = []  # panel sites whose record has depths
        self._rows = _Rows(len(file.samples))
        self._warned = set[str]()

    def add(self, record: Record) -> None:
        """Add a record: store the likelihoods of the panel's alleles, and count the other alleles."""
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
        # the first record of a site is used, but a record without repairs replaces one with repairs
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
                self._depth_index.append(site)
            self._rows.add(phred_X3, found.call_ploidy_X, reads_X)

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
        """Return the number of reads of each sample, NaN if missing; None if all are missing."""
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
        """Raise InputError if too few records fit the panel and its genome build, or none has likelihoods."""
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
                f"none of its {self._n_sites} sites is in the panel, which covers {chrom}:{position[0]}-"
                f"{position[-1]} ({counts}). {cause}. The file may also be of another region. Call the "
                "panel's sites.",
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
        """Return the collected likelihoods. `skipped` counts records that were not passed to `add`."""
        samples = self._file.samples
        panel_index = np.array(self._panel_index, np.int64)
        order = np.argsort(panel_index, kind="stable")
        order = order[np.diff(panel_index[order], append=-1) != 0]  # of two records, the later has no repairs
        phred_SX3, call_ploidy_SX, depth_SX = self._rows.select(order)
        repairs = [self._repairs[i] for i in order.tolist()]
        panel_index = panel_index[order]
        if self._n_other_strand:
            sites = self._panel.sites.take(panel_index)
            kept_S = _choose_strands(sites, self._panel.frequency[panel_index], phred_SX3, repairs)
            panel_index, phred_SX3 = panel_index[kept_S], phred_SX3[kept_S]
            call_ploidy_SX, depth_SX = call_ploidy_SX[kept_S], depth_SX[kept_S]
        haploid_call_SX = call_ploidy_SX == 1
        known_X = known_ploidy(self._panel, samples, sexes)
        mostly_one_X = haploid_call_SX.sum(axis=0) > (call_ploidy_SX == 2).sum(axis=0)
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
                f"likelihoods and genotypes of all {len(samples)} samples are missing at all "
                f"{len(panel_index)} panel sites of the file. Nothing can be imputed.",
                kind=NoMatch,
            )
        return GenotypeLikelihoods(
            samples,
            ploidy_X,
            panel_index,
            phred_SX3,
            depth_SX if self._depth_index else None,
            self._n_sites,
            dict(self._skipped + Counter(skipped)),
            np.intersect1d(np.array(self._depth_index, np.int64), panel_index),
            dict(Counter(filter(None, repairs))),
        )


class _Rows:
    """Growing arrays with a row for each site. Rows are converted in blocks, which is much faster."""

    def __init__(self, n_samples: int) -> None:
        self._n_samples = n_samples
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._no_reads = np.zeros(n_samples, np.float32)
        self._phred, self._call_ploidy, self._depth = bytearray(), bytearray(), bytearray()

    def add(self, phred_X3: np.ndarray, call_ploidy_X: np.ndarray, reads_X: np.ndarray | None) -> None:
        self._new.append((phred_X3, call_ploidy_X, self._no_reads if reads_X is None else reads_X))
        if len(self._new) == _BLOCK_SITES:
            self._convert()

    def _convert(self) -> None:
        phred_SX3, call_ploidy_SX, reads_SX = map(np.array, zip(*self._new, strict=True))
        self._phred += stored_phred(phred_SX3, call_ploidy_SX == 1).tobytes()
        self._call_ploidy += call_ploidy_SX.tobytes()
        self._depth += stored_depth(np.nan_to_num(reads_SX)).tobytes()
        self._new = []

    def select(self, order_S: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return some rows: likelihoods uint8 (S, X, 3), ploidy uint8 (S, X), depth uint16 (S, X)."""
        if self._new:
            self._convert()
        shape = (-1, self._n_samples)
        phred_SX3 = np.frombuffer(self._phred, np.uint8).reshape(*shape, 3)[order_S]
        call_ploidy_SX = np.frombuffer(self._call_ploidy, np.uint8).reshape(shape)[order_S]
        depth_SX = np.frombuffer(self._depth, np.uint16).reshape(shape)[order_S]
        return phred_SX3, call_ploidy_SX, depth_SX


def _is_other_strand(repair: str) -> bool:
    """Return whether a repaired record is on the other strand."""
    return repair in (OTHER_STRAND, BOTH)


def _choose_strands(
    sites: Sites, frequency_S: np.ndarray, phred_SX3: np.ndarray, repairs: list[str]
) -> np.ndarray:
    """Decide the strand of A/T and C/G SNPs by the panel's frequencies. Return the sites to keep, bool (S,).

    The two alleles of these SNPs are complementary, so the alleles do not tell the strand. The prior
    probability of a strand is its share among the other SNPs. Sites whose strand stays unknown are not kept.
    For sites on the other strand, `phred_SX3` and `repairs` are changed in place.
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
    """Return the numbers of the panel's REF and ALT in a record of the other strand, see `find_alleles`.

    The result is None if the site is not a SNP, if its alleles are the same on both strands (A/T, C/G), or if
    the record lacks an allele. It is also None if neither complemented allele is the record's REF: the record
    is then more likely on the panel's strand, and has these bases as two of its ALTs.
    """
    other_ref, other_alt = complement(ref), complement(alt)
    if len(ref) > 1 or len(alt) > 1 or other_ref == alt or not {other_ref, other_alt} <= set(alleles):
        return None
    pair = find_alleles(alleles, other_ref, other_alt)
    return pair if pair is not None and 0 in pair else None


def find_alleles(alleles: Sequence[str], ref: str, alt: str) -> tuple[int, int] | None:
    """Return the numbers of a panel site's REF and ALT in a record's `alleles`; None if one is missing.

    Alleles are in upper case. A single-base ALT that the record does not list gets the number of the symbol
    for all unobserved alleles (`ANY_OTHER_ALLELE`), if the record has one. The panel's REF may be an ALT of
    the record only if both panel alleles have the same length: an insertion is not a deletion of the same
    bases.
    """
    if ref not in alleles:
        return None
    number = {allele: i for i, allele in reversed(list(enumerate(alleles)))}
    if number[ref] and len(ref) != len(alt):
        return None
    if alt in number:
        return number[ref], number[alt]
    any_other = next((number[allele] for allele in ANY_OTHER_ALLELE if allele in number), None)
    if any_other is None or len(ref) > 1 or len(alt) > 1 or alt == SPANNED:
        return None
    return number[ref], any_other
