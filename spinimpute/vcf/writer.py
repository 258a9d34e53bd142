"""Writes imputed genotypes to VCF, VCF.gz or BCF, with an index."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.bcf_encoder import BcfEncoder
from spinimpute.vcf.header import FORMAT_LINES, OutputLayout, make_header
from spinimpute.vcf.indexed_file import IndexedFile, choose_output_type
from spinimpute.vcf.record_fields import MOST_DECIMALS, NumberCodes, SampleLayout, info_columns
from spinimpute.vcf.text_encoder import VcfTextEncoder

_ENCODED_BYTES = 4 * 2**20  # encoded at once; bounds the memory


class GenotypeWriter(IndexedFile):
    """Writes blocks of records; a context manager that leaves nothing at `path` after an exception.

    The bytes of the file depend neither on `threads` nor on how the records are cut into blocks.

    `output_type` is "z" (VCF.gz), "b" (BCF), "v" (VCF) or None (by the suffix of the path). Raises InputError
    for an unknown suffix, a path that cannot be written, and unusable names of samples, and ValueError if the
    layout contradicts itself.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: OutputLayout,
        output_type: str | None = None,
        threads: int = 2,
    ) -> None:
        """Check the arguments, open the file and write the header."""
        formats, decimals = layout.formats, layout.decimals
        if not formats or len(set(formats)) < len(formats) or not FORMAT_LINES.keys() >= set(formats):
            raise ValueError(
                f"formats must be distinct names out of {', '.join(FORMAT_LINES)}, got {formats!r}"
            )
        if "GT" in formats[1:]:
            raise ValueError(f"GT must be the first of the formats, got {formats!r}")
        if not 1 <= decimals <= MOST_DECIMALS:
            raise ValueError(f"decimals must be 1 to {MOST_DECIMALS}, got {decimals!r}")
        output_type = choose_output_type(Path(path), output_type)
        self._encodes_bcf = output_type == "b"
        self._header = make_header(layout)
        self._codes = NumberCodes(decimals)
        self._formats = formats
        self.set_ploidy(layout.ploidy)
        self._last_position = 0
        super().__init__(path, output_type, self._encoder.file_start, self._header.contigs, threads)

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """Set the ploidy of the following blocks: the parts of chromosome X differ in it."""
        self._layout = SampleLayout(np.asarray(ploidy), self._formats, self._codes)
        encoder = BcfEncoder if self._encodes_bcf else VcfTextEncoder
        self._encoder: BcfEncoder | VcfTextEncoder = encoder(self._header, self._layout)

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
        """Append r records, which follow those written before.

        `hap_dosage`, float32 (r, n_haplotypes), is P(ALT), clipped to 0 to 1; NaN is missing. `info` maps
        keys to numbers (r,), not written where they are not finite, to bool (r,) for a flag, or to None.
        `haplotypes`, int8 (r, n_haplotypes), are calls 0, 1 or -1 (missing); None calls ALT from 0.5 on.
        `typed`, bool (r,), marks sites of the target, and `unphased`, bool (r, n_samples), calls to write
        with "/". `sites.chrom` is not used.

        Raises InputError if the file cannot be written, for example because the disk is full, and ValueError
        if the contig is unknown, or the records are not sorted.
        """
        hap_dosage = np.asarray(hap_dosage, dtype=np.float32)
        typed = np.asarray(typed, dtype=bool)
        if chrom not in self._header.contigs:
            raise ValueError(
                f"no contig line was given for {chrom}, only for {', '.join(self._header.contigs)}"
            )
        if chrom in self._records and chrom != next(reversed(self._records)):
            raise ValueError(f"the records of {chrom} are not all together")
        previous = self._last_position if chrom in self._records else 0
        if (np.diff(sites.position, prepend=previous) < 0).any():
            raise ValueError(f"the positions on {chrom} go backwards")
        step = max(1, _ENCODED_BYTES // self._encoder.bytes_per_record)
        for start in range(0, len(sites), step):
            records = slice(start, start + step)
            some_sites = sites.take(records)
            values = info_columns(
                self._header,
                {key: None if value is None else value[records] for key, value in info.items()},
                typed[records],
            )
            fields = self._layout.fields(
                hap_dosage[records],
                None if haplotypes is None else haplotypes[records],
                None if unphased is None else unphased[records],
            )
            encoded, lengths = self._encoder.encode(some_sites, chrom, values, fields)
            ref_length = np.array([len(ref) for ref in some_sites.ref])
            self.append(chrom, some_sites.position, ref_length, lengths, b"".join(encoded))
        if len(sites):
            self._last_position = int(sites.position[-1])
