"""Likelihoods from reads: by hand, and compared with a loop over aligned pairs of simulated reads."""

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pysam
import pytest

from spinimpute.genotypes.sites import NoRecord, Region
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods, merge_likelihoods
from spinimpute.sequencing.pileup import PileupSettings, read_alignments

PanelOf = Callable[..., SimpleNamespace]
WriteReads = Callable[..., Path]
PANEL = [(103, *"AC"), (105, *"GT"), (105, "G", "GA"), (108, *"ct"), (108, *"CA"), (120, *"TG")]
LETTERS = "ACGT"
REFERENCE_LENGTH = 20_000


def columns(pileup: GenotypeLikelihoods, sample: int = 0) -> list[tuple[int, ...]]:
    found = pileup.bases_X[sample]
    arrays = (found.fragment, found.panel_index, found.allele, found.quality)
    return list(zip(*(array.tolist() for array in arrays), strict=True))


def test_by_hand(write_reads: WriteReads, panel_of: PanelOf) -> None:
    """Qualities: 5 is 20, + is 10, * is 9, ? is 30."""
    reads = [
        # 103 A, 105 T, 108 T; then two letters before a deletion of 119-121
        ("r1", 101, "10M", "GGAGTGGTGG", "5" * 10),
        # soft clip of 3 and an insertion of 2 before 105: 103 C, 105 G
        ("r2", 103, "3S2M2I3M", "TTTCATTGAA", "+" * 10),
        # a deletion over 105; 108 is A: ALT of one site, neither allele of the other one
        ("r3", 103, "1H2M1D3M", "AAGGA", "5555?"),
        # base quality 9
        ("r4", 103, "1M", "A", "*"),
        # mates that overlap: they agree at 105, where the second one is better, and not at 108
        ("p1", 104, "5M", "AGAAC", "55555", 0x1 | 0x40),
        ("p1", 105, "16M", "GAAT" + "A" * 11 + "T", "?" * 16, 0x1 | 0x80),
        *((f"x{flag}", 103, "1M", "A", "5", flag) for flag in (0x100, 0x200, 0x400, 0x800)),
        ("low", 103, "1M", "A", "5", 0, 9),
        ("bare", 103, "1M", "A", None),
        ("none", 103, "5M", None, None),
        ("away", 130, "5M", "AAAAA", "55555"),
    ]
    likelihoods = read_alignments([write_reads(reads)], panel_of(PANEL))
    assert likelihoods.samples == ["NA1"]
    assert likelihoods.ploidy.tolist() == [2]
    assert likelihoods.panel_index.tolist() == [0, 1, 3, 4, 5]
    assert likelihoods.n_sites_file == 5
    assert likelihoods.skipped == {
        "reads marked as duplicate, secondary, supplementary, unmapped or failed": 4,
        "reads with a mapping quality below 10": 1,
        "reads without bases, qualities or CIGAR": 2,
        "bases with a quality below 10": 1,
        "fragments at a site whose mates disagree": 2,
        "fragments at a site with another allele": 2,
    }
    by_site: dict[int, set[tuple[int, int]]] = {}
    for _, site, allele, quality in columns(likelihoods):
        by_site.setdefault(site, set()).add((allele, quality))
    assert by_site == {
        0: {(0, 20), (1, 10)},  # r1 and r3 alike, r2
        1: {(1, 20), (0, 10), (0, 30)},  # r1, r2, p1
        3: {(1, 20)},  # r1
        4: {(1, 30)},  # r3
        5: {(0, 30)},
    }
    of_r3 = next(number for number, site, *_ in columns(likelihoods) if site == 4)
    assert [row[1] for row in columns(likelihoods) if row[0] == of_r3] == [0, 4]
    assert likelihoods.depth_SX[:, 0].tolist() == [3, 3, 1, 1, 1]
    # 103: two A of 20, one C of 10: 2 * 0.0436 + 10, 3 * 3.0103, 2 * 20 + 0.4576
    assert likelihoods.phred_SX3[0, 0].tolist() == [1, 0, 31]
    assert likelihoods.phred_SX3[2:, 0].tolist() == [[20, 3, 0], [30, 3, 0], [0, 3, 30]]


def test_a_read_with_very_many_operations(write_reads: WriteReads, panel_of: PanelOf) -> None:
    """Time is linear in their number; quadratic time would be minutes."""
    n = 100_000  # insertions and deletions side by side
    letters = "A" * 5 + "G" * n + "ACGTA"
    reads = [
        ("long", 101, "5M" + "1I1D" * n + "5M", letters, "5" * len(letters)),
        ("pads", 101, "3M" + "1P" * n + "7M", "AAAAAAAAAA", "5" * 10),
    ]
    panel = panel_of([(103, "A", "C"), (109, "A", "T"), (106 + n + 2, "T", "G")])
    found = read_alignments([write_reads(reads)], panel)
    assert found.panel_index.tolist() == [0, 1, 2]
    assert found.depth_SX.tolist() == [[2], [1], [1]]
    assert found.phred_SX3[2, 0, 0] > found.phred_SX3[2, 0, 2] == 0


