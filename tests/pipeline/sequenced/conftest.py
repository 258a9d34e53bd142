"""Fixtures of sequenced samples: simulated likelihoods and reads of people like those of a panel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

import spinimpute
from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods
from tests.pipeline.sequenced.outputs import phred_of_reads

N_SITES, N_PANEL, N_SAMPLES = 400, 80, 6
NAMES = [f"s{i}" for i in range(N_SAMPLES)]
PAR1_END = 2_699_520  # GRCh37
LENGTHS = {"20": 150_000, "X": 155_270_560}
READ = 90
ALL = ("GT", "DS", "HDS", "GP")
HEADER = """##fileformat=VCFv4.2
##contig=<ID={chrom},length={length}>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Phred-scaled likelihoods">
"""


@dataclass(frozen=True)
class World:
    """A panel file, and people who are made of the same founders."""

    chrom: str
    start: int  # where the genome's letters begin
    genome: str
    position: list[int]
    ref: list[str]
    alt: list[str]
    truth_SX2: np.ndarray
    panel: Path
    frequency: np.ndarray = field(repr=False)

    @property
    def names(self) -> list[str]:
        return NAMES

    @property
    def genotype_SX(self) -> np.ndarray:
        return self.truth_SX2.sum(axis=2)

    def write_vcf(
        self,
        path: Path,
        rows: Sequence[tuple[int, Sequence[str]]],
        names: Sequence[str] = NAMES,
        form: str = "PL",
    ) -> Path:
        """Records (number of the site, fields of the samples)."""
        columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names]
        lines = [HEADER.format(chrom=self.chrom, length=LENGTHS[self.chrom]) + "\t".join(columns)]
        for s, fields in rows:
            fixed = [self.chrom, str(self.position[s]), ".", self.ref[s], self.alt[s], ".", ".", ".", form]
            lines.append("\t".join([*fixed, *fields]))
        path.write_text("\n".join(lines) + "\n")
        return path

    def write_gl(
        self, path: Path, phred_SX3: np.ndarray, sites: Sequence[int], names: Sequence[str] = NAMES
    ) -> Path:
        """PL of some sites, whose rows of phred_SX3 are those of all sites."""
        rows = [(s, [",".join(map(str, phred_3)) for phred_3 in phred_SX3[s].tolist()]) for s in sites]
        return self.write_vcf(path, rows, names)

    def write_likelihoods(self, path: Path, found: GenotypeLikelihoods) -> Path:
        """What was read, as a file."""
        rows = [
            (int(s), [",".join(map(str, phred_3)) for phred_3 in phred_X3.tolist()])
            for s, phred_X3 in zip(found.panel_index, found.phred_SX3, strict=True)
        ]
        return self.write_vcf(path, rows)

    def write_bams(
        self,
        folder: Path,
        depth: float,
        samples: Sequence[int] = range(N_SAMPLES),
        haploid: Any = (),
        length: int = READ,
    ) -> list[Path]:
        """Reads of so many letters, 1% of them wrong, of either haplotype, one file for each sample."""
        paths = []
        for x in samples:
            rng = np.random.default_rng(100 + x)
            header = {
                "HD": {"VN": "1.6", "SO": "coordinate"},
                "SQ": [{"SN": self.chrom, "LN": LENGTHS[self.chrom]}],
                "RG": [{"ID": "g", "SM": NAMES[x]}],
            }
            haplotypes = [list(self.genome), list(self.genome)]
            for s, position in enumerate(self.position):
                for h in range(2):
                    if self.truth_SX2[s, x, h]:
                        haplotypes[h][position - self.start - 1] = self.alt[s]
            n_reads = int(depth * len(self.genome) / length)
            begins = np.sort(rng.integers(0, len(self.genome) - length, n_reads))
            path = folder / f"{NAMES[x]}.bam"
            with pysam.AlignmentFile(str(path), "wb", header=header) as file:
                for i, begin in enumerate(begins.tolist()):
                    letters = haplotypes[0 if x in haploid else rng.integers(2)][begin : begin + length]
                    for place in np.flatnonzero(rng.random(length) < 0.01).tolist():
                        letters[place] = "ACGT"[rng.integers(4)]
                    read = pysam.AlignedSegment(file.header)
                    read.query_name, read.flag, read.reference_id = f"r{i}", 0, 0
                    read.reference_start, read.mapping_quality = self.start + begin, 60
                    read.cigarstring, read.query_sequence = f"{length}M", "".join(letters)
                    read.query_qualities = pysam.qualitystring_to_array("5" * length)
                    file.write(read)
            pysam.index(str(path))
            paths.append(path)
        return paths


def mosaic(rng: np.random.Generator, source_SF: np.ndarray, n: int) -> np.ndarray:
    """Haplotypes that copy others, a new one every 200 sites."""
    now = rng.integers(0, source_SF.shape[1], n)
    out_SN = np.empty((len(source_SF), n), np.uint8)
    for s, row in enumerate(source_SF):
        now = np.where(rng.random(n) < 1 / 200, rng.integers(0, source_SF.shape[1], n), now)
        out_SN[s] = row[now]
    return out_SN


def make_world(folder: Path, chrom: str, start: int, n_sites: int = N_SITES) -> World:
    rng = np.random.default_rng(3)
    length = 300 * n_sites + 200
    letters = rng.integers(0, 4, length)
    at = np.sort(rng.choice(np.arange(100, length - 100), n_sites, replace=False))
    ref, alt = letters[at], (letters[at] + rng.integers(1, 4, n_sites)) % 4
    founder_SF = rng.random((n_sites, 12)) < rng.uniform(0.02, 0.6, (n_sites, 1))
    panel_SN = mosaic(rng, founder_SF, N_PANEL)
    truth_SQ = mosaic(rng, panel_SN, 2 * N_SAMPLES)
    world = World(
        chrom,
        start,
        "".join("ACGT"[i] for i in letters),
        (at + start + 1).tolist(),
        ["ACGT"[i] for i in ref],
        ["ACGT"[i] for i in alt],
        truth_SQ.reshape(n_sites, N_SAMPLES, 2).astype(int),
        folder / "panel.spin",
        panel_SN.mean(axis=1),
    )
    names = [f"p{i}" for i in range(N_PANEL // 2)]
    rows = [
        (s, ["|".join(map(str, pair)) for pair in panel_SN[s].reshape(-1, 2).tolist()])
        for s in range(n_sites)
    ]
    vcf = world.write_vcf(folder / "panel.vcf", rows, names, "GT")
    genetic_map = folder / "genetic.map"
    genetic_map.write_text(f"{chrom} . 0 {start + 1}\n{chrom} . {n_sites / 100} {start + length}\n")
    spinimpute.build_panels(vcf, world.panel, genetic_map)
    return world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), "20", 10_000)


@pytest.fixture(scope="session")
def x_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Across the end of PAR1; a third of it lies before."""
    return make_world(tmp_path_factory.mktemp("x"), "X", PAR1_END - 15_000, 150)


