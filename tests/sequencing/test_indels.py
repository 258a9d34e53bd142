"""Insertions and deletions in reads: by hand, and of simulated haplotypes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pysam
import pytest

from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.indels import BEYOND, HIGHEST_QUALITY, SLIPPING, Indel, indel_of
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods
from spinimpute.sequencing.pileup import PileupSettings, read_alignments

PanelOf = Callable[..., SimpleNamespace]
WriteReads = Callable[..., Path]
WITH_INDELS = PileupSettings(indels=True)
# 20 letters, what is inserted or deleted, 20 letters; position 120 is the last G before it
LEFT, RIGHT = "ACTACTTCCATACTTCATCG", "TGACCTAGGATCTTAGCAAC"
LEFT_AT, BEFORE = 101, 120


@pytest.mark.parametrize(
    ("ref", "alt", "expected"),
    [
        ("A", "ACA", Indel(99, "CA", True, False)),
        ("A", "AC", Indel(99, "C", True, True)),
        ("ACG", "A", Indel(99, "CG", False, True)),
        ("aca", "a", Indel(99, "CA", False, False)),
        ("ACTT", "ACT", Indel(100, "T", False, True)),
        ("CAT", "CAAT", Indel(99, "A", True, True)),
        ("GAT", "GAAAT", Indel(99, "AA", True, True)),
        ("A", "C", None),
        ("AC", "GT", None),
        ("AC", "G", None),
        ("AC", "TCG", None),
        ("A", "<DEL>", None),
        ("A", "*", None),
        ("A", "AN", None),
    ],
)
def test_alleles(ref: str, alt: str, expected: Indel | None) -> None:
    assert indel_of(100, ref, alt) == expected


def columns(found: GenotypeLikelihoods) -> list[tuple[int, int, int]]:
    """(site, allele, quality) of the only sample."""
    (bases,) = found.bases_X
    arrays = (bases.panel_index, bases.allele, bases.quality)
    return list(zip(*(array.tolist() for array in arrays), strict=True))


@pytest.fixture
def shown(write_reads: WriteReads, panel_of: PanelOf) -> Callable[..., Any]:
    """shown(site, CIGAR, letters): allele and quality of the only read, or what was skipped.

    The read begins at 101, or a keyword says where; SNPs of it do not count.
    """

    def look(
        site: tuple[int, str, str], cigar: str, letters: str, at: int = LEFT_AT, qualities: str | None = None
    ) -> Any:
        reads = [
            ("r", at, cigar, letters, qualities or "I" * len(letters)),
            ("elsewhere", 500, "1M", "A", "I"),
        ]
        panel = panel_of([site, (500, "A", "C")])
        found = read_alignments([write_reads(reads)], panel, settings=WITH_INDELS)
        of_site = [row[1:] for row in columns(found) if row[0] == 0]
        assert len(of_site) <= 1
        return of_site[0] if of_site else found.skipped

    return look


Look = Callable[..., Any]
OTHER = {"fragments at a site with another allele": 1}


@pytest.mark.parametrize(
    ("cigar", "middle", "expected"),
    [
        ("40M", "", (0, HIGHEST_QUALITY)),
        ("20M2I20M", "AC", (1, HIGHEST_QUALITY)),
        ("20=2I5=1X14=", "AC", (1, HIGHEST_QUALITY)),
        ("20M2I20M", "AT", OTHER),
        ("20M1I20M", "A", OTHER),
        ("20M3I20M", "ACA", OTHER),
        ("20M2D20M", "", OTHER),
        ("22M2I18M", "AC", OTHER),
        ("20M1I1D1I20M", "AC", OTHER),
        ("20M2N20M", "", {}),
        ("20M20S", "", {}),
        ("5S15M20M", "", (0, HIGHEST_QUALITY)),
        ("9S31M", "", {}),
    ],
)
def test_an_insertion(shown: Look, cigar: str, middle: str, expected: Any) -> None:
    at = LEFT_AT + (int(cigar[0]) if cigar[1] == "S" else 0)
    assert shown((BEFORE, "G", "GAC"), cigar, LEFT + middle + RIGHT, at) == expected


@pytest.mark.parametrize(
    ("cigar", "middle", "expected"),
    [
        ("43M", "TCA", (0, HIGHEST_QUALITY)),
        ("20M3D20M", "", (1, HIGHEST_QUALITY)),
        ("2H20M3D20M1P", "", (1, HIGHEST_QUALITY)),
        ("20M2D20M", "", OTHER),
        ("20M4D20M", "", OTHER),
        ("20M3I20M", "TCA", OTHER),
        ("19M3D21M", "", {}),
        ("20M3D5M1I14M", "", OTHER),
    ],
)
def test_a_deletion(shown: Look, cigar: str, middle: str, expected: Any) -> None:
    assert shown((BEFORE, "GTCA", "G"), cigar, LEFT + middle + RIGHT) == expected


def test_one_letter_in_ten_of_an_insertion_may_be_wrong(shown: Look) -> None:
    inserted = "ACCATTCAAC"
    site = (BEFORE, "G", "G" + inserted)
    for wrong, expected in (("ACCATTCAAG", (1, HIGHEST_QUALITY)), ("ACCTTTCAAG", OTHER)):
        assert shown(site, "20M10I20M", LEFT + wrong + RIGHT) == expected


@pytest.mark.parametrize("n_copies", [1, 2, 4, 9, 12])
@pytest.mark.parametrize("unit", ["A", "CA"])
def test_a_repeat(shown: Look, unit: str, n_copies: int) -> None:
    """n copies or one less: only reads beyond the repeat count, and less for many copies."""
    site = (BEFORE, "G" + unit, "G")
    n_letters = len(unit)
    quality = min(HIGHEST_QUALITY, round(SLIPPING / n_copies))
    right = unit * n_copies + RIGHT
    enough = len(unit) * (n_copies + 1) + BEYOND
    for n_right in range(enough - 3, enough + 2):
        expected = (quality,) if n_right >= enough else ()
        of_ref = shown(site, f"{20 + n_right}M", LEFT + right[:n_right])
        assert of_ref == (0, *expected) if expected else of_ref == {}
        letters = LEFT + right[n_letters : n_letters + n_right]
        of_alt = shown(site, f"20M{n_letters}D{n_right}M", letters)
        assert of_alt == (1, *expected) if expected else of_alt == {}
        # an insertion of the last copy
        added = (BEFORE, "G", "G" + unit)
        fewer = unit * (n_copies - 1) + RIGHT
        of_ref = shown(added, f"{20 + n_right}M", LEFT + fewer[:n_right])
        assert of_ref == (0, *expected) if expected else of_ref == {}
        letters, cigar = LEFT + (unit + fewer)[:n_right], f"20M{n_letters}I{n_right - n_letters}M"
        of_alt = shown(added, cigar, letters)
        assert of_alt == (1, *expected) if expected else of_alt == {}


@pytest.mark.parametrize(("n_wrong", "counts"), [(1, False), (2, True)])
def test_a_sequencing_error_does_not_end_a_repeat(shown: Look, n_wrong: int, counts: bool) -> None:
    """A read that ends within a repeat does not count; with several errors there is no repeat."""
    repeat = list("A" * 40)
    repeat[12 : 12 + n_wrong] = "C" * n_wrong
    found = shown((BEFORE, "G", "GA"), "60M", LEFT + "".join(repeat))
    assert found == ((0, round(SLIPPING / 13)) if counts else {})


def test_unknown_bases_may_be_of_the_repeat(shown: Look) -> None:
    site = (BEFORE, "G", "GT")
    for letters, expected in ((LEFT + RIGHT, (0, 40)), (LEFT + "N" * 20, {}), ("=" * 40, {})):
        assert shown(site, "40M", letters) == expected


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({}, (1, 40)),
        ({19: "5"}, (1, 20)),
        ({22: "5"}, (1, 20)),
        ({22: "5", 19: "+"}, (1, 10)),
        ({18: "$", 20: "$", 23: "$"}, (1, 40)),
        ({22: "*"}, {"bases with a quality below 10": 1}),
    ],
)
def test_the_quality_is_that_of_the_adjacent_bases(shown, places, expected) -> None:
    """I is 40, 5 is 20, + is 10, * is 9, $ is 3."""
    qualities = "".join(places.get(i, "I") for i in range(42))
    assert shown((BEFORE, "G", "GAC"), "20M2I20M", LEFT + "AC" + RIGHT, qualities=qualities) == expected


def test_several_alleles_and_a_snp_at_one_place(write_reads: WriteReads, panel_of: PanelOf) -> None:
    panel = panel_of([(BEFORE, "G", "GA"), (BEFORE, "G", "GAAA"), (BEFORE, "G", "T"), (BEFORE, "GTGA", "G")])
    reads = [
        ("one", LEFT_AT, "20M1I20M", LEFT + "A" + RIGHT, "I" * 41),
        ("three", LEFT_AT, "20M3I20M", LEFT + "AAA" + RIGHT, "I" * 43),
        ("less", LEFT_AT, "20M3D17M", LEFT + RIGHT[3:], "I" * 37),
        ("snp", LEFT_AT, "40M", LEFT[:-1] + "T" + RIGHT, "I" * 40),
    ]
    found = read_alignments([write_reads(reads)], panel, settings=WITH_INDELS)
    by_site = Counter(row[:2] for row in columns(found))
    assert by_site == {(0, 1): 1, (0, 0): 1, (1, 1): 1, (1, 0): 1, (2, 0): 3, (2, 1): 1, (3, 1): 1, (3, 0): 1}
    assert found.skipped == {"fragments at a site with another allele": 6}


def test_indels_count_only_if_wanted(write_reads: WriteReads, panel_of: PanelOf) -> None:
    path = write_reads([("r", LEFT_AT, "20M1I20M", LEFT + "A" + RIGHT, "I" * 41)])
    panel = panel_of([(110, "A", "C"), (BEFORE, "G", "GA")])
    assert read_alignments([path], panel).counted_index.tolist() == [0]
    found = read_alignments([path], panel, settings=WITH_INDELS)
    assert found.counted_index.tolist() == found.panel_index.tolist() == [0, 1]
    assert found.n_sites_file == 2
    assert found.phred_SX3[1, 0].tolist() == [40, 3, 0]
    only = panel_of([(BEFORE, "G", "GA")])
    with pytest.raises(InputError, match="the panel has no SNP in 20, so reads"):
        read_alignments([path], only)
    with pytest.raises(InputError, match="no SNP, insertion or deletion in 20:1-9"):
        read_alignments([path], only, Region("20", 1, 9), settings=WITH_INDELS)
    assert len(read_alignments([path], only, settings=WITH_INDELS).panel_index) == 1


def test_an_indel_that_is_not_leftmost_has_no_data(write_reads: WriteReads, panel_of: PanelOf) -> None:
    """Reads with ALT have the indel at another position."""
    path = write_reads([("r", LEFT_AT, "40M", LEFT + RIGHT, "I" * 40)])
    panel = panel_of([(110, "A", "C"), (BEFORE, "G", "GCG"), (BEFORE - 1, "CGG", "CG")])
    found = read_alignments([path], panel, settings=WITH_INDELS)
    assert found.panel_index.tolist() == [0, 2]
    reason = "insertions and deletions that the panel does not place as far to the left as they go"
    assert found.skipped == {reason: 1}


def test_unknown_qualities(write_reads: WriteReads, panel_of: PanelOf) -> None:
    """Unknown qualities are 255 in BAM; 93 is the highest quality."""
    path = write_reads([("r", 101, "4M", "ACAC", "~~~~")], name="without.bam", index=False)
    panel = panel_of([(position, *"AC") for position in range(101, 105)])
    changed = path.with_name("t.bam")
    with pysam.AlignmentFile(str(path)) as source, pysam.AlignmentFile(str(changed), "wb", source) as file:
        for read in source:
            read.query_qualities = [93, 255, 94, 20]
            file.write(read)
    pysam.index(str(changed))
    found = read_alignments([changed], panel)
    assert columns(found) == [(0, 0, 93), (3, 1, 20)]
    assert found.skipped == {"bases without a quality": 2}


LENGTH = 12_000


@dataclass(frozen=True)
class SimulatedRead:
    """Bases of a haplotype and their alignment."""

    haplotype: int
    first: int
    position: int
    cigar: str
    letters: str


class Simulated:
    """A reference with repeats, and two haplotypes with indels and SNPs, aligned with it."""

    def __init__(self, rng: np.random.Generator) -> None:
        pieces: list[str] = []
        while sum(map(len, pieces)) < LENGTH:
            unit = "".join(rng.choice(list("ACGT"), rng.integers(1, 4)))
            pieces += ["".join(rng.choice(list("ACGT"), rng.integers(5, 60))), unit * int(rng.integers(1, 9))]
        self.reference = "".join(pieces)[:LENGTH]
        self.sites = sorted(self._sites(rng))
        self.alleles = rng.integers(0, 2, (len(self.sites), 2))
        self.letters, self.places = zip(*(self._haplotype(h) for h in range(2)), strict=True)
        self.number = [{place: i for i, place in enumerate(places)} for places in self.places]

    def _sites(self, rng: np.random.Generator) -> Any:
        """Sites that are apart from each other and each other's repeats."""
        at = 60
        while at < LENGTH - 200:
            n = int(rng.integers(1, 5))
            ref = self.reference[at]
            kind = rng.integers(3)
            letters = self.reference[at + 1 : at + 1 + n]
            if kind == 1 and rng.random() < 0.5:
                letters = "".join(rng.choice(list("ACGT"), n))
            if kind == 2:
                yield at + 1, ref, "ACGT"[("ACGT".index(ref) + 1) % 4]
            elif letters[-1] != ref:
                yield (at + 1, ref, ref + letters) if kind == 1 else (at + 1, ref + letters, ref)
            at += int(rng.integers(60, 200))

    def _haplotype(self, h: int) -> tuple[str, list[int]]:
        """Its bases, and the reference index of each; -1 for inserted bases."""
        letters, places, at = "", list[int](), 0
        for (position, ref, alt), alleles in zip(self.sites, self.alleles, strict=True):
            letters += self.reference[at : position - 1]
            places += range(at, position - 1)
            at = position - 1
            if alleles[h]:
                letters += alt
                places += [at] + [-1] * (len(alt) - 1)
                at += len(ref)
        return letters + self.reference[at:], places + list(range(at, LENGTH))

    def read(self, h: int, first: int, length: int) -> SimulatedRead:
        """A read that begins and ends with bases of the reference."""
        places = self.places[h]
        while places[first] < 0:
            first += 1
        while places[first + length - 1] < 0:
            length -= 1
        operations = ""
        last = places[first] - 1
        for place in places[first : first + length]:
            operations += "I" if place < 0 else "D" * (place - last - 1) + "M"
            last = max(place, last)
        cigar = "".join(f"{len(run)}{run[0]}" for run in runs_of(operations))
        return SimulatedRead(h, first, places[first] + 1, cigar, self.letters[h][first : first + length])

    def expected(self, s: int, read: SimulatedRead) -> int | None:
        """The allele that a read shows; None if it does not reach far enough."""
        position, ref, alt = self.sites[s]
        letters = max(ref, alt, key=len)[1:]
        longer = self.reference[:position] + letters + self.reference[position + len(ref) - 1 :]
        behind = longer[position : position + 100]
        same = [letter == letters[n % len(letters)] for n, letter in enumerate(behind)]
        # a second wrong letter ends a repeat, or one more than a tenth of a long one
        end = next(n for n in range(len(same)) if same[: n + 1].count(False) > max(1, n // 10))
        reach = max((n + 1 for n in range(end) if same[n]), default=0)
        reach = max(reach, len(letters))
        before = self.number[read.haplotype].get(position - 1, read.first)
        n_before = before + 1 - read.first
        n_behind = len(read.letters) - n_before
        flank = len(letters) + BEYOND
        enough = n_before >= flank and n_behind >= reach + flank
        return int(self.alleles[s, read.haplotype]) if enough else None


def runs_of(text: str) -> list[str]:
    runs = [text[0]]
    for letter in text[1:]:
        runs[-1:] = [runs[-1] + letter] if runs[-1][0] == letter else [runs[-1], letter]
    return runs


@pytest.mark.parametrize("cram", [False, True])
def test_simulated_reads_show_their_haplotypes_alleles(write_reads, panel_of, rng, tmp_path, cram) -> None:
    """By the reference, which is not given."""
    simulated = Simulated(rng)
    sites = simulated.sites
    kinds = Counter(len(alt) - len(ref) for _, ref, alt in sites)
    assert min(kinds[n] for n in (-2, -1, 0, 1, 2)) > 2
    reads = [
        simulated.read(int(rng.integers(2)), int(rng.integers(LENGTH - 1_000)), int(rng.integers(40, 120)))
        for _ in range(3_000)
    ]
    fasta = tmp_path / "reference.fa"
    fasta.write_text(f">20\n{simulated.reference}\n")
    pysam.faidx(str(fasta))
    contigs = [("20", LENGTH)]
    path = write_reads(
        [
            (f"r{i}", read.position, read.cigar, read.letters, "I" * len(read.letters))
            for i, read in enumerate(reads)
        ],
        "t.cram" if cram else "t.bam",
        contigs=contigs,
        reference=fasta if cram else None,
    )
    panel = panel_of(sites, length=LENGTH)
    found = read_alignments(
        [path],
        panel,
        reference=fasta if cram else None,
        settings=PileupSettings(indels=True, max_depth=1_000),
    )
    of_indels = [s for s, (_, ref, alt) in enumerate(sites) if len(ref) != len(alt)]
    expected = Counter((s, simulated.expected(s, read)) for s in of_indels for read in reads)
    counted = Counter((s, allele) for s, allele, _ in columns(found) if s in of_indels)
    assert counted == {shown: n for shown, n in expected.items() if shown[1] is not None}
    assert sum(counted.values()) > 300
    # fragments are of one haplotype
    fragment = found.bases_X[0].fragment
    assert len(fragment) > len(np.unique(fragment))
    for x, s in enumerate(found.panel_index.tolist()):
        likelihood = np.ones(3)
        for _, allele, quality in (row for row in columns(found) if row[0] == s):
            e = 10 ** (-quality / 10)
            likelihood *= (1 - e, 0.5, e) if allele == 0 else (e, 0.5, 1 - e)
        phred = -10 * np.log10(likelihood)
        np.testing.assert_allclose(found.phred_SX3[x, 0], np.minimum(phred - phred.min(), 255), atol=0.51)
