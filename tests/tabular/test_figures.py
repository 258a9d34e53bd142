"""Figures: their format, and their content."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from spinimpute.runtime.errors import InputError
from spinimpute.tabular.figures import attention_figure, importance_figure


def test_attention_as_png(tmp_path: Path) -> None:
    """Two queries attend to different points: dark and bright cells depend on the order of rows."""
    pictures = []
    for name, order in (("a.png", None), ("b.png", [1, 0]), ("c.PNG", np.array([0, 1]))):
        attention_figure(torch.eye(2), tmp_path / name, order_rows=order)
        pictures.append(imread(tmp_path / name)[..., :3])
    assert (pictures[0] == pictures[2]).all()
    height, width = pictures[0].shape[:2]
    upper, lower, left, right = height // 4, 5 * height // 8, width // 4, 5 * width // 8
    bright, dark = pictures[0][upper, left], pictures[0][upper, right]
    assert bright.sum() > dark.sum() + 0.5
    assert (pictures[0][lower, right] == bright).all()
    assert (pictures[1][upper, left] == dark).all()
    assert (pictures[1][lower, left] == bright).all()


def test_attention_as_svg(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).random((70, 9))
    attention_figure(weights, tmp_path / "a.svg", rows="patients", columns="points")
    text = (tmp_path / "a.svg").read_text()
    assert "<!-- patients -->" in text
    assert "<!-- points -->" in text


def test_the_most_important_is_on_top(tmp_path: Path) -> None:
    names = ["a$b", "_c^$", "d"]
    importance_figure(names, [0.2, 0.1, 0.7], tmp_path / "i.svg")
    text = (tmp_path / "i.svg").read_text()
    height = {
        name: float(re.search(rf"<!-- {re.escape(name)} -->\s*<g [^>]*translate\([\d.]+ ([\d.]+)", text)[1])  # type: ignore[index]
        for name in names
    }
    assert height["d"] < height["a$b"] < height["_c^$"]


def test_only_the_most_important_columns_are_drawn(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(100)]
    importance_figure(names, np.arange(100), tmp_path / "i.svg")
    text = (tmp_path / "i.svg").read_text()
    assert [name for name in names if f"<!-- {name} -->" in text] == names[60:]
    assert "60 columns left out" in text


def test_invalid_figures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 dimensions, got 3"):
        attention_figure(np.ones((2, 3, 4)), tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        importance_figure(["a", "b"], np.ones(3), tmp_path / "a.png")
    with pytest.raises(InputError, match=r"must end with \.png or \.svg"):
        attention_figure(np.ones((2, 3)), tmp_path / "a.pdf")
    with pytest.raises(InputError, match="there is no folder"):
        importance_figure(["a"], np.ones(1), tmp_path / "none" / "a.png")
    assert not list(tmp_path.iterdir())
