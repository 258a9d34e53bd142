"""Files of consumer arrays: every form gives the same calls; what is wrong is named with its line."""

import gzip
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.ploidy import resolve_ploidy
from spinimpute.genotypes.sites import NoRecord, Sites
from spinimpute.runtime.errors import InputError
from spinimpute.targets import array_text
from spinimpute.targets.array_text import is_array_text, read_array_calls, read_array_text
from spinimpute.targets.repair import OTHER_STRAND, repair_and_match

REPOSITORY = Path(__file__).resolve().parents[2]
LINE, LINE_37 = "##contig=<ID=20>", "##contig=<ID=20,length=63025520>"
CALLS = [
    ("rs1", "20", 100, "AC"),
    ("rs2", "20", 200, "GG"),
    ("rs3", "20", 300, "--"),
    ("rs4", "21", 50, "TT"),
]
PANEL = Sites("20", np.array([100, 200, 300]), ["A", "C", "T"], ["C", "G", "G"], ["."] * 3)

FORMS = {
    "23andMe": "# build 37\n# rsid\tchromosome\tposition\tgenotype\n"
    + "".join(f"{i}\t{c}\t{p}\t{g}\n" for i, c, p, g in CALLS),
    "AncestryDNA": "#AncestryDNA\nrsid\tchromosome\tposition\tallele1\tallele2\n"
    + "".join(f"{i}\t{c}\t{p}\t{g[0].replace('-', '0')}\t{g[1].replace('-', '0')}\n" for i, c, p, g in CALLS),
    "FamilyTreeDNA": "RSID,CHROMOSOME,POSITION,RESULT\n"
    + "".join(f'"{i}","{c}","{p}","{g}"\n' for i, c, p, g in CALLS),
    "MyHeritage": "# MyHeritage\n##build37\nRSID,CHROMOSOME,POSITION,RESULT\n"
    + "".join(f'"{i}","chr{c}","{p}","{g}"\r\n' for i, c, p, g in CALLS),
    "spreadsheet": "rsid;chromosome;position;genotype\r\n"
    + "".join(f"{i};{c};{p};{g}\r\n" for i, c, p, g in CALLS),
    "headless": "".join(f"{i} {c} {p} {g}\n" for i, c, p, g in CALLS),
}

NOT_UTF8 = gzip.compress(b"BCF\2\2" + b"##fileformat=VCFv4.2\n" * 90 + bytes(range(128, 256)) * 40)


def write(tmp_path: Path, text: str, name: str = "my file.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def haplotypes(path: Path, panel: Sites = PANEL, line: str = LINE):  # type: ignore[no-untyped-def]
    calls = read_array_calls(path, panel, line)
    expected = np.full(len(calls.sites), np.nan)
    return resolve_ploidy(
        calls, expected, {}, all_haploid=panel.chrom in ("Y", "MT"), haploid_in_males=panel.chrom == "X"
    ).haplotypes


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, FORMS[form])
    assert is_array_text(path)
    text = read_array_text(path)
    found = [(c.id, c.chrom, c.position, c.letters) for c in text.calls]
    assert found == [(i, c, p, g.replace("-", "")) for i, c, p, g in CALLS]
    target = haplotypes(path)
    assert target.samples == ["my_file"]
    assert target.sites.keys() == PANEL.keys()
    assert target.sites.id == ["rs1", "rs2", "rs3"]
    assert target.alleles.tolist() == [[0, 1], [1, 1], [-1, -1]]
    assert target.unphased is not None
    assert target.unphased.tolist() == [[True], [False], [False]]
    assert target.skipped == {"on another chromosome": 1}


def test_the_name_of_a_file_that_is_no_text(tmp_path: Path) -> None:
    """A sample's name is written to files in UTF-8."""
    path = write(tmp_path, FORMS["23andMe"], os.fsdecode(b"Jos\xe9.txt"))
    assert read_array_text(path).name == r"Jos\xe9"


@pytest.mark.parametrize("form", ["gz", "zip"])
def test_packed_files(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"packed.{form}"
    if form == "gz":
        path.write_bytes(gzip.compress(FORMS["23andMe"].encode()))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("genome.txt", FORMS["23andMe"])
            archive.writestr("__MACOSX/._genome.txt", "attributes")
    assert is_array_text(path)
    assert haplotypes(path).alleles.tolist() == [[0, 1], [1, 1], [-1, -1]]
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[:-20])
    if is_array_text(cut):
        with pytest.raises(InputError, match="cannot be read to its end"):
            read_array_text(cut)


def test_an_archive_of_several_files(tmp_path: Path) -> None:
    path = tmp_path / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", FORMS["23andMe"])
        archive.writestr("b.txt", "")
    with pytest.raises(InputError, match="the archive holds 2 files"):
        is_array_text(path)


def test_the_other_strand_is_repaired_and_strangers_match_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "rs1\t20\t100\tGT\nrs2\t20\t200\tAA\nrs3\t20\t300\tAA\nrs9\t20\t900\tCT\n")
    done = repair_and_match(PANEL, np.full(3, 0.2), haplotypes(path))
    # AC on the other strand is TG; AA does not fit C/G; T of T/G on the other strand is A
    assert done.counts() == {OTHER_STRAND: 2}
    assert done.match.panel_index.tolist() == [0, 2]
    assert done.target.alleles[done.match.target_index].tolist() == [[0, 1], [0, 0]]
    assert done.match.unmatched == {"alleles differ from the panel": 1, "position not in panel": 1}


