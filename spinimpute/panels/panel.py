"""Read a panel of phased reference haplotypes from a panel file (`.spin`).

The file is a `container`, read through a memory map. It has these sections, at multiples of 64 bytes:

    haplotypes     for each site: bits, or a list of the carriers of the minor allele (`stored_rows`)
    site table     seven sections: position, cM, allele_count, ref, alt, id, multiallelic (`site_table`)
    discordance    a byte for each site (`site_trust`)
    confirmed      a bit for each site (`site_trust`)
    block_crc      u32 CRC of each block of 256 sites of the haplotypes, so that a block can be checked alone

The header has the chromosome, the samples and their ploidy, the number of sites, and the provenance. Files of
release 0.1 (version 1) store all haplotypes as bits, and have no sections discordance and confirmed.

A file of chromosome X may join several panels (`spin_files`). `build` makes panel files from a VCF.
"""

from __future__ import annotations

import mmap
import re
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

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
    TABLE_SECTIONS,
    check_increasing,
    decode_texts,
)
from spinimpute.panels.stored_rows import RowLayout, StoredRows
from spinimpute.panels.trust.site_trust import DISCORDANCE_UNITS, SiteDoubts, trust
from spinimpute.runtime.errors import argument, call
from spinimpute.vcf.header import is_contig_line

