"""Readers of the public tables of the papers on NPT (Kossen et al. 2021) and SPIN (Rastogi et al. 2023).

The files are read from a local folder; nothing is downloaded. Only breast_cancer and diabetes need no file:
they come with scikit-learn. Benchmarks use these tables.

| table | files | rows | numbers + categories | target | split |
| --- | --- | --- | --- | --- | --- |
| yacht | yacht.txt | 308 | 6 + 0 | number | 10 folds of .7/.2/.1 |
| boston | boston.txt | 506 | 12 + 1 (CHAS) | number | 10 folds of .7/.2/.1 |
| concrete | concrete.txt | 1,030 | 8 + 0 | number | 10 folds of .7/.2/.1 |
| diabetes | | 442 | 9 + 1 (sex) | number | 10 folds of .7/.2/.1 |
| breast_cancer | | 569 | 30 + 0 | 0 malignant, 1 benign | 10 folds of .7/.2/.1 |
| protein | protein.txt.gz | 45,730 | 9 + 0 | number | 5 folds of .7/.1/.2 |
| california | california.csv.gz | 20,640 | 8 + 0 | number | 5 folds of .7/.1/.2 |
| kick | training.csv | 72,983 | 14 + 18 | 0, 1 (a bad buy) | 5 folds of .7/.1/.2 |
| forest | covtype.data or covtype.data.gz | 581,012 | 10 + 44 | 1 to 7 | 5 folds of .7/.1/.2 |
| adult | adult.train.csv.gz, adult.test.csv.gz | 48,842 | 6 + 8 | <=50K, >50K | its test file's 16,281 |
| income | income.csv.xz | 299,285 | 7 + 33 | - 50000, 50000+ | UCI's test file, the last 99,762 |
| poker | poker.train.csv.gz | 1,025,010 | 0 + 10 | 0 to 9 | 1,000,000 drawn hands after the file's 25,010 |
| higgs | HIGGS.csv or HIGGS.csv.gz | 11,000,000 | 28 + 0 | 0, 1 (signal) | the last 500,000 |

The split .7/.2/.1 means 70 % training rows, 20 % validation rows and 10 % test rows. With several folds, each
row is a test row in exactly one fold. A table with its own test rows has one fold, and .1 of its other rows
are validation rows. A split depends only on the number of rows, the fold and the seed.

All categories are text, including numeric codes. Which columns are categories follows the papers:

    income  The codes of industry, occupation, own business and veterans' benefits, and the year, are
            categories; num_emp is a number. "?" means missing; "Not in universe" is a category. The instance
            weight (column `unknown`) is not used.
    adult   The final dot of labels in the test file is removed, as in all labels of income.
    kick    RefId is not used. PurchDate is a number, days since 1970.
    poker   The 1,000,000 test hands are drawn from the rules of the game, as UCI's test hands were.

The checksums of the files of kick, forest and higgs are not checked.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import zlib
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spinimpute.runtime.errors import InputError

CHECKSUMS = {
    "adult.test.csv.gz": "9180fc1ddd6f294f6c6ac8c39a7b6c0f30f327da87ee62f9ac0b05893f197959",
    "adult.train.csv.gz": "aece50378e0018e8312013a5ea746cb67cb0f727df6fd6b50f821fca83384aeb",
    "boston.txt": "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
    "california.csv.gz": "67c4a70827e20098f0a489519cde1873334d66f7952709d0007d8e09feae9596",
    "concrete.txt": "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
    "income.csv.xz": "597edbce55659487cca9cd3a3b572e221777e42ef8afd5c63d6277b3015cc453",
    "poker.train.csv.gz": "d6e705ef1614fbc72e9061ed73c4cd06d4f36a278724c35c632baa1e8c0189f2",
    "protein.txt.gz": "f66467e95d15fb1e9f976385b44b4ba2f7e43725a5131d1629fab12119158e69",
    "yacht.txt": "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
}
FOLDS = {
    "yacht": 10, "boston": 10, "concrete": 10, "diabetes": 10, "breast_cancer": 10,
    "protein": 5, "california": 5, "kick": 5, "forest": 5,
    "adult": 1, "income": 1, "poker": 1, "higgs": 1,
}  # fmt: skip
NAMES = tuple(FOLDS)
POKER_TEST_HANDS = 1_000_000


@dataclass(frozen=True, eq=False)
class Table:
    """A table: features of the rows, and the target to predict."""

    name: str
    features: pd.DataFrame  # numbers (float64) and categories (names are text); NaN if missing
    target: np.ndarray  # float64 numbers; or classes, int64 or str
    task: str  # "regression" or "classification"
    fixed_test: np.ndarray | None = None  # row indices of a test set that comes with the table


class Split(NamedTuple):
    """Row indices for training, validation and testing, int64, in increasing order."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class _Format:
    """Format of a file.

    `columns` lists the names of the columns, each followed by / and a mark unless it is a numeric feature:
    c category, d date, x not used; target: y number, k class as a whole number, l class as text.
    """

    files: str  # possible names of the file
    source: str  # where users get the file
    columns: str
    first_line: str = "row"  # what the first line is: a "row", the "names" of the columns or a "comment"
    missing: str = ""  # text of missing values; empty if no value may be missing
    test_rows: int = 0  # number of test rows at the end of the file

    @property
    def names(self) -> list[str]:
        return [word.partition("/")[0] for word in self.columns.split()]

    def columns_marked(self, marks: str) -> list[str]:
        words = (word.partition("/") for word in self.columns.split())
        return [name for name, _, mark in words if mark and mark in marks]


