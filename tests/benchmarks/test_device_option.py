"""The option --device of the benchmarks that train networks."""

import argparse

import pytest
import torch

from benchmarks.device_option import add_device
from benchmarks.papers import __main__ as papers
from benchmarks.papers import elsewhere
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import Recipe, on_cpu
from benchmarks.spin.__main__ import make_parser as make_spin_parser
from spinimpute.runtime import devices


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_device(made)
    return made


def test_the_cpu_is_the_default() -> None:
    assert parser().parse_args([]).device == "cpu"
    assert parser().parse_args(["--device", "cpu"]).device == "cpu"
    assert Recipe().as_dict()["device"] == "cpu"


def test_auto_is_resolved_before_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "name_gpu", lambda: "a GPU")
    monkeypatch.setattr(devices, "GPU_FILES", ("/",))
    assert parser().parse_args(["--device", "auto"]).device == "cuda"


@pytest.mark.parametrize("name", ["gpu", "cuda"])
def test_an_unusable_device_gives_one_message(name, monkeypatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for made, words in (
        (parser(), []),
        (papers.make_parser(), ["table3"]),
        (make_spin_parser(), ["ablation"]),
    ):
        with pytest.raises(SystemExit) as error:
            made.parse_args([*words, "--device", name])
        assert error.value.code == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert "argument --device: device" in message
        assert name in message


def test_cells_are_made_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Cell] = []
    monkeypatch.setattr(papers, "make_cells", lambda cells, *_: made.extend(cells))
    for name in ("table3", "table4", "table11", "table19", "tableA7", "npt4"):
        made.clear()
        arguments = papers.make_parser().parse_args([name, "--device", "cpu"])
        arguments.function(arguments)
        assert made
        for cell in made:
            words = [str(word) for word in cell.words]
            assert words[-2:] == ["--device", "cpu"]
            assert papers.make_parser().parse_args(words).device == "cpu"


def test_commands_of_other_benchmarks_get_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = papers.make_parser().parse_args(["table1", "--show", "--device", "cpu"])
    elsewhere.run(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("--device cpu") for line in lines] == [True, True, False], "memory is of the CPU"


def test_costs_of_a_gpu_are_not_compared() -> None:
    rows = [{"configuration": of} for of in ({}, {"device": "cpu"}, {"device": "cuda"})]
    assert on_cpu(rows) == rows[:2]
