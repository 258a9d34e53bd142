"""Output with multi-allelic records."""

import gzip
import warnings
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.records import RecordRows
from spinimpute.pipeline.chunk_file import read_chunk
from tests.pipeline.multiallelic.multiallelic_rows import (
    FORMATS,
    N_SAMPLES,
    N_SITES,
    Row,
    content,
    haploid,
    impute,
    panel_rows,
    record_starts,
    records_of,
    split_formats,
    target_rows,
    with_alts_in_order,
)


@pytest.mark.parametrize("decimals", [1, 3])
def test_one_record_for_each_record(panel, rng, write_vcf, tmp_path, decimals):
    """Its values follow from those of the biallelic records of --split-multiallelic."""
    rows = haploid(target_rows(panel, rng), 1)
    rows[3] = (*rows[3][:3], [".|.", ".", "0|0"])
    target = write_vcf(rows)
    split = impute(target, panel, tmp_path / "s.vcf", split_multiallelic=True, decimals=5)
    joined = impute(target, panel, tmp_path / "j.vcf", decimals=decimals)
    records = RecordRows.of(panel.sites, panel.multiallelic, panel.frequency)
    alts = [(variant.POS, variant.ID, variant.REF, variant.ALT[0]) for variant in cyvcf2.VCF(str(split))]
    one = 10**decimals
    row = 0
    for variant, single in zip(cyvcf2.VCF(str(joined)), record_starts(records), strict=True):
        n = len(variant.ALT)
        assert single == row
        assert [(variant.POS, variant.ID, variant.REF, alt) for alt in variant.ALT] == alts[row : row + n]
        row += n
        if n == 1:
            continue
        hds = variant.format("HDS").reshape(3, 2, n)
        assert np.isnan(hds[1, 1]).all()
        units = np.nan_to_num(np.rint(hds * one))
        assert units.sum(axis=2).max() <= one
        np.testing.assert_array_equal(np.rint(variant.format("DS") * one), units.sum(axis=1))
        gp = np.rint(variant.format("GP") * one)
        assert np.isnan(gp[1, n + 1 :]).all()
        np.testing.assert_array_equal(np.nansum(gp, axis=1), one)
        allele = np.concatenate([one - units.sum(axis=2, keepdims=True), units], axis=2)
        np.testing.assert_array_equal(gp[1, : n + 1], allele[1, 0])
        pairs = [(a, b) for b in range(n + 1) for a in range(b + 1)]
        for number, (a, b) in enumerate(pairs):
            first, second = allele[[0, 2], 0], allele[[0, 2], 1]
            exact = (first[:, a] * second[:, b] + (a < b) * first[:, b] * second[:, a]) / one
            assert (np.abs(gp[[0, 2], number] - exact) < 1).all()
        for call, values in zip(variant.genotypes, allele, strict=True):
            assert call[-1]
            for number, of_haplotype in zip(call[:-1], values, strict=False):
                assert of_haplotype[number] >= of_haplotype.max() - 1
    assert row == len(alts)


def values(path: Path) -> list[tuple]:
    """INFO and HDS of each ALT."""
    found = []
    for variant in cyvcf2.VCF(str(path)):
        n = len(variant.ALT)
        info = dict(variant.INFO)
        hds = variant.format("HDS").reshape(variant.num_called + variant.num_unknown, -1, n)
        for k, alt in enumerate(variant.ALT):
            own = {key: value[k] if isinstance(value, tuple) else value for key, value in info.items()}
            found.append((variant.POS, alt, own, hds[:, :, k].tolist()))
    return found


def test_the_values_of_an_allele_are_those_of_its_biallelic_record(panel, rng, write_vcf, tmp_path):
    target = write_vcf(target_rows(panel, rng))
    split, joined = (
        values(impute(target, panel, tmp_path / f"{split}.vcf", split_multiallelic=split, leave_one_out=True))
        for split in (True, False)
    )
    assert len(split) == len(joined) == panel.n_sites
    for one, other in zip(split, joined, strict=True):
        assert one[:2] == other[:2]
        for key in ("AF", "MAF", "AVG_CS", "R2"):
            assert one[2][key] == other[2][key]
        if one[2].get("TYPED"):
            assert other[2]["TYPED"]
            assert one[2].get("ER2") == other[2].get("ER2")
        np.testing.assert_allclose(one[3], other[3], atol=0.0011)


