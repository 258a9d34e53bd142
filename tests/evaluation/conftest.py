"""A small imputation problem with a known answer, and a writer of VCF files of any form."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

HEADER = """##fileformat=VCFv4.3
##contig=<ID=20,length=1000000>
##contig=<ID=chr20,length=1000000>
##contig=<ID=21,length=1000000>
##contig=<ID=X>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
##FORMAT=<ID=DS,Number=A,Type=Float,Description="Dosage">
##FORMAT=<ID=HDS,Number=.,Type=Float,Description="Haploid dosages">
##FORMAT=<ID=GP,Number=G,Type=Float,Description="Genotype probabilities">
"""
COLUMNS = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]


@pytest.fixture(scope="session")
def write_vcf() -> Callable[..., Path]:
    """write(path, samples, rows): rows are (chrom, position, ref, alt, FORMAT, [sample columns])."""

    def write(path: Path, samples: list[str], rows: list[tuple], without: tuple[str, ...] = ()) -> Path:
        lines = [line for line in HEADER.splitlines() if not any(f"ID={name}," in line for name in without)]
        lines.append("\t".join([*COLUMNS, *samples]))
        lines += [
            "\t".join([chrom, str(position), ".", ref, alt, ".", ".", ".", form, *columns])
            for chrom, position, ref, alt, form, columns in rows
        ]
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def small(write_vcf: Callable[..., Path], tmp_path: Path) -> Callable[..., tuple[Path, ...]]:
    """small(truth, imputed): files of small problems, of rows as `write_vcf` takes them."""

    def write(
        truth: list[tuple], imputed: list[tuple], panel: tuple[str, ...] = ("0|0", "0|1"), typed: tuple = ()
    ) -> tuple[Path, ...]:
        samples = [f"s{i}" for i in range(len(truth[0][5]))]
        panel_rows = [(c, p, r, a, "GT", list(panel)) for c, p, r, a, _, _ in truth]
        return (
            write_vcf(tmp_path / "truth.vcf", samples, truth),
            write_vcf(tmp_path / "imputed.vcf", samples, imputed),
            write_vcf(tmp_path / "panel.vcf", ["p0", "p1"], panel_rows),
            write_vcf(tmp_path / "typed.vcf", samples, list(typed)),
        )

    return write


@dataclass
class Problem:
    """Alleles (n_sites, n_haplotypes) of panel and truth, P(ALT) of imputed haplotypes, and the files."""

    folder: Path
    position: np.ndarray
    panel: np.ndarray
    truth: np.ndarray
    probability: np.ndarray
    typed: np.ndarray
    absent: np.ndarray
    samples: list[str]
    write: Callable[..., Path]

    def columns(self, form: str, site: int) -> list[str]:
        """The imputed sample columns of a site; form is DS, HDS, GP, GT or several of them joined by ":"."""
        out = []
        for a, b in self.probability[site].reshape(-1, 2):
            cells = {
                "GT": f"{int(a >= 0.5)}|{int(b >= 0.5)}",
                "DS": f"{a + b:.4f}",
                "HDS": f"{a:.4f},{b:.4f}",
                "GP": f"{(1 - a) * (1 - b):.6f},{a * (1 - b) + b * (1 - a):.6f},{a * b:.6f}",
            }
            out.append(":".join(cells[name] for name in form.split(":")))
        return out

    def file(self, name: str, alleles: np.ndarray, samples: list[str], sites: np.ndarray) -> Path:
        rows = []
        for i in sites:
            calls = [f"{a}|{b}" for a, b in alleles[i].reshape(-1, 2)]
            rows.append(("20", self.position[i], "A", "C", "GT", calls))
        return self.write(self.folder / name, samples, rows)

    def panel_file(self) -> Path:
        names = [f"p{i}" for i in range(self.panel.shape[1] // 2)]
        return self.file("panel.vcf", self.panel, names, np.arange(len(self.position)))

    def truth_file(self) -> Path:
        return self.file("truth.vcf", self.truth, self.samples, np.arange(len(self.position)))

    def typed_file(self) -> Path:
        return self.file("typed.vcf", self.truth, self.samples, np.flatnonzero(self.typed))

    def imputed_file(self, form: str = "GT:DS", chrom: str = "20", order: list[int] | None = None) -> Path:
        chosen = list(range(len(self.samples))) if order is None else order
        rows = []
        for i in np.flatnonzero(~self.absent):
            columns = self.columns(form, i)
            rows.append((chrom, self.position[i], "A", "C", form, [columns[k] for k in chosen]))
        name = f"imputed.{form.replace(':', '_')}.{chrom}.vcf"
        return self.write(self.folder / name, [self.samples[k] for k in chosen], rows)

    def files(self, **imputed) -> tuple[Path, Path, Path, Path]:
        """truth, imputed, panel, typed: the arguments of `evaluate`."""
        return self.truth_file(), self.imputed_file(**imputed), self.panel_file(), self.typed_file()


@pytest.fixture
def problem(tmp_path: Path, write_vcf: Callable[..., Path]) -> Problem:
    rng = np.random.default_rng(7)
    n_sites, n_samples = 300, 25
    frequency = rng.beta(0.3, 0.7, n_sites)
    panel = (rng.random((n_sites, 80)) < frequency[:, None]).astype(int)
    panel[:40] = 0
    panel[np.arange(40), rng.integers(0, 80, 40)] = 1  # singletons
    panel[20:40] = 1 - panel[20:40]  # whose rare allele is REF
    truth = (rng.random((n_sites, 2 * n_samples)) < panel.mean(1, keepdims=True)).astype(int)
    probability = np.clip(truth + rng.normal(0, 0.35, truth.shape), 0, 1).round(3)
    return Problem(
        folder=tmp_path,
        position=np.arange(1, n_sites + 1) * 100,
        panel=panel,
        truth=truth,
        probability=probability,
        typed=np.arange(n_sites) % 10 == 3,
        absent=np.arange(n_sites) % 17 == 5,
        samples=[f"s{i}" for i in range(n_samples)],
        write=write_vcf,
    )
