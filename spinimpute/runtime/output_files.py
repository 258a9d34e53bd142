"""Output files: checks before work starts, and files that get their names when they are complete.

Errors of writing name the file.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.partial_files import PartialFile, flush, temporary_folder_in

PLACEHOLDER = "{chrom}"  # for the chromosome, in the name of an output
STANDARD = "-"  # standard input or output
MAX_NAME_BYTES = 235  # leaves space for a temporary suffix: most file systems allow 255 bytes
MAX_HOST_NAME = 64  # letters of the machine's name
_WRITE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # errors of writing only
_INPUT_COMPANIONS = {".bed": (".bim", ".fam"), ".pgen": (".pvar", ".pvar.zst", ".psam", ".bim", ".fam")}
_WRITTEN_INDEXES = (".tbi", ".csi")
_READ_INDEXES = (*_WRITTEN_INDEXES, ".bai", ".crai", ".fai")
_OUTPUT_COMPANIONS = {".pgen": (".pvar", ".psam"), ".bgen": (".sample",)}
_IN_BRACES = re.compile(r"\{[^{}]*\}")


class CannotWrite(InputError):
    """A file cannot be written, or not completely, for instance because the disk is full.

    Attributes
    ----------
    reason : str
        The reason, for messages.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        self.path, self.error, self.reason = path, error, error.strerror or str(error)
        if os.fspath(path) == STANDARD:
            super().__init__("write", f"cannot write standard output: {self.reason}")
            return
        super().__init__(
            "write",
            f"cannot write {path}: {self.reason}. Check the space and the permissions of the folder, or "
            "choose another one",
        )


