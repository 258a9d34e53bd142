"""Commands and programs that read or write multi-allelic records."""

import gzip
import shutil
import subprocess
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline.sequenced import records as sequenced_records
from tests.pipeline.multiallelic.multiallelic_rows import (
    FORMATS,
    N_SITES,
    content,
    haploid,
    impute,
    panel_rows,
    read_rows,
    record_starts,
    records_of,
    split_formats,
    target_rows,
)

SUFFIXES = pytest.mark.parametrize("suffix", ["vcf", "vcf.gz", "bcf"])


@SUFFIXES
@pytest.mark.parametrize("haploid_sample", [None, 0])
def test_merged_samples_equal_a_single_run(panel, rng, write_vcf, tmp_path, suffix, haploid_sample):
    rows = haploid(target_rows(panel, rng, 5), haploid_sample)
    rows[4] = (*rows[4][:3], [*rows[4][3][:3], ".|.", "0|."])
    target, paths = write_vcf(rows), []
    for samples in (["a"], ["b", "c", "d"], ["e"]):
        out = tmp_path / f"{samples[0]}.{suffix}"
        settings = spinimpute.OutputSettings(FORMATS, leave_one_out=True, mergeable=True)
        chosen = spinimpute.TargetSettings(samples=samples)
        spinimpute.impute(target, out, panel, target=chosen, output=settings)
        paths.append(out)
    tables = [tmp_path / "single.tsv.gz", tmp_path / "merged.tsv.gz"]
    for options in ({}, {"min_maf": 0.3, "min_r2": 0.5}):
        single = impute(
            target, panel, tmp_path / f"single.{suffix}", leave_one_out=True, sites=tables[0], **options
        )
        summary = spinimpute.merge_samples(
            paths, tmp_path / f"m.{suffix}", sites=tables[1], force=True, **options
        )
        assert content(tmp_path / f"m.{suffix}") == content(single)
        assert content(tables[0]) == content(tables[1])
        single.unlink()
        tables[0].unlink()
        assert summary.written_sites + summary.left_out_sites == panel.n_sites
    first = spinimpute.merge_samples(paths[:2], tmp_path / f"ab.{suffix}", mergeable=True)
    assert first.batches == 2
    spinimpute.merge_samples([tmp_path / f"ab.{suffix}", paths[2]], tmp_path / f"abc.{suffix}")
    spinimpute.merge_samples(paths, tmp_path / f"m.{suffix}", force=True)
    assert content(tmp_path / f"abc.{suffix}") == content(tmp_path / f"m.{suffix}")


@SUFFIXES
@pytest.mark.parametrize("split", [False, True])
def test_ligated_chunks_equal_a_single_run(panel, rng, write_vcf, tmp_path, suffix, split):
    target = write_vcf(haploid(target_rows(panel, rng), 1))
    single = impute(target, panel, tmp_path / f"s.{suffix}", split_multiallelic=split)
    chunks = []
    for region in ("20:1-4000", "20:3500-6200", "20:6201-"):
        chunks.append(tmp_path / f"{len(chunks)}.{suffix}")
        output = spinimpute.OutputSettings(split_formats(split), split_multiallelic=split)
        spinimpute.impute(target, chunks[-1], panel, region=spinimpute.RegionSettings(region), output=output)
    joined = tmp_path / f"l.{suffix}"
    spinimpute.ligate(chunks, joined, panel=panel)
    assert content(joined) == content(single)
    spinimpute.ligate(chunks, joined, force=True)
    assert content(joined) == content(single)


@pytest.mark.parametrize("formats", [("DS",), ("GT",), ("HDS",), ("GP",), split_formats(True)])
def test_evaluate_compares_alleles(build, rng, write_vcf, tmp_path, formats):
    """Joined records have the accuracy of split records; the truth may have multi-allelic records, too."""
    rows = panel_rows(rng)
    with build([(*row[:3], row[3][5:]) for row in rows]) as panel:
        truth = write_vcf(haploid([(*row[:3], row[3][:5]) for row in rows], 2), name="truth.vcf")
        typed = write_vcf([row for row in read_rows(truth) if row[0] % 400 == 0], name="typed.vcf")
        found = []
        for split in (False, True):
            output = spinimpute.OutputSettings(formats, split_multiallelic=split, decimals=5)
            spinimpute.impute(typed, tmp_path / f"{split}.bcf", panel, output=output)
            result = spinimpute.evaluate(truth, tmp_path / f"{split}.bcf", panel.path, typed)
            found.append(result)
    assert found[0].scored_sites == found[1].scored_sites > N_SITES / 2
    for one, other in zip(found[0].by_frequency, found[1].by_frequency, strict=True):
        for name, value in one.items():
            # calls of two ALT alleles on one haplotype are possible only in split records
            tolerance = 0.05 if "GT" in formats else 1e-3
            assert value == pytest.approx(other[name], abs=tolerance, nan_ok=True)


