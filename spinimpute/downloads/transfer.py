"""Download a file over HTTP. This is the only module that opens a connection.

A download is written to `NAME.part`. `NAME.json` describes the file at the server: its size, and the ETag or
the time stamp that identifies its version. If the connection is cut, or in a later run, the download resumes
at the end of `NAME.part`, unless the file at the server has changed. A complete file is renamed to `NAME`.
The server is not trusted: it chooses neither names nor places of files, and sizes are limited.
"""

from __future__ import annotations

import email.utils
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import CannotWrite
from spinimpute.runtime.progress import Progress, announce

ATTEMPTS = 8  # consecutive attempts without a new byte, after which a download is given up
ATTEMPTS_WITHOUT_ANSWER = 3  # the same if the server has never answered
CHECKSUM_ATTEMPTS = 2  # complete downloads with a wrong checksum, after which a download is given up
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds before the second attempt; doubled each time
LONGEST_SERVER_WAIT = 600.0  # seconds; longest wait that a server may ask for
TIMEOUT = 20.0  # seconds without a byte, after which a connection counts as cut
READ_BYTES = 2**18  # maximum number of bytes to read in one step
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # statuses after which another attempt can succeed
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")


class _AttemptFailed(Exception):
    """An attempt failed, and another one can succeed. `wait` is the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoAnswer(_AttemptFailed):
    """A server did not answer a request."""


class Stopped(Exception):
    """A download was stopped by its event."""


@dataclass(frozen=True)
class _RemoteFile:
    """A version of a file at a server. `validator` is "" if the server does not identify versions."""

    size: int
    validator: str


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from an encrypted to an unencrypted connection."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        """Return the request to the new address. Raises InputError if that is not encrypted any more."""
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise InputError(
                "read", f"{req.full_url}: the server redirects to {newurl}, which is not encrypted"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def check_url(url: str) -> str:
    """Return the address of a folder without the slash at its end. Raises InputError unless it is HTTP."""
    with suppress(ValueError):  # an invalid port or host
        parts = urlsplit(url)
        unusual = parts.username is not None or parts.query or parts.fragment or parts.port == 0
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme in ("https", "http") and parts.hostname and plain and not unusual:
            return url.rstrip("/")
    raise InputError(
        "argument", f"{url}: this is not the address of a folder. Give one such as https://example.org/panels"
    )


def download(
    url: str,
    path: Path,
    max_bytes: int,
    md5: str | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Download a file, and resume an earlier download. If `path` exists, do nothing.

    Parameters
    ----------
    url : str
        Address of the file.
    path : Path
        Where to write the file. Its folder has the partial file, too.
    max_bytes : int
        Maximum size of the file.
    md5 : str, optional
        Published MD5 checksum of the file.
    progress : callable, optional
        Receives the fraction of the file that has been downloaded.
    stop : threading.Event, optional
        Stops the download when it is set.

    Raises
    ------
    InputError
        The file is not at the server, is too large, or has another checksum; the server cannot be reached; or
        `path` cannot be written.
    Stopped
        `stop` was set.
    """
    partial, description = partial_paths(path)
    stop = stop or threading.Event()
    failures = wrong_checksums = 0
    answered = False
    most = _size(partial)
    while not path.exists():
        try:
            _attempt(url, partial, description, max_bytes, progress, stop)
            if md5 is not None and _md5(partial) != md5:
                wrong_checksums += 1
                partial.unlink()
                description.unlink()
                if wrong_checksums == CHECKSUM_ATTEMPTS:
                    raise InputError(
                        "damaged",
                        f"{url}: the MD5 checksum differs from the published one, {md5}. The file at the "
                        "server has changed or is damaged. Use another mirror",
                    )
                raise _AttemptFailed("its MD5 checksum is wrong")
            os.replace(partial, path)
            description.unlink(missing_ok=True)
        except OSError as error:  # errors of the network have been converted
            raise CannotWrite(path, error) from error
        except _AttemptFailed as failure:
            reached = _size(partial)
            failures = 1 if reached > most else failures + 1
            most = max(most, reached)
            answered |= not isinstance(failure, _NoAnswer)
            if failures >= (ATTEMPTS if answered else ATTEMPTS_WITHOUT_ANSWER):
                kept = "; the next run resumes the download" if reached else ""
                raise InputError(
                    "read",
                    f"{url}: cannot be downloaded: {failure}. Check the connection and try again{kept}",
                ) from failure
            wait = (
                min(LONGEST_WAIT, FIRST_WAIT * 2 ** (failures - 1)) if failure.wait is None else failure.wait
            )
            announce(f"{path.name}: {failure}; next attempt in {wait:.0f} s")
            if stop.wait(wait):
                raise Stopped from failure


def partial_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of a download's partial file and of its description."""
    return path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.json")


