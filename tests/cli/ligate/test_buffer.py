"""`impute --region --buffer`: what a chunk uses, and what its header says."""

import dataclasses
import gzip
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import spinimpute
from spinimpute.vcf.bgzf import EOF_BLOCK, compress_block

from ..conftest import records

pytestmark = pytest.mark.slow

ALL = spinimpute.OutputSettings(("GT", "DS", "HDS", "GP"))
REGIONS = (  # positions, buffer in cM
    (1, 40_000, 0),
    (500_000, 560_000, 0),
    (500_000, 560_000, 0.6),
    (700_001, 760_000, 0.5),
    (990_000, 2_000_000, 0.1),
    (990_000, 2_000_000, 0.8),
)


def test_only_sites_nearby_are_used(run, dense_target, panel, tmp_path):
    unphased = without_phase(dense_target, tmp_path)
    common = ("impute", "--vcf", unphased, "--panel", panel, "--region", "20:1-50000")
    counts = []
    for buffer in ("0.1", "10"):
        out = tmp_path / f"{buffer}.vcf"
        done = run(*common, "--buffer", buffer, "--out", out).ok()
        (used,) = re.findall(r"(\d+) matched sites are used for the region", done.err)
        (phased,) = re.findall(r"phased:   (\d+) unphased", done.err)
        counts.append((int(used), int(phased)))
        assert f"--buffer {float(buffer)}" in out.read_text()
    assert counts[0][0] < counts[1][0] == 2227
    assert counts[0][1] < counts[1][1]
    run(*common, "--out", tmp_path / "all.vcf").ok()
    assert records(tmp_path / "10.vcf") == records(tmp_path / "all.vcf")


@pytest.mark.parametrize("through", ["as it is", "convert", "phase"])
def test_results_of_a_phased_target_are_those_of_a_single_run(dense_target, opened, tmp_path, through):
    """Whatever the buffer: chunks of typed sites lie where they lie among all."""
    target = dense_target
    if through != "as it is":
        target = tmp_path / "ours.vcf.gz"
        getattr(spinimpute, through)(dense_target, target, opened)
    whole, out = tmp_path / "whole.vcf", tmp_path / "o.vcf"
    output, resources = dataclasses.replace(ALL, leave_one_out=True), spinimpute.Resources(threads=1)
    spinimpute.impute(target, whole, opened, resources=resources, output=output)
    seen = []
    for start, end, buffer in REGIONS:
        part = spinimpute.impute(
            target,
            out,
            opened,
            resources=resources,
            output=output,
            region=spinimpute.RegionSettings(f"20:{start}-{end}", buffer),
            force=True,
        )
        assert records(out) == within(whole, start, end)
        seen.append((part.used_sites, part.typed_sites))
    assert min(used for used, _ in seen) < 2227 / 2
    # of what we wrote a part is read, of others' files all
    assert (min(typed for _, typed in seen) < 2227) == (through != "as it is")
    assert all(used <= typed <= 2227 for used, typed in seen)


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_the_target_is_known_whatever_is_read_of_it(run, dense_target, panel, tmp_path):
    """Threads, regions, the buffer, the file's format and phase do not change its checksum."""
    bcf, phased, converted = tmp_path / "t.bcf", tmp_path / "phased.vcf.gz", tmp_path / "converted.vcf.gz"
    subprocess.run(["bcftools", "view", "-Ob", "-o", bcf, dense_target], check=True)
    unphased = without_phase(dense_target, tmp_path)
    for command, out in (("phase", phased), ("convert", converted)):
        run(command, "--vcf", unphased, "--panel", panel, "--out", out, "-q").ok()
    found = set()
    for target, *options in (
        (dense_target, "--region", "20:1-40000"),
        (dense_target, "--region", "20:500000-560000", "--threads", 2),
        (bcf, "--region", "20:500000-560000", "--buffer", 0),
        (phased, "--region", "20:500000-560000", "--buffer", 0),
        (phased, "--region", "20:500000-560000"),
        (converted, "--region", "20:1-40000", "--buffer", 0.1),
    ):
        out = tmp_path / "o.vcf"
        run.impute(target, panel, out, "-f", "-q", *options).ok()
        found |= {line for line in out.read_text().splitlines() if line.startswith("##spinimpute_target=")}
    assert len(found) == 1


