"""Encode output records as BCF 2.2. `writer` gives it sites and the rounded values of `record_fields`.

The sample parts of all records of a block have equal lengths, so numpy fills them in one array.
"""

import struct

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.bcf_format import (
    FLOAT,
    FLOAT_END,
    FLOAT_MISSING,
    INT8,
    INT8_END,
    SIZES,
    file_start,
    record_start,
    typed_descriptor,
    typed_integer,
)
from spinimpute.vcf.header import OutputHeader
from spinimpute.vcf.record_fields import InfoColumns, SampleFields, SampleLayout

# codes of the alleles absent, missing, 0 and 1; the lowest bit of the second allele means "phased"
_FIRST_ALLELE = np.array([INT8_END, 0, 2, 4], dtype=np.int8)
_SECOND_ALLELE = np.array([INT8_END, 1, 3, 5], dtype=np.int8)
_FLOAT = struct.Struct("<f")


class BcfEncoder:
    """Encoder of blocks of records as BCF.

    `file_start` are the bytes before the first record. `bytes_per_record` is the approximate record length.
    """

    def __init__(self, header: OutputHeader, layout: SampleLayout) -> None:
        self._header = header
        self._layout = layout
        codes = layout.codes
        self._number_bits = np.empty(codes.absent + 1, np.uint32)  # float32 of each number code
        self._number_bits[: codes.missing] = (np.arange(codes.missing) / codes.one).astype("f4").view("u4")
        self._number_bits[codes.missing :] = FLOAT_MISSING, FLOAT_END
        self._contig_indexes, self._field_indexes = header.indexes
        self.file_start = file_start(header.text.encode())

        template = bytearray()
        self._offsets: dict[str, int] = {}  # FORMAT key -> offset of its values in the sample part
        for key, n_values in layout.n_values.items():
            kind = INT8 if key == "GT" else FLOAT
            template += typed_integer(self._field_indexes[key]) + typed_descriptor(kind, n_values)
            self._offsets[key] = len(template)
            template += bytes(layout.n_samples * n_values * SIZES[kind])
        self._template = np.frombuffer(bytes(template), dtype=np.uint8)
        self.bytes_per_record = len(template) + 100

    def encode(
        self, sites: Sites, chrom: str, info: InfoColumns, fields: SampleFields
    ) -> tuple[list[bytes | memoryview], np.ndarray]:
        """Encode r sites on contig `chrom`. Return their bytes, and the record lengths, int64 (r,)."""
        samples = self._sample_parts(fields)
        sample_bytes = samples.shape[1]
        sample_data = samples.reshape(-1).data
        encoded: list[bytes | memoryview] = []
        lengths = np.empty(len(sites), dtype=np.int64)
        for record, (position, name, ref, alt, (n_info, record_info)) in enumerate(
            zip(sites.position.tolist(), sites.id, sites.ref, sites.alt, self._info_parts(info), strict=True)
        ):
            start = record_start(
                contig=self._contig_indexes[chrom],
                position=position,
                name="" if name == "." else name,
                ref=ref,
                alt=alt,
                n_info=n_info,
                info=record_info,
                n_formats=len(self._layout.n_values),
                n_samples=self._layout.n_samples,
                sample_bytes=sample_bytes,
            )
            encoded.append(start)
            encoded.append(sample_data[record * sample_bytes : (record + 1) * sample_bytes])
            lengths[record] = len(start) + sample_bytes
        return encoded, lengths

    def _info_parts(self, info: InfoColumns) -> list[tuple[int, bytes]]:
        """Return the number of INFO fields of each record, and their bytes."""
        columns = [self._info_column(key, texts) for key, texts in info.items()]
        present = [[value for value in record if value] for record in zip(*columns, strict=True)]
        return [(len(values), b"".join(values)) for values in present]

    def _info_column(self, key: str, texts: list[str | None]) -> list[bytes]:
        """Return the encoded values of an INFO field; they are empty where a record lacks the field."""
        start = typed_integer(self._field_indexes[key])
        kind = self._header.info_types[key]
        if kind == "Flag":
            start += b"\0"
            return [b"" if text is None else start for text in texts]
        if kind == "Integer":
            return [b"" if text is None else start + typed_integer(int(text)) for text in texts]
        start += typed_descriptor(FLOAT, 1)
        return [b"" if text is None else start + _FLOAT.pack(float(text)) for text in texts]

    def _sample_parts(self, fields: SampleFields) -> np.ndarray:
        """Return the encoded sample parts, one row per record, uint8 (r, bytes)."""
        n_records, n_samples, max_ploidy = fields.alleles.shape
        rows = np.tile(self._template, (n_records, 1))
        if "GT" in self._offsets:
            start = self._offsets["GT"]
            genotypes = rows[:, start : start + n_samples * max_ploidy].view(np.int8)
            genotypes[:, ::max_ploidy] = _FIRST_ALLELE[fields.alleles[:, :, 0] + np.int8(2)]
            if max_ploidy == 2:
                second = fields.alleles[:, :, 1] + np.int8(2)
                genotypes[:, 1::2] = _SECOND_ALLELE[second]
                if fields.unphased is not None:
                    genotypes[:, 1::2] -= (fields.unphased & (second > 0)).astype(np.int8)
        for key, numbers in fields.numbers.items():
            for value, codes in enumerate(numbers):
                # rows are not aligned to four bytes, so `view` does not work: build a strided array instead
                target = np.ndarray(
                    codes.shape,
                    np.uint32,
                    rows.data,
                    self._offsets[key] + 4 * value,
                    (rows.shape[1], 4 * len(numbers)),
                )
                target[...] = self._number_bits[codes]
        return rows
