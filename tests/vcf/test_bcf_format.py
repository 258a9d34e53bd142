"""The binary form of BCF: what is written is read again, and in as few bytes as the format allows."""

import pytest

from spinimpute.vcf.bcf_format import (
    CHAR,
    FLOAT,
    INT8,
    INT16,
    INT32,
    SIZES,
    BadRecord,
    read_descriptor,
    read_integer,
    typed_descriptor,
    typed_integer,
    typed_text,
)
from spinimpute.vcf.header import header_indexes


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, INT8), (127, INT8), (-120, INT8), (-121, INT16), (128, INT16), (-(2**15) + 8, INT16),
        (-(2**15) + 7, INT32), (2**15, INT32), (2**31 - 1, INT32),
    ],
)  # fmt: skip
def test_integers(value: int, kind: int) -> None:
    data = b"xy" + typed_integer(value)
    assert read_descriptor(data, 2) == (kind, 1, 3)
    assert read_integer(data, 3, kind) == value
    assert len(data) == 3 + SIZES[kind]


@pytest.mark.parametrize("count", [0, 1, 14, 15, 127, 128, 40_000])
def test_descriptors_and_texts(count: int) -> None:
    data = typed_descriptor(FLOAT, count)
    assert read_descriptor(data, 0) == (FLOAT, count, len(data))
    data = typed_text("A" * count)
    kind, length, at = read_descriptor(data, 0)
    assert (kind, length, data[at:]) == (CHAR, count, b"A" * count)


def test_a_length_that_is_no_integer() -> None:
    with pytest.raises(BadRecord, match="not an integer"):
        read_descriptor(bytes([0xF0 | CHAR, 0x10 | FLOAT, 0, 0, 0, 0]), 0)


def test_numbers_of_names() -> None:
    lines = [
        '##FILTER=<ID=q10,Description="x">',
        "##contig=<ID=20>",
        '##INFO=<ID=AF,Number=A,Type=Float,Description="x">',
        "##source=here",
        "##contig=<ID=21,IDX=5>",
        '##FORMAT=<ID=AF,Number=1,Type=Float,Description="the same name">',
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="x",IDX=7>',
    ]
    assert header_indexes(lines) == ({"20": 0, "21": 5}, {"PASS": 0, "q10": 1, "AF": 2, "GT": 7})
