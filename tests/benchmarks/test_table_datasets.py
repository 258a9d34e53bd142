"""Tables of the papers: real, damaged and simulated files; splits; the rules of poker."""

import gzip
import lzma
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.tabular import datasets
from benchmarks.tabular.datasets import (
    CHECKSUMS,
    FOLDS,
    NAMES,
    Table,
    load_table,
    poker_classes,
    poker_hands,
    split,
)
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

BUNDLED = ("breast_cancer", "diabetes")
# rows, columns, columns of categories, missing values, the first target or the rows of each class
REAL = {
    "yacht": (308, 6, 0, 0, 0.11),
    "boston": (506, 13, 1, 0, 24.0),
    "concrete": (1_030, 8, 0, 0, 79.99),
    "diabetes": (442, 10, 1, 0, 151.0),
    "breast_cancer": (569, 30, 0, 0, {0: 212, 1: 357}),
    "protein": (45_730, 9, 0, 0, 17.284),
    "california": (20_640, 8, 0, 0, 452_600.0),
    "adult": (48_842, 14, 8, 6_465, {"<=50K": 37_155, ">50K": 11_687}),
    "income": (299_285, 40, 33, 624_096, {"- 50000": 280_717, "50000+": 18_568}),
    "poker": (1_025_010, 10, 10, 0, None),
}
YACHT = "1 2 3 4 5 6 7\n"


@pytest.fixture(scope="module")
def shared_tables(shared_genotypes: Path) -> Iterator[Path]:
    """The folder of real tables, beside that of real genotypes."""
    yield shared_genotypes.parent / "tabular"
    _real.cache_clear()


@lru_cache
def _real(name: str, folder: Path) -> Table:
    return load_table(name, folder)


def _made_up(name: str, n_rows: int, n_test: int = 0) -> Table:
    fixed_test = np.arange(n_rows - n_test, n_rows) if n_test else None
    return Table(name, pd.DataFrame({"x": np.zeros(n_rows)}), np.zeros(n_rows), "regression", fixed_test)


