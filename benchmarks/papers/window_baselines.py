"""Baselines on a window: frequencies, k-NN, boosting, an MLP, Beagle.

All baselines but Beagle see the window's 150 typed SNPs as bits. Beagle sees all typed sites of the case, and
in a second run those of the window alone. The settings of a search (Table 10) are chosen on the validation
people.

Axes: N panel haplotypes, Q target haplotypes, S typed sites, U untyped sites.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cyvcf2
import numpy as np
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier

from benchmarks.imputation.measure import run
from benchmarks.imputation.programs import Beagle, check_programs
from benchmarks.imputation.study import build_panel, imputed_file, target_as_vcf
from benchmarks.papers.windows import Window

NEIGHBOURS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000)
PUBLISHED_TREES, PUBLISHED_RATE, PUBLISHED_DEPTHS = 100, 1e-2, (5, 10)
MOST_TREES, RATE, PATIENCE = 500, 0.1, 20
HIDDEN = (500, 500, 500)
PENALTIES = (1e-4, 1e-2)


class Answer(NamedTuple):
    """P(ALT) of each target haplotype, (Q, U), and the chosen settings."""

    p_QU: np.ndarray
    chosen: dict[str, Any]


def frequencies(window: Window, typed_QS: np.ndarray, seed: int) -> Answer:
    return Answer(np.tile(window.frequency_U, (len(typed_QS), 1)), {})


def neighbours(window: Window, typed_QS: np.ndarray, seed: int) -> Answer:
    """Return the mean of the nearest haplotypes, weighted by the inverse Hamming distance."""
    train_N, asked_N = ~window.is_validation_N, window.is_validation_N
    fits = {}
    for k in (k for k in NEIGHBOURS if k <= train_N.sum()):
        model = KNeighborsRegressor(k, weights="distance", metric="manhattan", algorithm="brute")
        model.fit(window.typed_NS[train_N], window.label_NU[train_N])
        fits[k] = squared_error(model.predict(window.typed_NS[asked_N]), window.label_NU[asked_N])
    best = min(fits, key=lambda k: fits[k])
    model = KNeighborsRegressor(best, weights="distance", metric="manhattan", algorithm="brute")
    model.fit(window.typed_NS, window.label_NU)
    return Answer(model.predict(typed_QS), {"n_neighbors": best})


def boosting(window: Window, typed_QS: np.ndarray, seed: int, published: bool = False) -> Answer:
    """Fit a model for each site, with the better of two depths.

    It has 100 trees at a rate of .01 (as published), or at a rate of .1 the number of trees with the lowest
    validation loss.
    """
    from lightgbm import LGBMClassifier, early_stopping

    train_N, asked_N = ~window.is_validation_N, window.is_validation_N
    common: dict[str, Any] = {"n_jobs": 1, "random_state": seed, "verbose": -1}
    x_train, x_asked = window.typed_NS[train_N].astype(float), window.typed_NS[asked_N].astype(float)

    def fitted(site: int, depth: int) -> Any:
        y_train, y_asked = window.label_NU[train_N, site], window.label_NU[asked_N, site]
        if published:
            model = LGBMClassifier(
                n_estimators=PUBLISHED_TREES, learning_rate=PUBLISHED_RATE, max_depth=depth,
                num_leaves=2**depth, **common,
            )  # fmt: skip
            return model.fit(x_train, y_train)
        model = LGBMClassifier(
            n_estimators=MOST_TREES, learning_rate=RATE, max_depth=depth, min_child_samples=5, **common
        )
        stop = early_stopping(PATIENCE, verbose=False)
        return model.fit(x_train, y_train, eval_set=[(x_asked, y_asked)], callbacks=[stop])

    p_QU = np.tile(window.label_NU[train_N].mean(0), (len(typed_QS), 1))
    depths: list[int] = []
    for site in range(window.label_NU.shape[1]):
        if window.label_NU[train_N, site].min() == window.label_NU[train_N, site].max():
            continue  # there is nothing to learn
        models = {depth: fitted(site, depth) for depth in PUBLISHED_DEPTHS}
        errors = {
            depth: squared_error(_of_alt(model, x_asked), window.label_NU[asked_N, site])
            for depth, model in models.items()
        }
        depths.append(min(errors, key=lambda depth: errors[depth]))
        p_QU[:, site] = _of_alt(models[depths[-1]], typed_QS.astype(float))
    return Answer(p_QU, {"sites of each depth": {str(d): depths.count(d) for d in PUBLISHED_DEPTHS}})


def published_boosting(window: Window, typed_QS: np.ndarray, seed: int) -> Answer:
    return boosting(window, typed_QS, seed, published=True)


def mlp(window: Window, typed_QS: np.ndarray, seed: int) -> Answer:
    """Fit one network for all sites; the paper trains one for each site."""
    train_N, asked_N = ~window.is_validation_N, window.is_validation_N
    fits = {}
    for penalty in PENALTIES:
        model = MLPClassifier(HIDDEN, alpha=penalty, batch_size=128, early_stopping=True, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that end before the loss does
            model.fit(window.typed_NS[train_N], window.label_NU[train_N])
        error = squared_error(model.predict_proba(window.typed_NS[asked_N]), window.label_NU[asked_N])
        fits[penalty] = (error, model)
    best = min(fits, key=lambda penalty: fits[penalty][0])
    model = fits[best][1]
    parameters = sum(w.size for w in (*model.coefs_, *model.intercepts_))
    return Answer(model.predict_proba(typed_QS), {"alpha": best, "parameters": parameters})


def beagle(window: Window, typed_QS: np.ndarray, seed: int, near: bool = False) -> Answer:
    """Run Beagle with the whole panel, and all typed sites or those near the window; return P(ALT)."""
    check_programs()
    case, program = window.case, Beagle()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if near:
            case = replace(case, target=_near(window, work))
        build_panel(case, program, work)
        panel, out = work / program.panel_name, imputed_file(program, work)
        command = program.impute(case, panel, target_as_vcf(case, work), out, ("GT", "DS"), 1)
        run(program.label, "impute", [*command, "ap=true", f"seed={seed}"], work / "log.txt")
        wanted = {site: i for i, site in enumerate(window.untyped_sites)}
        p_QU = np.full((len(typed_QS), len(wanted)), np.nan)
        for record in cyvcf2.VCF(str(out)):
            place = wanted.get((record.POS, record.REF, record.ALT[0])) if record.ALT else None
            if place is not None:
                p_QU[:, place] = np.stack([record.format("AP1")[:, 0], record.format("AP2")[:, 0]], 1).ravel()
    assert not np.isnan(p_QU).any()
    return Answer(p_QU, {})


def beagle_near(window: Window, typed_QS: np.ndarray, seed: int) -> Answer:
    """Run Beagle with the input of the networks: the typed sites of the window."""
    return beagle(window, typed_QS, seed, near=True)


def _near(window: Window, work: Path) -> Path:
    """Write a target with the window's typed sites alone."""
    reader = cyvcf2.VCF(str(window.case.target))
    writer, wanted = cyvcf2.Writer(str(work / "near.bcf"), reader, "wb"), set(window.typed_sites)
    for record in reader:
        if len(record.ALT) == 1 and (record.POS, record.REF, record.ALT[0]) in wanted:
            writer.write_record(record)
    writer.close()
    reader.close()
    return work / "near.bcf"


def squared_error(p: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean((p - true) ** 2))


def _of_alt(model: Any, x: np.ndarray) -> np.ndarray:
    of_alt: np.ndarray = model.predict_proba(x)[:, 1]
    return of_alt


FREQUENCIES, BEAGLE, GBT, MLP, KNN = "Allele frequency", "Beagle", "GBT", "MLP", "KNN"
GBT_PUBLISHED, BEAGLE_NEAR = "GBT, published settings", "Beagle, the same typed sites"
BASELINES: dict[str, Callable[[Window, np.ndarray, int], Answer]] = {
    FREQUENCIES: frequencies,
    KNN: neighbours,
    GBT_PUBLISHED: published_boosting,
    GBT: boosting,
    MLP: mlp,
    BEAGLE: beagle,
    BEAGLE_NEAR: beagle_near,
}
SEEDLESS = (FREQUENCIES, KNN, BEAGLE, BEAGLE_NEAR)
