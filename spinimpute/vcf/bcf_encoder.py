"""Encode output records as BCF 2.2. `writer` gives it sites and the rounded values of `record_fields`.

The sample parts of all records of a block have equal lengths, so numpy fills them in one array.
"""

import struct
from collections.abc import Sequence

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.bcf_format import (
    FLOAT,
    FLOAT_END,
    FLOAT_MISSING,
    INT8,
    INT8_END,
    INT16,
    INT16_END,
    INT32,
    INT32_MISSING,
    SIZES,
    allele_kind,
    file_start,
    record_start,
    typed_descriptor,
    typed_integer,
    typed_text,
)
from spinimpute.vcf.header import OutputHeader
from spinimpute.vcf.record_fields import InfoColumns, SampleFields, SampleLayout, structural_columns

_VALUE_TYPES = {INT8: (np.int8, INT8_END), INT16: (np.int16, INT16_END), FLOAT: (np.uint32, FLOAT_END)}
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
        self.file_start = file_start(header.text.encode())

        self._allele_kind = allele_kind(layout.n_alts)
        allele_type, end = _VALUE_TYPES[self._allele_kind]
        # codes of the alleles absent, missing, 0, 1 ...; the lowest bit of the second allele means "phased"
        known = 2 * np.arange(layout.n_alts + 2)
        self._first_allele = np.array([end, *known], allele_type)
        self._second_allele = np.array([end, *known + 1], allele_type)

        template = bytearray()
        self._offsets: dict[str, int] = {}  # FORMAT key -> offset of its values in the sample part
        for key, n_values in layout.n_values.items():
            kind = self._allele_kind if key == "GT" else FLOAT
            template += typed_integer(header.indexes.fields[key]) + typed_descriptor(kind, n_values)
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
        layout = self._layout
        n_formats, sizes = len(layout.n_values), [sample_bytes] * len(sites)
        starts = site_parts(self._header, sites, chrom, info, n_formats, layout.n_samples, sizes)
        for record, start in enumerate(starts):
            encoded.append(start)
            encoded.append(sample_data[record * sample_bytes : (record + 1) * sample_bytes])
            lengths[record] = len(start) + sample_bytes
        return encoded, lengths

    def _sample_parts(self, fields: SampleFields) -> np.ndarray:
        """Return the encoded sample parts, one row per record, uint8 (r, bytes)."""
        n_records, n_samples, max_ploidy = fields.alleles.shape
        rows = np.tile(self._template, (n_records, 1))
        if "GT" in self._offsets:
            genotypes = np.empty((n_records, n_samples * max_ploidy), self._first_allele.dtype)
            genotypes[:, ::max_ploidy] = self._first_allele[fields.alleles[:, :, 0] + np.int8(2)]
            if max_ploidy == 2:
                second = fields.alleles[:, :, 1] + np.int8(2)
                genotypes[:, 1::2] = self._second_allele[second]
                if fields.unphased is not None:
                    genotypes[:, 1::2] -= (fields.unphased & (second > 0)).astype(genotypes.dtype)
            start, encoded = self._offsets["GT"], genotypes.astype(genotypes.dtype.newbyteorder("<"))
            rows[:, start : start + encoded[0].nbytes] = encoded.view(np.uint8)
        for key, numbers in fields.numbers.items():
            bits = self._number_bits
            if key == "ML":
                bits = np.array([_float_bits(text) for text in fields.length_texts], np.uint32)
            for value, codes in enumerate(numbers):
                # rows are not aligned to four bytes, so `view` does not work: build a strided array instead
                target = np.ndarray(
                    codes.shape,
                    np.uint32,
                    rows.data,
                    self._offsets[key] + 4 * value,
                    (rows.shape[1], 4 * len(numbers)),
                )
                target[...] = bits[codes]
        return rows


