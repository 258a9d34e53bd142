"""Encode output records as lines of VCF. `writer` gives it sites and the rounded values of `record_fields`.

Values are rounded to few decimals, so there are only a few thousand different texts such as ":0.125". They
are formatted once and kept in a table of cells of eight bytes. A compiled loop copies the cells.

Axes: R records, N samples, P alleles of a call, K numbers of a sample, C texts of a table, B bytes of a cell.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.kernels import kernel
from spinimpute.vcf.header import OutputHeader
from spinimpute.vcf.record_fields import (
    ALLELE_ABSENT,
    ALLELE_MISSING,
    InfoColumns,
    NumberCodes,
    SampleFields,
    SampleLayout,
    info_texts,
    structural_columns,
)

_CELL_BYTES = 8  # the longest text is a separator and a number with five decimals, such as ":0.12345"


def site_columns(sites: Sites, chrom: str, info: InfoColumns, formats: Sequence[str]) -> list[bytes]:
    """Encode the columns CHROM to FORMAT of each site."""
    format_column = ":".join(formats)
    infos = info_texts(structural_columns(sites) | info)
    rows = zip(sites.position.tolist(), sites.id, sites.ref, sites.alt, infos, strict=True)
    return [
        f"{chrom}\t{position}\t{name}\t{ref}\t{alt}\t.\tPASS\t{record_info}\t{format_column}".encode()
        for position, name, ref, alt, record_info in rows
    ]


def _text_table(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts, padded, as uint8 (n, _CELL_BYTES), and their lengths, uint8 (n,)."""
    table = np.frombuffer(b"".join(text.ljust(_CELL_BYTES, b"\0") for text in texts), dtype=np.uint8)
    return table.reshape(-1, _CELL_BYTES), np.array([len(text) for text in texts], dtype=np.uint8)


