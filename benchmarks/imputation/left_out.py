"""`left-out`: settings of the predictors, compared on people who are left out of panels.

Defaults are chosen with this command on all sets, never with the targets. Each `--set` is a row with other
settings, compared with a row of the current settings. Two more tables show whether dosages of rare alleles
are calibrated: the sum of dosages divided by the true count, and the true share of carriers among haplotypes,
by tenths of their probability.

Axes: X panel sites, T typed sites, Q haplotypes, S people.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import NamedTuple
from unittest import mock

import numpy as np

import spinimpute
from benchmarks.imputation.cases import Case, find_case
from benchmarks.imputation.cast import Conditions
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.related_set import relate
from benchmarks.imputation.results import write_configuration
from benchmarks.imputation.tables import markdown, number, write_tsv
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import match_sites
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.trust import doubts
from spinimpute.predictors.haplotype_attention import posterior_alleles, tile
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.loading import predictor_for
from spinimpute.predictors.spin import engine as spin_engine
from spinimpute.predictors.spin import panel_posteriors
from spinimpute.quality.metrics import mean_variant_r2, pooled_r2, site_statistics
from spinimpute.vcf.reader import read_haplotypes

# `MAX_SLOPE=-9` trusts all sites, `TRAINED_RATIOS=()` leaves the odds of rare alleles as they are,
# `WHOLE_BLOCK_SITES=-1` asks the networks everywhere.
SETTINGS: dict[str, ModuleType] = {
    "SMALLEST_WEIGHT": posterior_alleles,
    "FEWEST_CARRIERS": posterior_alleles,
    "TRAINED_RATIOS": posterior_alleles,
    "MAX_SLOPE": doubts,
    "WHOLE_BLOCK_SITES": tile,
    "POSTERIOR_WEIGHT": panel_posteriors,
    "LARGE_PANEL_WEIGHT": panel_posteriors,
    "POINT_WEIGHT": spin_engine,
}
TODAY = "today's"
PEOPLE = {"chr20_eur": 40, "cattle_bta12": 20}  # of other panels a tenth, at most MOST_PEOPLE
MOST_PEOPLE = 200
CARRIERS = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (21, 50))  # in the panel
BINS = ((0.0, 1.0), (0.0, 0.001), (0.001, 0.005), (0.005, 0.05), (0.05, 0.5))  # of minor allele frequency


class _Imputed(NamedTuple):
    """P(minor allele) and true minor alleles of untyped sites, float32 (X, Q); carriers in the panel (X,)."""

    p_XQ: np.ndarray
    true_XQ: np.ndarray
    carriers_X: np.ndarray
    frequency_X: np.ndarray


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to the shared options."""
    text = f"a row with other settings: NAME=VALUE, with semicolons between; of {', '.join(SETTINGS)}"
    parser.add_argument("--set", action="append", default=[], metavar="SETTINGS", help=text)
    parser.add_argument("--predictor", metavar="NAME", help="default: that of `impute`")
    text = "impute from a file with at most H inducing points (.spip)"
    parser.add_argument("--inducing", type=int, metavar="H", help=text)


def left_out(arguments: argparse.Namespace) -> None:
    """Impute every case with every setting."""
    tables: dict[str, list[list[str]]] = {
        "accuracy": [["case", "settings", *(f"{low:g}–{high:g}" for low, high in BINS), "mean r²"]],
        "sums": [["case", "settings", *(f"{a}–{b}" if a < b else str(a) for a, b in CARRIERS)]],
        "tenths": [["case", "settings", *(f"{t / 10:g}–{(t + 1) / 10:g}" for t in range(10))]],
    }
    with session(arguments) as run:
        for name in arguments.cases:
            case = _people_left_out(name, run)
            for settings in (TODAY, *arguments.set):
                with _changed(settings):
                    imputed = _impute(case, run, arguments.predictor, arguments.inducing)
                for rows, cells in zip(
                    tables.values(), (_accuracy(imputed), _sums(imputed), _tenths(imputed)), strict=True
                ):
                    rows.append([name, settings, *cells])
                print(*tables["accuracy"][-1], flush=True)
        out = run.result_folder(run.name or "left-out")
        titles = (
            "Pooled r² by minor allele frequency, and the mean per variant",
            "Sum of minor-allele dosages over the true count, by carriers in the panel",
            f"Mean probability / true share, of alleles of up to {CARRIERS[-1][1]} carriers",
        )
        report = ["# People left out of panels"]
        for (file, rows), title in zip(tables.items(), titles, strict=True):
            write_tsv(out / f"{file}.tsv", rows)
            report += [f"## {title}", markdown(rows)]
        (out / "report.md").write_text("\n\n".join(report) + "\n")
        write_configuration(out, run, [], {"cases": arguments.cases})
        print("\n\n".join(report))


