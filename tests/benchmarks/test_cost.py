"""The law of cost is found again, and added up to a genome."""

import json
from pathlib import Path

import pytest

from benchmarks.imputation.__main__ import make_parser
from benchmarks.imputation.cost import GENOME_MB, Law, Measured, fit

LAW = Law(1.5, 2e-5, 3e-4, 0.4, 1.0)
SIZES = [(n, q) for n in (1_000, 10_000, 50_000) for q in (100, 2_000)]


def test_a_law_is_found_again() -> None:
    law = fit([Measured(n, q, LAW.seconds(n, q)) for n, q in SIZES])
    found = (law.start, law.panel, law.target, law.power, law.worst)
    assert found == pytest.approx((1.5, 2e-5, 3e-4, 0.4, 1.0), rel=1e-6)


def test_what_does_not_follow_is_told() -> None:
    points = [Measured(n, q, LAW.seconds(n, q)) for n, q in SIZES]
    points[2] = Measured(10_000, 100, 2 * points[2].seconds)
    assert fit(points).worst > 1.2
    with pytest.raises(ValueError, match="two or more panels"):
        fit(points[:3])


def test_a_genome_pays_its_start_for_every_chunk() -> None:
    hours = LAW.genome_hours(10_000, 500, length_mb=0.5, chunk_mb=10)
    by_length = 2e-5 * 10_000 + 1_000 * 3e-4 * 10_000**0.4
    assert hours * 3_600 == pytest.approx(GENOME_MB * (by_length / 0.5 + 1.5 / 10))


def test_from_tables_to_a_report(tmp_path: Path) -> None:
    head = "axis\tpanel haplotypes\ttarget haplotypes\timputer\tstatus\tcpu_seconds\n"
    for q in (100, 2_000):
        folder = tmp_path / str(q)
        folder.mkdir()
        rows = [f"panel haplotypes\t{n}\t{q}\tX\tok\t{LAW.seconds(n, q)}\n" for n, of in SIZES if of == q]
        (folder / "scale.tsv").write_text(
            head + "".join(rows) + f"panel haplotypes\t9\t{q}\tX\tfailed\tnan\n"
        )
        configuration = {"history": {"length": 500_000}, "commit": "abc"}
        (folder / "configuration.json").write_text(json.dumps(configuration))
    words = ["cost", str(tmp_path / "100"), str(tmp_path / "2000"), "--out", str(tmp_path / "cost")]
    arguments = make_parser().parse_args([*words, "--price", "0.1"])
    arguments.function(arguments)
    report = (tmp_path / "cost" / "report.md").read_text()
    hours = LAW.genome_hours(50_000, 10_000, 0.5, 20)
    assert f"| 10,000 | 50,000 | {hours:,.0f} | {hours * 0.1 / 10_000:.1g} |" in report
    assert "1,000,000 (beyond what was measured)" in report
    assert "6.00e-04 N^0.40" in report
