"""Panels get the map that is better for them: the given one, or one estimated from their haplotypes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.panels.build import MAP_ESTIMATED

pytestmark = pytest.mark.slow


@pytest.fixture
def wrong_map(tmp_path) -> Path:
    """All of the example's recombination in the first tenth of it."""
    path = tmp_path / "wrong.map"
    path.write_text("20 . 0 1\n20 . 1 100000\n20 . 1.001 1000000\n")
    return path


def records(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line[0] != "#"]


def test_a_wrong_map_is_replaced_and_a_right_one_stays(example, example_panel, wrong_map, tmp_path):
    vcf = example / "panel.vcf.gz"
    with (
        spinimpute.build_panel(vcf, tmp_path / "a.spin", wrong_map) as estimated,
        spinimpute.build_panel(vcf, tmp_path / "b.spin", wrong_map, threads=2) as again,
        spinimpute.build_panel(vcf, tmp_path / "c.spin", wrong_map, keep_map=True) as kept,
    ):
        assert MAP_ESTIMATED not in example_panel.provenance
        assert MAP_ESTIMATED not in kept.provenance
        assert 300 < estimated.provenance[MAP_ESTIMATED]["sites"] <= 500
        assert estimated.provenance["map"] == kept.provenance["map"]
        assert estimated.checksum == again.checksum != kept.checksum
        middle = np.searchsorted(kept.position, [200_000, 900_000])
        assert np.ptp(kept.cM[middle]) < 0.002
        assert np.ptp(estimated.cM[middle]) > 0.02
        np.testing.assert_allclose(estimated.cM[[0, -1]], kept.cM[[0, -1]], atol=1e-6)
        np.testing.assert_array_equal(estimated.alleles(0, 50), kept.alleles(0, 50))


def test_no_thread_is_one(example, wrong_map, tmp_path):
    with spinimpute.build_panel(example / "panel.vcf.gz", tmp_path / "a.spin", wrong_map, threads=0) as panel:
        assert MAP_ESTIMATED in panel.provenance


def test_a_missing_map_is_told_of_where_the_panel_is_built(example, tmp_path):
    with pytest.warns(UserWarning, match="no genetic map") as told:
        spinimpute.build_panel(example / "panel.vcf.gz", tmp_path / "a.spin").close()
    assert told[0].filename == __file__


def test_inducing_points_tell_of_the_map_of_their_panel(example, wrong_map, tmp_path):
    with spinimpute.build_panel(example / "panel.vcf.gz", tmp_path / "a.spin", wrong_map) as panel:
        estimated = panel.provenance[MAP_ESTIMATED]
    command = [sys.executable, "-m", "spinimpute", "panel", "build", "--vcf", tmp_path / "a.spin"]
    command += ["--inducing", "8", "--array", example / "array.txt", "--out", tmp_path / "a.spip"]
    subprocess.run(command, check=True, capture_output=True)
    with spinimpute.InducingPanel.open(tmp_path / "a.spip") as points:
        assert points.provenance[MAP_ESTIMATED] == estimated


def test_a_vcf_as_panel_gets_the_same_map(example, wrong_map, tmp_path):
    vcf, target = example / "panel.vcf.gz", example / "target.vcf.gz"
    spinimpute.build_panels(vcf, tmp_path / "a.spin", wrong_map)
    spinimpute.impute(target, tmp_path / "a.vcf", tmp_path / "a.spin")
    spinimpute.impute(target, tmp_path / "b.vcf", vcf, genetic_map=wrong_map)
    assert records(tmp_path / "a.vcf") == records(tmp_path / "b.vcf")


def test_the_command_tells_and_keeps(example, wrong_map, tmp_path):
    def build(out: str, *options: str) -> str:
        command = [sys.executable, "-m", "spinimpute", "panel", "build", "--vcf", example / "panel.vcf.gz"]
        done = subprocess.run(
            [*command, "--map", wrong_map, "--out", tmp_path / out, *options],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stderr

    said = build("a.spin")
    assert re.search(r"estimated from the panel, between \d+ sites: it raises .* by [\d.]+%", said)
    assert "estimated from the panel" not in build("b.spin", "--keep-map")
    assert "estimated" not in build("c.spin", "--quiet")
    information = subprocess.run(
        [sys.executable, "-m", "spinimpute", "panel", "info", tmp_path / "a.spin"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert f"made: {MAP_ESTIMATED}" in information
    with spinimpute.Panel.open(tmp_path / "a.spin") as a, spinimpute.Panel.open(tmp_path / "b.spin") as b:
        assert a.checksum != b.checksum
    assert len(list(tmp_path.glob("*.spin"))) == 3
    assert not list(tmp_path.glob(".*"))
