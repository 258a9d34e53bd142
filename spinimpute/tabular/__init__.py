"""Neural networks for tables (rows of numbers and categories) as scikit-learn estimators.

SPIN, NPT and the Set Transformer predict a row from labelled training rows. FT-Transformer, ResNet and MLP
predict a row from this row alone.
"""

from spinimpute.runtime.packages import explain_missing_packages

with explain_missing_packages("spinimpute.tabular", "tables"):
    from spinimpute.tabular.context_estimators import (
        NPTClassifier,
        NPTRegressor,
        PublishedSPINClassifier,
        PublishedSPINRegressor,
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
    "PublishedSPINClassifier",
    "PublishedSPINRegressor",
    "ResNetClassifier",
    "ResNetRegressor",
    "SPINClassifier",
    "SPINRegressor",
    "SetTransformerClassifier",
    "SetTransformerRegressor",
    "load_estimator",
    "save_estimator",
]
