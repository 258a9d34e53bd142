"""Records as the text of a VCF, all samples of a block at once by table look-up.

Every value gets a slot of fixed width, so a block is a rectangle of bytes filled column by column; what a
sample lacks and the zeros at the end of numbers stay NUL and are squeezed out at the end.
"""

import numpy as np

from spinimpute.genotypes.record_info import InfoValues
from spinimpute.genotypes.sample_fields import (
    ABSENT,
    ALLELE_ABSENT,
    ALLELE_MISSING,
    MISSING,
    N_CODES,
    ONE,
    SampleFields,
    SampleLayout,
    numbers_per_sample,
)
from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.vcf_header import OutputHeader

_SLOT = 8  # bytes of a number's slot: separator, at most "d.dddd", next separator
_NUMBER_STEP = _SLOT - 1  # neighbouring slots share the separator


def _number_table(separator: bytes, next_separator: bytes) -> np.ndarray:
    """The slot of every number code, as one 64-bit integer each; uint64 (N_CODES,)."""
    table = np.zeros((N_CODES, _SLOT), dtype=np.uint8)
    table[:, 0] = ord(separator)
    table[:, -1] = ord(next_separator)
    for code in range(2 * ONE + 1):
        number = f"{code / ONE:g}".encode()
        table[code, 1 : 1 + len(number)] = list(number)
    table[MISSING, 1] = ord(".")
    table[ABSENT, 0] = 0
    return table.reshape(-1).view(np.uint64)


def _genotype_table(max_ploidy: int) -> np.ndarray:
    """The slot of every genotype; index: 4 (first + 1) + second + 2 if diploid, and 12 more if the order of
    its alleles means nothing; first + 1 if haploid."""
    text = {0: b"0", 1: b"1", ALLELE_MISSING: b"."}
    if max_ploidy == 1:
        return np.frombuffer(b"".join(b"\t" + text[allele] for allele in (-1, 0, 1)), dtype=np.uint16)
    slots = [
        (b"\t" + text[first] + (b"" if second == ALLELE_ABSENT else between + text[second])).ljust(4, b"\0")
        for between in (b"|", b"/")
        for first in (-1, 0, 1)
        for second in (-2, -1, 0, 1)
    ]
    return np.frombuffer(b"".join(slots), dtype=np.uint32)


def _genotype_index(fields: SampleFields) -> np.ndarray:
    """Index into the genotype table; int8 (r, n)."""
    alleles = fields.alleles
    first = alleles[:, :, 0] + np.int8(1)
    if alleles.shape[2] == 1:
        return first
    index = 4 * first + (alleles[:, :, 1] + np.int8(2))
    return index if fields.unphased is None else index + np.int8(12) * fields.unphased


class VcfTextEncoder:
    """Encodes blocks of records as VCF lines."""

    def __init__(self, header: OutputHeader, layout: SampleLayout) -> None:
        self._layout = layout
        self._format_column = ":".join(layout.formats)
        self._genotypes = _genotype_table(layout.max_ploidy)
        self._slots: list[tuple[str, int, int, np.ndarray]] = []  # FORMAT key, which value, place, table
        width = 0
        for key in layout.formats:
            if key == "GT":
                width = self._genotypes.itemsize
                continue
            n_values = numbers_per_sample(key, layout.max_ploidy)
            for value in range(n_values):
                separator = b"," if value else b":" if width else b"\t"
                is_last = key == layout.formats[-1] and value == n_values - 1
                following = b"," if value < n_values - 1 else b"\t" if is_last else b":"
                self._slots.append((key, value, width, _number_table(separator, following)))
                width += _NUMBER_STEP
        self._width = width
        self.file_start = header.text.encode()

    @property
    def bytes_per_record(self) -> int:
        """About how long a record is."""
        return self._layout.n_samples * self._width + 100

    def encode(
        self, sites: Sites, chrom: str, info: InfoValues, fields: SampleFields
    ) -> tuple[list[bytes | memoryview], np.ndarray]:
        """Lines of r records.

        Returns:
            the pieces of the text in order, and the length of each record, int64 (r,).
        """
        fixed = [
            f"{chrom}\t{position}\t{name}\t{ref}\t{alt}\t.\tPASS\t{record_info}\t{self._format_column}".encode()
            for position, name, ref, alt, record_info in zip(
                sites.position.tolist(), sites.id, sites.ref, sites.alt, info.texts(), strict=True
            )
        ]
        columns, stops = self._sample_columns(fields)
        pieces: list[bytes | memoryview] = []
        start = 0
        for record, stop in zip(fixed, stops.tolist(), strict=True):
            pieces.append(record)
            pieces.append(columns[start:stop])
            start = stop
        lengths = np.array([len(record) for record in fixed], dtype=np.int64)
        return pieces, lengths + np.diff(stops, prepend=0)

    def _sample_columns(self, fields: SampleFields) -> tuple[memoryview, np.ndarray]:
        """The text from the tab after FORMAT to the newline of all records, and where each record stops."""
        n_records, n_samples = fields.alleles.shape[:2]
        row = n_samples * self._width + 1
        text = np.zeros((n_records, row), dtype=np.uint8)

        def place(values: np.ndarray, offset: int) -> None:
            """Write one slot of every sample; slots are not aligned and overlap in their separators."""
            slots = np.ndarray((n_records, n_samples), values.dtype, text.data, offset, (row, self._width))
            slots[...] = values

        if self._layout.formats[0] == "GT":
            place(self._genotypes[_genotype_index(fields)], 0)
        for key, value, offset, table in self._slots:
            place(table[fields.numbers[key][value]], offset)
        text[:, -1] = ord("\n")
        squeezed = text.tobytes().translate(None, b"\0")
        return memoryview(squeezed), np.cumsum(np.count_nonzero(text, axis=1))
