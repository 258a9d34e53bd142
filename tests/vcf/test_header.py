"""What header lines define."""

import pytest

from spinimpute.vcf.header import is_contig_line


@pytest.mark.parametrize(
    ("line", "chrom", "fits"),
    [
        ("##contig=<ID=20>", "20", True),
        ("##contig=<ID=20,length=63025520,IDX=3>", "20", True),
        ('##contig=<ID=20,assembly="b,37",species="Homo \\"sapiens\\"",URL=ftp://a/b>', "20", True),
        ("##contig=<ID=HLA-A*01:01:01:01,length=3>", "HLA-A*01:01:01:01", True),
        ("##contig=<ID=20>", "21", False),
        ("##contig=<ID=<DEL>>", "<DEL", False),
        ("##contig=<ID=20,2|0=63025520>", "20", False),
        ("##contig=<ID=20,length=63025520", "20", False),
        ('##contig=<ID=20,species="Homo>', "20", False),
    ],
)
def test_lines_that_define_a_chromosome(line: str, chrom: str, fits: bool) -> None:
    assert is_contig_line(line, chrom) == fits