def test_typed_calls_are_unchanged(panel, rng, write_vcf, tmp_path):
    """A target with multi-allelic records, in another order of ALTs."""
    columns = rng.permutation(2 * N_SAMPLES)[:4]
    rows: list[Row] = []
    for record in record_starts(records_of(panel))[::2]:
        stop = record + 1
        while stop < panel.n_sites and records_of(panel).continues[stop]:
            stop += 1
        alts = panel.sites.alt[record:stop][::-1]
        bits = panel.alleles(record, stop)[::-1, columns]
        allele = bits.argmax(axis=0) + bits.max(axis=0)
        position, ref = int(panel.position[record]), panel.sites.ref[record]
        rows.append((position, ref, ",".join(alts), [f"{a}|{b}" for a, b in allele.reshape(-1, 2).tolist()]))
    target = write_vcf(rows)
    out = impute(target, panel, tmp_path / "o.vcf")
    typed = {(v.POS, v.REF, frozenset(v.ALT)): v for v in cyvcf2.VCF(str(target))}
    found = 0
    for variant in cyvcf2.VCF(str(out)):
        given = typed.get((variant.POS, variant.REF, frozenset(variant.ALT)))
        if given is not None:
            assert variant.gt_bases.tolist() == given.gt_bases.tolist()
            assert variant.INFO.get("TYPED")
            found += len(variant.ALT) > 1
    assert found > 5


