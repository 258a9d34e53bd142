"""The values of records with several ALT alleles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.bcf_format import BadRecord
from spinimpute.vcf.multiallelic import join_columns, multiallelic_fields, record_intervals
from spinimpute.vcf.raw_records import RecordTable, TextRecords
from spinimpute.vcf.record_fields import NumberCodes, SampleLayout, allele_lengths

FORMATS = ("GT", "DS", "HDS", "GP")


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_alts=st.integers(2, 7),
    decimals=st.integers(1, 5),
    sharpness=st.sampled_from([0.05, 0.5, 3.0]),
    ploidy=st.lists(st.integers(1, 2), min_size=1, max_size=5),
)
def test_probabilities_add_up_to_exactly_1(seed, n_alts, decimals, sharpness, ploidy):
    """For all haplotypes and genotypes; values differ from the exact ones by at most some units."""
    rng = np.random.default_rng(seed)
    ploidy_N = np.array(ploidy)
    codes = NumberCodes(decimals)
    one = codes.one
    layout = SampleLayout(ploidy_N, FORMATS, codes, n_alts)
    p_RQA = rng.dirichlet([sharpness] * (n_alts + 1), (4, ploidy_N.sum())).astype(np.float32)
    p_RKQ = p_RQA[:, :, 1:].swapaxes(1, 2)
    fields = multiallelic_fields(layout, p_RKQ)
    hds = np.array(fields.numbers["HDS"]).reshape(layout.max_ploidy, n_alts, 4, -1)
    dosage, gp = np.array(fields.numbers["DS"]), np.array(fields.numbers["GP"])
    first_Q = np.cumsum(ploidy_N) - ploidy_N
    for n, (first, copies) in enumerate(zip(first_Q, ploidy_N, strict=True)):
        units = hds[:copies, :, :, n]
        assert (hds[copies:, :, :, n] == codes.absent).all()
        assert units.min() >= 0
        assert units.sum(axis=1).max() <= one
        np.testing.assert_array_equal(dosage[:, :, n], units.sum(axis=0))
        exact = p_RKQ[:, :, first : first + copies].transpose(2, 1, 0) * one
        assert np.abs(units - exact).max() < 1.01
        alleles = np.concatenate([one - units.sum(axis=1, keepdims=True), units], axis=1)
        if copies == 1:
            np.testing.assert_array_equal(gp[: n_alts + 1, :, n], alleles[0])
            assert (gp[n_alts + 1 :, :, n] == codes.absent).all()
        else:
            np.testing.assert_array_equal(gp[:, :, n].sum(axis=0), one)
            pairs = [(a, b) for b in range(n_alts + 1) for a in range(b + 1)]
            for value, (a, b) in zip(gp[:, :, n], pairs, strict=True):
                joint = alleles[0, a] * alleles[1, b] + (a != b) * alleles[0, b] * alleles[1, a]
                assert np.abs(value - joint / one).max() < 1.01
        for haplotype in range(copies):
            p_RA = p_RQA[:, first + haplotype]
            p_called_R = np.take_along_axis(p_RA, fields.alleles[:, n, haplotype, None].astype(int), 1)
            assert (p_called_R[:, 0] >= p_RA.max(axis=1) - 1e-6).all()


def test_ties_are_called_as_in_biallelic_records():
    """ALT if it is as likely as REF; of equally likely ALT alleles the first."""
    layout = SampleLayout(np.array([1, 1, 1]), ("GT",), NumberCodes(3), 2)
    p_RKQ = np.array([[[0.5, 0.25, 0.375], [0.0, 0.25, 0.375]]], np.float32)
    assert multiallelic_fields(layout, p_RKQ).alleles[0, :, 0].tolist() == [1, 0, 1]


def test_contradictory_typed_alleles_and_missing_ones():
    """A haplotype with two typed ALT alleles gets half of each; one missing value makes all missing."""
    codes = NumberCodes(3)
    layout = SampleLayout(np.array([2, 2]), FORMATS, codes, 2)
    p_RKQ = np.array([[[1, 0, np.nan, 0], [1, 1, 0, 0]]], np.float32)
    fields = multiallelic_fields(layout, p_RKQ)
    assert [one[0, 0] for one in fields.numbers["HDS"]] == [500, 500, 0, 1000]
    assert fields.alleles.tolist() == [[[1, 2], [-1, 0]]]
    assert [one[0, 1] for one in fields.numbers["DS"]] == [codes.missing] * 2
    assert [one[0, 1] for one in fields.numbers["GP"]] == [codes.missing] + [codes.absent] * 5


def test_info_of_joined_rows():
    records = record_intervals(np.array([False, False, True, True, False, True]))
    assert records == [Interval(0, 1), Interval(1, 4), Interval(4, 6)]
    columns = {
        "AF": ["0.1", "0.2", None, "0.3", None, None],
        "TYPED": [None, None, "", None, None, None],
        "FAR": ["", "", None, "", "", ""],
    }
    assert join_columns(columns, records) == {
        "AF": ["0.1", "0.2,.,0.3", None],
        "TYPED": [None, "", None],
        "FAR": ["", None, ""],
    }


@pytest.mark.parametrize(("ploidy", "n_values"), [(1, (1, 3, 3, 4)), (2, (2, 3, 6, 10))])
def test_numbers_of_values(ploidy, n_values):
    layout = SampleLayout(np.array([ploidy]), FORMATS, NumberCodes(3), 3)
    assert tuple(layout.n_values.values()) == n_values


@pytest.mark.parametrize("n_alts", [1, 12, 120])
def test_allele_numbers_of_lines(n_alts):
    alts = ",".join("C" * (1 + i) for i in range(n_alts))

    def scan(call: str) -> np.ndarray:
        records = TextRecords("20", ["GT", "DS"], 1, ["##INFO=<ID=TYPED,Number=0,Type=Flag>"])
        line = f"20\t5\t.\tA\t{alts}\t.\tPASS\tTYPED\tGT:DS\t{call}:0.5\n".encode()
        table = RecordTable()
        assert records.scan(2 * line, table) == 2 * len(line)
        return records.genotypes(2 * line, np.array(table.length))[0]

    for call in ([0, n_alts], [n_alts, 0], [n_alts, n_alts], [0, 0]):
        assert scan("|".join(map(str, call))).tolist() == [[call], [call]]
    assert scan(f".|{n_alts}").tolist() == [[[-1, n_alts]]] * 2
    for call in (
        f"0|{n_alts + 1}",
        "0|00",
        f"0{n_alts}|0",
        f"{n_alts}|",
        f"|{n_alts}",
        "0|0|0",
        "0|..",
        "1e1|0",
    ):
        with pytest.raises(BadRecord, match="not a genotype"):
            scan(call)


def test_lengths_are_those_of_sequences():
    """SNPs, symbolic alleles and labels have no length."""
    ref, alt = zip(
        ("A", "C,G"),
        ("A", "AC,ACC"),
        ("ACG", "A,T"),
        ("A", "<DEL>,AC"),
        ("AC", "A,*"),
        ("AC", "G,TT"),
        strict=True,
    )
    lengths = allele_lengths(Sites("20", np.arange(1, 7), list(ref), list(alt), ["."] * 6))
    nan = [np.nan] * 3
    np.testing.assert_array_equal(lengths, [nan, [1, 2, 3], [3, 1, 1], nan, nan, [2, 1, 2]])


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((3, 4), "3.25"),
        ((1, 2), "1.25"),
        ((99_999, 100_000), "99999.2"),
        ((999_999, 1_000_000), "999999"),
        ((1_000_000, 9_999_999), "3250000"),
    ],
)
def test_texts_of_lengths_fit_into_seven_characters(lengths, text):
    """And have no exponent, because `ligate` reads digits and a point only."""
    layout = SampleLayout(np.array([2]), ("ML",), NumberCodes(3))
    fields = layout.fields(np.array([[0.5, 0]], np.float32), None, length_RA=np.array([lengths], float))
    assert list(fields.length_texts) == [".", text]


@pytest.mark.parametrize("ploidy", [(2, 2), (2, 1), (1, 1)])
@pytest.mark.parametrize("n_alts", [1, 2, 5])
def test_mean_lengths(n_alts, ploidy):
    """Each allele counts by its probability; haploid samples have one allele."""
    rng = np.random.default_rng(n_alts)
    ploidy_N = np.array(ploidy)
    p_RQA = rng.dirichlet([0.3] * (n_alts + 1), (6, ploidy_N.sum())).astype(np.float32)
    p_RQA[1, 0] = np.nan
    length_RA = rng.integers(1, 60, (6, n_alts + 1)).astype(float)
    length_RA[2] = np.nan
    length_RA[3] *= 1e5
    layout = SampleLayout(ploidy_N, ("DS", "ML"), NumberCodes(5), n_alts)
    p_RKQ = p_RQA[:, :, 1:].swapaxes(1, 2)
    if n_alts == 1:
        fields = layout.fields(p_RKQ[:, 0], None, length_RA=length_RA)
    else:
        fields = multiallelic_fields(layout, p_RKQ, length_RA)
    assert max(map(len, fields.length_texts)) <= 7
    texts = np.array(fields.length_texts)[fields.numbers["ML"][0]]
    stops = np.cumsum(ploidy_N)
    for r in range(6):
        for n, (start, stop) in enumerate(zip(stops - ploidy_N, stops, strict=True)):
            expected = (p_RQA[r, start:stop] @ length_RA[r]).mean()
            if np.isnan(expected):
                assert texts[r, n] == "."
            else:
                assert float(texts[r, n]) == pytest.approx(expected, rel=1e-4, abs=0.01)
