"""Likelihoods from files of every kind, against a plain reading of the text; bad files say why."""

import re
from collections.abc import Callable
from itertools import combinations_with_replacement
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.ploidy import HAPLOID_DIPLOID
from spinimpute.genotypes.sites import (
    ALLELES_DIFFER,
    DUPLICATE,
    NO_ALT,
    ON_ANOTHER_CHROMOSOME,
    POSITION_NOT_IN_PANEL,
    SPANNING_DELETION,
    SYMBOLIC,
    NoMatch,
    NoRecord,
    Region,
)
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.record_likelihoods import genotype_index, likelihoods_of_record
from spinimpute.sequencing.variant_likelihoods import find_alleles, find_alleles_on_other_strand
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods as read
from spinimpute.targets.repair import SWAPPED
from spinimpute.vcf.reader import read_haplotypes
from spinimpute.vcf.variant_file import FormatNumbers

GlVcf = Callable[..., Path]
PanelOf = Callable[..., SimpleNamespace]
PANEL = [(100, *"AC"), (200, *"AC"), (200, *"AG"), (300, "C", "CT"), (400, *"gT"), (500, *"TA")]
FLAT = [0, 0, 0]


@pytest.mark.parametrize("name", ["t.vcf", "t.vcf.gz", "t.bcf", "t.plain.gz"])
def test_every_kind_of_file(gl_vcf, panel_of, convert_vcf, name) -> None:
    source = gl_vcf(
        "100 A C PL:AD 0,3,30:1,0 0,0,0:0,0 400,10,20:3,4",
        "150 A C PL:AD 0,3,30:1,0 0,0,0:0,0 400,10,20:3,4",
        # the PL of 0/0, 0/1, 1/1, 0/2, 1/2, 2/2, 0/3, 1/3, 2/3, 3/3
        "200 A G,C,<DEL> PL:AD 0,1,2,3,4,5,6,7,8,9:5,6,7,8 0,1,2,3,.,5,6,7,8,9:0,0,0,0 .:.",
        "300 C CT GL:DP 0,-0.31,-3.04:6 -inf,-1,0:. .,.,.:2",
        "400 T G PL:AD 0,30,255:2,1 .:0,0 255,30,0:.,.",
        "500 T A GT 0/0 0|1 1/1",
        name="source.txt",
    )
    found = read(convert_vcf(source, source.with_name(name)), panel_of(PANEL))
    assert found.samples == ["a", "b", "c"]
    assert found.ploidy.tolist() == [2, 2, 2]
    assert found.panel_index.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.phred_SX3.tolist() == [
        [[0, 3, 30], FLAT, [255, 0, 10]],
        [[0, 3, 5], [0, 3, 5], FLAT],  # C is the second ALT
        [[0, 1, 2], [0, 1, 2], FLAT],
        [[0, 3, 30], [255, 10, 0], FLAT],
        [[255, 30, 0], FLAT, [0, 30, 255]],  # exchanged
        [[0, 40, 40], [40, 0, 40], [40, 40, 0]],
    ]
    assert found.depth_SX.tolist() == [[1, 0, 7], [12, 0, 0], [11, 0, 0], [6, 0, 2], [3, 0, 0], [0, 0, 0]]
    assert found.counted_index.tolist() == [0, 1, 2, 3, 4]
    assert found.repaired == {SWAPPED: 1}
    assert found.n_sites_file == 8
    assert found.skipped == {POSITION_NOT_IN_PANEL: 1, SYMBOLIC: 1}
    assert (found.phred_SX3.dtype, found.depth_SX.dtype, found.panel_index.dtype) == ("u1", "u2", "i8")


@pytest.mark.parametrize("name", ["t.vcf", "t.vcf.gz", "t.bcf"])
def test_region_with_an_index_or_without(gl_vcf, panel_of, convert_vcf, index, name) -> None:
    records = (f"{p} {ref} {alt} PL 0,{i},30" for i, (p, ref, alt) in enumerate(PANEL))
    source = gl_vcf(*records, name="source.txt")
    path, panel = convert_vcf(source, source.with_name(name)), panel_of(PANEL, chrom="chr20")
    found = read(path, panel, region=Region("20", 200, 300))
    assert found.panel_index.tolist() == [1, 2, 3]
    if name != "t.vcf":
        index(path)
    again = read(path, panel, region=Region("chr20", 200, 300))
    np.testing.assert_array_equal(again.phred_SX3, found.phred_SX3)
    assert len(read(path, panel).panel_index) == 6
    with pytest.raises(NoRecord, match="no record in 20:600-700"):
        read(path, panel, region=Region("20", 600, 700))