def _complaint(name: str, folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_table(name, folder, verify=False)
    return str(caught.value)


@pytest.mark.parametrize("name", REAL)
def test_real_tables(name: str, shared_tables: Path) -> None:
    table = _real(name, shared_tables)
    n_rows, n_columns, n_categories, n_missing, target = REAL[name]
    assert table.features.shape == (n_rows, n_columns)
    assert len(table.target) == n_rows
    kinds = [str(kind) for kind in table.features.dtypes]
    assert kinds.count("category") == n_categories
    assert kinds.count("float64") == n_columns - n_categories
    assert table.features.isna().sum().sum() == n_missing
    for column in table.features.select_dtypes("category"):
        names = table.features[column].cat.categories
        assert all(isinstance(known, str) and known == known.strip() != "?" for known in names)
    assert (table.features.index == np.arange(n_rows)).all()
    if isinstance(target, float):
        assert (table.task, table.target[0]) == ("regression", target)
    elif target:
        assert table.task == "classification"
        assert dict(zip(*np.unique(table.target, return_counts=True), strict=True)) == target
    if name == "boston":
        assert table.features["CHAS"].cat.categories.tolist() == ["0", "1"]


def test_fixed_test_sets(shared_tables: Path) -> None:
    adult, income, poker = (_real(name, shared_tables) for name in ("adult", "income", "poker"))
    assert (adult.fixed_test == np.arange(32_561, 48_842)).all()
    assert (adult.target[adult.fixed_test] == ">50K").sum() == 3_846
    assert (income.fixed_test == np.arange(199_523, 299_285)).all()
    assert (income.target[income.fixed_test] == "50000+").sum() == 6_186
    assert (poker.fixed_test == np.arange(25_010, 1_025_010)).all()
    assert split(poker, 0).test.tolist() == poker.fixed_test.tolist()


@pytest.mark.parametrize(
    ("name", "n_rows", "shares"),
    [
        ("yacht", 308, (0.7, 0.2, 0.1)),
        ("breast_cancer", 569, (0.7, 0.2, 0.1)),
        ("protein", 4_573, (0.7, 0.1, 0.2)),
        ("kick", 1_000, (0.7, 0.1, 0.2)),
    ],
)
def test_folds(name: str, n_rows: int, shares: tuple[float, ...]) -> None:
    table = _made_up(name, n_rows)
    tested = []
    for fold in range(FOLDS[name]):
        parts = split(table, fold)
        assert np.sort(np.concatenate(parts)).tolist() == list(range(n_rows))
        for part, share in zip(parts, shares, strict=True):
            assert abs(len(part) - share * n_rows) < 2
            assert (np.diff(part) > 0).all()
        tested.append(parts.test)
    assert np.sort(np.concatenate(tested)).tolist() == list(range(n_rows))
    assert not np.array_equal(split(table, 0, seed=1).test, tested[0])


def test_split_of_a_fixed_test_set() -> None:
    table = _made_up("higgs", 1_000, n_test=400)
    train, validation, test = split(table, 0)
    assert (len(train), len(validation), len(test)) == (540, 60, 400)
    assert test.tolist() == list(range(600, 1_000))
    assert sorted([*train, *validation]) == list(range(600))
    assert not np.array_equal(split(table, 0, seed=1).validation, validation)


def test_splits_are_reproducible() -> None:
    train, validation, test = split(_made_up("yacht", 30), 3)
    assert test.tolist() == [17, 19, 25]
    assert validation.tolist() == [1, 5, 11, 12, 24, 27]
    assert len(train) == 21


def test_unknown_tables_and_folds(tmp_path: Path) -> None:
    for name, fold in (("yacht", 10), ("yacht", -1), ("higgs", 1)):
        with pytest.raises(InputError, match=f"fold must be 0 to .*{name}, got {fold}"):
            split(_made_up(name, 20), fold)
    with pytest.raises(InputError, match=r"there is no table 'iris'\. Choose one of yacht, boston"):
        load_table("iris", tmp_path)


def test_every_row_of_the_poker_file_obeys_the_rules(shared_tables: Path) -> None:
    rows = pd.read_csv(shared_tables / "poker.train.csv.gz", header=None).to_numpy()
    assert len(rows) == 25_010
    assert (poker_classes(rows[:, :10]) == rows[:, 10]).all()
    table = _real("poker", shared_tables)
    assert (table.features[:25_010].astype(int).to_numpy() == rows[:, :10]).all()
    assert (table.target[:25_010] == rows[:, 10]).all()


def test_all_poker_hands() -> None:
    n_hands = 2_598_960
    deck = chain.from_iterable(combinations(range(52), 5))
    card_N5 = np.fromiter(deck, np.int8, n_hands * 5).reshape(n_hands, 5)
    cards = np.empty((n_hands, 10), np.int8)
    cards[:, 0::2], cards[:, 1::2] = card_N5 // 13 + 1, card_N5 % 13 + 1
    counts = [1_302_540, 1_098_240, 123_552, 54_912, 10_200, 5_108, 3_744, 624, 36, 4]
    assert np.bincount(poker_classes(cards)).tolist() == counts


def test_drawn_poker_hands() -> None:
    features, classes = poker_hands(50_000, seed=3)
    cards = features.astype(int).to_numpy()
    card_N5 = (cards[:, 0::2] - 1) * 13 + cards[:, 1::2] - 1
    assert (np.diff(np.sort(card_N5, axis=1), axis=1) > 0).all()  # no card twice
    for place_N in card_N5.T:  # every card as often in every place: chi-square, 51 degrees of freedom
        counts = np.bincount(place_N, minlength=52)
        assert ((counts - 50_000 / 52) ** 2).sum() / (50_000 / 52) < 100
    assert (poker_classes(cards) == classes).all()
    assert abs((classes == 0).mean() - 0.501177) < 0.01
    again, _ = poker_hands(50_000, seed=3)
    assert again.equals(features)
    assert not poker_hands(50_000, seed=4)[0].equals(features)


def test_another_checksum(tmp_path: Path) -> None:
    (tmp_path / "yacht.txt").write_text(YACHT * 3)
    with pytest.raises(InputError) as caught:
        load_table("yacht", tmp_path)
    for part in ("yacht.txt", "SHA-256", CHECKSUMS["yacht.txt"], "Fetch it again (UCI", "verify=False"):
        assert part in str(caught.value)
    assert load_table("yacht", tmp_path, verify=False).target.tolist() == [7, 7, 7]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_table("protein", tmp_path / "nowhere")
    for part in ("protein.txt.gz is not in the folder", "nowhere", "UCI 'Physicochemical Properties"):
        assert part in str(caught.value)
    assert "HIGGS.csv or HIGGS.csv.gz is not in the folder" in _complaint("higgs", tmp_path)


def test_the_test_file_of_adult_is_missing(shared_tables: Path, tmp_path: Path) -> None:
    shutil.copy(shared_tables / "adult.train.csv.gz", tmp_path)
    with pytest.raises(InputError, match=r"adult\.test\.csv\.gz is not in the folder"):
        load_table("adult", tmp_path)


def test_damaged_archives(tmp_path: Path) -> None:
    zipped = gzip.compress(np.random.default_rng(0).random((500, 10)).tobytes().hex(" ").encode())
    packed = lzma.compress(",".join(datasets._FORMATS["income"].names).encode() + b"\n")
    flipped = zipped[:15] + bytes([zipped[15] ^ 0xFF]) + zipped[16:]
    for name, wholes in (
        ("protein.txt.gz", (zipped[:-2000], zipped[:200], b"", flipped, b"no archive at all")),
        ("income.csv.xz", (packed[:-20], b"no archive at all")),
    ):
        for content in wholes:
            (tmp_path / name).write_bytes(content)
            said = _complaint(name.partition(".")[0], tmp_path)
            assert f"{name} cannot be read, it may be damaged or truncated" in said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (YACHT + "1 2 3 4 5 6\n" + YACHT, "line 2: has fewer than 7 columns"),
        (YACHT + "\n\n1 2 3\n" + YACHT, "line 4: has fewer than 7 columns"),
        (YACHT + "1 2 3 4 5 6 7 8\n", "line 2 must have 7 columns, got 8"),
        ("1 2 3 4 5 6\n" + YACHT, "line 1 must have 7 columns, got 6"),
        ("1 2 3 4 5 6 7 8\n" + YACHT, "line 1 must have 7 columns, got 8"),
        (YACHT + "1 2 3 4 5 six 7\n", "line 2: 'six' is not a number in column froude"),
        (YACHT + "1 2 nan 4 5 6 7\n", "line 2: 'nan' is not a number in column length_displacement"),
        (YACHT + "1 2 3 4 5 6 inf\n", "line 2: 'inf' is not a number in column resistance"),
        (YACHT + "True 2 3 4 5 6 7\n", "line 2: 'True' is not a number in column buoyancy"),
        ("True 2 3 4 5 6 7\n", "line 1: 'True' is not a number in column buoyancy"),
        ("", "cannot be read"),
        ("\xff\xfe\x00", "cannot be read"),
    ],
)
def test_broken_rows(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "yacht.txt").write_bytes(text.encode("latin-1"))
    found = _complaint("yacht", tmp_path)
    assert complaint in found
    assert "yacht.txt" in found


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("5,1,1,2,1,3,1,4,1,5,0", "line 2: '5' is not 1 to 4 in column S1"),
        ("1,1,1,2,1,3,1,4,1,14,0", "line 2: '14' is not 1 to 13 in column C5"),
        ("1,1,1,2,1,3,1,4,1,1.5,0", "line 2: '1.5' is not 1 to 13 in column C5"),
        ("1,1,1,2,,3,1,4,1,5,0", "line 2: has no value in column S3"),
        ("1,1,1,2,1,3,1,4,1,5,0.5", "line 2: '0.5' is not a class in column hand"),
    ],
)
def test_broken_hands(row: str, complaint: str, tmp_path: Path) -> None:
    good = "1,10,1,11,1,13,1,12,1,1,9"
    (tmp_path / "poker.train.csv.gz").write_bytes(gzip.compress(f"{good}\n{row}\n".encode()))
    assert complaint in _complaint("poker", tmp_path)


