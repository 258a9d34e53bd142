"""Reading through an index gives all records, or the file is refused: damage, indexes of other files, and
records that an index does not find."""

import base64
import gzip
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import AT_POSITION_0, ON_ANOTHER_CHROMOSOME, Region
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.runtime.errors import InputError
from spinimpute.vcf import index_reader
from spinimpute.vcf import reader as vcf_reader
from spinimpute.vcf.bgzf import EOF_BLOCK, DamagedFile, compress_block
from spinimpute.vcf.chromosome_records import count_records
from spinimpute.vcf.index_reader import check_index, read_index, split_by_size
from spinimpute.vcf.reader import read_haplotypes

pytestmark = pytest.mark.slow

MAP = GeneticMap.constant(1.3)
NAMES = [f"s{i}" for i in range(4)]
HEADER = (
    "##fileformat=VCFv4.2\n{}"
    '##INFO=<ID=X,Number=1,Type=String,Description="x">\n'
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="x">\n'
)
CONTIGS = "##contig=<ID=19>\n##contig=<ID=20>\n##contig=<ID=21>\n"
COLUMNS = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
FORMS = ["bcf csi", "vcf.gz csi", "vcf.gz tbi"]
GENOME = "".join(np.random.default_rng(5).choice(list("ACGT"), 2**18))
PARTS = [{"chrom": "20"}, {"region": Region("20", 60_001, 200_000)}, {"region": Region("20", 230_000)}]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_reader, "INTERVAL_BYTES", 1_000)
    monkeypatch.setattr(vcf_reader, "BLOCK_BYTES", 6 * len(NAMES) * 100)


def lines(chrom: str = "20", positions: range = range(1_000, 241_000, 200)) -> list[str]:
    """Records that overlap, with much INFO: indices do not distinguish intervals of few compressed bytes."""
    rng = np.random.default_rng(sum(map(int, chrom)))
    made = []
    for position in positions:
        start = position % (len(GENOME) - 500)
        ref = f"A{GENOME[start : start + 500]}"
        calls = [f"{a:d}|{b:d}" for a, b in rng.random((len(NAMES), 2)) < 0.3]
        noise = base64.b64encode(rng.bytes(750)).decode()
        made.append("\t".join([chrom, str(position), ".", ref, "C", ".", ".", f"X={noise}", "GT", *calls]))
    return made


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """write(lines, form, name): a file, "bcf csi" for example, with its index."""
    request.getfixturevalue("index")  # skips without bcftools

    def written(records: list[str], form: str, name: str = "t", contigs: str = CONTIGS) -> Path:
        text = tmp_path / "text.vcf"
        columns = "\t".join([*COLUMNS, *NAMES])
        text.write_text("\n".join([HEADER.format(contigs) + columns, *records, ""]))
        suffix, kind = form.split()
        path = tmp_path / f"{name}.{suffix}"
        way = "-Ob" if suffix == "bcf" else "-Oz"
        subprocess.run(["bcftools", "view", "--no-version", way, "-o", path, text], check=True)
        text.unlink()
        subprocess.run(["bcftools", "index", "-f", "-t" if kind == "tbi" else "-c", path], check=True)
        return path

    return written


def blocks(content: bytes) -> list[int]:
    """Where the BGZF blocks begin."""
    found = [0]
    while found[-1] < len(content):
        found.append(found[-1] + int.from_bytes(content[found[-1] + 16 : found[-1] + 18], "little") + 1)
    return found[:-1]


def index_of(path: Path) -> Path:
    (found,) = [beside for kind in ("csi", "tbi") if (beside := Path(f"{path}.{kind}")).exists()]
    return found


def damage(path: Path, what: str) -> None:
    """In the middle of the file; the index stays the newer of the two."""
    content = bytearray(path.read_bytes())
    block = blocks(content)[len(blocks(content)) // 2]
    if what == "data":
        content[block + 3_000] ^= 0x55
        content[block + 3_001] ^= 0x55
    else:
        content[block] ^= 0xFF
    path.write_bytes(content)
    os.utime(index_of(path))


@pytest.mark.parametrize("what", ["data", "header"])
@pytest.mark.parametrize("form", FORMS)
def test_damage_in_the_middle(write: Callable[..., Path], tmp_path: Path, form: str, what: str) -> None:
    path = write(lines(), form)
    damage(path, what)
    assert len(split_by_size(path, ["19", "20", "21"], None)) > 1
    before = sorted(tmp_path.iterdir())
    for region in (None, Region("20", 1_001, 230_000)):
        for threads in (1, 2):
            with pytest.raises(InputError, match=r"panel .*\bt\..*[Gg]et the file again"):
                compile_panel(BuildJob(path, tmp_path / "p.spin", MAP, region, threads=threads))
    for part in PARTS[:2]:
        with pytest.raises(InputError, match=r"target .*Get the file again, or write its index again"):
            read_haplotypes(path, **part)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "other",
    [lines()[:700], lines()[300:], lines()[:500] + lines()[700:], lines("21"), lines("19") + lines()],
    ids=["ended earlier", "began later", "gap", "other chromosome", "two chromosomes"],
)
@pytest.mark.parametrize("form", FORMS)
def test_a_newer_index_of_another_file(
    write: Callable[..., Path], tmp_path: Path, form: str, other: list[str]
) -> None:
    """The file is whole: it is read without the index, with a warning that says what is wrong."""
    path = write(lines(), form)
    whole = [read_haplotypes(path, **part) for part in PARTS]
    compile_panel(BuildJob(path, tmp_path / "whole.spin", MAP)).close()
    index = index_of(path)
    shutil.copy(index_of(write(other, form, "other")), index)
    for time, what in ((path.stat().st_mtime + 9, "is of another file"), (1, "is older than the file")):
        os.utime(index, (time, time))
        said = (
            rf"{path.name}: its index {index.name} {what}. .* read without .*bcftools index -f .*{path.name}"
        )
        with pytest.warns(UserWarning, match=said):
            compile_panel(BuildJob(path, tmp_path / "p.spin", MAP, threads=2, force=True)).close()
        assert (tmp_path / "p.spin").read_bytes() == (tmp_path / "whole.spin").read_bytes()
        for part, expected in zip(PARTS, whole, strict=True):
            with pytest.warns(UserWarning, match=said):
                found = read_haplotypes(path, **part)
            assert found.sites.keys() == expected.sites.keys()
            np.testing.assert_array_equal(found.alleles, expected.alleles)


