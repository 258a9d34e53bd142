"""Add labels that are known per person to a panel file: `panel labels`.

A locus becomes a multi-allelic record with the REF "N" and one ALT per label, such as <HLA-A*01:01>
(`genotypes.sites.label_parts`). A haplotype whose label is unknown has REF.
"""

from __future__ import annotations

import os
from bisect import bisect
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.genotypes.sites import Sites, label_alt, label_parts
from spinimpute.panels.file_kind import check_panel_output
from spinimpute.panels.panel import BLOCK_SITES, Panel
from spinimpute.panels.site_table import SiteTable, encode_site_table
from spinimpute.panels.stored_rows import store_rows
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.panels.writer import PanelWriter, package_version
from spinimpute.pipeline.labels.assign import CERTAIN, Assignment, assign_labels
from spinimpute.pipeline.labels.copying_weights import comparable_sites, copying_weights
from spinimpute.pipeline.labels.types_table import Locus, TypesTable, plain_locus, read_types
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import atomic_write
from spinimpute.runtime.partial_files import temporary_folder_in
from spinimpute.runtime.progress import Progress, split_progress

LABELS = "labels"  # key of the provenance
UNKNOWN_LABEL = "N"  # REF of a label's record
MIN_COMPARED = 10  # sites near a locus that are needed to compare haplotypes


class LocusSummary(NamedTuple):
    """How the labels of a locus were assigned."""

    locus: str
    position: int
    alleles: int
    samples: int  # with at least one known label
    certain: float  # share of the haplotypes of these samples with a certain label
    without_label: int  # haplotypes whose label stays unknown


class LabelSummary(NamedTuple):
    """The result of `add_labels`."""

    loci: list[LocusSummary]
    unknown_samples: list[str]  # samples of the table that are not in the panel


