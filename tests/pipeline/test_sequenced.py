"""Sequenced samples from files to files: simulated likelihoods and reads of people like those of a panel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cyvcf2
import numpy as np
import pysam
import pytest

import spinimpute
from spinimpute.errors import InputError
from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods, merge_likelihoods
from spinimpute.sequencing.pileup import read_alignments
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods

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


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), "20", 10_000)


@pytest.fixture(scope="module")
def x_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Across the end of PAR1; a third of it lies before."""
    return make_world(tmp_path_factory.mktemp("x"), "X", PAR1_END - 15_000, 150)


def phred_of_reads(rng: np.random.Generator, genotype_SX: np.ndarray, depth: float) -> np.ndarray:
    """Likelihoods of reads with 1% errors, int (S, X, 3)."""
    n_SX = rng.poisson(depth, genotype_SX.shape)
    p_3 = np.array([0.01, 0.5, 0.99])
    alt_SX = rng.binomial(n_SX, p_3[genotype_SX])
    phred_SX3 = -10 * (alt_SX[..., None] * np.log10(p_3) + (n_SX - alt_SX)[..., None] * np.log10(1 - p_3))
    return (phred_SX3 - phred_SX3.min(axis=2, keepdims=True)).round().clip(0, 255).astype(int)


def pl_rows(phred_SX3: np.ndarray, sites: Sequence[int]) -> list[tuple[int, list[str]]]:
    return [(s, [",".join(map(str, phred_3)) for phred_3 in phred_SX3[s].tolist()]) for s in sites]


def of_likelihoods(found: GenotypeLikelihoods) -> list[tuple[int, list[str]]]:
    """What was read, as records."""
    return [
        (int(s), [",".join(map(str, phred_3)) for phred_3 in phred_X3.tolist()])
        for s, phred_X3 in zip(found.panel_index, found.phred_SX3, strict=True)
    ]


def write_bams(
    world: World, folder: Path, depth: float, samples: Sequence[int] = range(N_SAMPLES), haploid: Any = ()
) -> list[Path]:
    """Reads of READ letters, 1% of them wrong, of either haplotype, one file for each sample."""
    paths = []
    for x in samples:
        rng = np.random.default_rng(100 + x)
        header = {
            "HD": {"VN": "1.6", "SO": "coordinate"},
            "SQ": [{"SN": world.chrom, "LN": LENGTHS[world.chrom]}],
            "RG": [{"ID": "g", "SM": NAMES[x]}],
        }
        haplotypes = [list(world.genome), list(world.genome)]
        for s, position in enumerate(world.position):
            for h in range(2):
                if world.truth_SX2[s, x, h]:
                    haplotypes[h][position - world.start - 1] = world.alt[s]
        begins = np.sort(rng.integers(0, len(world.genome) - READ, int(depth * len(world.genome) / READ)))
        path = folder / f"{NAMES[x]}.bam"
        with pysam.AlignmentFile(str(path), "wb", header=header) as file:
            for i, begin in enumerate(begins.tolist()):
                letters = haplotypes[0 if x in haploid else rng.integers(2)][begin : begin + READ]
                for place in np.flatnonzero(rng.random(READ) < 0.01).tolist():
                    letters[place] = "ACGT"[rng.integers(4)]
                read = pysam.AlignedSegment(file.header)
                read.query_name, read.flag, read.reference_id = f"r{i}", 0, 0
                read.reference_start, read.mapping_quality = world.start + begin, 60
                read.cigarstring, read.query_sequence = f"{READ}M", "".join(letters)
                read.query_qualities = pysam.qualitystring_to_array("5" * READ)
                file.write(read)
        pysam.index(str(path))
        paths.append(path)
    return paths


@dataclass(frozen=True)
class Imputed:
    """An output: numbers are (sites, samples), GP and HDS and GT with an axis more."""

    position: list[int]
    samples: list[str]
    GT: np.ndarray
    DS: np.ndarray
    HDS: np.ndarray
    GP: np.ndarray
    calls: list[list[list[Any]]]


def read(path: Path) -> Imputed:
    vcf = cyvcf2.VCF(str(path))
    samples = list(vcf.samples)
    rows = [
        (v.POS, v.genotype.array()[:, :2], v.format("DS")[:, 0], v.format("HDS"), v.format("GP"), v.genotypes)
        for v in vcf
    ]
    vcf.close()
    position, *numbers, calls = (list(column) for column in zip(*rows, strict=True))
    return Imputed(position, samples, *map(np.array, numbers), calls)


def without_header(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("##")]


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
        )
        return out

    return run


