"""The Triton kernel of SPIN's matching against the plain torch function, in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from spinimpute.predictors.spin.matching import AttentionKeys, match
from spinimpute.predictors.spin.similarity import Columns
from tests.predictors.test_spin_matching import random_case

pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
from spinimpute.predictors.spin.matching_triton import TritonMatcher


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
