"""Tables that only attention between rows can solve: random labels, two clusters, looking up a label.

Every table is new, in training and in tests, so no table can be memorised. In all tables, queries are rows of
the context without their labels. Queries read the context, never each other.

Axes: B tables, N rows (of the context, and as many queries), D columns, K outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.tabular.datasets import load_table, split
from spinimpute.nn.attention import ABD, XABD, MABOptions, recorded_attention, start_alike
from spinimpute.nn.row_models import NPT
from spinimpute.nn.spin import SPIN, SPINConfig
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.table import Rows, Schema, TableEncoder

CLIP = 1.0
BLIND_STEPS = 300  # there is nothing to learn
CARRYING_STEPS = 300  # of networks that look up from the first step on
CLUSTER_BITS, CLUSTER_LABEL_BITS, FLIPPED = 120, 4, 0.1
RANDOM_FEATURES = 3  # the last ones, as in the NPT paper
VARIANTS = {
    "original": (False, False),
    "random_features": (True, False),
    "add_one": (False, True),
    "both": (True, True),
}


@dataclass(frozen=True)
class Training:
    """Adam with a cosine schedule to 0; `tables` is the number of tables of a step."""

    steps: int
    tables: int
    learning_rate: float


class Task(NamedTuple):
    """Context and query (B, N, D), the columns that are hidden in queries (bool, labels_D), and their true
    values.
    """

    context: Tensor
    query: Tensor
    labels_D: Tensor
    true_BNL: Tensor


Network = SPIN | NPT | CarryingNetwork


def predicted(network: Network, task: Task, blind: bool = False) -> Tensor:
    """Return outputs (B, N, L, K) for the label columns of the queries.

    With `blind`, inducing points keep their initial values.
    """
    if isinstance(network, CarryingNetwork):
        return torch.stack(
            [_carried(network, *table) for table in zip(task.context, task.query, strict=True)]
        )
    hidden = task.labels_D.expand(task.query.shape)
    shown = torch.zeros_like(hidden)
    if isinstance(network, SPIN):
        if blind:
            h_BHFE = network.encoder.start_points.expand(len(task.query), -1, -1, -1)
        else:
            h_BHFE = network.encode(task.context, shown)
        outputs = network.predict(task.query, hidden, h_BHFE)
    else:
        n_context = task.context.shape[1]
        both, masks = torch.cat((task.context, task.query), 1), torch.cat((shown, hidden), 1)
        visible = (torch.arange(both.shape[1]) < n_context).expand(len(both), -1)
        outputs = network.rows(both, masks, None, visible)[:, n_context:]
    return outputs[:, :, task.labels_D]


def _carried(network: CarryingNetwork, context_ND: Tensor, query_ND: Tensor) -> Tensor:
    """Mean over members for a table of numbers whose last column is the label: (N, 1, 1)."""
    shown, asked = (
        Rows(x[:, :-1], torch.zeros_like(x[:, :-1], dtype=torch.bool)) for x in (context_ND, query_ND)
    )
    outputs_AN1, _ = network(shown, context_ND[:, -1], asked)
    return network.mean_of_members(outputs_AN1)[:, None]


def bits_loss(outputs_BNLK: Tensor, true_BNL: Tensor) -> Tensor:
    return functional.cross_entropy(outputs_BNLK.flatten(0, 2), true_BNL.flatten())


def squared_error(outputs_BNLK: Tensor, true_BNL: Tensor) -> Tensor:
    return (outputs_BNLK[..., 0] - true_BNL).square().mean()


def train(
    network: Network,
    draw: Callable[[int, torch.Generator], Task],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    training: Training,
    seed: int,
    blind: bool = False,
) -> None:
    """Train on new tables in every step."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.steps)
    network.train()
    for _ in range(training.steps):
        task = draw(training.tables, generator)
        loss = loss_of(predicted(network, task, blind), task.true_BNL)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        schedule.step()
    network.eval()


