"""Read and edit encoded records of imputed files, without decoding all of their values.

`pipeline.chunk_file` uses this module to join the output files of neighbouring chunks. It copies most records
as bytes, and needs only their positions, the genotypes in the overlap, and a swap of the two haplotypes of
some samples. Every record is checked to have the structure that `impute` writes.

Axes: R records, N samples, C fixed columns of a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import LAST_POSITION, is_position
from spinimpute.runtime.kernels import kernel
from spinimpute.vcf.bcf_format import (
    CHAR,
    FLOAT,
    FLOAT_END,
    INT8,
    INT16,
    INT32_MISSING,
    INTEGER_TYPES,
    RECORD_HEAD,
    RECORD_LENGTHS,
    SIZES,
    BadRecord,
    allele_kind,
    read_descriptor,
    read_integer,
)
from spinimpute.vcf.header import definition, header_indexes, info_type

ALLELE_TYPES = {INT8: np.int8, INT16: np.int16}  # of the alleles of genotypes in BCF
_NAME, _ALLELE = rb"[^\x00-\x1f\x7f]+", rb"[!-~]+"
_BCF_TEXTS = re.compile(rb"(?:%s)?(?:\0%s){2,}" % (_NAME, _ALLELE))
_END = re.compile(rb"[\t;]END=([0-9]+)")
_FIXED_COLUMNS = 9  # CHROM to FORMAT


@dataclass
class RecordTable:
    """Positions and lengths of records, in file order."""

    position: list[int] = field(default_factory=list)  # 1-based
    last: list[int] = field(default_factory=list)  # 1-based position of END, or of the last base of REF
    length: list[int] = field(default_factory=list)  # bytes of the encoded record
    key: list[int] = field(default_factory=list)  # see `site_key`

    def add(self, position: int, last: int, ref: bytes, alt: bytes, length: int) -> None:
        """Append a record. Raises BadRecord if its last position is impossible."""
        if not position <= last <= LAST_POSITION:
            raise BadRecord(f"its last position is {last}")
        self.position.append(position)
        self.last.append(last)
        self.length.append(length)
        self.key.append(site_key(position, last, ref, alt))


def site_key(position: int, last: int, ref: bytes, alt: bytes) -> int:
    """Return a hash of a record's first and last position and alleles. It is valid only in this process."""
    return hash(b"%d\t%d\t%s\t%s" % (position, last, ref, alt))


class SplitRecord(NamedTuple):
    """A record whose columns of samples are apart from its site."""

    position: int
    name: str  # "." if missing
    ref: str
    alt: str  # with commas between the ALT alleles
    info: dict[str, str]  # texts, by key; flags, and floats of BCF, have ""
    samples: list[tuple[int, bytes]]  # see `split`

    @property
    def alts(self) -> list[str]:
        """The ALT alleles."""
        return self.alt.split(",")


