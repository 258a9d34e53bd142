"""Records as BCF 2.2, all samples of a block at once."""

import struct

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.header import OutputHeader
from spinimpute.vcf.record_info import InfoValues
from spinimpute.vcf.sample_fields import (
    ABSENT,
    MISSING,
    N_CODES,
    ONE,
    SampleFields,
    SampleLayout,
    numbers_per_sample,
)

_INT8, _INT16, _INT32, _FLOAT, _CHAR = 1, 2, 3, 5, 7
_FLOAT_MISSING, _FLOAT_END = 0x7F800001, 0x7F800002
_INT8_END = -127
_PASS = b"\x11\x00"


def _descriptor(value_type: int, count: int) -> bytes:
    """Says the type and number of the values that follow; a count above 14 needs an integer of its own."""
    if count < 15:
        return bytes([count << 4 | value_type])
    return bytes([0xF0 | value_type]) + _typed_int(count)


def _typed_int(value: int) -> bytes:
    # The lowest eight values of each width are reserved.
    if -120 <= value < 2**7:
        return struct.pack("<Bb", 0x10 | _INT8, value)
    if -(2**15) + 8 <= value < 2**15:
        return struct.pack("<Bh", 0x10 | _INT16, value)
    return struct.pack("<Bi", 0x10 | _INT32, value)


def _typed_text(text: str) -> bytes:
    encoded = text.encode()
    return _descriptor(_CHAR, len(encoded)) + encoded


def _number_table() -> np.ndarray:
    """The float32 of every number code, as its bits; uint32 (N_CODES,)."""
    table = np.empty(N_CODES, dtype=np.uint32)
    table[: 2 * ONE + 1] = (np.arange(2 * ONE + 1) / ONE).astype(np.float32).view(np.uint32)
    table[MISSING], table[ABSENT] = _FLOAT_MISSING, _FLOAT_END
    return table


_NUMBERS = _number_table()

# Genotype values by allele + 2: absent, missing, 0, 1. The lowest bit of the later ones says "phased".
_FIRST_ALLELE = np.array([_INT8_END, 0, 2, 4], dtype=np.int8)
_SECOND_ALLELE = np.array([_INT8_END, 1, 3, 5], dtype=np.int8)


class BcfEncoder:
    """Encodes blocks of records as BCF."""

    def __init__(self, header: OutputHeader, layout: SampleLayout) -> None:
        self._header = header
        self._layout = layout
        self._contig_number = {name: number for number, name in enumerate(header.contigs)}
        text = header.text.encode() + b"\0"
        self.file_start = b"BCF\2\2" + struct.pack("<I", len(text)) + text

        template = bytearray()
        self._places: dict[
            str, int
        ] = {}  # where the values of each FORMAT key begin in the sample part of a record
        for key in layout.formats:
            n_values = numbers_per_sample(key, layout.max_ploidy)
            template += _typed_int(header.dictionary[key]) + _descriptor(
                _INT8 if key == "GT" else _FLOAT, n_values
            )
            self._places[key] = len(template)
            template += bytes(layout.n_samples * n_values * (1 if key == "GT" else 4))
        self._template = np.frombuffer(bytes(template), dtype=np.uint8)

    @property
    def bytes_per_record(self) -> int:
        """About how long a record is."""
        return len(self._template) + 100

    def encode(
        self, sites: Sites, chrom: str, info: InfoValues, fields: SampleFields
    ) -> tuple[list[bytes | memoryview], np.ndarray]:
        """Bytes of r records.

        Returns:
            the pieces in order, and the length of each record, int64 (r,).
        """
        contig = self._contig_number[chrom]
        n_formats_n_samples = len(self._layout.formats) << 24 | self._layout.n_samples
        samples = self._sample_parts(fields)
        sample_bytes = samples.shape[1]
        sample_data = samples.reshape(-1).data
        pieces: list[bytes | memoryview] = []
        lengths = np.empty(len(sites), dtype=np.int64)
        for record, (position, name, ref, alt, (n_info, record_info)) in enumerate(
            zip(sites.position.tolist(), sites.id, sites.ref, sites.alt, self._info_parts(info), strict=True)
        ):
            shared = b"".join(
                (
                    struct.pack(
                        "<3i3I",
                        contig,
                        position - 1,
                        len(ref),
                        _FLOAT_MISSING,
                        2 << 16 | n_info,
                        n_formats_n_samples,
                    ),
                    _typed_text("" if name == "." else name),
                    _typed_text(ref),
                    _typed_text(alt),
                    _PASS,
                    record_info,
                )
            )
            pieces.append(struct.pack("<2I", len(shared), sample_bytes) + shared)
            pieces.append(sample_data[record * sample_bytes : (record + 1) * sample_bytes])
            lengths[record] = 8 + len(shared) + sample_bytes
        return pieces, lengths

    def _info_parts(self, info: InfoValues) -> list[tuple[int, bytes]]:
        """Number and bytes of the INFO fields of each record."""
        columns = [[self._info_value(key, value) for value in values] for key, values in info.columns.items()]
        flags = {
            is_typed: _typed_int(self._header.dictionary["TYPED" if is_typed else "IMPUTED"]) + b"\0"
            for is_typed in (True, False)
        }
        columns.append([flags[is_typed] for is_typed in info.typed])
        parts = []
        for record in zip(*columns, strict=True):
            present = [value for value in record if value]
            parts.append((len(present), b"".join(present)))
        return parts

    def _info_value(self, key: str, text: str | None) -> bytes:
        if text is None:
            return b""
        name = _typed_int(self._header.dictionary[key])
        if self._header.info_types[key] == "Integer":
            return name + _typed_int(int(text))
        return name + struct.pack("<Bf", 0x10 | _FLOAT, float(text))

    def _sample_parts(self, fields: SampleFields) -> np.ndarray:
        """The values of all samples, one row of bytes per record; uint8 (r, bytes)."""
        n_records, n_samples, max_ploidy = fields.alleles.shape
        rows = np.tile(self._template, (n_records, 1))
        if "GT" in self._places:
            start = self._places["GT"]
            genotypes = rows[:, start : start + n_samples * max_ploidy].view(np.int8)
            genotypes[:, ::max_ploidy] = _FIRST_ALLELE[fields.alleles[:, :, 0] + np.int8(2)]
            if max_ploidy == 2:
                second = fields.alleles[:, :, 1] + np.int8(2)
                genotypes[:, 1::2] = _SECOND_ALLELE[second]
                if fields.unphased is not None:
                    genotypes[:, 1::2] -= (fields.unphased & (second > 0)).astype(np.int8)
        for key, numbers in fields.numbers.items():
            for value, codes in enumerate(numbers):
                # Rows are not aligned to four bytes, so the floats are placed by strides instead of a view.
                place = np.ndarray(
                    codes.shape,
                    np.uint32,
                    rows.data,
                    self._places[key] + 4 * value,
                    (rows.shape[1], 4 * len(numbers)),
                )
                place[...] = _NUMBERS[codes]
        return rows