def make_npt(vocabulary: int, columns: int, width: int, heads: int, **more: Any) -> NPT:
    """Make an NPT of one block whose rows attend to similar rows from the first step (see `start_alike`)."""
    network = NPT(vocabulary, columns, width, 1, MABOptions(heads=heads, learned_residual=True), **more)
    for module in network.modules():
        if isinstance(module, ABD):
            start_alike(module.mab.attention)
    return network


def make_spin(config: SPINConfig, task: Task) -> SPIN:
    """Make a SPIN whose inducing points start as the task's queries (1, H, D) before XABD.

    They find similar rows from the first step. With random initial values, training takes many times as long,
    or fails.
    """
    network = SPIN(config)
    for module in network.modules():
        if isinstance(module, XABD):
            start_alike(module.mab.attention)
    encoder = network.encoder
    assert encoder.start_map is not None
    with torch.no_grad():
        d_1HDE = network.embedding(task.query, task.labels_D.expand(task.query.shape))
        a_1HFE = encoder.start_map(d_1HDE.transpose(-1, -2)).transpose(-1, -2)
        encoder.start_points.copy_(encoder.blocks[0].latents(a_1HFE, d_1HDE))
    return network


def random_tables(count: int, rows: int, key_bits: int, label_bits: int, generator: torch.Generator) -> Task:
    """Return tables of distinct random keys and random labels."""
    keys_BN = torch.rand(count, 2**key_bits, generator=generator).argsort(1)[:, :rows]
    keys = (keys_BN[:, :, None] >> torch.arange(key_bits)) & 1
    labels = torch.randint(0, 2, (count, rows, label_bits), generator=generator)
    table = torch.cat((keys, labels), 2)
    return Task(table, table, torch.arange(key_bits + label_bits) >= key_bits, labels)


def random_labels(
    model: str,
    seed: int,
    *,
    rows: int = 16,
    key_bits: int = 6,
    label_bits: int = 5,
    inducing_points: int = 64,
    steps: int = 600,
) -> dict[str, Any]:
    """Appendix A.7 of the SPIN paper: random labels, which a query can only get from its copy in the context.

    `model` is NPT, SPIN (with any words after it), or "SPIN without XABD", whose inducing points never read
    the context.

    The paper has one table of 5,000 rows, 30 feature bits and 20 label bits, in training and tests. Weights
    can memorise this table, and XABA alone indeed gets 70 % there. Here every table is new, so labels can
    only be looked up. 5,000 rows × 20 bits do not fit in H, so tables are small, and H has more points than
    the table has rows. With 6 key bits, there is a point for every possible key. With more key bits, the
    points are fixed before the table is known, and some rows share a point.
    """
    torch.manual_seed(seed)
    started = time.process_time()
    columns = key_bits + label_bits

    def draw(count: int, generator: torch.Generator) -> Task:
        return random_tables(count, rows, key_bits, label_bits, generator)

    network: SPIN | NPT
    if model == "NPT":
        training = Training(200, 16, 1e-3)
        network = make_npt(2, columns, 16, 1)
        configuration: dict[str, Any] = {"width": 16, "blocks": 1, "heads": 1}
    else:
        training = Training(BLIND_STEPS if model == "SPIN without XABD" else steps, 16, 3e-3)
        config = SPINConfig(
            2, columns, 16, inducing_points, latent_attributes=8, blocks=1, predictor="flat", heads=8,
            layer_order="released",
        )  # fmt: skip
        places = random_tables(1, inducing_points, key_bits, label_bits, torch.Generator().manual_seed(seed))
        network = make_spin(config, places)
        configuration = asdict(config)
    blind = model == "SPIN without XABD"
    train(network, draw, bits_loss, training, seed, blind)
    fresh = draw(500, torch.Generator().manual_seed(10_000 + seed))
    with torch.no_grad():
        right_BNL = predicted(network, fresh, blind).argmax(-1) == fresh.true_BNL
    return {
        "probe": f"random_labels_{key_bits}_bits", "model": model, "seed": seed,
        "configuration": {
            "rows": rows, "key_bits": key_bits, "label_bits": label_bits, "network": configuration,
            "training": asdict(training),
        },
        "parameters": sum(p.numel() for p in network.parameters()),
        "seconds": round(time.process_time() - started, 1),
        "found": {"fresh tables": len(right_BNL), "accuracy of bits": float(right_BNL.float().mean())},
    }  # fmt: skip


