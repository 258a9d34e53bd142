"""Twelve estimators with scikit-learn's contract: six networks, each as classifier and as regressor.

Parameters and fitted attributes that all have: `TableEstimator`. Those of each kind: `SPINEstimator`,
`NPTEstimator`, `SetTransformerEstimator` (and of all three `ContextEstimator`), `FTTransformerEstimator`,
`ResNetEstimator`, `MLPEstimator` (and of all three `RowEstimator`).
"""

from __future__ import annotations

from sklearn.base import ClassifierMixin, RegressorMixin

from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs
from spinimpute.tabular.context_estimators import NPTEstimator, SetTransformerEstimator, SPINEstimator
from spinimpute.tabular.row_estimators import FTTransformerEstimator, MLPEstimator, ResNetEstimator


class SPINClassifier(ClassifierMixin, ClassifierOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023); parameters: `SPINEstimator`."""


class SPINRegressor(RegressorMixin, RegressorOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023); parameters: `SPINEstimator`."""


class NPTClassifier(ClassifierMixin, ClassifierOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021); parameters: `NPTEstimator`."""


class NPTRegressor(RegressorMixin, RegressorOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021); parameters: `NPTEstimator`."""


class SetTransformerClassifier(ClassifierMixin, ClassifierOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019); parameters: `SetTransformerEstimator`."""


class SetTransformerRegressor(RegressorMixin, RegressorOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019); parameters: `SetTransformerEstimator`."""


class FTTransformerClassifier(ClassifierMixin, ClassifierOutputs, FTTransformerEstimator):
    """FT-Transformer (Gorishniy et al. 2021); parameters: `FTTransformerEstimator`."""


class FTTransformerRegressor(RegressorMixin, RegressorOutputs, FTTransformerEstimator):
    """FT-Transformer (Gorishniy et al. 2021); parameters: `FTTransformerEstimator`."""


class ResNetClassifier(ClassifierMixin, ClassifierOutputs, ResNetEstimator):
    """ResNet for tables (Gorishniy et al. 2021); parameters: `ResNetEstimator`."""


class ResNetRegressor(RegressorMixin, RegressorOutputs, ResNetEstimator):
    """ResNet for tables (Gorishniy et al. 2021); parameters: `ResNetEstimator`."""


class MLPClassifier(ClassifierMixin, ClassifierOutputs, MLPEstimator):
    """Multi-layer perceptron; parameters: `MLPEstimator`."""


class MLPRegressor(RegressorMixin, RegressorOutputs, MLPEstimator):
    """Multi-layer perceptron; parameters: `MLPEstimator`."""
