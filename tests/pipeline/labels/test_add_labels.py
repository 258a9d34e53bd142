"""`panel labels`: a panel file and a table become a panel with the labels on the right haplotypes."""

import csv
from collections.abc import Sequence
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import label_parts, match_sites
from spinimpute.pipeline.labels.build import add_labels
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.reader import read_haplotypes
from tests.conftest import Runner

pytestmark = pytest.mark.slow


def labels_of_haplotypes(panel: spinimpute.Panel, site: int) -> tuple[np.ndarray, list[int]]:
    """Return a label for each haplotype, its pattern at three common sites near a site, and these sites."""
    near = np.arange(site - 150, site + 150)
    common = near[np.abs(panel.frequency[near] - 0.5) < 0.3]
    chosen = common[np.linspace(0, len(common) - 1, 5).astype(int)][1:4].tolist()
    return sum(2**i * panel.alleles(x, x + 1)[0].astype(int) for i, x in enumerate(chosen)), chosen


def write_table(path: Path, panel: spinimpute.Panel, position: int, label_N: Sequence[int]) -> Path:
    """Write the two labels of each sample in increasing order, which does not show the haplotypes."""
    lines = ["sample\tlocus\tposition\tallele1\tallele2\n"]
    for x, name in enumerate(panel.samples):
        first, second = sorted(label_N[2 * x : 2 * x + 2])
        lines.append(f"{name}\tHLA-A\t{position}\t0{first}:01\t0{second}:01\n")
    path.write_text("".join(lines))
    return path


def write_truth(path: Path, panel: spinimpute.Panel, example: Path, sites: Sequence[int]) -> Path:
    """Write the true labels of the example's target: patterns at the sites of `labels_of_haplotypes`."""
    truth = read_haplotypes(example / "truth.vcf.gz", allow_unphased=True)
    match = match_sites(panel.sites, truth.sites)
    row_of = dict(zip(match.panel_index.tolist(), match.target_index.tolist(), strict=True))
    true_Q = sum(2**i * truth.alleles[row_of[x]].astype(int) for i, x in enumerate(sites))
    lines = ["sample\tlocus\tallele1\tallele2\n"]
    for number, sample in enumerate(truth.samples):
        first, second = true_Q[2 * number : 2 * number + 2]
        lines.append(f"{sample}\tA\t0{first}:01\t0{second}:01\n")
    path.write_text("".join(lines))
    return path


def test_labels_are_on_the_right_haplotypes(
    example_panel: spinimpute.Panel, tmp_path: Path, run: Runner
) -> None:
    panel, site = example_panel, example_panel.n_sites // 2
    position = int(panel.position[site])
    label_N, _ = labels_of_haplotypes(panel, site)
    n_labels = len(np.unique(label_N))
    types = write_table(tmp_path / "types.tsv", panel, position, label_N.tolist())
    out = tmp_path / "labels.spin"
    printed = run("panel", "labels", "--panel", panel.path, "--types", types, "--out", out, "--threads", 2)
    printed.ok(f"HLA-A: {n_labels} alleles of {panel.n_samples} samples")
    again = tmp_path / "again.spin"
    add_labels(panel.path, types, again, threads=1)
    with spinimpute.Panel.open(out) as made, spinimpute.Panel.open(again) as other:
        made.verify()
        assert made.checksum == other.checksum
        label_X = np.array([label_parts(alt) is not None for alt in made.sites.alt])
        assert made.multiallelic[label_X].all()
        assert [alt for alt in made.sites.alt if alt[0] == "<"] == [
            f"<HLA-A*0{k}:01>" for k in np.unique(label_N).tolist()
        ]
        assert set(np.array(made.sites.ref)[label_X]) == {"N"}
        assert set(made.position[label_X].tolist()) == {position}
        rows = made.alleles(0, made.n_sites)
        np.testing.assert_array_equal(rows[~label_X], panel.alleles(0, panel.n_sites))
        np.testing.assert_array_equal(made.allele_count, rows.sum(axis=1, dtype=np.int64))
        assert (rows[label_X].sum(axis=0) <= 1).all()
        found_N = np.unique(label_N)[rows[label_X].argmax(axis=0)]
        assert (found_N == label_N).mean() > 0.95
        assert "labels" in made.provenance
    with pytest.raises(InputError, match="labels of this locus already"):
        add_labels(out, types, tmp_path / "twice.spin")


def test_bad_loci(example_panel: spinimpute.Panel, tmp_path: Path, run: Runner) -> None:
    label_N = [0, 1] * example_panel.n_samples
    types = write_table(tmp_path / "types.tsv", example_panel, 1, label_N)
    printed = run(
        "panel", "labels", "--panel", example_panel.path, "--types", types, "--out", tmp_path / "x.spin"
    )
    printed.refused("HLA-A at", "is outside of the panel")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["types.tsv"]


