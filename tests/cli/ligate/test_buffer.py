"""`impute --region --buffer`: what a chunk uses, and what its header says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spinimpute

REGIONS = ((1, 40_000), (500_000, 560_000), (790_001, 2_000_000))
Run = Callable[..., Any]


def test_only_sites_nearby_are_used(run: Run, dense_target: Path, panel: Path, tmp_path: Path) -> None:
    text = dense_target.read_text()
    unphased = tmp_path / "unphased.vcf"
    unphased.write_text(re.sub(r"\t([01])\|([01])", lambda m: "\t" + "/".join(sorted(m.groups())), text))
    common = ("impute", "--vcf", unphased, "--panel", panel, "--region", "20:1-50000")
    counts = []
    for buffer in ("0.1", "10"):
        out = tmp_path / f"{buffer}.vcf"
        done = run(*common, "--buffer", buffer, "--out", out)
        assert done.code == 0, done.err
        (used,) = re.findall(r"(\d+) of them are used for the region", done.err)
        (phased,) = re.findall(r"phased:   (\d+) unphased", done.err)
        counts.append((int(used), int(phased)))
        assert f"--buffer {float(buffer)}" in out.read_text()
    assert counts[0][0] < counts[1][0] == 2227
    assert counts[0][1] < counts[1][1]
    assert run(*common, "--out", tmp_path / "all.vcf").code == 0
    assert records(tmp_path / "10.vcf") == records(tmp_path / "all.vcf")


@pytest.mark.parametrize("through", ["as it is", "convert", "phase"])
def test_results_of_a_phased_target_are_those_of_a_single_run(
    dense_target: Path, opened: Any, tmp_path: Path, impute: Any, through: str
) -> None:
    """Whatever the buffer: chunks of typed sites lie where they lie among all."""
    target, read = dense_target, 2227
    if through != "as it is":
        target = tmp_path / "ours.vcf.gz"
        getattr(spinimpute, through)(dense_target, target, opened)
    expected = records(impute(target, tmp_path / "whole.vcf", opened))
    seen = []
    for number, (start, end) in enumerate(REGIONS):
        out = tmp_path / f"{number}.vcf"
        output = spinimpute.OutputSettings(("GT", "DS", "HDS", "GP"))
        for buffer in (0, 0.2):
            region = {"region": f"20:{start}-{end}", "buffer_cM": buffer, "output": output}
            part = spinimpute.impute(target, out, opened, threads=1, force=True, **region)
            among = [line for line in expected if start <= int(line.split("\t")[1]) <= end]
            assert records(out) == among
            seen.append((part.used_sites, part.typed_sites))
    assert min(used for used, _ in seen) < read / 2
    # of what we wrote a part is read, of others' files all
    assert (min(typed for _, typed in seen) < read) == (through != "as it is")
    assert all(used <= typed <= read for used, typed in seen)


def test_inducing_points_too(dense_target: Path, opened: Any, tmp_path: Path, impute: Any) -> None:
    points, ours = tmp_path / "points.spip", tmp_path / "ours.vcf.gz"
    spinimpute.build_inducing_panel(opened, points, dense_target, inducing_points=8)
    spinimpute.convert(dense_target, ours, points)
    expected = records(impute(ours, tmp_path / "whole.vcf", points))
    for start, end in REGIONS[:2]:
        out = tmp_path / f"{start}.vcf"
        part = spinimpute.impute(
            ours,
            out,
            points,
            region=f"20:{start}-{end}",
            buffer_cM=0,
            output=spinimpute.OutputSettings(("GT", "DS", "HDS", "GP")),
        )
        assert records(out) == [line for line in expected if start <= int(line.split("\t")[1]) <= end]
        assert part.typed_sites < 2227 / 2


def test_a_file_that_has_been_cut_since(run: Run, dense_target: Path, panel: Path, tmp_path: Path) -> None:
    """Its header tells of chunks that it lacks."""
    ours, cut, out = (tmp_path / name for name in ("ours.vcf", "cut.vcf", "o.vcf"))
    spinimpute.convert(dense_target, ours, panel)
    lines = ours.read_text().splitlines(keepends=True)
    cut.write_text("".join(x for x in lines if x[0] == "#" or int(x.split("\t")[1]) > 700_000))
    region = ("impute", "--vcf", cut, "--panel", panel, "--out", out, "--region", "20:1-50000", "--buffer")
    failed = run(*region, 0)
    assert failed.code == 2
    assert "give a longer --buffer" in failed.err
    assert not out.exists()
    assert run(*region, 5).code == 0


def records(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line[0] != "#"]


def test_region_in_the_header(made: Path, opened: Any, content: Any) -> None:
    lines = [line for line in content(made / "a1.vcf").decode().splitlines() if "spinimpute_region" in line]
    n_sites = int(((opened.position >= 300001) & (opened.position <= 712345)).sum())
    assert lines == [f"##spinimpute_region=20:300001-712345 sites={n_sites}"]
    assert b"spinimpute_region" not in content(made / "whole.vcf")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--buffer", "1"], "give --region"),
        (["--buffer", "-1", "--region", "20:1-9000"], "at least 0 cM"),
        (["--buffer", "nan", "--region", "20:1-9000"], "at least 0 cM"),
    ],
)
def test_refusals(
    run: Run, example: Path, panel: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    vcf = example / "target.vcf.gz"
    failed = run("impute", "--vcf", vcf, "--panel", panel, "--out", tmp_path / "o.vcf", *options)
    assert failed.code == 2
    assert said in failed.err
    assert not list(tmp_path.iterdir())
