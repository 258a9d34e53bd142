"""What people get wrong: exit status 2, one clear message, no traceback, and no file left behind."""

import gzip
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import cyvcf2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.vcf.bgzf import EOF_BLOCK, compress_block

REPOSITORY = Path(__file__).resolve().parents[2]
Change = Callable[[list[str], list[list[str]]], None]


class Text(str):
    """Long, and not to be shown whole when a test fails."""

    def __repr__(self) -> str:
        return "Text(...)"


@pytest.fixture(scope="module")
def text(example: Path) -> Text:
    return Text(gzip.decompress((example / "target.vcf.gz").read_bytes()).decode())


def changed(text: str, change: Change) -> str:
    """The target with its header lines and the fields of its records changed in place."""
    lines = text.splitlines()
    head = [line for line in lines if line.startswith("#")]
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    change(head, rows)
    return "\n".join([*head, *("\t".join(row) for row in rows)]) + "\n"


def no_genotypes(head: list[str], rows: list[list[str]]) -> None:
    for row in rows:
        row[8:] = ["DS", *("0.5" for _ in row[9:])]


def no_samples(head: list[str], rows: list[list[str]]) -> None:
    head[-1] = "\t".join(head[-1].split("\t")[:8])
    for row in rows:
        del row[8:]


def repeated_sample(head: list[str], rows: list[list[str]]) -> None:
    names = head[-1].split("\t")
    names[10] = names[9]
    head[-1] = "\t".join(names)


def set_call(row: int, call: str) -> Change:
    def change(head: list[str], rows: list[list[str]]) -> None:
        rows[row][9] = call

    return change


def unsorted(head: list[str], rows: list[list[str]]) -> None:
    rows[3], rows[7] = rows[7], rows[3]


def elsewhere(head: list[str], rows: list[list[str]]) -> None:
    for row in rows:
        row[1] = str(int(row[1]) + 50_000_000)


def another_chromosome(head: list[str], rows: list[list[str]]) -> None:
    head[:] = [line.replace("ID=20", "ID=7") for line in head]
    for row in rows:
        row[0] = "7"


def no_calls(head: list[str], rows: list[list[str]]) -> None:
    for row in rows:
        row[9:] = ["./." for _ in row[9:]]


def empty_line(head: list[str], rows: list[list[str]]) -> None:
    rows.insert(5, [""])


def no_chromosome(head: list[str], rows: list[list[str]]) -> None:
    rows[6][0] = ""


def one_column_more(head: list[str], rows: list[list[str]]) -> None:
    rows[6].append("0|0")


def spaces(head: list[str], rows: list[list[str]]) -> None:
    rows[:] = [[" ".join(row)] for row in rows]


def mark(head: list[str], rows: list[list[str]]) -> None:
    head[0] = "\ufeff" + head[0]


CHANGES: dict[str, tuple[Change, str]] = {
    "no GT": (no_genotypes, "no genotypes (GT) at 20:3537"),
    "no samples": (no_samples, "sites without samples"),
    "repeated sample": (repeated_sample, "two samples are named target_AFR_01. Rename one"),
    "three alleles": (set_call(4, "0|1|0"), "a call of 3 alleles at 20:"),
    "beyond ALT": (set_call(4, "0|3"), "a genotype with an ALT allele that the record lacks"),
    "haploid among diploid": (set_call(4, "0"), "is haploid at 20:"),
    "unsorted": (unsorted, "the positions go backwards at record"),
    "another region": (elsewhere, "another region than the panel"),
    "another chromosome": (another_chromosome, "no record in 20. The file has chromosome 7"),
    "no calls": (no_calls, "all genotypes on 20 are missing at the sites that are in the panel"),
    "empty line": (empty_line, "malformed at record 6, after 20:"),
    "no chromosome": (no_chromosome, "malformed at record 7, after 20:"),
    "spaces for tabs": (spaces, "line 7 has spaces between its columns. Use tabs"),
    "byte-order mark": (mark, "it starts with a byte-order mark (BOM). Save it as UTF-8 without BOM"),
    "more columns": (one_column_more, "has 30 columns, the header 29. Name the missing samples"),
}


