"""Read a panel of phased reference haplotypes from a panel file (`.spin`).

The file is a `container`. It has

    blocks         the haplotypes of BLOCK_SITES sites each (`haplotype_runs`)
    site table     position, cM, allele_count, ref, alt, id, multiallelic, perhaps structural (`site_table`)
    discordance    a byte for each site (`site_trust`)
    confirmed      a bit for each site (`site_trust`)

The header has the chromosome, the samples and their ploidy, the number of sites, and the provenance.

A file of chromosome X may join several panels (`spin_files`). `build` makes panel files from a VCF.
"""

from __future__ import annotations

import mmap
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.records import RecordRows
from spinimpute.genotypes.sites import Sites
from spinimpute.panels.container import Container
from spinimpute.panels.file_kind import (
    CONTIG_LINE_MISMATCH,
    HAPLOTYPES,
    INDUCING_MAGIC,
    JOINED_MAGIC,
    PANEL_MAGIC,
    FileKind,
    is_chromosome,
    is_count,
    is_line,
    is_provenance,
    panel_repr,
)
from spinimpute.panels.site_table import (
    CONFIRMED,
    DISCORDANCE,
    GENETIC_POSITIONS,
    POSITIONS,
    STRUCTURAL,
    TABLE_SECTIONS,
    check_increasing,
    decode_cM,
    decode_counts,
    decode_increasing,
    decode_sites,
)
from spinimpute.panels.stored_rows import RowLayout, StoredRows, join_rows
from spinimpute.panels.trust.site_trust import DISCORDANCE_UNITS, SiteDoubts, trust
from spinimpute.runtime.errors import argument, call
from spinimpute.vcf.header import is_contig_line

BLOCK_SITES = 4_096  # sites of a block of haplotypes; twice as many save 8 % of the bytes
CACHE_BYTES = 64_000_000  # decoded blocks that are kept in memory
MOVED = "rare alleles moved"  # key of the provenance: number of moved alleles, and estimated errors
MERGED = "merged"  # key of the provenance: checksums of the panels that were merged into this one


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {str}