@pytest.mark.parametrize("buffer", [0.0, None])
def test_chunks_of_a_file_whose_missing_calls_were_filled_are_joined(dense_target, opened, tmp_path, buffer):
    """With a buffer only parts of the file are read, and its header tells the target."""
    rows = [line.split("\t") for line in dense_target.read_text().splitlines(keepends=True)]
    for row in [row for row in rows if row[0][0] != "#"][::2]:
        row[9] = ".|."
    target, ours = tmp_path / "missing.vcf", tmp_path / "ours.vcf.gz"
    target.write_text("".join("\t".join(row) for row in rows))
    spinimpute.phase(target, ours, opened)
    chunks, typed = [], []
    for number, region in enumerate(("20:1-40000", "20:40001-700000", "20:700001-2000000")):
        chunks.append(tmp_path / f"{number}.bcf")
        settings = spinimpute.RegionSettings(region, buffer)
        typed.append(spinimpute.impute(ours, chunks[-1], opened, region=settings).typed_sites)
    assert (min(typed) < 2227) == (buffer is not None)
    spinimpute.ligate(chunks, tmp_path / "o.bcf", panel=opened)


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_other_sites_than_were_written(dense_target, opened, tmp_path):
    """The header tells of chunks of sites that are not all used, or no longer all there."""
    ours, cut = tmp_path / "ours.vcf.gz", tmp_path / "cut.vcf.gz"
    spinimpute.convert(dense_target, ours, opened)
    lines = gzip.decompress(ours.read_bytes()).decode().splitlines(keepends=True)
    kept = [x for x in lines if x[0] == "#" or int(x.split("\t")[1]) > 150_000]
    blocks = ["".join(kept[n : n + 200]).encode() for n in range(0, len(kept), 200)]
    cut.write_bytes(b"".join(map(compress_block, blocks)) + EOF_BLOCK)
    subprocess.run(["bcftools", "index", "-t", cut], check=True)
    for target, ambiguous, start, end in (
        (ours, "drop", 700_000, 720_000),
        (cut, "frequency", 160_000, 200_000),
    ):
        whole, out = tmp_path / "whole.vcf", tmp_path / "o.vcf"
        spinimpute.impute(
            target,
            whole,
            opened,
            target=spinimpute.TargetSettings(ambiguous=ambiguous),
            output=ALL,
            force=True,
        )
        spinimpute.impute(
            target,
            out,
            opened,
            target=spinimpute.TargetSettings(ambiguous),
            region=spinimpute.RegionSettings(f"20:{start}-{end}", 0),
            output=ALL,
            force=True,
        )
        assert records(out) == within(whole, start, end)


def test_inducing_points_too(dense_target, opened, tmp_path):
    """Also where nothing is typed far and wide: the panel's frequencies."""
    points, gap = tmp_path / "points.spip", tmp_path / "gap.vcf"
    spinimpute.build_inducing_panel(opened, points, dense_target, inducing_points=8)
    lines = dense_target.read_text().splitlines(keepends=True)
    far = [x for x in lines if x[0] == "#" or not 200_000 < int(x.split("\t")[1]) < 800_000]
    gap.write_text("".join(far))
    for target in (dense_target, gap):
        ours, whole, out = tmp_path / "ours.vcf.gz", tmp_path / "whole.vcf", tmp_path / "o.vcf"
        spinimpute.convert(target, ours, points, force=True)
        spinimpute.impute(ours, whole, points, output=ALL, force=True)
        for form, (start, end) in itertools.product((ours, target), ((1, 40_000), (490_000, 510_000))):
            region = spinimpute.RegionSettings(region=f"20:{start}-{end}", buffer_cM=0)
            part = spinimpute.impute(form, out, points, region=region, output=ALL, force=True)
            assert records(out) == within(whole, start, end)
            assert part.used_sites is not None
            assert (part.used_sites == 0) == (target is gap and start == 490_000)
            if form is ours and part.used_sites:
                assert part.typed_sites < 2227 / 2