@pytest.fixture
def refused(run, panel: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """refused(target, said, *more): impute must fail on it, and leave nothing."""

    def check(
        target: Path, said: str, *more: object, out: Path | None = None, with_panel: object = None
    ) -> str:
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        output = out or folder / "o.vcf.gz"
        done = run.impute(target, with_panel or panel, output, *more).refused(said)
        ours = [line for line in done.err.splitlines() if line.startswith("spinimpute: error")]
        assert len(ours) == 1
        assert list(folder.iterdir()) == []
        return done.err

    return check


@pytest.mark.parametrize("share", [0.2, 0.8, 1])
@pytest.mark.parametrize("form", ["VCF", "array text"])
def test_truncated_gzip(refused, text, tmp_path, share, form):
    content = text.encode() if form == "VCF" else b"rs1\t20\t1000\tAG\n"
    whole = gzip.compress(content)
    (tmp_path / "t.vcf.gz").write_bytes(whole[: int(share * len(whole)) - 1])
    refused(tmp_path / "t.vcf.gz", "t.vcf.gz: the compressed file is truncated. Get it again")


def test_lists_that_are_not_utf8(refused, run, example, panel, tmp_path):
    listed, said = tmp_path / "list.txt", "list.txt: it is not valid UTF-8. Save it as UTF-8 text"
    listed.write_bytes(b"target_AFR_01\n\xff\n")
    for option in ("--samples-file", "--sex"):
        refused(example / "target.vcf.gz", said, option, listed)
    out = tmp_path / "out" / "o.vcf"
    run("impute", "--bam-list", listed, "--panel", panel, "--out", out).refused(said)
    run("panel", "tune", "--panel", panel, "--array", listed, "--out", tmp_path / "out" / "o.spin").refused(
        said
    )


def test_a_damaged_panel_in_a_folder(refused, example, panel, tmp_path):
    folder = tmp_path / "panels"
    folder.mkdir()
    (folder / "20.spin").symlink_to(panel)
    (folder / "21.spin").write_bytes(panel.read_bytes()[:10])
    refused(example / "target.vcf.gz", f"panel {folder}/21.spin: truncated: 10 bytes", with_panel=folder)


@pytest.mark.parametrize("kind", CHANGES)
def test_targets(refused, text, kind, tmp_path):
    change, said = CHANGES[kind]
    target = tmp_path / "bad.vcf"
    target.write_text(changed(text, change))
    assert "bad.vcf" in refused(target, said) or kind == "another region"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello world\n", "no VCF or BCF file"),
        (b"PK\x03\x04 broken", "a zip archive. Unpack it"),
        (gzip.compress(b"something else", mtime=0), "not of a VCF"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "no VCF or BCF file"),
        (b"##fileformat=VCFv4.2\n", "target"),
        (b"rsid\tchromosome\tposition\tgenotype\n", "the file has no genotypes"),
    ],
    ids=["empty", "text", "zip", "gzip", "png", "head only", "array without calls"],
)
def test_other_files(refused, content, said, tmp_path):
    target = tmp_path / "bad.file"
    target.write_bytes(content)
    assert "bad.file" in refused(target, said)


def test_names_do_not_change_the_terminal(refused, text, tmp_path):
    def rename(head: list[str], rows: list[list[str]]) -> None:
        head[-1] = head[-1].replace("target_AFR_01", "\x1b]0;mine\x07\u202e\x9b2J")
        rows[4][9] = "0|3"

    target = tmp_path / "bad.vcf"
    target.write_text(changed(text, rename))
    said = refused(target, r"sample \x1b]0;mine\x07\u202e\x9b2J has, at 20:")
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize("cut", [30, 1_000, -1, -28, -200])
def test_truncated(refused, example, cut, tmp_path):
    target = tmp_path / "cut.vcf.gz"
    target.write_bytes((example / "target.vcf.gz").read_bytes()[:cut])
    assert "cut.vcf.gz" in refused(target, "")


def test_where_it_may_not_write(refused, example, tmp_path):
    target = example / "target.vcf.gz"
    refused(target, "there is no folder", out=tmp_path / "nowhere" / "o.bcf")
    refused(target, "it is a folder", out=tmp_path)
    refused(target, "must end with", out=tmp_path / "o.txt")
    refused(target, "output type 'b' contradicts", "-O", "b")
    locked = tmp_path / "file"
    locked.write_text("")
    refused(target, "there is no folder", out=locked / "o.bcf")


def test_regions_maps_samples(run, refused, example, tmp_path):
    target = example / "target.vcf.gz"
    refused(target, "the panel has no site in 20:900000000-900000001", "-r", "20:900000000-900000001")
    refused(target, "the panel is of chromosome", "-r", "7")
    wrong_map = tmp_path / "chr7.map"
    wrong_map.write_text("7 . 0 1\n7 . 1 1000000\n")
    refused(target, "chr7.map", "--map", wrong_map, with_panel=example / "panel.vcf.gz")
    names = tmp_path / "names"
    names.write_text("nobody\n")
    out = tmp_path / "p.spin"
    run("panel", "build", "--vcf", example / "panel.vcf.gz", "--samples-file", names, "--out", out).refused(
        "1 of the requested samples are not in the file: nobody"
    )
    assert not out.exists()


def test_several_chromosomes(run, panel, text, tmp_path):
    """Those that are not the panel's are counted, not mixed in."""

    def add(head: list[str], rows: list[list[str]]) -> None:
        head.insert(-1, "##contig=<ID=21>")
        rows.extend([["21", *row[1:]] for row in rows[:9]])

    target = tmp_path / "two.vcf"
    target.write_text(changed(text, add))
    run.impute(target, panel, tmp_path / "o.vcf").ok("9 records skipped: on another chromosome")