def with_labels(panel: spinimpute.Panel, site: int, folder: Path) -> tuple[Path, list[int]]:
    """Return a copy of the panel with labels at a site, and the sites of the patterns that they name."""
    label_N, sites = labels_of_haplotypes(panel, site)
    types = write_table(folder / "types.tsv", panel, int(panel.position[site]), label_N.tolist())
    labelled = folder / "labels.spin"
    add_labels(panel.path, types, labelled)
    return labelled, sites


def test_labels_are_imputed(
    example_panel: spinimpute.Panel, example: Path, tmp_path: Path, run: Runner
) -> None:
    panel, site = example_panel, example_panel.n_sites // 2
    labelled, sites = with_labels(panel, site, tmp_path)
    arguments = ("--labels", tmp_path / "calls.tsv", "--format", "GT,DS,HDS")
    run.impute(example / "target.vcf.gz", labelled, tmp_path / "out.vcf.gz", *arguments).ok()
    with (tmp_path / "calls.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    truth = write_truth(tmp_path / "truth.tsv", panel, example, sites)
    for row in rows:
        assert 0 < float(row["probability"]) <= min(float(row[f"probability{n}"]) for n in (1, 2)) + 1e-4
    result = spinimpute.evaluate_labels(tmp_path / "calls.tsv", truth)
    assert min(row["pair_accuracy"] for row in result.by_locus) > 0.85
    assert len(rows) == 2 * len(result.samples)

    without = run.impute(
        example / "target.vcf.gz", panel.path, tmp_path / "x.vcf.gz", *arguments[:1], tmp_path / "e.tsv"
    )
    without.ok("has no labels in the imputed regions")
    assert len((tmp_path / "e.tsv").read_text().splitlines()) == 1


def test_labels_of_sequenced_samples(
    example_panel: spinimpute.Panel, example: Path, tmp_path: Path, run: Runner
) -> None:
    panel, site = example_panel, example_panel.n_sites // 2
    labelled, sites = with_labels(panel, site, tmp_path)
    tables = [tmp_path / name for name in ("calls.tsv", "split.tsv", "region.tsv")]
    region = f"{panel.chrom}:{panel.position[site - 500]}-{panel.position[site + 500]}"
    likelihoods = ("impute", "--gl", example / "truth.vcf.gz", "--region", region, "--panel")
    for table, more in zip(tables, ([], ["--split-multiallelic"], []), strict=True):
        chosen = panel.path if table is tables[2] else labelled
        out = tmp_path / f"{table.stem}.vcf.gz"
        printed = run(*likelihoods, chosen, "--out", out, "--labels", table, *more).ok()
    assert "has no labels in the imputed regions" in printed.err
    assert len(tables[2].read_text().splitlines()) == 1
    assert tables[0].read_bytes() == tables[1].read_bytes()
    truth = write_truth(tmp_path / "truth.tsv", panel, example, sites)
    result = spinimpute.evaluate_labels(tables[0], truth)
    assert {row["fields"] for row in result.by_locus} == {1, 2}
    assert min(row["pair_accuracy"] for row in result.by_locus) > 0.9
    run(*likelihoods, labelled, "--out", tmp_path / "n.bcf", "--labels", tables[0]).refused("already exists")
    run(*likelihoods, labelled, "--out", tmp_path / "n.bcf", "--labels", tmp_path / "n.tsv.gz").refused(
        "the table is not compressed. Leave out .gz"
    )
    assert not (tmp_path / "n.bcf").exists()


def test_a_locus_with_many_labels(
    example_panel: spinimpute.Panel, example: Path, tmp_path: Path, run: Runner
) -> None:
    """BCF stores an allele of a genotype in one byte if there are at most 62 ALTs, otherwise in two."""
    panel = example_panel
    position = int(panel.position[panel.n_sites // 2])
    types = write_table(tmp_path / "types.tsv", panel, position, np.arange(panel.n_haplotypes) // 2 % 140)
    labelled = tmp_path / "labels.spin"
    add_labels(panel.path, types, labelled)
    target, names = example / "target.vcf.gz", cyvcf2.VCF(str(example / "target.vcf.gz")).samples
    calls = {}
    parts = []
    for suffix in ("bcf", "vcf.gz"):
        for number, samples in enumerate((names[:2], names[2:5])):
            parts.append(tmp_path / f"{number}.{suffix}")
            run.impute(target, labelled, parts[-1], "--samples", ",".join(samples), "--mergeable").ok()
        merged = tmp_path / f"merged.{suffix}"
        run("merge", *parts[-2:], "--out", merged).ok()
        whole = tmp_path / f"whole.{suffix}"
        run.impute(target, labelled, whole, "--samples", ",".join(names[:5])).ok()
        for path in (merged, whole):
            (record,) = (one for one in cyvcf2.VCF(str(path)) if one.REF == "N")
            assert len(record.ALT) == 140
            calls[path.name] = record.genotype.array().tolist(), record.format("DS").tolist()
    assert len({str(found) for found in calls.values()}) == 1
    alleles = np.array(calls["whole.bcf"][0])[:, :2]
    assert alleles.min() >= 1
    assert alleles.max() > 62
