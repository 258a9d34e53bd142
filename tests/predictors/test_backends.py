"""Every compiled backend is listed with a test, and dense layers and alleles of classes are right."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.hmm.parameters import LANES
from spinimpute.predictors.haplotype_attention.layers import dense, dense_relu, padded, transposed
from spinimpute.predictors.haplotype_attention.learner import _fill_class_alleles

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
INSTANCES = {"spinimpute.nn.carrying", "spinimpute.nn.points"}


def rows_after(line: str) -> list[list[str]]:
    """Cells of the first table after a line of the page, without backticks."""
    table = PAGE[PAGE.index(line) :].partition("| --- |")[2].partition("\n\n")[0]
    return [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in table.splitlines()[1:]]


BACKENDS = rows_after("## Compiled backends")


def compiled_modules() -> Iterator[str]:
    for package in ("predictors", "nn"):
        for path in (ROOT / "spinimpute" / package).rglob("*.py"):
            functions = (
                node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
            )
            decorators = {
                ast.unparse(one).partition("(")[0] for node in functions for one in node.decorator_list
            }
            if decorators & {"kernel", "triton.jit"}:
                yield str(path.relative_to(ROOT / "spinimpute"))


def test_every_module_with_kernels_is_listed_with_a_test() -> None:
    assert sorted(module for module, *_ in BACKENDS) == sorted(compiled_modules())
    for _, function, test in BACKENDS:
        file, _, name = test.partition(".")
        text = (ROOT / "tests" / "predictors" / f"{file}.py").read_text()
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), test
        if function:
            package = "" if function.startswith("torch.") else "spinimpute."
            assert callable(resolve_name(package + function))


def test_every_instance_uses_the_engine() -> None:
    networks = {cells[1] for cells in rows_after("An instance chooses four parts")}
    for network in networks:
        imported = {
            node.module
            for node in ast.walk(ast.parse((ROOT / "spinimpute" / network).read_text()))
            if isinstance(node, ast.ImportFrom)
        }
        assert imported & INSTANCES, network
    assert len(networks) == 4


@settings(deadline=None, max_examples=20)
@given(inputs=st.integers(1, 9), outputs=st.integers(1, 20), n=st.integers(1, 40), seed=st.integers(0, 1_000))
def test_dense_layers_are_those_of_torch(inputs: int, outputs: int, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    layer, x_PI = torch.nn.Linear(inputs, outputs), torch.randn(n, inputs)
    with torch.no_grad():
        expected_PO = layer(x_PI)
        weight_IO, bias_O = transposed(layer.weight.numpy()), padded(layer.bias.numpy())
    x_IP = np.ascontiguousarray(np.pad(x_PI.T.numpy(), ((0, 0), (0, -n % LANES))))
    for function, expected in ((dense, expected_PO), (dense_relu, expected_PO.relu())):
        out_OP = np.full((len(bias_O), x_IP.shape[1]), np.nan, np.float32)
        function(weight_IO, bias_O, x_IP, n, out_OP)
        np.testing.assert_allclose(out_OP[:outputs, :n].T, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_alleles_of_classes_are_means_of_their_members(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count_QGK = rng.integers(0, 4, (3, 2, 5)).astype(np.float32)
    first_QGK = (count_QGK.cumsum() - count_QGK.ravel()).astype(np.int32).reshape(count_QGK.shape)
    member_M, sibling_N = rng.integers(0, 12, int(count_QGK.sum())), rng.permutation(12)
    alleles_GUN = rng.integers(0, 2, (2, 6, 12)).astype(np.int8)
    alleles_QGUK, sibling_QGUK = np.zeros((2, 3, 2, 6, 5), np.float32)
    _fill_class_alleles(first_QGK, count_QGK, member_M, sibling_N, alleles_GUN, alleles_QGUK, sibling_QGUK)
    for q, g, k in np.ndindex(count_QGK.shape):
        members = member_M[first_QGK[q, g, k] :][: int(count_QGK[q, g, k])]
        for found_U, haplotypes in (
            (alleles_QGUK[q, g, :, k], members),
            (sibling_QGUK[q, g, :, k], sibling_N[members]),
        ):
            expected_U = alleles_GUN[g][:, haplotypes].mean(1) if len(members) else np.zeros(6)
            np.testing.assert_allclose(found_U, expected_U, rtol=1e-6)
