"""Test of a panel's discordant sites: are predictions overconfident there?

Many discordant sites are predicted well, because the predictor notices that its candidates disagree. To test
this, some samples are held out of the panel. The default predictor imputes them at the *suspicious*
sites: discordant sites with common alleles. Its typed sites are common sites that are spread over the
chromosome, more than NEAR bases away from suspicious sites. Then the true alleles are regressed on the
predictions. The slope is 1 if predictions are calibrated, and lower if they are overconfident. If it is
clearly below 1, the site's discordance is confirmed, and the default predictor trusts the site less.

Axes: X sites of the panel, U suspicious sites, T typed sites, S suspicious or typed sites, N haplotypes that
are kept, Q held-out haplotypes.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.maps.estimated import spread_sites
from spinimpute.hmm.parameters import MIN_SITES
from spinimpute.panels.panel import Panel
from spinimpute.panels.site_table import SiteTable, encode_site_table
from spinimpute.panels.stored_rows import store_rows
from spinimpute.panels.trust.site_trust import DISCORDANCE_UNITS, NEAR, SiteDoubts, distance_to_typed, trust
from spinimpute.panels.writer import PanelWriter
from spinimpute.pipeline.trust.discordance import find_discordance, order_samples, read_alleles
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.loading import predictor_for

SUSPICIOUS = 0.95  # sites with less trust are tested
MIN_FREQUENCY = 0.05  # of the minor allele at tested sites; the held-out samples carry too few rarer alleles
MAX_HELD_OUT, MIN_HELD_OUT = 100, 10  # samples; at most a fifth of the panel
MAX_KEPT_SAMPLES = 2_500  # samples that are not held out; limits time and memory
# A site is confirmed if its slope plus the standard error is below this limit. It was chosen on people who
# were held out of six real and two simulated panels (benchmarks/tried.md).
MAX_SLOPE = 0.9
BATCH_SITES = 4_096  # sites written in one step


def find_doubts(panel: Panel, folder: Path, threads: int) -> SiteDoubts:
    """Find discordant sites, and those among them with overconfident predictions.

    Temporary files are written to `folder`. Results do not depend on `threads`, or on the order and names of
    samples. If too few samples can be held out, no site is confirmed.
    """
    discordance_X = find_discordance(panel)
    minor_X = np.minimum(panel.frequency, 1 - panel.frequency)
    suspicious_U = np.flatnonzero(
        (trust(discordance_X / DISCORDANCE_UNITS) < SUSPICIOUS) & (minor_X >= MIN_FREQUENCY)
    )
    typed_T = spread_sites(panel.position, panel.frequency, 0)
    n_held_out = min(MAX_HELD_OUT, panel.n_samples // 5)
    doubts = SiteDoubts(discordance_X, np.zeros(panel.n_sites, bool))
    if len(suspicious_U) == 0 or len(typed_T) == 0 or n_held_out < MIN_HELD_OUT:
        return doubts
    far_T = distance_to_typed(panel.position[typed_T], panel.position[suspicious_U]) > NEAR
    typed_T = typed_T[far_T]  # typed sites near a suspicious site may have the same artefact
    if len(typed_T) < MIN_SITES:
        return doubts
    order_X = order_samples(panel, typed_T)
    held_out_Q = np.flatnonzero(np.isin(panel.haplotype_sample, order_X[:n_held_out]))
    kept_X = order_X[n_held_out : n_held_out + MAX_KEPT_SAMPLES]
    kept_N = np.flatnonzero(np.isin(panel.haplotype_sample, kept_X))
    site_S = np.union1d(typed_T, suspicious_U)
    write_subpanel(panel, site_S, kept_N, folder / "stay.spin")
    with Panel.open(folder / "stay.spin") as kept_panel:
        typed_index, index_U = np.searchsorted(site_S, typed_T), np.searchsorted(site_S, suspicious_U)
        typed_TQ = read_alleles(panel, typed_T, held_out_Q).astype(np.int8)
        predicted_UQ = _predict(kept_panel, typed_index, typed_TQ, threads)[index_U]
        frequency_U = kept_panel.frequency[index_U]
    true_UQ = read_alleles(panel, suspicious_U, held_out_Q)
    slope_U, error_U = _slopes(predicted_UQ - frequency_U[:, None], true_UQ - frequency_U[:, None])
    doubts.confirmed[suspicious_U[slope_U + error_U < MAX_SLOPE]] = True
    return doubts


def write_subpanel(panel: Panel, site_S: np.ndarray, kept_N: np.ndarray, out: Path) -> None:
    """Write a panel file with a subset of sites and haplotypes."""
    kept_X, ploidy_X = np.unique(panel.haplotype_sample[kept_N], return_counts=True)
    counts = []
    with out.open("wb") as file:
        writer = PanelWriter(file, len(kept_N))
        for start in range(0, len(site_S), BATCH_SITES):
            alleles_SN = read_alleles(panel, site_S[start : start + BATCH_SITES], kept_N)
            counts.append(alleles_SN.sum(axis=1, dtype=np.int64))
            writer.add_rows(store_rows(np.packbits(alleles_SN, axis=1), len(kept_N)), counts[-1])
        table = SiteTable(panel.sites.take(site_S), panel.cM[site_S], np.concatenate(counts))
        samples, ploidy = [panel.samples[x] for x in kept_X], "".join(map(str, ploidy_X.tolist()))
        subset = {"samples": samples, "ploidy": ploidy, "n_sites": len(site_S)}
        header = panel.container.header | {"provenance": panel.provenance} | subset
        columns = encode_site_table(table, panel.multiallelic[site_S])
        writer.finish(columns, SiteDoubts.none(len(site_S)), header)
        file.flush()
        os.fsync(file.fileno())


def _predict(panel: Panel, typed_index: np.ndarray, typed_TQ: np.ndarray, threads: int) -> np.ndarray:
    """Predict P(ALT) at all sites with the default predictor, float32 (S, Q)."""
    predictor, options = predictor_for(panel, device="cpu")
    job = ImputationJob(panel, typed_index, threads, typed_TQ.shape[1], options, scratch=panel.path.parent)
    with predictor.engine(job) as engine:
        windows = engine.windows(Interval(0, panel.n_sites))
        return np.concatenate([p_SQ.copy() for p_SQ in engine.predict_windows(windows, typed_TQ)])


def _slopes(predicted_UQ: np.ndarray, true_UQ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return slopes of regressions through the origin and standard errors, float64 (U,); inf if undefined."""
    xx_U, xy_U, yy_U = (
        np.einsum("uq,uq->u", a, b, dtype=np.float64)
        for a, b in ((predicted_UQ, predicted_UQ), (predicted_UQ, true_UQ), (true_UQ, true_UQ))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_U = np.where(xx_U > 0, xy_U / xx_U, np.inf)
        rest_U = np.maximum(yy_U - np.where(xx_U > 0, xy_U * xy_U / xx_U, 0), 0)
        error_U = np.where(xx_U > 0, np.sqrt(rest_U / (predicted_UQ.shape[1] - 1) / xx_U), np.inf)
    return slope_U, error_U