@pytest.fixture(scope="module")
def gl(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One read a site, at two of three sites."""
    phred_SX3 = phred_of_reads(np.random.default_rng(1), world.genotype_SX, 1.0)
    sites = [s for s in range(N_SITES) if s % 3]
    return world.write_vcf(tmp_path_factory.mktemp("gl") / "gl.vcf", pl_rows(phred_SX3, sites))


@pytest.fixture(scope="module")
def bams(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_bams(world, tmp_path_factory.mktemp("bams"), 1.0)


def correlation(dosage_SX: np.ndarray, truth_SX: np.ndarray, frequency_S: np.ndarray) -> float:
    """Of what is beyond the panel's frequency."""
    base_S1 = 2 * frequency_S[:, None]
    return float(np.corrcoef((dosage_SX - base_S1).ravel(), (truth_SX - base_S1).ravel())[0, 1])


# likelihoods


def test_truth_is_found_between_the_records_too(world: World, gl: Path, impute: Impute) -> None:
    out = impute(world, gl, suffix=".bcf")
    found = read(out)
    assert found.position == world.position
    assert found.samples == NAMES
    assert out.with_name(out.name + ".csi").exists()
    missing_S = np.arange(N_SITES) % 3 == 0
    for sites in (missing_S, ~missing_S):
        truth_SX, f_S = world.genotype_SX[sites], world.frequency[sites]
        assert correlation(found.DS[sites], truth_SX, f_S) > 0.9
        error = np.mean((found.DS[sites] - truth_SX) ** 2)
        assert error < 0.25 * np.mean((2 * f_S[:, None] - truth_SX) ** 2)


def test_formats_agree(world: World, gl: Path, impute: Impute) -> None:
    found = read(impute(world, gl))
    np.testing.assert_allclose(found.GP.sum(axis=2), 1, atol=2e-4)
    assert ((found.GP >= 0) & (found.GP <= 1)).all()
    np.testing.assert_allclose(found.DS, found.GP[:, :, 1] + 2 * found.GP[:, :, 2], atol=3e-4)
    np.testing.assert_allclose(found.DS, found.HDS.sum(axis=2), atol=2e-4)
    best_SX3 = np.sort(found.GP, axis=2)
    clear_SX = best_SX3[..., 2] - best_SX3[..., 1] > 1e-3
    assert clear_SX.mean() > 0.98
    np.testing.assert_array_equal(found.GT.sum(axis=2)[clear_SX], found.GP.argmax(axis=2)[clear_SX])
    assert all(call[2] for calls in found.calls for call in calls)  # phased
    het_SX = found.GT[..., 0] != found.GT[..., 1]
    ahead_SX = found.HDS[..., 0] - found.HDS[..., 1]
    np.testing.assert_array_equal(found.GT[..., 0][het_SX & (ahead_SX > 0)], 1)
    np.testing.assert_array_equal(found.GT[..., 1][het_SX & (ahead_SX < 0)], 1)


def test_the_summary(world: World, gl: Path, bams: list[Path], tmp_path: Path) -> None:
    summary = impute_sequenced(tmp_path / "o.vcf", world.panel, SequencingSettings(gl))
    assert (summary.panel_sites, summary.written_sites) == (N_SITES, N_SITES)
    assert summary.panel_haplotypes == N_PANEL
    assert summary.samples == NAMES
    assert (summary.haploid, summary.depth_X, summary.warnings) == (0, None, [])
    assert summary.known_sites <= 2 * N_SITES // 3
    # two of three sites, and of them those with reads: 1 - 1 / e
    np.testing.assert_allclose(summary.bare_X, 1 - 2 / 3 * (1 - np.exp(-1)), atol=0.1)
    assert summary.lines()[0].startswith(f"target:   {N_SAMPLES} samples")
    of_reads = impute_sequenced(tmp_path / "r.vcf", world.panel, SequencingSettings(None, bams))
    assert of_reads.depth_X is not None
    np.testing.assert_allclose(of_reads.depth_X, 1, atol=0.2)
    assert any(line.startswith("depth: ") for line in of_reads.lines())


def test_bytes_do_not_depend_on_threads_or_other_samples(world: World, gl: Path, impute: Impute) -> None:
    one = impute(world, gl)
    assert without_header(one) == without_header(impute(world, gl, threads=3))
    lines = [line.split("\t") for line in gl.read_text().splitlines() if not line.startswith("##")]
    for x in (0, 4):
        rows = [(world.position.index(int(line[1])), [line[9 + x]]) for line in lines[1:]]
        alone = impute(world, world.write_vcf(gl.with_name("alone.vcf"), rows, [NAMES[x]]))
        whole_columns = [line.split("\t")[9 + x] for line in without_header(one)]
        assert [line.split("\t")[9] for line in without_header(alone)] == whole_columns


@pytest.mark.parametrize("buffer_cM", [None, 0.0, 0.5, 100.0])
def test_a_region_has_exactly_its_records(
    world: World, gl: Path, impute: Impute, buffer_cM: float | None
) -> None:
    first, last = world.position[120], world.position[239]
    out = impute(world, gl, region=RegionSettings(f"20:{first}-{last}", buffer_cM))
    found, whole = read(out), read(impute(world, gl))
    assert found.position == world.position[120:240]
    limit = {None: 0.01, 0.0: 0.1, 0.5: 0.03, 100.0: 0}[buffer_cM]
    assert np.abs(found.DS - whole.DS[120:240]).mean() <= limit


def test_a_region_between_records_is_imputed_from_its_buffer(
    world: World, impute: Impute, tmp_path: Path
) -> None:
    phred_SX3 = phred_of_reads(np.random.default_rng(1), world.genotype_SX, 4.0)
    sites = [s for s in range(N_SITES) if not 200 <= s < 210]
    path = world.write_vcf(tmp_path / "gl.vcf", pl_rows(phred_SX3, sites))
    region = RegionSettings(f"20:{world.position[200]}-{world.position[209]}")
    found = read(impute(world, path, region=region))
    assert found.position == world.position[200:210]
    assert correlation(found.DS, world.genotype_SX[200:210], world.frequency[200:210]) > 0.8


def test_gl_and_gt_are_as_good(world: World, impute: Impute, tmp_path: Path) -> None:
    """Certain calls, unphased, at every fourth site."""
    calls = {0: "0/0", 1: "0/1", 2: "1/1"}
    sites = range(0, N_SITES, 4)
    rows = [(s, [calls[g] for g in world.genotype_SX[s].tolist()]) for s in sites]
    found = read(impute(world, world.write_vcf(tmp_path / "gt.vcf", rows, form="GT")))
    assert correlation(found.DS, world.genotype_SX, world.frequency) > 0.9
    np.testing.assert_array_equal(found.GT.sum(axis=2)[::4], world.genotype_SX[::4])


# reads


def test_reads_equal_their_likelihoods(
    world: World, bams: list[Path], impute: Impute, tmp_path: Path
) -> None:
    with spinimpute.Panel.open(world.panel) as panel:
        pileup = read_alignments(bams, panel).likelihoods
    path = world.write_vcf(tmp_path / "pl.vcf", of_likelihoods(pileup))
    of_reads = impute(world, bams=bams)
    assert without_header(of_reads) == without_header(impute(world, path))
    assert correlation(read(of_reads).DS, world.genotype_SX, world.frequency) > 0.9


def test_likelihoods_and_reads_together(
    world: World, gl: Path, bams: list[Path], impute: Impute, tmp_path: Path
) -> None:
    """As one file of both would be imputed, and better than from either; reads in another order."""
    with spinimpute.Panel.open(world.panel) as panel:
        joined = merge_likelihoods(
            read_variant_likelihoods(gl, panel), read_alignments(bams, panel).likelihoods
        )
    path = world.write_vcf(tmp_path / "both.vcf", of_likelihoods(joined))
    both = impute(world, gl, bams[::-1])
    assert without_header(both) == without_header(impute(world, path))
    error, by_gl, by_reads = (
        np.mean((read(x).DS - world.genotype_SX) ** 2)
        for x in (both, impute(world, gl), impute(world, bams=bams))
    )
    assert error < 0.8 * min(by_gl, by_reads)


def test_samples_of_both_must_be_the_same(world: World, gl: Path, bams: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not of the same samples"):
        impute_sequenced(tmp_path / "o.vcf", world.panel, SequencingSettings(gl, bams[1:]))
    assert not list(tmp_path.iterdir())


def test_samples_where_the_file_has_no_record(
    world: World, gl: Path, bams: list[Path], impute: Impute, tmp_path: Path
) -> None:
    """Which they are, and their order, does not depend on the region: regions are joined afterwards."""
    lines = gl.read_text().splitlines()
    half = [line for line in lines if line[0] == "#" or int(line.split("\t")[1]) < world.position[150]]
    path = tmp_path / "half.vcf"
    path.write_text("\n".join(half) + "\n")
    region = RegionSettings(f"20:{world.position[300]}-{world.position[390]}", 0.1)
    assert read(impute(world, path, bams[::-1], region=region)).samples == NAMES
    with pytest.raises(InputError, match="not of the same samples"):
        impute(world, path, bams[1:], region=region)


# chromosome X

MEN = {name: i % 2 == 0 for i, name in enumerate(NAMES)}


def x_rows(
    world: World, depth: float, sites: Sequence[int]
) -> tuple[np.ndarray, list[tuple[int, list[str]]]]:
    """Truth, and records: men have one copy beyond PAR1, stated by two numbers."""
    genotype_SX = world.genotype_SX.copy()
    beyond_S = np.array(world.position) > PAR1_END
    man_X = np.array(list(MEN.values()))
    one_SX = beyond_S[:, None] & man_X
    genotype_SX = np.where(one_SX, 2 * world.truth_SX2[..., 0], genotype_SX)
    phred_SX3 = phred_of_reads(np.random.default_rng(2), genotype_SX, depth)
    rows = []
    for s in sites:
        fields = []
        for x in range(N_SAMPLES):
            phred = phred_SX3[s, x]
            if one_SX[s, x]:
                phred = phred[::2] - phred[::2].min()
            fields.append(",".join(map(str, phred.tolist())))
        rows.append((s, fields))
    return genotype_SX, rows


def test_men_have_one_copy_beyond_par1(x_world: World, impute: Impute, tmp_path: Path) -> None:
    truth_SX, rows = x_rows(x_world, 2.0, [s for s in range(150) if s % 4])
    gl = x_world.write_vcf(tmp_path / "gl.vcf", rows)
    beyond_S = np.array(x_world.position) > PAR1_END
    assert 20 < beyond_S.sum() < 140
    outs = [impute(x_world, gl, sexes=sexes, suffix=".vcf") for sexes in (None, MEN)]
    assert without_header(outs[0]) == without_header(outs[1])
    found = read(outs[0])
    assert found.position == x_world.position
    for s, calls in enumerate(found.calls):
        ploidy = [len(call) - 1 for call in calls]
        assert ploidy == ([1, 2] * 3 if beyond_S[s] else [2] * N_SAMPLES)
    man_X = np.array(list(MEN.values()))
    dosage_SX = np.where(beyond_S[:, None] & man_X, 2 * found.DS, found.DS)
    for sites in (beyond_S, ~beyond_S):
        for people in (man_X, ~man_X):
            chosen = np.ix_(sites, people)
            assert correlation(dosage_SX[chosen], truth_SX[chosen], x_world.frequency[sites]) > 0.85


def test_a_man_depends_on_nobody_else(x_world: World, impute: Impute, tmp_path: Path) -> None:
    """Where he has no read others do: that they were looked at says nothing of him."""
    bams = write_bams(x_world, tmp_path, 0.4, haploid=[0, 2, 4])
    region = RegionSettings(f"X:{PAR1_END + 1}-{x_world.position[-1]}")
    whole = without_header(impute(x_world, bams=bams, sexes=MEN, region=region))
    for x in range(2):
        alone = without_header(impute(x_world, bams=[bams[x]], sexes=MEN, region=region))
        assert [line.split("\t")[9] for line in alone] == [line.split("\t")[9 + x] for line in whole]


def test_what_is_unknown_of_men(x_world: World, tmp_path: Path) -> None:
    """Without reads at a site nothing is known of anybody there."""
    bams = write_bams(x_world, tmp_path, 0.4, haploid=[0, 2, 4])
    region = RegionSettings(f"X:{PAR1_END + 1}-{x_world.position[-1]}", 0)
    summary = impute_sequenced(
        tmp_path / "o.vcf", x_world.panel, SequencingSettings(None, bams, sexes=MEN), region=region
    )
    assert summary.haploid == 3
    np.testing.assert_allclose(summary.bare_X, np.exp(-0.4), atol=0.2)


def test_columns_of_a_part_without_records(x_world: World, impute: Impute, tmp_path: Path) -> None:
    """The likelihoods begin beyond PAR1, and reads are in another order: everybody keeps their column."""
    truth_SX, rows = x_rows(x_world, 2.0, range(150))
    rows = [row for row in rows if x_world.position[row[0]] > PAR1_END]
    gl = x_world.write_vcf(tmp_path / "gl.vcf", rows)
    bams = write_bams(x_world, tmp_path, 2.0, haploid=[0, 2, 4])
    found = read(impute(x_world, gl, bams[::-1], sexes=MEN))
    of_name = [found.samples.index(name) for name in NAMES]
    for part in (np.array(x_world.position) <= PAR1_END, np.array(x_world.position) > PAR1_END):
        women = [1, 3, 5]
        dosage_SX = found.DS[np.ix_(part, [of_name[x] for x in women])]
        assert correlation(dosage_SX, truth_SX[np.ix_(part, women)], x_world.frequency[part]) > 0.85


def test_a_part_of_which_nothing_is_known_is_told(x_world: World, tmp_path: Path) -> None:
    _, rows = x_rows(x_world, 2.0, range(150))
    rows = [row for row in rows if x_world.position[row[0]] > PAR1_END]
    gl = x_world.write_vcf(tmp_path / "gl.vcf", rows)
    out = tmp_path / "o.vcf"
    summary = impute_sequenced(out, x_world.panel, SequencingSettings(gl))
    (warning,) = summary.warnings
    assert "nothing is known of any sample in X:" in warning
    written = [int(line.split("\t")[1]) for line in without_header(out)[1:]]
    assert written == [x_world.position[s] for s, _ in rows]
