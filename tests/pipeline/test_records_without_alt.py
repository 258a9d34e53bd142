"""Targets with records that have no ALT allele: homozygous REF calls of a single sample's export."""

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.runtime.errors import InputError
from spinimpute.targets.repair import ALT_ELSEWHERE


def test_homozygous_REF_calls_of_records_without_ALT_are_typed(
    example_rows, example_panel, write_vcf, tmp_path
):
    """As the export of a single sample has them, where all of its alleles are REF."""
    samples, rows = example_rows
    one = [(pos, ref, alt, [calls[3]]) for pos, ref, alt, calls in rows]
    one[7] = (*one[7][:3], [".|."])
    plain = [(pos, ref, alt if "1" in calls[0] else ".", calls) for pos, ref, alt, calls in one]
    n_plain = sum(row[2] == "." for row in plain)
    assert n_plain > 50
    other = next(p for p in range(rows[0][0], rows[-1][0]) if p not in set(example_panel.position.tolist()))
    taken = {row[0] for row in rows}
    site = next(i for i, p in enumerate(example_panel.position.tolist()) if p not in taken)
    position, wrong = int(example_panel.position[site]), {"A": "C"}.get(example_panel.sites.ref[site][0], "A")
    elsewhere = [(other, "A", ".", ["0|0"]), (position, wrong, ".", ["0|0"])]
    found = []
    for name, some in (("one", one), ("plain", sorted([*plain, *elsewhere]))):
        target = write_vcf(some, samples[3:4], f"{name}.vcf")
        summary = spinimpute.impute(target, tmp_path / f"{name}.out.vcf", example_panel)
        assert (summary.typed_sites, summary.matched_sites) == (len(rows), len(rows))
        found.append(
            [line for line in (tmp_path / f"{name}.out.vcf").read_text().split("\n") if line[:1] != "#"]
        )
    assert found[0] == found[1]
    assert summary.skipped == {"no ALT allele": 2}
    assert f"{n_plain} sites: no ALT allele: the panel's is taken" in "\n".join(summary.lines())


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_record_without_ALT_beside_one_with_ALT_is_left_out(
    example_rows, example_panel, write_vcf, tmp_path, before, swapped
):
    """Its calls would contradict those of a sample with the ALT allele."""
    samples, rows = example_rows
    at = next(i for i, row in enumerate(rows) if "1|0" in row[3])
    position, ref, alt, calls = rows[at]
    if swapped:
        exchange = str.maketrans("01", "10")
        rows[at] = (position, alt, ref, [call.translate(exchange) for call in calls])
    without = (position, ref, ".", ["0|0"] * len(samples))
    place = at if before else at + 1
    found = []
    for name, some in (("one", rows), ("two", [*rows[:place], without, *rows[place:]])):
        out = tmp_path / f"{name}.vcf"
        summary = spinimpute.impute(write_vcf(some, samples, f"{name}.t.vcf"), out, example_panel)
        found.append([line for line in out.read_text().splitlines() if line[0] != "#"])
    assert found[0] == found[1]
    assert summary.mended_calls == summary.unmatched == {}
    assert summary.repaired[ALT_ELSEWHERE] == 1


def test_a_call_of_an_ALT_that_the_record_lacks_is_refused(example_rows, example_panel, write_vcf, tmp_path):
    _, rows = example_rows
    target = write_vcf([(*rows[0][:2], ".", ["0|1"])])
    message = f"20:{rows[0][0]}, a genotype with an ALT allele that the record lacks"
    with pytest.raises(InputError, match=message):
        spinimpute.impute(target, tmp_path / "o.vcf", example_panel)


@pytest.mark.parametrize(
    ("panel_sites", "typed"),
    [
        ([("A", "C")], True),
        ([("AT", "A")], False),  # REF differs
        ([("A", "AT")], False),  # a base says nothing of what is inserted behind it
        ([("A", "C"), ("A", "G")], False),  # an array may ask for one of the alleles only
        ([("A", "C"), ("AT", "A")], False),
    ],
)
def test_which_panel_site_a_record_without_ALT_is(write_vcf, tmp_path, panel_sites, typed):
    calls = ["0|1", "1|0", "0|0", "1|1"]
    others = [(at, "A", "C", calls) for at in (100, 300)]
    rows = sorted([*others, *((200, ref, alt, calls) for ref, alt in panel_sites)])
    panel = write_vcf(rows, name="panel.vcf")
    spinimpute.build_panel(panel, tmp_path / "p.spin", GeneticMap.constant()).close()
    target = write_vcf([(100, "A", "C", ["0|1"]), (200, "A", ".", ["0|0"])])
    summary = spinimpute.impute(target, tmp_path / "o.vcf", tmp_path / "p.spin", force=True)
    found = [record.INFO.get("TYPED") is not None for record in cyvcf2.VCF(str(tmp_path / "o.vcf"))]
    assert found == [r[0] == 100 or (typed and r[0] == 200) for r in rows]
    assert summary.skipped == ({} if typed else {"no ALT allele": 1})


def test_records_without_ALT_do_not_hide_another_genome_build(
    example_rows, example_panel, write_vcf, tmp_path
):
    """Wherever they lie, some of them have the REF of a panel site at their position."""
    samples, rows = example_rows
    shifted = [(pos + 1, ref, alt, calls) for pos, ref, alt, calls in rows]
    sites = example_panel.sites
    once = np.flatnonzero(np.isin(sites.position, [row[0] for row in shifted], invert=True))
    lucky = [(int(sites.position[i]), sites.ref[i], ".", ["0|0"] * len(samples)) for i in once[::3]]
    target = write_vcf(sorted([*shifted, *lucky]), samples)
    with pytest.raises(InputError, match=r"only \d+ of the 2\d\d target sites .* another genome build"):
        spinimpute.impute(target, tmp_path / "o.vcf", example_panel)