Impute = Callable[..., Path]


@pytest.fixture
def impute(tmp_path: Path) -> Impute:
    """impute(world, gl=None, bams=(), region=None, ...): the output, with all formats and four decimals."""
    count = iter(range(100))

    def run(
        world: World,
        gl: Path | None = None,
        bams: Sequence[Path] = (),
        *,
        region: RegionSettings = RegionSettings(),
        sexes: dict[str, bool] | None = None,
        suffix: str = ".vcf",
        threads: int = 1,
    ) -> Path:
        out = tmp_path / f"o{next(count)}{suffix}"
        impute_sequenced(
            out,
            world.panel,
            SequencingSettings(gl, bams, sexes=sexes),
            region=region,
            output=OutputSettings(ALL, decimals=4),
            resources=Resources(threads),
            force=True,  # likelihoods and reads are of different libraries
        )
        return out

    return run


@pytest.fixture(scope="session")
def gl(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One read a site, at two of three sites."""
    phred_SX3 = phred_of_reads(np.random.default_rng(1), world.genotype_SX, 1.0)
    sites = [s for s in range(N_SITES) if s % 3]
    return world.write_gl(tmp_path_factory.mktemp("gl") / "gl.vcf", phred_SX3, sites)


@pytest.fixture(scope="session")
def bams(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return world.write_bams(tmp_path_factory.mktemp("bams"), 1.0)
