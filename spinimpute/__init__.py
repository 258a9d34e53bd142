"""Genotype imputation with semi-parametric neural networks that query the reference panel.

A public name is imported when it is first used, so that `import spinimpute` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spinimpute.downloads.get_panel import get_panel
    from spinimpute.evaluation.evaluate import evaluate
    from spinimpute.evaluation.labels import evaluate_labels
    from spinimpute.genotypes.ploidy import read_sexes
    from spinimpute.panels.formats.hap_legend import HapLegend
    from spinimpute.panels.inducing_panel import InducingPanel
    from spinimpute.panels.merging.merge import merge_panels
    from spinimpute.panels.panel import Panel
    from spinimpute.panels.spin_files import open_panels
    from spinimpute.pipeline.arrays import (
        ImputedSamples,
        impute_genotypes,
        impute_haplotypes,
        impute_likelihoods,
    )
    from spinimpute.pipeline.check import CheckReport, check
    from spinimpute.pipeline.impute import impute
    from spinimpute.pipeline.labels.build import add_labels
    from spinimpute.pipeline.ligate import ligate
    from spinimpute.pipeline.maps.build import build_panel, build_panels
    from spinimpute.pipeline.maps.tune import tune_panel
    from spinimpute.pipeline.merging.merge import merge_samples
    from spinimpute.pipeline.sequenced.impute import impute_sequenced
    from spinimpute.pipeline.sequenced.inputs import SequencingSettings
    from spinimpute.pipeline.settings import (
        FileSettings,
        OutputSettings,
        PredictorSettings,
        RegionSettings,
        Resources,
        TargetSettings,
    )
    from spinimpute.pipeline.typed_file import convert, phase
    from spinimpute.predictors.loading import load_predictor
    from spinimpute.predictors.spin.build import build_inducing_panel
    from spinimpute.predictors.train import train
    from spinimpute.runtime.errors import InputError
    from spinimpute.sequencing.pileup import PileupSettings

    __version__: str

# public name -> module that defines it
_MODULES = {
    "CheckReport": "pipeline.check",
    "FileSettings": "pipeline.settings",
    "HapLegend": "panels.formats.hap_legend",
    "ImputedSamples": "pipeline.arrays",
    "InducingPanel": "panels.inducing_panel",
    "InputError": "runtime.errors",
    "OutputSettings": "pipeline.settings",
    "Panel": "panels.panel",
    "PileupSettings": "sequencing.pileup",
    "PredictorSettings": "pipeline.settings",
    "RegionSettings": "pipeline.settings",
    "Resources": "pipeline.settings",
    "SequencingSettings": "pipeline.sequenced.inputs",
    "TargetSettings": "pipeline.settings",
    "add_labels": "pipeline.labels.build",
    "build_inducing_panel": "predictors.spin.build",
    "build_panel": "pipeline.maps.build",
    "build_panels": "pipeline.maps.build",
    "check": "pipeline.check",
    "convert": "pipeline.typed_file",
    "evaluate": "evaluation.evaluate",
    "evaluate_labels": "evaluation.labels",
    "get_panel": "downloads.get_panel",
    "impute": "pipeline.impute",
    "impute_genotypes": "pipeline.arrays",
    "impute_haplotypes": "pipeline.arrays",
    "impute_likelihoods": "pipeline.arrays",
    "impute_sequenced": "pipeline.sequenced.impute",
    "ligate": "pipeline.ligate",
    "load_predictor": "predictors.loading",
    "merge_panels": "panels.merging.merge",
    "merge_samples": "pipeline.merging.merge",
    "open_panels": "panels.spin_files",
    "phase": "pipeline.typed_file",
    "read_sexes": "genotypes.ploidy",
    "train": "predictors.train",
    "tune_panel": "pipeline.maps.tune",
}

__all__ = [
    "CheckReport",
    "FileSettings",
    "HapLegend",
    "ImputedSamples",
    "InducingPanel",
    "InputError",
    "OutputSettings",
    "Panel",
    "PileupSettings",
    "PredictorSettings",
    "RegionSettings",
    "Resources",
    "SequencingSettings",
    "TargetSettings",
    "add_labels",
    "build_inducing_panel",
    "build_panel",
    "build_panels",
    "check",
    "convert",
    "evaluate",
    "evaluate_labels",
    "get_panel",
    "impute",
    "impute_genotypes",
    "impute_haplotypes",
    "impute_likelihoods",
    "impute_sequenced",
    "ligate",
    "load_predictor",
    "merge_panels",
    "merge_samples",
    "open_panels",
    "phase",
    "read_sexes",
    "train",
    "tune_panel",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("spinimpute")
    if name not in _MODULES:
        raise AttributeError(f"module 'spinimpute' has no attribute {name!r}")
    from spinimpute.runtime.packages import explain_missing_packages

    with explain_missing_packages(f"spinimpute.{name}"):
        return getattr(import_module(f"spinimpute.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
