"""Targets of another genome build: a chain file with a shift, an inversion and a gap."""

import gzip
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

from spinimpute.runtime.errors import InputError
from spinimpute.targets.liftover import Lift

# new positions 1-500,000 were 1,001-501,000; 500,001-1,000,000 lay the other way round from 1,000,999 down to
# 501,000; 100,001-110,000 had no place
SIZE = 1_002_000
CHAINS = f"""chain 1000 chr20 {SIZE} + 1000 501000 chr20 1000000 + 0 500000 1
100000 10000 10000
390000

chain 900 chr20 {SIZE} + 501000 1001000 chr20 1000000 - 0 500000 2
500000

"""
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def old_place(position: int) -> int:
    return position + 1_000 if position <= 500_000 else 1_501_001 - position


def lost(position: int) -> bool:
    return 100_000 < position <= 110_000


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "old_to_new.chain.gz"
    path.write_bytes(gzip.compress(CHAINS.encode()))
    return path


def target_lines(example: Path) -> tuple[list[str], list[list[str]]]:
    lines = gzip.decompress((example / "target.vcf.gz").read_bytes()).decode().splitlines()
    return [x for x in lines if x.startswith("#")], [x.split("\t") for x in lines if not x.startswith("#")]


def write(path: Path, head: list[str], rows: list[list[str]]) -> Path:
    rows = sorted(rows, key=lambda row: int(row[1]))
    path.write_text("\n".join([*head, *("\t".join(row) for row in rows)]) + "\n")
    return path


def in_old_build(row: list[str]) -> list[str]:
    position = int(row[1])
    ref, alt = row[3], row[4]
    if position > 500_000:
        ref, alt = ref.translate(COMPLEMENT), alt.translate(COMPLEMENT)
    return [row[0], str(old_place(position)), row[2], ref, alt, *row[5:]]


def test_places(chain):
    lift = Lift(chain, "20")
    for position in (1, 100_000, 110_001, 500_000, 500_001, 777_777, 1_000_000):
        assert lift.convert(old_place(position)) == (position, position > 500_000)
    assert lift.convert(old_place(105_000)) is None
    assert lift.convert(5) is None


def test_a_lifted_vcf_gives_the_same(run, example, panel, chain, tmp_path):
    head, rows = target_lines(example)
    kept = [row for row in rows if not lost(int(row[1]))]
    assert len(kept) < len(rows)
    now = write(tmp_path / "now.vcf", head, kept)
    old = write(tmp_path / "old.vcf", head, [in_old_build(row) for row in rows])
    found = []
    for target, more in ((now, ()), (old, ("--chain", chain))):
        out = tmp_path / "o.vcf"
        done = run.impute(target, panel, out, "-f", *more).ok()
        found.append([line for line in out.read_text().splitlines() if not line.startswith("##")])
    assert f"{len(rows) - len(kept)} records skipped: not in the chain file" in done.err
    assert "strand" not in done.err
    assert found[0] == found[1]
    run.impute(old, panel, tmp_path / "w.vcf").refused("--chain")


def test_lifted_records_without_alt(run, example, panel, chain, tmp_path):
    """The panel's site is looked for in its own build, on its own strand."""
    head, rows = target_lines(example)
    head[-1] = "\t".join(head[-1].split("\t")[:10])
    rows = [row[:10] for row in rows if not lost(int(row[1]))]
    plain = [[*row[:4], row[4] if "1" in row[9] else ".", *row[5:]] for row in rows]
    old = write(tmp_path / "old.vcf", head, [in_old_build(row) for row in plain])
    assert sum(row[4] == "." and int(row[1]) > 500_000 for row in plain) > 20
    found = []
    for target, more in ((write(tmp_path / "now.vcf", head, rows), ()), (old, ("--chain", chain))):
        run.impute(target, panel, tmp_path / "o.vcf", "-f", *more).ok()
        found.append([x for x in (tmp_path / "o.vcf").read_text().splitlines() if not x.startswith("##")])
    assert found[0] == found[1]


def test_a_lifted_text_and_check(run, example, panel, chain, tmp_path):
    _, rows = target_lines(example)
    kept = [row for row in rows if not lost(int(row[1]))]

    def text(rows: list[list[str]], path: Path) -> Path:
        calls = (
            (r[2], r[1], "".join(sorted(r[3:5][int(a)] for a in r[9].split(":")[0].split("|")))) for r in rows
        )
        path.write_text("".join(f"{name}\t20\t{position}\t{letters}\n" for name, position, letters in calls))
        return path

    now = text(kept, tmp_path / "me.txt")
    (tmp_path / "old").mkdir()
    old = text([in_old_build(row) for row in rows], tmp_path / "old" / "me.txt")
    dosages = []
    for target, more in ((now, ()), (old, ("--chain", chain))):
        out = tmp_path / "o.vcf"
        run.impute(target, panel, out, "-f", *more).ok()
        dosages.append(np.array([v.format("DS")[:, 0] for v in cyvcf2.VCF(str(out))]))
    np.testing.assert_array_equal(*dosages)
    done = run("check", "--vcf", old, "--panel", panel, "--chain", chain).ok()
    assert f"{len(rows) - len(kept)} records skipped: not in the chain file" in done.out


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "no chain in it. Give the chain file from the target's build to the panel's, such as UCSC's"),
        (bytes(range(256)) * 9, "no chain in it. Give the chain file from"),
        (b"chain " + bytes(range(256)) * 9, "not a chain file, or is damaged .*\\. Give the chain file from"),
        (b"hello\n", "chain file"),
        (b"\x1f\x8b\x08broken", "cannot be read"),
        # without the time: the name of a test has to be the same in every process
        (gzip.compress(CHAINS.encode() * 50, mtime=0)[:60] + b"x" * 40, "cannot be read"),
        (
            CHAINS.replace("chr20", "chr5").encode(),
            "no chain of chromosome 20, but of chr5. Give the chain file from",
        ),
        (CHAINS.encode()[:90], "chain file"),
    ],
)
def test_unusable_chains(content, what, tmp_path):
    path = tmp_path / "x.chain"
    path.write_bytes(content)
    with pytest.raises(InputError, match=what):
        Lift(path, "20")
    with pytest.raises(InputError, match="cannot be read"):
        Lift(tmp_path / "nowhere.chain", "20")


@pytest.mark.parametrize(
    "text", ["chain 1 chr20 9\n", "chain 1 chr20 9 + 0 9 chr20 9 + 0 9 1\n9 1\n\x1b[2J\n\n"]
)
def test_damaged_chains_are_named_on_one_line(tmp_path, text):
    path = tmp_path / "bad.chain"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.chain: it is not a chain file, or is damaged") as error:
        Lift(path, "20")
    assert str(error.value).isprintable()


def test_chains_to_where_no_position_is(tmp_path):
    path = tmp_path / "far.chain"
    path.write_text(f"chain 1 chr20 90 + 0 90 chr20 {2**70} + {2**69} {2**69 + 90} 1\n90\n\n")
    assert Lift(path, "20").convert(5) is None