VERSION_0_1 = 1  # file version of release 0.1
BLOCK_SITES = 256  # sites per block of haplotypes that has its own CRC
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
    n = header["n_sites"]
    n_bytes = {"position": 8 * n, "cM": 8 * n, "allele_count": 4 * n}
    n_bytes |= {"multiallelic": -(-n // 8), "block_crc": 4 * -(-n // BLOCK_SITES)}
    if container.version != VERSION_0_1:
        n_bytes |= {DISCORDANCE: n, CONFIRMED: -(-n // 8)}
    for name, expected in n_bytes.items():
        container.require(name in container.sections, f"it has no section {name!r}")
        container.require(
            container.sections[name].nbytes == expected, f"section {name} has a wrong length for {n} sites"
        )


KIND = FileKind(
    name="panel",
    magic=PANEL_MAGIC,
    version=3,
    older_versions=(VERSION_0_1,),
    remedy=lambda: f"Build one with {call('build_panel')}",
    fields={
        "chrom": is_chromosome,
        "contig_line": is_line,
        "samples": _are_texts,
        "ploidy": _are_ploidies,
        "n_sites": is_count,
        "provenance": is_provenance,
    },
    sections=("haplotypes", *TABLE_SECTIONS, "block_crc"),
    check=_check,
    alignment=64,
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

    Sites and haplotypes are read from the file when they are used.

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
    knows_discordance : bool
        Whether the file has the discordance of sites. Files of release 0.1 do not.
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
        self.knows_discordance = container.version != VERSION_0_1
        merged = self.provenance.get(MERGED)
        named = merged if isinstance(merged, list) else []
        self.merged = [name for name in named if isinstance(name, str) and re.fullmatch("[0-9a-f]+", name)]
        self.made_of = f" (merged of {' and '.join(self.merged)})" if self.merged else ""
        self._block_is_good = np.zeros(-(-self.n_sites // BLOCK_SITES), dtype=bool)

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
        """Close the file. Arrays from `packed` stay valid, and keep the memory map open."""
        self.container.close()

    def release_memory(self) -> None:
        """Release the memory of mapped data. The data are read from the file again when needed."""
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
        position = np.frombuffer(self.container.section("position"), dtype="<i8").astype(np.int64)
        with self.container.decoding("section position"):
            check_increasing(position, *POSITIONS)
        return position

    @cached_property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (n_sites,), in the map with which the panel was built or tuned.

        Raises InputError if it is damaged.
        """
        cM = np.frombuffer(self.container.section("cM"), dtype="<f8").astype(np.float64)
        with self.container.decoding("section cM"):
            check_increasing(cM, *GENETIC_POSITIONS)
        return cM

    @cached_property
    def allele_count(self) -> np.ndarray:
        """Number of haplotypes with the ALT allele, int64 (n_sites,). Raises InputError if it is damaged."""
        count = np.frombuffer(self.container.section("allele_count"), dtype="<u4").astype(np.int64)
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
        """Evidence against sites, which files of release 0.1 do not have. Raises InputError if damaged."""
        if not self.knows_discordance:
            return SiteDoubts.none(self.n_sites)
        discordance = np.frombuffer(self.container.section(DISCORDANCE), dtype=np.uint8)
        packed = np.frombuffer(self.container.section(CONFIRMED), dtype=np.uint8)
        return SiteDoubts(discordance, np.unpackbits(packed, count=self.n_sites).astype(bool))

    @cached_property
    def trust(self) -> np.ndarray:
        """Trust in plain Li and Stephens copying at each site, float32 (n_sites,), see `site_trust`."""
        return trust(self.doubts.discordance / DISCORDANCE_UNITS)

    @cached_property
    def prediction_trust(self) -> np.ndarray:
        """Trust in predictions at each site, float32 (n_sites,), see `site_trust`."""
        return trust(self.doubts.confirmed_discordance / DISCORDANCE_UNITS)

    @cached_property
    def multiallelic(self) -> np.ndarray:
        """Sites split from a multi-allelic record, bool (n_sites,)."""
        packed = np.frombuffer(self.container.section("multiallelic"), dtype=np.uint8)
        return np.unpackbits(packed, count=self.n_sites).astype(bool)

    @cached_property
    def sites(self) -> Sites:
        """The sites with their alleles and IDs. Raises InputError if they are damaged."""
        with self.container.decoding("table of alleles and IDs"):
            texts = decode_texts(self.container.section, self.n_sites)
        return Sites(self.chrom, self.position, *texts)

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
        """Read the whole file. Raises InputError if a checksum does not match."""
        _ = self.sites, self.cM, self.allele_count, self.multiallelic, self.doubts
        step = 16 * BLOCK_SITES
        for start in range(0, self.n_sites, step):
            self.packed(start, min(start + step, self.n_sites))

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
            Read-only. It is a view of the file if all rows are stored as bits.

        Raises
        ------
        InputError, ValueError
            As `alleles`.
        """
        rows = self.stored_rows(start, stop)
        if not rows.listed_X.any():
            bits = rows.stored[rows.start_X1[0] : rows.start_X1[-1]]
            return bits.reshape(stop - start, -(-self.n_haplotypes // 8))
        packed = self._layout.expand(rows.stored, np.arange(start, stop))
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
        self._check_blocks(np.unique(index // BLOCK_SITES))
        return self._layout.expand(self.container.view("haplotypes"), index)

    def stored_rows(self, start: int, stop: int) -> StoredRows:
        """Return the alleles of the sites [start, stop) in the format of the file.

        Parameters
        ----------
        start, stop : int
            Panel sites.

        Returns
        -------
        StoredRows
            A view of the file.

        Raises
        ------
        InputError, ValueError
            As `alleles`.
        """
        if not 0 <= start <= stop <= self.n_sites:
            raise ValueError(f"sites [{start}, {stop}) must lie in [0, {self.n_sites})")
        self._check_blocks(np.arange(start // BLOCK_SITES, -(-stop // BLOCK_SITES)))
        return self._layout.rows(self.container.view("haplotypes"), start, stop)

    def _check_blocks(self, blocks: np.ndarray) -> None:
        """Raise InputError if one of these blocks of sites, int64, is damaged."""
        unchecked = blocks[~self._block_is_good[blocks]].tolist()
        if not unchecked:
            return
        stored = self.container.view("haplotypes")
        crc_table = np.frombuffer(self.container.section("block_crc"), dtype="<u4")
        for block in unchecked:
            first, end = block * BLOCK_SITES, min((block + 1) * BLOCK_SITES, self.n_sites)
            start, stop = self._layout.start_X1[[first, end]]
            self.container.require(
                zlib.crc32(stored[start:stop].data) == crc_table[block],
                f"the haplotypes of the sites {first + 1} to {end} do not match their checksum",
            )
            self._block_is_good[block] = True

    @cached_property
    def _layout(self) -> RowLayout:
        has_lists = self.container.version != VERSION_0_1
        layout = RowLayout.of(self.allele_count, self.n_haplotypes, has_lists)
        self.container.require(
            int(layout.start_X1[-1]) == self.container.sections["haplotypes"].nbytes,
            "the length of its haplotypes does not match its allele counts",
        )
        return layout
