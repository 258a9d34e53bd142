"""Read inducing-panel files (`.spip`), which replace the panel when targets of one array are imputed.

In each block of gaps between array sites, the file has inducing points in place of the panel's haplotypes. An
inducing point is the average of similar haplotypes. The file is a `container` with compressed contents:

- sections with the table of imputed sites (`site_table`): position, alleles, ID, genetic position, ALT count;
- section multiallelic: which of these sites were split from multi-allelic records;
- section array: which of these sites the array has;
- section discordance: a byte for each site (`site_trust`), if the panel had it;
- a container block per block of gaps (`soft_alleles`). It has at most h inducing points. Each has the shares
  of K-mers of the array's sites in and around the block, alleles between 0 and 1 (64 levels) at the imputed
  sites, and its mass, the number of panel haplotypes that it stands for;
- then another container block per block of gaps with the `PointStates`: which points of the block before and
  of this block stand for the same haplotypes;
- the header: the model that made the file and is needed to use it, the panel's number of samples and
  haplotypes, checksum and provenance. The file has no sample names.

The file is a compression, not a guarantee of privacy. An inducing point of a single panel haplotype equals
that haplotype within its block, and links connect such points along the chromosome; `mass_below` in the
header counts points of few haplotypes. The ALT counts alone reveal nearly every sample: an attacker who knows
a sample's haplotypes can tell whether the sample was in the panel. We measured this with files made from
random halves of a panel (1,127 samples, 1 Mb, 32,781 sites). The AUC of the attack is .993 from the counts
alone, and .994 from the whole file (h = 64). Without sites of fewer than 5 copies, it is .545 from the
counts, and from the whole file .843 (h = 16), .943 (h = 64), .987 (h = 256) and .998 (h = 1,024); without
links .826, .920, .976 and .989. See benchmarks/inducing.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import RecordRows
from spinimpute.genotypes.sites import Sites
from spinimpute.panels.container import Container
from spinimpute.panels.file_kind import (
    CONTIG_LINE_MISMATCH,
    INDUCING_MAGIC,
    INDUCING_POINTS,
    JOINED_MAGIC,
    PANEL_MAGIC,
    FileKind,
    is_chromosome,
    is_count,
    is_line,
    is_provenance,
    panel_repr,
)
from spinimpute.panels.panel_blocks import BlockPlan, BlockSites, EncodedBlock
from spinimpute.panels.site_table import (
    DISCORDANCE,
    STRUCTURAL,
    TABLE_SECTIONS,
    SiteTable,
    decode_increasing,
    read_site_table,
)
from spinimpute.panels.soft_alleles import PointStates, unpack_points, unpack_states
from spinimpute.panels.trust.site_trust import DISCORDANCE_UNITS, trust
from spinimpute.runtime.errors import InputError, argument, call
from spinimpute.vcf.header import is_contig_line

MAX_SCALE = 1e9  # jumps per cM
_SITES_MISMATCH = "the {} does not match the sites and haplotypes in the header"


def _is_shape(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"core", "flank"}:
        return False
    try:
        BlockShape(**value)
    except ValueError:
        return False
    return True


def _are_shares(value: object) -> bool:
    """Return whether a value is a valid `mass_below`: a share for each limit. The limit "2" is required."""
    return (
        isinstance(value, dict)
        and "2" in value
        and all(key.isdecimal() and len(key) < 10 for key in value)
        and all(type(share) in (int, float) and 0 <= share <= 1 for share in value.values())
    )


def _is_scale(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < MAX_SCALE  # type: ignore[operator]


def _check(container: Container) -> None:
    header = container.header
    container.require(is_contig_line(header["contig_line"], header["chrom"]), CONTIG_LINE_MISMATCH)


def _remedy() -> str:
    return f"Make one with {call('build_inducing_panel')}"


def _has_haplotypes() -> str:
    return f"a panel of haplotypes, not a spinimpute inducing panel (.spip). {_remedy()}"


KIND = FileKind(
    name="inducing panel",
    magic=INDUCING_MAGIC,
    version=5,
    remedy=_remedy,
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
        "jumps_per_cM": _is_scale,
        "panel_checksum": is_line,
        "provenance": is_provenance,
    },
    sections=(*TABLE_SECTIONS, DISCORDANCE, "array"),
    check=_check,
    checksum_seed=INDUCING_MAGIC,
    confused_with=dict.fromkeys((PANEL_MAGIC, JOINED_MAGIC), _has_haplotypes),
)


class InducingPanel:
    """An inducing panel. Open it with `InducingPanel.open`.

    Sites and blocks are read from the file and checked when they are used.

    Attributes
    ----------
    path : Path
    chrom, contig_line : str
        The chromosome's name and its "##contig" header line in the VCF of the panel.
    n_sites, n_samples, n_haplotypes : int
        Size of the panel from which the file was made.
    kind, fingerprint : str
        Predictor and fingerprint of the model that made the file.
    shape : BlockShape
        Numbers of gaps of a block, and of further typed sites visible on each side.
    inducing_points : int
        h, the maximum number of inducing points of a block.
    n_points : int
        Number of inducing points in all blocks together.
    mass_below : dict of str to float
        Share of all inducing points that stand for fewer panel haplotypes than the key, such as "2".
    checksum : str
        Checksum of this file's content.
    jumps_per_cM : float
        Recombination scale of the panel at the array's sites, see `hmm.recombination_scale`.
    panel_checksum : str
        Checksum of the panel from which the file was made.
    provenance : dict
        How the panel and this file were made.
    made_of : str
        Text about the panel from which the file was made, for headers and reports.
    """

    holds = INDUCING_POINTS
    haplotypes = None
    samples: tuple[str, ...] = ()  # the file has no sample names

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
        self.jumps_per_cM: float = header["jumps_per_cM"]
        self.checksum = container.checksum
        self.panel_checksum: str = header["panel_checksum"]
        self.provenance: dict[str, Any] = header["provenance"]
        self.made_of = f" (at most {self.inducing_points} inducing points of the panel {self.panel_checksum})"

    @classmethod
    def open(cls, path: str | Path) -> InducingPanel:
        """Open an inducing-panel file. The header and all lengths are checked; the rest is checked when used.

        Raises
        ------
        InputError
            The file is not an inducing panel, is truncated or damaged, or was made by another version.
        """
        return cls(Container(path, KIND))

    def close(self) -> None:
        """Close the file."""
        self.container.close()

    def __repr__(self) -> str:
        return panel_repr(self)

    def __enter__(self) -> InducingPanel:
        return self

    def __exit__(self, *_: object) -> None:
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
        """Genetic positions, float64 (n_sites,). Raises InputError if they are damaged."""
        return self._table.cM

    @property
    def allele_count(self) -> np.ndarray:
        """Number of panel haplotypes with the ALT allele, int64 (n_sites,). Raises InputError if damaged."""
        return self._table.allele_count

    @property
    def frequency(self) -> np.ndarray:
        """Frequency of the ALT allele among the panel's haplotypes, float64 (n_sites,)."""
        return self.allele_count / self.n_haplotypes

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
        """Sites split from a multi-allelic record, bool (n_sites,)."""
        packed = np.frombuffer(self.container.section("multiallelic"), dtype=np.uint8)
        self.container.require(len(packed) == -(-self.n_sites // 8), _SITES_MISMATCH.format("multiallelic"))
        return np.unpackbits(packed, count=self.n_sites).astype(bool)

    @cached_property
    def prediction_trust(self) -> np.ndarray:
        """Trust in each site's predictions, float32 (n_sites,), see `site_trust`.

        Raises InputError if they are damaged.
        """
        stored = np.frombuffer(self.container.section(DISCORDANCE), dtype=np.uint8)
        self.container.require(len(stored) == self.n_sites, _SITES_MISMATCH.format(DISCORDANCE))
        return trust(stored / DISCORDANCE_UNITS)

    @cached_property
    def array_index(self) -> np.ndarray:
        """Sites of the panel that the array has, int64 (T,), increasing. Raises InputError if damaged."""
        with self.container.decoding("array"):
            index = decode_increasing(self.container.section("array"))
        inside = len(index) > 0 and index.min() >= 0 and index.max() < self.n_sites
        fits = inside and (np.diff(index) > 0).all()
        self.container.require(bool(fits), _SITES_MISMATCH.format("array"))
        return index

    def described(self) -> dict[str, object]:
        """Return additional properties to print, by name."""
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
        """Read the whole file. Raises InputError if a checksum does not match."""
        _ = self.multiallelic, self.prediction_trust
        for block in self.blocks(0, self.n_sites):
            self.check_states(block, self.read(block), len(self.read_states(block).mass_H))

    @property
    def n_blocks(self) -> int:
        """Number of blocks, which together cover all sites."""
        return self.container.n_blocks // 2

    def blocks(self, start: int, stop: int) -> range:
        """Return the blocks that impute the sites [start, stop).

        Raises InputError if the file has another number of blocks than its array needs.
        """
        return self._plan.blocks(start, stop)

    def imputed_sites(self, blocks: range) -> Interval:
        """Return the sites that neighbouring blocks impute."""
        first, _ = self._plan.span(blocks[0], 0, self.n_sites)
        _, stop = self._plan.span(blocks[-1], 0, self.n_sites)
        return Interval(first, stop)

    def read(self, block: int, start: int = 0, stop: int | None = None) -> EncodedBlock:
        """Read the inducing points of a block, with soft alleles at the sites in [start, stop).

        Raises InputError if the block is damaged.
        """
        places, frequency_S = self._plan.places(block, 0, len(self.array_index))
        sites = self._plan.sites(block, 0, self.n_sites)
        first, last = np.searchsorted(
            sites.panel_index_U, [start, self.n_sites if stop is None else stop]
        ).tolist()
        chosen = slice(first, last)
        content = self.container.block(block)
        with self.container.decoding(f"block {block + 1} of {self.n_blocks}"):
            k, points = unpack_points(content, places, sites, chosen, self.inducing_points)
        part = BlockSites(*(getattr(sites, field.name)[chosen] for field in fields(BlockSites)))
        return EncodedBlock(places, frequency_S, part, self.n_haplotypes, k, points)

    def read_states(self, block: int) -> PointStates:
        """Read the states of a block. Raises InputError if they are damaged."""
        content = self.container.block(self.n_blocks + block)
        with self.container.decoding(f"states of block {block + 1} of {self.n_blocks}"):
            return unpack_states(content, len(self.own_typed(block)), self.inducing_points)

    def check_states(self, block: int, points: EncodedBlock, n_states: int) -> None:
        """Raise InputError if a block has another number of points than of states."""
        fits = len(points.points["mass_BH"]) == n_states
        self.container.require(fits, f"block {block + 1} has other points than its states")

    def own_typed(self, block: int) -> range:
        """Return the array sites, as indices into `array_index`, that end the gaps of a block."""
        core = self.shape.core
        return range(block * core, min((block + 1) * core, len(self.array_index)))

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Raise InputError if none of the typed sites, int64 (T,), is on the panel's array."""
        if not np.isin(typed_index, self.array_index).any():
            raise InputError(
                "mismatch",
                f"{self.path}: none of the {len(typed_index)} typed sites is among the "
                f"{len(self.array_index)} sites of its array. Make a file for the target's array "
                f"with {call('build_inducing_panel')}",
            )

    def check_model(self, kind: str, fingerprint: str) -> None:
        """Raise InputError if the file was made by another model."""
        if (kind, fingerprint) != (self.kind, self.fingerprint):
            raise InputError(
                "mismatch",
                f"{self.path}: its inducing points were made by the model {self.kind} {self.fingerprint}, "
                f"not by {kind} {fingerprint}. Give that model with {argument('model')}, or make the file "
                "again",
            )

    @cached_property
    def _table(self) -> SiteTable:
        with self.container.decoding("table of sites"):
            table = read_site_table(self.chrom, self.container.section)
        fits = len(table.sites) == self.n_sites and table.allele_count.max() <= self.n_haplotypes
        self.container.require(bool(fits), _SITES_MISMATCH.format("table"))
        return table

    @cached_property
    def _plan(self) -> BlockPlan:
        plan = BlockPlan(self.shape, self.array_index, self.cM, self.frequency)
        fits = 2 * len(plan.blocks(0, self.n_sites)) == self.container.n_blocks
        self.container.require(fits, "its blocks do not match its array")
        return plan
