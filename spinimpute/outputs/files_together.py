"""Files that belong together: they get their names together when all are whole, or none does."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from spinimpute.output_files import CannotWrite, check_writable
from spinimpute.partial_files import PartialFile


class FilesTogether(ABC):
    """A context manager that completes its files at the end, and leaves nothing after an exception.

    Parameters
    ----------
    path : Path
        Of the first file, by which the others are named.
    suffixes : sequence of str
        Of the others.
    library : str
        What writes the first file, for messages.

    Attributes
    ----------
    path : Path
        Of the first file.

    Raises
    ------
    InputError
        A path cannot be written.
    """

    def __init__(self, path: Path, suffixes: Sequence[str], library: str) -> None:
        self.path, self._library = path, library
        self._finished = self._closed = False
        self._files: list[PartialFile] = []
        with self.errors_named():
            for final in (path, *(path.with_suffix(suffix) for suffix in suffixes)):
                check_writable(final)
                self._files.append(PartialFile(final))

    @property
    def temporary_folder(self) -> Path:
        """Where temporary files may be made: beside the files."""
        return self.path.parent

    def partial(self, number: int) -> Path:
        """The temporary path of a file."""
        return self._files[number].path

    @abstractmethod
    def write_ends(self) -> None:
        """Complete and close the files under their temporary names."""

    @abstractmethod
    def drop(self) -> None:
        """Close what is open, whatever state it is in, without an exception."""

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
            for file in reversed(self._files):  # the first one last: who sees it has the others
                file.complete()
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
            if isinstance(error, OSError):
                raise CannotWrite(self.path, error) from error
            if isinstance(error, RuntimeError):
                said = OSError(errno.EIO, f"{self._library} failed ({error})")
                raise CannotWrite(self.path, said) from error
            raise