def test_settings(write_reads: WriteReads, panel_of: PanelOf) -> None:
    reads = [(f"r{i}", 103, "1M", "AC"[i % 2], "*", 0, 5) for i in range(9)]
    path, panel = write_reads(reads), panel_of(PANEL)
    with pytest.raises(NoRecord, match=r"no base can be used at the 5 SNPs of the panel in 20 \(.* 10: 9\)"):
        read_alignments([path], panel)
    settings = PileupSettings(min_mapping_quality=5, min_base_quality=9, max_depth=4)
    found = read_alignments([path], panel, settings=settings)
    kept = sorted(range(9), key=lambda i: blake2b(b"r%d" % i, digest_size=8).digest()[::-1])[:4]
    assert [allele for _, _, allele, _ in columns(found)] == [i % 2 for i in kept]
    assert found.skipped == {"fragments at a site beyond the first 4": 5}
    # reads of one place in another order
    again = read_alignments([write_reads(reads[::-1], name="other.bam")], panel, settings=settings)
    assert columns(again) == columns(found)


def test_several_samples_and_ploidy(write_reads: WriteReads, panel_of: PanelOf) -> None:
    panel = panel_of([(103, "A", "C"), (105, "G", "T")], chrom="chrX", length=None)
    one = write_reads([("r", 103, "1M", "A", "5")], contigs=[("X", 1000)], groups=[{"ID": "a", "SM": "m"}])
    two = write_reads(
        [("r", 105, "1M", "T", "5")], name="two.v1.bam", contigs=[("X", 1000)], groups=[{"ID": "a"}]
    )
    found = read_alignments([one, two], panel, sexes={"m": True})
    assert found.samples == ["m", "two.v1"]
    assert found.ploidy.tolist() == [1, 2]
    assert found.phred_SX3.tolist() == [[[0, 255, 20], [0, 0, 0]], [[0, 255, 0], [20, 3, 0]]]
    same = write_reads([("r", 103, "1M", "A", "5")], name="s.bam", contigs=[("X", 1000)])
    again = write_reads([("r", 103, "1M", "A", "5")], name="a.bam", contigs=[("X", 1000)])
    with pytest.raises(InputError, match=r"reads of sample NA1 are in .*s\.bam and .*a\.bam\. Join them"):
        read_alignments([same, again], panel)


def test_a_file_that_is_given_twice(write_reads: WriteReads, panel_of: PanelOf) -> None:
    """A link is the same file. As two samples it is accepted with a warning."""
    path, panel = write_reads([("r", 103, "1M", "A", "5")]), panel_of(PANEL)
    link = path.with_name("link.bam")
    link.symlink_to(path)
    link.with_name("link.bam.bai").symlink_to(f"{path}.bai")
    for names in ((), ("a", "a"), (None, "NA1")):
        with pytest.raises(InputError, match=r"reads .*t\.bam: the file is given twice\. Give it once\.$"):
            read_alignments([path, path], panel, names=names)
    with pytest.raises(InputError, match=r"reads .*t\.bam: the file is given twice, also as .*link\.bam\."):
        read_alignments([path, link], panel)
    with pytest.warns(UserWarning, match=r"reads .*t\.bam: the file is given twice, as samples a and NA1"):
        found = read_alignments([path, path], panel, names=("a", None))
    assert found.samples == ["a", "NA1"]


def test_region(write_reads: WriteReads, panel_of: PanelOf) -> None:
    path = write_reads([("r", 103, "18M", "A" * 17 + "T", "5" * 18)])
    panel = panel_of(PANEL)
    assert read_alignments([path], panel, Region("chr20", 105, 120)).panel_index.tolist() == [4, 5]
    with pytest.raises(InputError, match=r"21 is not on the panel's chromosome\. Give a region on 20"):
        read_alignments([path], panel, Region("21"))
    with pytest.raises(NoRecord, match="the panel has no SNP in 20:121-130"):
        read_alignments([path], panel, Region("20", 121, 130))
    with pytest.raises(InputError, match="there is no file of reads"):
        read_alignments([], panel)
    with pytest.raises(NoRecord, match="there are no reads"):
        read_alignments([write_reads([])], panel)


