"""Who is ahead, and what is kept of commands."""

import sys
from pathlib import Path

import pytest

from benchmarks.imputation.programs import our_imputers
from benchmarks.imputation.results import scrubbed
from benchmarks.imputation.scale_report import growth
from benchmarks.imputation.scoring import Accuracy
from benchmarks.imputation.tables import ahead_table, error_ratio

NAN = float("nan")


def rows(values: dict[str, tuple[float, float]]) -> list[Accuracy]:
    names = ("all", "(0,0.5]")
    return [
        Accuracy(label, name, 5, r2, r2 / 2, 0.5, 0)
        for label, of_label in values.items()
        for name, r2 in zip(names, of_label, strict=True)
    ]


def test_ahead_of_the_better_peer() -> None:
    table = ahead_table(
        rows({"Beagle": (0.9, NAN), "Minimac4": (0.8, 0.3), "ours": (0.92, 0.3), "other": (0.85, NAN)})
    )
    lines = table.splitlines()
    assert lines[2] == "| ours | pooled r² | yes (+0.0200, Beagle) | no (+0.0000, Minimac4) |"
    assert lines[4] == "| other | pooled r² | no (-0.0500, Beagle) | – |"


def test_error_ratio() -> None:
    found = rows({"Beagle": (0.9, 0.1), "Minimac4": (0.8, 0.3), "ours": (0.95, 0.3)})
    assert error_ratio(found, "ours") == pytest.approx(0.5)


def test_commands_name_no_local_folder() -> None:
    places = {Path("/data/me/scratch"): "WORK", Path("/data/me"): "HOME"}
    command = [
        sys.executable,
        "-m",
        "spinimpute.cli.main",
        "--out",
        "/data/me/scratch/a.bcf",
        "--model",
        "/opt/x/m.safetensors",
    ]
    assert scrubbed(command, places) == "python -m spinimpute.cli.main --out WORK/a.bcf --model m.safetensors"
    assert scrubbed(["beagle", "map=/data/me/x.map"], places) == "beagle map=HOME/x.map"
    piped = ["sh", "-c", "bcftools view /data/me/scratch/p.bcf | bref3 > /var/tmp/p"]
    assert scrubbed(piped, places) == "sh -c 'bcftools view WORK/p.bcf | bref3 > p'"
    assert (
        scrubbed(["--ours", "a=--model /opt/x/m.safetensors"], places) == "--ours 'a=--model m.safetensors'"
    )


def test_configurations_of_ours() -> None:
    (default,) = our_imputers([])
    assert (default.label, default.arguments) == ("spinimpute", ())
    one, two = our_imputers(["fast=", "with points=--inducing-points 64 --model 'my file'"])
    assert one.arguments == ()
    assert (two.label, two.arguments) == ("with_points", ("--inducing-points", "64", "--model", "my file"))
    for wrong in (["fast"], ["=--x"], ["a=", "a="], ["Beagle="]):
        with pytest.raises(SystemExit):
            our_imputers(wrong)


def test_growth_is_the_power() -> None:
    assert growth([10, 100, 1_000], [3, 30, 300]) == pytest.approx(1)
    assert growth([10, 100, 1_000], [5, NAN, 5 * 100**0.5]) == pytest.approx(0.5)
    assert growth([10, 100], [3, NAN]) != growth([10, 100], [3, NAN])