def test_the_ploidy_is_that_of_all_sites(dense_target, opened, tmp_path):
    """A sample is haploid, another has calls on the left only."""
    target, ours, whole, out = (tmp_path / name for name in ("t.vcf", "ours.vcf.gz", "whole.vcf", "o.vcf"))
    with target.open("w") as file:
        for line in dense_target.read_text().splitlines(keepends=True):
            columns = line.split("\t")
            if line[0] != "#":
                columns[9] = columns[9][0]
                columns[10] = columns[10] if int(columns[1]) < 300_000 else ".|."
            file.write("\t".join(columns))
    spinimpute.convert(target, ours, opened)
    spinimpute.impute(ours, whole, opened, output=ALL)
    spinimpute.impute(
        ours,
        out,
        opened,
        region=spinimpute.RegionSettings(region="20:700000-720000", buffer_cM=0),
        output=ALL,
    )
    assert records(out) == within(whole, 700_000, 720_000)


def test_several_sites_at_a_position(example, tmp_path):
    """Chunks that begin in the middle of a position."""
    panel, target, ours = (tmp_path / name for name in ("panel.vcf", "t.vcf", "ours.vcf.gz"))
    for name, path, step in (("panel", panel, 1), ("truth", target, 2)):
        rows, position = [], []
        for line in gzip.decompress((example / f"{name}.vcf.gz").read_bytes()).decode().splitlines(True):
            if line[0] == "#":
                rows.append(line)
                continue
            columns = line.split("\t")
            n = len(position)
            position.append(columns[1])
            columns[1] = position[n // 7 * 7]
            columns[3:5] = "A", ("C", "G", "T", "AC", "AG", "AT", "ACC")[n % 7]
            if n % step == 0:
                rows.append("\t".join(columns))
        path.write_text("".join(rows))
    with spinimpute.build_panel(panel, tmp_path / "p.spin", example / "genetic.map") as opened:
        spinimpute.convert(target, ours, opened)
        spinimpute.impute(ours, tmp_path / "whole.vcf", opened, output=ALL)
        for start, end in ((1, 50_000), (700_001, 760_000)):
            spinimpute.impute(
                ours,
                tmp_path / "o.vcf",
                opened,
                region=spinimpute.RegionSettings(region=f"20:{start}-{end}", buffer_cM=0),
                output=ALL,
                force=True,
            )
            assert records(tmp_path / "o.vcf") == within(tmp_path / "whole.vcf", start, end)


def test_of_unphased_targets_the_buffer_is_told(run, dense_target, panel, tmp_path):
    """It decides how they are phased; the file is not one of a single run."""
    unphased = without_phase(dense_target, tmp_path)
    chunks = []
    for region, buffer in (("20:1-500000", 0.3), ("20:500001-2000000", 0)):
        chunks.append(tmp_path / f"{buffer}.vcf")
        common = ("impute", "--vcf", unphased, "--panel", panel, "--out", chunks[-1])
        run(*common, "--region", region, "--buffer", buffer).ok()
    done = run("ligate", *chunks, "--out", tmp_path / "joined.vcf")
    assert "--buffer 0.3" in (tmp_path / "joined.vcf").read_text()
    assert "made differently" in done.err


def without_phase(vcf: Path, folder: Path) -> Path:
    def sort(alleles: re.Match[str]) -> str:
        return "\t" + "/".join(sorted(alleles.groups()))

    out = folder / "unphased.vcf"
    out.write_text(re.sub(r"\t([01])\|([01])", sort, vcf.read_text()))
    return out


def within(path: Path, start: int, end: int) -> list[str]:
    return [line for line in records(path) if start <= int(line.split("\t")[1]) <= end]


def test_region_in_the_header(made, opened, content):
    lines = [line for line in content(made / "a1.vcf").decode().splitlines() if "spinimpute_region" in line]
    n_sites = int(((opened.position >= 300001) & (opened.position <= 712345)).sum())
    assert lines == [f"##spinimpute_region=20:300001-712345 sites={n_sites}"]
    assert b"spinimpute_region" not in content(made / "whole.vcf")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--buffer", "1"], "Give --region"),
        (["--buffer", "-1", "--region", "20:1-9000"], "at least 0 cM"),
        (["--buffer", "nan", "--region", "20:1-9000"], "at least 0 cM"),
    ],
)
def test_refusals(run, example, panel, tmp_path, options, said):
    vcf = example / "target.vcf.gz"
    run.impute(vcf, panel, tmp_path / "o.vcf", *options).refused(said)
    assert not list(tmp_path.iterdir())
