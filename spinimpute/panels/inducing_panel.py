"""The inducing-panel file (`.spip`): what imputes in a panel's place, for one array, without its haplotypes.

The file is a `container` of compressed sections, with

- the table of imputed sites (`site_table`): position, alleles, ID, genetic position, the panel's ALT count;
- multiallelic: which of these sites were split from multi-allelic records, and array: which the array has;
- discordance: a byte for each site (`discordance`), unless the panel does not know it;
- a part for each block of gaps between array sites (`soft_alleles`): at most h inducing points,
  averages of panel haplotypes: shares of K-mers of the array's sites in and around the block, alleles between
  0 and 1 at the sites imputed (64 levels), and the number of panel haplotypes that each stands for;
- in the header the model that made it and must read it, the panel's numbers of samples and haplotypes, its
  checksum, and where it came from. It holds no sample's name.

It is a compression, and no proof of privacy. An inducing point that stands for one panel haplotype is that
haplotype, within its block; `mass_below` in the header counts those that stand for few. The ALT counts alone
reveal nearly every sample. Of files made of random halves of a panel (1,127 samples, 1 Mb, 32,781 sites),
an attacker who has the haplotypes of a sample distinguished members from others with an AUC of .993 by the
counts and .994 by the file (h = 64). Without sites of fewer than 5 copies the AUC is .545 by the counts, and
by the file .827 with h = 16, .921 with 64 and .976 with 256. See benchmarks/inducing.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.sites import Sites
from spinimpute.panels.container import Container
from spinimpute.panels.file_kind import (
    INDUCING_MAGIC,
    INDUCING_POINTS,
    PANEL_MAGIC,
    PARTS_MAGIC,
    FileKind,
    in_one_line,
    is_chromosome,
    is_count,
    is_line,
    is_provenance,
    require_contig_line,
)
from spinimpute.panels.panel_blocks import BlockPlan, BlockSites, EncodedBlock
from spinimpute.panels.site_table import (
    DISCORDANCE,
    TABLE_SECTIONS,
    SiteTable,
    read_increasing,
    read_site_table,
)
from spinimpute.panels.stored_rows import packed_bytes
from spinimpute.panels.trust.site_trust import UNITS, trust
from spinimpute.runtime.errors import InputError, argument, call

_OTHER_SITES = "the {} is not of the sites and haplotypes that the header states"


def _is_shape(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"core", "flank"}:
        return False
    try:
        BlockShape(**value)
    except ValueError:
        return False
    return True


def _are_shares(value: object) -> bool:
    """Of inducing points, by the number of panel haplotypes; that below 2 is always there."""
    return (
        isinstance(value, dict)
        and "2" in value
        and all(key.isdecimal() and len(key) < 10 for key in value)
        and all(type(share) in (int, float) and 0 <= share <= 1 for share in value.values())
    )


_REMEDY = f"make one with {call('build_inducing_panel')}"
_HAPLOTYPES_INSTEAD = f"a panel of haplotypes, not a spinimpute inducing panel (.spip): {_REMEDY}"
KIND = FileKind(
    name="inducing panel",
    magic=INDUCING_MAGIC,
    version=4,
    first_version=3,  # before, other models made other points
    remedy=_REMEDY,
    fields={
        "chrom": is_chromosome,
        "contig_line": is_line,
        "n_sites": is_count,
        "n_samples": is_count,
        "n_haplotypes": is_count,
        "kind": is_line,
        "fingerprint": is_line,
        "shape": _is_shape,
        "inducing_points": is_count,
        "n_points": is_count,
        "mass_below": _are_shares,
        "panel_checksum": is_line,
        "provenance": is_provenance,
    },
    sections=(*TABLE_SECTIONS, "array"),
    check=require_contig_line,
    compressed=True,
    has_parts=True,
    checksum_seed=INDUCING_MAGIC,
    mistaken={PANEL_MAGIC: _HAPLOTYPES_INSTEAD, PARTS_MAGIC: _HAPLOTYPES_INSTEAD},
)


class InducingPanel:
    """An inducing panel, opened by `InducingPanel.open`; a `ReferencePanel`.

    Sites and blocks are read, and checked, when they are asked for.

    Attributes
    ----------
    path : Path
    chrom, contig_line : str
        As in the panel.
    n_sites, n_samples, n_haplotypes : int
        Of the panel.
    kind, fingerprint : str
        Of the model.
    shape : BlockShape
        Of its blocks.
    inducing_points : int
        h, at most.
    n_points : int
        Inducing points of all blocks.
    mass_below : dict of str to float
        Of the inducing points of all blocks, the share that stands for less than so many panel haplotypes.
    checksum : str
        Of this file's content.
    panel_checksum : str
        Of the panel that it was made of.
    provenance : dict
        Where both come from.
    """

    holds = INDUCING_POINTS
    haplotypes = None
    samples: tuple[str, ...] = ()  # no name is kept

    def __init__(self, container: Container) -> None:
        header = container.header
        self.container = container
        self.path = container.path
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
        self.checksum = container.checksum
        self.panel_checksum: str = header["panel_checksum"]
        self.provenance: dict[str, Any] = header["provenance"]

    @classmethod
    def open(cls, path: str | Path) -> InducingPanel:
        """Open an inducing-panel file. Header and lengths are checked now, the rest when it is used.

        Raises
        ------
        InputError
            The file is no inducing panel, truncated, damaged, or made by an earlier or a newer version.
        """
        return cls(Container(path, KIND))

    def close(self) -> None:
        """Release the file."""
        self.container.close()

    def __repr__(self) -> str:
        return in_one_line(self)

    def __enter__(self) -> InducingPanel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def sites(self) -> Sites:
        """All imputed sites. Raises InputError if they are damaged."""
        return self._table.sites

    @property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing. Raises InputError if it is damaged."""
        return self._table.sites.position

    @property
    def cM(self) -> np.ndarray:
        """float64 (n_sites,): genetic position. Raises InputError if it is damaged."""
        return self._table.cM

    @property
    def allele_count(self) -> np.ndarray:
        """int64 (n_sites,): how many of the panel's haplotypes carry the ALT allele.

        Raises InputError if it is damaged.
        """
        return self._table.allele_count

    @property
    def frequency(self) -> np.ndarray:
        """float64 (n_sites,): the ALT allele's frequency among the panel's haplotypes."""
        return self.allele_count / self.n_haplotypes

    @cached_property
    def multiallelic(self) -> np.ndarray:
        """bool (n_sites,): True for sites split from a multi-allelic record."""
        packed = np.frombuffer(self.container.section("multiallelic"), dtype=np.uint8)
        self.container.require(len(packed) == packed_bytes(self.n_sites), _OTHER_SITES.format("multiallelic"))
        return np.unpackbits(packed, count=self.n_sites).astype(bool)

    @property
    def knows_discordance(self) -> bool:
        """As of `ReferencePanel`."""
        return DISCORDANCE in self.container.sections

    @cached_property
    def prediction_trust(self) -> np.ndarray:
        """As of `ReferencePanel`; 1 where it is not known. Raises InputError if it is damaged."""
        if not self.knows_discordance:
            return np.ones(self.n_sites, np.float32)
        stored = np.frombuffer(self.container.section(DISCORDANCE), dtype=np.uint8)
        self.container.require(len(stored) == self.n_sites, _OTHER_SITES.format(DISCORDANCE))
        return trust(stored / UNITS)

    @cached_property
    def array_index(self) -> np.ndarray:
        """int64 (T,), increasing: which of the sites the array has. Raises InputError if it is damaged."""
        with self.container.decoding("array"):
            index = read_increasing(self.container.section("array"))
        inside = len(index) > 0 and index.min() >= 0 and index.max() < self.n_sites
        fits = inside and (np.diff(index) > 0).all()
        self.container.require(bool(fits), _OTHER_SITES.format("array"))
        return index

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
        _ = self.multiallelic, self.prediction_trust
        for block in range(self.n_blocks):
            self.read(block)

    @property
    def n_blocks(self) -> int:
        """The number of blocks, which cover all sites."""
        return self.container.n_parts

    def blocks(self, start: int, stop: int) -> range:
        """The blocks that impute some of the sites [start, stop).

        Parameters
        ----------
        start, stop : int
            Panel sites.

        Returns
        -------
        range
            Numbers of the blocks.

        Raises
        ------
        InputError
            The file has others.
        """
        return self._plan.blocks(start, stop)

    def seen_by(self, start: int, stop: int) -> np.ndarray:
        """The array's sites that the blocks of some sites see.

        Parameters
        ----------
        start, stop : int
            The sites [start, stop); there are some.

        Returns
        -------
        int64
            Increasing panel sites.
        """
        blocks, n_array = self.blocks(start, stop), len(self.array_index)
        first, _ = self.shape.visible(blocks[0], 0, n_array)
        _, last = self.shape.visible(blocks[-1], 0, n_array)
        return self.array_index[first:last]

    def read(self, block: int, start: int = 0, stop: int | None = None) -> EncodedBlock:
        """Read a block.

        Parameters
        ----------
        block : int
            Its number.
        start, stop : int
            At its sites in [start, stop) only; by default at all.

        Returns
        -------
        EncodedBlock
            Its inducing points, without the panel.

        Raises
        ------
        InputError
            The file is damaged there.
        """
        places, frequency_S = self._plan.places(block, 0, len(self.array_index))
        sites = self._plan.sites(block, places, 0, self.n_sites)
        first, last = np.searchsorted(
            sites.panel_index_U, [start, self.n_sites if stop is None else stop]
        ).tolist()
        part = slice(first, last)
        from spinimpute.panels.soft_alleles import unpack_points  # loads torch

        content = self.container.part(block)
        with self.container.decoding(f"part {block + 1} of {self.n_blocks}"):
            k, points = unpack_points(content, places, sites, part, self.inducing_points)
        return EncodedBlock(places, frequency_S, _take(sites, part), self.n_haplotypes, k, points)

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Check that the array has some of the typed sites.

        Parameters
        ----------
        typed_index : int64 (T,)
            Panel sites.

        Raises
        ------
        InputError
            It has none of them.
        """
        if not np.isin(typed_index, self.array_index).any():
            raise InputError(
                "mismatch",
                f"none of the {len(typed_index)} typed sites is among the {len(self.array_index)} sites of "
                f"the array that {self.path} was made for: make it again for this array with "
                "'spinimpute panel build'",
            )

    def check_model(self, kind: str, fingerprint: str) -> None:
        """Check that a model is the one that made the blocks.

        Parameters
        ----------
        kind, fingerprint : str
            Of the model.

        Raises
        ------
        InputError
            It is another one.
        """
        if (kind, fingerprint) != (self.kind, self.fingerprint):
            raise InputError(
                "arguments",
                f"the inducing points of {self.path} were made by the model {self.kind} {self.fingerprint}, "
                f"not by {kind} {fingerprint}: give that model with {argument('model')}, or "
                f"make the file again",
            )

    @cached_property
    def _table(self) -> SiteTable:
        with self.container.decoding("table of sites"):
            table = read_site_table(self.chrom, self.container.section)
        fits = len(table.sites) == self.n_sites and table.allele_count.max() <= self.n_haplotypes
        self.container.require(bool(fits), _OTHER_SITES.format("table"))
        return table

    @cached_property
    def _plan(self) -> BlockPlan:
        plan = BlockPlan(self.shape, self.array_index, self.cM, self.frequency)
        fits = plan.blocks(0, self.n_sites) == range(self.n_blocks)
        self.container.require(fits, "it does not have the blocks that follow from its array")
        return plan


def _take(sites: BlockSites, part: slice) -> BlockSites:
    return BlockSites(
        sites.panel_index_U[part],
        sites.gap_U[part],
        sites.frequency_U[part],
        sites.fraction_U[part],
        sites.distance_U[part],
        sites.place_U[part],
    )