def simulated_reads(rng: np.random.Generator) -> tuple[str, list[tuple[int, str, str]], list[Any]]:
    """A reference, its SNPs, and reads of two haplotypes with indels, clips, mates and errors."""
    reference = "".join(rng.choice(list(LETTERS), REFERENCE_LENGTH))
    position = np.sort(rng.choice(np.arange(50, REFERENCE_LENGTH - 50), 600, replace=False)).tolist()
    sites = [
        (p, reference[p - 1], LETTERS[(LETTERS.index(reference[p - 1]) + int(rng.integers(1, 4))) % 4])
        for p in position
    ]
    haplotypes = [list(reference), list(reference)]
    for p, _, alt in sites:
        for haplotype in haplotypes:
            if rng.random() < 0.4:
                haplotype[p - 1] = alt
    reads = []
    for i in range(700):
        begin, haplotype = int(rng.integers(0, REFERENCE_LENGTH - 400)), haplotypes[int(rng.integers(2))]
        for mate in range(2):
            at = begin + mate * int(rng.integers(0, 120))
            letters, cigar, start = "", "", at + 1
            for operation in rng.permutation(["M", "I", "M", "D", "N", "S"])[: rng.integers(1, 7)].tolist():
                length = int(rng.integers(1, 60)) if operation == "M" else int(rng.integers(1, 5))
                if operation == "S":
                    continue
                if operation != "I":
                    shown = haplotype[at : at + length]
                    at += length
                if operation in "MI":
                    letters += "".join(shown if operation == "M" else rng.choice(list(LETTERS), length))
                cigar += f"{length}{operation}"
            if "M" not in cigar:
                continue
            clip = int(rng.integers(0, 4))
            letters, cigar = "T" * clip + letters, (f"{clip}S" if clip else "") + cigar
            wrong = rng.random(len(letters)) < 0.02
            letters = "".join("N" if bad else letter for letter, bad in zip(letters, wrong, strict=True))
            qualities = "".join(chr(33 + int(q)) for q in rng.integers(5, 41, len(letters)))
            flag = (0x1 | (0x80 if mate else 0x40)) + (0x400 if rng.random() < 0.1 else 0)
            mapping_quality = int(rng.integers(0, 61))
            reads.append((f"f{i}", start, cigar, letters, qualities, flag, mapping_quality))
    return reference, sites, reads


def counted_in_a_loop(
    path: Path, sites: list[tuple[int, str, str]], depth: int
) -> dict[int, dict[str, tuple[int, int]]]:
    """Site -> name -> allele and quality, by pysam's aligned pairs."""
    place = {p: number for number, (p, _, _) in enumerate(sites)}
    shown: dict[tuple[int, str], list[tuple[str, int]]] = {}
    with pysam.AlignmentFile(str(path)) as file:
        for read in file:
            if read.is_duplicate or read.mapping_quality < 10:
                continue
            for offset, at in read.get_aligned_pairs(matches_only=True):
                if at + 1 in place and read.query_qualities[offset] >= 10:
                    seen = shown.setdefault((place[at + 1], read.query_name), [])
                    seen.append((read.query_sequence[offset], read.query_qualities[offset]))
    counted: dict[int, dict[str, tuple[int, int]]] = {}
    for (site, name), seen in shown.items():
        letters = {letter for letter, _ in seen}
        if len(letters) == 1 and (letter := letters.pop()) in sites[site][1:]:
            best = max(quality for _, quality in seen)
            counted.setdefault(site, {})[name] = (sites[site][1:].index(letter), best)

    def hashed(name: str) -> int:
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")

    return {x: {n: of[n] for n in sorted(of, key=hashed)[:depth]} for x, of in counted.items()}


@pytest.mark.parametrize("name", ["*", "same"])
def test_reads_that_share_a_name_are_fragments_of_their_own(write_reads, panel_of, name) -> None:
    """Names are not unique where runs were merged, and may be missing; mates are still one fragment."""
    reads = [
        (name, 103, "6M", "AAGAAC", "555555"),
        (name, 104, "5M", "ATAAT", "55555"),  # unpaired: another fragment, with T at 105
        (name, 100, "6M", "AAACAT", "555555", 0x1 | 0x40, 60, 118),
        (name, 118, "4M", "AAGA", "5555", 0x1 | 0x80, 60, 100),
        (name, 101, "6M", "AACAGA", "555555", 0x1 | 0x40, 60, 119),
        (name, 119, "4M", "ATAA", "5555", 0x1 | 0x80, 60, 101),
    ]
    found = read_alignments([write_reads(reads)], panel_of(PANEL))
    by_fragment: dict[int, set[tuple[int, int]]] = {}
    for fragment, site, allele, _ in columns(found):
        by_fragment.setdefault(fragment, set()).add((site, allele))
    assert sorted(map(sorted, by_fragment.values())) == [
        [(0, 0), (1, 0), (3, 0), (4, 0)],
        [(0, 1), (1, 0), (5, 0)],
        [(0, 1), (1, 1), (5, 1)],
        [(1, 1), (3, 1)],
    ]
    assert not any("disagree" in reason for reason in found.skipped)