def test_order_of_alts_changes_nothing(build, rng, write_vcf, tmp_path):
    rows = panel_rows(rng)
    found = []
    for name, some in (("p", rows), ("q", with_alts_in_order(rows, lambda alts: alts[::-1]))):
        with build(some, name) as panel:
            target = write_vcf(target_rows(panel, np.random.default_rng(3)))
            found.append(impute(target, panel, tmp_path / f"{name}.o.vcf").read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("haploid_sample", [None, 2])
def test_vcf_and_bcf_are_equal(panel, rng, write_vcf, tmp_path, haploid_sample):
    target = write_vcf(haploid(target_rows(panel, rng), haploid_sample))
    texts = []
    for suffix in ("vcf", "vcf.gz", "bcf"):
        out = impute(target, panel, tmp_path / f"o.{suffix}", leave_one_out=True)
        texts.append([str(variant) for variant in cyvcf2.VCF(str(out))])
    assert texts[0] == texts[1] == texts[2]


def test_biallelic_panels_have_the_header_of_before(build, rng, write_vcf, tmp_path):
    with build(panel_rows(rng), split_multiallelic=True) as panel:
        target = write_vcf(target_rows(panel, rng))
        texts = []
        for split in (True, False):
            output = spinimpute.OutputSettings(split_formats(True), split_multiallelic=split)
            spinimpute.impute(target, tmp_path / f"{split}.vcf", panel, output=output)
            texts.append((tmp_path / f"{split}.vcf").read_text())
    assert texts[0] == texts[1]
    assert "ID=DS,Number=1," in texts[0]
    assert texts[0].count("Number=A") == 1  # AF


def test_filters_keep_a_record_with_one_good_allele(panel, rng, write_vcf, tmp_path):
    target = write_vcf(target_rows(panel, rng))
    table = tmp_path / "sites.tsv.gz"
    whole = impute(target, panel, tmp_path / "w.vcf", sites=table)
    with gzip.open(table, "rt") as file:
        assert len(file.readlines()) == panel.n_sites + 1
    out = impute(target, panel, tmp_path / "o.vcf", min_maf=0.2)
    kept = {(v.POS, *v.ALT) for v in cyvcf2.VCF(str(out))}
    expected, partly = set(), 0
    for variant in cyvcf2.VCF(str(whole)):
        maf = np.atleast_1d(variant.INFO["MAF"]).round(4)
        if (maf >= 0.2).any():
            expected.add((variant.POS, *variant.ALT))
            partly += (maf < 0.2).any()
    assert kept == expected
    assert partly
    assert len(kept) < N_SITES


def test_a_record_with_many_alleles(write_vcf, tmp_path, rng):
    """Its allele numbers have two digits. `ligate` may swap the haplotypes of a sample."""
    alts = ",".join("C" * (1 + i) for i in range(12))
    samples = [f"s{i}" for i in range(30)]
    rows: list[Row] = []
    for i in range(20):
        calls = rng.integers(0, 13 if i % 4 else 2, (30, 2))
        rows.append((1000 + 10 * i, "A", alts if i % 4 else "G", [f"{a}|{b}" for a, b in calls]))
    target = write_vcf(haploid([(*row[:3], row[3][:4]) for row in rows[::2]], 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        panel = spinimpute.build_panel(write_vcf(rows, samples, "p.vcf"), tmp_path / "p.spin")
    found = []
    for suffix in ("vcf", "bcf"):
        out = tmp_path / f"o.{suffix}"
        output = spinimpute.OutputSettings(FORMATS)
        spinimpute.impute(target, out, panel, output=output, region=spinimpute.RegionSettings("20:1-2000"))
        chunk = read_chunk(out, 1)
        assert len(chunk) == len(rows)
        with chunk.open_records(1) as stream:
            data = stream.read_until(len(chunk))
        alleles, _ = chunk.records.genotypes(data, chunk.length)
        swapped = tmp_path / f"swapped.{suffix}"
        chosen = np.array([True, False, True, False])
        swapped.write_bytes(
            content(out)[: chunk.data_start] + chunk.records.swap_haplotypes(data, chunk.length, chosen)
        )
        pairs = zip(cyvcf2.VCF(str(out)), cyvcf2.VCF(str(swapped)), strict=True)
        for record, (before, after) in enumerate(pairs):
            for sample in range(4):
                call, new = before.genotypes[sample][:-1], after.genotypes[sample][:-1]
                assert new == (call[::-1] if chosen[sample] else call)
                assert alleles[record, sample].tolist() == (call if len(call) == 2 else [-1, -1])
            hds = before.format("HDS").reshape(4, 2, -1)
            np.testing.assert_array_equal(after.format("HDS").reshape(4, 2, -1)[chosen], hds[chosen][:, ::-1])
            np.testing.assert_array_equal(after.format("HDS").reshape(4, 2, -1)[~chosen], hds[~chosen])
            for key in ("DS", "GP"):
                np.testing.assert_array_equal(after.format(key), before.format(key))
        found.append([str(variant) for variant in cyvcf2.VCF(str(swapped))])
    panel.close()
    assert found[0] == found[1]
    assert alleles.max() > 9


def test_unphased_calls_keep_both_alts(panel, rng, write_vcf, tmp_path):
    """Phasing splits 1/2 into two heterozygotes, whose ALTs must be on different haplotypes at the end."""
    whole = [row for row in panel_rows(np.random.default_rng(5)) if row[2] != "CC"]
    rows = [(*row[:3], ["/".join(sorted(call.split("|"))) for call in row[3][5:25]]) for row in whole]
    for row in rows:
        if "," in row[2]:
            row[3][:8] = ["1/2"] * 8
    target = write_vcf(rows)
    calls = {(variant.POS, variant.REF): variant for variant in cyvcf2.VCF(str(target))}
    found = 0
    for variant in cyvcf2.VCF(str(impute(target, panel, tmp_path / "o.vcf"))):
        given = calls.get((variant.POS, variant.REF))
        if given is None or len(given.ALT) == 1 or len(variant.ALT) == 1:
            continue
        for before, after in zip(given.gt_bases, variant.gt_bases, strict=True):
            assert sorted(before.split("/")) == sorted(after.split("|"))
            found += before == "C/G"
    assert found > 50


def test_a_hint_for_plink_only_where_it_applies(panel, rng, write_vcf, tmp_path, run):
    target = write_vcf(target_rows(panel, rng))
    two, three = (f"20:{panel.position[0]}-{panel.position[stop]}" for stop in (1, 2))
    options = {
        (): N_SITES // 5,
        ("--region", three, "--buffer", "5"): 1,
        ("--region", two, "--buffer", "5"): 0,
        ("--split-multiallelic",): 0,
        ("--min-r2", "0.9", "--min-maf", "0.3"): None,
        ("--format", "GT"): 0,
    }
    for number, (more, expected) in enumerate(options.items()):
        out = tmp_path / f"out{number}.vcf"
        printed = run.impute(target, panel.path, out, "--min-typed-ratio", "0", *more).ok()
        joined = sum(len(variant.ALT) > 1 for variant in cyvcf2.VCF(str(out)))
        hinted = 0 if "GT" in more else joined
        assert expected in (None, hinted)
        assert 0 < joined < N_SITES // 5 or expected is not None
        assert printed.err.count("PLINK") == bool(hinted)
        if hinted:
            assert f"{hinted} multi-allelic records, whose dosages PLINK 2 cannot read" in printed.err
            assert "(--split-multiallelic splits them)" in printed.err


@pytest.mark.parametrize("suffix", ["vcf", "bcf"])
def test_mean_lengths_follow_from_dosages(panel, rng, write_vcf, tmp_path, suffix):
    """ML is in the records whose alleles have several lengths, also if they are biallelic."""
    target = write_vcf(haploid(target_rows(panel, rng), 1))
    out = tmp_path / f"o.{suffix}"
    spinimpute.impute(target, out, panel, output=spinimpute.OutputSettings(("DS", "ML"), decimals=5))
    copies, n_found = np.array([2, 1, 2]), 0
    for variant in cyvcf2.VCF(str(out)):
        added = [len(alt) - len(variant.REF) for alt in variant.ALT]
        lengths = variant.format("ML")
        if not any(added):
            assert np.isnan(lengths).all()
            continue
        n_found += 1
        expected = len(variant.REF) + variant.format("DS") @ added / copies
        np.testing.assert_allclose(lengths[:, 0], expected, atol=0.0051)
    assert n_found == sum(len(alt) > 1 for alt in panel.sites.alt)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("o.vcf", ["--split-multiallelic"], "--split-multiallelic has a record for each"),
        ("o.bgen", [], "a .bgen output has a record for each"),
        ("o.pgen", [], "a .pgen output has a record for each"),
    ],
)
def test_mean_lengths_need_whole_records(panel, rng, write_vcf, tmp_path, run, name, options, message):
    target = write_vcf(target_rows(panel, rng))
    files = ["--vcf", target, "--panel", panel.path, "--out", tmp_path / name]
    run("impute", *files, "--format", "GT,ML", *options).refused(message)
    assert not (tmp_path / name).exists()