def add_labels(
    path: str | Path,
    types: str | Path,
    out: str | Path,
    *,
    threads: int | None = None,
    force: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> LabelSummary:
    """Copy a panel file, with labels that are known per person added, such as HLA types.

    Parameters
    ----------
    path : str or Path
        The panel file.
    types : str or Path
        Table of labels, see `types_table.read_types`.
    out : str or Path
        The new panel file.
    threads : int or None
        Number of threads. Default: all processors. Results do not depend on it.
    force : bool
        Overwrite `out` if it exists.
    command : str
        Recorded in the panel's provenance.
    progress : callable or None
        Called with the completed fraction of the run.

    Returns
    -------
    LabelSummary
        Numbers of alleles, and of haplotypes with a certain label.

    Raises
    ------
    InputError
        A file cannot be read, the table contradicts itself, a locus is outside of the panel or has labels
        already, or `out` exists and `force` is not set.
    """
    out = check_panel_output(out, force, [path, types])
    threads = choose_threads(threads)
    with Panel.open(path) as panel:
        table = read_types(types, panel.samples, panel.ploidy)
        _check_loci(panel, types, table)
        with atomic_write(out) as temporary:
            sibling_N = sibling_haplotypes(panel.haplotype_sample)
            first_N = np.flatnonzero(sibling_N >= np.arange(panel.n_haplotypes))
            haplotype_X2 = np.stack([first_N, sibling_N[first_N]], axis=1)
            labels, loci = [], []
            shares = split_progress(progress, [1.0] * len(table.loci), [one.name for one in table.loci])
            with temporary_folder_in(out.parent, f".{out.name}.") as folder:
                for locus, share in zip(table.loci, shares, strict=True):
                    weights = copying_weights(panel, locus.position, folder, threads, share)
                    assigned = assign_labels(locus, weights, haplotype_X2)
                    labels.append(assigned.label_N)
                    loci.append(_summary(locus, assigned, panel.haplotype_sample))
            made = {
                "table": Path(types).name,
                "loci": [one._asdict() for one in loci],
                "spinimpute": package_version(),
                "command": command,
            }
            provenance = {LABELS: [*panel.provenance.get(LABELS, []), made]}
            _write(panel, table.loci, labels, temporary, provenance)
    return LabelSummary(loci, table.unknown_samples)


def _check_loci(panel: Panel, types: str | Path, table: TypesTable) -> None:
    present = {plain_locus(parts[0]) for alt in panel.sites.alt if (parts := label_parts(alt)) is not None}
    low, high = int(panel.position[0]), int(panel.position[-1])
    for locus in table.loci:
        where = f"table of labels {types}: {locus.name} at {panel.chrom}:{locus.position}"
        if plain_locus(locus.name) in present:
            raise InputError("mismatch", f"{where}: the panel {panel.path} has labels of this locus already")
        if not low <= locus.position <= high:
            raise InputError(
                "mismatch",
                f"{where} is outside of the panel {panel.path} ({low}-{high}). Give positions in the genome "
                "build of the panel",
            )
        if len(comparable_sites(panel, locus.position)) < MIN_COMPARED:
            raise InputError(
                "mismatch",
                f"{where}: the panel {panel.path} has fewer than {MIN_COMPARED} common sites near the locus",
            )


def _summary(locus: Locus, assigned: Assignment, sample_N: np.ndarray) -> LocusSummary:
    typed_X = np.asarray((locus.text_X2 > 0).any(axis=1))
    certain_N = assigned.share_NK.max(axis=1) >= CERTAIN
    certain = float(certain_N[typed_X[sample_N]].mean())
    without = int((assigned.label_N < 0).sum())
    return LocusSummary(locus.name, locus.position, len(locus.alleles), int(typed_X.sum()), certain, without)


def _write(
    panel: Panel, loci: list[Locus], labels: list[np.ndarray], out: Path, provenance: dict[str, Any]
) -> None:
    """Write the panel with a row for each label of each locus."""
    keys = panel.sites.keys()
    before: list[int] = []  # panel site in front of which each row of a label is inserted
    alts: list[str] = []
    names: list[str] = []
    positions: list[int] = []
    packed: list[np.ndarray] = []
    counts: list[int] = []
    for locus, label_N in zip(loci, labels, strict=True):
        site = bisect(keys, (locus.position, UNKNOWN_LABEL, "<"))
        for number, allele in enumerate(locus.alleles):
            carried_N = label_N == number
            before.append(site)
            alts.append(label_alt(locus.name, allele))
            names.append(locus.name)
            positions.append(locus.position)
            packed.append(np.packbits(carried_N))
            counts.append(int(carried_N.sum()))
    site_X = np.insert(np.arange(panel.n_sites), before, -1)  # -1: the row of a label
    label_X: np.ndarray = site_X < 0
    label_sites = Sites(panel.chrom, np.array(positions, np.int64), [UNKNOWN_LABEL] * len(alts), alts, names)
    order = np.insert(np.arange(panel.n_sites), before, panel.n_sites + np.arange(len(alts)))
    sites = Sites.concatenate([panel.sites, label_sites]).take(order)
    cM = np.insert(panel.cM, before, np.interp(positions, panel.position, panel.cM))
    count = np.insert(panel.allele_count, before, counts)
    doubts = SiteDoubts(
        np.insert(panel.doubts.discordance, before, 0), np.insert(panel.doubts.confirmed, before, False)
    )
    multiallelic = np.insert(panel.multiallelic, before, True)
    waiting = iter(packed)
    with out.open("wb") as file:
        writer = PanelWriter(file, panel.n_haplotypes)
        for start in range(0, len(site_X), BLOCK_SITES):
            here = slice(start, start + BLOCK_SITES)
            rows_XB = np.empty((len(site_X[here]), -(-panel.n_haplotypes // 8)), np.uint8)
            rows_XB[~label_X[here]] = panel.packed_rows(site_X[here][~label_X[here]])
            for row in np.flatnonzero(label_X[here]).tolist():
                rows_XB[row] = next(waiting)
            writer.add_rows(store_rows(rows_XB, panel.n_haplotypes), count[here])
        header = panel.container.header | {
            "n_sites": len(site_X),
            "provenance": panel.provenance | provenance,
        }
        columns = encode_site_table(SiteTable(sites, cM, count), multiallelic)
        writer.finish(columns, doubts, header)
        file.flush()
        os.fsync(file.fileno())
