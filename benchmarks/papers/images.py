"""Table 19 of the SPIN paper: images whose patches are attributes, each embedded by a linear map.

MNIST and CIFAR-10 are not available. Fashion-MNIST (Debian's dataset-fashion-mnist) and scikit-learn's digits
replace MNIST. The label is a column next to the patches, visible in the context and hidden in queries.

Axes: N rows of a context, Q queries, D columns (patches, then the label), P numbers of a cell, E width of an
embedding, K classes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from benchmarks.device_option import add_device
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import Recipe, parameters, train
from spinimpute.nn.presets import published_network

FASHION = Path("/usr/share/datasets/fashion-mnist")
DIGITS, FASHION_MNIST = "digits", "fashion_mnist"
PATCH = {DIGITS: 2, FASHION_MNIST: 4}  # pixels on a side: 16 and 49 patches
CLASSES = 10
SPLITS_SEED = 5
METHODS = ("SPIN", "NPT", "k-NN")
TRUE, SHUFFLED = "training images", "training images, labels shuffled"
QUERIES_AT_ONCE, MOST_CONTEXT = 1_024, 2_048
VALIDATION = 1_000  # images of Fashion-MNIST that choose weights


class Images(NamedTuple):
    """Patches (N, D - 1, P) between 0 and 1, and labels (N), of the three parts."""

    patches: dict[str, Tensor]
    labels: dict[str, Tensor]


class PatchEmbedding(nn.Module):
    """A linear map for each column from its numbers and mask bit, and a learned embedding."""

    def __init__(self, columns: int, numbers: int, width: int) -> None:
        super().__init__()
        self.weight_DPE = nn.Parameter(torch.randn(columns, numbers + 1, width) / (numbers + 1) ** 0.5)
        self.column_DE = nn.Parameter(torch.randn(columns, width))

    def forward(self, x_BNDP: Tensor, mask_BND: Tensor, side: None = None) -> Tensor:
        shown = x_BNDP.masked_fill(mask_BND[..., None], 0)
        with_bit = torch.cat((shown, mask_BND[..., None].to(shown.dtype)), -1)
        return torch.einsum("bndp,dpe->bnde", with_bit, self.weight_DPE) + self.column_DE


def add_command(commands: Any) -> None:
    sub = commands.add_parser("table19", help="images, patches as attributes")
    sub.set_defaults(cells=table19)
    sub.add_argument("--sets", nargs="+", choices=PATCH, default=list(PATCH))
    sub.add_argument("--seeds", type=int, nargs="+", default=[1])
    sub.add_argument("--steps", type=int, default=Recipe.steps)
    sub = commands.add_parser("image", help="one cell of table19")
    sub.set_defaults(function=one)
    add_device(sub)
    sub.add_argument("name", choices=PATCH)
    sub.add_argument("method", choices=METHODS)
    sub.add_argument("seed", type=int)
    sub.add_argument("--steps", type=int, default=Recipe.steps)


def table19(arguments: argparse.Namespace) -> Iterator[Cell]:
    for seed in arguments.seeds:
        for name in arguments.sets:
            for method in METHODS:
                told = () if method == "k-NN" else (f"{arguments.steps}_steps",)
                words = ("image", name, method, seed, "--steps", arguments.steps)
                yield Cell("table19", (name, method, *told, seed), words)


def load(name: str) -> Images:
    """Load a set of images; raises SystemExit if the files are not installed."""
    if name == DIGITS:
        digits = load_digits()
        order = np.random.default_rng(SPLITS_SEED).permutation(len(digits.target))
        pixels, labels = digits.images[order] / 16, digits.target[order]
        n_test, n_validation = len(order) // 5, len(order) // 10
    else:
        if not FASHION.is_dir():
            raise SystemExit(f"{FASHION} not found (Debian: apt-get install dataset-fashion-mnist)")
        parts = [_idx(FASHION / f"{part}-images-idx3-ubyte.gz") for part in ("t10k", "train")]
        pixels = np.concatenate(parts) / 255
        labels = np.concatenate(
            [_idx(FASHION / f"{part}-labels-idx1-ubyte.gz") for part in ("t10k", "train")]
        )
        n_test, n_validation = len(parts[0]), VALIDATION
    bounds = {"test": (0, n_test), "validation": (n_test, n_test + n_validation)}
    bounds["train"] = (n_test + n_validation, len(labels))
    patches = torch.from_numpy(cut(pixels, PATCH[name])).float()
    label = torch.from_numpy(labels.astype(np.int64))
    return Images(
        {part: patches[low:high] for part, (low, high) in bounds.items()},
        {part: label[low:high] for part, (low, high) in bounds.items()},
    )


def cut(pixels: np.ndarray, side: int) -> np.ndarray:
    """Cut images (N, height, width) into patches (N, patches, side * side), row by row."""
    n, height, width = pixels.shape
    blocks = pixels.reshape(n, height // side, side, width // side, side).transpose(0, 1, 3, 2, 4)
    return blocks.reshape(n, -1, side * side)


def _idx(path: Path) -> np.ndarray:
    """Read an array of bytes in the IDX format."""
    data = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


class ImageNetwork:
    """SPIN or NPT over patches and a label."""

    def __init__(self, method: str, images: Images, recipe: Recipe) -> None:
        device = recipe.device
        patches, labels = ({name: x.to(device) for name, x in parts.items()} for parts in images)
        self.images, self.recipe = Images(patches, labels), recipe
        columns = images.patches["train"].shape[1] + 1
        self.numbers = max(images.patches["train"].shape[2], CLASSES)
        self.is_label_D = torch.arange(columns, device=device) == columns - 1
        self.network = published_network(
            "NPT" if method == "NPT" else "SPIN", CLASSES, columns, width=recipe.width,
            dropout=recipe.dropout, inducing_points=recipe.h, latent_attributes=recipe.f,
            layer_order="released",
        )  # fmt: skip
        self.network.embedding = PatchEmbedding(columns, self.numbers, recipe.width)  # type: ignore[assignment]
        self.network.to(device)

    def rows(self, part: str, chosen: Tensor, label: Tensor) -> Tensor:
        """Return the cells (1, N, D, P) of images with labels."""
        patches = self.images.patches[part][chosen]
        cells = nn.functional.pad(patches, (0, self.numbers - patches.shape[2]))
        labels = nn.functional.one_hot(label, self.numbers).float()
        return torch.cat((cells, labels[:, None]), 1)[None]

    def label_logits(self, context_1NDP: Tensor, query_1QDP: Tensor) -> Tensor:
        """Return logits (Q, K); the labels of the queries are hidden."""
        shown = torch.zeros(context_1NDP.shape[:3], dtype=torch.bool, device=context_1NDP.device)
        hidden = self.is_label_D.expand(query_1QDP.shape[:3])
        logits_1QDK: Tensor = self.network(context_1NDP, shown, query_1QDP, hidden)
        return logits_1QDK[0, :, -1]

    def train(self, seed: int) -> dict[str, Any]:
        recipe, label = self.recipe, self.images.labels["train"]
        generator = torch.Generator().manual_seed(seed)

        def loss(_: int) -> Tensor:
            chosen = torch.randperm(len(label), generator=generator)[: recipe.batch]
            asked = int(recipe.hidden_rows * len(chosen))
            query, context = chosen[:asked], chosen[asked:]
            logits_QK = self.label_logits(
                self.rows("train", context, label[context]), self.rows("train", query, label[query])
            )
            return nn.functional.cross_entropy(logits_QK, label[query])

        def held_out() -> float:
            logits_QK = self.predict("validation", self.context())
            return float(nn.functional.cross_entropy(logits_QK, self.images.labels["validation"]))

        return train(self.network, recipe, loss, held_out)

    def context(self, shuffled: int | None = None) -> Tensor:
        """Return training images (at most MOST_CONTEXT) with their labels, or with shuffled labels."""
        label = self.images.labels["train"][:MOST_CONTEXT]
        if shuffled is not None:
            label = label[torch.randperm(len(label), generator=torch.Generator().manual_seed(shuffled))]
        return self.rows("train", torch.arange(len(label)), label)

    @torch.no_grad()
    def predict(self, part: str, context_1NDP: Tensor) -> Tensor:
        """Return logits (Q, K) of images without their labels."""
        self.network.eval()
        hidden = torch.zeros_like(self.images.labels[part])
        every = torch.arange(len(hidden))
        return torch.cat([
            self.label_logits(context_1NDP, self.rows(part, some, hidden[some]))
            for some in every.split(QUERIES_AT_ONCE)
        ])  # fmt: skip


def one(arguments: argparse.Namespace) -> None:
    """Make one cell, and print it as a line of JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    images = load(arguments.name)
    started = time.process_time()
    told: dict[str, Any] = {"set": arguments.name, "method": arguments.method, "seed": arguments.seed}
    told["images"] = {part: len(label) for part, label in images.labels.items()}
    if arguments.method == "k-NN":
        told |= neighbours(images)
    else:
        told |= network(
            arguments.method, images, arguments.seed, Recipe(steps=arguments.steps, device=arguments.device)
        )
    told["seconds"] = round(time.process_time() - started, 1)
    print(json.dumps(told))


