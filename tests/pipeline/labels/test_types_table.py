"""Tables of labels: resolutions, missing alleles, several rows of a sample, and bad tables."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from spinimpute.pipeline.labels.types_table import Locus, read_types
from spinimpute.runtime.errors import InputError

HEADER = "sample\tlocus\tposition\tallele1\tallele2\n"
SAMPLES = ["a", "b", "c", "d"]
PLOIDY = np.array([2, 2, 2, 2])


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "types.tsv"
    path.write_text(header + "".join(row.replace(" ", "\t") + "\n" for row in rows))
    return path


def allowed(locus: Locus, sample: str) -> list[set[str]]:
    """Return the alleles that each of a sample's two labels can be."""
    texts = locus.text_X2[SAMPLES.index(sample)]
    return [{locus.alleles[k] for k in np.flatnonzero(locus.allowed_MK[text])} for text in texts]


def test_resolutions_and_missing_alleles(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "b A 200 HLA-A*01:01 *02:01",
        "a A 200 01 A*03",
        "c A 200 01:02 .",
        "a B 100 7 8",
        "x B 100 7 8",
        "b A 200 NA 01:01",
    )
    table = read_types(path, SAMPLES, PLOIDY)
    assert table.unknown_samples == ["x"]
    b_locus, a_locus = table.loci  # by position
    assert (b_locus.name, b_locus.alleles, a_locus.position) == ("B", ["7", "8"], 200)
    everything = set(a_locus.alleles)
    assert everything == {"01:01", "01:02", "02:01", "03"}
    assert allowed(a_locus, "a") == [{"01:01", "01:02"}, {"03"}]
    assert allowed(a_locus, "b") == [{"01:01"}, {"02:01"}]
    assert allowed(a_locus, "c") == [{"01:02"}, everything]
    assert allowed(a_locus, "d") == [everything, everything]


def test_rows_of_a_sample_are_combined(tmp_path: Path) -> None:
    (locus,) = read_types(
        write(tmp_path, "a A 5 01 02:01", "a A 5 02 01:03", "b A 5 04:01 04:02"), SAMPLES, PLOIDY
    ).loci
    assert allowed(locus, "a") == [{"01:03"}, {"02:01"}]


def test_compressed_tables(tmp_path: Path) -> None:
    path = tmp_path / "types.tsv.gz"
    path.write_bytes(gzip.compress((HEADER + "a\tA\t5\t1\t2\n").encode()))
    assert read_types(path, SAMPLES, PLOIDY).loci[0].alleles == ["1", "2"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a A 5 01:01 02:01", "a A 5 03:01 02:01"], "line 3: sample a has 03:01 and 02:01 at A, which"),
        (["a A 5 01:01 02:01", "b A 6 01:01 02:01"], "line 3: A is at 6, but at 5 in line 2"),
        (["a A five 1 2"], "line 2: the position is 'five'"),
        (["a A 0 1 2"], "line 2: the position is '0'"),
        (["x A 5 1 2"], "none of its 1 samples is in the panel (x)"),
        (["a A 5 1 1"], "the panel's samples have 1 allele of A"),
        (["a A 5 1 <2>"], "line 2: the allele '<2>' is not a valid name"),
        (["a A 5 1 2/3"], "line 2: the allele '2/3' is not a valid name"),
        (["a A 5 1 2::3"], "line 2: the allele '2::3' is not a valid name"),
        (["a A;B 5 1 2"], "line 2: the locus 'A;B' is not a valid name"),
        (["a A 5 1 2\0"], "line 2: the allele '2\\x00' is not a valid name"),
        (["a A 99999999999 1 2"], "line 2: the position is '99999999999', expected 1 to 2,147,483,647"),
        (["a A 5 1 HLA-B*2"], "line 2: the allele HLA-B*2 does not belong to the locus A"),
        (["a A 5 1 2", "c A 5 3 4", "c A 5 3 5"], "line 4: sample c has 3 and 5"),
        (["a A 5 1"], "line 2: 4 columns, expected 5"),
        ([], "it has no row"),
    ],
)  # fmt: skip
def test_bad_tables(rows: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_types(write(tmp_path, *rows), SAMPLES, PLOIDY)
    assert message in str(error.value)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it has no column locus, position, allele2"):
        read_types(write(tmp_path, header="sample,allele1\tallele1\tsample\n"), SAMPLES, PLOIDY)
    with pytest.raises(InputError, match="the file is empty"):
        read_types(write(tmp_path, header=""), SAMPLES, PLOIDY)
    with pytest.raises(InputError, match="table of labels"):
        read_types(tmp_path / "absent.tsv", SAMPLES, PLOIDY)
    path = tmp_path / "types.tsv.gz"
    path.write_bytes(gzip.compress(HEADER.encode() * 50)[:-9])
    with pytest.raises(InputError, match="table of labels"):
        read_types(path, SAMPLES, PLOIDY)


def test_haploid_samples_have_one_label(tmp_path: Path) -> None:
    ploidy = np.array([1, 1, 2, 2])
    rows = ["a A 5 . 01:02", "b A 5 01 01:03", "c A 5 02 03"]
    (locus,) = read_types(write(tmp_path, *rows), SAMPLES, ploidy).loci
    assert [allowed(locus, sample)[0] for sample in "ab"] == [{"01:02"}, {"01:03"}]
    with pytest.raises(InputError, match="line 2: sample a has 1 and 2 at A, but one copy"):
        read_types(write(tmp_path, "a A 5 1 2"), SAMPLES, ploidy)
