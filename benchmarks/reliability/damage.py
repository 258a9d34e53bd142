"""Damage to bytes and to text, which depends only on the random numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

Damage = Callable[[bytes, Random], bytes]

MOST_CHANGES = 3
LONG_FIELD = 100_000
LETTERS = b"0123456789ACGTacgtNXM\t\t\n|/.:,;=#- \"'"
NUMBERS = (0, 1, 2, 7, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
FIELDS = (
    b"", b" ", b".", b"-", b"0", b"-1", b"1", b"2", b"23", b"1.5", b"nan", b"inf", b"-inf", b"1e999",
    b"1e-320", b"0x10", b"1_000", b"2147483647", b"2147483648", b"-2147483649", b"4294967296",
    b"9223372036854775808", b"9" * 400, b"-" + b"9" * 30, b"\xff\xfe", b"\xc3", b"\xed\xa0\x80",
    "é".encode(), "\u202e".encode(), "١٢٣".encode(), "²".encode(), b"\x00",
    b"\x1b[31mred", b"\x07", b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85",
    "\u2028".encode(), b"A" * 300, b"ACGT" * (LONG_FIELD // 4), b"0" * LONG_FIELD, b"*", b"<DEL>",
    b"<*>", b"N", b"A,C", b"A,A", b",", b"A,", b"0|0", b"0/1", b"0|7", b"2|0", b"1|", b"|", b"0|1|0",
    b"./.", b".|1", b"0|-1", b"0|2147483648", b"GT", b"GT:GT", b"DS", b"GT:DS:GP", b":",
    b"::::", b"=", b";", b"AC=", b"AC=x",
    b"AF=1,2,3,4,5", b"END=1", b"X", b"chr20", b"20", b"7", b"MT", b"PASS", b"#", b"##", b'"', b"'", b"%s%n",
    b"../../x", b"/", b"=1+1", b"NA", b"None", b"true", b"M", b"F", b"D", b"I", b"--", b"\\", b"\xef\xbb\xbf",
)  # fmt: skip
_FIELD = re.compile(rb"[^\t, :;=|/<>]+")


def damaged_bytes(content: bytes, draw: Random) -> bytes:
    """Change bits, bytes, numbers and pieces in up to three places."""
    out = bytearray(content)
    for _ in range(draw.randint(1, MOST_CHANGES)):
        draw.choice(_BYTE_CHANGES)(out, draw)
    return bytes(out)


def damaged_text(content: bytes, draw: Random) -> bytes:
    """Change lines and fields in up to three places; occasionally change bytes."""
    if draw.random() < 0.15:
        return damaged_bytes(content, draw)
    lines = content.split(b"\n")
    for _ in range(draw.randint(1, MOST_CHANGES)):
        change = draw.choice(_FIELD_CHANGES) if draw.random() < 0.7 else draw.choice(_LINE_CHANGES)
        change(lines, draw)
    return b"\n".join(lines)


def _place(out: bytearray, draw: Random) -> int:
    """Anywhere, but often in the first bytes, which say what the others are."""
    last = len(out) - 1
    return 0 if last < 0 else draw.randint(0, min(last, 63) if draw.random() < 0.3 else last)


def _piece(out: bytearray, draw: Random) -> slice:
    start = _place(out, draw)
    return slice(start, start + draw.choice((1, 2, 4, 8, 16, 64, 400, 4_000)))


def _flip(out: bytearray, draw: Random) -> None:
    if out:
        out[_place(out, draw)] ^= 1 << draw.randrange(8)


def _set(out: bytearray, draw: Random) -> None:
    if out:
        out[_place(out, draw)] = draw.choice((0, 1, 0x0A, 0x20, 0x7F, 0x80, 0xFF, draw.randrange(256)))


def _number(out: bytearray, draw: Random) -> None:
    start, width = _place(out, draw), draw.choice((2, 4, 8))
    number = (draw.choice(NUMBERS) + draw.randint(-1, 1)) % 2 ** (8 * width)
    out[start : start + width] = number.to_bytes(width, "little")


def _cut(out: bytearray, draw: Random) -> None:
    del out[_place(out, draw) :]


def _delete(out: bytearray, draw: Random) -> None:
    del out[_piece(out, draw)]


def _insert(out: bytearray, draw: Random) -> None:
    start, length = _place(out, draw), draw.choice((1, 2, 4, 30))
    out[start:start] = (
        draw.randbytes(length) if draw.random() < 0.5 else bytes(draw.choices(LETTERS, k=length))
    )


def _double(out: bytearray, draw: Random) -> None:
    piece = _piece(out, draw)
    out[piece.start : piece.start] = out[piece] * draw.choice((1, 1, 20))


def _exchange(out: bytearray, draw: Random) -> None:
    first, second = _piece(out, draw), _piece(out, draw)
    out[first], out[second] = out[second], out[first]


def _fill(out: bytearray, draw: Random) -> None:
    piece = _piece(out, draw)
    out[piece] = bytes([draw.choice((0, 0xFF))]) * len(out[piece])


_BYTE_CHANGES = (_flip, _flip, _set, _number, _number, _cut, _delete, _insert, _double, _exchange, _fill)


def _line(lines: list[bytes], draw: Random) -> int:
    """Any line, but often one of the head or the first after it."""
    head = next((i for i, line in enumerate(lines) if not line.startswith(b"#")), 0)
    return draw.randrange(min(len(lines), head + 2) if draw.random() < 0.4 else len(lines))


def _separator(line: bytes, draw: Random) -> bytes:
    found = [s for s in (b"\t", b",", b" ", b":", b";", b"=", b"|", b"/") if s in line]
    if not found:
        return b"\t"
    return found[0] if draw.random() < 0.7 else draw.choice(found)


def _one_field(change: Callable[[list[bytes], int, Random], None]) -> Callable[[list[bytes], Random], None]:
    """A change of the fields of a line, at one of them."""

    def apply(lines: list[bytes], draw: Random) -> None:
        number = _line(lines, draw)
        separator = _separator(lines[number], draw)
        fields = lines[number].split(separator)
        change(fields, draw.randrange(min(len(fields), 9) if draw.random() < 0.5 else len(fields)), draw)
        lines[number] = separator.join(fields)

    return apply


@_one_field
def _replace(fields: list[bytes], at: int, draw: Random) -> None:
    fields[at] = draw.choice(FIELDS)


@_one_field
def _extend(fields: list[bytes], at: int, draw: Random) -> None:
    added = draw.choice(FIELDS)
    fields[at] = fields[at] + added if draw.random() < 0.5 else added + fields[at]


@_one_field
def _drop(fields: list[bytes], at: int, draw: Random) -> None:
    del fields[at]


@_one_field
def _twice(fields: list[bytes], at: int, draw: Random) -> None:
    fields[at:at] = [fields[at]] * draw.choice((1, 1, 1_000))


@_one_field
def _swap(fields: list[bytes], at: int, draw: Random) -> None:
    other = draw.randrange(len(fields))
    fields[at], fields[other] = fields[other], fields[at]


@_one_field
def _first_fields(fields: list[bytes], at: int, draw: Random) -> None:
    del fields[at:]


def _word(lines: list[bytes], draw: Random) -> None:
    """A word inside of a field, such as an allele of a genotype or the value of an entry."""
    number = _line(lines, draw)
    words = list(_FIELD.finditer(lines[number]))
    if words:
        word = draw.choice(words)
        lines[number] = lines[number][: word.start()] + draw.choice(FIELDS) + lines[number][word.end() :]


def _column(lines: list[bytes], draw: Random) -> None:
    """The same field of many lines: it is emptied, replaced or taken out."""
    first = _line(lines, draw)
    separator = _separator(lines[first], draw)
    at = draw.randrange(lines[first].count(separator) + 1)
    field = draw.choice((*draw.sample(FIELDS, 3), None))
    for number in range(first, len(lines)):
        fields = lines[number].split(separator)
        if len(fields) > at:
            fields[at : at + 1] = [] if field is None else [field]
            lines[number] = separator.join(fields)


_FIELD_CHANGES = (
    _replace, _replace, _replace, _extend, _word, _word, _drop, _twice, _swap, _first_fields, _column,
)  # fmt: skip


def _delete_line(lines: list[bytes], draw: Random) -> None:
    start = _line(lines, draw)
    del lines[start : start + draw.choice((1, 1, 1, 5, 1_000))]
    if not lines:
        lines.append(b"")


def _double_line(lines: list[bytes], draw: Random) -> None:
    at = _line(lines, draw)
    lines[at:at] = [lines[at]] * draw.choice((1, 1, 1, 300))


def _move_line(lines: list[bytes], draw: Random) -> None:
    moved = lines.pop(draw.randrange(len(lines)))
    lines.insert(draw.randint(0, len(lines)), moved)


def _reverse(lines: list[bytes], draw: Random) -> None:
    start = _line(lines, draw)
    lines[start:] = lines[start:][::-1]


def _strange_line(lines: list[bytes], draw: Random) -> None:
    separator = draw.choice((b"\t", b" ", b","))
    fields = draw.choices(FIELDS, k=draw.choice((1, 2, 4, 10)))
    lines.insert(_line(lines, draw), draw.choice((b"", b"", b"#", b"##x=", separator.join(fields))))


def _join_lines(lines: list[bytes], draw: Random) -> None:
    at = _line(lines, draw)
    lines[at : at + 2] = [b"".join(lines[at : at + 2])]


def _other_ends(lines: list[bytes], draw: Random) -> None:
    start = _line(lines, draw)
    end = draw.choice((b"\r", b" ", b"\t", b"\x00"))
    lines[start:] = [line + end for line in lines[start:]]


_LINE_CHANGES = (
    _delete_line, _delete_line, _double_line, _move_line, _reverse, _strange_line, _join_lines, _other_ends,
)  # fmt: skip
