"""The start of a file in all formats, and what header lines define."""

import io
from pathlib import Path

import pytest

from spinimpute.runtime.errors import InputError
from spinimpute.vcf import header
from spinimpute.vcf.bcf_format import file_start
from spinimpute.vcf.bgzf import BgzfWriter, DamagedFile, open_decompressed
from spinimpute.vcf.header import FileStart, is_contig_line, read_start
from spinimpute.vcf.variant_file import check_variant_file

HEADER = b"##fileformat=VCFv4.3\n#CHROM\tPOS\n"


@pytest.mark.parametrize("packed", [False, True])
def test_the_start_of_each_form(packed: bool, tmp_path: Path) -> None:
    bcf = file_start(HEADER)
    for content, expected in (
        (HEADER + b"20\t7\n", FileStart(False, HEADER, len(HEADER), b"20\t7\n")),
        (bcf + b"records", FileStart(True, HEADER + b"\0", len(bcf), b"")),
    ):
        path = tmp_path / "file"
        with path.open("wb") as file:
            if packed:
                writer = BgzfWriter(file)
                writer.write(content)
                writer.finish()
            else:
                file.write(content)
        with open_decompressed(path) as stream:
            assert read_start(stream) == expected
            assert stream.read(100) + expected.rest == content[expected.n_bytes :]


@pytest.mark.parametrize("whole", [HEADER, file_start(HEADER)])
def test_a_header_that_is_cut(whole: bytes) -> None:
    assert read_start(io.BytesIO(whole)) is not None
    for size in (0, 5, 9, len(whole) - 1):
        assert read_start(io.BytesIO(whole[:size])) is None


def test_a_header_that_is_read_in_several_steps() -> None:
    for size in range(1, len(HEADER) + 2):
        found = read_start(io.BytesIO(HEADER + b"20\t7\n"), size)
        assert found is not None
        assert (found.header, found.n_bytes) == (HEADER, len(HEADER))
        assert b"20\t7\n".startswith(found.rest)


@pytest.mark.parametrize("whole", [HEADER, file_start(HEADER)])
def test_a_header_that_is_too_long(whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "MAX_RECORD", len(HEADER) - 5)
    with pytest.raises(DamagedFile, match="its header has more than"):
        read_start(io.BytesIO(whole), 4)


@pytest.mark.parametrize("bcf", [False, True])
@pytest.mark.parametrize(("number", "sound"), [(5, True), (1_000_001, False), (10**12, False)])
def test_a_number_that_needs_gigabytes(bcf: bool, number: int, sound: bool, tmp_path: Path) -> None:
    """Htslib makes a table that is as long as the largest number of a header's line."""
    contig = f"##contig=<ID=20,length=63025520,IDX={number},IDX=0>\n".encode()
    text = HEADER.replace(b"#CHROM", contig + b"#CHROM")
    path = tmp_path / "file"
    with path.open("wb") as file:
        writer = BgzfWriter(file)
        writer.write(file_start(text) if bcf else text)
        writer.finish()
    if sound:
        check_variant_file(path, "target")
    else:
        with pytest.raises(InputError, match=f"the number of a header line, IDX={number}, is too large"):
            check_variant_file(path, "target")


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
