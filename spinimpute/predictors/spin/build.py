"""The function `build_inducing_panel`: it writes a `.spip` file, a panel compressed into inducing points.

The file is made for one array: its sites are the typed sites that divide the panel into blocks. For each
block the predictor SPIN computes inducing points, and the file stores these in place of the haplotypes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.panels.build import MAP_ESTIMATED
from spinimpute.panels.container import ContainerWriter, compress
from spinimpute.panels.file_kind import SPIP, check_panel_output
from spinimpute.panels.inducing_panel import KIND, InducingPanel
from spinimpute.panels.opening import require_open_panel
from spinimpute.panels.panel import MOVED, Panel
from spinimpute.panels.panel_blocks import BlockPlan, BlockPredictor, EncodedBlock
from spinimpute.panels.site_table import (
    DISCORDANCE,
    SiteTable,
    encode_increasing,
    encode_rounded_cM,
    encode_site_table,
)
from spinimpute.panels.soft_alleles import pack_points, pack_states
from spinimpute.predictors.interface import ImputationJob, Predictor
from spinimpute.predictors.loading import predictor_for
from spinimpute.predictors.spin.engine import BlockEngine
from spinimpute.predictors.spin.predictor import DEFAULT_INDUCING_POINTS, SPINPredictor
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import atomic_write
from spinimpute.targets.array_sites import read_array

MASS_LIMITS = (2, 5, 10)  # in haplotypes; the header has the share of points with less mass than each limit
BLOCKS_PER_THREAD = 4  # blocks in memory for each thread
RECORDED_CHANGES = (MOVED, MAP_ESTIMATED)  # keys of the panel's provenance that are copied into the file


def build_inducing_panel(
    panel: Panel,
    out: str | Path,
    array: str | Path | np.ndarray,
    inducing_points: int | None = None,
    *,
    model: str | Path | Predictor | None = None,
    threads: int | None = None,
    device: str = "auto",
    force: bool = False,
    command: str = "",
    progress: Callable[[float], None] | None = None,
) -> InducingPanel:
    """Compress a panel into inducing points for one array, write them to `out` and open the new file.

    Parameters
    ----------
    panel : Panel
        An open panel.
    out : str or Path
        Output file, by convention with the suffix `.spip`. It is written under a temporary name and renamed
        when it is complete.
    array : str, Path or int64 (T,)
        The sites of the array: a VCF or BCF, a list of positions (see `read_array`), or increasing indices of
        panel sites.
    inducing_points : int, optional
        Maximum number of inducing points per block, by default 1,024. Not allowed with a loaded predictor.
    model : str, Path or predictor, optional
        A checkpoint or a loaded predictor; by default the shipped checkpoint.
    threads : int, optional
        Number of threads, by default all processors. On the CPU the file does not depend on it.
    device : str
        Where to compute: "auto", "cpu" or "cuda".
    force : bool
        Overwrite `out` if it exists.
    command : str
        Command line to record in the provenance.
    progress : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    InducingPanel
        The new file, opened.

    Raises
    ------
    InputError
        `panel` is a path. Or the array cannot be read, or shares no site with the panel. Or the model is
        not one of SPIN. Or `out` cannot be written, or it exists and `force` is not set.
    ValueError
        `array` holds indices that are not increasing or not in the panel, or the panel is closed.
    """
    require_open_panel(panel)
    out = check_panel_output(out, force, [panel.path, model, array], SPIP)
    if model is None and inducing_points is None:
        inducing_points = DEFAULT_INDUCING_POINTS  # this option makes `predictor_for` select SPIN
    predictor, _ = predictor_for(panel, model, options={"inducing_points": inducing_points}, device=device)
    if not isinstance(predictor, SPINPredictor):
        raise InputError(
            "mismatch",
            f"a model of the kind {predictor.kind!r} makes no inducing points. Give a model of SPIN.",
        )
    skipped: dict[str, int] = {}
    array_record: dict[str, str | int]
    if isinstance(array, np.ndarray):
        typed_index, array_record = _checked_indices(array, panel.n_sites), {"sites": len(array)}
    else:
        matched = read_array(array, panel.sites, panel.frequency)
        typed_index, skipped = matched.panel_index, matched.skipped
        array_record = {"file": Path(array).name, "sites": matched.n_sites}
    threads = choose_threads(threads)
    with (
        atomic_write(out) as partial,
        partial.open("wb") as file,
        BlockEngine(predictor, ImputationJob(panel, typed_index, threads)) as engine,
    ):
        writer = ContainerWriter(file, KIND)
        masses = _write_blocks(writer, engine, predictor, threads, progress)
        table = SiteTable(panel.sites, panel.cM, panel.allele_count)
        sections = encode_site_table(table, panel.multiallelic) | {"cM": encode_rounded_cM(panel.cM)}
        for name, content in sections.items():
            writer.add_section(name, content)
        writer.add_section(DISCORDANCE, panel.doubts.confirmed_discordance.tobytes())
        writer.add_section("array", encode_increasing(typed_index))
        writer.finish(
            {
                "chrom": panel.chrom,
                "contig_line": panel.contig_line,
                "n_sites": panel.n_sites,
                "n_samples": panel.n_samples,
                "n_haplotypes": panel.n_haplotypes,
                "kind": predictor.kind,
                "fingerprint": predictor.points_fingerprint,
                "shape": {"core": predictor.shape.core, "flank": predictor.shape.flank},
                "inducing_points": predictor.inducing_points,
                "n_points": len(masses),
                "mass_below": {str(k): round(float((masses < k).mean()), 4) for k in MASS_LIMITS},
                "jumps_per_cM": recombination_scale(panel, typed_index),
                "panel_checksum": panel.checksum,
            },
            {
                "provenance": {
                    "spinimpute": version("spinimpute"),
                    "panel": panel.provenance.get("source", panel.path.name),
                    "map": panel.provenance.get("map", "unknown"),
                    **{key: panel.provenance[key] for key in RECORDED_CHANGES if key in panel.provenance},
                    "array": array_record,
                    "array sites not used": skipped,
                    "command": command,
                }
            },
        )
        file.flush()
        os.fsync(file.fileno())
    return InducingPanel.open(out)


def _write_blocks(
    writer: ContainerWriter,
    engine: BlockEngine,
    predictor: BlockPredictor,
    threads: int,
    progress: Callable[[float], None] | None,
) -> np.ndarray:
    """Write the points of all blocks in order, then their states. Return the masses of all points."""
    masses, states = [], []
    flank = predictor.shape.flank

    def pack(block: EncodedBlock, before: EncodedBlock | None) -> tuple[bytes, bytes]:
        n_own = int(block.places.valid_S[flank + 1 : flank + 1 + predictor.shape.core].sum())
        own = slice(flank + 1, flank + 1 + n_own)
        return compress(pack_points(block)), compress(pack_states(block, own, before))

    with ThreadPoolExecutor(threads, "pack") as pool:
        before: EncodedBlock | None = None
        for window in _windows(engine.panel, predictor, engine.typed_index, BLOCKS_PER_THREAD * threads):
            blocks = engine.encode_window(window)
            for points, chained in pool.map(pack, blocks, [before, *blocks[:-1]]):
                writer.add_block(points)
                states.append(chained)
            before = blocks[-1]
            masses += [block.points["mass_BH"] for block in blocks]
            if progress is not None:
                progress(window.stop / engine.panel.n_sites)
    for chained in states:
        writer.add_block(chained)
    return np.concatenate(masses)


def _windows(
    panel: Panel, predictor: BlockPredictor, typed_index: np.ndarray, n_blocks: int
) -> Iterator[Interval]:
    """Cut the panel into windows of `n_blocks` whole blocks; the last window may have fewer."""
    plan = BlockPlan(predictor.shape, typed_index, panel.cM, panel.frequency)
    blocks = plan.blocks(0, panel.n_sites)
    for first in blocks[::n_blocks]:
        end = min(first + n_blocks, blocks.stop) - 1
        low, _ = plan.span(first, 0, panel.n_sites)
        _, high = plan.span(end, 0, panel.n_sites)
        yield Interval(low, high)


def _checked_indices(index: np.ndarray, n_sites: int) -> np.ndarray:
    if index.ndim != 1 or index.dtype.kind not in "iu" or (np.diff(index) <= 0).any():
        raise ValueError("array must be increasing indices of panel sites (1-dimensional integers)")
    if len(index) == 0:
        raise InputError("argument", "the array has no site")
    if index[0] < 0 or index[-1] >= n_sites:
        raise ValueError(f"array must lie in 0..{n_sites - 1}, got {index[0]}..{index[-1]}")
    return index.astype(np.int64)
