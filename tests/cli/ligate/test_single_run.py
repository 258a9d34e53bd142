"""Chunks of `impute --region`, joined, are the file of a single run."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline import impute_target
from spinimpute.pipeline.chunk_checks import check_headers
from spinimpute.pipeline.chunk_file import read_chunk
from spinimpute.runtime.errors import InputError

from .conftest import OVERLAPPING


@pytest.mark.parametrize("kind", ["a", "o"])
def test_bytes(run, made, opened, tmp_path, kind, suffix, content):
    chunks = [made / f"{kind}{number}{suffix}" for number in (2, 0, 1)]  # in any order
    out = tmp_path / f"joined{suffix}"
    done = run("ligate", *chunks, "--out", out, "--panel", opened.path).ok()
    assert "warning" not in done.err
    assert content(out) == content(made / f"whole{suffix}")
    for name in (out.name, *(p.name for p in tmp_path.iterdir())):
        twin = name.replace("joined", "whole")
        assert (tmp_path / name).read_bytes() == (made / twin).read_bytes()
    assert len(list(tmp_path.iterdir())) == (1 if suffix == ".vcf" else 2)
    if kind == "o":
        assert done.err.count("haplotypes of 0 samples exchanged, DS differ by 0.0000 at most") == 2
    assert f"written:  {opened.n_sites} records of 20:1-2000000" in done.err


def test_no_bit_depends_on_the_region(example, opened, tmp_path, monkeypatch, impute):
    """Of what is computed, before it is rounded: regions that begin and end anywhere."""
    computed: list[np.ndarray] = []
    sums = impute_target.site_sums
    monkeypatch.setattr(impute_target, "site_sums", lambda p: (computed.append(p.copy()), sums(p))[1])
    impute(example / "target.vcf.gz", tmp_path / "whole.bcf", opened)
    whole = np.concatenate(computed)
    for first, stop in ((1, 700), (777, 3001), (3001, 3004), (3004, 4453)):
        computed.clear()
        region = f"20:{opened.position[first]}-{opened.position[stop - 1]}"
        impute(example / "target.vcf.gz", tmp_path / f"{first}.bcf", opened, region)
        np.testing.assert_array_equal(np.concatenate(computed), whole[first:stop])


def test_a_chunk_across_a_border(made, example, opened, tmp_path, impute):
    across = impute(example / "target.vcf.gz", tmp_path / "across.bcf", opened, "20:290000-310000")
    chunks = [across, *(made / f"a{number}.bcf" for number in range(3))]
    spinimpute.ligate(chunks, tmp_path / "joined.bcf", panel=opened)
    assert (tmp_path / "joined.bcf").read_bytes() == (made / "whole.bcf").read_bytes()


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
@pytest.mark.parametrize("through", [0, 1])
def test_chunks_that_other_programs_wrote_again(run, made, opened, tmp_path, through):
    """`bcftools view` puts IDX into the definitions of BCF."""
    chunks = [made / f"a{number}.bcf" for number in range(3)]
    again = tmp_path / "again.bcf"
    subprocess.run(["bcftools", "view", "-Ob", "-o", again, chunks[through]], check=True)
    chunks[through] = again
    done = run("ligate", *chunks, "--out", tmp_path / "joined.bcf", "--panel", opened.path).ok()
    assert "IDX" not in done.err
    command = ["bcftools", "view", "-H"]
    texts = [
        subprocess.run([*command, path], check=True, capture_output=True).stdout
        for path in (tmp_path / "joined.bcf", made / "whole.bcf")
    ]
    assert texts[0] == texts[1]


def test_numbers_of_other_chunks(made):
    first, other = (read_chunk(made / f"a{number}.bcf", 1) for number in range(2))
    lines = [line.replace("##contig=<ID=20", "##contig=<ID=20,IDX=12") for line in other.lines]
    with pytest.raises(InputError, match=r"differ in the IDX numbers of the header: ##contig=<ID=20,len"):
        check_headers(first, dataclasses.replace(other, lines=lines), [])


def test_the_command_line_stays_that_of_a_single_run(run, example, panel, tmp_path, overlapping):
    target = tmp_path / "with --region x.vcf.gz"
    target.write_bytes((example / "target.vcf.gz").read_bytes())
    common = ("impute", "--vcf", target, "--panel", panel, "--keep-unmatched")
    run(*common, "--out", tmp_path / "whole.bcf").ok()
    chunks = [tmp_path / f"{number}.bcf" for number in range(3)]
    for chunk, region in zip(chunks, overlapping, strict=True):
        run(*common, "--out", chunk, "--region", region, "--buffer", 0).ok()
    done = run("ligate", *chunks, "-o", tmp_path / "joined.bcf", "--threads", 2, "-q")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "joined.bcf").read_bytes() == (tmp_path / "whole.bcf").read_bytes()


def test_phased_by_the_program_first(run, unphased, opened, tmp_path, impute, abutting):
    phased = tmp_path / "phased.vcf.gz"
    run.phase(unphased, opened.path, phased).ok()
    chunks = [
        impute(phased, tmp_path / f"{number}.bcf", opened, region) for number, region in enumerate(abutting)
    ]
    spinimpute.ligate(chunks, tmp_path / "joined.bcf", panel=opened)
    impute(phased, tmp_path / "whole.bcf", opened)
    assert (tmp_path / "joined.bcf").read_bytes() == (tmp_path / "whole.bcf").read_bytes()


def test_stretches_without_typed_sites(run, edited_target, opened, tmp_path, abutting):
    """What lies far from typed sites is flagged alike, whatever is read of the target."""

    def thinned(text: str) -> str:
        return "".join(text.splitlines(keepends=True)[: text.count("\n#") + 41])

    target = tmp_path / "ours.vcf.gz"
    spinimpute.convert(edited_target(thinned), target, opened)
    common = ("impute", "--vcf", target, "--panel", opened.path, "-q")
    run(*common, "--out", tmp_path / "whole.vcf").ok()
    assert ";FAR;IMPUTED" in (tmp_path / "whole.vcf").read_text()
    chunks = [tmp_path / f"{number}.vcf" for number in range(3)]
    for chunk, region in zip(chunks, abutting, strict=True):
        ratio = ("--min-typed-ratio", 0.001)
        run(*common, "--out", chunk, "--region", region, "--buffer", 0, *ratio).ok()
    run("ligate", *chunks, "-o", tmp_path / "joined.vcf", "-q").ok()
    assert (tmp_path / "joined.vcf").read_bytes() == (tmp_path / "whole.vcf").read_bytes()


def test_typed_sites_that_the_panel_lacks(edited_target, opened, tmp_path, overlapping):
    def with_insertions(text: str) -> str:
        lines = []
        for number, line in enumerate(text.splitlines()):
            lines.append(line)
            if line.startswith("20\t") and number % 10 == 0:
                columns = line.split("\t")
                lines.append("\t".join([*columns[:2], "new", "A", "ACGTACGT", *columns[5:]]))
        return "\n".join(lines) + "\n"

    target = edited_target(with_insertions)

    def run(name: str, region: str | None) -> Path:
        output = spinimpute.OutputSettings(("GT",), keep_unmatched=True)
        spinimpute.impute(
            target,
            tmp_path / name,
            opened,
            region=spinimpute.RegionSettings(region=region),
            output=output,
            force=True,
        )
        return tmp_path / name

    chunks = [run(f"{number}.vcf.gz", region) for number, region in enumerate(overlapping)]
    assert all(read_chunk(chunk, 1).unmatched for chunk in chunks)
    spinimpute.ligate(chunks, tmp_path / "joined.vcf.gz", panel=opened)
    assert (tmp_path / "joined.vcf.gz").read_bytes() == run("whole.vcf.gz", None).read_bytes()


LIMITS = {"min_r2": 0.8, "min_maf": 0.02}


@pytest.fixture
def filtered(example, opened, tmp_path, suffix):
    """filtered(name, region=None): the example's phased target, filtered."""

    def impute(name, region=None):
        spinimpute.impute(
            example / "target.vcf.gz",
            tmp_path / f"{name}{suffix}",
            opened,
            region=spinimpute.RegionSettings(region),
            output=spinimpute.OutputSettings(("GT", "DS", "HDS", "GP"), **LIMITS),
            resources=spinimpute.Resources(threads=1),
        )
        return tmp_path / f"{name}{suffix}"

    return impute


