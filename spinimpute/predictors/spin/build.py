"""Makes the inducing-panel file of a panel and an array, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.build import MAP_ESTIMATED
from spinimpute.panels.container import ContainerWriter, compress
from spinimpute.panels.inducing_panel import KIND, InducingPanel
from spinimpute.panels.opening import require_open_panel
from spinimpute.panels.panel import MOVED, Panel
from spinimpute.panels.panel_blocks import BlockPlan, BlockPredictor, EncodedBlock
from spinimpute.panels.site_table import DISCORDANCE, SiteTable, write_increasing, write_site_table
from spinimpute.panels.soft_alleles import pack_points
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.loading import predictor_for
from spinimpute.predictors.spin.block_engine import BlockEngine
from spinimpute.predictors.spin.predictor import MOST_INDUCING_POINTS, SPINPredictor
from spinimpute.runtime.devices import default_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_output, written_whole
from spinimpute.targets.array_sites import read_array

MASS_LIMITS = (2, 5, 10)  # of panel haplotypes, for the counts in the header
BLOCKS_AT_ONCE = 4  # for each thread: bounds the memory
CHANGES = (MOVED, MAP_ESTIMATED)  # what building a panel did to it


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
    """Compress a panel into inducing points for one array, write them to `out` and open it.

    Parameters
    ----------
    panel : Panel
        Open.
    out : str or Path
        By convention `.spip`; appears only when it is complete.
    array : str, Path or int64 (T,)
        A VCF, VCF.gz or BCF whose sites are the array's, or a list of positions (see `read_array`), or
        increasing panel site indices.
    inducing_points : int, optional
        Largest h of a block; by default 1,024. Not with a loaded predictor.
    model : str, Path or predictor, optional
        A checkpoint or a loaded predictor; by default the shipped one.
    threads : int, optional
        By default all processors; on the CPU the bytes do not depend on it.
    device : str
        "auto", "cpu" or "cuda".
    force : bool
        Replace `out` if it exists.
    command : str
        Recorded in the provenance.
    progress : callable, optional
        Called with the fraction that is done.

    Returns
    -------
    InducingPanel
        Open.

    Raises
    ------
    InputError
        The panel is not open, the array cannot be read or has no site of the panel, the model makes no
        inducing points, or `out` cannot be written or exists and `force` is not set.
    ValueError
        Unusable indices.
    """
    require_open_panel(panel)
    out = check_output(out, force, [panel.path, model, array])
    if model is None and inducing_points is None:
        inducing_points = MOST_INDUCING_POINTS  # their number chooses the predictor that has them
    predictor, _ = predictor_for(panel, model, options={"inducing_points": inducing_points}, device=device)
    if not isinstance(predictor, SPINPredictor):
        raise InputError(
            "mismatch", f"a model of the kind {predictor.kind!r} makes no inducing points: give another one"
        )
    skipped: dict[str, int] = {}
    described: dict[str, str | int]
    if isinstance(array, np.ndarray):
        typed_index, described = _checked(array, panel.n_sites), {"sites": len(array)}
    else:
        matched = read_array(array, panel.sites, panel.frequency)
        typed_index, skipped = matched.panel_index, matched.skipped
        described = {"file": Path(array).name, "sites": matched.n_sites}
    threads = default_threads() if threads is None else threads
    with (
        written_whole(out) as partial,
        partial.open("wb") as file,
        BlockEngine(predictor, ImputationJob(panel, typed_index, threads)) as engine,
    ):
        writer = ContainerWriter(file, KIND)
        masses = _write_blocks(writer, engine, predictor, threads, progress)
        write_site_table(SiteTable(panel.sites, panel.cM, panel.allele_count), writer.add_section)
        writer.add_section("multiallelic", np.packbits(panel.multiallelic).tobytes())
        if panel.knows_discordance:  # files of earlier versions do not know it
            writer.add_section(DISCORDANCE, panel.doubts.confirmed_discordance.tobytes())
        writer.add_section("array", write_increasing(typed_index))
        writer.finish(
            {
                "chrom": panel.chrom,
                "contig_line": panel.contig_line,
                "n_sites": panel.n_sites,
                "n_samples": panel.n_samples,
                "n_haplotypes": panel.n_haplotypes,
                "kind": predictor.kind,
                "fingerprint": predictor.fingerprint,
                "shape": {"core": predictor.shape.core, "flank": predictor.shape.flank},
                "inducing_points": predictor.inducing_points,
                "n_points": len(masses),
                "mass_below": {str(k): round(float((masses < k).mean()), 4) for k in MASS_LIMITS},
                "panel_checksum": panel.checksum,
            },
            {
                "provenance": {
                    "spinimpute": version("spinimpute"),
                    "panel": panel.provenance.get("source", panel.path.name),
                    "map": panel.provenance.get("map", "unknown"),
                    **{key: panel.provenance[key] for key in CHANGES if key in panel.provenance},
                    "array": described,
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
    """Write all blocks in order; returns the mass of every inducing point."""
    masses = []

    def pack(block: EncodedBlock) -> bytes:
        return compress(pack_points(block))

    with ThreadPoolExecutor(threads, "pack") as pool:
        for window in _windows(engine.panel, predictor, engine.typed_index, BLOCKS_AT_ONCE * threads):
            blocks = engine.encode_window(window)
            for part in pool.map(pack, blocks):
                writer.add_part(part)
            masses += [block.points["mass_BH"].numpy() for block in blocks]
            if progress is not None:
                progress(window.stop / engine.panel.n_sites)
    return np.concatenate(masses)


def _windows(
    panel: Panel, predictor: BlockPredictor, typed_index: np.ndarray, n_blocks: int
) -> Iterator[Interval]:
    """Windows of this many whole blocks, from which all typed sites are visible."""
    plan = BlockPlan(predictor.shape, typed_index, panel.cM, panel.frequency)
    blocks = plan.blocks(0, panel.n_sites)
    for first in blocks[::n_blocks]:
        end = min(first + n_blocks, blocks.stop) - 1
        low, _ = plan.span(first, 0, panel.n_sites)
        _, high = plan.span(end, 0, panel.n_sites)
        yield Interval(low, high)


def _checked(index: np.ndarray, n_sites: int) -> np.ndarray:
    if index.ndim != 1 or index.dtype.kind not in "iu" or (np.diff(index) <= 0).any():
        raise ValueError("array must be increasing panel site indices (1-dimensional integers)")
    if len(index) == 0:
        raise InputError("content", "the array has no site")
    if index[0] < 0 or index[-1] >= n_sites:
        raise ValueError(f"array must lie in 0..{n_sites - 1}, however: {index[0]}..{index[-1]}")
    return index.astype(np.int64)
