"""Two panels of one chromosome and one of another, two regions, and a report, in one command."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spinimpute

Run = Callable[..., Any]
N_SITES = 800
KINDS = {"arrays": "--vcf", "sequenced": "--gl"}


@dataclass(frozen=True)
class Files:
    """Panels of chromosomes 20 (in halves, and merged) and 21, and a target that has both."""

    first: Path
    second: Path
    merged: Path
    other: Path
    target: Path
    regions: tuple[str, str]


def head_and_records(path: Path) -> tuple[list[str], list[list[str]]]:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    head = [line for line in lines if line.startswith("##")]
    return head, [line.split("\t") for line in lines[len(head) :]]


@pytest.fixture(scope="module")
def files(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("halves")
    head, rows = head_and_records(example / "panel.vcf.gz")
    rows = rows[: N_SITES + 1]
    names, genetic_map = rows[0][9:], example / "genetic.map"
    paths = []
    for number, name in enumerate("ab"):
        kept = [row for i, row in enumerate(rows) if i == 0 or i % 13 != 5 * number]
        text = folder / f"{name}.vcf"
        text.write_text("\n".join([*head, *("\t".join(row) for row in kept)]) + "\n")
        paths.append(folder / f"{name}.spin")
        spinimpute.build_panel(text, paths[-1], genetic_map, samples=names[number::2]).close()
    merged, other = folder / "merged.spin", folder / "21.spin"
    spinimpute.merge_panels(paths, merged)
    text = folder / "21.vcf"
    text.write_text(
        paths[0].with_suffix(".vcf").read_text().replace("ID=20", "ID=21").replace("\n20", "\n21")
    )
    with pytest.warns(UserWarning, match="no genetic map"):
        spinimpute.build_panel(text, other, samples=names[:20]).close()
    position = [int(row[1]) for row in rows[1:]]
    regions = (f"20:{position[100]}-{position[399]}", f"21:{position[200]}-{position[499]}")
    head, rows = head_and_records(example / "target.vcf.gz")
    few = [row[:13] for row in rows if row[0] == "#CHROM" or int(row[1]) <= position[-1]]
    target = folder / "target.vcf"
    lines = ["\t".join(row) for row in few] + ["\t".join(["21", *row[1:]]) for row in few[1:]]
    target.write_text("\n".join([head[0], "##contig=<ID=21>", *head[1:], *lines]) + "\n")
    return Files(*paths, merged, other, target, regions)


def records(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("kind", KINDS)
def test_as_with_the_merged_panel(run: Run, files: Files, tmp_path: Path, kind: str) -> None:
    """Records, and what MultiQC and the page are told of them."""
    found: dict[str, list[list[str]]] = {}
    tables: dict[str, Any] = {}
    given = {"halves": (files.first, files.other, files.second), "merged": (files.merged, files.other)}
    for name, panels in given.items():
        (tmp_path / name).mkdir()
        done = run(
            "impute", KINDS[kind], files.target,
            *(word for panel in panels for word in ("--panel", panel)),
            *(word for region in files.regions for word in ("--region", region)),
            "--out", tmp_path / name / "{chrom}.vcf",
            "--report", tmp_path / name / "page.html", "--multiqc", tmp_path / name / "t_mqc.json",
            "--report-figures", tmp_path / name / "figures",
        )  # fmt: skip
        assert done.code == 0, done.err
        found[name] = [records(tmp_path / name / f"{chrom}.vcf") for chrom in ("20", "21")]
        tables[name] = json.loads((tmp_path / name / "t_mqc.json").read_text())["data"]
    assert found["halves"] == found["merged"]
    assert tables["halves"] == tables["merged"]
    assert len(tables["halves"]) == 4
    with spinimpute.Panel.open(files.merged) as merged, spinimpute.Panel.open(files.first) as first:
        checksums = (merged.checksum, first.checksum)
        described = f"a+b.spin: {merged.n_haplotypes} haplotypes, {merged.n_sites:,} sites"
    for region, lines in zip(files.regions, found["halves"], strict=True):
        start, end = map(int, region.partition(":")[2].split("-"))
        position = [int(line.split("\t")[1]) for line in lines]
        assert len(position) > 250
        assert (min(position), max(position)) >= (start, start)
        assert max(position) <= end
    page = (tmp_path / "halves" / "page.html").read_text()
    assert "imputed from 3 panels" in page
    assert described in page, "no name of a temporary file"
    assert all(checksum in page for checksum in checksums)
    assert "Along the chromosomes" in page
    assert list((tmp_path / "halves" / "figures").glob("*.svg"))


def test_a_region_of_one_chromosome_merges_only_its_panels(run: Run, files: Files, tmp_path: Path) -> None:
    """And is a chunk, as a region of a single panel is."""
    out, alone = tmp_path / "o.vcf", tmp_path / "alone.vcf"
    panels = ("--panel", files.first, "--panel", files.other, "--panel", files.second)
    given = ("--vcf", files.target, "--region", files.regions[0], "--quiet")
    assert run("impute", *given, *panels, "--out", out).code == 0
    assert run("impute", *given, "--panel", files.merged, "--out", alone).code == 0
    lines, as_alone = (
        [line for line in path.read_text().splitlines() if "spinimpute_command" not in line]
        for path in (out, alone)
    )
    assert lines == as_alone
    done = run(
        "impute", "--vcf", files.target, "--region", files.regions[1], *panels, "--out", out, "--force"
    )
    assert done.code == 0
    assert "a+b" not in out.read_text() + done.err


@pytest.mark.parametrize("option", ["--report", "--report-figures", "--multiqc"])
def test_what_cannot_be_told_of_regions_with_a_buffer(
    run: Run, files: Files, tmp_path: Path, option: str
) -> None:
    done = run(
        "impute", "--vcf", files.target, "--panel", files.first, "--region", files.regions[0],
        "--region", "20:1-9", "--buffer", "0.1", "--out", tmp_path / "o.vcf", option, tmp_path / "a_mqc.json",
    )  # fmt: skip
    assert done.code == 2
    assert "in --loo, --report, --report-figures or --multiqc. Leave it out" in done.err
    assert list(tmp_path.iterdir()) == []