def network(method: str, images: Images, seed: int, recipe: Recipe) -> dict[str, Any]:
    model = ImageNetwork(method, images, recipe)
    log = model.train(seed)
    found = {
        name: accuracy(model.predict("test", model.context(shuffled)).argmax(1).cpu(), images.labels["test"])
        for name, shuffled in ((TRUE, None), (SHUFFLED, seed))
    }
    return {
        "configuration": recipe.as_dict(), "parameters": parameters(model.network), "found": found,
        "training": log,
    }  # fmt: skip


def neighbours(images: Images) -> dict[str, Any]:
    flat = {part: patches.flatten(1).numpy() for part, patches in images.patches.items()}
    fits = {
        k: KNeighborsClassifier(k).fit(flat["train"], images.labels["train"].numpy()) for k in (1, 3, 5, 10)
    }
    right = {k: fit.score(flat["validation"], images.labels["validation"].numpy()) for k, fit in fits.items()}
    best = max(right, key=lambda k: right[k])
    predicted = torch.from_numpy(fits[best].predict(flat["test"]))
    return {
        "configuration": {"n_neighbors": best},
        "found": {TRUE: accuracy(predicted, images.labels["test"])},
    }


def accuracy(predicted: Tensor, true: Tensor) -> float:
    return float((predicted == true).float().mean())