def test_pl_before_gl_before_calls(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    """Each sample is read alone; a call never replaces likelihoods, even flat ones."""
    path = gl_vcf(
        "100 A C GT:GL:PL 0/0:0,-1,-2:5,0,5 0/0:0,-1,-2:. 0/1:.:. ./.:.:. 0/0:0,-1,-2:0,0,0",
        "200 A C,G GT:PL 0/0:0,3,30,.,.,. 1/2:. 0/2:. 2/2:. 0/.:.",
    )
    found = read(path, panel_of(PANEL))
    assert found.phred_SX3.tolist() == [
        [[5, 0, 5], [0, 10, 20], [40, 0, 40], FLAT, FLAT],
        [[0, 3, 30], [40, 3, 0], [0, 3, 40], FLAT, [0, 3, 40]],
        [FLAT, [40, 3, 0], [40, 0, 40], [40, 40, 0], [0, 3, 40]],
    ]
    assert found.depth_SX is None


def test_depths(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    """Depths are those of AD, or DP if no sample has AD; a field that all samples lack does not count."""
    path = gl_vcf(
        "100 A C PL:AD:DP 0,3,30:.:4 0,3,30:.,.:.",
        "200 A C PL:DP 0,3,30:. 0,3,30:.",
        "300 C CT PL:DP 0,3,30:. 0,3,30:0",
        "400 G T PL 0,3,30 0,3,30",
    )
    found = read(path, panel_of(PANEL))
    assert found.panel_index.tolist() == [0, 1, 3, 4]
    assert found.counted_index.tolist() == [0, 3]
    assert found.depth_SX.tolist() == [[4, 0], [0, 0], [0, 0], [0, 0]]
    unknown = gl_vcf("100 A C PL:DP 0,3,30:. 0,3,30:.", name="u.vcf")
    none = read(unknown, panel_of(PANEL))
    assert (none.depth_SX, none.counted_index.tolist()) == (None, [])


def test_half_missing_calls(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    found = read(gl_vcf("100 A C GT 0/. .|1 ./. ."), panel_of(PANEL))
    assert found.phred_SX3[0].tolist() == [[0, 3, 40], [40, 3, 0], FLAT, FLAT]
    assert found.ploidy.tolist() == [2, 2, 2, 2]


def test_unobserved_alleles(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    """Callers write <*> for unobserved alleles, which may include the panel's ALT."""
    path = gl_vcf(
        "100 A <*> PL 0,9,90",
        "200 A G,<*> PL 9,0,9,19,20,29",
        "300 C <NON_REF> PL 0,9,90",  # not an insertion
        "500 G <*> PL 0,9,90",  # another REF
    )
    found = read(path, panel_of(PANEL))
    assert found.panel_index.tolist() == [0, 1, 2]
    assert found.phred_SX3[:, 0].tolist() == [[0, 9, 90], [0, 10, 20], [9, 0, 9]]
    assert found.skipped == {SYMBOLIC: 2}


def test_skipped_records(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    path = gl_vcf(
        "100 A G PL 0,1,2",
        "100 A C PL 0,1,2",
        "100 a c PL 0,3,3",
        "200 A *,C PL 0,1,2,3,4,5",
        "300 CT C PL 0,1,2",  # the deletion of what the panel inserts
        "400 G . PL 0",
        "450 G A PL 0,1,2",
    )
    path.write_text(path.read_text() + "21\t9\t.\tA\tC\t.\t.\t.\tPL\t0,1,2\n")
    found = read(path, panel_of(PANEL))
    assert found.panel_index.tolist() == [0, 1]
    assert found.phred_SX3[:, 0].tolist() == [[0, 1, 2], [0, 3, 5]]
    assert found.skipped == {
        ALLELES_DIFFER: 2,
        DUPLICATE: 1,
        SPANNING_DELETION: 1,
        NO_ALT: 1,
        POSITION_NOT_IN_PANEL: 1,
        ON_ANOTHER_CHROMOSOME: 1,
    }


@pytest.mark.parametrize(
    ("alleles", "site", "expected"),
    [
        (["A", "C"], ("A", "C"), (0, 1)),
        (["C", "A"], ("A", "C"), (1, 0)),
        (["T", "C", "A"], ("A", "C"), (2, 1)),
        (["A", "AT"], ("A", "AT"), (0, 1)),
        (["AT", "A"], ("A", "AT"), None),
        (["AT", "GC"], ("GC", "AT"), (1, 0)),
        (["A", "C"], ("A", "G"), None),
        (["A", "<*>"], ("A", "G"), (0, 1)),
        (["A", "<*>"], ("A", "AG"), None),
        (["A", "<*>"], ("A", "*"), None),
        (["A", "*"], ("A", "*"), (0, 1)),
        (["G", "<*>"], ("A", "G"), None),
    ],
)
def test_allele_numbers(alleles: list[str], site: tuple[str, str], expected: tuple[int, int] | None) -> None:
    assert find_alleles(alleles, *site) == expected


@pytest.mark.parametrize(
    ("alleles", "site", "expected"),
    [
        (["T", "G"], ("A", "C"), (0, 1)),
        (["G", "T"], ("A", "C"), (1, 0)),
        (["T", "C", "G"], ("A", "C"), (0, 2)),
        # two ALTs are another site of this strand, and must not decide that the file has both strands
        (["G", "C", "T"], ("G", "A"), None),
        (["A", "T"], ("A", "T"), None),
        (["TT", "G"], ("AA", "C"), None),
    ],
)
def test_alleles_of_the_other_strand(alleles, site, expected) -> None:
    assert find_alleles_on_other_strand(alleles, *site) == expected


@settings(deadline=None)
@given(st.data())
def test_order_of_likelihoods(data: st.DataObject) -> None:
    """Likelihoods of j/k are in the order of the VCF specification."""
    n = data.draw(st.integers(2, 6))
    copies = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    i, j = data.draw(st.permutations(range(n)))[:2]
    key = data.draw(st.sampled_from(["PL", "GL"]))
    genotypes = sorted(combinations_with_replacement(range(n), 2), key=lambda jk: (jk[1], jk[0]))
    assert [genotype_index(*jk) for jk in genotypes] == list(range(len(genotypes)))
    values = np.full((len(copies), len(genotypes)), np.nan, np.float32)
    for s, number in enumerate(copies):
        size = (0, n, len(genotypes))[number]
        phred = data.draw(st.lists(st.integers(0, 300), min_size=size, max_size=size))
        values[s, :size] = phred if key == "PL" else np.array(phred) / -10
    count = np.array([(1, n, len(genotypes))[number] for number in copies])
    numbers = FormatNumbers(values, count)
    file = SimpleNamespace(formats=lambda record: [key], numbers=lambda record, key: numbers)
    found = likelihoods_of_record(file, None, n, [(i, j)])
    assert found.call_ploidy_X.tolist() == copies
    phred = values if key == "PL" else values * -10
    for s, number in enumerate(copies):
        if number == 0:
            assert found.phreds[0][s].tolist() == FLAT
        elif number == 1:
            np.testing.assert_allclose(found.phreds[0][s][::2], phred[s, [i, j]], rtol=1e-5)
        else:
            places = [genotypes.index(jk) for jk in ((i, i), (min(i, j), max(i, j)), (j, j))]
            np.testing.assert_allclose(found.phreds[0][s], phred[s, places], rtol=1e-5)


def test_haploid_samples(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    """b is male, c has mostly haploid values, d is female."""
    panel = panel_of([(p, "A", "C") for p in (100, 200, 300)], chrom="X", length=None)
    path = gl_vcf(
        "100 A C PL:GT 0,3,30:0/0 5,0,9:0/1 0,30:0 0,40:0",
        "200 A C GT 0/1 1/1 1 0/1",
        "300 A C PL .,.,. . 0,3,30 3,0,30",
        chrom="X",
    )
    found = read(path, panel, sexes={"b": True, "d": False})
    assert found.ploidy.tolist() == [2, 1, 1, 2]
    assert found.phred_SX3.tolist() == [
        [[0, 3, 30], [0, 255, 4], [0, 255, 30], FLAT],
        [[40, 0, 40], [40, 255, 0], [40, 255, 0], [40, 0, 40]],
        [FLAT, [0, 255, 0], [0, 255, 30], [3, 0, 30]],
    ]
    assert found.skipped == {HAPLOID_DIPLOID: 1}


@pytest.mark.parametrize("chrom", ["Y", "chrM"])
def test_haploid_chromosomes(gl_vcf: GlVcf, panel_of: PanelOf, chrom: str) -> None:
    panel = panel_of([(p, "A", "C") for p in (100, 200, 300)], chrom=chrom, length=None)
    path = gl_vcf("100 A C PL 0,9,30 50,20", "200 A C PL . 9,9,0", "300 A C PL 7,0 0,9", chrom=chrom)
    found = read(path, panel)
    assert found.ploidy.tolist() == [1, 1]
    a, b = found.phred_SX3.transpose(1, 0, 2).tolist()
    assert a == [[0, 255, 30], [0, 255, 0], [7, 255, 0]]
    assert b == [[30, 255, 0], [9, 255, 0], [0, 255, 9]]


MANY = [(100 * i, "A", "C") for i in range(1, 41)]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (["100 A C PL 0,3,30 0,3"], None),
        (["100 A C PL 0,3,30 0,3,4,5"], "sample b has, at 20:100, 4 values of PL; 2 alleles have 3, or 2"),
        (["100 A C,G PL 0,3,30,1,1,1 0,3,30"], None),
        (["100 A C,G PL 0,3,30,1,1,1 0,3,30,4"], "sample b has, at 20:100, 4 values of PL; 3 alleles have 6"),
        (["100 A C PL 0,3,30 0,-3,30"], "sample b has, at 20:100, -3 in PL; .* are they logarithms"),
        (["100 A C PL 0,3,30 0,x,30"], "truncated or malformed at record 1"),
        (["100 A C PL 0,3,30 0,1.5,30"], "truncated or malformed at record 1"),
        (["100 A C GL 0,3,30 0,0,-3"], "sample a has, at 20:100, 3 in GL; .* that is PL?"),
        (["100 A C GL 0,x,-3 0,0,-3"], "truncated or malformed at record 1"),
        (["100 A C GL 0,1e-3,-3 0,0,-3"], None),
        (["100 A C GT 0/1/1 0/1"], "sample a has, at 20:100, a call of 3 alleles"),
        (["100 A C GT 0/1 0/2"], "sample b has, at 20:100, a genotype that names an ALT allele which"),
        (["100 A C DP 3 4"], r"no record of a panel site has likelihoods .* defines PL and GL and GT\. Call"),
        (["100 A C PL . .", "200 A C GT ./. .", "500 T A GL .,.,. ."], "of all 2 samples are missing at"),
        (["100 A C PL 0,0,0 0,0"], "likelihoods and genotypes of all . samples? are missing"),
        (["101 A C PL 0,3,30 0,3,4"], r"none of its 1 sites is .* covers 20:100-500 \(position not in"),
        ([f"{p} C G PL 0,3,30 0,0,0" for p, _, _ in MANY[1:]] + ["4000 A C PL 0,3,4 0,0,0"],
         r"only 1 of its 40 records .* panel's alleles \(alleles differ from the panel: 39\)\. The file is"),
    ],
)  # fmt: skip
def test_invalid_values(gl_vcf: GlVcf, panel_of: PanelOf, records: list[str], message: str | None) -> None:
    panel = panel_of(MANY if len(records) > 20 else PANEL)
    if message is None:
        read(gl_vcf(*records), panel)
        return
    with pytest.raises(InputError, match=message) as error:
        read(gl_vcf(*records), panel)
    assert str(error.value).startswith("target ")
    assert "t.vcf" in str(error.value)


def test_another_build_in_the_header(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    """The build is reported only if sites do not fit."""
    read(gl_vcf("100 A C PL 0,3,30", length=64444167), panel_of(PANEL))
    with pytest.raises(NoMatch, match="The file is on GRCh38 according to its header, the panel on GRCh37"):
        read(gl_vcf("100 A G PL 0,3,30", length=64444167), panel_of(PANEL))
    # one fits by chance
    few = ["100 A C PL 0,3,30", *(f"{position} A C PL 0,3,30" for position in range(1_000, 1_010))]
    with pytest.raises(InputError, match=r"only 1 of its 11 sites are .* on GRCh38 according to .* \(chain="):
        read(gl_vcf(*few, length=64444167), panel_of(PANEL))
    read(gl_vcf(*few), panel_of(PANEL))


def test_no_samples_and_other_chromosomes(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    path = gl_vcf("100 A C PL 0,3,30")
    with pytest.raises(NoRecord, match=r"no record in 22\. The file has chromosome 20"):
        read(path, panel_of(PANEL, chrom="22"))
    path.write_text(re.sub(r"\tFORMAT\ta|\tPL\t.*", "", path.read_text()))
    with pytest.raises(InputError, match="the file has sites without samples"):
        read(path, panel_of(PANEL))


@pytest.mark.parametrize("type_", ["", ",Type=", ",Type=Int", ",Type=String", ",Type=Character"])
def test_a_header_that_does_not_define_pl_as_numbers(gl_vcf: GlVcf, panel_of: PanelOf, type_: str) -> None:
    path = gl_vcf("100 A C PL 0,3,30")
    path.write_text(path.read_text().replace("=G,Type=Integer", f"=G{type_}"))
    with pytest.raises(InputError, match="PL at 20:100"):
        read(path, panel_of(PANEL))


@pytest.mark.parametrize(
    "line", ["", "##FORMAT=<ID=AD,Number=R>\n", '##FORMAT=<ID=AD,Number=R,Type=String,Description="">\n']
)
def test_a_header_that_does_not_define_depths(gl_vcf: GlVcf, panel_of: PanelOf, line: str) -> None:
    """Depths are ignored with a warning; likelihoods do not change."""
    path = gl_vcf("100 A C PL:AD:DP 0,3,30:1,0:7", "500 T A PL:AD 30,3,0:0,1")
    with_reads = read(path, panel_of(PANEL))
    assert with_reads.depth_SX.tolist() == [[1], [1]]
    path.write_text(re.sub("##FORMAT=<ID=AD,.*\n", line, path.read_text()))
    with pytest.warns(UserWarning, match=r"t\.vcf: the header does not define AD as numbers.* ignored"):
        found = read(path, panel_of(PANEL))
    np.testing.assert_array_equal(found.phred_SX3, with_reads.phred_SX3)
    assert found.depth_SX.tolist() == [[7], [0]]


def test_a_header_that_defines_nothing(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    path = gl_vcf("100 A C XX 0,3,30", "200 A C . .")
    path.write_text(re.sub("##FORMAT.*\n", "", path.read_text()))
    with pytest.raises(InputError, match=r"no record of a panel site .* its header defines none of them"):
        read(path, panel_of(PANEL))


def test_order_within_a_position_is_the_panels(gl_vcf: GlVcf, panel_of: PanelOf) -> None:
    found = read(gl_vcf("200 A G PL 0,1,2", "200 A C PL 0,3,4"), panel_of(PANEL))
    assert found.panel_index.tolist() == [1, 2]
    assert found.phred_SX3[:, 0].tolist() == [[0, 3, 4], [0, 1, 2]]


def test_calls_of_the_example(example: Path, example_panel: spinimpute.Panel) -> None:
    """The example has more sites than are converted at once."""
    found = read(example / "truth.vcf.gz", example_panel)
    truth = read_haplotypes(example / "truth.vcf.gz")
    copies = truth.alleles.reshape(len(truth.alleles), -1, 2).sum(axis=2)
    assert len(found.panel_index) > 1_000
    places = {key: i for i, key in enumerate(truth.sites.keys())}
    rows = [places[example_panel.sites.keys()[i]] for i in found.panel_index[:500].tolist()]
    np.testing.assert_array_equal(found.phred_SX3[:500].argmin(axis=2), copies[rows])
