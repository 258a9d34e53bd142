"""What servers do wrong, once (`FAULTS`) or always (`DEFECTS`)."""

import time
from email.utils import formatdate

from tests.downloads.conftest import VCF, Fault, Handler


def cut(handler: Handler, content: bytes) -> None:
    handler.send_file(content, sent=len(content) // 3)


def cut_in_header(handler: Handler, content: bytes) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Le")


def close_at_once(handler: Handler, content: bytes) -> None:
    pass


def no_http(handler: Handler, content: bytes) -> None:
    handler.wfile.write(b"\x16\x03\x01 nonsense\r\n\r\n")


def hang(handler: Handler, content: bytes) -> None:
    handler.send_file(content, sent=len(content) // 2)
    handler.wfile.flush()
    handler.server.ended.wait(60)


def too_many_requests(handler: Handler, content: bytes) -> None:
    handler.answer(429, Retry_After="0")


def wait_until(handler: Handler, content: bytes) -> None:
    handler.answer(429, Retry_After=formatdate(time.time() - 5, usegmt=True))


def unavailable(handler: Handler, content: bytes) -> None:
    handler.answer(503)


def wait_nonsense(handler: Handler, content: bytes) -> None:
    handler.answer(503, Retry_After="tomorrow")


def wrong_bytes(handler: Handler, content: bytes) -> None:
    handler.send_file(content[:-30] + bytes(30))


def truncated(handler: Handler, content: bytes) -> None:
    handler.send_file(content[:-400])


def too_long_length(handler: Handler, content: bytes) -> None:
    handler.send_file(content, length=len(content) + 10)


def ignore_range(handler: Handler, content: bytes) -> None:
    handler.send_file(content, ranges=False)


def other_version(handler: Handler, content: bytes) -> None:
    handler.send_file(content[::-1], etag='"0"', sent=len(content) // 2)


def no_validator(handler: Handler, content: bytes) -> None:
    handler.send_file(content, etag=None, sent=len(content) // 2)


def weak_validator(handler: Handler, content: bytes) -> None:
    handler.send_file(content, etag='W/"1"', sent=len(content) // 2)


def strange_validator(handler: Handler, content: bytes) -> None:
    handler.send_file(content, etag='"1"\x01\xe9', sent=len(content) // 2)


def dated(handler: Handler, content: bytes) -> None:
    handler.send_file(content, etag=None, modified="Fri, 01 May 2026 10:00:00 GMT", sent=len(content) // 3)


def other_date(handler: Handler, content: bytes) -> None:
    handler.send_file(content, etag=None, modified="Sat, 02 May 2026 10:00:00 GMT")


def wrong_range(handler: Handler, content: bytes) -> None:
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes 7-{len(content) - 1}/{len(content)}")
    handler.send_header("Content-Length", str(len(content) - 7))
    handler.end_headers()
    handler.wfile.write(content[7:])


def not_satisfiable(handler: Handler, content: bytes) -> None:
    handler.answer(416, Content_Range=f"bytes */{len(content)}")


def redirect(handler: Handler, content: bytes) -> None:
    handler.answer(302, Location=f"{handler.server.url}/elsewhere/{VCF}")


def chunked_beyond_its_length(handler: Handler, content: bytes) -> None:
    start = len(content) // 3
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.send_header("ETag", '"1"')
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


# what the server does before it sends the file
FAULTS: dict[str, list[Fault]] = {
    "cut": [cut, cut],
    "cut in the header": [cut_in_header],
    "closed at once": [close_at_once],
    "no HTTP": [no_http],
    "429 with seconds": [too_many_requests],
    "429 with a date": [wait_until],
    "503": [unavailable, unavailable, unavailable],
    "503 with nonsense": [wait_nonsense],
    "wrong bytes": [wrong_bytes],
    "truncated": [truncated],
    "too long a length": [too_long_length],
    "range ignored": [cut, ignore_range],
    "file changed": [other_version],
    "no validator": [no_validator],
    "weak validator": [weak_validator],
    "strange validator": [strange_validator],
    "dates": [dated, dated],
    "another date": [dated, other_date],
    "wrong range": [cut, wrong_range],
    "range without cause": [wrong_range],
    "range not satisfiable": [cut, not_satisfiable],
    "redirect": [redirect],
    "redirect of a rest": [cut, redirect],
    "more bytes than stated": [cut, chunked_beyond_its_length],
    "all at once": [unavailable, cut, too_many_requests, close_at_once, wrong_bytes, ignore_range],
}


def not_found(handler: Handler, content: bytes) -> None:
    handler.answer(404)


def forbidden(handler: Handler, content: bytes) -> None:
    handler.answer(403)


def wait_long(handler: Handler, content: bytes) -> None:
    handler.answer(429, Retry_After="7200")


def huge(handler: Handler, content: bytes) -> None:
    handler.send_file(content, length=10**15)


def endless_digits(handler: Handler, content: bytes) -> None:
    handler.answer(200, Content_Length="9" * 5000)


def empty(handler: Handler, content: bytes) -> None:
    handler.answer(200, Content_Length="0")


def no_length(handler: Handler, content: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(content)


def to_a_local_file(handler: Handler, content: bytes) -> None:
    handler.answer(302, Location="file:///etc/passwd")


def to_itself(handler: Handler, content: bytes) -> None:
    handler.answer(302, Location=f"{handler.server.url}/{VCF}")


def to_nowhere(handler: Handler, content: bytes) -> None:
    handler.answer(302, Location="http://[::1/\xe9 ")


# what the server always does -> what the user reads
DEFECTS: dict[str, tuple[Fault, str]] = {
    "404": (not_found, "the server answers 404 Not Found"),
    "403": (forbidden, "the server answers 403 Forbidden"),
    "a long wait": (wait_long, "429 Too Many Requests and asks to wait 120 min"),
    "always cut": (close_at_once, "does not answer"),
    "wrong bytes": (wrong_bytes, "the MD5 checksum differs from the published one"),
    "too long a length": (too_long_length, "the connection was cut after"),
    "huge": (huge, "1,000,000,000,000,000 bytes; 1 to"),
    "endless digits": (endless_digits, "bytes; 1 to"),
    "empty": (empty, "the file has 0 bytes"),
    "no length": (no_length, "does not state the size"),
    "local file": (to_a_local_file, "the server answers 302 Found"),
    "wrong address": (to_nowhere, "does not answer"),
    "range without cause": (wrong_range, "sends a part of the file instead of the whole file. Check"),
    "loop": (to_itself, "the server answers 302 Found"),
}
