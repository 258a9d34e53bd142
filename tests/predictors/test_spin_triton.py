"""The Triton kernels of SPIN against the plain torch functions, in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from spinimpute.nn.carrying import CarriedPoints
from spinimpute.predictors.spin.matching import AttentionKeys, match
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.predictors.spin.similarity import Columns
from tests.predictors.test_spin_matching import random_case

pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
from spinimpute.predictors.spin.gpu.attention import attend_with_triton
from spinimpute.predictors.spin.gpu.matching import TritonMatcher


def stack(keys: list[AttentionKeys]) -> AttentionKeys:
    """Join the keys of single blocks."""

    def cat(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts)

    columns = Columns(*map(cat, zip(*(key.columns[:-1] for key in keys), strict=True)), keys[0].columns[-1])
    return AttentionKeys(*map(cat, zip(*(key[:-1] for key in keys), strict=True)), columns)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("k", "core", "flank"), [(1, 2, 3), (3, 4, 5), (5, 8, 12)])
def test_the_kernel_computes_match(k: int, core: int, flank: int, missing: bool) -> None:
    with torch.no_grad():
        cases = [random_case(k, core, flank, seed) for seed in (1, 2)]
        allele_BQS, known_BQS = (torch.cat([case[i] for case in cases]) for i in (1, 2))
        keys = stack([case[3] for case in cases])
        if not missing:
            known_BQS = torch.ones_like(known_BQS)
        least = torch.tensor(0.3)
        expected = match(allele_BQS, known_BQS, keys, k, least, 3)
        found = TritonMatcher(keys, k, missing=missing)(allele_BQS, known_BQS, keys, k, least, 3)
        for name, value in expected._asdict().items():
            torch.testing.assert_close(getattr(found, name), value, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("padding", [0, 3])
def test_the_kernels_compute_the_attention_of_the_network(padding: int) -> None:
    """The last points are padding."""
    torch.manual_seed(3)
    network = GenotypeSPIN(SPINSettings(core=2, flank=9, k=3, heads=3, pair_heads=2, tolerances=2, hidden=6))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    b, n_points, s = 2, 11, network.settings.shape.n_typed
    columns = network.columns(
        torch.linspace(-1, 1, s).expand(b, s), torch.rand(b, s), torch.ones(b, s), n_haplotypes=50
    )
    token_BHDV = torch.softmax(4 * torch.randn(b, n_points, columns.valid_BD.shape[1], 8), -1)
    mass_BH = torch.rand(b, n_points) * 9
    mass_BH[:, n_points - padding :] = 0
    points = CarriedPoints(token_BHDV.flatten(2), torch.rand(b, n_points, 4), mass_BH)
    with torch.no_grad():
        keys = network.keys(points, columns)
        queries = torch.randint(0, 2, (b, 5, s)).float(), torch.ones(b, 5, s)
        expected = network.decoder.read(network.attend(*queries, keys), points)
        found = attend_with_triton(network, network.compare(*queries, keys, match), keys)
    torch.testing.assert_close(found.attention_BGQH, expected.attention_BGQH, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.summary_BQC, expected.summary_BQC, rtol=1e-4, atol=1e-5)