_CARDS = ("S1", "C1", "S2", "C2", "S3", "C3", "S4", "C4", "S5", "C5")
_ADULT = """age workclass/c fnlwgt education/c education-num marital-status/c occupation/c relationship/c
race/c sex/c capital-gain capital-loss hours-per-week native-country/c income/l"""
_INCOME = """age class_worker/c det_ind_code/c det_occ_code/c education/c wage_per_hour hs_college/c
marital_stat/c major_ind_code/c major_occ_code/c race/c hisp_origin/c sex/c union_member/c unemp_reason/c
full_or_part_emp/c capital_gains capital_losses stock_dividends tax_filer_stat/c region_prev_res/c
state_prev_res/c det_hh_fam_stat/c det_hh_summ/c unknown/x mig_chg_msa/c mig_chg_reg/c mig_move_reg/c
mig_same/c mig_prev_sunbelt/c num_emp fam_under_18/c country_father/c country_mother/c country_self/c
citizenship/c own_or_self/c vet_question/c vet_benefits/c weeks_worked year/c income_50k/l"""
_KICK = """RefId/x IsBadBuy/k PurchDate/d Auction/c VehYear VehicleAge Make/c Model/c Trim/c SubModel/c
Color/c Transmission/c WheelTypeID/c WheelType/c VehOdo Nationality/c Size/c TopThreeAmericanName/c
MMRAcquisitionAuctionAveragePrice MMRAcquisitionAuctionCleanPrice MMRAcquisitionRetailAveragePrice
MMRAcquisitonRetailCleanPrice MMRCurrentAuctionAveragePrice MMRCurrentAuctionCleanPrice
MMRCurrentRetailAveragePrice MMRCurrentRetailCleanPrice PRIMEUNIT/c AUCGUART/c BYRNO/c VNZIP1/c VNST/c
VehBCost IsOnlineSale/c WarrantyCost"""
_FOREST = """elevation aspect slope horizontal_to_water vertical_to_water horizontal_to_roads hillshade_9am
hillshade_noon hillshade_3pm horizontal_to_fire """
_FOREST += " ".join([f"wilderness_{i}/c" for i in range(1, 5)] + [f"soil_{i}/c" for i in range(1, 41)])
_FORMATS = {
    "yacht": _Format("yacht.txt", "UCI 'Yacht Hydrodynamics', yacht_hydrodynamics.data",
        "buoyancy prismatic length_displacement beam_draught length_beam froude resistance/y"),
    "boston": _Format("boston.txt", "UCI 'Housing' (also StatLib), housing.data",
        "CRIM ZN INDUS CHAS/c NOX RM AGE DIS RAD TAX PTRATIO B LSTAT MEDV/y"),
    "concrete": _Format("concrete.txt", "UCI 'Concrete Compressive Strength', Concrete_Data.xls as text",
        "cement slag ash water superplasticizer coarse_aggregate fine_aggregate age strength/y"),
    "protein": _Format("protein.txt.gz", "UCI 'Physicochemical Properties of Protein Tertiary Structure', "
        "CASP.csv as text, RMSD last", "F1 F2 F3 F4 F5 F6 F7 F8 F9 RMSD/y"),
    "california": _Format("california.csv.gz", "StatLib 'California Housing' as a CSV file",
        "longitude latitude housing_median_age total_rooms total_bedrooms population households "
        "median_income median_house_value/y", "names"),
    "kick": _Format("training.csv", "Kaggle 'Don't Get Kicked!', training.csv", _KICK, "names", "NULL"),
    "forest": _Format("covtype.data covtype.data.gz", "UCI 'Covertype'", _FOREST + " cover/k"),
    "adult": _Format("adult.train.csv.gz", "UCI 'Adult', adult.data", _ADULT, missing="?"),
    "adult test": _Format("adult.test.csv.gz", "UCI 'Adult', adult.test", _ADULT, "comment", missing="?"),
    "income": _Format("income.csv.xz", "UCI 'Census-Income (KDD)', census-income.data, then "
        "census-income.test, behind a line of names", _INCOME, "names", "?", test_rows=99_762),
    "poker": _Format("poker.train.csv.gz", "UCI 'Poker Hand', poker-hand-training-true.data",
        " ".join(_CARDS) + " hand/k"),
    "higgs": _Format("HIGGS.csv HIGGS.csv.gz", "UCI 'HIGGS', HIGGS.csv.gz",
        "signal/k " + " ".join(f"f{i}" for i in range(1, 29)), test_rows=500_000),
}  # fmt: skip


