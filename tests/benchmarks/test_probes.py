"""Probes on made tables: what the tables hold, and that what should be found is found."""

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.tabular import lookups
from benchmarks.tabular.lookups import Protein, cluster_tables, random_labels, random_tables
from benchmarks.tabular.probes import _Context, _permuted, deletion
from spinimpute import tabular


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_random_tables_have_distinct_keys_and_differ() -> None:
    task = random_tables(20, 16, 5, 4, seeded())
    keys = task.query[..., :5] @ (2 ** torch.arange(5))
    assert all(len(row.unique()) == 16 for row in keys)
    assert len({tuple(table.flatten().tolist()) for table in task.query}) == 20
    assert 0.45 < float(task.true_BNL.float().mean()) < 0.55


def test_clusters_are_noisy_copies() -> None:
    centroid = torch.stack((torch.zeros(120), torch.ones(120))).long()
    task, cluster = cluster_tables(2, 50, centroid, None, seeded())
    assert torch.equal((task.query[..., :120].float().mean(-1) > 0.5).long(), cluster)
    assert float((task.query[..., :120] != cluster[..., None]).float().mean()) == pytest.approx(0.1, abs=0.02)


def protein() -> Protein:
    made = object.__new__(Protein)
    made.rows = {"train": torch.randn(200, 7, generator=seeded())}
    return made


@pytest.mark.parametrize("variant", lookups.VARIANTS)
def test_lookup_tables(variant: str) -> None:
    task = protein().draw("train", variant, 2, 20, seeded(1))
    noisy, plus_one = lookups.VARIANTS[variant]
    same = 3 if noisy else 6  # features that tell which row is whose copy
    distance = torch.cdist(task.query[..., :same], task.context[..., :same])
    copy = distance.argmin(-1)
    assert distance.amin(-1).max() < 1e-3
    found = task.context[..., -1].gather(1, copy)
    assert torch.allclose(found, task.true_BNL[..., 0] + plus_one)
    assert not task.query[..., -1].any()
    noise_differs = not torch.allclose(
        task.context[..., 3:6].gather(1, copy[..., None].expand(-1, -1, 3)), task.query[..., 3:6]
    )
    assert noise_differs == noisy


def test_npt_looks_up_random_labels_and_blind_spin_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"rows": 4, "key_bits": 4, "label_bits": 3}
    assert random_labels("NPT", 1, **small)["found"]["accuracy of bits"] > 0.99
    monkeypatch.setattr(lookups, "BLIND_STEPS", 20)
    blind = random_labels("SPIN without XABD", 1, inducing_points=8, **small)
    assert 0.45 < blind["found"]["accuracy of bits"] < 0.55


def test_permuted_columns_keep_their_values() -> None:
    table = torch.arange(30.0).reshape(10, 3)
    permuted = _permuted(table, seeded())
    assert torch.equal(permuted.sort(0).values, table)
    assert not torch.equal(permuted - permuted[:, :1], table - table[:, :1])


@pytest.mark.parametrize("kind", ["SPIN", "NPT"])
def test_predictions_from_a_whole_context_are_those_of_the_estimator(kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = getattr(tabular, kind + "Regressor")(width=8, steps=3, random_state=0).fit(x, x[:, 0] + x[:, 1])
    context, query = _Context(model), model._rows(x[:9]).value_ND
    found = context.all_predictions(query, context.table_ND)
    np.testing.assert_allclose(found, model.predict(x[:9]), rtol=1e-4)
    everything = torch.ones(9, context.size, dtype=torch.bool)
    np.testing.assert_allclose(context.predictions(query, everything), model.predict(x[:9]), rtol=1e-4)
    little = everything.clone()
    little[:, 5:] = False
    assert np.abs(context.predictions(query, little) - model.predict(x[:9])).max() > 1e-5


class Neighbours:
    """Predicts the mean label of near rows."""

    def __init__(self) -> None:
        self.table_ND = torch.cat((torch.randn(100, 2, generator=seeded()), torch.rand(100, 1) + 1), 1)
        self.size = 100

    def predictions(self, query: Tensor, kept_TN: Tensor) -> np.ndarray:
        weight = kept_TN * torch.exp(-8 * torch.cdist(query, self.table_ND[:, :2]) ** 2) + 1e-9
        return ((weight @ self.table_ND[:, 2]) / weight.sum(1)).double().numpy()


def test_deletion_keeps_near_rows_of_a_model_that_needs_them() -> None:
    query = torch.randn(12, 2, generator=seeded(1))
    found = deletion(Neighbours(), query, seeded(2))  # type: ignore[arg-type]
    assert found["distance, kept"] < found["distance, random"] < found["distance, deleted"] * 1.1
    assert found["p, kept < random"] < 0.01
