"""Outputs: whether a file may be written at a place, asked before work starts; files that appear whole.

Errors of writing name the file.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.partial_files import PartialFile, store_names, temporary_folder_in

PLACEHOLDER = "{chrom}"  # in the name of an output that is a file for each chromosome
STANDARD = "-"  # in place of a file: standard input or output
LONGEST_NAME = 235  # so that a temporary name beside it fits into the 255 bytes of most file systems
LONGEST_MACHINE = 64  # letters of its name
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # no reading fails with these
_BESIDE = {".bed": (".bim", ".fam"), ".pgen": (".pvar", ".pvar.zst", ".psam", ".bim", ".fam")}
_INDEX_SUFFIXES = (".csi", ".tbi", ".bai", ".crai", ".fai")  # behind the name of what they index
_WRITTEN_BESIDE = {".pgen": (".pvar", ".psam"), ".bgen": (".sample",)}
_IN_BRACES = re.compile(r"\{[^{}]*\}")


class CannotWrite(InputError):
    """A file cannot be written, or not to its end, such as on a full disk.

    Parameters
    ----------
    path : Path
        The file.
    error : OSError
        Why.

    Attributes
    ----------
    reason : str
        Why, for messages.
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
    """Check that a regular file can be created at a path.

    Parameters
    ----------
    path : Path
        Of the file.

    Raises
    ------
    InputError
        It is a folder, a link or a device, its name is too long, or its folder does not exist.
    """
    # os.path, unlike Path, takes a path that cannot be examined for absent; opening it then gives the reason.
    if os.path.isdir(path):
        raise InputError("write", f"cannot write {path}: it is a folder; give the name of a file")
    if os.path.islink(path):  # it would be replaced, not followed; /dev/stdout is one
        raise InputError(
            "write",
            f"cannot write {path}: it is a link, to {os.readlink(path)}; give the name of the file itself",
        )
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise InputError(
            "write", f"cannot write {path}: the name is too long; it may have {LONGEST_NAME} bytes at most"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError("write", f"cannot write {path}: it is not a regular file; give another name")
    if not os.path.isdir(path.parent):
        raise InputError(
            "write", f"cannot write {path}: there is no folder {path.parent}; create it or choose another one"
        )


def words_in_braces(out: str | Path) -> list[str]:
    """What stands in braces in an output's name. Folders that are there may be called anything."""
    path = Path(out)
    there = next((parent for parent in path.parents if os.path.isdir(parent)), None)
    return _IN_BRACES.findall(str(path if there is None else path.relative_to(there)))


def check_one_file(out: str | Path) -> None:
    """Raise InputError for an output that is one file, and whose name has something in braces."""
    if words := words_in_braces(out):
        raise InputError(
            "write",
            f"cannot write {out}: {words[0]} would be part of the name as it is; {PLACEHOLDER} has a meaning "
            "for the output of 'impute' only: give a name without braces",
        )


def check_output(path: str | Path, force: bool, inputs: Iterable[object], instead: str = "") -> Path:
    """Check that an output may be written, and what is written beside a .pgen or .bgen.

    Parameters
    ----------
    path : str or Path
        Of the output.
    force : bool
        Whether an existing file may be overwritten.
    inputs : iterable
        Paths that are read; anything that is not a path is ignored.
    instead : str
        What can be done other than to overwrite, for the message.

    Returns
    -------
    Path
        Of the output.

    Raises
    ------
    InputError
        As `check_one_file` and `check_writable`; it is "-"; a folder is in the place of its index; the file
        exists, without `force`; or it is one of the inputs.
    """
    if os.fspath(path) == STANDARD:
        raise InputError(
            "write",
            "standard output cannot be written: a file gets its name when it is whole, and an index; give "
            "the name of a file",
        )
    path = Path(path)
    check_one_file(path)
    for beside in _WRITTEN_BESIDE.get(path.suffix.lower(), ()):
        check_output(path.with_suffix(beside), force, inputs, instead)
    check_writable(path)
    for index in _indexes_of(path):
        if os.path.isdir(index):
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
            "exists", f"{path} already exists; use {argument('force', True)} to overwrite{instead}"
        )
    return path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Write a file under a temporary name, which becomes its own when all is written.

    Parameters
    ----------
    path : Path
        Of the file.

    Yields
    ------
    Path
        A temporary path beside `path`, to be written to.

    Raises
    ------
    CannotWrite
        The file cannot be written, such as on a full disk; errors of other files stay as they are.
    InputError
        Another run is writing it.
    """
    partial = None
    try:
        partial = PartialFile(path)
        yield partial.path
        partial.complete()
    except OSError as error:
        beside = os.fspath(path.with_name(f".{path.name}."))  # so begin temporary names
        named = error.filename
        ours = error.errno in _OF_WRITING if named is None else str(named).startswith(beside)
        if not ours:
            raise
        raise CannotWrite(path, error) from error
    finally:
        if partial is not None:
            partial.discard()


class FilesTogether(ABC):
    """A context manager that completes its files at the end, and leaves nothing after an exception.

    Parameters
    ----------
    path : Path
        Of the output, for messages.
    finals : sequence of Path
        Of its files: one that nobody must see without the others comes first.
    library : str
        What writes them and fails with RuntimeError, for messages; "" for nothing that does.

    Attributes
    ----------
    path : Path
        Of the output.

    Raises
    ------
    InputError
        A path cannot be written.
    """

    def __init__(self, path: Path, finals: Sequence[Path], library: str = "") -> None:
        self.path, self._library = path, library
        self._finished = self._closed = False
        self._files: list[PartialFile] = []
        with self.errors_named():
            for final in finals:
                check_writable(final)
                self.add_file(final)

    @property
    def obsolete(self) -> Sequence[Path]:
        """Files of an earlier output that must not stay beside this one."""
        return ()

    @property
    def temporary_folder(self) -> Path:
        """Where files may be put that are not needed after the run: beside the output."""
        return self.path.parent

    def add_file(self, final: Path) -> Path:
        """One more file, empty; its temporary path. Raises OSError."""
        self._files.append(PartialFile(final))
        return self._files[-1].path

    def partial(self, number: int) -> Path:
        """The temporary path of a file."""
        return self._files[number].path

    @abstractmethod
    def write_ends(self) -> None:
        """Complete and close the files under their temporary names."""

    @abstractmethod
    def drop(self) -> None:
        """Close what is open, whatever state it is in, without an exception."""

    def give_names(self) -> None:
        """Give the files their names, so that the first one is never seen without the others of its run.

        An earlier first file is removed before any other file changes, and the new one gets its name last.

        Raises
        ------
        OSError
            A file cannot be removed, stored or renamed.
        """
        for file in self._files:
            file.store()
        first, *others = self._files
        obsolete = [path for path in self.obsolete if os.path.lexists(path)]
        if others or obsolete:
            first.final.unlink(missing_ok=True)
            store_names(first.final.parent)
        for path in obsolete:
            path.unlink()
        for file in (*others, first):
            file.complete()

    def finish(self) -> None:
        """Complete the files under their temporary names.

        Raises
        ------
        InputError
            They cannot be completed, such as on a full disk; nothing is left then.
        """
        if self._closed or self._finished:
            return
        with self.errors_named():
            self.write_ends()
        self._finished = True

    def close(self) -> None:
        """Finish the files, and give them their names. Nothing happens the second time.

        Raises
        ------
        InputError
            As of `finish`.
        """
        if self._closed:
            return
        self.finish()
        with self.errors_named():
            self.give_names()
        self._closed = True

    def abandon(self) -> None:
        """Stop and remove the temporary files; nothing happens after `close`."""
        if self._closed:
            return
        self._closed = True
        self.drop()
        for file in self._files:
            file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """What fails leaves nothing; the library and the system say it as a `CannotWrite`."""
        try:
            yield
        except BaseException as error:
            self.abandon()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise CannotWrite(self.path, error) from error
            if isinstance(error, RuntimeError) and self._library:
                said = OSError(errno.EIO, f"{self._library} failed ({error})")
                raise CannotWrite(self.path, said) from error
            raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for files that are not needed after the run.

    Yields
    ------
    Path
        A folder in $TMPDIR, which is removed at the end.

    Raises
    ------
    InputError
        The folder cannot be made, or has no space for a file.
    """
    with ExitStack() as stack:
        try:
            # a lock may be seen on its own machine only: what others share is not to be taken for left
            machine = re.sub(r"[^\w.-]", "_", platform.node())[:LONGEST_MACHINE]
            made = temporary_folder_in(Path(tempfile.gettempdir()), f"spinimpute-{machine}-")
            folder = stack.enter_context(made)
        except OSError as error:
            raise InputError(
                "content",
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
    """Check all outputs of a run.

    Parameters
    ----------
    paths : iterable of str, Path or None
        Of the outputs; None for one that is not wanted.
    force : bool
        Whether existing files may be overwritten.
    inputs : iterable
        As of `check_output`; the files beside those of PLINK count, too, and indexes.
    streamed : str, Path or None
        One of the outputs, which may be "-": standard output.

    Raises
    ------
    InputError
        As `check_output`; or two outputs, or their indexes, are the same file.
    """
    read: list[object] = []
    for source in inputs:
        read.append(source)
        if isinstance(source, str | Path):
            suffixes = _BESIDE.get(Path(source).suffix, ())
            read += [Path(source).with_suffix(suffix) for suffix in suffixes]
            read += [Path(f"{source}{suffix}") for suffix in _INDEX_SUFFIXES]
    taken: dict[Path, str | Path] = {}
    for given in paths:
        if given is None:
            continue
        if given == streamed and os.fspath(given) == STANDARD:
            streamed = None  # a second one is refused
            continue
        path = check_output(given, force, read)
        beside = [path.with_suffix(suffix) for suffix in _WRITTEN_BESIDE.get(path.suffix.lower(), ())]
        names = [path, *_indexes_of(path), *beside]
        for name in names:
            if name.resolve() in taken:
                other = taken[name.resolve()]
                raise InputError(
                    "mismatch", f"{given} and {other} are to be written to the same file: give two names"
                )
        for name in names:
            taken[name.resolve()] = given


def _indexes_of(path: Path) -> list[Path]:
    """Where the index of an output may be."""
    return [path.with_name(path.name + suffix) for suffix in (".tbi", ".csi")]