def cluster_tables(
    count: int, rows: int, centroid_2D: Tensor, fixed_2L: Tensor | None, generator: torch.Generator
) -> tuple[Task, Tensor]:
    """Return noisy copies of two centroids, and the cluster of each row (B, N).

    Label strings are fixed, or drawn for each table.
    """
    cluster_BN = torch.randint(0, 2, (count, rows), generator=generator)
    label_B2L = torch.randint(0, 2, (count, 2, CLUSTER_LABEL_BITS), generator=generator)
    if fixed_2L is not None:
        label_B2L = fixed_2L.expand(count, -1, -1)
    label_BNL = label_B2L.gather(1, cluster_BN[:, :, None].expand(-1, -1, CLUSTER_LABEL_BITS))
    clean = torch.cat((centroid_2D[cluster_BN], label_BNL), 2)
    table = clean ^ (torch.rand(clean.shape, generator=generator) < FLIPPED).long()
    task = Task(table, table, torch.arange(table.shape[2]) >= CLUSTER_BITS, table[:, :, CLUSTER_BITS:])
    return task, cluster_BN


def clusters(labels: str, seed: int, figure: Path | None, *, steps: int = 1_200) -> dict[str, Any]:
    """Appendix A.8 of the SPIN paper: does each of two inducing points represent one of two noisy clusters?

    `labels` is "SPIN" (a cluster's label strings are drawn for every table, so that H is needed) or "SPIN
    fixed labels" (as in the paper; weights can learn them without H). All rows are new. The paper does not
    name its predictor; ours is the token-wise predictor with one layer. The clusters are so distant in 120
    bits that untrained attention separates them, too. The results of the untrained network are therefore also
    given.
    """
    torch.manual_seed(seed)
    started = time.process_time()
    generator = torch.Generator().manual_seed(20_000 + seed)
    centroid_2D = torch.randint(0, 2, (2, CLUSTER_BITS), generator=generator)
    one_L = torch.randint(0, 2, (CLUSTER_LABEL_BITS,), generator=generator)
    fixed_2L = torch.stack((one_L, 1 - one_L)) if labels == "SPIN fixed labels" else None
    training = Training(300 if fixed_2L is not None else steps, 4, 3e-3)
    config = SPINConfig(
        2, CLUSTER_BITS + CLUSTER_LABEL_BITS, 32, 2, latent_attributes=4, blocks=1, predictor_layers=1,
        layer_order="released",
    )  # fmt: skip
    network = SPIN(config)
    # one table of more rows, as in the paper's figure
    fresh, cluster_BN = cluster_tables(1, 100, centroid_2D, fixed_2L, generator)
    before = _point_weights(network, fresh)
    train(
        network,
        lambda count, draws: cluster_tables(count, 16, centroid_2D, fixed_2L, draws)[0],
        bits_loss, training, seed,
    )  # fmt: skip
    weight_NH = _point_weights(network, fresh)
    with torch.no_grad():
        right = predicted(network, fresh).argmax(-1) == fresh.true_BNL
    if figure is not None:
        _heat_map(weight_NH, cluster_BN[0].numpy(), figure)
    return {
        "probe": "clusters", "model": labels, "seed": seed,
        "configuration": {
            "rows": 16, "test_rows": 100, "flipped": FLIPPED, "network": asdict(config),
            "training": asdict(training),
        },
        "parameters": sum(p.numel() for p in network.parameters()),
        "seconds": round(time.process_time() - started, 1),
        "found": {
            "accuracy of label bits (at most about .9)": float(right.float().mean()),
            **_separation(weight_NH, cluster_BN[0].numpy()),
            **{f"{name}, untrained": x for name, x in _separation(before, cluster_BN[0].numpy()).items()},
        },
    }  # fmt: skip