@pytest.mark.parametrize("form", FORMS)
def test_counts(write: Callable[..., Path], form: str) -> None:
    """Wherever a region begins and ends, and whatever lies in front of the chromosome."""
    path = write(
        lines("19", range(0, 90_000, 300)) + lines() + lines("21", range(800_000, 900_000, 300)), form
    )
    contigs = read_index(path)
    assert [contig.name for contig in contigs] == ["19", "20", "21"]
    placed = {
        "19": range(0, 90_000, 300),
        "20": range(1_000, 241_000, 200),
        "21": range(800_000, 900_000, 300),
    }
    rng = np.random.default_rng(2)
    for contig in contigs:
        positions = np.array(placed[contig.name])
        assert count_records(path, contigs, contig, None) == ((positions > 0).sum(), (positions == 0).sum())
        for _ in range(20):
            start, end = sorted(rng.integers(1, 1_000_000 if contig.name == "21" else 250_000, 2).tolist())
            inside, _ = count_records(path, contigs, contig, Region(contig.name, start, end))
            assert inside == ((positions >= start) & (positions <= end)).sum()


@pytest.mark.parametrize("form", FORMS)
def test_counts_do_not_trust_the_index(write: Callable[..., Path], form: str) -> None:
    path = write(lines(), form)
    (contig,) = read_index(path)
    first, late = contig.starts[0], contig.starts[-1]
    wrong = contig._replace(starts=[first, late._replace(latest=late.latest // 4)])
    with pytest.raises(DamagedFile, match="is not the one that the index lists"):
        count_records(path, [wrong], wrong, Region("20", late.latest // 4 + 1))
    wrong = contig._replace(starts=[first, late._replace(offset=late.offset + (5 << 16), latest=500)])
    with pytest.raises(DamagedFile, match="no BGZF block starts"):
        count_records(path, [wrong], wrong, Region("20", 501))


@pytest.mark.parametrize("form", FORMS)
def test_several_chromosomes(write: Callable[..., Path], form: str) -> None:
    path = write(lines("19") + lines() + lines("21"), form)
    for part in PARTS:
        found = read_haplotypes(path, **part)
        region = part.get("region", Region("20"))
        assert len(found.sites) == sum(region.start <= p <= region.end for p in range(1_000, 241_000, 200))
        assert found.skipped == ({} if "region" in part else {ON_ANOTHER_CHROMOSOME: 2_400})


@pytest.mark.parametrize("form", FORMS)
def test_position_0(write: Callable[..., Path], tmp_path: Path, form: str) -> None:
    """The telomere: nothing can be imputed from it. It is counted as left out, however the file is read."""
    path = write(lines("19") + lines(positions=range(0, 241_000, 200)), form)
    skipped = []
    for indexed in (True, False):
        for part in ({"chrom": "20"}, {"region": Region("20", 1, 200_000)}):
            found = read_haplotypes(path, **part)
            assert found.sites.position[0] == 200
            skipped.append(found.skipped)
        if indexed:
            index_of(path).unlink()
    assert skipped[:2] == skipped[2:] == [{AT_POSITION_0: 1, ON_ANOTHER_CHROMOSOME: 1_200}, {}]
    path = write(lines(positions=range(0, 241_000, 200)), form)
    for region in (None, Region("20")):
        for threads in (1, 2):
            with compile_panel(
                BuildJob(path, tmp_path / f"{threads}.spin", MAP, region, force=True, threads=threads)
            ) as panel:
                assert panel.position[0] == 200
                assert panel.provenance["skipped"] == ({} if region else {AT_POSITION_0: 1})
        assert (tmp_path / "1.spin").read_bytes() == (tmp_path / "2.spin").read_bytes()


def test_contigs_of_a_bcf_by_their_numbers(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(
        lines(), "bcf csi", contigs="##contig=<ID=18,IDX=0>\n##contig=<ID=20,IDX=2>\n##contig=<ID=21,IDX=3>\n"
    )
    assert [(contig.name, contig.number) for contig in read_index(path)] == [("20", 2)]
    for threads in (1, 2):
        compile_panel(BuildJob(path, tmp_path / f"{threads}.spin", MAP, threads=threads)).close()
    assert (tmp_path / "1.spin").read_bytes() == (tmp_path / "2.spin").read_bytes()


@pytest.mark.parametrize(
    ("at", "value"),
    [(4, -1), (4, 10**6), (8, -1), (8, 2 * 10**9), (12, -40), (16, -1), (16, 2**28), (20, -5), (36, -1)],
    ids=["shift", "shift", "depth", "depth", "names", "contigs", "contigs", "bins", "chunks"],
)
def test_a_crafted_index_is_not_used(write: Callable[..., Path], tmp_path: Path, at: int, value: int) -> None:
    path = write(lines(), "bcf csi", contigs="##contig=<ID=20>\n")
    content = bytearray(gzip.decompress(index_of(path).read_bytes()))
    struct.pack_into("<i", content, at, value)
    index_of(path).write_bytes(compress_block(content))
    assert read_index(path) == []
    assert len(read_haplotypes(path, chrom="20").sites) == 1_200
    compile_panel(BuildJob(path, tmp_path / "p.spin", MAP, threads=2)).close()


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_cut_index_of_a_vcf_is_refused(write: Callable[..., Path], form: str) -> None:
    """The library that reads would spoil its memory with it, on opening the file."""
    path = write(lines(), form)
    whole = gzip.decompress(index_of(path).read_bytes())
    index = index_of(path)
    elsewhere = path.with_name(f"{path.stem}{index.suffix}")
    for place in (index, elsewhere):  # it is found by both names
        index.unlink(missing_ok=True)
        for cut in (0, 3, 8, 20, 40, 60, len(whole) // 2, len(whole) - 30):
            place.write_bytes(compress_block(whole[:cut]))
            with pytest.raises(InputError, match=rf"its index .*{place.name} is damaged .*bcftools index -f"):
                read_haplotypes(path, chrom="20")
        place.write_bytes(compress_block(whole)[:-40])
        with pytest.raises(InputError, match="is damaged"):
            read_haplotypes(path)


def end_at(path: Path, offset: int) -> None:
    """The index's last chunk ends at another virtual offset."""
    content = gzip.decompress(index_of(path).read_bytes())
    end = struct.pack("<Q", max(contig.end for contig in read_index(path)))
    assert end in content
    index_of(path).write_bytes(compress_block(content.replace(end, struct.pack("<Q", offset))))


@pytest.mark.parametrize("form", FORMS)
def test_the_last_records_end_at_the_block_that_ends_the_file_or_behind_it(
    write: Callable[..., Path], form: str
) -> None:
    """Which of both an index has depends on how its writer read the file."""
    path = write(lines(), form)
    size = path.stat().st_size
    for end in (size - len(EOF_BLOCK) << 16, size << 16):
        end_at(path, end)
        assert [len(read_haplotypes(path, **part).sites) for part in PARTS] == [1_200, 700, 55]
    for end in (size - 1 << 16, size + 1 << 16, size << 16 | 1):
        end_at(path, end)
        with pytest.warns(UserWarning, match="is of another file. .*bcftools index -f"):
            assert len(read_haplotypes(path, chrom="20").sites) == 1_200
        write(lines(), form)


def test_a_name_in_the_records_alone(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Two names of a chromosome, of which the header lists one: a file that is read as a whole."""
    path = write(lines() + lines("21"), "vcf.gz tbi", contigs="##contig=<ID=chr20>\n##contig=<ID=21>\n")
    assert len(read_haplotypes(path, chrom="20").sites) == 1_200


@pytest.mark.parametrize("suffix", ["csi", "tbi"])
def test_an_index_that_unpacks_to_far_more(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "t.vcf.gz"
    path.write_bytes(EOF_BLOCK)
    Path(f"{path}.{suffix}").write_bytes(gzip.compress(b"CSI\1" + bytes(2**24)))
    with pytest.raises(InputError, match="unpack to more than 16,777,216"):
        check_index(path, "target")


def test_positions_that_no_index_holds_are_counted_apart(tmp_path: Path) -> None:
    """Cut to 32 bits, these positions would become negative or small."""
    head = '##fileformat=VCFv4.2\n##contig=<ID=20>\n##FORMAT=<ID=GT,Number=1,Type=String,Description="G">\n'
    head += "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", "s"]) + "\n"
    rows = [f"20\t{p}\t.\tA\tC\t.\t.\t.\tGT\t0|1\n" for p in (0, 100, 2**31 - 1, 2**31, 5 * 10**9)]
    (tmp_path / "t.vcf").write_text(head + "".join(rows))
    found = read_haplotypes(tmp_path / "t.vcf")
    assert found.sites.position.tolist() == [100, 2**31 - 1]
    assert found.skipped == {AT_POSITION_0: 1, "at a position beyond 2,147,483,647": 2}
