"""`impute` from real files to real files."""

from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline.settings import OutputSettings
from spinimpute.quality.site_quality import site_quality, site_sums
from spinimpute.runtime.errors import InputError

Row = tuple[int, str, str, list[str]]  # POS, REF, ALT, one GT per sample


def read(path: Path) -> list[tuple[int, str, str, np.ndarray, np.ndarray, bool]]:
    """Position, ID, alleles, GT (samples, 2; -2 pads haploids), DS and TYPED of every record."""
    return [
        (
            v.POS,
            v.ID,
            f"{v.REF}>{v.ALT[0]}",
            v.genotype.array()[:, :2],
            v.format("DS")[:, 0],
            bool(v.INFO.get("TYPED")),
        )
        for v in cyvcf2.VCF(str(path))
    ]


def test_typed_genotypes_come_out_as_they_went_in(example_target, example_panel, tmp_path):
    out = tmp_path / "o.bcf"
    summary = spinimpute.impute(example_target, out, example_panel)
    typed = {v.POS: v.genotype.array()[:, :2] for v in cyvcf2.VCF(str(example_target))}
    records = read(out)
    assert len(records) == example_panel.n_sites == summary.written_sites
    assert [r[0] for r in records] == example_panel.position.tolist()
    assert [r[1] for r in records] == example_panel.sites.id
    seen = 0
    for position, _, _, genotypes, dosage, is_typed in records:
        assert is_typed == (position in typed)
        if is_typed:
            seen += 1
            np.testing.assert_array_equal(genotypes, typed[position])
        assert ((dosage >= 0) & (dosage <= 2)).all()
    assert seen == summary.matched_sites == len(typed)
    assert (tmp_path / "o.bcf.csi").exists()