def _separation(weight_NH: np.ndarray, cluster_N: np.ndarray) -> dict[str, float]:
    """Separation of the clusters by the points, for the better assignment of points to clusters."""
    agreed = float(np.mean(weight_NH.argmax(1) == cluster_N))
    auc = float(roc_auc_score(cluster_N, weight_NH[:, 1]))
    return {
        "AUC of attention": max(auc, 1 - auc),
        "argmax point is the cluster": max(agreed, 1 - agreed),
        "weight difference of clusters": float(
            abs(weight_NH[cluster_N == 1, 1].mean() - weight_NH[cluster_N == 0, 1].mean())
        ),
    }


def _point_weights(network: SPIN, task: Task) -> np.ndarray:
    """Attention of one table's queries to inducing points, (N, H).

    It is that of label tokens, summed over latent attributes, the mean over layers and heads.
    """
    readers = [read.attention for read in network.predictor.reader.read]
    with recorded_attention(readers) as maps, torch.no_grad():
        predicted(network, task)
    points = network.config.inducing_points
    found = [_of_points(one, len(task.labels_D), task.labels_D, points) for one in maps]
    weight_NH: np.ndarray = torch.stack(found).mean(0).numpy()
    return weight_NH


def _of_points(map_1GLM: Tensor, columns: int, labels_D: Tensor, points: int) -> Tensor:
    """Attention of queries' label tokens to latent tokens, (1, G, N * D, H * F) -> (N, H)."""
    map_GNDHF = map_1GLM[0].unflatten(1, (-1, columns)).unflatten(-1, (points, -1))
    return map_GNDHF[:, :, labels_D].sum(-1).mean((0, 2))


