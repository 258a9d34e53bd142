"""Insertions and deletions in reads: by hand, and in simulated reads."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pysam
import pytest

from benchmarks.sequencing.simulated_reads import SHORT, SequencedPeople
from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.indels import MAX_QUALITY, MIN_FLANK, SLIPPAGE, Indel, find_indel
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
    assert find_indel(100, ref, alt) == expected


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
        read = ("r", at, cigar, letters, qualities or "I" * len(letters))
        reads = [read, ("elsewhere", 500, "1M", "A", "I")]
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
        ("40M", "", (0, MAX_QUALITY)),
        ("20M2I20M", "AC", (1, MAX_QUALITY)),
        ("20=2I5=1X14=", "AC", (1, MAX_QUALITY)),
        ("20M2I20M", "AT", OTHER),
        ("20M1I20M", "A", OTHER),
        ("20M3I20M", "ACA", OTHER),
        ("20M2D20M", "", OTHER),
        ("22M2I18M", "AC", OTHER),
        ("20M1I1D1I20M", "AC", OTHER),
        ("20M2N20M", "", {}),
        ("20M20S", "", {}),
        ("5S15M20M", "", (0, MAX_QUALITY)),
        ("9S31M", "", {}),
    ],
)
def test_an_insertion(shown: Look, cigar: str, middle: str, expected: Any) -> None:
    at = LEFT_AT + (int(cigar[0]) if cigar[1] == "S" else 0)
    assert shown((BEFORE, "G", "GAC"), cigar, LEFT + middle + RIGHT, at) == expected


@pytest.mark.parametrize(
    ("cigar", "middle", "expected"),
    [
        ("43M", "TCA", (0, MAX_QUALITY)),
        ("20M3D20M", "", (1, MAX_QUALITY)),
        ("2H20M3D20M1P", "", (1, MAX_QUALITY)),
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
    for wrong, expected in (("ACCATTCAAG", (1, MAX_QUALITY)), ("ACCTTTCAAG", OTHER)):
        assert shown(site, "20M10I20M", LEFT + wrong + RIGHT) == expected


@pytest.mark.parametrize("n_copies", [1, 2, 4, 9, 12])
@pytest.mark.parametrize("unit", ["A", "CA"])
def test_a_repeat(shown: Look, unit: str, n_copies: int) -> None:
    """n copies or one less: only reads beyond the repeat count, and less for many copies."""
    site = (BEFORE, "G" + unit, "G")
    n_letters = len(unit)
    quality = min(MAX_QUALITY, round(SLIPPAGE / n_copies))
    right = unit * n_copies + RIGHT
    enough = len(unit) * (n_copies + 1) + MIN_FLANK
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
    assert found == ((0, round(SLIPPAGE / 13)) if counts else {})


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


@pytest.mark.parametrize("cram", [False, True])
def test_simulated_reads_show_their_haplotypes_alleles(panel_of, rng, tmp_path, cram) -> None:
    """Reads have errors, and slip where indels are copies of repeats."""
    ref, alt = ["GTT", "G", "A", "AT"] * 150, ["G", "GCA", "C", "A"] * 150
    position = range(20_000, 80_000, 100)
    alleles_SQ = rng.integers(0, 2, (600, 2))
    people = SequencedPeople("20", 100_000, list(position), ref, alt, ["one"], alleles_SQ)
    (path,) = people.write_bams(tmp_path, SHORT, 20, 1)
    if cram:
        bam, path = str(path), path.with_suffix(".cram")
        pysam.view("-C", "--output-fmt-option", "no_ref=1", "-o", str(path), bam, catch_stdout=False)
        pysam.index(str(path))
    panel = panel_of(list(zip(position, ref, alt, strict=True)), length=100_000)
    found = read_alignments([path], panel, settings=WITH_INDELS)
    right_S = found.phred_SX3[:, 0].argmin(1) == alleles_SQ.sum(1)[found.panel_index]
    enough_S = found.depth_SX[:, 0] >= 10
    for kind in range(4):
        chosen_S = enough_S & (found.panel_index % 4 == kind)
        assert chosen_S.sum() > 60
        assert right_S[chosen_S].mean() > 0.97
    shown = np.array([(site, allele) for site, allele, _ in columns(found)]).T
    homozygous_S = alleles_SQ[:, 0] == alleles_SQ[:, 1]
    assert (alleles_SQ[shown[0], 0] == shown[1])[homozygous_S[shown[0]]].mean() > 0.98
    fragment = found.bases_X[0].fragment
    assert len(fragment) > len(np.unique(fragment))
