"""Formats of targets are recognised by content, each by one of the rows alone."""

import gzip
from pathlib import Path

import pytest

from spinimpute.targets.formats import FORMATS, VARIANTS, detect_format

VCF = b"##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
REPORT = b"[Header]\r\nGSGT Version\t2.0.5\r\n"
CONTENTS = {
    "VCF": (VCF, "VCF, VCF.gz or BCF"),
    "compressed VCF": (gzip.compress(VCF), "VCF, VCF.gz or BCF"),
    "BCF": (gzip.compress(b"BCF\2\2\0\0\0\0"), "VCF, VCF.gz or BCF"),
    "bed": (b"\x6c\x1b\x01\xff", "PLINK .bed or .pgen"),
    "pgen": (b"\x6c\x1b\x10\0\0", "PLINK .bed or .pgen"),
    "report": (REPORT, "Illumina FinalReport"),
    "report with a byte order mark": (b"\xef\xbb\xbf" + REPORT, "Illumina FinalReport"),
    "array": (b"# rsid\tchromosome\tposition\tgenotype\nrs1\t20\t100\tAC\n", "text of a consumer array"),
    "compressed array": (gzip.compress(b"rs1\t20\t100\tAC\n"), "text of a consumer array"),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_recognised_by_content(tmp_path: Path, kind: str) -> None:
    content, name = CONTENTS[kind]
    path = tmp_path / "target.data"
    path.write_bytes(content)
    assert [one.name for one in FORMATS if one.recognises(path)] == [name]
    assert detect_format(path).name == name


def test_what_nothing_recognises_is_left_to_the_reader_of_variants(tmp_path: Path) -> None:
    path = tmp_path / "target.vcf"
    assert detect_format(path) is VARIANTS
    path.write_text("nothing that is known")
    assert detect_format(path) is VARIANTS
    assert detect_format(tmp_path) is VARIANTS
