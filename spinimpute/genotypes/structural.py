"""Structural variants: records with symbolic ALT alleles, such as <DEL>, and their INFO fields.

An allele <DEL> says neither where the deletion ends nor how long it is. The INFO fields END, SVTYPE and SVLEN
do. Two records <DEL> at one position with different END are two variants. Therefore END is part of the key of
a site (`Sites.keys`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

SPANNED = "*"  # ALT of a record that lies within a deletion of the same haplotype
INFO_KEYS = ("END", "SVTYPE", "SVLEN")

_SYMBOLIC = re.compile(r"<[^\s<>,;=\[\]]+>")
ANY_OTHER_ALLELE = frozenset({"<*>", "<NON_REF>", "<X>"})  # all alleles that a caller has not observed
_COVERS_REFERENCE = ("<DEL", "<DUP", "<INV", "<CN")  # kinds of variants whose END is POS + |SVLEN|
_SVTYPE = re.compile(r"[!-:<>-~]+")  # printable, without ";" and "="
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_LAST_END = 2**31 - 1
_DESCRIPTIONS = {
    "DEL": "Deletion",
    "INS": "Insertion",
    "DUP": "Duplication",
    "INV": "Inversion",
    "CNV": "Copy number variant",
}


class StructuralVariant(NamedTuple):
    """The INFO fields of a structural variant."""

    end: int  # END, 1-based last position
    svtype: str = ""  # SVTYPE, "" if missing
    svlen: str = ""  # SVLEN of an ALT allele, "" if missing; of several alleles with commas between them

    def is_valid(self, position: int) -> bool:
        """Return whether the values of one ALT allele at a position fit into a VCF."""
        return (
            position <= self.end <= _LAST_END
            and (not self.svtype or _SVTYPE.fullmatch(self.svtype) is not None)
            and (not self.svlen or _is_integer(self.svlen))
        )


Variants = Sequence[StructuralVariant]  # one for each ALT allele of a record


def is_symbolic(alt: str) -> bool:
    """Return whether an ALT is the symbolic allele of a variant, such as <DEL> or <INS:ME:ALU>."""
    return (
        alt.startswith("<") and _SYMBOLIC.fullmatch(alt) is not None and alt.upper() not in ANY_OTHER_ALLELE
    )


def covers_reference(alt: str) -> bool:
    """Return whether a symbolic allele stands for a change of all bases from POS to END."""
    return alt.upper().startswith(_COVERS_REFERENCE)


def describe_variant(
    position: int,
    ref: str,
    alts: Sequence[str],
    info: Callable[[str], object],
    contig_length: int | None = None,
) -> Variants | None:
    """Return the structural variant of each ALT of a record; None if no ALT is symbolic.

    `info` returns the value of an INFO field, or None. Without a valid END, it is computed from SVLEN, or is
    the last base of REF. No END is beyond the contig's end. An SVLEN that has neither one value nor one for
    each ALT is left out.
    """
    if not any(map(is_symbolic, alts)):
        return None
    svtype, given = info("SVTYPE"), info("SVLEN")
    lengths = _texts(given)
    if len(lengths) == 1:
        lengths *= len(alts)
    if len(lengths) != len(alts):
        lengths = [""] * len(alts)
    last = position + len(ref) - 1
    ends = [int(text) for text in _texts(info("END")) if text]
    if not ends or ends[0] < position:
        covered = [
            position + abs(int(length))
            for alt, length in zip(alts, lengths, strict=True)
            if length and covers_reference(alt)
        ]
        computed = max(covered, default=last)
        ends = [computed if computed <= _LAST_END else last]
    kind = svtype if isinstance(svtype, str) and _SVTYPE.fullmatch(svtype) and svtype != "." else ""
    end = ends[0] if contig_length is None else max(position, min(ends[0], contig_length))
    return [StructuralVariant(end, kind, length) for length in lengths]


def _texts(value: object) -> list[str]:
    """Return the integers of an INFO field as texts, "" for a missing or invalid one."""
    if value is None:
        return []
    values: Iterable[object] = value.split(",") if isinstance(value, str) else [value]
    if isinstance(value, tuple | list):
        values = value
    texts = [f"{one:.0f}" if isinstance(one, float) and one.is_integer() else str(one) for one in values]
    return [text if _is_integer(text) else "" for text in texts]


def _is_integer(text: str) -> bool:
    """Return whether a text is an integer that BCF can hold."""
    return _INTEGER.fullmatch(text) is not None and abs(int(text)) <= _LAST_END


def join_variants(rows: Sequence[StructuralVariant | None]) -> StructuralVariant | None:
    """Return the structural variant of a record from those of its ALT alleles; None if it is not one."""
    first = rows[0]
    if first is None:
        return None
    lengths = [one.svlen if one is not None else "" for one in rows]
    return first._replace(svlen=",".join(text or "." for text in lengths) if any(lengths) else "")


def alt_lines(alts: Iterable[str]) -> list[str]:
    """Return the "##ALT" header line of each symbolic allele."""
    return [f'##ALT=<ID={alt[1:-1]},Description="{_description(alt[1:-1])}">' for alt in alts]


def _description(name: str) -> str:
    kind, _, rest = name.partition(":")
    if kind in _DESCRIPTIONS:
        return f"{_DESCRIPTIONS[kind]}: {rest}" if rest else _DESCRIPTIONS[kind]
    if re.fullmatch("CN[0-9]+", name):
        return f"Copy number allele: {name[2:]} copies"
    return "Symbolic allele of the panel"