@kernel()
def _scan_lines(data, gt, tab_RC, tabs_R, colons_R, invalid_R, stop_R):  # type: ignore[no-untyped-def]
    """Scan complete lines and return how many there are.

    For each line, fill tab_RC (offsets of the first C tabs), tabs_R (number of tabs), colons_R (number of
    colons in the sample columns), stop_R (end of the line) and invalid_R. A line is invalid if, in any
    sample, the field with index gt is not a genotype of the record's alleles, or another field is not a list
    of numbers.
    """
    # bytes: 9 tab, 10 newline, 44 comma, 46 dot, 47 slash, 48 to 57 digits, 58 colon, 124 vertical bar
    row = n_tabs = n_colons = field_index = n_alleles = n_digits = n_dots = allele = 0
    n_alts = 1
    invalid = False
    for at in range(len(data)):
        byte = data[at]
        is_end = byte == 58 or byte == 9 or byte == 10
        if n_tabs >= tab_RC.shape[1]:
            if field_index == gt and (is_end or byte == 124 or byte == 47):  # the end of an allele
                n_alleles += 1
                is_number = n_digits == 1 or (1 < n_digits < 5 and allele >= 10 ** (n_digits - 1))
                is_one = (n_dots == 1 and n_digits == 0) or (n_dots == 0 and is_number and allele <= n_alts)
                invalid |= n_alleles > 2 or not is_one
                n_digits = n_dots = allele = 0
            elif is_end or (byte == 44 and field_index != gt):
                invalid |= n_dots > 1 or n_digits + n_dots == 0
                n_digits = n_dots = allele = 0
            elif byte == 46:
                n_dots += 1
            else:
                n_digits += 1
                allele = 10 * min(allele, 1_000) + byte - 48
                invalid |= not 48 <= byte <= 57
            if is_end:
                field_index, n_alleles = field_index + 1 if byte == 58 else 0, 0
        if byte == 44 and n_tabs == 4:  # in the column ALT
            n_alts += 1
        if byte == 58:
            n_colons += n_tabs >= tab_RC.shape[1]
        elif byte == 9:
            if n_tabs < tab_RC.shape[1]:
                tab_RC[row, n_tabs] = at
            n_tabs += 1
        elif byte == 10:
            tabs_R[row], colons_R[row], invalid_R[row], stop_R[row] = n_tabs, n_colons, invalid, at + 1
            row += 1
            n_tabs = n_colons = field_index = n_alleles = n_digits = n_dots = allele = 0
            n_alts = 1
            invalid = False
            if row == len(stop_R):
                break
    return row


@kernel()
def _read_samples(data, stop_R, gt, ds, allele_RN2, dosage_RN):  # type: ignore[no-untyped-def]
    """Read the fields with the indexes gt and ds (-1: no such field) of each sample.

    An entry of allele_RN2 is filled only if the call is "a|b", and an entry of dosage_RN only if the field is
    a single number. Other entries keep their values.
    """
    at = 0
    for r in range(len(stop_R)):
        tabs = 0
        while tabs < 9:
            tabs += data[at] == 9
            at += 1
        n = field_index = 0
        start = at
        while at < stop_R[r]:
            byte = data[at]
            if byte == 58 or byte == 9 or byte == 10:
                if field_index == gt:
                    bar = start
                    while bar < at and data[bar] != 124:
                        bar += 1
                    if bar < at:
                        for i in range(2):
                            allele = 0
                            for k in range(bar + 1 if i else start, at if i else bar):
                                allele = 10 * allele + data[k] - 48 if data[k] != 46 else -1
                            allele_RN2[r, n, i] = allele
                elif field_index == ds:
                    value, scale, is_number = 0.0, 0.0, at > start
                    for i in range(start, at):
                        if 48 <= data[i] <= 57:
                            value = 10 * value + (data[i] - 48)
                            scale *= 10
                        elif data[i] == 46 and scale == 0 and at - start > 1:
                            scale = 1.0
                        else:
                            is_number = False
                    if is_number:
                        dosage_RN[r, n] = value / scale if scale > 0 else value
                field_index = field_index + 1 if byte == 58 else 0
                n += byte != 58
                start = at + 1
            at += 1


@kernel()
def _swap(data, stop_R, gt, hds, chosen_N):  # type: ignore[no-untyped-def]
    """Swap the two haplotypes of the chosen samples, in place.

    In the field with index gt, "a|b" becomes "b|a". In the field with index hds (-1: no such field), "x,y"
    becomes "y,x". There, x and y have one number for each ALT allele.
    """
    at = 0
    for r in range(len(stop_R)):
        tabs, n_alts = 0, 1
        while tabs < 9:
            tabs += data[at] == 9
            n_alts += tabs == 4 and data[at] == 44  # commas in the column ALT
            at += 1
        n = field_index = 0
        start = at
        while at < stop_R[r]:
            byte = data[at]
            if byte == 58 or byte == 9 or byte == 10:
                if chosen_N[n] and field_index in (gt, hds):
                    separator = np.uint8(124) if field_index == gt else np.uint8(44)
                    n_before = 0 if field_index == gt else n_alts - 1  # separators within the first half
                    middle = start
                    while middle < at and (n_before > 0 or data[middle] != separator):
                        n_before -= data[middle] == separator
                        middle += 1
                    if middle < at:
                        first = data[start:middle].copy()
                        second = data[middle + 1 : at].copy()
                        data[start : start + len(second)] = second
                        data[start + len(second)] = separator
                        data[at - len(first) : at] = first
                field_index = field_index + 1 if byte == 58 else 0
                n += byte != 58
                start = at + 1
            at += 1