def _people_left_out(name: str, run: Session) -> Case:
    full = find_case(name, run.data)
    folder = run.work / f"{full.name}-left-out"
    people = PEOPLE.get(full.name, min(MOST_PEOPLE, full.panel_haplotypes // 20))
    relate(full, folder, people, Conditions(), run.seed)
    return find_case(str(folder), run.data)


@contextmanager
def _changed(settings: str) -> Iterator[None]:
    with ExitStack() as stack:
        for one in settings.split(";") if settings != TODAY else ():
            name, _, value = one.partition("=")
            if name not in SETTINGS:
                raise SystemExit(f"--set {settings}: {name} is none of {', '.join(SETTINGS)}")
            stack.enter_context(mock.patch.object(SETTINGS[name], name, ast.literal_eval(value)))
        yield


def _impute(case: Case, run: Session, predictor_name: str | None, inducing_points: int | None) -> _Imputed:
    target, truth = read_haplotypes(case.target), read_haplotypes(case.truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cattle no map is known
        built = spinimpute.build_panel(case.panel, run.work / "panel.spin", case.genetic_map, force=True)
    with built as panel, ExitStack() as stack:
        typed = match_sites(panel.sites, target.sites)
        order = np.argsort(typed.panel_index)
        typed_index, typed_TQ = typed.panel_index[order], target.alleles[typed.target_index[order]]
        reference: ReferencePanel = panel
        if inducing_points is not None:
            spip = run.work / "points.spip"
            made = spinimpute.build_inducing_panel(
                panel, spip, typed_index, inducing_points, threads=run.threads, force=True
            )
            reference = stack.enter_context(made)
        predictor, options = predictor_for(reference, name=predictor_name)
        job = ImputationJob(reference, typed_index, run.threads, typed_TQ.shape[1], options)
        with predictor.engine(job) as engine:
            windows = engine.windows(Interval(0, panel.n_sites))
            p_XQ = np.concatenate([p.copy() for p in engine.impute_windows(windows, typed_TQ)])
        known = match_sites(panel.sites, truth.sites)
        rows = np.isin(known.panel_index, typed_index, invert=True)
        site_X = known.panel_index[rows]
        p_XQ, true_XQ = p_XQ[site_X], truth.alleles[known.target_index[rows]].astype(np.float32)
        count_X = panel.allele_count[site_X]
        flip_X = 2 * count_X > panel.n_haplotypes
        carriers_X = np.where(flip_X, panel.n_haplotypes - count_X, count_X)
        p_XQ[flip_X], true_XQ[flip_X] = 1 - p_XQ[flip_X], 1 - true_XQ[flip_X]
        return _Imputed(p_XQ, true_XQ, carriers_X, carriers_X / panel.n_haplotypes)


def _accuracy(imputed: _Imputed) -> list[str]:
    of_site = site_statistics(*(x[:, ::2] + x[:, 1::2] for x in (imputed.true_XQ, imputed.p_XQ)))
    cells = []
    for low, high in BINS:
        chosen = (imputed.frequency_X > low) & (imputed.frequency_X <= high)
        cells.append(number(pooled_r2(of_site[chosen])) if chosen.any() else "–")
    return [*cells, number(mean_variant_r2(of_site))]


def _sums(imputed: _Imputed) -> list[str]:
    cells = []
    for low, high in CARRIERS:
        chosen = (imputed.carriers_X >= low) & (imputed.carriers_X <= high)
        true = float(imputed.true_XQ[chosen].sum())
        cells.append(f"{imputed.p_XQ[chosen].sum() / true:.2f} of {true:.0f}" if true else "–")
    return cells


def _tenths(imputed: _Imputed) -> list[str]:
    rare = imputed.carriers_X <= CARRIERS[-1][1]
    p_E, true_E = imputed.p_XQ[rare].ravel(), imputed.true_XQ[rare].ravel()
    cells = []
    for low, high in itertools.pairwise([0, *np.arange(0.1, 0.95, 0.1), 1.01]):
        chosen = (p_E >= low) & (p_E < high)
        cells.append(f"{p_E[chosen].mean():.3f} / {true_E[chosen].mean():.3f}" if chosen.any() else "–")
    return cells