def test_names_of_columns_and_numbers_of_rows(tmp_path: Path) -> None:
    row = ",".join(["1"] * 9)
    (tmp_path / "california.csv.gz").write_bytes(gzip.compress(f"{row}\n{row}\n".encode()))
    assert "line 1 must be longitude,latitude" in _complaint("california", tmp_path)
    names = datasets._FORMATS["income"].names
    text = f"{','.join(names)}\n{','.join(['1'] * len(names))}\n"
    (tmp_path / "income.csv.xz").write_bytes(lzma.compress(text.encode()))
    assert "has 1 rows, but the last 99,762 are for testing" in _complaint("income", tmp_path)


def _kick(folder: Path, **changed: str) -> None:
    names = datasets._FORMATS["kick"].names
    row = dict.fromkeys(names, "7") | {"IsBadBuy": "0", "PurchDate": "12/7/2009", "Make": "MAZDA"}
    gaps = row | {"IsBadBuy": "1", "Trim": "NULL", "Make": "", "VehOdo": "NULL", "PurchDate": "1/2/1970"}
    rows = [row, gaps, row | {"Model": "RAM, 2WD"} | changed]
    pd.DataFrame(rows, columns=names).to_csv(folder / "training.csv", index=False)


def test_kick(tmp_path: Path) -> None:
    _kick(tmp_path)
    table = load_table("kick", tmp_path)
    assert table.features.shape == (3, 32)
    assert (table.features.dtypes == "category").sum() == 18
    assert "RefId" not in table.features
    assert table.target.tolist() == [0, 1, 0]
    assert table.features["PurchDate"].tolist() == [14_585.0, 1.0, 14_585.0]
    assert table.features["Model"].tolist() == ["7", "7", "RAM, 2WD"]
    assert table.features.columns[table.features.iloc[1].isna()].tolist() == ["Make", "Trim", "VehOdo"]
    assert table.fixed_test is None


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("PurchDate", "2009-12-07", "line 4: '2009-12-07' is not a month/day/year in column PurchDate"),
        ("IsBadBuy", "NULL", "line 4: has no value in column IsBadBuy"),
        ("VehOdo", "far", "line 4: 'far' is not a number in column VehOdo"),
    ],
)
def test_broken_kick(column: str, value: str, complaint: str, tmp_path: Path) -> None:
    _kick(tmp_path, **{column: value})
    assert complaint in _complaint("kick", tmp_path)