def test_an_equals_sign_is_the_base_of_the_reference(write_reads: WriteReads, panel_of: PanelOf) -> None:
    found = read_alignments([write_reads([("r", 103, "6M", "======", "555555")])], panel_of(PANEL))
    assert {(site, allele) for _, site, allele, _ in columns(found)} == {(0, 0), (1, 0), (3, 0), (4, 0)}


@pytest.mark.parametrize("max_depth", [2, 40])
def test_simulated_reads_equal_a_plain_loop(write_reads, panel_of, rng, max_depth) -> None:
    _, sites, reads = simulated_reads(rng)
    path = write_reads(reads, contigs=[("20", REFERENCE_LENGTH)])
    panel = panel_of(sites, length=REFERENCE_LENGTH)
    found = read_alignments([path], panel, settings=PileupSettings(max_depth=max_depth))
    counted = counted_in_a_loop(path, sites, max_depth)
    assert found.panel_index.tolist() == sorted(counted)
    assert max(map(len, counted.values())) == 2 if max_depth == 2 else max(map(len, counted.values())) > 5
    for x, site in enumerate(sorted(counted)):
        likelihood = np.ones(3)
        for allele, quality in counted[site].values():
            e = 10 ** (-quality / 10)
            likelihood *= (1 - e, 0.5, e) if allele == 0 else (e, 0.5, 1 - e)
        phred = -10 * np.log10(likelihood)
        expected = np.minimum(phred - phred.min(), 255)
        np.testing.assert_allclose(found.phred_SX3[x, 0], expected, atol=0.51)
        assert found.depth_SX[x, 0] == len(counted[site])
    # the sites of each fragment are kept together
    of_name: dict[str, list[tuple[int, int, int]]] = {}
    for site in sorted(counted):
        for name, (allele, quality) in counted[site].items():
            of_name.setdefault(name, []).append((site, allele, quality))
    of_number: dict[int, list[tuple[int, ...]]] = {}
    for number, *row in columns(found):
        of_number.setdefault(number, []).append(tuple(row))
    assert sorted(of_number) == list(range(len(of_name)))
    assert Counter(map(tuple, of_number.values())) == Counter(map(tuple, of_name.values()))
    assert [row[1::-1] for row in columns(found)] == sorted(row[1::-1] for row in columns(found))


def test_regions_equal_the_whole(write_reads, panel_of, rng) -> None:
    """Likelihoods do not depend on the regions into which a chromosome is cut."""
    _, sites, reads = simulated_reads(rng)
    path = write_reads(reads, contigs=[("20", REFERENCE_LENGTH)])
    panel = panel_of(sites, length=REFERENCE_LENGTH)
    whole = read_alignments([path], panel)
    first, second = (
        read_alignments([path], panel, region)
        for region in (Region("20", 1, 7_000), Region("20", 7_001, REFERENCE_LENGTH))
    )
    joined = merge_likelihoods(first, second)
    np.testing.assert_array_equal(joined.panel_index, whole.panel_index)
    np.testing.assert_array_equal(joined.phred_SX3, whole.phred_SX3)
    np.testing.assert_array_equal(joined.depth_SX, whole.depth_SX)
    # without a read there, too
    snps = [i for i, (_, ref, alt) in enumerate(sites) if len(ref) == len(alt) == 1]
    assert joined.counted_index.tolist() == whole.counted_index.tolist() == snps
    assert len(snps) > len(whole.panel_index)


def test_cram_equals_bam(write_reads, panel_of, rng, tmp_path) -> None:
    reference, sites, reads = simulated_reads(rng)
    fasta = tmp_path / "reference.fa"
    fasta.write_text(f">20\n{reference}\n")
    pysam.faidx(str(fasta))
    contigs = [("20", REFERENCE_LENGTH)]
    bam = write_reads(reads, contigs=contigs)
    cram = write_reads(reads, name="t.cram", contigs=contigs, reference=fasta)
    panel = panel_of(sites, chrom="chr20", length=REFERENCE_LENGTH)
    found = [read_alignments([path], panel, reference=fasta) for path in (bam, cram)]
    assert columns(found[0]) == columns(found[1])
    np.testing.assert_array_equal(found[0].phred_SX3, found[1].phred_SX3)
