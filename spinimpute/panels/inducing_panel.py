"""The inducing-panel file (`.spip`): what imputes in a panel's place, for one array, without its haplotypes.

The file holds

- the table of imputed sites: position, alleles, ID, genetic position and the panel's ALT count;
- which of these sites the array has;
- for each block of 16 gaps between array sites, at most h soft haplotypes: alleles between 0 and 1 at the
  array's sites in and around the block (32 levels) and at the sites imputed (64 levels), and the number of
  panel haplotypes that each stands for;
- the model that made it and must read it, the panel's numbers of people and haplotypes, its checksum, and
  where it came from. It holds no sample's name.

It is a compression, and no proof of privacy. A soft haplotype that stands for one panel haplotype is that
haplotype, within its block; `mass_below` in the header counts those that stand for few. The ALT counts alone
betray nearly everybody: of files made of random halves of a panel (1,127 people, 1 Mb, 32,781 sites), an
attacker who has a person's haplotypes told members from others with an AUC of .995 by the counts and .997 by
the file (h = 64). Without sites of fewer than 5 copies the AUC is .546 by the counts, and by the file .782
with h = 16, .942 with 64 and .985 with 256; of 150 people even h = 8 gives .983. See benchmarks/inducing.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.sites import Sites
from spinimpute.panels.panel_blocks import BlockPlan, BlockSites, EncodedBlock
from spinimpute.panels.section_file import FileKind, SectionFile
from spinimpute.panels.site_table import SiteTable, read_increasing, read_site_table

SUFFIX = ".spip"
KIND = FileKind(
    magic=b"\x89SPININDUCE\r\n\x1a\n\0",  # as PNG's: a transfer in text mode breaks it
    version=1,
    name="inducing panel",
    remedy="make one with 'spinimpute panel build --inducing H --array FILE'",
)


class InducingPanel:
    """An inducing-panel file, opened by `InducingPanel.open`; a `ReferencePanel`.

    path: Path. chrom, contig_line: as in the panel. n_sites, n_samples, n_haplotypes: the panel's numbers.
    kind, fingerprint: of the model. shape: of its blocks. inducing_points: h, at most. mass_below: of the
    soft haplotypes of all blocks, the share that stands for less than so many panel haplotypes. checksum:
    of this file's content; panel_checksum: of the panel that it was made of. provenance: where both come
    from. Blocks are read when they are asked for; sites and blocks are checked when they are read.
    """

    holds = "inducing points"
    haplotypes = None
    samples: tuple[str, ...] = ()  # no name is kept

    def __init__(self, file: SectionFile) -> None:
        self.path, self._file = file.path, file
        header = file.header
        self.chrom: str = header["chrom"]
        self.contig_line: str = header["contig_line"]
        self.n_sites: int = header["n_sites"]
        self.n_samples: int = header["n_samples"]
        self.n_haplotypes: int = header["n_haplotypes"]
        self.kind: str = header["kind"]
        self.fingerprint: str = header["fingerprint"]
        self.shape = BlockShape(**header["shape"])
        self.inducing_points: int = header["inducing_points"]
        self.n_points: int = header["n_points"]
        self.mass_below: dict[str, float] = header["mass_below"]
        self.checksum: str = header["checksum"]
        self.panel_checksum: str = header["panel_checksum"]
        self.provenance: dict[str, Any] = header["provenance"]

    @classmethod
    def open(cls, path: str | Path) -> InducingPanel:
        """Raises InputError if the file is no inducing panel, truncated, damaged, or of a newer version."""
        return cls(SectionFile(path, KIND))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> InducingPanel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def sites(self) -> Sites:
        """All imputed sites."""
        return self._table.sites

    @property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing."""
        return self._table.sites.position

    @property
    def cM(self) -> np.ndarray:
        """float64 (n_sites,): genetic position."""
        return self._table.cM

    @property
    def allele_count(self) -> np.ndarray:
        """int64 (n_sites,): how many of the panel's haplotypes carry the ALT allele."""
        return self._table.allele_count

    @property
    def frequency(self) -> np.ndarray:
        """float64 (n_sites,): the ALT allele's frequency among the panel's haplotypes."""
        return self.allele_count / self.n_haplotypes

    @cached_property
    def multiallelic(self) -> np.ndarray:
        """bool (n_sites,): True for sites split from a multi-allelic record."""
        packed = np.frombuffer(self._file.section("multiallelic"), dtype=np.uint8)
        return np.unpackbits(packed, count=self.n_sites).astype(bool)

    @cached_property
    def array_index(self) -> np.ndarray:
        """int64 (T,), increasing: which of the sites the array has."""
        return read_increasing(self._file.section("array"))

    @property
    def made_of(self) -> str:
        """As of `ReferencePanel`."""
        return f" (at most {self.inducing_points} inducing points of the panel {self.panel_checksum})"

    def described(self) -> dict[str, object]:
        """As of `ReferencePanel`."""
        limits = sorted(self.mass_below, key=int)
        return {
            "inducing points": f"at most {self.inducing_points} a block, {self.n_points} in all",
            "they stand for haplotypes": ", ".join(
                f"fewer than {k}: {self.mass_below[k]:.1%}" for k in limits
            ),
            "array": f"{len(self.array_index)} of these sites",
            "blocks": self.n_blocks,
            "model": f"{self.kind} {self.fingerprint}",
            "panel's checksum": self.panel_checksum,
        }

    def verify(self) -> None:
        """As of `ReferencePanel`."""
        _ = self.multiallelic
        for block in range(self.n_blocks):
            self.read(block)

    @property
    def n_blocks(self) -> int:
        return self._file.n_parts

    def blocks(self, start: int, stop: int) -> range:
        """The blocks that impute some of the sites [start, stop)."""
        return self._plan.blocks(start, stop)

    def seen_by(self, start: int, stop: int) -> np.ndarray:
        """int64, increasing: the array's sites that the blocks of the sites [start, stop) see; some are."""
        blocks, n_array = self.blocks(start, stop), len(self.array_index)
        first, _ = self.shape.visible(blocks[0], 0, n_array)
        _, last = self.shape.visible(blocks[-1], 0, n_array)
        return self.array_index[first:last]

    def read(self, block: int, start: int = 0, stop: int | None = None) -> EncodedBlock:
        """A block, at its sites in [start, stop). Raises InputError if the file is damaged there."""
        places, frequency_S = self._plan.places(block, 0, len(self.array_index))
        sites = self._plan.sites(block, places, 0, self.n_sites)
        first, last = np.searchsorted(
            sites.panel_index_U, [start, self.n_sites if stop is None else stop]
        ).tolist()
        part = slice(first, last)
        from spinimpute.panels.soft_alleles import unpack_points  # loads torch

        points = unpack_points(self._file.part(block), places, sites, self.array_index, part)
        return EncodedBlock(places, frequency_S, _take(sites, part), self.n_haplotypes, points)

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Raises InputError if none of the typed sites, int64 (T,), is in the array."""
        if not np.isin(typed_index, self.array_index).any():
            raise InputError(
                f"none of the {len(typed_index)} typed sites is among the {len(self.array_index)} sites of "
                f"the array that {self.path} was made for: make it again for this array with "
                "'spinimpute panel build'"
            )

    def check_model(self, kind: str, fingerprint: str) -> None:
        """Raises InputError unless this is the model that made the blocks."""
        if (kind, fingerprint) != (self.kind, self.fingerprint):
            raise InputError(
                f"the inducing points of {self.path} were made by the model {self.kind} {self.fingerprint}, "
                f"not by {kind} {fingerprint}: give that model with --model, or make the file again"
            )

    @cached_property
    def _table(self) -> SiteTable:
        return read_site_table(self.chrom, self._file.section)

    @cached_property
    def _plan(self) -> BlockPlan:
        return BlockPlan(self.shape, self.array_index, self.cM, self.frequency)


def _take(sites: BlockSites, part: slice) -> BlockSites:
    return BlockSites(
        sites.panel_index_U[part],
        sites.gap_U[part],
        sites.frequency_U[part],
        sites.fraction_U[part],
        sites.distance_U[part],
        sites.cM_U[part],
    )
