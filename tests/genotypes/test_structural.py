"""END, SVTYPE and SVLEN of records with symbolic ALT alleles."""

import pytest

from spinimpute.genotypes.structural import (
    StructuralVariant,
    alt_lines,
    describe_variant,
    is_symbolic,
    join_variants,
)


@pytest.mark.parametrize("alt", ["<DEL>", "<CN0>", "<INS:ME:ALU>", "<STR12>", "<HLA-A*01:01>"])
def test_symbolic_alleles(alt):
    assert is_symbolic(alt)


@pytest.mark.parametrize(
    "alt", ["<*>", "<NON_REF>", "<non_ref>", "*", "A", "", "<>", "<A,B>", "<A B>", "<DEL"]
)
def test_other_alleles(alt):
    assert not is_symbolic(alt)


@pytest.mark.parametrize(
    ("alts", "info", "expected"),
    [
        (["<DEL>"], {"END": 900, "SVTYPE": "DEL", "SVLEN": -800}, [(900, "DEL", "-800")]),
        (["<DEL>"], {"SVLEN": (-800,)}, [(900, "", "-800")]),  # END from SVLEN
        (["<CN0>", "<CN2>"], {"SVLEN": (None, 30)}, [(130, "", ""), (130, "", "30")]),
        (["<CNV>", "<DEL>"], {"SVLEN": 50, "END": "150"}, [(150, "", "50"), (150, "", "50")]),
        (["<INS>"], {"SVLEN": 300, "SVTYPE": "INS"}, [(101, "INS", "300")]),  # covers REF only
        (["<DEL>"], {}, [(101, "", "")]),
        (["<DEL>"], {"END": 7}, [(101, "", "")]),  # before the record
        (["<DEL>", "C"], {"END": 200, "SVLEN": (1, 2, 3), "SVTYPE": "."}, [(200, "", "")] * 2),
        (["C", "*"], {"END": 200}, None),
    ],
)
def test_fields_of_a_record(alts, info, expected):
    found = describe_variant(100, "AT", alts, info.get)
    assert found == (None if expected is None else [StructuralVariant(*one) for one in expected])


def test_joined_alleles():
    first, second = StructuralVariant(9, "DEL", "-5"), StructuralVariant(9, "DEL")
    assert join_variants([first, second]) == StructuralVariant(9, "DEL", "-5,.")
    assert join_variants([second, second]) == second
    assert join_variants([None, None]) is None


def test_header_lines():
    lines = alt_lines(["<CN12>", "<DEL>", "<INS:ME:ALU>", "<STR3>"])
    assert lines == [
        '##ALT=<ID=CN12,Description="Copy number allele: 12 copies">',
        '##ALT=<ID=DEL,Description="Deletion">',
        '##ALT=<ID=INS:ME:ALU,Description="Insertion: ME:ALU">',
        '##ALT=<ID=STR3,Description="Symbolic allele of the panel">',
    ]


@pytest.mark.parametrize(
    ("info", "contig_length", "expected"),
    [
        ({"END": 2_000_000_000}, None, (2_000_000_000, "")),
        ({"END": 400.0, "SVLEN": 300.0}, None, (400, "300")),  # declared as Float
        ({"END": 400.5}, None, (100, "")),
        ({"END": 5_000}, 1_000, (1_000, "")),
        ({"SVLEN": -5_000}, 1_000, (1_000, "-5000")),
        ({"SVLEN": 2**31}, None, (100, "")),
    ],
)
def test_ends(info: dict[str, object], contig_length: int | None, expected: tuple[int, str]) -> None:
    (variant,) = describe_variant(100, "A", ["<DEL>"], info.get, contig_length)
    assert (variant.end, variant.svlen) == expected
