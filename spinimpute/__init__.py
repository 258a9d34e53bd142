"""Genotype imputation with semi-parametric neural networks that query the reference panel.

The public names are loaded when they are first used, so that `import spinimpute` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spinimpute.errors import InputError
    from spinimpute.evaluation.evaluate import evaluate
    from spinimpute.genotypes.panel_build import build_panel
    from spinimpute.genotypes.panel_file import Panel
    from spinimpute.genotypes.panel_parts import build_panels
    from spinimpute.genotypes.ploidy import read_sexes
    from spinimpute.imputation.arrays import impute_haplotypes
    from spinimpute.imputation.inducing_build import build_inducing_panel
    from spinimpute.imputation.inducing_panel import InducingPanel
    from spinimpute.imputation.ligation import ligate
    from spinimpute.imputation.panel_tuning import tune_panel
    from spinimpute.imputation.pipeline import OutputSettings, impute
    from spinimpute.imputation.predictors import load_predictor
    from spinimpute.imputation.train import train
    from spinimpute.imputation.typed_file import convert, phase

_MODULES = {
    "InducingPanel": "imputation.inducing_panel",
    "InputError": "errors",
    "OutputSettings": "imputation.pipeline",
    "Panel": "genotypes.panel_file",
    "build_inducing_panel": "imputation.inducing_build",
    "build_panel": "genotypes.panel_build",
    "build_panels": "genotypes.panel_parts",
    "convert": "imputation.typed_file",
    "evaluate": "evaluation.evaluate",
    "impute": "imputation.pipeline",
    "impute_haplotypes": "imputation.arrays",
    "ligate": "imputation.ligation",
    "load_predictor": "imputation.predictors",
    "phase": "imputation.typed_file",
    "read_sexes": "genotypes.ploidy",
    "train": "imputation.train",
    "tune_panel": "imputation.panel_tuning",
}

__all__ = [
    "InducingPanel",
    "InputError",
    "OutputSettings",
    "Panel",
    "build_inducing_panel",
    "build_panel",
    "build_panels",
    "convert",
    "evaluate",
    "impute",
    "impute_haplotypes",
    "ligate",
    "load_predictor",
    "phase",
    "read_sexes",
    "train",
    "tune_panel",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'spinimpute' has no attribute {name!r}")
    return getattr(import_module(f"spinimpute.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