def load_table(name: str, folder: str | Path, *, verify: bool = True) -> Table:
    """Read one of the tables `NAMES` from a folder. Rows of a separate test file follow the other rows.

    `verify` compares the SHA-256 of files with CHECKSUMS. Raises InputError if the name is unknown, or if a
    file is missing, damaged or differs from its checksum.
    """
    if name not in FOLDS:
        raise InputError("argument", f"there is no table {name!r}. Choose one of {', '.join(NAMES)}.")
    if name not in _FORMATS:
        return _load_bundled(name)
    spec = _FORMATS[name]
    features, target = _load(Path(folder), spec, verify)
    n_test = spec.test_rows
    if name in ("adult", "poker"):  # their test rows are not in the first file
        more_features, more_target = (
            _load(Path(folder), _FORMATS["adult test"], verify)
            if name == "adult"
            else poker_hands(POKER_TEST_HANDS, seed=0)
        )
        n_test = len(more_target)
        features, target = pd.concat([features, more_features]), np.concatenate([target, more_target])
        # concat turns a column into text if its categories differ
        features = features.astype(dict.fromkeys(spec.columns_marked("c"), "category"))
    if len(target) <= n_test:
        raise InputError(
            "content",
            f"{name} in {folder} has {len(target):,} rows, but the last {n_test:,} are for testing. "
            "The file is truncated; fetch it again.",
        )
    fixed_test = np.arange(len(target) - n_test, len(target)) if n_test else None
    task = "regression" if spec.columns_marked("y") else "classification"
    return Table(name, features.reset_index(drop=True), target, task, fixed_test)


def split(table: Table, fold: int, seed: int = 0) -> Split:
    """Split the rows of a table at random into training, validation and test rows of a fold (from 0).

    Raises InputError if the table (see `FOLDS`) has no such fold.
    """
    folds, n_rows = FOLDS[table.name], len(table.target)
    if not 0 <= fold < folds:
        raise InputError("argument", f"fold must be 0 to {folds - 1} for {table.name}, got {fold}")
    if table.fixed_test is not None:
        test, n_shared = table.fixed_test, n_rows - len(table.fixed_test)
    else:
        test, n_shared = np.array_split(_shuffle(n_rows, seed, 0), folds)[fold], n_rows
    n_validation = round((0.2 if folds == 10 else 0.1) * n_shared)
    rest = np.setdiff1d(np.arange(n_rows), test)
    rest = rest[_shuffle(len(rest), seed, 1 + fold)]
    return Split(np.sort(rest[n_validation:]), np.sort(rest[:n_validation]), np.sort(test))