def test_filtered_chunks(run, made, filtered, opened, tmp_path, suffix, content):
    whole = filtered("whole")
    chunks = [filtered(number, region) for number, region in enumerate(OVERLAPPING)]
    out = tmp_path / f"joined{suffix}"
    run("ligate", *chunks, "--out", out, "--panel", opened.path).ok()
    assert content(out) == content(whole)
    others = [made / f"o{number}{suffix}" for number in (1, 2)]
    run("ligate", chunks[0], *others, "--out", tmp_path / f"x{suffix}").refused(
        "differ in the filter: R2>=0.8,MAF>=0.02 and none"
    )


def test_filtered_chunks_may_differ_in_an_overlap(
    run, filtered, opened, tmp_path, suffix, content, rewritten
):
    """As R2 may if the target was phased in the run. Sites in both chunks remain, and none is doubled."""
    if suffix == ".bcf":
        pytest.skip("the records are removed from text")
    borders = ((300_000, 350_000), (650_000, 720_000))

    def drop(path, out, removed):
        """Remove the records of the overlap at `borders` for which `removed(number)`."""

        def change(data):
            lines = data.decode().splitlines(keepends=True)
            rows = [i for i, line in enumerate(lines) if line[0] != "#" and overlap(line) is not None]
            gone = {i for n, i in enumerate(rows) if removed(overlap(lines[i]), n)}
            return "".join(line for i, line in enumerate(lines) if i not in gone).encode()

        return rewritten(path, out, change)

    def overlap(line):
        position = int(line.split("\t")[1])
        return next((i for i, (low, high) in enumerate(borders) if low <= position <= high), None)

    def sites(path):
        lines = content(path).decode().splitlines()
        return [tuple(line.split("\t")[1:5]) for line in lines if line[0] != "#"]

    removed = [
        lambda border, n: n % 3 == 0,
        lambda border, n: n % 4 == 0 if border == 0 else n % 2 == 0,
        lambda border, n: True,
    ]
    chunks = [
        drop(filtered(number, region), tmp_path / f"d{number}{suffix}", removed[number])
        for number, region in enumerate(OVERLAPPING)
    ]
    out = tmp_path / f"joined{suffix}"
    done = run("ligate", *chunks, "--out", out, "--panel", opened.path).ok()
    assert "0 sites in both" in done.err
    kept, joined = [sites(chunk) for chunk in chunks], sites(out)
    assert len(set(joined)) == len(joined)
    assert [int(site[0]) for site in joined] == sorted(int(site[0]) for site in joined)
    assert (set(kept[0]) & set(kept[1])) <= set(joined) <= set().union(*kept)
    assert 10 < len(set(kept[0]) & set(kept[1])) < len({site for site in kept[0] if int(site[0]) >= 300_000})
    for number, (low, high) in enumerate(((1, 299_999), (350_001, 649_999), (720_001, 2_000_000))):
        inside = [site for site in joined if low <= int(site[0]) <= high]
        assert inside == [site for site in kept[number] if low <= int(site[0]) <= high]
    assert [site for site in joined if 650_000 <= int(site[0]) <= 720_000] == [
        site for site in kept[1] if int(site[0]) >= 650_000
    ]