def _are_ploidies(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[12]+", value) is not None


def _check(container: Container) -> None:
    """Raise InputError unless the numbers and sections of a panel file are consistent."""
    header = container.header
    container.require(is_contig_line(header["contig_line"], header["chrom"]), CONTIG_LINE_MISMATCH)
    container.require(len(header["ploidy"]) == len(header["samples"]), "not every sample has a ploidy")
    n_blocks = -(-header["n_sites"] // BLOCK_SITES)
    container.require(container.n_blocks == n_blocks, "its number of blocks does not fit its sites")


KIND = FileKind(
    name="panel",
    magic=PANEL_MAGIC,
    version=4,
    remedy=lambda: f"Build one with {call('build_panel')}",
    fields={
        "chrom": is_chromosome,
        "contig_line": is_line,
        "samples": _are_texts,
        "ploidy": _are_ploidies,
        "n_sites": is_count,
        "provenance": is_provenance,
    },
    sections=(*TABLE_SECTIONS, DISCORDANCE, CONFIRMED),
    check=_check,
    joined_magic=JOINED_MAGIC,
    joined_remedy=lambda: (
        "it has several regions of chromosome X, which differ in ploidy and which only imputing, phasing, "
        f"tuning and checking read. Build a panel of one region with {argument('region')}"
    ),
    confused_with={
        INDUCING_MAGIC: lambda: (
            "an inducing panel, which has no haplotypes. Give the panel (.spin) that it was made from"
        )
    },
)


class Panel:
    """A panel of haplotypes. Open it with `Panel.open`.

    Sites and haplotypes are read from the file when they are used. Several threads may read a panel.

    Attributes
    ----------
    path : Path
    chrom, contig_line : str
        The chromosome's name and its "##contig" header line in the VCF.
    n_sites, n_samples, n_haplotypes : int
    samples : list of str
        Sample names.
    ploidy : uint8 (n_samples,)
        1 or 2.
    checksum : str
        Hex digits. Panels with equal sites, haplotypes, samples and map have equal checksums.
    provenance : dict
        How the panel was made: source, map, command and so on.
    haplotype_sample : int64 (n_haplotypes,)
        Index of each haplotype's sample.
    merged : list of str
        Checksums of the panels from which this panel was merged; empty if it was built from one VCF.
    made_of : str
        Text about the panels in `merged` for headers and reports, or "".
    """

    holds = HAPLOTYPES
    array_index = None  # usable for any array

    def __init__(self, container: Container) -> None:
        header = container.header
        self.container = container
        self.path = container.path
        self.chrom: str = header["chrom"]
        self.contig_line: str = header["contig_line"]
        self.samples: list[str] = header["samples"]
        self.ploidy = np.frombuffer(header["ploidy"].encode(), dtype=np.uint8) - np.uint8(ord("0"))
        self.n_sites: int = header["n_sites"]
        self.n_samples = len(self.samples)
        self.haplotype_sample = np.repeat(np.arange(self.n_samples), self.ploidy)
        self.n_haplotypes = len(self.haplotype_sample)
        self.checksum = container.checksum
        self.provenance: dict[str, Any] = header["provenance"]
        merged = self.provenance.get(MERGED)
        named = merged if isinstance(merged, list) else []
        self.merged = [name for name in named if isinstance(name, str) and re.fullmatch("[0-9a-f]+", name)]
        self.made_of = f" (merged of {' and '.join(self.merged)})" if self.merged else ""
        self._blocks: OrderedDict[int, StoredRows] = OrderedDict()  # decoded blocks, the last used one last
        self._decoded_bytes = 0  # of these blocks
        self._blocks_lock = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, start: int = 0, size: int | None = None) -> Panel:
        """Open a panel file. The header and all lengths are checked; other contents are checked when used.

        Parameters
        ----------
        path : str or Path
            The file.
        start, size : int
            First byte and length of the panel within a file that joins several. Default: the whole file.

        Returns
        -------
        Panel
            The open panel. Close it after use.

        Raises
        ------
        InputError
            The file is not a panel, joins several panels, is truncated or damaged, or was made by a newer
            version.
        """
        return cls(Container(path, KIND, start, size))

    def close(self) -> None:
        """Close the file. Arrays that were read stay valid."""
        self.container.close()
        self._blocks.clear()
        self._decoded_bytes = 0

    def release_memory(self) -> None:
        """Release the memory of the file's mapped bytes. They are read from the file again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.container.map.madvise(mmap.MADV_DONTNEED)

    def __repr__(self) -> str:
        return panel_repr(self)

    def __enter__(self) -> Panel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing. Raises InputError if it is damaged."""
        position = self._column("position", decode_increasing)
        with self.container.decoding("section position"):
            check_increasing(position, *POSITIONS)
        return position

    @cached_property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (n_sites,), in the map with which the panel was built or tuned.

        Raises InputError if it is damaged.
        """
        cM = self._column("cM", decode_cM)
        with self.container.decoding("section cM"):
            check_increasing(cM, *GENETIC_POSITIONS)
        return cM

    @cached_property
    def allele_count(self) -> np.ndarray:
        """Number of haplotypes with the ALT allele, int64 (n_sites,). Raises InputError if it is damaged."""
        count = self._column("allele_count", decode_counts)
        self.container.require(
            bool(count.max() <= self.n_haplotypes), "it counts more alleles than haplotypes"
        )
        return count

    @cached_property
    def frequency(self) -> np.ndarray:
        """Frequency of the ALT allele among the panel's haplotypes, float64 (n_sites,)."""
        return self.allele_count / self.n_haplotypes

    @cached_property
    def doubts(self) -> SiteDoubts:
        """Evidence against sites. Raises InputError if it is damaged."""
        return SiteDoubts(self._column(DISCORDANCE, _bytes), self._column(CONFIRMED, self._bits))

    @cached_property
    def trust(self) -> np.ndarray:
        """Trust in plain Li and Stephens copying at each site, float32 (n_sites,), see `site_trust`."""
        return trust(self.doubts.discordance / DISCORDANCE_UNITS)

    @cached_property
    def prediction_trust(self) -> np.ndarray:
        """Trust in predictions at each site, float32 (n_sites,), see `site_trust`."""
        return trust(self.doubts.confirmed_discordance / DISCORDANCE_UNITS)

    @cached_property
    def records(self) -> RecordRows:
        """Which sites were split from one multi-allelic record."""
        return RecordRows.of(self.sites, self.multiallelic, self.frequency)

    @property
    def has_structural(self) -> bool:
        """Whether some sites are structural variants."""
        return STRUCTURAL in self.container.sections

    @cached_property
    def multiallelic(self) -> np.ndarray:
        """Sites split from a multi-allelic record, bool (n_sites,). Raises InputError if it is damaged."""
        return self._column("multiallelic", self._bits)

    @cached_property
    def sites(self) -> Sites:
        """The sites with their alleles and IDs. Raises InputError if they are damaged."""
        with self.container.decoding("table of alleles and IDs"):
            return decode_sites(self.chrom, self.position, self.container.section)

    @property
    def haplotypes(self) -> Panel:
        """The panel itself."""
        return self

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Accept all typed sites."""

    def described(self) -> dict[str, object]:
        """Return additional properties to print, of which there are none."""
        return {}

    def verify(self) -> None:
        """Read the whole file. Raises InputError if it is damaged."""
        _ = self.sites, self.cM, self.allele_count, self.multiallelic, self.doubts
        for number in range(self.container.n_blocks):
            self._block(number)

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Return the alleles of the sites [start, stop).

        Parameters
        ----------
        start, stop : int
            Panel sites.

        Returns
        -------
        uint8 (stop - start, n_haplotypes)
            0 for REF, 1 for ALT.

        Raises
        ------
        InputError
            The haplotypes of these sites are damaged.
        ValueError
            The sites do not exist, or the panel is closed.
        """
        return np.unpackbits(self.packed(start, stop), axis=1, count=self.n_haplotypes)

    def packed(self, start: int, stop: int) -> np.ndarray:
        """Return the alleles of the sites [start, stop) as bits in the order of `numpy.packbits`.

        Parameters
        ----------
        start, stop : int
            Panel sites.

        Returns
        -------
        uint8 (stop - start, ceil(n_haplotypes / 8))
            Read-only.

        Raises
        ------
        InputError, ValueError
            As `alleles`.
        """
        packed = self.stored_rows(start, stop).expand(np.arange(stop - start), self.n_haplotypes)
        packed.flags.writeable = False
        return packed

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        """Return the alleles of selected sites, as bits in the order of `numpy.packbits`.

        Parameters
        ----------
        index : int64 (n,)
            Sites, strictly increasing.

        Returns
        -------
        uint8 (n, ceil(n_haplotypes / 8))
            A new array.

        Raises
        ------
        InputError, ValueError
            As `alleles`.
        """
        if len(index) and not (index[0] >= 0 and index[-1] < self.n_sites and (np.diff(index) > 0).all()):
            raise ValueError(f"sites must increase and lie in [0, {self.n_sites})")
        packed = np.empty((len(index), -(-self.n_haplotypes // 8)), dtype=np.uint8)
        block_of = index // BLOCK_SITES
        for number in np.unique(block_of).tolist():
            here = slice(*np.searchsorted(block_of, [number, number + 1]))
            packed[here] = self._block(number).expand(index[here] - number * BLOCK_SITES, self.n_haplotypes)
        return packed

    def stored_rows(self, start: int, stop: int) -> StoredRows:
        """Return the alleles of the sites [start, stop) in the format for kernels.

        Parameters
        ----------
        start, stop : int
            Panel sites.

        Returns
        -------
        StoredRows
            Read-only.

        Raises
        ------
        InputError, ValueError
            As `alleles`.
        """
        if not 0 <= start <= stop <= self.n_sites:
            raise ValueError(f"sites [{start}, {stop}) must lie in [0, {self.n_sites})")
        first, last = start // BLOCK_SITES, max(stop - 1, start) // BLOCK_SITES
        if start == self.n_sites:  # no site, perhaps behind the last block
            first = last = (self.n_sites - 1) // BLOCK_SITES
        parts = []
        for number in range(first, last + 1):
            before = number * BLOCK_SITES
            parts.append(self._block(number).part(max(start - before, 0), min(stop - before, BLOCK_SITES)))
        return join_rows(parts)

    def _block(self, number: int) -> StoredRows:
        """Return the rows of a block, numbered from 0. The blocks that were used last are kept in memory."""
        # numba loads slowly, and commands that only read the site table do not need it
        from spinimpute.panels.haplotype_runs import decode_runs

        with self._blocks_lock:
            if number not in self._blocks:
                first = number * BLOCK_SITES
                layout = RowLayout.of(self.allele_count[first : first + BLOCK_SITES], self.n_haplotypes)
                content = self.container.block(number)
                with self.container.decoding(f"haplotypes of the sites {first + 1} to {first + BLOCK_SITES}"):
                    rows = layout.rows(decode_runs(content, layout))
                self._blocks[number] = rows
                self._decoded_bytes += rows.stored.nbytes
                while len(self._blocks) > 1 and self._decoded_bytes > CACHE_BYTES:
                    self._decoded_bytes -= self._blocks.popitem(last=False)[1].stored.nbytes
            self._blocks.move_to_end(number)
            return self._blocks[number]

    def _column(self, name: str, decode: Callable[[bytes], np.ndarray]) -> np.ndarray:
        """Read a section with a value for each site."""
        content = self.container.section(name)
        with self.container.decoding(f"section {name}"):
            values = decode(content)
            if len(values) != self.n_sites:
                raise ValueError(f"{len(values)} values for {self.n_sites} sites")
        return values

    def _bits(self, content: bytes) -> np.ndarray:
        """Decode one bit for each site, bool. Raises ValueError if the length is wrong."""
        if len(content) != -(-self.n_sites // 8):
            raise ValueError(f"{len(content)} bytes for the bits of {self.n_sites} sites")
        return np.unpackbits(_bytes(content), count=self.n_sites).astype(bool)


def _bytes(content: bytes) -> np.ndarray:
    """Decode one byte for each site."""
    return np.frombuffer(content, dtype=np.uint8)