def check_writable(path: Path) -> None:
    """Raise InputError unless a regular file can be created at a path."""
    # for os.path, unlike Path, a path that cannot be examined does not exist; opening it gives the reason
    if os.path.isdir(path):
        raise InputError("write", f"cannot write {path}: it is a folder; give the name of a file")
    if os.path.islink(path):  # a link, such as /dev/stdout, would be replaced, not followed
        raise InputError(
            "write",
            f"cannot write {path}: it is a link, to {os.readlink(path)}; give the name of the file itself",
        )
    if len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise InputError(
            "write", f"cannot write {path}: the name is too long; it may have {MAX_NAME_BYTES} bytes at most"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError("write", f"cannot write {path}: it is not a regular file; give another name")
    if not os.path.isdir(path.parent):
        raise InputError(
            "write", f"cannot write {path}: there is no folder {path.parent}; create it or choose another one"
        )


def find_placeholders(out: str | Path) -> list[str]:
    """Return what stands in braces in an output's name, existing folders excluded."""
    path = Path(out)
    there = next((parent for parent in path.parents if os.path.isdir(parent)), None)
    return _IN_BRACES.findall(str(path if there is None else path.relative_to(there)))


def check_output(path: str | Path, force: bool, inputs: Iterable[object], alternative: str = "") -> Path:
    """Check that an output may be written, with the files beside a .pgen or .bgen; return its path.

    Raises InputError if a file exists, without `force`, if it is one of the inputs, or if it cannot be
    created. `alternative` is added to the advice to overwrite.
    """
    if os.fspath(path) == STANDARD:
        raise InputError(
            "write",
            "standard output cannot be written: a file gets its name when it is whole, and an index; give "
            "the name of a file",
        )
    path = Path(path)
    if words := find_placeholders(path):
        raise InputError(
            "write",
            f"cannot write {path}: unknown placeholder {words[0]}. {PLACEHOLDER} is for the output of "
            "'impute' only. Give a name without braces",
        )
    for beside in _OUTPUT_COMPANIONS.get(path.suffix.lower(), ()):
        check_output(path.with_suffix(beside), force, inputs, alternative)
    check_writable(path)
    for suffix in _WRITTEN_INDEXES:
        if os.path.isdir(index := f"{path}{suffix}"):
            raise InputError("write", f"cannot write {index}, the index of {path}: it is a folder; remove it")
    if not os.path.exists(path):
        return path
    for source in inputs:
        if isinstance(source, str | Path) and os.path.exists(source) and os.path.samefile(source, path):
            raise InputError(
                "write", f"cannot write {path}: it is also read from; choose another name for the output"
            )
    if not force:
        raise InputError(
            "exists", f"{path} already exists; use {argument('force', True)} to overwrite{alternative}"
        )
    return path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a file, which is renamed at the end of the block."""
    partial = None
    try:
        partial = PartialFile(path)
        yield partial.path
        partial.complete()
    except OSError as error:
        beside = os.fspath(path.with_name(f".{path.name}."))  # prefix of temporary names
        named = error.filename
        ours = error.errno in _WRITE_ERRNOS if named is None else str(named).startswith(beside)
        if not ours:
            raise
        raise CannotWrite(path, error) from error
    finally:
        if partial is not None:
            partial.discard()


class OutputGroup(ABC):
    """Files of one output: they are renamed together at the end of the block, or removed on an exception.

    Attributes
    ----------
    path : Path
        The output.
    temporary_folder : Path
        Folder for files that the run deletes.
    obsolete : list of Path
        Files of an earlier output, which are removed.
    complete_stream : callable or None
        Writes the end of standard output, an output without files.
    files : list of PartialFile
        The files under their temporary names.
    """

    def __init__(self, path: Path, finals: Sequence[Path], library: str = "") -> None:
        self.path, self.temporary_folder, self._library = path, path.parent, library
        self.obsolete: list[Path] = []
        self.complete_stream: Callable[[], None] | None = None
        self._finished = self._closed = False
        self.files: list[PartialFile] = []
        with self.convert_errors():
            for final in finals:
                check_writable(final)
                self.files.append(PartialFile(final))

    @abstractmethod
    def write_trailers(self) -> None:
        """Write the ends of the files and close them."""

    @abstractmethod
    def drop(self) -> None:
        """Close all open files in any state, without an exception."""

    def finish(self) -> None:
        """Complete the files under their temporary names."""
        if not self._closed and not self._finished:
            with self.convert_errors():
                self.write_trailers()
            self._finished = True

    def close(self) -> None:
        """Finish and rename the files. A second call does nothing.

        The first file never exists without the others of its run: an earlier first file is removed before any
        other file changes, and the new one is renamed last.
        """
        self.finish()
        if self._closed:
            return
        with self.convert_errors():
            if self.complete_stream is not None:
                self.complete_stream()
            for file in self.files:
                flush(file.path)
            obsolete = [path for path in self.obsolete if os.path.lexists(path)]
            if len(self.files) > 1 or obsolete:
                self.path.unlink(missing_ok=True)
                flush(self.path.parent)
            for path in obsolete:
                path.unlink()
            for file in (*self.files[1:], *self.files[:1]):
                file.complete()
        self._closed = True

    def abandon(self) -> None:
        """Remove the temporary files. After `close` this does nothing."""
        if self._closed:
            return
        self._closed = True
        self.drop()
        for file in self.files:
            file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Turn errors of the library and the system into `CannotWrite`, and remove the temporary files."""
        try:
            yield
        except BaseException as error:
            self.abandon()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise CannotWrite(self.path, error) from error
            if isinstance(error, RuntimeError) and self._library:
                failure = OSError(errno.EIO, f"{self._library} failed ({error})")
                raise CannotWrite(self.path, failure) from error
            raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder for temporary files of the run."""
    with ExitStack() as stack:
        try:
            # locks may be visible on one machine only, so files of other machines are kept
            machine = re.sub(r"[^\w.-]", "_", platform.node())[:MAX_HOST_NAME]
            made = temporary_folder_in(Path(tempfile.gettempdir()), f"spinimpute-{machine}-")
            folder = stack.enter_context(made)
        except OSError as error:
            raise InputError(
                "write",
                f"cannot make a folder for temporary files: {error}. Set TMPDIR to a folder with space",
            ) from error
        try:
            yield folder
        except CannotWrite as error:
            if not error.path.is_relative_to(folder):
                raise
            raise InputError(
                "write",
                f"cannot write the temporary file {error.path}: {error.reason}. Set TMPDIR to a folder with "
                "more space; for a panel that is VCF or BCF, 'spinimpute panel build' spares the file",
            ) from error


def check_outputs(
    paths: Iterable[str | Path | None],
    force: bool,
    inputs: Iterable[object],
    streamed: str | Path | None = None,
) -> None:
    """Check all outputs of a run."""
    read: list[object] = []
    for source in inputs:
        read.append(source)
        if isinstance(source, str | Path):
            suffixes = _INPUT_COMPANIONS.get(Path(source).suffix, ())
            read += [Path(source).with_suffix(suffix) for suffix in suffixes]
            read += [Path(f"{source}{suffix}") for suffix in _READ_INDEXES]
    taken: dict[Path, str | Path] = {}
    for given in paths:
        if given is None:
            continue
        if given == streamed and os.fspath(given) == STANDARD:
            streamed = None  # a second one is refused
            continue
        path = check_output(given, force, read)
        names = [path, *(Path(f"{path}{suffix}") for suffix in _WRITTEN_INDEXES)]
        names += [path.with_suffix(suffix) for suffix in _OUTPUT_COMPANIONS.get(path.suffix.lower(), ())]
        for name in names:
            if (other := taken.get(name.resolve())) is not None:
                raise InputError(
                    "arguments", f"{given} and {other} are to be written to the same file: give two names"
                )
        taken |= dict.fromkeys((name.resolve() for name in names), given)