def test_dosages_and_genotypes_agree(example_target, example_panel, tmp_path):
    out = tmp_path / "o.vcf.gz"
    spinimpute.impute(
        example_target, out, example_panel, output=OutputSettings(formats=("GT", "DS", "HDS", "GP"))
    )
    for v in cyvcf2.VCF(str(out)):
        hds, gp = v.format("HDS"), v.format("GP")
        np.testing.assert_allclose(v.format("DS")[:, 0], hds.sum(1), atol=1e-6)
        np.testing.assert_allclose(gp.sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(gp[:, 1] + 2 * gp[:, 2], hds.sum(1), atol=1e-6)
        # a dosage of 0.5 is written rounded: either call is right there
        clear = np.abs(hds - 0.5) > 1e-3
        np.testing.assert_array_equal((hds > 0.5)[clear], v.genotype.array()[:, :2][clear] == 1)
        frequency = hds.mean()
        assert v.INFO["AF"] == pytest.approx(frequency, abs=5e-4)
        assert v.INFO["MAF"] == pytest.approx(min(v.INFO["AF"], 1 - v.INFO["AF"]), abs=1e-4)
        assert v.INFO["AVG_CS"] == pytest.approx(np.maximum(hds, 1 - hds).mean(), abs=1.1e-3)
        r2 = site_quality(site_sums(hds.reshape(1, -1)))["R2"]
        assert r2 is not None
        if 0.05 < frequency < 0.95:  # dosages are rounded by up to 5e-4, a hundredth of the least frequency
            assert v.INFO["R2"] == pytest.approx(r2[0], abs=1e-2)
        if v.INFO.get("TYPED"):
            assert v.INFO["AVG_CS"] == 1
            assert v.INFO["R2"] == (0 if frequency in (0, 1) else 1)


def test_every_site_has_an_r2(example_rows, example_panel, write_vcf, tmp_path):
    """Of one sample most typed sites do not vary."""
    samples, rows = example_rows
    target = write_vcf([(*row[:3], row[3][:1]) for row in rows], samples[:1])
    spinimpute.impute(target, tmp_path / "o.vcf", example_panel)
    constant = 0
    for v in cyvcf2.VCF(str(tmp_path / "o.vcf")):
        assert 0 <= v.INFO["R2"] <= 1
        if v.INFO.get("TYPED") and v.INFO["AF"] in (0, 1):
            constant += 1
            assert (v.INFO["R2"], v.INFO["MAF"], v.INFO["AVG_CS"]) == (0, 0, 1)
    assert constant > 10


def test_missing_calls_are_filled_and_others_kept(example_rows, example_panel, write_vcf, tmp_path):
    samples, rows = example_rows
    calls = rows[100][3]
    true = calls.copy()
    calls[0], calls[1] = ".|.", f".|{true[1][2]}"
    target = write_vcf(rows, samples)
    summary = spinimpute.impute(target, tmp_path / "o.bcf", example_panel)
    assert summary.missing_calls == 2  # calls, not alleles
    record = next(r for r in read(tmp_path / "o.bcf") if r[0] == rows[100][0])
    assert (record[3] >= 0).all()
    assert record[3][1, 1] == int(true[1][2])
    np.testing.assert_array_equal(record[3][2:], [[int(a) for a in call.split("|")] for call in true[2:]])
    assert record[5]


def test_haploid_samples_and_one_sample(example_rows, example_panel, write_vcf, tmp_path):
    samples, rows = example_rows
    mixed = [(pos, ref, alt, [calls[0], calls[1][0], calls[2]]) for pos, ref, alt, calls in rows]
    target = write_vcf(mixed, samples[:3], "mixed.vcf", chrom="chr20")
    spinimpute.impute(target, tmp_path / "mixed.bcf", example_panel)
    alone = write_vcf([(*row[:3], row[3][1:2]) for row in rows], samples[1:2], "one.vcf")
    spinimpute.impute(alone, tmp_path / "one.bcf", example_panel, output=OutputSettings(formats=("GT", "DS")))
    for one, three in zip(read(tmp_path / "one.bcf"), read(tmp_path / "mixed.bcf"), strict=True):
        assert three[3][1, 1] == -2  # no second allele
        assert three[3][1, 0] == one[3][0, 0] or abs(three[4][1] - 0.5) < 1e-3
        assert 0 <= three[4][1] <= 1


def test_unmatched_typed_sites(example_rows, example_panel, write_vcf, tmp_path):
    samples, rows = example_rows
    taken = set(example_panel.position.tolist())
    between = next(p for p in range(rows[50][0] + 1, 10**9) if p not in taken)
    beyond = int(example_panel.position[-1]) + 1000
    foreign = [(p, "G", "T", ["0|1"] * (len(samples) - 1) + [".|."]) for p in (between, beyond)]
    target = write_vcf(sorted([*rows, *foreign]), samples)
    counted = spinimpute.impute(target, tmp_path / "a.bcf", example_panel)
    assert sum(counted.unmatched.values()) == 2
    assert counted.written_sites == example_panel.n_sites
    kept = spinimpute.impute(
        target,
        tmp_path / "b.bcf",
        example_panel,
        predictor=spinimpute.PredictorSettings(options={"window_cM": 0.2}),
        output=OutputSettings(keep_unmatched=True),
    )
    assert kept.kept_unmatched == 2
    records = read(tmp_path / "b.bcf")
    assert len(records) == example_panel.n_sites + 2
    positions = [r[0] for r in records]
    assert positions == sorted(positions)
    for position in (between, beyond):
        record = records[positions.index(position)]
        assert record[5]
        np.testing.assert_array_equal(record[3][:-1], [[0, 1]] * (len(samples) - 1))
        np.testing.assert_array_equal(record[3][-1], [-1, -1])


def test_unmatched_sites_outside_the_region_are_not_kept(example_rows, example_panel, write_vcf, tmp_path):
    samples, rows = example_rows
    calls = ["0|1"] * len(samples)
    foreign: list[Row] = [(p, "G", "T", calls) for p in (300_001, 350_001, 400_001)]
    taken = set(example_panel.position.tolist())
    foreign = [row for row in foreign if row[0] not in taken]
    target = write_vcf(sorted([*rows, *foreign]), samples)
    out = tmp_path / "o.bcf"
    summary = spinimpute.impute(
        target,
        out,
        example_panel,
        region=spinimpute.RegionSettings(region="20:340000-360000"),
        output=OutputSettings(keep_unmatched=True),
    )
    positions = [r[0] for r in read(out)]
    assert 350_001 in positions
    assert all(340_000 <= position <= 360_000 for position in positions)
    assert summary.kept_unmatched == 1
    assert summary.written_sites == len(positions)


def test_regions_without_a_panel_site(example_target, example_panel, tmp_path):
    for name, message in (("21", "the panel is of chromosome"), ("20:5000000-6000000", "has no site in")):
        region = spinimpute.RegionSettings(name)
        with pytest.raises(InputError, match=message):
            spinimpute.impute(example_target, tmp_path / "x.bcf", example_panel, region=region)


def test_a_vcf_as_panel_is_compiled(example, example_panel, tmp_path):
    target = example / "target.vcf.gz"
    spinimpute.impute(
        target, tmp_path / "a.bcf", example / "panel.vcf.gz", genetic_map=example / "genetic.map"
    )
    spinimpute.impute(target, tmp_path / "b.bcf", example_panel)
    assert (tmp_path / "a.bcf").read_bytes() == (tmp_path / "b.bcf").read_bytes()
    with pytest.raises(
        InputError, match=r"leave genetic_map=\.\.\. out, or give it to spinimpute\.build_panel"
    ):
        spinimpute.impute(target, tmp_path / "c.bcf", example_panel.path, genetic_map=example / "genetic.map")


def test_multiallelic_panel_records_keep_their_identity(write_vcf, tmp_path, rng):
    samples = [f"s{i}" for i in range(40)]
    rows = []
    for i in range(60):
        alt = "C,G" if i % 10 == 5 else "C"
        codes = rng.integers(0, 3 if "," in alt else 2, (40, 2))
        rows.append((1000 + 100 * i, "A", alt, [f"{a}|{b}" for a, b in codes]))
    with spinimpute.build_panel(write_vcf(rows, samples, "p.vcf"), tmp_path / "p.spin") as panel:
        assert panel.n_sites == 66
        typed = [
            (pos, ref, alt, calls[:3]) for pos, ref, alt, calls in rows if pos % 300 == 100 and "," not in alt
        ]
        target = write_vcf(typed, ["x", "y", "z"])
        spinimpute.impute(target, tmp_path / "o.vcf.gz", panel)
    at = [(v.POS, v.ID, v.REF, v.ALT) for v in cyvcf2.VCF(str(tmp_path / "o.vcf.gz")) if v.POS == 1500]
    assert at == [(1500, "rs1500", "A", ["C", "G"])]


@pytest.mark.parametrize("model", [None, "random"])
def test_a_typed_allele_excludes_the_other_alleles_of_its_site(
    write_vcf, tmp_path, rng, random_predictor, model
):
    """A haplotype with C has no G. The other haplotype may have it: the REF of a split record includes G.

    An insertion behind the letter excludes nothing.
    """
    others = [(1500, "A", "G"), (1500, "A", "AT"), (1500, "AC", "GC"), (2000, "A", "ATT"), (2000, "A", "G")]
    calls = rng.integers(0, 2, (65, 40, 2))
    panel = [(1000 + 100 * i, "A", "AT" if i == 10 else "C") for i in range(60)] + others
    order = sorted(range(65), key=panel.__getitem__)
    rows = [(*panel[i], [f"{a}|{b}" for a, b in calls[i]]) for i in order]
    typed = [
        (1000 + 100 * i, "A", "AT" if i == 10 else "C", ["1|1", "0|1", "0|0", ".|1"]) for i in range(0, 60, 5)
    ]
    target = write_vcf(typed, ["both", "one", "none", "half"])
    source = write_vcf(rows, [f"s{i}" for i in range(40)], "p.vcf")
    predictor = spinimpute.PredictorSettings(model=random_predictor if model else None)
    output = OutputSettings(("GT", "HDS"), decimals=5)
    with spinimpute.build_panel(source, tmp_path / "p.spin") as built:
        spinimpute.impute(target, tmp_path / "o.vcf", built, predictor=predictor, output=output)
    found = {(v.POS, v.REF, v.ALT[0]): v.format("HDS") for v in cyvcf2.VCF(str(tmp_path / "o.vcf"))}
    carriers = np.array([[1, 1], [0, 1], [0, 0], [0, 1]])
    for site in others:
        excluded = site in [(1500, "A", "G"), (2000, "A", "ATT")]
        expected = excluded & (carriers == 1)
        np.testing.assert_array_equal(found[site] == 0, expected, err_msg=str(site))


def test_no_overlap_is_explained(example_rows, example_panel, write_vcf, tmp_path):
    samples, rows = example_rows
    other = write_vcf(rows, samples, "chrom.vcf", chrom="chr7")
    shifted = write_vcf([(p + 10_000_000, *rest) for p, *rest in rows], samples, "build.vcf")
    foreign = write_vcf([(p, ref, alt + "A", c) for p, ref, alt, c in rows], samples, "foreign.vcf")
    for target, parts in (
        (other, ("chr7", "20")),
        (shifted, ("20:259-999886", "20:1000")),
        (foreign, ("alleles differ from the panel",)),
    ):
        with pytest.raises(InputError) as caught:
            spinimpute.impute(target, tmp_path / "o.bcf", example_panel)
        for part in parts:
            assert part in str(caught.value), str(caught.value)
        assert not (tmp_path / "o.bcf").exists()


def test_header_names_model_and_panel(example_target, example_panel, tmp_path):
    out = tmp_path / "o.vcf"
    spinimpute.impute(example_target, out, example_panel, output=OutputSettings(header_lines=["##mine=1"]))
    header = [line for line in out.read_text().splitlines() if line.startswith("##")]
    predictor = spinimpute.load_predictor()
    assert f"##spinimpute_model={predictor.kind} {predictor.fingerprint} cpu" in header
    assert "classes=22-12 nearest=12" in predictor.fingerprint
    assert f"##spinimpute_panel={example_panel.checksum}" in header
    assert example_panel.contig_line in header
    assert "##mine=1" in header
    assert any(line.startswith("##source=spinimpute ") for line in header)
