"""Several panels of one chromosome on the command line."""

import gzip
from pathlib import Path

import pytest

import spinimpute


@pytest.fixture(scope="module")
def halves(example: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two panels with every other person each, and one person, P, in both."""
    folder = tmp_path_factory.mktemp("halves")
    lines = gzip.decompress((example / "panel.vcf.gz").read_bytes()).decode().splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("#CHROM"))
    names = lines[head].split("\t")[9:]
    paths = []
    for number, name in enumerate("ab"):
        paths.append(folder / f"{name}.spin")
        people = [names[0], *names[1 + number :: 2]]
        some = [
            line for i, line in enumerate(lines) if i < head + 1_000 and (i <= head or i % 5 != 2 * number)
        ]
        text = folder / f"{name}.vcf"
        text.write_text("\n".join(some) + "\n")
        spinimpute.build_panel(text, paths[-1], example / "genetic.map", samples=people).close()
    return paths


def test_merge(run, halves, tmp_path):
    out = tmp_path / "ab.spin"
    done = run("panel", "merge", *halves, "--out", out).ok()
    said = (
        "warning: a.spin and b.spin both have 1 samples (panel_AFR_001): 1 have the same haplotypes in both"
    )
    assert said in done.err
    with spinimpute.Panel.open(out) as merged, spinimpute.Panel.open(halves[0]) as first:
        assert f"{out}: {merged.n_haplotypes} haplotypes of {merged.n_samples} samples" in done.err
        assert merged.n_sites > first.n_sites
        assert merged.provenance["command"] == f"spinimpute panel merge {halves[0]} {halves[1]}"
    run("panel", "verify", out).ok()
    assert "a.vcf + b.vcf" in run("panel", "info", out).out
    run("panel", "merge", *halves, "--out", out).refused("--force")
    quiet = run("panel", "merge", *halves, "--out", out, "--force", "--quiet").ok()
    assert all(line.startswith("spinimpute: warning: ") for line in quiet.err.splitlines())


def test_check_says_what_each_has(run, example, halves):
    target = example / "target.vcf.gz"
    done = run("check", "--vcf", target, "--panel", halves[0], "--panel", halves[1]).ok()
    described = done.out.splitlines()[:2]
    for path, line in zip(halves, described, strict=True):
        with spinimpute.Panel.open(path) as panel:
            start = f"panel:    {path.name}: {panel.n_samples} samples, {panel.n_sites} sites, "
        assert line.startswith(start)
        assert line.endswith(" typed sites")
    assert done.out.splitlines()[2].startswith("target:   ")


def test_one_file_cannot_be_merged(run, halves, tmp_path):
    run("panel", "merge", halves[0], "--out", tmp_path / "o.spin").refused(
        "give at least two panels to merge, got 1"
    )
    run("panel", "merge", halves[0], tmp_path / "absent.spin", "--out", tmp_path / "o.spin").refused(
        "absent.spin"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_map_is_not_for_panel_files(run, example, halves, tmp_path):
    given = ("--panel", halves[0], "--panel", halves[1], "--map", example / "genetic.map")
    for command in ("impute", "phase"):
        run(command, "--vcf", example / "target.vcf.gz", *given, "--out", tmp_path / "o.vcf").refused(
            "panel files have their genetic maps in them"
        )
