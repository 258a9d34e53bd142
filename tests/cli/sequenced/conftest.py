"""Fixtures of sequenced samples: a small panel, people whose genotypes are known, likelihoods and reads."""

from collections.abc import Callable, Sequence
from pathlib import Path

import cyvcf2
import numpy as np
import pysam
import pytest

import spinimpute
from spinimpute.genotypes.sites import Region

Rows = list[list[str]]
Truth = tuple[list[str], list[tuple[int, str, str]], np.ndarray]
N_SAMPLES = 5
LENGTH = 1_000_000
HEAD = f"""##fileformat=VCFv4.2
##contig=<ID=20,length={LENGTH}>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Phred-scaled likelihoods">
##FORMAT=<ID=GL,Number=G,Type=Float,Description="Likelihoods">
##FORMAT=<ID=DP,Number=1,Type=Integer,Description="Reads">
"""


@pytest.fixture(scope="module")
def small_panel(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's first 300 kb."""
    path = tmp_path_factory.mktemp("small") / "small.spin"
    region = Region("20", 1, 300_000)
    spinimpute.build_panel(example / "panel.vcf.gz", path, example / "genetic.map", region).close()
    return path


@pytest.fixture(scope="module")
def truth(example: Path) -> Truth:
    """Names, sites and genotypes (S, X) of some people in the first 300 kb."""
    vcf = cyvcf2.VCF(str(example / "truth.vcf.gz"))
    sites, genotypes = [], []
    for v in vcf:
        if v.POS <= 300_000:
            sites.append((v.POS, v.REF, v.ALT[0]))
            genotypes.append(v.genotype.array()[:N_SAMPLES, :2].sum(axis=1))
    names = vcf.samples[:N_SAMPLES]
    vcf.close()
    return names, sites, np.array(genotypes)


@pytest.fixture(scope="module")
def rows(truth: Truth) -> Rows:
    """Records with PL of two reads a site; every fourth site is left out."""
    _, sites, genotype_SX = truth
    rng = np.random.default_rng(5)
    n_SX = rng.poisson(2.0, genotype_SX.shape)
    p_3 = np.array([0.01, 0.5, 0.99])
    alt_SX = rng.binomial(n_SX, p_3[genotype_SX])
    phred_SX3 = -10 * (alt_SX[..., None] * np.log10(p_3) + (n_SX - alt_SX)[..., None] * np.log10(1 - p_3))
    phred_SX3 = (phred_SX3 - phred_SX3.min(axis=2, keepdims=True)).round().astype(int)
    return [
        ["20", str(position), ".", ref, alt, ".", ".", ".", "PL:DP"]
        + [f"{','.join(map(str, phred))}:{n}" for phred, n in zip(phreds, depths, strict=True)]
        for s, ((position, ref, alt), phreds, depths) in enumerate(
            zip(sites, phred_SX3.tolist(), n_SX.tolist(), strict=True)
        )
        if s % 4
    ]


def write(path: Path, rows: Sequence[Sequence[str]], chrom: str = "20") -> Path:
    names = [f"s{x}" for x in range(len(rows[0]) - 9)]
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names]
    path.write_text(
        HEAD.replace("ID=20", f"ID={chrom}") + "\n".join("\t".join(row) for row in [columns, *rows]) + "\n"
    )
    return path


@pytest.fixture(scope="module")
def gl(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gl") / "gl.vcf", rows)


def write_bam(
    path: Path, sites: Sequence[tuple[int, str, str]], sample: str = "one", length: int = LENGTH
) -> Path:
    """A read of each site alone, with ALT at every third one."""
    header = {
        "HD": {"VN": "1.6", "SO": "coordinate"},
        "SQ": [{"SN": "20", "LN": length}],
        "RG": [{"ID": "g", "SM": sample}],
    }
    with pysam.AlignmentFile(str(path), "wb", header=header) as file:
        for i, (position, ref, alt) in enumerate(sites):
            read = pysam.AlignedSegment(file.header)
            read.query_name, read.flag, read.reference_id = f"r{i}", 0, 0
            read.reference_start, read.mapping_quality = position - 1, 60
            read.cigarstring, read.query_sequence = "1M", (ref if i % 3 else alt)[0]
            read.query_qualities = pysam.qualitystring_to_array("5")
            file.write(read)
    pysam.index(str(path))
    return path


@pytest.fixture
def bam(truth: Truth, tmp_path: Path) -> Path:
    return write_bam(tmp_path / "one.bam", truth[1])


@pytest.fixture
def write_gl() -> Callable[..., Path]:
    """write_gl(path, rows, chrom="20"): samples are s0, s1 ..."""
    return write


@pytest.fixture
def write_reads() -> Callable[..., Path]:
    """write_reads(path, sites, sample="one", length=LENGTH): a read of each site, with index."""
    return write_bam
