"""Chunks that do not fit: one clear line, exit 2, and no output."""

import gzip
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import spinimpute
from spinimpute.vcf.bgzf import EOF_BLOCK

pytestmark = pytest.mark.slow

NO_VALUE = "a value of a sample is not a genotype or a number"
WRONG_VALUES = (
    b"\t0|\x80:0.", b"\t0|0:x.", b"\t0|0:.0.", b"\t00|0:0.", b"\t100000000000|0:0.", b"\t|:0.", b"\t0|0:,0.",
    b"\t0|0:-0.", b"\t:0.", b"\t0|0|0:0.",
)  # fmt: skip


@pytest.fixture
def refused(refused_by: Callable[..., str]) -> Callable[..., str]:
    return partial(refused_by, "ligate", suffix=".vcf.gz")


def test_truncated(refused, made, tmp_path, suffix):
    whole = (made / f"a1{suffix}").read_bytes()
    cut = tmp_path / f"cut{suffix}"
    for size in (0, 10, 300, len(whole) // 3, len(whole) - 1000, len(whole) - 28, len(whole) - 1):
        for end in (b"", EOF_BLOCK if suffix != ".vcf" else b"\n"):
            cut.write_bytes(whole[:size] + end)
            if cut.read_bytes() == whole:
                continue
            message = refused(made / f"a0{suffix}", cut, suffix=suffix)
            assert str(cut) in message


def test_truncated_between_or_within_records(refused, made, tmp_path, suffix, content, rewritten):
    data = content(made / f"a1{suffix}")
    for size in (200, len(data) // 2, len(data) - 1):
        cut = rewritten(made / f"a1{suffix}", tmp_path / f"cut{suffix}", lambda d, n=size: d[:n])
        assert "truncated" in refused(made / f"a0{suffix}", cut, suffix=suffix)
    if suffix != ".bcf":
        cut = rewritten(
            made / f"a1{suffix}", tmp_path / f"cut{suffix}", lambda d: d[: d[:-1].rindex(b"\n") + 1]
        )
        assert "records, but its header says" in refused(cut, suffix=suffix)


@pytest.mark.parametrize("suffix", [".vcf.gz", ".bcf"])
def test_a_flipped_byte(refused, made, tmp_path, suffix):
    data = (made / f"a1{suffix}").read_bytes()
    size = int.from_bytes(data[16:18], "little") + 1
    flipped = tmp_path / f"flipped{suffix}"
    places = [0, 2, 12, 16, 17, 20, size // 2, size - 5, size - 1, size, size + 17, len(data) // 2]
    for place in [*places, len(data) - 40, len(data) - 20]:
        changed = bytearray(data)
        changed[place] ^= 4
        flipped.write_bytes(changed)
        assert str(flipped) in refused(flipped, suffix=suffix)


def test_a_changed_line(refused, made, tmp_path, rewritten):
    for old, new, said in (
        (b"\n20\t", b"\n21\t", "it is on 21"),
        (b"\tGT:DS", b"\tGT:XX", "its FORMAT is GT:XX"),
        (b"\t0|0:", b"\t0|0\t:", "columns instead of"),
        (b"\n20\t", b"\n20\tx", "its position is"),
        (b"\n20\t", b"\n20\t" + b"9" * 25, "its position is b'9999"),
        (b"\n20\t", b"\n20\t" + b"9" * 5000, "its position is b'9999"),
        (b"-712345 ", b"-%s " % (b"9" * 5000), "does not give one region"),
        (b"-712345 ", b"-2147483648 ", "does not give one region"),
        (b" sites=", b" sites=" + b"9" * 5000, "does not give one region"),
        (b" sites=1852", b" sites=1852 unmatched=" + b"9" * 5000, "does not give one region"),
        (b"\n20\t", b"\n20\t9", "the positions go backwards at record 2"),
        (b"-712345 ", b"-700000 ", "is outside of the region"),
        *((b"\t0|0:0.", new, NO_VALUE) for new in WRONG_VALUES),
        (b"\tPASS\t", b"\tPA\x07S\t", "columns ID to INFO are not those of impute"),
        (b";R2=0.", b";R2=0,,", "columns ID to INFO are not those of impute"),
        (b"##INFO=<ID=R2,", b"##INFO=<ID=R3,", "columns ID to INFO are not those of impute"),
    ):
        changed = rewritten(
            made / "a1.vcf", tmp_path / "changed.vcf", lambda d, o=old, n=new: d.replace(o, n, 1)
        )
        assert said in refused(changed, suffix=".vcf")


def test_a_record_of_bcf_whose_fields_do_not_fit(refused, made, tmp_path, rewritten):
    """The fields that all samples share: PASS behind the alleles, then AF and R2."""
    for old, new, said in (
        (b"\x11\x00\x11", b"\x11\x7f\x11", "the header has no field with the number 127"),
        (b"\x11\x00\x11", b"\x21\x00\x11", "cannot be used"),
        (b"\x17A\x17", b"\x17\x07\x17", "its name or an allele is not text"),
        (b"\x17A\x17", b"\x17 \x17", "its name or an allele is not text"),
        (b"\x17A\x17", b"\x17\xc3\x17", "its name or an allele is not text"),
    ):
        changed = rewritten(
            made / "a1.bcf", tmp_path / "changed.bcf", lambda d, o=old, n=new: d.replace(o, n, 1)
        )
        assert said in refused(changed, suffix=".bcf")


def test_a_long_number_is_refused_at_once(refused, made, tmp_path, rewritten):
    """Not by trying every way of cutting it."""
    number = b"1" * 100_000 + b"x"
    for old, new in ((b"\t.\tPASS\t", b"\t%s\tPASS\t" % number), (b";R2=0.", b";R2=%s" % number)):
        changed = rewritten(
            made / "a1.vcf", tmp_path / "changed.vcf", lambda d, o=old, n=new: d.replace(o, n, 1)
        )
        started = time.process_time()  # other programs do not count
        assert "columns ID to INFO are not those of impute" in refused(changed, suffix=".vcf")
        assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("inserted", "said"),
    [(b"20\t5\t.\tA\tC\t.\tPASS\t.\tGT\t0|0", "is not a header line: '20\\t5"), (b"", "is empty")],
)
def test_something_else_in_the_header(refused, made, tmp_path, rewritten, suffix, inserted, said):
    def insert(data: bytes) -> bytes:
        at = data.index(b"##FORMAT")
        if suffix == ".bcf":
            size = int.from_bytes(data[5:9], "little") + len(inserted) + 1
            return data[:5] + size.to_bytes(4, "little") + data[9:at] + inserted + b"\n" + data[at:]
        return data[:at] + inserted + b"\n" + data[at:]

    changed = rewritten(made / f"a1{suffix}", tmp_path / f"changed{suffix}", insert)
    message = refused(made / f"a0{suffix}", changed, suffix=suffix)
    number = (made / "a1.vcf").read_bytes().partition(b"##FORMAT")[0].count(b"\n") + 1
    assert f"{changed}: line {number} of the header {said}" in message


def test_missing_chunk(refused, made, panel):
    chunks = (made / "a0.bcf", made / "a2.bcf")
    assert "there is a gap: is a chunk missing?" in refused(*chunks, suffix=".bcf")
    message = refused(*chunks, "--panel", panel, suffix=".bcf")
    assert "sites of the panel, the first of them 20:" in message
    assert all(str(chunk) in message for chunk in chunks)


def test_gaps_that_are_allowed(run, made, panel, tmp_path):
    chunks = (made / "a2.bcf", made / "a1.bcf")
    run("ligate", *chunks, "-o", tmp_path / "o.bcf", "--panel", panel, "-q").refused(
        "and 0 after the last: is a chunk missing?"
    )
    done = run("ligate", *chunks, "-o", tmp_path / "o.bcf", "--panel", panel, "-q", "--allow-gaps").ok()
    assert re.search(r"the panel has \d+ sites before the first chunk and 0 after", done.err)
    chunks = (made / "a0.bcf", made / "a2.bcf")
    run("ligate", *chunks, "-o", tmp_path / "p.bcf", "--panel", panel, "--allow-gaps").ok(
        "warning: ", "they are left out"
    )
    run("ligate", *chunks, "-o", tmp_path / "q.bcf", "--allow-gaps").ok()
    assert (tmp_path / "q.bcf").read_bytes() == (tmp_path / "p.bcf").read_bytes()


def test_regions_without_a_site_between(run, example, opened, tmp_path, impute):
    last, following = (int(p) for p in opened.position[100:102])
    chunks = [
        impute(example / "target.vcf.gz", tmp_path / f"{n}.vcf", opened, region, formats=("GT",))
        for n, region in enumerate([f"20:1-{last}", f"20:{following}-2000000"])
    ]
    run("ligate", *chunks, "-o", tmp_path / "o.vcf").refused()
    run("ligate", *chunks, "-o", tmp_path / "o.vcf", "--panel", opened.path).ok()


def test_given_twice_and_contained(refused, made, example, opened, tmp_path, impute):
    chunk = made / "a0.vcf.gz"
    assert "are both of 20:1-300000" in refused(chunk, made / "a1.vcf.gz", chunk)
    inner = impute(example / "target.vcf.gz", tmp_path / "i.vcf.gz", opened, "20:1000-20000")
    assert "lies within" in refused(chunk, inner)
    three = impute(example / "target.vcf.gz", tmp_path / "t.vcf.gz", opened, "20:340000-800000")
    assert "at most two may overlap" in refused(made / "o0.vcf.gz", made / "o1.vcf.gz", three)


def test_another_panel(refused, made, example, tmp_path, impute, abutting):
    with spinimpute.Panel.open(_panel_of(example, tmp_path)) as other:
        chunk = impute(example / "target.vcf.gz", tmp_path / "1.vcf.gz", other, abutting[1])
        message = refused(made / "a0.vcf.gz", chunk)
        assert "differ in the panel" in message
        assert str(chunk) in message
        assert "imputed from another panel" in refused(made / "a0.vcf.gz", "--panel", other.path)


def test_other_samples_formats_and_versions(
    refused, made, example, opened, tmp_path, impute, rewritten, abutting
):
    first = made / "a0.vcf"
    for change, said in (
        (lambda d: d.replace(b"\ttarget_AFR_02", b"\trenamed", 1), "their samples or the order of samples"),
        (lambda d: d.replace(b"##source=spinimpute ", b"##source=spinimpute x"), "in the program"),
        (lambda d: d.replace(b"##spinimpute_model=", b"##spinimpute_model=x"), "in the model"),
        (lambda d: d.replace(b"ID=AF,Number=A", b"ID=AF,Number=1"), "in the definitions"),
        (lambda d: re.sub(rb"##spinimpute_region.*\n", b"", d), "does not give one region"),
        (lambda d: d.replace(b"20:300001-712345 ", b"20:300001-712345 unmatched=0 "), "give one region"),
    ):
        other = rewritten(made / "a1.vcf", tmp_path / "other.vcf", change)
        message = refused(first, other, suffix=".vcf")
        assert said in message
        assert str(other) in message
    assert "give one region" in refused(made / "whole.vcf.gz")
    other = impute(example / "target.vcf.gz", tmp_path / "other.bcf", opened, abutting[1], formats=("GT",))
    assert "differ in FORMAT: GT:DS:HDS:GP and GT" in refused(made / "a0.bcf", other, suffix=".bcf")
    other = impute(example / "target.vcf.gz", tmp_path / "finer.bcf", opened, abutting[1], decimals=4)
    assert "in steps of 0.0001" in refused(made / "a0.bcf", other, suffix=".bcf")


def test_another_target_of_the_same_samples(
    run, refused, made, opened, tmp_path, impute, rewritten, abutting, edited_target, suffix
):
    """Here they have the calls of each other."""

    def turn(text: str) -> str:
        lines = [line.split("\t") for line in text.splitlines()]
        turned = [row if row[0][0] == "#" else [*row[:9], *row[10:], row[9]] for row in lines]
        return "".join("\t".join(row) + "\n" for row in turned)

    other = impute(edited_target(turn), tmp_path / f"other{suffix}", opened, abutting[1])
    message = refused(made / f"a0{suffix}", other, suffix=suffix)
    assert "were imputed from different targets: the calls at 20:" in message
    assert "Impute both from the same file" in message
    # versions before wrote none
    earlier = rewritten(
        other, tmp_path / "earlier.vcf", lambda d: re.sub(rb"##spinimpute_target=.*\n", b"", d)
    )
    if suffix == ".vcf":
        run("ligate", made / "a0.vcf", earlier, "--out", tmp_path / "o.vcf", "-q").ok()
        assert "different targets" in refused(earlier, made / "a0.vcf", other, suffix=suffix)


def test_another_target_that_kept_the_header_of_ours(refused, example, opened, tmp_path, impute, abutting):
    """`bcftools +setGT`, `reheader` and `view -s` keep our header lines beside other calls."""
    ours, other = tmp_path / "ours.vcf", tmp_path / "other.vcf"
    spinimpute.phase(example / "target.vcf.gz", ours, opened)
    lines = [line.split("\t") for line in ours.read_text().splitlines()]
    turned = [row if row[0][0] == "#" else [*row[:9], *row[10:], row[9]] for row in lines]
    other.write_text("".join("\t".join(row) + "\n" for row in turned))
    spinimpute.phase(other, tmp_path / "again.vcf", opened)
    first = impute(ours, tmp_path / "0.vcf", opened, abutting[0])
    for number, target in enumerate((other, tmp_path / "again.vcf"), start=1):
        chunk = impute(target, tmp_path / f"{number}.vcf", opened, abutting[1])
        assert "were imputed from different targets" in refused(first, chunk, suffix=".vcf")


def test_fewer_samples(refused, made, tmp_path, rewritten):
    def without_last(text: bytes) -> bytes:
        lines = text.decode().splitlines()
        return ("\n".join(x if x[:2] == "##" else x.rsplit("\t", 1)[0] for x in lines) + "\n").encode()

    other = rewritten(made / "a1.vcf.gz", tmp_path / "other.vcf.gz", without_last)
    assert "differ in the number of samples: 20 and 19" in refused(made / "a0.vcf.gz", other)


def test_a_site_lost_and_a_site_doubled(refused, made, panel, tmp_path, rewritten):
    def one_less(text: bytes) -> bytes:
        lines = text.splitlines(keepends=True)
        del lines[-10]
        return re.sub(rb"sites=(\d+)", lambda m: b"sites=%d" % (int(m[1]) - 1), b"".join(lines))

    def one_twice(text: bytes) -> bytes:
        lines = text.splitlines(keepends=True)
        lines.insert(-10, lines[-10])
        return re.sub(rb"sites=(\d+)", lambda m: b"sites=%d" % (int(m[1]) + 1), b"".join(lines))

    less = rewritten(made / "o0.vcf", tmp_path / "less.vcf", one_less)
    assert "do not have the same sites" in refused(less, made / "o1.vcf", suffix=".vcf")
    assert "lacks the panel site 20:" in refused(less, "--panel", panel, suffix=".vcf")
    twice = rewritten(made / "a0.vcf", tmp_path / "twice.vcf", one_twice)
    assert "each of the panel's sites once" in refused(twice, "--panel", panel, suffix=".vcf")


def test_other_forms(refused, made, example, tmp_path, content):
    assert "is BCF, but the output is VCF" in refused(made / "a0.bcf")
    assert "is VCF, but the output is BCF" in refused(made / "a0.vcf", suffix=".bcf")
    assert "there is no such file" in refused(tmp_path / "absent.bcf")
    plain = tmp_path / "plain.vcf.gz"
    plain.write_bytes(gzip.compress(content(made / "a0.vcf")))
    assert "is compressed with gzip, not with bgzip. Compress it again" in refused(plain)


def test_output_that_is_there(run, made, tmp_path):
    out = tmp_path / "o.vcf"
    out.write_text("precious")
    run("ligate", made / "a0.vcf", "-o", out).refused("--force")
    assert out.read_text() == "precious"
    copy = tmp_path / "c.vcf"
    copy.write_bytes((made / "a0.vcf").read_bytes())
    run("ligate", copy, "-o", copy, "--force").refused()
    run("ligate", copy, "-o", out, "--force").ok()


def test_other_command_lines_are_told(run, example, panel, tmp_path):
    chunks = []
    for number, ambiguous in enumerate(("keep", "drop")):
        chunks.append(tmp_path / f"{number}.vcf")
        region = ("--region", ("20:1-20000", "20:20001-40000")[number])
        vcf = example / "target.vcf.gz"
        run.impute(vcf, panel, chunks[-1], "--ambiguous", ambiguous, *region)
    run("ligate", *chunks, "-o", tmp_path / "o.vcf", "-q").ok("were made differently")


def _panel_of(example: Path, folder: Path) -> Path:
    """Of the example, with another map."""
    path = folder / "other.spin"
    with pytest.warns(UserWarning, match="no genetic map"):
        spinimpute.build_panel(example / "panel.vcf.gz", path).close()
    return path
