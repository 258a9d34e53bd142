"""`spinimpute impute --bam --indels`: carriers whom no site nearby tells apart, found by their reads."""

from pathlib import Path

import cyvcf2
import numpy as np
import pysam
import pytest

N_SITES, N_PANEL, N_SAMPLES, READ, LENGTH = 90, 60, 4, 100, 40_000
START, SPACE = 1_000, 400  # of the sites; so far apart that no read has two
HEAD = """##fileformat=VCFv4.2
##contig=<ID=20,length=40000>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
"""
# where the second of three sites is one of these, with what follows them
INDELS = [("G", "GTA", "CCC"), ("GTA", "G", "CCC"), ("C", "CA", "AAAAT"), ("CA", "C", "AAAAT")]


class World:
    """SNPs that say which founder a haplotype is of, and between them indels that anybody may carry."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(8)
        self.position = [START + SPACE * s for s in range(N_SITES)]
        letters = list("".join(rng.choice(list("ACGT"), LENGTH)))
        self.alleles = []
        for s, position in enumerate(self.position):
            ref, alt, behind = INDELS[(s // 3) % 4] if s % 3 == 1 else ("A", "C", "")
            letters[position - 1 : position - 1 + len(ref + behind)] = ref + behind
            self.alleles.append((ref, alt))
        self.genome = "".join(letters)
        founder_SF = rng.integers(0, 2, (N_SITES, 8))
        n = N_PANEL + 2 * N_SAMPLES
        of_haplotype_SQ = founder_SF[:, rng.integers(0, 8, n)]
        is_indel_S = np.arange(N_SITES) % 3 == 1
        of_haplotype_SQ[is_indel_S] = rng.integers(0, 2, (int(is_indel_S.sum()), n))
        self.indel_sites = np.flatnonzero(is_indel_S)
        self.panel = self._vcf(folder / "panel.vcf", of_haplotype_SQ[:, :N_PANEL])
        self.map = folder / "genetic.map"
        self.map.write_text(f"20 . 0 1\n20 . 20 {LENGTH}\n")  # hardly any linkage
        self.truth_SX2 = of_haplotype_SQ[:, N_PANEL:].reshape(N_SITES, N_SAMPLES, 2)
        self.bams = [self._bam(folder / f"s{x}.bam", x, rng) for x in range(N_SAMPLES)]

    def _vcf(self, path: Path, alleles_SN: np.ndarray) -> Path:
        names = [f"p{i}" for i in range(alleles_SN.shape[1] // 2)]
        lines = ["\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names])]
        for position, (ref, alt), row in zip(self.position, self.alleles, alleles_SN, strict=True):
            calls = [f"{one}|{two}" for one, two in row.reshape(-1, 2).tolist()]
            lines.append("\t".join(["20", str(position), ".", ref, alt, ".", ".", ".", "GT", *calls]))
        path.write_text(HEAD + "\n".join(lines) + "\n")
        return path

    def _bam(self, path: Path, x: int, rng: np.random.Generator) -> Path:
        """Reads across each site, of both haplotypes; indels are where aligners put them."""
        header = {
            "HD": {"VN": "1.6", "SO": "coordinate"},
            "SQ": [{"SN": "20", "LN": LENGTH}],
            "RG": [{"ID": "g", "SM": f"s{x}"}],
        }
        with pysam.AlignmentFile(str(path), "wb", header=header) as file:
            for s, (position, (ref, alt)) in enumerate(zip(self.position, self.alleles, strict=True)):
                for number in range(6):
                    allele = alt if self.truth_SX2[s, x, number % 2] else ref
                    start = position - 1 - 50
                    behind = position - 1 + len(ref)
                    letters = self.genome[start : position - 1] + allele + self.genome[behind : behind + 49]
                    n_more = len(allele) - len(ref)
                    cigar = (
                        f"51M{abs(n_more)}{'I' if n_more > 0 else 'D'}49M" if n_more else f"{len(letters)}M"
                    )
                    read = pysam.AlignedSegment(file.header)
                    read.query_name, read.flag, read.reference_id = f"r{s} {number}", 0, 0
                    read.reference_start, read.mapping_quality = start, 60
                    read.cigarstring, read.query_sequence = cigar, letters
                    read.query_qualities = pysam.qualitystring_to_array("?" * len(letters))
                    file.write(read)
        pysam.index(str(path))
        return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("indels"))


def genotypes(path: Path) -> np.ndarray:
    """(S, X)"""
    return np.array([v.genotype.array()[:, :2].sum(axis=1) for v in cyvcf2.VCF(str(path))])


def test_carriers_are_found(run, world, tmp_path):
    truth_SX = world.truth_SX2.sum(axis=2)[world.indel_sites]
    right = {}
    for options in ((), ("--indels",)):
        out = tmp_path / f"o{len(options)}.vcf"
        reads = [word for path in world.bams for word in ("--bam", path)]
        run("impute", *reads, "--panel", world.panel, "--map", world.map, "--out", out, *options).ok()
        found_SX = genotypes(out)
        assert (found_SX == world.truth_SX2.sum(axis=2))[np.arange(N_SITES) % 3 != 1].mean() > 0.98
        right[options] = (found_SX[world.indel_sites] == truth_SX).mean()
        assert ("--indels" in out.read_text()) == bool(options)
    assert right[()] < 0.6
    assert right["--indels",] > 0.95


def test_check_counts_them(run, world):
    for options, n_sites in (((), 60), (("--indels",), 90)):
        done = run("check", "--bam", world.bams[0], "--panel", world.panel, *options).ok()
        assert f"matched:  {n_sites} panel sites of {n_sites} sites in the input\n" in done.out
