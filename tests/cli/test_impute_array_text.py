"""`impute` given the text file of a consumer array."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cyvcf2
import numpy as np
import pytest

import spinimpute

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("panel") / "panel.spin"
    spinimpute.build_panel(EXAMPLE / "panel.vcf.gz", path, EXAMPLE / "genetic.map").close()
    return path


def dosages(path: Path) -> np.ndarray:
    return np.concatenate([record.format("DS")[:, 0] for record in cyvcf2.VCF(str(path))])


def test_the_same_as_from_a_vcf(run: Run, panel: Path, tmp_path: Path) -> None:
    text = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode()
    calls, lines = [], []
    for line in text.splitlines():
        fields = line.split("\t")
        if line.startswith("##"):
            lines.append(line)
            continue
        if line.startswith("#"):
            lines.append("\t".join([*fields[:9], "me"]))
            continue
        alleles = sorted(fields[9].split("|"))
        lines.append("\t".join([*fields[:9], "/".join(alleles)]))
        calls.append(
            f"{fields[2]}\t{fields[0]}\t{fields[1]}\t{''.join(fields[3 + int(a)] for a in alleles)}\n"
        )
    (tmp_path / "me.vcf").write_text("\n".join(lines) + "\n")
    (tmp_path / "me.txt").write_text("# rsid\tchromosome\tposition\tgenotype\n" + "".join(calls))
    for name in ("vcf", "txt"):
        out = tmp_path / f"{name}.vcf.gz"
        done = run("impute", "--vcf", tmp_path / f"me.{name}", "--panel", panel, "--out", out)
        assert done.code == 0, done.err
        assert "246 of 246 typed sites" in done.err
    assert cyvcf2.VCF(str(tmp_path / "txt.vcf.gz")).samples == ["me"]
    np.testing.assert_array_equal(dosages(tmp_path / "txt.vcf.gz"), dosages(tmp_path / "vcf.vcf.gz"))
    done = run("check", "--vcf", tmp_path / "me.txt", "--panel", panel)
    assert done.code == 0
    assert "matched:  246 of 246" in done.out


def test_lines_of_the_same_site_are_merged(run: Run, panel: Path, tmp_path: Path) -> None:
    """Arrays have several probes of some sites."""
    rows = [
        line.split("\t")
        for line in gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
        if not line.startswith("#")
    ]
    lines = [f"{r[2]}\t20\t{r[1]}\t{''.join(r[3 + int(a)] for a in r[9][:3].split('|'))}\n" for r in rows]
    place = "\t".join(lines[100].split("\t")[:3])
    ref, alt = rows[100][3:5]
    cases = {
        "doubled": ([f"{place}\t--\n", lines[100]], [lines[100]]),
        "contradictory": ([f"{place}\t{ref}{ref}\n", f"{place}\t{alt}{alt}\n"], [f"{place}\t--\n"]),
    }
    for name, (several, one) in cases.items():
        found = []
        for number, those in enumerate((several, one)):
            target, out = tmp_path / f"{name}{number}.txt", tmp_path / f"{name}{number}.vcf"
            target.write_text("# rsid\tchromosome\tposition\tgenotype\n")
            with target.open("a") as file:
                file.write("".join([*lines[:100], *those, *lines[101:]]))
            done = run("impute", "--vcf", target, "--panel", panel, "--out", out)
            assert done.code == 0, done.err
            found.append(dosages(out))
            said = "1 contradictory calls of records of the same site: set missing"
            assert (said in done.err) == (name == "contradictory" and not number)
        np.testing.assert_array_equal(*found)


def test_never_phasing_refuses_it(run: Run, panel: Path, tmp_path: Path) -> None:
    path = tmp_path / "me.txt"
    path.write_text("".join(f"rs{i}\t20\t{i}\tAC\n" for i in range(1, 4)))
    out = tmp_path / "o.vcf"
    done = run("impute", "--vcf", path, "--panel", panel, "--out", out, "--phasing", "never")
    assert done.code == 2
    assert "20:1, an unphased heterozygote. Phase the file first" in done.err
    done = run("impute", "--vcf", path, "--panel", panel, "--out", out)
    assert done.code == 2
    assert "no target site is in the panel" in done.err
    assert not out.exists()