def poker_hands(count: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw poker hands of five cards from a full pack; return features (count, 10) and classes (count,)."""
    rng = np.random.default_rng(seed)
    # draw the index of card k among the remaining cards; then convert it to its index in the full pack
    card_N5 = (rng.random((count, 5)) * (52 - np.arange(5))).astype(np.int8)
    for k in range(1, 5):
        for earlier_N in np.sort(card_N5[:, :k], axis=1).T:
            card_N5[:, k] += card_N5[:, k] >= earlier_N
    cards = np.stack([card_N5 // 13, card_N5 % 13], axis=2).reshape(count, 10) + np.int8(1)
    return _card_frame(cards), poker_classes(cards)


def poker_classes(cards: np.ndarray) -> np.ndarray:
    """Return the classes (N,) of poker hands.

    `cards` (N, 10) holds suit (1 to 4) and rank (ace 1 to king 13) of five cards. Classes: 0 nothing, 1 a
    pair, 2 two pairs, 3 three of a kind, 4 straight, 5 flush, 6 full house, 7 four of a kind, 8 straight
    flush, 9 royal flush.
    """
    suit_N5, rank_N5 = cards[:, 0::2], np.sort(cards[:, 1::2], axis=1)
    n_equal = np.zeros(len(cards), np.int8)  # number of pairs of cards with equal rank, among all ten pairs
    for one, other in combinations(range(5), 2):
        n_equal += rank_N5[:, one] == rank_N5[:, other]
    flush = (suit_N5 == suit_N5[:, :1]).all(1)
    to_ace = (rank_N5 == (1, 10, 11, 12, 13)).all(1)
    straight = to_ace | ((n_equal == 0) & (rank_N5[:, 4] - rank_N5[:, 0] == 4))
    classes: np.ndarray = np.array([0, 1, 2, 3, 6, -1, 7])[n_equal]  # five such pairs are impossible
    classes[straight] = 4
    classes[flush] = 5
    classes[flush & straight] = 8
    classes[flush & to_ace] = 9
    return classes


def _shuffle(n: int, seed: int, stream: int) -> np.ndarray:
    # permutation() may differ between versions of NumPy; the order of random numbers does not
    order: np.ndarray = np.random.default_rng([seed, stream]).random(n).argsort(kind="stable")
    return order


def _card_frame(cards: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: pd.Categorical.from_codes(codes - 1, pd.Index([str(k) for k in range(1, n_codes + 1)]))
            for name, codes, n_codes in zip(_CARDS, cards.T, (4, 13) * 5, strict=True)
        }
    )


def _load_bundled(name: str) -> Table:
    from sklearn import datasets

    if name == "breast_cancer":
        features, target = datasets.load_breast_cancer(return_X_y=True, as_frame=True)
        return Table(name, features.astype(np.float64), target.to_numpy(np.int64), "classification")
    features, target = datasets.load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    sex = features["sex"].astype(int).astype(str).astype("category")
    return Table(name, features.astype(np.float64).assign(sex=sex), target.to_numpy(np.float64), "regression")


def _load(folder: Path, spec: _Format, verify: bool) -> tuple[pd.DataFrame, np.ndarray]:
    """Read a file and check its values; return features and target."""
    path = next((folder / name for name in spec.files.split() if (folder / name).is_file()), None)
    if path is None:
        names = " or ".join(spec.files.split())
        raise InputError("not-found", f"{names} is not in the folder {folder}. Get it from {spec.source}.")
    if verify and path.name in CHECKSUMS:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != CHECKSUMS[path.name]:
            raise InputError(
                "damaged",
                f"{path}: its SHA-256 is {digest}, not {CHECKSUMS[path.name]}: it is damaged or another "
                f"edition. Fetch it again ({spec.source}), or read it anyway with "
                "verify=False.",
            )
    frame = _read(path, spec)
    for name in spec.columns_marked("d"):
        dates = pd.to_datetime(frame[name].astype(object), format="%m/%d/%Y", errors="coerce")
        bad = dates.isna() & frame[name].notna()
        _check_rows(path, bad, frame[name], f"is not a month/day/year in column {name}")
        frame[name] = (dates - pd.Timestamp(0)) / pd.Timedelta(days=1)
    (name,) = spec.columns_marked("ykl")
    features, labels = frame.drop(columns=[name, *spec.columns_marked("x")]), frame[name]
    if name == "hand":
        for card in _CARDS:
            n_codes = 4 if card.startswith("S") else 13
            bad = ~features[card].isin(range(1, n_codes + 1))
            _check_rows(path, bad, features[card], f"is not 1 to {n_codes} in column {card}")
        features = _card_frame(features.to_numpy(np.int8))
    if spec.columns_marked("l"):
        return features, np.array([str(label).removesuffix(".") for label in labels])
    if spec.columns_marked("k"):
        _check_rows(path, labels % 1 != 0, labels, f"is not a class in column {name}")
        return features, labels.to_numpy(np.int64)
    return features, labels.to_numpy()


def _read(path: Path, spec: _Format) -> pd.DataFrame:
    """Parse a file: numbers become float64, texts become categories; the index holds line numbers."""
    names, texts = spec.names, spec.columns_marked("cdl")
    separator = r"\s+" if ".txt" in path.suffixes else ","
    first = 1 if spec.first_line == "row" else 2
    line, width = first, len(names)  # pandas expects every row to have as many columns as the first
    options: dict[str, Any] = {"sep": separator, "header": None, "skipinitialspace": True}
    try:
        if spec.first_line == "names":
            header = pd.read_csv(path, nrows=1, dtype=str, **options).iloc[0].tolist()
            if header != names:
                raise InputError("content", f"{path}, line 1 must be {','.join(names)}, got {header}")
        # keep blank lines for now: then row numbers are line numbers
        options |= {"skiprows": first - 1, "skip_blank_lines": False, "low_memory": False}
        options |= {"na_values": ["", spec.missing], "keep_default_na": False}
        dtypes = {i: str for i, name in enumerate(names) if name in texts}
        frame = pd.read_csv(path, dtype=dtypes, **options)
        width = frame.shape[1]
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        counts = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if counts is None:
            reason = str(error).strip()
            raise InputError(
                "damaged", f"{path} cannot be read, it may be damaged or truncated: {reason}"
            ) from error
        width = int(counts[1])
        if width == len(names):
            line, width = int(counts[2]), int(counts[3])
    if width != len(names):
        raise InputError("content", f"{path}, line {line} must have {len(names)} columns, got {width}")
    frame = frame.set_axis(names, axis=1).set_axis(frame.index + first, axis=0)
    frame = frame.dropna(how="all")  # blank lines
    columns = {}
    # pandas pads short rows with missing values, but the last column never has a missing value
    _check_rows(path, frame[names[-1]].isna(), None, f"has fewer than {width} columns")
    for name in names:
        columns[name] = frame[name].astype("category") if name in texts else _numbers(path, frame[name])
        if not spec.missing or name in spec.columns_marked("ykl"):
            _check_rows(path, columns[name].isna(), None, f"has no value in column {name}")
    return pd.DataFrame(columns)


def _numbers(path: Path, column: pd.Series) -> pd.Series:
    """Convert a column to float64, NaN if missing. Raise InputError for other text and for infinity."""
    numbers = column
    if column.dtype.kind not in "iuf":
        numbers = pd.to_numeric(column.astype(str).where(column.notna()), errors="coerce")
    numbers = numbers.astype(np.float64)
    bad = (numbers.isna() & column.notna()) | np.isinf(numbers)
    _check_rows(path, bad, column, f"is not a number in column {column.name}")
    return numbers


def _check_rows(path: Path, bad: pd.Series, column: pd.Series | None, problem: str) -> None:
    """Raise InputError for the first bad row, if there is one."""
    if bad.any():
        row = int(bad.to_numpy().argmax())
        cell = "" if column is None else f"{str(column.iloc[row]).removesuffix('.0')!r} "
        raise InputError("content", f"{path}, line {bad.index[row]}: {cell}{problem}")