def test_bcftools_splits_records_as_split_multiallelic_does(panel, rng, write_vcf, tmp_path):
    bcftools = shutil.which("bcftools")
    if bcftools is None:
        pytest.skip("bcftools is not installed")
    target = write_vcf(target_rows(panel, rng))
    found = []
    for split in (False, True):
        out = tmp_path / f"{split}.vcf.gz"
        spinimpute.impute(target, out, panel, output=spinimpute.OutputSettings(split_multiallelic=split))
        query = "%POS %REF %ALT %AF %MAF %R2 %AVG_CS [ %DS]\n"
        norm = subprocess.run([bcftools, "norm", "-m-any", out], capture_output=True, check=True).stdout
        lines = subprocess.run([bcftools, "query", "-f", query], input=norm, capture_output=True, check=True)
        found.append(sorted(line.split() for line in lines.stdout.decode().splitlines()))
    assert len(found[0]) == panel.n_sites
    for one, other in zip(*found, strict=True):
        assert one[:3] == other[:3]
        np.testing.assert_array_equal(np.array(one[3:7], float), np.array(other[3:7], float))
        np.testing.assert_allclose(np.array(one[7:], float), np.array(other[7:], float), atol=0.0021)


def likelihoods_file(path: Path, panel: spinimpute.Panel, likelihoods_SX3: np.ndarray, samples: str) -> Path:
    """A VCF with PL at every second site; a sample's name is its column in the likelihoods."""
    fixed = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
    lines = ["##fileformat=VCFv4.2", "##contig=<ID=20>"]
    lines += ['##FORMAT=<ID=PL,Number=G,Type=Integer,Description="PL">', "\t".join([*fixed, *samples])]
    sites = panel.sites
    for site in range(0, panel.n_sites, 2):
        columns = [",".join(map(str, likelihoods_SX3[site, int(name)].tolist())) for name in samples]
        fixed = ["20", str(sites.position[site]), ".", sites.ref[site], sites.alt[site], ".", ".", ".", "PL"]
        lines.append("\t".join([*fixed, *columns]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_sequenced_samples(panel, rng, tmp_path, monkeypatch):
    """Each record is written once, with blocks of any size; merged samples equal a single run."""
    likelihoods_SX3 = rng.integers(0, 60, (panel.n_sites, 4, 3))
    likelihoods_SX3[np.arange(panel.n_sites), :, rng.integers(0, 3, panel.n_sites)] = 0

    def run(samples: str, **output: bool) -> Path:
        out = tmp_path / f"{samples}.vcf"
        source = likelihoods_file(tmp_path / "pl.vcf", panel, likelihoods_SX3, samples)
        sequencing = spinimpute.SequencingSettings(likelihoods=source)
        settings = spinimpute.OutputSettings(FORMATS, **output)
        spinimpute.impute_sequenced(out, panel, sequencing, output=settings, force=True)
        return out

    single = run("0123").read_bytes()
    monkeypatch.setattr(sequenced_records, "MAX_SITES", 1)
    out = run("0123")
    assert out.read_bytes() == single
    variants = list(cyvcf2.VCF(str(out)))
    assert [v.POS for v in variants] == panel.position[record_starts(records_of(panel))].tolist()
    assert [alt for v in variants for alt in v.ALT] == panel.sites.alt
    batches = [run(samples, mergeable=True) for samples in ("01", "23")]
    spinimpute.merge_samples(batches, tmp_path / "m.vcf")
    assert (tmp_path / "m.vcf").read_bytes() == single


def test_outputs_are_targets(panel, rng, write_vcf, tmp_path):
    """`convert` splits the records again; the calls of each allele stay."""
    out = impute(write_vcf(target_rows(panel, rng)), panel, tmp_path / "o.bcf")
    spinimpute.convert(out, tmp_path / "c.vcf", panel)
    rows = {
        (v.POS, v.REF, v.ALT[0]): [call[:2] for call in v.genotypes]
        for v in cyvcf2.VCF(str(tmp_path / "c.vcf"))
    }
    expected = {
        (v.POS, v.REF, alt): [[int(a == k) for a in call[:2]] for call in v.genotypes]
        for v in cyvcf2.VCF(str(out))
        for k, alt in enumerate(v.ALT, start=1)
    }
    assert rows == expected
    assert len(rows) == panel.n_sites


def test_pgen_and_bgen_have_biallelic_records(panel, rng, write_vcf, tmp_path):
    target = write_vcf(target_rows(panel, rng))
    spinimpute.impute(target, tmp_path / "o.pgen", panel)
    spinimpute.impute(target, tmp_path / "o.bgen", panel)
    lines = (tmp_path / "o.pvar").read_text().splitlines()
    alts = [line.split("\t")[4] for line in lines if line[0] != "#"]
    assert alts == panel.sites.alt
    with gzip.open(tmp_path / "o.sites.tsv.gz", "rt") as file:
        assert [line.split("\t")[4] for line in file][1:] == panel.sites.alt
