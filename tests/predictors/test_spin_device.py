"""SPIN for GPUs, run by torch on a CPU, against the block-by-block path in numpy."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.blocks import BlockShape, group_means, initial_groups
from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.panel_blocks import BlockReader
from spinimpute.panels.soft_alleles import round_points
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.spin.engine import BlockEngine
from spinimpute.predictors.spin.gpu import engine as gpu_engine
from spinimpute.predictors.spin.gpu.blocks import DeviceBlocks, group_haplotypes, mean_of_groups, unpack_bits
from spinimpute.predictors.spin.gpu.engine import DeviceEngine
from spinimpute.predictors.spin.gpu.rounding import round_on_device
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.runtime.errors import InputError

CPU = torch.device("cpu")
BuildPanel = Callable[..., spinimpute.Panel]


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 60),
    core=st.integers(1, 9),
    flank=st.integers(0, 80),
    count=st.integers(1, 20),
    seed=st.integers(0, 999),
)
@example(n=8, core=1, flank=67, count=2, seed=115)  # a weight between two groups
def test_groups_and_their_means_are_those_of_numpy(
    n: int, core: int, flank: int, count: int, seed: int
) -> None:
    rng, shape = np.random.default_rng(seed), BlockShape(core, flank)
    founders_FS = rng.integers(0, 2, (max(1, n // 2), shape.n_typed), dtype=np.uint8)
    flip_BNS = rng.random((3, n, shape.n_typed)) < 0.5 / shape.n_typed
    typed_BNS = founders_FS[rng.integers(0, len(founders_FS), (3, n))] ^ flip_BNS
    typed_BNS[0, :, : flank // 2] = 0  # padding
    x_BNX = np.concatenate([typed_BNS, rng.integers(0, 2, (3, n, 4), dtype=np.uint8)], axis=2)
    group_BN = group_haplotypes(torch.from_numpy(typed_BNS).mT, count)
    mean_BHX, present_BH = mean_of_groups(torch.from_numpy(x_BNX), group_BN, count)
    for b in range(3):
        expected_N = initial_groups(typed_BNS[b], count, shape)
        np.testing.assert_array_equal(group_BN[b].numpy(), expected_N)
        expected_HX = group_means(x_BNX[b], expected_N)
        np.testing.assert_array_equal(mean_BHX[b, : len(expected_HX)].numpy(), expected_HX)
        np.testing.assert_array_equal(present_BH[b].numpy(), np.arange(count) < len(expected_HX))


def test_bits_are_unpacked_as_by_numpy(rng: np.random.Generator) -> None:
    packed_XB = rng.integers(0, 256, (5, 3), dtype=np.uint8)
    expected = np.unpackbits(packed_XB, axis=1, count=19)
    np.testing.assert_array_equal(unpack_bits(torch.from_numpy(packed_XB), 19).numpy(), expected)


def test_points_are_rounded_as_in_a_file(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor
) -> None:
    typed = np.arange(3, example_panel.n_sites, 20)
    reader = BlockReader(
        example_panel, typed, random_predictor.shape, 0, len(typed), 0, example_panel.n_sites
    )
    block = random_predictor.encode(reader.read(2))
    block = replace(block, points={name: value.copy() for name, value in block.points.items()})
    token_HF, label_HU = block.points["feature_BHF"], block.points["label_BHU"]
    label_HU[0], label_HU[1] = 0.5, np.linspace(0, 1, label_HU.shape[1])
    token_HF[0, :32] = 1 / 32  # ties
    expected = round_points(block).points
    token, label, mass = round_on_device(
        *(torch.from_numpy(x)[None] for x in (block.tokens, label_HU, block.points["mass_BH"]))
    )
    np.testing.assert_array_equal(token[0].flatten(1), expected["feature_BHF"])
    np.testing.assert_array_equal(mass[0], expected["mass_BH"])
    varies_U = (block.sites.frequency_U > 0) & (block.sites.frequency_U < 1)
    np.testing.assert_array_equal(label[0][:, varies_U], expected["label_BHU"][:, varies_U])


@settings(deadline=None, max_examples=50)
@given(members=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_small_differences_decide_no_tie(members: int, seed: int) -> None:
    """Shares, soft alleles and masses of whole haplotypes are often in the middle of two steps."""
    rng = np.random.default_rng(seed)
    count_BHDV = rng.multinomial(members, np.full(8, 1 / 8), size=(1, 20, 3))
    label_BHU = rng.integers(0, members + 1, (1, 20, 30)) / members
    mass_BH = rng.integers(1, 600, (1, 20)).astype(float)
    values = count_BHDV / members, label_BHU, mass_BH

    def rounded() -> tuple[torch.Tensor, ...]:
        noisy = (x * (1 + rng.uniform(-1e-5, 1e-5, x.shape)) for x in values)
        return round_on_device(*(torch.from_numpy(x).float() for x in noisy))

    for one, other in zip(rounded(), rounded(), strict=True):
        assert torch.equal(one, other)


def device_engine_of(predictor: SPINPredictor, job: ImputationJob) -> DeviceEngine:
    blocks = DeviceBlocks(predictor.model, CPU, predictor.inducing_points, predictor.shape)
    return DeviceEngine(blocks, job)


def job_with_missing_calls(panel: spinimpute.Panel, queries: int = 9) -> tuple[ImputationJob, np.ndarray]:
    rng = np.random.default_rng(4)
    typed = np.sort(rng.choice(panel.n_sites, panel.n_sites // 12, replace=False))
    alleles_TQ = panel.alleles(0, panel.n_sites)[typed][:, :queries].astype(np.int8)
    alleles_TQ[rng.random(alleles_TQ.shape) < 0.02] = -1
    return ImputationJob(panel, typed, 2, queries), alleles_TQ


@pytest.mark.parametrize("kind", ["random_predictor", "random_predictor_of_3mers", "shipped"])
def test_probabilities_are_those_of_the_cpu(
    kind: str, example_panel: spinimpute.Panel, request: pytest.FixtureRequest
) -> None:
    """Sums have another order, so a value between two steps may be rounded otherwise, which is rare."""
    options = {"inducing_points": 30}
    predictor = (
        spinimpute.load_predictor(name="spin", options=options, device="cpu")
        if kind == "shipped"
        else request.getfixturevalue(kind)
    )
    job, alleles_TQ = job_with_missing_calls(example_panel)
    window = Interval(37, example_panel.n_sites // 3)
    with BlockEngine(predictor, job) as engine, device_engine_of(predictor, job) as other:
        expected, found = (one.impute_window(window, alleles_TQ) for one in (engine, other))
    difference = np.abs(found - expected)
    assert np.mean(difference > 1e-3) < 1e-4
    assert difference.mean() < 1e-5


def test_windows_and_memory_do_not_matter(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, alleles_TQ = job_with_missing_calls(example_panel)
    n = 1_000
    with device_engine_of(random_predictor, job) as engine:
        whole = engine.impute_window(Interval(0, n), alleles_TQ)
    windows = [Interval(10, 11), Interval(11, n // 2), Interval(n // 2, n // 2 + 40), Interval(n - 50, n)]
    for size in (2**30, 2**22, 2**16):  # the last: single blocks and queries, few haplotypes at a time
        monkeypatch.setattr(gpu_engine, "CPU_BYTES", size)
        with device_engine_of(random_predictor, job) as engine:
            for window, p_UQ in zip(windows, engine.impute_windows(windows, alleles_TQ), strict=True):
                np.testing.assert_allclose(p_UQ, whole[window.slice], atol=1e-3)
                p_UQ[:] = np.nan  # the caller may change its array


def test_without_typed_sites_the_panels_frequencies(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor
) -> None:
    job = ImputationJob(example_panel, np.zeros(0, np.int64), 1, 2)
    with device_engine_of(random_predictor, job) as engine:
        p_UQ = engine.impute_window(Interval(5, 25), np.zeros((0, 2), np.int8))
    np.testing.assert_array_equal(
        p_UQ, np.repeat(example_panel.frequency[5:25, None], 2, 1).astype(np.float32)
    )


def test_constant_sites_have_the_panels_frequency(
    tmp_path: Path, panel_of: BuildPanel, random_predictor: SPINPredictor, rng: np.random.Generator
) -> None:
    alleles_XN = rng.integers(0, 2, (60, 20), dtype=np.uint8)
    alleles_XN[1::4], alleles_XN[20:40] = 1, 0  # a gap without an allele to impute too
    typed = np.arange(0, 60, 5)
    with panel_of(tmp_path / "panel.spin", alleles_XN) as panel:
        job = ImputationJob(panel, typed, 1, 3)
        with device_engine_of(random_predictor, job) as engine:
            p_UQ = engine.impute_window(Interval(0, 60), alleles_XN[typed][:, :3].astype(np.int8))
        constant_U = np.isin(panel.frequency, (0, 1))
        np.testing.assert_array_equal(p_UQ[constant_U], np.repeat(panel.frequency[constant_U, None], 3, 1))
        assert ((p_UQ >= 0) & (p_UQ <= 1)).all()


def test_smaller_batches_when_memory_runs_out(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, alleles_TQ = job_with_missing_calls(example_panel)
    window = Interval(0, 300)
    with device_engine_of(random_predictor, job) as engine:
        expected = engine.impute_window(window, alleles_TQ)
    sizes = []
    predict = DeviceBlocks.predict

    def limited(self: DeviceBlocks, batch, points, columns, typed_TQ, n_queries):  # type: ignore[no-untyped-def]
        sizes.append(len(batch.n_sites_B))
        if sizes[-1] > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return predict(self, batch, points, columns, typed_TQ, n_queries)

    monkeypatch.setattr(DeviceBlocks, "predict", limited)
    most = 2
    with device_engine_of(random_predictor, job) as engine:
        found = engine.impute_window(window, alleles_TQ)
    assert sizes[0] > 2 >= min(sizes) > 0
    np.testing.assert_allclose(found, expected, atol=1e-3)
    most = 0
    with (
        device_engine_of(random_predictor, job) as engine,
        pytest.raises(InputError, match="too little free memory"),
    ):
        engine.impute_window(window, alleles_TQ)


def test_a_model_that_is_not_finite(example_panel: spinimpute.Panel, random_predictor: SPINPredictor) -> None:
    job, alleles_TQ = job_with_missing_calls(example_panel)
    with torch.no_grad():
        random_predictor.model.log_sharpness.fill_(float("nan"))
    with device_engine_of(random_predictor, job) as engine, pytest.raises(InputError, match="not finite"):
        engine.impute_window(Interval(0, 100), alleles_TQ)
