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


def test_never_phasing_refuses_it(run: Run, panel: Path, tmp_path: Path) -> None:
    path = tmp_path / "me.txt"
    path.write_text("".join(f"rs{i}\t20\t{i}\tAC\n" for i in range(1, 4)))
    out = tmp_path / "o.vcf"
    done = run("impute", "--vcf", path, "--panel", panel, "--out", out, "--phasing", "never")
    assert done.code == 2
    assert "20:1, an unphased heterozygote; phase the file first" in done.err
    done = run("impute", "--vcf", path, "--panel", panel, "--out", out)
    assert done.code == 2
    assert "no target site is in the panel" in done.err
    assert not out.exists()