def _heat_map(weight_NH: np.ndarray, cluster_N: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    order = cluster_N.argsort(kind="stable")
    shown, axes = pyplot.subplots(figsize=(3, 4), layout="constrained")
    image = axes.imshow(weight_NH[order], aspect="auto", vmin=0, vmax=1, interpolation="nearest")
    axes.axhline(np.count_nonzero(cluster_N == 0) - 0.5, color="red")
    axes.set(xlabel="inducing point", ylabel="query, by its cluster", xticks=range(weight_NH.shape[1]))
    shown.colorbar(image, label="attention")
    shown.savefig(path, dpi=120)
    pyplot.close(shown)


class Protein:
    """Scaled features and standardised labels of the Protein table, with scales of the training part."""

    def __init__(self, folder: Path) -> None:
        table = load_table("protein", folder)
        parts = split(table, 0)
        encoder = TableEncoder("quantile").fit(table.features.iloc[parts.train], 0)
        self.label_mean = float(table.target[parts.train].mean())
        self.label_sd = float(table.target[parts.train].std())
        self.rows = {}
        for name, index in (("train", parts.train), ("test", parts.test)):
            label = torch.as_tensor((table.target[index] - self.label_mean) / self.label_sd).float()
            features = encoder.transform(table.features.iloc[index]).value_ND
            self.rows[name] = torch.cat((features, label[:, None]), 1)

    def draw(
        self, part: str, variant: str, count: int, rows: int, generator: torch.Generator, other: bool = False
    ) -> Task:
        """Draw `count` batches of rows, and their context: copies of the rows, or with `other` different
        rows.
        """
        noisy, plus_one = VARIANTS[variant]
        every = self.rows[part]
        query = every[torch.randint(len(every), (count, rows), generator=generator)]
        context = query
        if other:
            context = every[torch.randint(len(every), (count, rows), generator=generator)]
        context, query = context.clone(), query.clone()
        if noisy:
            for side in (context, query):
                noise = side[..., -1 - RANDOM_FEATURES : -1]
                noise.copy_(1 + torch.randn(noise.shape, generator=generator))
        true = query[..., -1:].clone()
        context[..., -1] += float(plus_one)
        query[..., -1] = 0
        order = torch.rand(count, rows, generator=generator).argsort(1)
        context = context.gather(1, order[..., None].expand_as(context))
        return Task(context, query, torch.arange(query.shape[2]) == query.shape[2] - 1, true)


def lookup(
    protein: Protein, variant: str, model: str, seed: int, *, rows: int = 64, steps: int = 3_000
) -> dict[str, Any]:
    """Section 4.2 and appendix B.1.2 of the NPT paper: the context contains copies of the queries with
    labels.

    `variant`: "random_features" (the last three features are noise, N(1, 1), different in both copies),
    "add_one" (the label in the context is one standard deviation higher), "both", "original". `model`: NPT,
    "SPIN h=16" with this number of inducing points, which carry labels, or "paper's SPIN h=16", whose points
    are latent. Test rows are not in training.
    """
    torch.manual_seed(seed)
    started = time.process_time()
    columns = protein.rows["train"].shape[1]
    continuous = tuple(range(columns))

    def draw(count: int, generator: torch.Generator) -> Task:
        return protein.draw("train", variant, count, rows, generator)

    network: Network
    if model == "NPT":
        training = Training(steps, 2, 1e-3)
        network = make_npt(1, columns, 32, 4, continuous=continuous, pieces=16)
        configuration: dict[str, Any] = {"width": 32, "blocks": 1, "heads": 4, "pieces": 16}
    elif model.startswith("SPIN"):
        training = Training(min(steps, CARRYING_STEPS), 2, 3e-3)
        configuration = {
            "width": 16, "heads": 4, "head_width": 16, "inducing_points": int(model.removeprefix("SPIN h=")),
            "rounds": 2, "predictor_layers": 2, "row_width": 64, "members": 8, "dropout": 0.0, "pieces": 16,
        }  # fmt: skip
        network = CarryingNetwork(Schema((0,) * (columns - 1), (False,) * (columns - 1)), 0, **configuration)
    else:
        training = Training(steps, 2, 3e-3)
        config = SPINConfig(
            1, columns, 32, int(model.removeprefix("paper's SPIN h=")), latent_attributes=4, blocks=1,
            predictor="flat", continuous=continuous, pieces=16, heads=8, layer_order="released",
        )  # fmt: skip
        places = protein.draw(
            "train", variant, 1, config.inducing_points, torch.Generator().manual_seed(seed)
        )
        network = make_spin(config, places)
        configuration = asdict(config)
    train(network, draw, squared_error, training, seed)
    generator = torch.Generator().manual_seed(30_000 + seed)
    found: dict[str, float] = {}
    for title, other in (("", False), (" without the copies", True)):
        task = protein.draw("test", variant, 64, rows, generator, other)
        with torch.no_grad():
            said = predicted(network, task)[..., 0].flatten().double()
        true = task.true_BNL.flatten().double()
        error = float((said - true).square().mean().sqrt())
        found |= {
            f"RMSE, standardised{title}": error,
            f"RMSE{title}": error * protein.label_sd,
            f"Pearson r{title}": float(torch.corrcoef(torch.stack((said, true)))[0, 1]),
        }
    return {
        "probe": f"lookup_{variant}", "model": model, "seed": seed,
        "configuration": {"rows": rows, "network": configuration, "training": asdict(training)},
        "parameters": sum(p.numel() for p in network.parameters()),
        "seconds": round(time.process_time() - started, 1), "found": found,
    }  # fmt: skip