def test_calls_that_are_set_missing_are_counted(run, panel, text, tmp_path):
    def halve(head: list[str], rows: list[list[str]]) -> None:
        for row in rows[3:6]:
            row[9], row[11] = "1/.", "./0"

    target, page = tmp_path / "halves.vcf", tmp_path / "page.html"
    target.write_text(changed(text, halve))
    run.impute(target, panel, tmp_path / "o.vcf", "--report", page).ok(
        "6 unphased calls with one missing allele: set missing"
    )
    assert "calls set missing: unphased calls with one missing allele" in page.read_text()
    checked = run("check", "--vcf", target, "--panel", panel)
    assert "6 unphased calls with one missing allele: set missing" in checked.out


def mutated(content: bytes, seed: int) -> bytes:
    draw = random.Random(seed)
    out = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        action, place = draw.randrange(4), draw.randrange(max(1, len(out)))
        if action == 0 and out:
            out[place] = draw.randrange(256)
        elif action == 1:
            del out[place : place + draw.randint(1, 400)]
        elif action == 2:
            out[place:place] = bytes(
                draw.choice(b"0123456789ACGT\t\n|/.:,;=#") for _ in range(draw.randint(1, 6))
            )
        else:
            out = out[: max(1, place)]
    return bytes(out)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**31), form=st.sampled_from(["vcf", "vcf.gz"]))
def test_mutated_targets(run, panel, text, seed, form, tmp_path):
    """Any damage is refused or harmless: never a traceback, never half a result."""
    lines = text.splitlines(keepends=True)
    small = "".join(line for i, line in enumerate(lines) if line.startswith("#") or i % 4 == 0).encode()
    target, out = tmp_path / f"m.{form}", tmp_path / "o.vcf.gz"
    damaged = mutated(small, seed)
    target.write_bytes(gzip.compress(damaged, 1) if form == "vcf.gz" else damaged)
    done = run.impute(target, panel, out, "-f", "-q")
    assert done.code in (0, 2), done.err
    if done.code == 2:
        assert "spinimpute: error" in done.err
        assert not out.exists()
    else:
        assert sum(1 for _ in cyvcf2.VCF(str(out))) == 4453
        out.unlink()
        out.with_name("o.vcf.gz.tbi").unlink()
    assert {path.name for path in tmp_path.iterdir()} == {target.name}
    target.unlink()


@pytest.mark.parametrize("command", ["impute", "convert", "phase", "check"])
@pytest.mark.parametrize("option", ["--sex", "--chain"])
def test_no_input_is_overwritten(run, command, option, panel, example, tmp_path):
    mine = tmp_path / "mine.vcf"
    mine.write_text("a M\n")
    run(
        command, "--vcf", example / "target.vcf.gz", "--panel", panel, option, mine, "--out", mine, "--force"
    ).refused("it is also read from")
    assert mine.read_text() == "a M\n"


@pytest.mark.parametrize(
    "more",
    [
        ("--report", "o.vcf.gz"),
        ("--report", "o.vcf.gz.tbi"),
        ("--loo", "q", "--report", "q.sites.tsv"),
        ("--loo", ""),
        ("--loo", "-"),
        ("--loo", "folder/"),
        ("--loo", "."),
        ("--loo", ".hidden"),
        ("--report", "r" * 250),
    ],
)
def test_outputs_that_cannot_be(refused, example, more, tmp_path):
    given = [word if word.startswith("--") or not word else tmp_path / "out" / word for word in more]
    if more in (("--loo", "folder/"), ("--loo", "."), ("--loo", "-")):  # a path would lose its end
        given = list(more)
    refused(example / "target.vcf.gz", "", *given)


def test_two_tables_of_one_name(run, panel, example, tmp_path):
    table = tmp_path / "t.tsv"
    run(
        "check", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", table, "--samples-out", table
    ).refused("to the same file")
    assert not table.exists()


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
@pytest.mark.parametrize("part", [[], ["--region", "20:1-600000", "--buffer", "10"]])
def test_a_target_damaged_in_the_middle(run, example, panel, tmp_path, part):
    """Not through its index either are the records before the damage taken for all."""
    text = gzip.decompress((example / "target.vcf.gz").read_bytes())
    blocks = [compress_block(text[start : start + 1_000]) for start in range(0, len(text), 1_000)]
    target = tmp_path / "damaged.vcf.gz"
    target.write_bytes(b"".join(blocks) + EOF_BLOCK)
    subprocess.run(["bcftools", "index", target], check=True)
    blocks[len(blocks) // 2] = bytes(18) + blocks[len(blocks) // 2][18:]
    target.write_bytes(b"".join(blocks) + EOF_BLOCK)
    os.utime(f"{target}.csi")
    before = sorted(tmp_path.iterdir())
    run.impute(target, panel, tmp_path / "o.bcf", *part).refused(
        "damaged.vcf.gz: the file is damaged, or its index is of another file"
    )
    assert sorted(tmp_path.iterdir()) == before