@pytest.mark.parametrize("name", ["covtype.data", "covtype.data.gz"])
def test_forest(name: str, tmp_path: Path) -> None:
    rows = [[2_596, 51, 3, 258, 0, 510, 221, 232, 148, 6_279, *([1] + [0] * 43), cover] for cover in (5, 7)]
    pd.DataFrame(rows).to_csv(tmp_path / name, header=False, index=False)
    table = load_table("forest", tmp_path)
    assert table.features.shape == (2, 54)
    assert (table.features.dtypes == "category").sum() == 44
    assert table.features["elevation"].tolist() == [2_596, 2_596]
    assert table.features["wilderness_1"].tolist() == ["1", "1"]
    assert table.target.tolist() == [5, 7]


def test_higgs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(datasets._FORMATS, "higgs", replace(datasets._FORMATS["higgs"], test_rows=2))
    rows = [",".join([f"{signal:.18e}"] + ["-6.351e-01"] * 28) for signal in (1, 0, 1)]
    with gzip.open(tmp_path / "HIGGS.csv.gz", "wt") as file:
        file.write("\n".join(rows))
    table = load_table("higgs", tmp_path)
    assert table.features.shape == (3, 28)
    assert (table.features == -0.6351).all(axis=None)
    assert table.target.tolist() == [1, 0, 1]
    assert table.fixed_test.tolist() == [1, 2]


def test_bundled_tables_need_no_folder(tmp_path: Path) -> None:
    for name in BUNDLED:
        assert len(load_table(name, tmp_path / "nowhere").features) == REAL[name][0]


def test_every_table_is_tested() -> None:
    assert set(NAMES) == {*REAL, "kick", "forest", "higgs"}