def _site_pattern(header_lines: Sequence[str]) -> re.Pattern[bytes]:
    """Return a pattern that matches the columns ID to INFO, with the INFO fields that a header defines."""
    # possessive (++): no backtracking in a long invalid number
    number = rb"(?:\.|-?(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?)"
    fields = []
    for line in header_lines:
        kind, key = definition(line) or ("", "")
        if kind == "INFO":
            values = {"Flag": b"", "String": rb"=[0-9a-f/,.]++"}
            value = values.get(info_type(line), rb"=%s(?:,%s)*" % (number, number))
            value = {"SVTYPE": rb"=[!-:<>-~]++", "END": rb"=[0-9]{1,10}"}.get(key, value)
            fields.append(re.escape(key.encode()) + value)
    field = b"|".join(fields) or rb"\."
    info = rb"(?:\.|(?:%s)(?:;(?:%s))*)" % (field, field)
    return re.compile(rb"\t".join((_NAME, _ALLELE, _ALLELE, number, rb"(?:PASS|\.)", info)))


class TextRecords:
    """Parser of VCF lines of one chromosome.

    All lines must have the FORMAT fields `formats`, in this order, and INFO fields that the header defines.
    """

    def __init__(
        self, chrom: str, formats: Sequence[str], n_samples: int, header_lines: Sequence[str]
    ) -> None:
        self._chrom, self._formats, self._n_samples = chrom.encode(), list(formats), n_samples
        self._site_columns = _site_pattern(header_lines)
        self._has_end = ("INFO", "END") in map(definition, header_lines)
        self._format_column = ":".join(formats).encode()
        self._min_line_bytes = 2 * (_FIXED_COLUMNS + n_samples)  # one character and a tab per column

    def _field_index(self, key: str) -> int:
        return self._formats.index(key) if key in self._formats else -1

    def scan(self, data: bytes, table: RecordTable) -> int:
        """Append the complete records at the start of `data` to the table; return their length in bytes.

        Raises BadRecord if a record cannot be read, or does not have the expected chromosome, number of
        samples and FORMAT fields.
        """
        max_lines = len(data) // self._min_line_bytes + 1
        tab_RC = np.empty((max_lines, _FIXED_COLUMNS), np.int64)
        tabs_R, colons_R, invalid_R, stop_R = columns = np.zeros((4, max_lines), np.int64)
        n_lines = _scan_lines(np.frombuffer(data, np.uint8), self._field_index("GT"), tab_RC, *columns)
        n_expected_tabs = _FIXED_COLUMNS + self._n_samples - 1
        n_values = self._n_samples * len(self._formats)
        begin, measured = 0, (tab_RC, stop_R, tabs_R, colons_R, invalid_R)
        rows = zip(*(column[:n_lines].tolist() for column in measured), strict=True)
        for tabs, stop, n_tabs, n_colons, invalid in rows:
            if n_tabs != n_expected_tabs:
                raise BadRecord(f"it has {n_tabs + 1} columns instead of {n_expected_tabs + 1}")
            if data[begin : tabs[0]] != self._chrom:
                raise BadRecord(f"it is on {data[begin : tabs[0]].decode(errors='replace')}")
            if data[tabs[7] + 1 : tabs[8]] != self._format_column:
                raise BadRecord(
                    f"its FORMAT is {data[tabs[7] + 1 : tabs[8]].decode(errors='replace')} instead of "
                    f"{self._format_column.decode()}"
                )
            if n_colons + self._n_samples != n_values:
                raise BadRecord(f"its samples have {n_colons + self._n_samples} values instead of {n_values}")
            if invalid:
                raise BadRecord("a value of a sample is not a genotype or a number")
            position = data[tabs[0] + 1 : tabs[1]]
            if not is_position(position):
                raise BadRecord(f"its position is {position[:40]!r}")
            if not self._site_columns.fullmatch(data, tabs[1] + 1, tabs[7]):
                columns_text = data[tabs[1] + 1 : tabs[7]].decode(errors="replace")
                raise BadRecord(f"its columns ID to INFO are not those of impute: {columns_text[:80]!r}")
            ref, alt = data[tabs[2] + 1 : tabs[3]], data[tabs[3] + 1 : tabs[4]]
            last = int(position) + len(ref) - 1
            if self._has_end and (end := _END.search(data, tabs[6], tabs[7])):
                last = int(end[1])
            table.add(int(position), last, ref, alt, stop - begin)
            begin = stop
        return begin

    def genotypes(self, data: bytes, length_R: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the phased diploid calls, int16 (R, N, 2), and DS, float32 (R, N), or None without DS.

        `data` are complete records of `length_R` bytes. Alleles of other calls are -1; missing DS are NaN.
        """
        shape = (len(length_R), self._n_samples)
        allele_RN2, dosage_RN = np.full((*shape, 2), -1, np.int16), np.full(shape, np.nan, np.float32)
        gt, ds = self._field_index("GT"), self._field_index("DS")
        _read_samples(np.frombuffer(data, np.uint8), np.cumsum(length_R), gt, ds, allele_RN2, dosage_RN)
        return allele_RN2, dosage_RN if ds >= 0 else None

    def swap_haplotypes(self, data: bytes, length_R: np.ndarray, chosen_N: np.ndarray) -> bytes:
        """Return the records with the haplotypes of the chosen samples swapped in GT and HDS.

        The length of every record stays the same.
        """
        swapped_data = np.frombuffer(bytearray(data), np.uint8)
        _swap(swapped_data, np.cumsum(length_R), self._field_index("GT"), self._field_index("HDS"), chosen_N)
        return swapped_data.tobytes()

    def split(self, data: bytes, lengths: Sequence[int]) -> list[SplitRecord]:
        """Split records that `scan` has accepted. `data` are complete records of these lengths in bytes.

        `samples` is one text: the columns of samples, with tabs between them.
        """
        records = []
        begin = 0
        for length in lengths:
            columns = data[begin : begin + length - 1].split(b"\t", _FIXED_COLUMNS)
            _, position, name, ref, alt, _, _, info = (column.decode() for column in columns[:8])
            fields = {key: value for key, _, value in (one.partition("=") for one in info.split(";"))}
            records.append(SplitRecord(int(position), name, ref, alt, fields, [(1, columns[-1])]))
            begin += length
        return records


class BcfRecords:
    """Parser of BCF records of one chromosome. All must have the FORMAT fields `formats`, in this order."""

    def __init__(
        self, chrom: str, formats: Sequence[str], n_samples: int, header_lines: Sequence[str]
    ) -> None:
        self._chrom, self._formats, self._n_samples = chrom, list(formats), n_samples
        contigs, fields = header_indexes(header_lines)
        self._contigs = {number: name for name, number in contigs.items()}
        self._names = {number: name for name, number in fields.items()}

    def scan(self, data: bytes, table: RecordTable) -> int:
        """Scan BCF records. Parameters, result and errors are those of `TextRecords.scan`."""
        begin = 0
        while begin + RECORD_HEAD.size <= len(data):
            head = RECORD_HEAD.unpack_from(data, begin)
            shared_bytes, sample_bytes, contig, position, n_bases, _, counts, samples = head
            stop = begin + RECORD_LENGTHS.size + shared_bytes + sample_bytes
            if shared_bytes < RECORD_HEAD.size - RECORD_LENGTHS.size:
                raise BadRecord("its length is impossible")
            if stop > len(data):
                break
            if self._contigs.get(contig) != self._chrom:
                raise BadRecord(f"it is on {self._contigs.get(contig, f'contig {contig}')}")
            if counts >> 16 < 2 or samples != len(self._formats) << 24 | self._n_samples:
                raise BadRecord(
                    f"it has {counts >> 16} alleles, {samples & 0xFFFFFF} samples and {samples >> 24} FORMAT "
                    f"fields instead of at least 2, {self._n_samples} and {len(self._formats)}"
                )
            at = begin + RECORD_HEAD.size
            texts = []
            for _ in range(1 + (counts >> 16)):  # ID, REF, ALT
                kind, count, at = read_descriptor(data, at)
                if kind != CHAR and count:
                    raise BadRecord("its alleles are not text")
                texts.append(data[at : (at := at + count)])
            if not _BCF_TEXTS.fullmatch(b"\0".join(texts)):
                raise BadRecord("its name or an allele is not text")
            if self._find_info_end(data, at, counts & 0xFFFF) != begin + RECORD_LENGTHS.size + shared_bytes:
                raise BadRecord("the length of its INFO fields is not the length that it states")
            if self._locate_fields(data, begin)[1] != stop:
                raise BadRecord("the length of its FORMAT fields is not the length that it states")
            table.add(position + 1, position + n_bases, texts[1], b",".join(texts[2:]), stop - begin)
            begin = stop
        return begin

    def genotypes(self, data: bytes, length_R: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Read GT and DS of BCF records. Parameters and results are those of `TextRecords.genotypes`."""
        n = self._n_samples
        shape = (len(length_R), n)
        allele_RN2, dosage_RN = np.full((*shape, 2), -1, np.int16), np.full(shape, np.nan, np.float32)
        for r, begin in enumerate((np.cumsum(length_R) - length_R).tolist()):
            fields, _ = self._locate_fields(data, begin)
            if "DS" in fields and fields["DS"][1] == 1:
                dosage_RN[r] = np.frombuffer(data, "<f4", n, fields["DS"][2])
            kind, count, at = fields.get("GT", (INT8, 0, 0))
            if count == 2:
                codes = np.frombuffer(data, ALLELE_TYPES[kind], 2 * n, at).reshape(n, 2)
                phased = (codes[:, 1] & 1).astype(bool) & (codes[:, 1] > 0)
                allele_RN2[r] = np.where(phased[:, None], (codes >> 1) - 1, -1)
        return allele_RN2, dosage_RN if "DS" in self._formats else None

    def swap_haplotypes(self, data: bytes, length_R: np.ndarray, chosen_N: np.ndarray) -> bytes:
        """Swap haplotypes in BCF records. Parameters are those of `TextRecords.swap_haplotypes`."""
        n = self._n_samples
        swapped_data = bytearray(data)
        for begin in (np.cumsum(length_R) - length_R).tolist():
            fields, _ = self._locate_fields(data, begin)
            if "GT" in fields and fields["GT"][1] == 2:
                allele_type = ALLELE_TYPES[fields["GT"][0]]
                codes = np.frombuffer(swapped_data, allele_type, 2 * n, fields["GT"][2]).reshape(n, 2)
                swapped = chosen_N & (codes[:, 1] >= 0) & (codes[:, 1] & 1).astype(bool)
                bit = codes[swapped] & 1  # the phase bit stays at the second allele
                codes[swapped] = (codes[swapped][:, ::-1] & allele_type(~1)) | bit
            n_alts = _n_alleles(data, begin) - 1
            if "HDS" in fields and fields["HDS"][1] == 2 * n_alts:
                values = np.frombuffer(swapped_data, "<u4", 2 * n_alts * n, fields["HDS"][2])
                values = values.reshape(n, 2, n_alts)
                swapped = chosen_N & (values[:, 1, 0] != FLOAT_END)
                values[swapped] = values[swapped][:, ::-1]
        return bytes(swapped_data)

    def split(self, data: bytes, lengths: Sequence[int]) -> list[SplitRecord]:
        """Split records. Parameters and result are those of `TextRecords.split`.

        `samples` has the number of values of each sample, and the values, for each FORMAT field.
        """
        records = []
        begin = 0
        for length in lengths:
            _, _, _, position, _, _, counts, _ = RECORD_HEAD.unpack_from(data, begin)
            at = begin + RECORD_HEAD.size
            texts = []
            for _ in range(1 + (counts >> 16)):  # ID, REF, ALT
                _, count, at = read_descriptor(data, at)
                texts.append(data[at : (at := at + count)].decode())
            kind, count, at = read_descriptor(data, at)  # FILTER
            at += count * SIZES[kind] if count else 0
            info = {}
            for _ in range(counts & 0xFFFF):
                kind, _, at = read_descriptor(data, at)
                key = self._names[read_integer(data, at, kind)]
                kind, count, at = read_descriptor(data, at + SIZES[kind])
                size = count * SIZES[kind] if count else 0
                info[key] = data[at : at + size].decode() if kind == CHAR else ""
                if kind in INTEGER_TYPES:
                    numbers = [read_integer(data, at + SIZES[kind] * i, kind) for i in range(count)]
                    info[key] = ",".join("." if n == INT32_MISSING else str(n) for n in numbers)
                at += size
            samples = [
                (count, data[at : at + count * SIZES[kind] * self._n_samples])
                for kind, count, at in self._locate_fields(data, begin)[0].values()
            ]
            alt = ",".join(texts[2:])
            records.append(SplitRecord(position + 1, texts[0] or ".", texts[1], alt, info, samples))
            begin += length
        return records

    def _find_info_end(self, data: bytes, at: int, n_info: int) -> int:
        """Return the end of FILTER and INFO, which start at offset `at`. The header must define them."""
        kind, count, at = read_descriptor(data, at)
        numbers = [read_integer(data, at + SIZES[kind] * i, kind) for i in range(count)]
        at += count * SIZES[kind] if count else 0
        for _ in range(n_info):
            kind, _, at = read_descriptor(data, at)
            numbers.append(read_integer(data, at, kind))
            kind, count, at = read_descriptor(data, at + SIZES[kind])
            at += count * SIZES[kind] if count else 0
        if unknown := [number for number in numbers if number not in self._names]:
            raise BadRecord(f"the header has no field with the number {unknown[0]}")
        return at

    def _locate_fields(self, data: bytes, begin: int) -> tuple[dict[str, tuple[int, int, int]], int]:
        """Locate the FORMAT fields of the record at offset `begin`, and its end.

        Return the type, the number of values per sample and the offset of each field.
        """
        shared_bytes, _ = RECORD_LENGTHS.unpack_from(data, begin)
        at = begin + RECORD_LENGTHS.size + shared_bytes
        n = _n_alleles(data, begin)
        max_values = {"GT": 2, "DS": n - 1, "HDS": 2 * (n - 1), "GP": n * (n + 1) // 2, "ML": 1}
        fields = {}
        for expected in self._formats:
            kind, _, at = read_descriptor(data, at)
            number = read_integer(data, at, kind)
            at += SIZES[kind]
            name = self._names.get(number, "without a name")
            kind, count, at = read_descriptor(data, at)
            if name != expected:
                raise BadRecord(f"it has the FORMAT field {name} instead of {expected}")
            if kind != (allele_kind(n - 1) if name == "GT" else FLOAT) or not 1 <= count <= max_values[name]:
                raise BadRecord(f"its {name} is not encoded as by impute")
            fields[name] = (kind, count, at)
            at += count * SIZES[kind] * self._n_samples
        return fields, at


def _n_alleles(data: bytes, begin: int) -> int:
    """Return the number of alleles of the BCF record at offset `begin`, with REF."""
    return int(RECORD_HEAD.unpack_from(data, begin)[6]) >> 16


RawRecords = TextRecords | BcfRecords
