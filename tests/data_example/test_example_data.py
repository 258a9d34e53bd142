"""The example files agree with one another, with their README, and with their generator."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.vcf.reader import read_haplotypes

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "data" / "example"
FILES = ["array.txt", "genetic.map", "panel.vcf.gz", "target.vcf.gz", "truth.vcf.gz"]


@pytest.fixture(scope="module")
def genotypes():
    """The three VCF files by name."""
    return {name: read_haplotypes(EXAMPLE / f"{name}.vcf.gz") for name in ("panel", "target", "truth")}


def test_small_and_complete():
    assert sorted(path.name for path in EXAMPLE.iterdir()) == FILES
    assert sum(path.stat().st_size for path in EXAMPLE.iterdir()) < 2_000_000


def test_no_target_is_in_the_panel(genotypes):
    assert not set(genotypes["panel"].samples) & set(genotypes["target"].samples)
    assert genotypes["target"].samples == genotypes["truth"].samples


def test_target_sites_are_the_array(genotypes):
    array = [line.split("\t") for line in (EXAMPLE / "array.txt").read_text().splitlines()]
    assert {chrom for chrom, _ in array} == {"20"}
    assert genotypes["target"].sites.position.tolist() == [int(position) for _, position in array]
    assert 200 <= len(array) <= 300
    assert set(genotypes["target"].sites.keys()) <= set(genotypes["panel"].sites.keys())


def test_truth_holds_the_panel_sites_and_says_what_the_target_says(genotypes):
    panel, target, truth = (genotypes[name] for name in ("panel", "target", "truth"))
    assert truth.sites.keys() == panel.sites.keys()
    rows = np.searchsorted(truth.sites.position, target.sites.position)
    assert np.array_equal(truth.alleles[rows], target.alleles)


def test_panel_is_like_a_real_one(genotypes):
    panel = genotypes["panel"]
    count = panel.alleles.sum(1, dtype=int)
    n = panel.alleles.shape[1]
    assert (np.diff(panel.sites.position) > 0).all()
    assert 3_000 <= len(count) <= 6_000
    assert n == 300
    assert (panel.ploidy == 2).all()
    assert ((count > 0) & (count < n)).all()
    assert 0.1 < (count == 1).mean() < 0.5
    assert (count > n / 2).mean() > 0.03  # REF is not always the common allele
    assert panel.sites.id[0] == f"sim:{panel.sites.position[0]}:{panel.sites.ref[0]}:{panel.sites.alt[0]}"
    transitions = {"AG", "GA", "CT", "TC"}
    part = np.mean([r + a in transitions for r, a in zip(panel.sites.ref, panel.sites.alt, strict=True)])
    assert 0.6 < part < 0.75


def test_map_covers_the_segment(genotypes):
    genetic_map = GeneticMap.read(EXAMPLE / "genetic.map", "20")
    cM = genetic_map.cM(genotypes["panel"].sites.position)
    assert (np.diff(cM) >= 0).all()
    assert 0.5 < cM[-1] - cM[0] < 3
    rate = np.diff(cM) / np.diff(genotypes["panel"].sites.position)
    assert np.quantile(rate, 0.99) > 10 * np.median(rate)  # hotspots


def test_readme_states_the_sizes(genotypes):
    readme = (REPOSITORY / "data" / "README.md").read_text()
    assert f"{len(genotypes['panel'].sites):,} biallelic SNPs" in readme
    assert f"{len(genotypes['target'].sites)} array sites" in readme
    assert f"{len(genotypes['panel'].samples)} people" in readme


def generate(out, *arguments):
    command = [sys.executable, str(REPOSITORY / "data" / "make_example.py"), "--out", str(out), *arguments]
    # a script's own folder, not the repository, is on its path: an installed package is not needed here
    environment = {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def test_generator_is_deterministic_and_says_its_seed(tmp_path):
    pytest.importorskip("msprime", reason="msprime is not installed (extra: train)")
    arguments = ["--length", "100000", "--seed", "5"]
    assert "seed 5" in generate(tmp_path / "one", *arguments)
    generate(tmp_path / "two", *arguments)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    generate(tmp_path / "other", "--length", "100000", "--seed", "6")
    one, other = ((tmp_path / name / "truth.vcf.gz").read_bytes() for name in ("one", "other"))
    assert other != one


def test_committed_files_are_what_the_generator_writes(tmp_path):
    msprime = pytest.importorskip("msprime", reason="msprime is not installed (extra: train)")
    with gzip.open(EXAMPLE / "panel.vcf.gz", "rt") as stream:
        source = next(line for line in stream if line.startswith("##source"))
    if not source.strip().endswith(f"msprime {msprime.__version__}"):
        pytest.skip(f"the files were made by another msprime than {msprime.__version__}: {source.strip()}")
    generate(tmp_path)
    for name in FILES:
        made, committed = (tmp_path / name).read_bytes(), (EXAMPLE / name).read_bytes()
        if name.endswith(".gz"):  # another zlib may compress the same text to other bytes
            made, committed = gzip.decompress(made), gzip.decompress(committed)
        assert made == committed, name
