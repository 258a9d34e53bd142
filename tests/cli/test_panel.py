"""`spinimpute panel build | merge | tune | info | verify`."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from spinimpute.genotypes.sites import Region
from spinimpute.panels.panel import Panel
from spinimpute.pipeline.maps.build import build_panels
from spinimpute.runtime.errors import InputError

Run = Callable[..., Any]


def test_arguments(run, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("b b\n\na\r\n")
    with mock.patch("spinimpute.pipeline.maps.build.build_panels", wraps=build_panels) as library:
        failed = run(
            "panel", "build", "--vcf", "p.bcf", "--map", "m.map", "-r", "chr20:1,000-2,000",
            "--samples-file", names, "-o", "o.spin", "--force",
        )  # fmt: skip
    assert failed.code == 2
    assert "p.bcf: there is no such file" in failed.err
    (call,) = library.call_args_list
    given = dict(
        zip(("vcf", "out", "genetic_map", "region", "samples", "force", "command"), call.args, strict=False)
    )
    given |= call.kwargs
    assert [str(given[name]) for name in ("vcf", "out", "genetic_map")] == ["p.bcf", "o.spin", "m.map"]
    assert given["region"] == Region("chr20", 1000, 2000)
    assert given["samples"] == ["b b", "a"]  # one name a line; names may hold blanks
    assert given["force"] is True
    assert given["command"].startswith("spinimpute panel build --vcf p.bcf")
    assert "o.spin" not in given["command"]


@pytest.mark.parametrize(("given", "processes"), [([], 8), (["--threads", 20], 20)])
def test_how_many_processes_read(run, tmp_path, given, processes):
    """On a large machine; each of them takes memory."""
    with (
        mock.patch("spinimpute.runtime.devices.choose_threads", return_value=64),
        mock.patch(
            "spinimpute.pipeline.maps.build.build_panels", side_effect=InputError("content", "stop")
        ) as library,
    ):
        run("panel", "build", "--vcf", "p.bcf", "--out", tmp_path / "o.spin", *given)
    assert library.call_args.args[-2:] == (processes, False)
    assert library.call_args.kwargs == {"keep_map": False, "split_multiallelic": False}
    said = run("panel", "build", "--help").out
    assert "at most 8 processes" in " ".join(said.split())


def test_build_info_verify(run, example, panel, tmp_path):
    out = tmp_path / "p.spin"
    arguments = ("panel", "build", "--vcf", example / "panel.vcf.gz", "--map", example / "genetic.map")
    built = run(*arguments, "--out", out).ok("300 haplotypes")
    assert "warning" not in built.err
    with Panel.open(out) as made, Panel.open(panel) as expected:
        assert made.checksum == expected.checksum
        checksum = made.checksum

    told = run("panel", "info", out).ok()
    for fact in ("20", "259-999886", "4453", "300", "150", checksum, "panel.vcf.gz", "genetic.map"):
        assert fact in told.out

    run("panel", "verify", out).ok()

    run(*arguments, "--out", out).refused("already exists; use --force to overwrite")
    before = out.read_bytes()
    run(*arguments, "--out", out, "--force").ok()
    assert out.read_bytes() == before


def test_a_part_of_the_people_and_sites(run, example, tmp_path):
    names, out = tmp_path / "names.txt", tmp_path / "p.spin"
    names.write_text("panel_EUR_002\npanel_AFR_001\n", encoding="utf-8-sig")  # as Windows writes it
    run(
        "panel", "build", "--vcf", example / "panel.vcf.gz", "--map", example / "genetic.map",
        "--samples-file", names, "--region", "20:100000-200000", "--out", out,
    ).ok()  # fmt: skip
    with Panel.open(out) as made:
        assert made.samples == ["panel_EUR_002", "panel_AFR_001"]
        assert 100_000 <= made.position[0] < made.position[-1] <= 200_000


def test_verify_finds_damage_that_info_does_not_look_for(run, panel, tmp_path):
    copy = tmp_path / "copy.spin"
    content = bytearray(panel.read_bytes())
    content[200] ^= 1  # a haplotype
    copy.write_bytes(content)
    run("panel", "info", copy).ok()
    failed = run("panel", "verify", copy).refused()
    assert failed.err.startswith(f"spinimpute: error: panel {copy}: damaged")


@pytest.mark.parametrize("command", ["info", "verify"])
def test_files_that_are_no_panel(run, example, tmp_path, command):
    for path, said in (
        (tmp_path / "absent.spin", "absent.spin"),
        (tmp_path, str(tmp_path)),
        (example / "panel.vcf.gz", "not a spinimpute panel"),
    ):
        failed = run("panel", command, path).refused()
        assert failed.err.startswith("spinimpute: error: ")
        assert said in failed.err


class TestRefusals:
    @pytest.fixture
    def refused(self, run: Run, example: Path, tmp_path: Path) -> Run:
        def build(**given: object) -> str:
            (tmp_path / "out").mkdir(exist_ok=True)
            options = {"vcf": example / "panel.vcf.gz", "out": tmp_path / "out" / "p.spin"} | given
            arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
            failed = run("panel", "build", *arguments).refused()
            assert failed.err.count("spinimpute: error: ") == 1
            assert not list((tmp_path / "out").iterdir())
            return str(failed.err)

        return build

    def test_samples_file(self, refused, tmp_path):
        names = tmp_path / "names.txt"
        assert "names.txt" in refused(**{"samples-file": names})
        names.write_text("\n \n")
        assert "names.txt" in refused(**{"samples-file": names})
        names.write_bytes(b"\xff\xfe")
        assert "names.txt" in refused(**{"samples-file": names})
        names.write_text("panel_EUR_001\nsomebody\n")
        assert "not in the file: somebody" in refused(**{"samples-file": names})

    def test_other_mistakes(self, refused, tmp_path):
        assert "cannot read the region" in refused(region="20:a")
        assert "no record in 20:5000000-6000000" in refused(region="20:5000000-6000000")
        assert "absent.map" in refused(map=tmp_path / "absent.map")
        assert "absent" in refused(out=tmp_path / "absent" / "p.spin")

    def test_missing_calls(self, refused, example, tmp_path):
        text = gzip.decompress((example / "panel.vcf.gz").read_bytes()).decode()
        holes = tmp_path / "holes.vcf"
        holes.write_text(text.replace("0|1", ".|1"))
        message = refused(vcf=holes)
        assert "sample panel_" in message
        assert "missing" in message


def test_tune(run, example, panel, tmp_path):
    """To the array of a target; imputing from the tuned panel is as accurate on the simulated example."""
    out = tmp_path / "tuned.spin"
    arguments = ("panel", "tune", "--panel", panel, "--array", example / "target.vcf.gz", "--out", out)
    run(*arguments, "--threads", 2).ok()
    run(*arguments).refused("already exists")
    assert "map tuned" in run("panel", "info", out).out
    with Panel.open(out) as made, Panel.open(panel) as source:
        assert not np.allclose(made.cM, source.cM)
    run("panel", "verify", out).ok()
    r2 = {}
    for name, path in (("map", panel), ("tuned", out)):
        vcf = tmp_path / f"{name}.vcf.gz"
        run.impute(example / "target.vcf.gz", path, vcf).ok()
        folder = tmp_path / name
        known = ("--truth", example / "truth.vcf.gz", "--typed", example / "target.vcf.gz", "--panel", panel)
        run("evaluate", "--imputed", vcf, *known, "--out", folder).ok()
        rows = [row.split("\t") for row in (folder / "accuracy.tsv").read_text().splitlines()]
        (r2[name],) = (float(row[3]) for row in rows if row[1] == "all" and row[0] != "allele-frequency")
    assert r2["tuned"] > r2["map"] - 0.005


def test_tune_with_what_is_no_array(run, panel, tmp_path):
    array = tmp_path / "array.txt"
    array.write_text("1 5\n")
    out = tmp_path / "o.spin"
    for given, said in ((array, "none of its 1 sites is in the panel"), (tmp_path / "no", "no such file")):
        run("panel", "tune", "--panel", panel, "--array", given, "--out", out).refused(said)
        assert not out.exists()
    run("panel", "tune", "--panel", array, "--array", array, "--out", out).refused("not a spinimpute panel")


def test_chunks(run, example, tmp_path):
    panel = tmp_path / "p.spin"
    build_panels(example / "panel.vcf.gz", panel, example / "genetic.map")
    shown = run("panel", "chunks", panel, "--length-cm", "0.5").ok()
    lines = [line.split("\t") for line in shown.out.splitlines()]
    assert lines[0] == ["chunk", "region", "sites", "cM", "haplotypes"]
    assert {line[4] for line in lines[1:]} == {"300"}
    with Panel.open(panel) as opened:
        assert sum(int(line[2]) for line in lines[1:]) == opened.n_sites
        assert lines[1][1].startswith(f"{opened.chrom}:{opened.position[0]}-")
        assert lines[-1][1].endswith(f"-{opened.position[-1]}")
    assert [line[0] for line in lines[1:]] == [str(n) for n in range(1, len(lines))]
    overlapping = run("panel", "chunks", panel, "--length-cm", "0.5", "--overlap-cm", "0.1")
    rows = [line.split("\t") for line in overlapping.out.splitlines()]
    assert [row[1].rpartition("-")[2] for row in rows] == [line[1].rpartition("-")[2] for line in lines]
    assert rows[1] == lines[1]
    for row, line in zip(rows[2:], lines[2:], strict=True):
        assert int(row[2]) > int(line[2])
        assert 0 < float(row[3]) - float(line[3]) <= 0.1 + 0.002  # and the step between two chunks
    run("panel", "chunks", panel, "--length-cm", "0.5", "--overlap-cm", "-0.1").refused(
        "an overlap must be at least 0 cM"
    )
    run("panel", "chunks", panel, "--length-cm", "-1").refused("positive length")
