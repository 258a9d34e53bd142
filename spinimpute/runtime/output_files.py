"""Check output paths before a run starts, and write output files under temporary names.

A file is renamed to its final name when it is complete, so no reader ever sees half a file
(`partial_files.PartialFile`). `atomic_write` does this for a single file, and `OutputGroup` for several files
of one output, such as a VCF and its index. Messages about write errors include the file name.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.partial_files import PartialFile, flush, temporary_folder_in

PLACEHOLDER = "{chrom}"  # stands for the chromosome in the name of an output
STANDARD = "-"  # the path of standard input or output
MAX_NAME_BYTES = 235  # most file systems allow 255 bytes; temporary names are up to 20 bytes longer
MAX_HOST_NAME = 64  # characters of the host name in the names of temporary folders
_WRITE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # errors that only writing causes
# suffixes of further files that belong to an input or output with this suffix
_INPUT_COMPANIONS = {".bed": (".bim", ".fam"), ".pgen": (".pvar", ".pvar.zst", ".psam", ".bim", ".fam")}
_WRITTEN_INDEXES = (".tbi", ".csi", ".bgi")
_READ_INDEXES = (*_WRITTEN_INDEXES, ".bai", ".crai", ".fai")
_OUTPUT_COMPANIONS = {".pgen": (".pvar", ".psam"), ".bgen": (".sample",)}
_IN_BRACES = re.compile(r"\{[^{}]*\}")


class CannotWrite(InputError):
    """A file cannot be written completely, for instance because the disk is full.

    Attributes
    ----------
    reason : str
        The operating system's message.
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
    # os.path returns False where Path would raise PermissionError; opening the file later reports the reason
    if os.path.isdir(path):
        raise InputError("write", f"cannot write {path}: it is a folder; give the name of a file")
    if os.path.islink(path):  # renaming would replace the link (such as /dev/stdout), not its target
        advice = "give the name of the file itself"
        if os.fspath(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            advice = "standard output is -"
        raise InputError("write", f"cannot write {path}: it is a link, to {os.readlink(path)}; {advice}")
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
    if not os.access(path.parent, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(path.parent).f_flag & os.ST_RDONLY else errno.EACCES
        raise CannotWrite(path, OSError(number, os.strerror(number)))


def find_placeholders(out: str | Path) -> list[str]:
    """Return the `{...}` parts of an output path, ignoring the folders that already exist."""
    path = Path(out)
    existing = next((parent for parent in path.parents if os.path.isdir(parent)), None)
    return _IN_BRACES.findall(str(path if existing is None else path.relative_to(existing)))


def is_same_file(one: object, other: object) -> bool:
    """Return whether two arguments are paths of the same existing file."""
    paths = [path for path in (one, other) if isinstance(path, str | Path) and os.path.exists(path)]
    return len(paths) == 2 and os.path.samefile(*paths)


def _check_standard_output(inputs: Iterable[object]) -> None:
    """Raise InputError if the shell has redirected standard output to one of the inputs."""
    with suppress(AttributeError, OSError, ValueError):  # standard output is closed, or is not a file
        output = os.fstat(sys.stdout.fileno())
        for source in inputs:
            if not isinstance(source, str | Path) or not os.path.isfile(source):
                continue
            if os.path.samestat(os.stat(source), output):
                raise InputError(
                    "write",
                    f"{source}: standard output is redirected to this input, so the shell may have emptied "
                    "it. Restore it, and redirect the output to another file",
                )


def check_output(path: str | Path, force: bool, inputs: Iterable[object], alternative: str = "") -> Path:
    """Check that an output file may be written, and return its path.

    For a .pgen or .bgen output, the files that belong to it (.pvar, .psam, .sample) are checked, too.
    `alternative` is appended to the advice to overwrite an existing file. Raises InputError

    - if the file exists and `force` is not set,
    - if the file is one of the inputs, or
    - if it cannot be created.
    """
    if os.fspath(path) == STANDARD:
        raise InputError("write", "this output cannot go to standard output. Give a file name")
    path = Path(path)
    if words := find_placeholders(path):
        raise InputError(
            "write",
            f"cannot write {path}: unknown placeholder {words[0]}. {PLACEHOLDER} is for the output of "
            "'impute', 'phase' and 'convert'. Give a name without braces",
        )
    for suffix in _OUTPUT_COMPANIONS.get(path.suffix.lower(), ()):
        check_output(path.with_suffix(suffix), force, inputs, alternative)
    check_writable(path)
    for suffix in _WRITTEN_INDEXES:
        if os.path.isdir(index := f"{path}{suffix}"):
            raise InputError("write", f"cannot write {index}, the index of {path}: it is a folder; remove it")
    if not os.path.exists(path):
        return path
    for source in inputs:
        if is_same_file(source, path):
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
    """Yield a temporary path to write to. At the end of the `with` block, rename the file to `path`.

    If the block fails, the temporary file is removed. Raises CannotWrite for errors of the file itself.
    """
    partial = None
    try:
        partial = PartialFile(path)
        yield partial.path
        partial.complete()
    except OSError as error:
        # the block may also raise an OSError about another file, such as one that it reads
        temporary_prefix = os.fspath(path.with_name(f".{path.name}."))
        if error.filename is None:
            is_write_error = error.errno in _WRITE_ERRNOS
        else:
            is_write_error = str(error.filename).startswith(temporary_prefix)
        if not is_write_error:
            raise
        raise CannotWrite(path, error) from error
    finally:
        if partial is not None:
            partial.discard()


class OutputGroup(ABC):
    """The files of one output. A `with` block renames all of them at its end, or removes them if it fails.

    Subclasses write the content of a format: VCF, PLINK 2 or BGEN.

    Attributes
    ----------
    path : Path
        Path of the output's main file.
    temporary_folder : Path
        Folder for scratch files.
    obsolete : list of Path
        Files of an earlier output with the same name, such as its index. `close` removes them.
    complete_stream : callable or None
        Function that completes an output on standard output, which has no files.
    files : list of PartialFile
        The files under their temporary names; the first one is the main file.
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
        """Write what must come last (end-of-file block, index) and close the files."""

    @abstractmethod
    def drop(self) -> None:
        """Close all open files, whatever was written so far. Never raise."""

    def finish(self) -> None:
        """Write the end of each file. The files keep their temporary names until `close`."""
        if not self._closed and not self._finished:
            with self.convert_errors():
                self.write_trailers()
            self._finished = True

    def close(self) -> None:
        """Finish the files and rename them. A second call does nothing.

        If the main file exists, its other files are always of the same run: an old main file is removed
        before any other file is replaced, and the new main file is renamed last.
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
        """Remove the temporary files. After `close`, do nothing."""
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
        """Remove the temporary files if the `with` block fails, and convert write errors to CannotWrite."""
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
    """Yield a new folder for scratch files, and remove it at the end of the `with` block."""
    with ExitStack() as stack:
        try:
            # The name contains the host name, so that a run removes only stale folders of its own host:
            # it may not see the locks of other hosts.
            host = re.sub(r"[^\w.-]", "_", platform.node())[:MAX_HOST_NAME]
            manager = temporary_folder_in(Path(tempfile.gettempdir()), f"spinimpute-{host}-")
            folder = stack.enter_context(manager)
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
                "more space. If the panel is a VCF or BCF, convert it once with 'spinimpute panel build'; no "
                "temporary file is needed then",
            ) from error


def check_outputs(
    paths: Iterable[str | Path | None],
    force: bool,
    inputs: Iterable[object],
    streamed: str | Path | None = None,
) -> None:
    """Raise InputError if an output of a run cannot be written, or if two outputs have the same path.

    `streamed` is the one output that may be "-" (standard output); a second "-" is an error. Companions and
    indexes of inputs and outputs are checked, too.
    """
    input_files: list[object] = []
    for source in inputs:
        input_files.append(source)
        if isinstance(source, str | Path):
            suffixes = _INPUT_COMPANIONS.get(Path(source).suffix, ())
            input_files += [Path(source).with_suffix(suffix) for suffix in suffixes]
            input_files += [Path(f"{source}{suffix}") for suffix in _READ_INDEXES]
    taken: dict[Path, str | Path] = {}
    for output in paths:
        if output is None:
            continue
        if output == streamed and os.fspath(output) == STANDARD:
            streamed = None  # a second one is refused
            _check_standard_output(input_files)
            continue
        path = check_output(output, force, input_files)
        names = [path, *(Path(f"{path}{suffix}") for suffix in _WRITTEN_INDEXES)]
        names += [path.with_suffix(suffix) for suffix in _OUTPUT_COMPANIONS.get(path.suffix.lower(), ())]
        for name in names:
            if (other := taken.get(name.resolve())) is not None:
                raise InputError(
                    "arguments", f"{output} and {other} are to be written to the same file: give two names"
                )
        taken |= dict.fromkeys((name.resolve() for name in names), output)