def test_haploid_calls_and_deletions(tmp_path: Path) -> None:
    text = "rs1\t23\t100\tA\nrs2\tX\t200\tGG\nrs3\tXY\t300\tTG\nrs4\tX\t400\tDD\nrs5\tX\t500\t-\n"
    text += "rs6\tX\t600\tA\nrs7\tX\t700\tC\n"
    path = write(tmp_path, text)
    panel = Sites(
        "chrX", np.array([100, 200, 300, 500]), ["A", "C", "T", "A"], ["C", "G", "G", "C"], ["."] * 4
    )
    target = haplotypes(path, panel)
    assert target.ploidy.tolist() == [1]
    assert target.alleles.tolist() == [[0], [1], [-1], [-1], [0], [0]]
    assert target.unphased is None
    assert target.skipped == {"insertion or deletion without its alleles": 1}


def test_another_build_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "# reference human assembly build 36\n" + FORMS["headless"])
    with pytest.warns(
        UserWarning, match=r"GRCh36, the panel is on GRCh37. Lift .* hg18ToHg19\.over\.chain\.gz"
    ):
        haplotypes(path, line=LINE_37)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        haplotypes(write(tmp_path, FORMS["23andMe"]), line=LINE_37)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rs5\t20\t500", r"line 3: 3 columns"),
        ("rs5\t20\t500\tA\tC\tG", r"line 3: 6 columns"),
        ("rs5\t20\tfive\tAC", r"line 3: the position 'five' is not a number"),
        ("rs5\t20\t-5\tAC", r"line 3: the position '-5'"),
        ("rs5\t20\t99999999999\tAC", r"line 3: the position"),
        ("rs5\t20\t500\tXZ", r"line 3: 'XZ' is not a genotype"),
        ("rs5\t20\t500\tACG", r"line 3: 'ACG' is not a genotype"),
    ],
)
def test_bad_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"rs1\t20\t100\tAC\nrs2\t20\t200\tGG\n{line}\n")
    assert is_array_text(path)
    with pytest.raises(InputError, match=message):
        read_array_text(path)


def test_more_calls_than_an_array_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, FORMS["23andMe"])
    monkeypatch.setattr(array_text, "MAX_CALLS", 4)
    assert len(read_array_text(path).calls) == 4
    path.write_text(FORMS["23andMe"] + "rs5\t21\t60\tTT\n")  # a changed file is read again
    with pytest.raises(InputError, match="it has more than 4 calls, the limit for such a file"):
        read_array_text(path)


def test_lines_without_a_place_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "rs1\t20\t100\tAC\nrs2\t--\t200\tGG\nrs3\t--\t--\tGG\nrs4\t0\t0\tGG\n")
    target = haplotypes(path)
    assert target.skipped == {"without a position in the genome": 3}
    assert len(target.sites) == 1


def test_another_chromosome(tmp_path: Path) -> None:
    path = write(tmp_path, "rs1\t7\t100\tAC\nrs1\t8\t100\tAC\n")
    with pytest.raises(NoRecord, match=r"no call on chromosome 20\. The file has 7, 8"):
        haplotypes(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"# only comments\n", b"hello world\n", b"BCF\2\2\0\0", b"PK\3\4", b"\x1f\x8b", NOT_UTF8],
)
def test_other_files_are_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert not is_array_text(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(form=st.sampled_from(sorted(FORMS)), seed=st.integers(0, 10**6))
def test_mutated_files_are_read_or_refused(form: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    content = bytearray(FORMS[form].encode())
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, len(content)))
        action = rng.integers(0, 3)
        if action == 0:
            content[at] = int(rng.integers(0, 256))
        elif action == 1:
            del content[at : at + int(rng.integers(1, 20))]
        else:
            content[at:at] = content[: int(rng.integers(0, 30))]
    path = tmp_path / "mutated"
    path.write_bytes(bytes(content))
    if not is_array_text(path):
        return
    try:
        target = haplotypes(path)
    except InputError as refused:
        assert str(path) in str(refused)  # noqa: PT017
        return
    assert target.alleles.shape == (len(target.sites), int(target.ploidy.sum()))
    assert (np.diff(target.sites.position) >= 0).all()
    assert set(np.unique(target.alleles)) <= {-1, 0, 1}


SNIPPETS = (
    "small_23andme.txt small_ancestry.txt small_ftdna.csv small_livingdna.csv small_myheritage.csv "
    "sample_23andme.txt sample_FamilyTreeDNA.csv sample_MyHeritage.csv"
)


@pytest.mark.parametrize("name", SNIPPETS.split())
def test_real_snippets(name: str, shared_genotypes: Path) -> None:
    path = shared_genotypes.parent / "array_text" / name
    assert is_array_text(path)
    if not any(line[:1] not in {"#", "R"} for line in path.read_text().splitlines()):
        with pytest.raises(InputError, match="no genotypes"):  # some snippets end with the head
            read_array_text(path)
        return
    calls = read_array_text(path).calls
    assert calls
    if name.startswith("small"):
        assert [(c.id, c.chrom, c.position, c.letters) for c in calls][:4] == [
            ("rs1", "1", 101, "AA"),
            ("rs2", "1", 102, "CC"),
            ("rs3", "1", 103, "GG"),
            ("rs4", "1", 104, "TT"),
        ]
