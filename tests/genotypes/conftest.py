"""Small variant files written by the tests."""

import gzip
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import cyvcf2
import pytest

Record = tuple[int, str, str, Sequence[str]]  # POS, REF, ALT, one GT per sample

HEADER = (
    "##fileformat=VCFv4.2\n"
    '##FILTER=<ID=PASS,Description="All filters passed">\n'
    "##contig=<ID=20,length=63025520>\n"
    "##contig=<ID=21>\n"
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
)


def vcf_text(records: Sequence[Record], samples: Sequence[str], chrom: str = "20") -> str:
    header = HEADER.replace("ID=20", f"ID={chrom}") if chrom not in ("20", "21") else HEADER
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
    lines = ["\t".join([*columns, *samples])]
    for position, ref, alt, genotypes in records:
        fixed = [chrom, str(position), f"rs{position}", ref, alt, ".", "PASS", ".", "GT"]
        lines.append("\t".join([*fixed, *genotypes]))
    return header + "\n".join(lines) + "\n"


def convert(text: Path, out: Path) -> Path:
    """Write the VCF `text` as what the suffix of `out` says."""
    if out.name.endswith((".vcf", ".plain.gz")):
        content = text.read_bytes()
        out.write_bytes(gzip.compress(content) if out.suffix == ".gz" else content)
        return out
    source = cyvcf2.VCF(str(text))
    writer = cyvcf2.Writer(str(out), source, mode="wb" if out.suffix == ".bcf" else "wz")
    for record in source:
        writer.write_record(record)
    writer.close()
    source.close()
    return out


@pytest.fixture
def write_vcf(tmp_path: Path) -> Callable[..., Path]:
    """write_vcf(records, samples=None, name="t.vcf", chrom="20"): a .vcf, .vcf.gz, .bcf or .plain.gz file.

    A record is (POS, REF, ALT, [GT, ...]); without names the samples are a, b, c ...
    """

    def write(
        records: Sequence[Record],
        samples: Sequence[str] | None = None,
        name: str = "t.vcf",
        chrom: str = "20",
    ) -> Path:
        if samples is None:
            samples = [chr(ord("a") + i) for i in range(len(records[0][3]))]
        text = tmp_path / "source.txt"
        text.write_text(vcf_text(records, samples, chrom))
        return convert(text, tmp_path / name)

    return write


@pytest.fixture
def index() -> Callable[[Path], None]:
    """index(path): write an index beside a compressed file."""
    bcftools = shutil.which("bcftools")
    if bcftools is None:
        pytest.skip("bcftools is not installed; it writes the index this test reads")

    def run(path: Path) -> None:
        subprocess.run([bcftools, "index", "-f", str(path)], check=True)

    return run