@lru_cache(maxsize=4)
def _number_table(decimals: int, separators: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the table of the texts of all number codes, after each of the separators."""
    codes = NumberCodes(decimals)
    texts = [
        f"{number:.{decimals}f}".rstrip("0").rstrip(".").encode()
        for number in (np.arange(codes.missing) / codes.one).tolist()
    ]
    return _text_table(
        [cell for one in separators for cell in (*(one + text for text in (*texts, b".")), b"")]
    )


def _genotype_texts(max_ploidy: int, n_alts: int) -> list[bytes]:
    """Return the text of every genotype of K = `n_alts` ALT alleles, with a tab before it.

    The index of a haploid genotype is allele + 1. The index of a diploid one is
    (K + 3) (first allele + 1) + second allele + 2, plus (K + 3) (K + 2) if the genotype is unphased.
    """
    text = {ALLELE_MISSING: b".", **{allele: b"%d" % allele for allele in range(n_alts + 1)}}
    if max_ploidy == 1:
        return [b"\t" + text[allele] for allele in text]
    return [
        b"\t" + text[first] + (b"" if second == ALLELE_ABSENT else separator + text[second])
        for separator in (b"|", b"/")
        for first in text
        for second in (ALLELE_ABSENT, *text)
    ]


@kernel()
def _fill_genotype_index(alleles_RNP, unphased_RN, n_alts, index_RN):  # type: ignore[no-untyped-def]
    """Fill index_RN with the index of each call in `_genotype_texts`.

    If all calls are phased, unphased_RN has no rows.
    """
    n_records, n_samples, ploidy = alleles_RNP.shape
    width = n_alts + 3
    for r in range(n_records):
        for n in range(n_samples):
            index = alleles_RNP[r, n, 0] + 1
            if ploidy > 1:
                index = width * index + alleles_RNP[r, n, 1] + 2
                if len(unphased_RN) > 0:
                    index += width * (width - 1) * unphased_RN[r, n]
            index_RN[r, n] = index


@kernel()
def _write_columns(  # type: ignore[no-untyped-def]
    genotype_RN, genotype_CB, genotype_length_C, code_KRN, first_K, number_CB, number_length_C, out, stop_R
):
    """Write the sample columns of all records to `out`, each record with a newline.

    genotype_RN are indexes into the table of genotype texts; N is 0 if GT is not written. The text of number
    k is in row first_K[k] + code_KRN of the table of numbers. `out` must be _CELL_BYTES longer than the text,
    because whole cells are copied. stop_R is filled with the end of each record.
    """
    n_numbers, n_records, n_samples = code_KRN.shape
    has_genotypes = genotype_RN.shape[1] > 0
    n_samples = max(n_samples, genotype_RN.shape[1])
    at = 0
    for r in range(n_records):
        for n in range(n_samples):
            if has_genotypes:
                index = genotype_RN[r, n]
                for byte in range(_CELL_BYTES):  # copy the whole cell: the compiler makes it one instruction
                    out[at + byte] = genotype_CB[index, byte]
                at += genotype_length_C[index]
            for k in range(n_numbers):
                index = first_K[k] + code_KRN[k, r, n]
                for byte in range(_CELL_BYTES):
                    out[at + byte] = number_CB[index, byte]
                at += number_length_C[index]
        out[at] = 10
        at += 1
        stop_R[r] = at


class VcfTextEncoder:
    """Encoder of blocks of records as lines of VCF.

    `file_start` is the encoded header. `bytes_per_record` is the approximate length of a line.
    """

    def __init__(self, header: OutputHeader, layout: SampleLayout) -> None:
        keys = list(layout.n_values)
        self._formats = keys
        self._has_genotypes = keys[0] == "GT"
        genotypes = _genotype_texts(layout.max_ploidy, layout.n_alts) if self._has_genotypes else [b""]
        self._n_alts, self._index_type = layout.n_alts, np.min_scalar_type(-len(genotypes))
        self._genotype = _text_table(genotypes)
        codes = layout.codes
        self._numbers = [  # FORMAT key, and index among the values of this key
            (key, value_index) for key in keys if key != "GT" for value_index in range(layout.n_values[key])
        ]
        separators = [
            b"," if value_index else b"\t" if i == 0 and not self._has_genotypes else b":"
            for i, (_, value_index) in enumerate(self._numbers)
        ]
        distinct = sorted(set(separators))
        self._cells = _number_table(codes.decimals, tuple(distinct))
        self._first_K = np.array([distinct.index(one) * (codes.absent + 1) for one in separators], np.int64)
        number_width = len(":0.") + codes.decimals
        widths = [_CELL_BYTES if key == "ML" else number_width for key, _ in self._numbers]
        self._length_separator = b""
        if "ML" in keys:  # its cells follow the others
            k = self._numbers.index(("ML", 0))
            self._length_separator, self._first_K[k] = separators[k], len(self._cells[0])
        self._width = int(self._genotype[1].max()) + sum(widths)
        self.bytes_per_record = layout.n_samples * self._width + 100
        self.file_start = header.text.encode()

    def encode(
        self, sites: Sites, chrom: str, info: InfoColumns, fields: SampleFields
    ) -> tuple[list[bytes | memoryview], np.ndarray]:
        """Encode r sites on contig `chrom`. Return the lines in parts, and the line lengths, int64 (r,)."""
        n_records, n_samples = fields.alleles.shape[:2]
        genotype_RN = np.empty((n_records, n_samples if self._has_genotypes else 0), self._index_type)
        if self._has_genotypes:
            unphased_RN = np.empty((0, 0), bool) if fields.unphased is None else fields.unphased
            _fill_genotype_index(fields.alleles, unphased_RN, self._n_alts, genotype_RN)
        codes = [fields.numbers[key][value_index] for key, value_index in self._numbers]
        code_KRN = codes[0][None] if len(codes) == 1 else np.array(codes, np.int32)
        if not codes:
            code_KRN = np.empty((0, n_records, n_samples), dtype=np.int32)
        out = np.empty(n_records * (n_samples * self._width + 1) + _CELL_BYTES, dtype=np.uint8)
        stop_R = np.empty(n_records, dtype=np.int64)
        cells = self._cells
        if fields.length_texts:
            own = _text_table([self._length_separator + text.encode() for text in fields.length_texts])
            cells = np.concatenate([cells[0], own[0]]), np.concatenate([cells[1], own[1]])
        _write_columns(genotype_RN, *self._genotype, code_KRN, self._first_K, *cells, out, stop_R)
        columns = out.data
        encoded: list[bytes | memoryview] = []
        fixed_lengths = []
        start = 0
        for fixed, stop in zip(site_columns(sites, chrom, info, self._formats), stop_R.tolist(), strict=True):
            encoded += (fixed, columns[start:stop])
            fixed_lengths.append(len(fixed))
            start = stop
        return encoded, np.diff(stop_R, prepend=0) + np.array(fixed_lengths, np.int64)


def join_text_records(
    sites: Sites,
    chrom: str,
    info: InfoColumns,
    formats: Sequence[str],
    samples: Sequence[Sequence[Sequence[tuple[int, bytes]]]],
) -> list[bytes]:
    """Return lines with the columns of samples of several files.

    `samples` are, for each record and file, the `samples` of `raw_records.SplitRecord`.
    """
    return [
        b"\t".join([columns, *(text for ((_, text),) in parts)]) + b"\n"
        for columns, parts in zip(site_columns(sites, chrom, info, formats), samples, strict=True)
    ]
