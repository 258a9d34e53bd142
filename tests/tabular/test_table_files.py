"""Tables as files: reading returns the written table, or raises InputError."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.runtime import unpacking
from spinimpute.runtime.errors import InputError
from spinimpute.tabular import table_files
from spinimpute.tabular.table_files import (
    is_numeric,
    parse_categories,
    parse_numbers,
    read_table,
    write_table,
)


def test_types_of_parquet_columns_do_not_matter(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    for kind in ("float64", "Float64", "Float32"):
        pd.DataFrame({"y": pd.array([1.0, 2.0], kind), "x": pd.array([True, None], "boolean")}).to_parquet(
            path
        )
        read = read_table(path)
        assert parse_categories(read["y"]).tolist() == ["1", "2"]
        assert read["x"].tolist() == ["True", None]
    pd.DataFrame({"y": ["a", "a\0"]}).to_parquet(path)
    with pytest.raises(InputError, match="row 2, column 'y': the cell holds a NUL byte"):
        read_table(path)


@pytest.mark.parametrize("crafted", [b'{"columns": 5}', b'{"index_columns": ["absent"]}', b"not JSON"])
def test_metadata_of_pandas_are_ignored(crafted: bytes, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"y": [1, 2]}).replace_schema_metadata({b"pandas": crafted})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet")["y"].tolist() == [1, 2]


def test_one_column_with_gaps(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('y\n1\n""\n3\n\n\n')
    assert read_table(tmp_path / "t.csv")["y"].tolist() == ["1", "", "3"]


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5),
    suffix=st.sampled_from([".csv", ".tsv.gz"]),
)
def test_any_text_survives_a_file(rows: list[tuple[str, str]], suffix: str, tmp_path: Path) -> None:
    written = pd.DataFrame(rows, columns=["a", "b"], dtype=object)
    write_table(written, tmp_path / f"t{suffix}", suffix)
    read = read_table(tmp_path / f"t{suffix}")
    assert [*read.itertuples(index=False, name=None)] == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e36, 1e36) | st.none(), min_size=1, max_size=9))
def test_numbers_are_read_exactly(values: list[float | None]) -> None:
    column = pd.Series(["" if value is None else repr(value) for value in values], dtype=object, name="x")
    assert is_numeric(column)
    np.testing.assert_array_equal(
        parse_numbers(column, "t.csv"), [np.nan if value is None else value for value in values]
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text('ab,"\n\r1', max_size=40).map(str.encode))
def test_any_bytes_are_a_table_or_an_input_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    said = "one line"
    try:
        read = read_table(path)
    except InputError as error:
        said = str(error)
    else:
        plain = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if row]
        assert len(read) == len(plain) - 1
    assert len(said.splitlines()) == 1


def test_a_parquet_file_with_invalid_text(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": ["plain", "te-xt"]}).to_parquet(path, compression=None)
    path.write_bytes(path.read_bytes().replace(b"te-xt", b"te\xffxt"))
    with pytest.raises(InputError, match=r"t\.parquet: a cell is not valid UTF-8"):
        read_table(path)


def test_a_parquet_file_that_unpacks_to_far_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": np.zeros(2**20)}).to_parquet(path)
    assert len(read_table(path)) == 2**20
    monkeypatch.setattr(table_files, "MAX_CELLS", 2**19)
    with pytest.raises(InputError, match=r"t\.parquet: .*hold 1,048,576 rows of 1 columns"):
        read_table(path)
    pd.DataFrame({"a": ["x" * 2**21]}).to_parquet(path, compression="zstd", use_dictionary=False)
    monkeypatch.setattr(unpacking, "_MIN_LIMIT", 2**19)
    with pytest.raises(InputError, match=r"t\.parquet: .*unpack to more than 524,288"):
        read_table(path)
