"""Writer of BGEN 1.2 files (layout 2, zlib, 16 bits per probability) with their .sample files.

We write the format ourselves because the existing libraries use one thread and add an index file.

Axes: r records, n samples.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.plink_writer import check_names
from spinimpute.runtime.output_files import OutputGroup
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_fields import NumberCodes

BITS = 16  # per stored probability
_MAX_STORED = 2**BITS - 1
_ZLIB, _LAYOUT_2, _HAS_SAMPLES = 1, 2 << 2, 1 << 31
_MISSING_FLAG = 0x80
_N_RECORDS_OFFSET = 8  # file offset of the number of records in bytes
_SEX = {True: "1", False: "2", None: "0"}


class BgenWriter(OutputGroup):
    """A context manager that writes blocks of records; after an exception no file remains.

    The FORMAT fields of the layout decide what is stored. With HDS, allele probabilities of each
    haplotype are stored, otherwise genotype probabilities. With GT alone, these are 0 and 1. P(ALT) of each
    haplotype is first rounded to the layout's `decimals`, as in VCF. `sexes` says which samples are male.
    Raises InputError if a path cannot be written, or if PLINK cannot read a sample's name.
    """

    def __init__(
        self, path: str | os.PathLike[str], layout: OutputLayout, sexes: Mapping[str, bool] | None = None
    ) -> None:
        """Check the arguments, and open the files."""
        check_names(layout.samples)
        self._samples, self._sexes = list(layout.samples), dict(sexes or {})
        self._codes = NumberCodes(layout.decimals)
        self._phased, self._calls_only = "HDS" in layout.formats, tuple(layout.formats) == ("GT",)
        self._file: BinaryIO | None = None
        self._n_records = 0
        self.set_ploidy(layout.ploidy)
        path = Path(path)
        super().__init__(path, [path, path.with_suffix(".sample")])
        with self.convert_errors():
            self._file = self.files[0].path.open("wb")
            name_bytes = b"".join(_with_length(name) for name in self._samples)
            samples_block = struct.pack("<II", 8 + len(name_bytes), len(self._samples)) + name_bytes
            flags = _ZLIB | _LAYOUT_2 | _HAS_SAMPLES
            header = struct.pack("<III4sI", 20, 0, len(self._samples), b"bgen", flags)
            self._file.write(struct.pack("<I", len(header) + len(samples_block)) + header + samples_block)

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """Set the ploidy of the samples in the following blocks. It differs between the parts of X."""
        self._ploidy = np.asarray(ploidy).astype(np.uint8)
        self._last_column_n = np.cumsum(self._ploidy) - 1  # column of each sample's last haplotype
        self._haploid = self._ploidy == 1

    def write_block(
        self,
        chrom: str,
        sites: Sites,
        hap_dosage: np.ndarray,
        info: Mapping[str, np.ndarray | None],
        haplotypes: np.ndarray | None,
        typed: np.ndarray,
        unphased: np.ndarray | None = None,
    ) -> None:
        """Append r records; parameters and errors are those of `GenotypeWriter.write_block`.

        BGEN cannot store `info`, `typed` and `unphased`. The caller never combines HDS with unphased calls.
        """
        if is_x(chrom) and self._haploid.any():
            self._sexes.update(zip(self._samples, self._haploid.tolist(), strict=True))
        p = self._codes.units(np.asarray(hap_dosage, np.float32)) / np.float64(self._codes.one)
        if self._calls_only:
            p = np.where(np.isnan(p), p, p >= 0.5) if haplotypes is None else haplotypes.astype(float)
            p[p < 0] = np.nan
        first, last = p[:, self._last_column_n - (self._ploidy - 1)], p[:, self._last_column_n]
        with self.convert_errors():
            assert self._file is not None
            for row in range(len(sites)):
                name = _with_length(sites.id[row] or ".")
                site = name + name + _with_length(chrom) + struct.pack("<IH", int(sites.position[row]), 2)
                alleles = b"".join(
                    struct.pack("<I", len(allele)) + allele.encode()
                    for allele in (sites.ref[row], sites.alt[row])
                )
                block = self._probabilities(first[row], last[row])
                zipped = zlib.compress(block)
                self._file.write(site + alleles + struct.pack("<II", len(zipped) + 4, len(block)) + zipped)
        self._n_records += len(sites)

    def _probabilities(self, first: np.ndarray, last: np.ndarray) -> bytes:
        """Return a record's raw block from P(ALT) of each sample's first and last haplotype, (n,)."""
        missing = np.isnan(first + last)
        first, last = np.where(missing, 1, first), np.where(missing, 1, last)
        if self._phased:
            values = np.rint(np.stack([1 - first, 1 - last], axis=1) * _MAX_STORED)
        else:
            # Cumulative probabilities are rounded, so that their differences are never negative.
            p_none = np.where(self._haploid, 1 - first, (1 - first) * (1 - last))
            p_below_two = np.rint((1 - first * last) * _MAX_STORED)
            p_none = np.rint(p_none * _MAX_STORED)
            values = np.stack([p_none, p_below_two - p_none], axis=1)
        values[missing] = 0
        stored = values.ravel()[np.stack([np.ones_like(self._haploid), ~self._haploid], axis=1).ravel()]
        block_start = struct.pack("<IHBB", len(missing), 2, int(self._ploidy.min()), int(self._ploidy.max()))
        ploidy = self._ploidy | np.where(missing, np.uint8(_MISSING_FLAG), np.uint8(0))
        return block_start + ploidy.tobytes() + bytes([self._phased, BITS]) + stored.astype("<u2").tobytes()

    def write_trailers(self) -> None:
        """Write the number of records into the .bgen, and write the .sample."""
        assert self._file is not None
        self._file.seek(_N_RECORDS_OFFSET)
        self._file.write(struct.pack("<I", self._n_records))
        self._file.close()
        rows = [f"0 {name} 0 {_SEX[self._sexes.get(name)]}" for name in self._samples]
        text = "\n".join(["ID_1 ID_2 missing sex", "0 0 0 D", *rows]) + "\n"
        self.files[1].path.write_text(text, encoding="utf-8", newline="\n")

    def drop(self) -> None:
        """Close the .bgen."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()


def _with_length(text: str) -> bytes:
    """Encode a text as BGEN stores it: 2 bytes of length, then UTF-8."""
    data = text.encode()[: 2**16 - 1]
    return struct.pack("<H", len(data)) + data
