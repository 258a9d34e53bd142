"""Twelve estimators with scikit-learn's contract: six networks, each as classifier and as regressor.

Parameters that all have:

    steps                 training steps at most
    batch_size            rows of a step (queries, for SPIN, NPT and the Set Transformer)
    learning_rate         of AdamW, or of LAMB with Lookahead for SPIN, NPT and the Set Transformer
    validation_fraction   of the rows, kept apart for early stopping; none if that is fewer than 10
    patience              looks at these rows without a better loss before training ends
    evaluate_every        steps between looks
    categorical_features  names or indices of columns that are categories, beside a DataFrame's categorical,
                          boolean and text columns
    scaling               of numbers: "standard", or "quantile" to a normal distribution
    device                "auto", "cpu" or "cuda"
    random_state          the same one gives the same result on a CPU
    verbose               report progress on the standard error stream

Fitted: `network_`, `encoder_`, `n_steps_` (of the weights that validated best), `validation_losses_`,
`n_parameters_`, `peak_memory_` (bytes: allocated on a GPU, or by how much the process has outgrown its
largest size so far: compare models in processes of their own), `classes_`, `n_features_in_`,
`feature_names_in_`.
"""

from __future__ import annotations

from sklearn.base import ClassifierMixin, RegressorMixin

from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs
from spinimpute.tabular.context_estimators import NPTEstimator, SetTransformerEstimator, SPINEstimator
from spinimpute.tabular.row_estimators import FTTransformerEstimator, MLPEstimator, ResNetEstimator


class SPINClassifier(ClassifierMixin, ClassifierOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023); parameters: `SPINEstimator` and this module."""


class SPINRegressor(RegressorMixin, RegressorOutputs, SPINEstimator):
    """SPIN (Rastogi et al. 2023); parameters: `SPINEstimator` and this module."""


class NPTClassifier(ClassifierMixin, ClassifierOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021); parameters: `NPTEstimator` and this module."""


class NPTRegressor(RegressorMixin, RegressorOutputs, NPTEstimator):
    """Non-parametric transformer (Kossen et al. 2021); parameters: `NPTEstimator` and this module."""


class SetTransformerClassifier(ClassifierMixin, ClassifierOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019); parameters: `SetTransformerEstimator` and this module."""


class SetTransformerRegressor(RegressorMixin, RegressorOutputs, SetTransformerEstimator):
    """Set Transformer (Lee et al. 2019); parameters: `SetTransformerEstimator` and this module."""


class FTTransformerClassifier(ClassifierMixin, ClassifierOutputs, FTTransformerEstimator):
    """FT-Transformer (Gorishniy et al. 2021); parameters: `FTTransformerEstimator` and this module."""


class FTTransformerRegressor(RegressorMixin, RegressorOutputs, FTTransformerEstimator):
    """FT-Transformer (Gorishniy et al. 2021); parameters: `FTTransformerEstimator` and this module."""


class ResNetClassifier(ClassifierMixin, ClassifierOutputs, ResNetEstimator):
    """ResNet for tables (Gorishniy et al. 2021); parameters: `ResNetEstimator` and this module."""


class ResNetRegressor(RegressorMixin, RegressorOutputs, ResNetEstimator):
    """ResNet for tables (Gorishniy et al. 2021); parameters: `ResNetEstimator` and this module."""


class MLPClassifier(ClassifierMixin, ClassifierOutputs, MLPEstimator):
    """Multi-layer perceptron; parameters: `MLPEstimator` and this module."""


class MLPRegressor(RegressorMixin, RegressorOutputs, MLPEstimator):
    """Multi-layer perceptron; parameters: `MLPEstimator` and this module."""