def site_parts(
    header: OutputHeader,
    sites: Sites,
    chrom: str,
    info: InfoColumns,
    n_formats: int,
    n_samples: int,
    sample_bytes: Sequence[int],
) -> list[bytes]:
    """Encode the site part of each record. `sample_bytes` are the lengths of the sample parts."""
    rows = zip(
        sites.position.tolist(),
        sites.id,
        sites.ref,
        sites.alt,
        (sites.last_position() - sites.position + 1).tolist(),
        _info_parts(header, structural_columns(sites) | info),
        sample_bytes,
        strict=True,
    )
    return [
        record_start(
            contig=header.indexes.contigs[chrom],
            position=position,
            name="" if name == "." else name,
            length=length,
            ref=ref,
            alts=alt.split(","),
            n_info=n_info,
            info=record_info,
            n_formats=n_formats,
            n_samples=n_samples,
            sample_bytes=size,
        )
        for position, name, ref, alt, length, (n_info, record_info), size in rows
    ]


def join_bcf_records(
    header: OutputHeader,
    sites: Sites,
    chrom: str,
    info: InfoColumns,
    formats: Sequence[str],
    n_samples: Sequence[int],
    samples: Sequence[Sequence[Sequence[tuple[int, bytes]]]],
) -> list[bytes]:
    """Return records with the samples of several files, of which `n_samples` are the numbers of samples.

    `samples` are, for each record and file, the `samples` of `raw_records.SplitRecord`. If only some files
    have diploid samples, the values of the others are padded, as in a file of all samples.
    """
    joined: list[bytes] = []
    for parts in samples:
        pieces = []
        for key, values in zip(formats, zip(*parts, strict=True), strict=True):
            kind, most = FLOAT, max(count for count, _ in values)
            if key == "GT":
                kind = allele_kind(sites.alt[len(joined)].count(",") + 1)
            pieces += [typed_integer(header.indexes.fields[key]), typed_descriptor(kind, most)]
            pieces += [
                data if count == most else _pad(data, kind, n, count, most)
                for n, (count, data) in zip(n_samples, values, strict=True)
            ]
        joined.append(b"".join(pieces))
    starts = site_parts(
        header, sites, chrom, info, len(formats), sum(n_samples), [len(part) for part in joined]
    )
    return [start + part for start, part in zip(starts, joined, strict=True)]


def _pad(data: bytes, kind: int, n: int, count: int, most: int) -> bytes:
    """Append "end of vector" to the `count` values of each of n samples, so that there are `most`."""
    value_type, end = _VALUE_TYPES[kind]
    padded = np.full((n, most), end, value_type)
    padded[:, :count] = np.frombuffer(data, value_type).reshape(n, count)
    return padded.tobytes()


def _info_parts(header: OutputHeader, info: InfoColumns) -> list[tuple[int, bytes]]:
    """Return the number of INFO fields of each record, and their bytes."""
    columns = [_info_column(header, key, texts) for key, texts in info.items()]
    present = [[value for value in record if value] for record in zip(*columns, strict=True)]
    return [(len(values), b"".join(values)) for values in present]


def _info_column(header: OutputHeader, key: str, texts: list[str | None]) -> list[bytes]:
    """Return the encoded values of an INFO field; they are empty where a record lacks the field."""
    start = typed_integer(header.indexes.fields[key])
    kind = header.info_types[key]
    if kind == "Flag":
        start += b"\0"
        return [b"" if text is None else start for text in texts]
    if kind == "Integer":
        return [b"" if text is None else start + _integers(text.split(",")) for text in texts]
    if kind == "String":
        return [b"" if text is None else start + typed_text(text) for text in texts]
    number = start + typed_descriptor(FLOAT, 1)
    return [
        b""
        if text is None
        else start + _float_vector(text.split(","))
        if "," in text
        else number + _FLOAT.pack(float(text))
        for text in texts
    ]


def _integers(texts: Sequence[str]) -> bytes:
    """Encode one or several integers; "." is missing."""
    if len(texts) == 1:
        return typed_integer(int(texts[0]))
    values = [INT32_MISSING if text == "." else int(text) for text in texts]
    return typed_descriptor(INT32, len(values)) + struct.pack(f"<{len(values)}i", *values)


def _float_vector(texts: Sequence[str]) -> bytes:
    """Encode the numbers of several ALT alleles; "." is missing."""
    return typed_descriptor(FLOAT, len(texts)) + struct.pack(f"<{len(texts)}I", *map(_float_bits, texts))


def _float_bits(text: str) -> int:
    """Return the bits of a number as float32; "." is missing."""
    return FLOAT_MISSING if text == "." else int(np.float32(text).view(np.uint32))
