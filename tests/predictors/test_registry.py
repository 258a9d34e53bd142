"""The registry: each row loads, options belong to predictors, and a row is all that a new one needs."""

import dataclasses
import subprocess
import sys
from collections.abc import Generator, Sequence
from importlib import import_module
from pathlib import Path

import cyvcf2
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.file_kind import HAPLOTYPES, INDUCING_POINTS
from spinimpute.predictors import loading, registry
from spinimpute.predictors.interface import Checkpoint, Engine, ImputationJob, Predictor, panel_frequencies
from spinimpute.predictors.loading import FORMAT, environment, load_predictor, predictor_for
from spinimpute.predictors.registry import (
    PREDICTORS,
    Option,
    PredictorRow,
    Training,
    import_attribute,
    option_help,
    options_by_name,
    row_by_kind,
    row_by_name,
)
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.predictors.train import read_configuration
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors

SHIPPED = [row for row in PREDICTORS if row.shipped is not None]


class Frequencies(Engine):
    def predict_windows(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        for window in windows:
            p_UQ = panel_frequencies(self.job.panel.frequency, window, typed_TQ.shape[1])
            yield p_UQ * np.float32(self.job.options["share"])


class FrequencyPredictor(Predictor):
    kind, fingerprint = "probe", "none"

    def engine(self, job: ImputationJob) -> Frequencies:
        return Frequencies(job)


def load(checkpoint: Checkpoint) -> FrequencyPredictor:
    assert not checkpoint.weights
    return FrequencyPredictor()


SHARE = Option("share", "number", "Of the frequency.", default=1.0, rule="a share must be at least 0")
PROBE = PredictorRow(
    "probe",
    "the panel's allele frequencies",
    kind="probe",
    reads=(HAPLOTYPES, INDUCING_POINTS),
    load="probe_predictor:load",
    has_weights=False,
    options=(SHARE,),
)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> PredictorRow:
    """A row of the registry and nothing else: the predictor is a module of its own."""
    monkeypatch.setitem(sys.modules, "probe_predictor", sys.modules[__name__])
    monkeypatch.setattr(registry, "PREDICTORS", (*PREDICTORS, PROBE))
    return PROBE


def test_names_and_kinds_are_unique() -> None:
    for field in ("name", "kind"):
        found = [getattr(row, field) for row in PREDICTORS]
        assert len(set(found)) == len(found)
    for row in PREDICTORS:
        assert row_by_name(row.name) is row_by_kind(row.kind) is row
    assert row_by_kind("unknown") is None
    names = [row.name for row in PREDICTORS]
    with pytest.raises(InputError, match=f"predictor must be {' or '.join(names)}, got 'x'"):
        row_by_name("x")


@pytest.mark.parametrize("row", PREDICTORS, ids=lambda row: row.name)
def test_objects_named_in_rows_exist(row: PredictorRow) -> None:
    assert callable(import_attribute(row.load))
    if row.training is None:
        return
    settings = import_attribute(row.training.settings)
    assert dataclasses.is_dataclass(settings)
    assert settings()
    assert all(hasattr(import_attribute(row.training.learner), name) for name in ("draw", "outcome"))


@pytest.mark.parametrize("row", SHIPPED, ids=lambda row: row.name)
def test_shipped_models_load(row: PredictorRow) -> None:
    _, metadata = load_tensors(row.shipped_checkpoint, FORMAT, "model")
    assert metadata["kind"] == row.kind
    for predictor in (load_predictor(name=row.name), load_predictor(row.shipped_checkpoint)):
        assert isinstance(predictor, Predictor)
        assert predictor.kind == row.kind
        assert predictor.device_name == "cpu"
        assert predictor.fingerprint.startswith(load_predictor(name=row.name).fingerprint)


def test_the_rows_need_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, spinimpute.predictors.registry; sys.exit(bool({'torch', 'numpy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("row", PREDICTORS, ids=lambda row: row.name)
def test_an_option_of_others_is_an_error(row: PredictorRow) -> None:
    for option in options_by_name().values():
        if row.has_option(option.name):
            assert row.choose_options({option.name: 7})[option.name] == 7
            assert row.choose_options({}).keys() == {option.name for option in row.options}
            with pytest.raises(InputError, match=f"{option.rule}, got -1"):
                row.choose_options({option.name: -1})
        else:
            with pytest.raises(InputError, match=f"'{row.name}' does not take {option.flag} "):
                row.choose_options({option.name: option.minimum + 1})
    with pytest.raises(InputError, match=f"'{row.name}' has no option 'depth'; its options: "):
        row.choose_options({"depth": 3})


def test_help_of_options() -> None:
    assert option_help("max_memory").endswith("Only for haplotype.")
    assert option_help("window_cM").endswith("Default: what memory allows (haplotype), 2 (spin).")
    assert options_by_name()["inducing_points"].flag == "--inducing-points"


def test_a_number_of_inducing_points_chooses_them(example_panel: spinimpute.Panel) -> None:
    chosen, options = predictor_for(example_panel, options={"inducing_points": 8, "window_cM": None})
    assert (chosen.kind, options["inducing_points"], options["window_cM"]) == ("spin", 8, 2.0)
    with pytest.raises(InputError, match="'haplotype' does not take --inducing-points"):
        predictor_for(example_panel, name="haplotype", options={"inducing_points": 8})
    assert predictor_for(example_panel)[0].kind == "haplotype"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("inducing_points", "x", "inducing_points must be a whole number, got 'x'"),
        ("inducing_points", 2.5, "inducing_points must be a whole number, got 2.5"),
        ("inducing_points", True, "inducing_points must be a whole number, got True"),
        ("window_cM", "2", "window_cM must be a number, got '2'"),
        ("max_memory", "2G", "max_memory must be a whole number, got '2G'"),
    ],
)
def test_values_that_are_no_numbers(option: str, value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        options_by_name()[option].check(value)
    options_by_name()[option].check(np.int64(2))


def test_options_of_loading_and_of_imputing(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor
) -> None:
    with pytest.raises(InputError, match="inducing_points is an option of loading"):
        predictor_for(example_panel, random_predictor, options={"inducing_points": 8})
    with pytest.raises(InputError, match="window_cM is an option of imputing"):
        load_predictor(name="spin", options={"window_cM": 1.0})
    with pytest.raises(InputError, match="the number of inducing points must be at least 2, got 1"):
        load_predictor(options={"inducing_points": 1})


def test_models_of_other_predictors(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"kind 'spin' and does not fit the predictor 'haplotype'"):
        predictor_for(example_panel, random_predictor, "haplotype")
    with pytest.raises(InputError, match=r"kind 'haplotype' and does not fit the predictor 'spin'"):
        predictor_for(example_panel, load_predictor(), "spin")
    monkeypatch.setattr(random_predictor, "kind", "of my own")
    with pytest.raises(InputError, match="'of my own', which has no row in the registry"):
        predictor_for(example_panel, random_predictor)


def test_a_row_is_all_that_a_new_predictor_needs(
    probe: PredictorRow, example: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    """Its options are those of the command, too."""
    sys.modules.pop("spinimpute.cli.impute", None)  # reads the registry when it is import_attribute
    try:
        command = import_module("spinimpute.cli.impute").impute
    finally:
        del sys.modules["spinimpute.cli.impute"]
    target, out = str(example / "target.vcf.gz"), str(tmp_path / "o.vcf")
    given = ["--vcf", target, "--panel", str(example_panel.path), "--out", out, "--predictor", "probe"]
    given += ["--share", "0.5", "--decimals", "5", "--quiet"]
    done = CliRunner().invoke(command, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(command, ["--help"], terminal_width=1_000).output
    assert "probe: the panel's allele frequencies" in shown
    typed, vcf = {v.POS for v in cyvcf2.VCF(target)}, cyvcf2.VCF(out)
    assert "##spinimpute_model=probe none cpu\n" in vcf.raw_header
    # half of the frequency, drawn towards it where the panel's alleles contradict those around them
    expected_S = example_panel.frequency * (2 - example_panel.prediction_trust)
    for record, expected in zip(vcf, expected_S, strict=True):
        if record.POS not in typed:
            np.testing.assert_allclose(record.format("DS")[:, 0], expected, atol=1.1e-5)


def test_faults_of_a_predictor_are_not_called_damage(
    probe: PredictorRow, example_panel: spinimpute.Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a fault of its own")

    monkeypatch.setattr(sys.modules["probe_predictor"], "load", fails)
    with pytest.raises(ValueError, match="a fault of its own"):
        predictor_for(example_panel, name=probe.name)
    monkeypatch.setitem(sys.modules, "probe_predictor", None)
    with pytest.raises(ImportError):
        predictor_for(example_panel, name=probe.name)


@pytest.mark.parametrize("name", ["haplotype", "spin"])
def test_a_device_without_memory_is_not_called_damage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(loading, "choose_device", lambda device: "cuda")
    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_predictor(name=name)


def test_a_new_predictor_has_regions_arrays_and_inducing_panels(
    probe: PredictorRow, dense_target: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    settings, region = spinimpute.PredictorSettings(probe.name), spinimpute.RegionSettings("20:1-50000", 0.1)
    ours = tmp_path / "ours.vcf.gz"
    spinimpute.convert(dense_target, ours, example_panel)
    part = spinimpute.impute(ours, tmp_path / "o.vcf", example_panel, predictor=settings, region=region)
    assert 0 < part.typed_sites < 2227 / 2
    index = np.arange(7, 4_400, 45)
    alleles = np.full((len(index), 3), -1)
    with spinimpute.build_inducing_panel(example_panel, tmp_path / "p.spip", index, 8) as made:
        for panel in (example_panel, made):
            p_XQ = spinimpute.impute_haplotypes(panel, alleles, index, settings)
            np.testing.assert_allclose(p_XQ, example_panel.frequency[:, None].repeat(3, 1), rtol=1e-6)


def test_a_new_predictor_is_trained_and_has_a_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = row_by_name("haplotype")
    training = Training(
        "spinimpute.predictors.haplotype_attention.settings:HaplotypeSettings", "probe_predictor:none"
    )
    row = dataclasses.replace(PROBE, shipped=shipped.shipped, training=training)
    monkeypatch.setattr(registry, "PREDICTORS", (*PREDICTORS, row))
    versions = environment()
    assert versions["model probe"] == versions["model haplotype"]
    configuration = tmp_path / "probe.toml"
    configuration.write_text('[model]\nkind = "probe"\nhidden = 8\n')
    assert read_configuration(configuration).model.hidden == 8


def test_a_new_predictor_takes_its_own_options_alone(
    probe: PredictorRow, example: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    for options, resources, said in (
        ({"inducing_points": 8}, {}, "'probe' does not take --inducing-points"),
        ({"share": -1.0}, {}, "a share must be at least 0, got -1.0"),
        ({}, {"max_memory": 10**10}, "'probe' does not take --max-memory"),
        ({}, {"device": "cuda"}, "'probe' only computes on the processor"),
    ):
        with pytest.raises(InputError, match=said):
            spinimpute.impute(
                example / "target.vcf.gz",
                tmp_path / "o.vcf",
                example_panel,
                predictor=spinimpute.PredictorSettings(probe.name, options=options),
                resources=spinimpute.Resources(**resources),
            )
    with pytest.raises(InputError, match="has no weights"):
        load_predictor(tmp_path / "m.safetensors", name=probe.name)
    with pytest.raises(InputError, match="'haplotype' does not take --share"):
        predictor_for(example_panel, options={"share": 1.0})
    assert not list(tmp_path.iterdir())
