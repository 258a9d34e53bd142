"""Whose failure is it: the output's, or that of something else that happens while it is written?"""

import errno
import os
from pathlib import Path

import pytest

from spinimpute.runtime.output_files import CannotWrite, atomic_write


def failure(number: int, *names: object) -> OSError:
    return OSError(number, os.strerror(number), *names)


def write(path: Path, error: OSError, beside: str = "") -> None:
    """Fail half-way, with an error that names the temporary file, or one `beside` it."""
    with atomic_write(path) as partial:
        partial.write_text("half")
        if beside:
            error.filename = str(partial if beside == "partial" else partial.with_name(beside))
        raise error


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_only_writing_fails_so(tmp_path, number):
    with pytest.raises(CannotWrite, match=rf"cannot write .*o\.spin: {os.strerror(number)}"):
        write(tmp_path / "o.spin", failure(number))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("beside", ["partial", ".o.folder"])
def test_the_temporary_file_is_named(tmp_path, number, beside):
    with pytest.raises(CannotWrite, match=rf"cannot write .*o: {os.strerror(number)}"):
        write(tmp_path / "o", failure(number), beside)
    assert not list(tmp_path.iterdir())


def test_the_name_cannot_be_given(tmp_path):
    (tmp_path / "o").mkdir()
    with pytest.raises(CannotWrite, match=r"cannot write .*o: "), atomic_write(tmp_path / "o") as partial:
        partial.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


@pytest.mark.parametrize(
    "error",
    [
        failure(errno.EIO),
        failure(errno.EPIPE),
        failure(errno.EMFILE, "panel.vcf.gz"),
        failure(errno.ENOENT, "genetic.map"),
        failure(errno.ENOSPC, "/elsewhere/.o.1234.part"),
    ],
)
def test_what_something_else_fails_at(tmp_path, error):
    with pytest.raises(OSError, match=os.strerror(error.errno or 0)) as raised:
        write(tmp_path / "o", error)
    assert raised.value is error
    assert not list(tmp_path.iterdir())
