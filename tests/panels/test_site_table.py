"""Site tables are read as they were written."""

import numpy as np
import pytest

from spinimpute.genotypes.sites import Sites
from spinimpute.panels.site_table import (
    SiteTable,
    decode_cM,
    decode_increasing,
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
