"""Commands of the papers' tables that other benchmarks make: these know the commands and their options."""

import re
import sys
from importlib import import_module

import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import elsewhere

LINES = sorted({tuple(line) for _, lines in elsewhere.COMMANDS.values() for line in lines})


@pytest.mark.parametrize(("module", "command"), sorted({line[:2] for line in LINES}))
def test_other_benchmarks_know_the_commands(module, command, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [module, command, "--help"])
    with pytest.raises(SystemExit) as left:
        import_module(f"{module}.__main__").main()
    assert left.value.code == 0
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for line in LINES:
        if line[:2] == (module, command):
            assert {word for word in line if word.startswith("--")} <= known
    assert ("--data" in known) == (command in elsewhere.NEEDS_DATA)


@pytest.mark.parametrize("name", elsewhere.COMMANDS)
def test_they_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = papers.make_parser().parse_args([name, "--show"])
    arguments.function(arguments)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in shown] == [line[0] for line in elsewhere.COMMANDS[name][1]]
