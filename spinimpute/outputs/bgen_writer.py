"""Writer of BGEN 1.2 files (layout 2, zlib) with their .sample files and their indexes (`bgen_index`).

We write the format ourselves because the existing libraries use one thread.

Axes: R records, N samples, Q haplotypes, B bytes of a record's probability block.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from deflate import zlib_compress

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.bgen_index import BgenIndex, IndexRow
from spinimpute.outputs.plink_writer import check_names
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.kernels import kernel
from spinimpute.runtime.output_files import OutputGroup
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.record_fields import NumberCodes

BITS = (8, 16)  # choices for the precision of a stored probability
DEFAULT_BITS = 8
COMPRESSION_LEVEL = 6
"""Compression level of zlib and libdeflate. libdeflate takes longer to start, but half the time of zlib for
large blocks. We measured blocks of 0.8, 6 and 61 kB."""

_SMALL_BLOCK = 4_096  # bytes; smaller blocks are compressed by zlib, larger ones by libdeflate
_ZLIB, _LAYOUT_2, _HAS_SAMPLES = 1, 2 << 2, 1 << 31
_MISSING_FLAG = 0x80
_MAX_TEXT_BYTES = 2**16 - 1
_N_RECORDS_OFFSET = 8  # file offset of the number of records in bytes
_BLOCK_START = struct.Struct("<IHBB")  # number of samples and alleles, least and largest ploidy
_BATCH_BYTES = 4 * 2**20  # probability blocks to encode per step; limits the memory use
_SEX = {True: "1", False: "2", None: "0"}


@kernel()
def _fill_blocks(p_RQ, ploidy_N, phased, n_bytes, start_B, block_RB):  # type: ignore[no-untyped-def]
    """Fill the probability blocks of records from P(ALT) of each haplotype; NaN is missing.

    A probability is stored in n_bytes bytes. Cumulative probabilities are rounded, so that their differences
    are never negative. start_B are the first bytes of each block.
    """
    n_samples = len(ploidy_N)
    most = 256.0**n_bytes - 1
    values = np.zeros(2, np.int64)
    for r in range(len(p_RQ)):
        block_RB[r, : len(start_B)] = start_B
        ploidy_at = len(start_B)
        at = ploidy_at + n_samples
        block_RB[r, at] = phased
        block_RB[r, at + 1] = 8 * n_bytes
        at += 2
        column = 0
        for n in range(n_samples):
            ploidy = ploidy_N[n]
            first = np.float64(p_RQ[r, column])
            last = np.float64(p_RQ[r, column + ploidy - 1])
            column += ploidy
            missing = np.isnan(first + last)
            block_RB[r, ploidy_at + n] = ploidy | (_MISSING_FLAG if missing else 0)
            if missing:
                values[:] = 0
            elif phased or ploidy == 1:
                values[0] = np.int64(np.rint((1 - first) * most))
                values[1] = np.int64(np.rint((1 - last) * most))
            else:
                values[0] = np.int64(np.rint((1 - first) * (1 - last) * most))
                values[1] = np.int64(np.rint((1 - first * last) * most)) - values[0]
            for i in range(ploidy):
                block_RB[r, at] = values[i] & 0xFF
                if n_bytes == 2:
                    block_RB[r, at + 1] = values[i] >> 8
                at += n_bytes


class BgenWriter(OutputGroup):
    """A context manager that writes blocks of records; after an exception no file remains.

    The FORMAT fields of the layout decide what is stored. With HDS, allele probabilities of each
    haplotype are stored, otherwise genotype probabilities. With GT alone, these are 0 and 1. P(ALT) of each
    haplotype is first rounded to the layout's `decimals`, as in VCF, and then to `bits` (8 or 16). `sexes`
    says which samples are male. The bytes do not depend on `threads`.
    Raises InputError for other bits, if a path cannot be written, or if PLINK cannot read a sample's name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: OutputLayout,
        sexes: Mapping[str, bool] | None = None,
        *,
        bits: int = DEFAULT_BITS,
        threads: int = 2,
    ) -> None:
        """Check the arguments, and open the files."""
        if bits not in BITS:
            raise InputError("argument", f"{argument('bgen_bits')} must be 8 or 16, got {bits!r}")
        check_names(layout.samples)
        self._samples, self._sexes = list(layout.samples), dict(sexes or {})
        self._codes = NumberCodes(layout.decimals)
        self._phased, self._calls_only = "HDS" in layout.formats, tuple(layout.formats) == ("GT",)
        self._file: BinaryIO | None = None
        self._index: BgenIndex | None = None
        self._pool = ThreadPoolExecutor(threads, "bgen") if threads > 1 else None
        self._threads = threads
        self._n_records, self._n_bytes = 0, bits // 8
        self.set_ploidy(layout.ploidy)
        path = Path(path)
        super().__init__(path, [path, path.with_suffix(".sample"), Path(f"{path}.bgi")])
        with self.convert_errors():
            self._file = self.files[0].path.open("wb")
            name_bytes = b"".join(_with_length(name) for name in self._samples)
            samples_block = struct.pack("<II", 8 + len(name_bytes), len(self._samples)) + name_bytes
            flags = _ZLIB | _LAYOUT_2 | _HAS_SAMPLES
            header = struct.pack("<III4sI", 20, 0, len(self._samples), b"bgen", flags)
            start = struct.pack("<I", len(header) + len(samples_block)) + header + samples_block
            self._file.write(start)
            self._position = len(start)  # bytes written so far
            self._index = BgenIndex(self.files[2].path)

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """Set the ploidy of the samples in the following blocks. It differs between the parts of X."""
        self._ploidy = np.asarray(ploidy).astype(np.uint8)
        self._haploid = self._ploidy == 1
        n_samples, extremes = len(self._ploidy), (int(self._ploidy.min()), int(self._ploidy.max()))
        self._block_start = np.frombuffer(_BLOCK_START.pack(n_samples, 2, *extremes), np.uint8)
        self._block_bytes = (
            len(self._block_start) + n_samples + 2 + self._n_bytes * int(self._ploidy.sum(dtype=np.int64))
        )

    def write_block(self, block: RecordBlock) -> None:
        """Append records. Raises the InputError of `GenotypeWriter.write_block`.

        BGEN cannot store `info`, `typed` and `unphased`. The caller never combines HDS with unphased calls.
        IDs of more than 65,535 bytes, the maximum in BGEN, are cut at the end of a character.
        """
        if is_x(block.chrom) and self._haploid.any():
            self._sexes.update(zip(self._samples, self._haploid.tolist(), strict=True))
        step = max(1, _BATCH_BYTES // self._block_bytes)
        for start in range(0, len(block), step):
            part = block.take(slice(start, start + step))
            encoded = self._compressed_blocks(np.asarray(part.hap_dosage, np.float32), part.haplotypes)
            self._append(part.chrom, part.sites, encoded)
        self._n_records += len(block)

    def _compressed_blocks(self, hap_dosage: np.ndarray, haplotypes: np.ndarray | None) -> list[bytes]:
        """Return the compressed probability block of each record."""
        p_RQ = self._codes.units(hap_dosage) / np.float64(self._codes.one)
        if self._calls_only:
            if haplotypes is None:
                haplotypes = np.where(np.isnan(p_RQ), -1, p_RQ >= 0.5)
            p_RQ = np.where(haplotypes < 0, np.nan, haplotypes)
        block_RB = np.empty((len(p_RQ), self._block_bytes), np.uint8)
        _fill_blocks(p_RQ, self._ploidy, self._phased, self._n_bytes, self._block_start, block_RB)
        if self._pool is None:
            return _compress(block_RB)
        parts = np.array_split(block_RB, self._threads)
        return [block for part in self._pool.map(_compress, parts) for block in part]

    def _append(self, chrom: str, sites: Sites, blocks: list[bytes]) -> None:
        """Append records with these compressed blocks to the file and to the index."""
        encoded_chrom = _with_length(chrom)
        n_raw = struct.pack("<I", self._block_bytes)
        records: list[bytes] = []
        index_rows: list[IndexRow] = []
        rows = zip(sites.id, sites.position.tolist(), sites.ref, sites.alt, blocks, strict=True)
        for name, position, ref, alt, block in rows:
            stored_name = _cut(name or ".")
            encoded_name = _with_length(stored_name)
            record = b"".join(
                (
                    encoded_name, encoded_name, encoded_chrom, struct.pack("<IH", position, 2),
                    struct.pack("<I", len(ref)), ref.encode(), struct.pack("<I", len(alt)), alt.encode(),
                    struct.pack("<I", len(block) + len(n_raw)), n_raw, block,
                )
            )  # fmt: skip
            records.append(record)
            index_rows.append((chrom, position, stored_name, ref, alt, self._position, len(record)))
            self._position += len(record)
        with self.convert_errors():
            assert self._file is not None
            assert self._index is not None
            self._file.write(b"".join(records))
            self._index.append(index_rows)

    def write_trailers(self) -> None:
        """Write the number of records into the .bgen, and write the .sample and the end of the index."""
        assert self._file is not None
        assert self._index is not None
        self._file.seek(_N_RECORDS_OFFSET)
        self._file.write(struct.pack("<I", self._n_records))
        self._file.close()
        if self._pool is not None:
            self._pool.shutdown()
        self._index.finish(self.files[0].path, self.path.name)
        rows = [f"0 {name} 0 {_SEX[self._sexes.get(name)]}" for name in self._samples]
        text = "\n".join(["ID_1 ID_2 missing sex", "0 0 0 D", *rows]) + "\n"
        self.files[1].path.write_text(text, encoding="utf-8", newline="\n")

    def drop(self) -> None:
        """Close the .bgen and its index, and stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for file in (self._file, self._index):
            with suppress(OSError):
                if file is not None:
                    file.close()


def _compress(block_RB: np.ndarray) -> list[bytes]:
    """Compress each row of an array of bytes."""
    compress = zlib.compress if block_RB.shape[1] < _SMALL_BLOCK else zlib_compress
    return [bytes(compress(memoryview(block_B), COMPRESSION_LEVEL)) for block_B in block_RB]


def _with_length(text: str) -> bytes:
    """Encode a text as BGEN stores it: 2 bytes of length, then UTF-8."""
    data = _cut(text).encode()
    return struct.pack("<H", len(data)) + data


def _cut(text: str) -> str:
    """Return the start of a text that fits into the length of a text in BGEN. Most texts fit as a whole."""
    return text.encode()[:_MAX_TEXT_BYTES].decode(errors="ignore")
