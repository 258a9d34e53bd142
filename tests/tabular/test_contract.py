"""scikit-learn's own checks of all estimators, small ones."""

from typing import Any

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from spinimpute import tabular

pytestmark = pytest.mark.slow

ROWS = {"steps": 60, "learning_rate": 0.02, "batch_size": 32, "width": 16}
CONTEXT = {"steps": 30, "learning_rate": 0.04, "batch_size": 32, "width": 8, "heads": 2}
SMALL: dict[str, dict[str, Any]] = {
    "MLP": ROWS | {"layers": 2},
    "ResNet": ROWS | {"blocks": 1, "hidden": 16},
    "FTTransformer": ROWS | {"blocks": 1, "heads": 2},
    "SPIN": CONTEXT | {"inducing_points": 20, "row_width": 8, "predictor_layers": 1, "members": 2},
    "PublishedSPIN": CONTEXT | {"blocks": 1, "inducing_points": 4, "latent_attributes": 2},
    "NPT": CONTEXT | {"blocks": 1},
    "SetTransformer": CONTEXT | {"blocks": 1, "inducing_points": 4, "latent_attributes": 2},
}
ESTIMATORS = [
    getattr(tabular, name + kind)(random_state=0, **parameters)
    for name, parameters in SMALL.items()
    for kind in ("Classifier", "Regressor")
]
MUST_LEARN = {"check_classifiers_train", "check_regressors_train"}
FEW_STEPS = 4  # for all other checks
# a row of weight 2 is not drawn as two rows are
CHECK = "check_sample_weight_equivalence_on_{}_data"
RANDOM_BATCHES = {CHECK.format(kind): "batches are drawn at random" for kind in ("dense", "sparse")}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: RANDOM_BATCHES)
def test_contract(estimator: Any, check: Any) -> None:
    must_learn = check.func.__name__ in MUST_LEARN
    # all checks share one estimator
    check(estimator if must_learn else clone(estimator).set_params(steps=FEW_STEPS))
