"""Tables: semi-parametric and other networks as scikit-learn estimators."""

from spinimpute.tabular.context_estimators import (
    NPTClassifier,
    NPTRegressor,
    SetTransformerClassifier,
    SetTransformerRegressor,
    SPINClassifier,
    SPINRegressor,
)
from spinimpute.tabular.model_files import load_estimator, save_estimator
from spinimpute.tabular.row_estimators import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    MLPClassifier,
    MLPRegressor,
    ResNetClassifier,
    ResNetRegressor,
)

__all__ = [
    "FTTransformerClassifier",
    "FTTransformerRegressor",
    "MLPClassifier",
    "MLPRegressor",
    "NPTClassifier",
    "NPTRegressor",
    "ResNetClassifier",
    "ResNetRegressor",
    "SPINClassifier",
    "SPINRegressor",
    "SetTransformerClassifier",
    "SetTransformerRegressor",
    "load_estimator",
    "save_estimator",
]
