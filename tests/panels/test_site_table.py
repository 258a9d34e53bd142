"""Site tables are read as they were written."""

import numpy as np
import pytest

from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.structural import StructuralVariant
from spinimpute.panels.site_table import (
    STRUCTURAL,
    SiteTable,
    decode_cM,
    decode_increasing,
    decode_sites,
    encode_cM,
    encode_increasing,
    encode_rounded_cM,
    encode_site_table,
    read_site_table,
)


@pytest.mark.parametrize("n", [1, 2, 500])
def test_round_trip(n: int) -> None:
    rng = np.random.default_rng(n)
    position = np.sort(rng.integers(1, 2**31, n))
    cM = np.cumsum(rng.exponential(0.4, n)) - 3  # maps may start below 0
    count = rng.integers(0, 2**32, n)
    names = [f"rs{i}" for i in range(n)]
    sites = Sites("chr20", position, ["A"] * n, ["ACGT"[: 1 + i % 4] for i in range(n)], names)
    sections = encode_site_table(SiteTable(sites, cM, count), np.zeros(n, bool))
    assert decode_cM(sections["cM"]).tolist() == cM.tolist()
    sections["cM"] = encode_rounded_cM(cM)
    table = read_site_table("chr20", lambda name: sections.get(name, b""))
    assert table.sites.keys() == sites.keys()
    assert table.sites.id == names
    assert table.sites.chrom == "chr20"
    np.testing.assert_allclose(table.cM, cM, rtol=0, atol=5.1e-9)
    assert (np.diff(table.cM) >= 0).all()
    np.testing.assert_array_equal(table.allele_count, count)


def test_increasing_numbers() -> None:
    for index in ([], [0], [3, 4, 90_000]):
        array = np.array(index, dtype=np.int64)
        np.testing.assert_array_equal(decode_increasing(encode_increasing(array)), array)


def test_genetic_positions_are_exact() -> None:
    for cM in ([], [0.1], [-1e300, -2.5, -0.0, 0.0, 5e-324, 1 / 3, 1e300]):
        found = decode_cM(encode_cM(np.array(cM)))
        assert found.dtype == np.float64
        assert list(map(repr, found.tolist())) == list(map(repr, cM))


def test_structural_variants() -> None:
    variants = {0: StructuralVariant(900, "DEL", "-890"), 2: StructuralVariant(25)}
    sites = Sites("20", np.array([10, 15, 20]), ["A"] * 3, ["<DEL>", "C", "<INV>"], ["."] * 3, variants)
    table = SiteTable(sites, np.zeros(3), np.ones(3, np.int64))
    sections = encode_site_table(table, np.zeros(3, bool))
    assert sections[STRUCTURAL] == b"0\t900\tDEL\t-890\n2\t25\t\t"
    decoded = decode_sites("20", sites.position, lambda name: sections.get(name, b""))
    assert decoded.structural == variants
    assert decoded.keys() == [(10, "A", "<DEL>;END=900"), (15, "A", "C"), (20, "A", "<INV>;END=25")]
    assert decoded.take(np.array([2, 1])).structural == {0: variants[2]}
    assert Sites.concatenate([decoded.take(slice(1, 3)), decoded]).structural == {
        1: variants[2], 2: variants[0], 4: variants[2],
    }  # fmt: skip
    plain = SiteTable(sites.take(np.array([1])), np.zeros(1), np.ones(1, np.int64))
    assert STRUCTURAL not in encode_site_table(plain, np.zeros(1, bool))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3\t30\t\t", "invalid structural"),
        ("-1\t30\t\t", "invalid structural"),
        ("0\t9\t\t", "invalid structural"),  # before the site
        ("0\t2147483648\t\t", "invalid structural"),
        ("0\t30\tA;B\t", "invalid structural"),
        ("0\t30\t\t1.5", "invalid structural"),
        ("0\t30", "not enough values"),
        ("x\t30\t\t", "invalid literal"),
    ],
)
def test_invalid_structural_variants(line: str, message: str) -> None:
    sections = {"ref": b"A\nA\nA", "alt": b"<DEL>\nC\n<INV>", "id": b".\n.\n.", STRUCTURAL: line.encode()}
    with pytest.raises(ValueError, match=message):
        decode_sites("20", np.array([10, 15, 20]), sections.__getitem__)


@pytest.mark.parametrize(
    ("alt", "name"), [(b"C\nC,G", b".\n."), (b"C\nC\0", b".\n."), (b"C\nG", b".\na\tb"), (b"C\nG", b"\r\n.")]
)
def test_characters_that_a_vcf_cannot_have(alt: bytes, name: bytes) -> None:
    sections = {"ref": b"A\nA", "alt": alt, "id": name, STRUCTURAL: b""}
    with pytest.raises(ValueError, match="characters that no column"):
        decode_sites("20", np.array([10, 15]), sections.__getitem__)
