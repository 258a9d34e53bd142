"""Parameter counts that the SPIN paper publishes (tables 3 and 7): 20 target and 30 attribute 5-mers, two
blocks ("depth 4"), h = f = 10, the flat predictor, a learned residual projection."""

import pytest
import torch
from torch import nn

from spinimpute.nn.attention import MAB, MABOptions
from spinimpute.nn.row_models import NPT, SetTransformer
from spinimpute.nn.spin import SPIN, SPINConfig


def millions(model: nn.Module) -> float:
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


def test_embedding_width_16() -> None:
    with torch.device("meta"):
        paper = SPINConfig(32, 50, predictor="flat", learned_residual=True)
        assert millions(SPIN(paper)) == pytest.approx(8.05, abs=0.005)
        assert millions(NPT(32, 50)) == pytest.approx(16.7, abs=0.05)
        assert millions(SetTransformer(32, 50)) == pytest.approx(33.4, abs=0.05)
        flat = MAB(50 * 16, 10 * 16, MABOptions(learned_residual=True))
        assert millions(flat) == pytest.approx(7.31, abs=0.005)


def test_npt_64_at_400_snps() -> None:
    options = MABOptions(heads=4, learned_residual=True)
    with torch.device("meta"):
        assert millions(NPT(32, 80 + 30, 64, options=options)) == pytest.approx(1289, abs=0.6)


def test_the_tokenwise_predictor_does_not_grow_with_the_square_of_the_columns() -> None:
    with torch.device("meta"):
        few, many = (millions(SPIN(SPINConfig(32, columns))) for columns in (50, 500))
    assert few < 0.75
    assert (many - few) / 450 < 0.002, "each column adds its embedding and its head only"