def _attempt(
    url: str,
    partial: Path,
    description: Path,
    max_bytes: int,
    progress: Progress | None,
    stop: threading.Event,
) -> None:
    """Download the rest of a file in one connection. Raises _AttemptFailed if it is cut before the end."""
    known = _read_description(description)
    n_bytes = _size(partial) if known is not None and known.validator else 0
    if known is not None and n_bytes == known.size:
        return
    headers = {"User-Agent": f"spinimpute/{version('spinimpute')}", "Accept-Encoding": "identity"}
    if known is not None and n_bytes:
        headers |= {"Range": f"bytes={n_bytes}-", "If-Range": known.validator}
    try:
        with _open(urllib.request.Request(url, headers=headers)) as response:
            remote = _describe(url, response, max_bytes)
            if response.status == http.client.PARTIAL_CONTENT:
                if "Range" not in headers:
                    raise _AttemptFailed("the server sends a part of the file instead of the whole file")
                same = known is not None and known.size == remote.size
                same &= remote.validator in ("", headers.get("If-Range"))
                if not same or _range_start(response) != n_bytes:
                    description.unlink(missing_ok=True)
                    raise _AttemptFailed("the file at the server has changed")
            else:  # the server sends the whole file
                n_bytes = 0
                _check_space(partial, remote.size)
                partial.unlink(missing_ok=True)  # before its new description exists
                description.write_text(json.dumps(asdict(remote)))
            with partial.open("ab" if n_bytes else "wb") as file:
                while block := _read_block(response):
                    n_bytes += len(block)
                    if n_bytes > remote.size:
                        description.unlink()
                        raise _AttemptFailed(f"the server sends more than {remote.size:,} bytes")
                    file.write(block)
                    file.flush()  # what has been received is kept if this process is killed
                    if progress is not None:
                        progress(n_bytes / remote.size)
                    if stop.is_set():
                        raise Stopped
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            description.unlink(missing_ok=True)
        with error:
            raise _failure_of_status(url, error) from error
    if n_bytes != remote.size:
        raise _AttemptFailed(f"the connection was cut after {n_bytes:,} of {remote.size:,} bytes")


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Send a request. Raises HTTPError for an error of the server, and _NoAnswer if there is no answer."""
    opener = urllib.request.OpenerDirector()  # unlike `build_opener`, it opens no local files
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a wrong host or proxy
        reason = getattr(error, "reason", error)
        host = urlsplit(request.full_url).hostname
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise InputError(
                "read",
                f"{request.full_url}: the certificate of {host} is not valid ({reason.verify_message}). "
                "Check the date of this computer and its certificates",
            ) from error
        raise _NoAnswer(f"{host} does not answer ({reason})") from error
    return response


def _describe(url: str, response: http.client.HTTPResponse, max_bytes: int) -> _RemoteFile:
    """Return the size and version of the file that a response sends. Raises InputError if it is too large."""
    found = _RANGE.fullmatch(response.headers.get("Content-Range") or "")
    text = found[2] if found else response.headers.get("Content-Length") or ""
    if not (text.isascii() and text.isdecimal()):
        raise _AttemptFailed("the server does not state the size of the file")  # or its header was cut
    size = int(text[:19])
    if not 0 < size <= max_bytes:
        raise InputError("content", f"{url}: the file has {size:,} bytes; 1 to {max_bytes:,} are expected")
    etag = response.headers.get("ETag") or ""
    # weak tags (W/) do not identify the bytes of a file
    validator = etag if etag.startswith('"') else response.headers.get("Last-Modified") or ""
    return _RemoteFile(size, validator if _is_header_value(validator) else "")


def _is_header_value(text: str) -> bool:
    """Return whether a text can be sent in the header of a request."""
    return text.isascii() and text.isprintable()


def _range_start(response: http.client.HTTPResponse) -> int | None:
    """Return the position of the first byte of a response with a part of a file."""
    found = _RANGE.fullmatch(response.headers.get("Content-Range") or "")
    return int(found[1]) if found else None


def _read_block(response: http.client.HTTPResponse) -> bytes:
    """Read from a connection. Returns no bytes at the end of the file, or if the connection was closed."""
    try:
        return response.read1(READ_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _AttemptFailed(f"the connection was cut ({error or type(error).__name__})") from error


def _failure_of_status(url: str, error: urllib.error.HTTPError) -> Exception:
    """Return the exception for an answer of a server that is not the file."""
    status = f"{error.code} {http.client.responses.get(error.code, '')}".strip()
    if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
        return _AttemptFailed("the file at the server has changed")
    if error.code not in _TEMPORARY:
        return InputError(
            "not-found", f"{url}: the server answers {status}. The file may have moved: try another mirror"
        )
    wait = _retry_after(error.headers.get("Retry-After"))
    if wait is not None and wait > LONGEST_SERVER_WAIT:
        return InputError(
            "read",
            f"{url}: the server answers {status} and asks to wait {wait / 60:,.0f} min. Try again then",
        )
    return _AttemptFailed(f"the server answers {status}", wait)


def _retry_after(text: str | None) -> float | None:
    """Return the seconds that a server asks to wait, as a number or as a date; None if it does not ask."""
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if text.strip().isdecimal():
            return float(text)
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _read_description(path: Path) -> _RemoteFile | None:
    """Read the description of a partial file. None if there is none, or if it is damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        remote = _RemoteFile(**json.loads(path.read_text()))
        if isinstance(remote.size, int) and _is_header_value(remote.validator):
            return remote
    return None


def _check_space(partial: Path, size: int) -> None:
    """Raise InputError if a disk has no space for a file of this size, which may replace the partial file."""
    free = shutil.disk_usage(partial.parent).free + _size(partial)
    if free < size:
        raise InputError(
            "write",
            f"cannot write {partial}: the file has {size / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free. "
            "Choose a folder on another disk",
        )


def _size(path: Path) -> int:
    """Return the size of a file in bytes, 0 if there is no file."""
    return path.stat().st_size if path.exists() else 0


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
