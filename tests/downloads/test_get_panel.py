"""`panel get` from a server that fails in the ways of servers. The panel is that of the local files."""

import hashlib
import shutil
import subprocess
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest

from spinimpute.downloads import catalogue, transfer
from spinimpute.downloads.get_panel import WORK_FOLDER
from spinimpute.downloads.map_archive import read_archived_map
from spinimpute.pipeline.maps.build import build_panels
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.partial_files import locked_folder
from tests.conftest import Result, Runner, convert
from tests.downloads.conftest import Fault, Handler, Server, map_text, phased_vcf, write_archive

VCF, ARCHIVE, MAP = "chr20.vcf.gz", "maps.zip", "plink.chr20.GRCh37.map"
CATALOGUE = """
[tiny]
title = "A tiny panel"
build = "GRCh37"
haplotypes = 60
url = "{url}"
name = "chr{{chrom}}.vcf.gz"
map_url = "{url}"
map_archive = "maps.zip"
terms = "none"
citation = "nobody"
[tiny.md5]
20 = "{md5}"
"""


@dataclass(frozen=True)
class Files:
    """The files of a panel, and the panel file that is built from them."""

    vcf: bytes
    archive: bytes
    panel: bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("published")
    text = folder / "text.vcf"
    text.write_text(phased_vcf(np.random.default_rng(1), "20", "20,length=63025520"))
    vcf = convert(text, folder / VCF)
    (folder / MAP).write_text(map_text("20"))
    archive = write_archive(folder / ARCHIVE, {f"maps/{MAP}": map_text("20"), "README": "maps"})
    built = folder / "built.spin"
    build_panels(vcf, built, folder / MAP, command="spinimpute panel get tiny")
    return Files(vcf.read_bytes(), archive.read_bytes(), built.read_bytes())


@dataclass
class Client:
    """Runs `panel get tiny` and checks what it leaves."""

    server: Server
    run: Runner
    out: Path
    files: Files

    def get(self, *more: object) -> Result:
        return self.run("panel", "get", "tiny", "--chromosomes", "20", "--out", self.out, "-t", 1, *more)

    def check(self) -> None:
        """The panel is that of the local files, and it is the only file."""
        assert (self.out / "tiny.chr20.spin").read_bytes() == self.files.panel
        assert [path.name for path in self.out.iterdir()] == ["tiny.chr20.spin"]

    def left(self) -> list[str]:
        """What is left of the downloads."""
        return sorted(path.name for path in (self.out / WORK_FOLDER).iterdir())

    def ranges(self) -> list[str | None]:
        """The range of each request for the VCF."""
        return [asked for name, asked in self.server.requests if name == VCF]


@pytest.fixture
def client(
    server: Server, files: Files, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Client:
    listed = tmp_path / "catalogue.toml"
    listed.write_text(CATALOGUE.format(url=server.url, md5=hashlib.md5(files.vcf).hexdigest()))
    monkeypatch.setattr(catalogue, "CATALOGUE", listed)
    server.files |= {VCF: files.vcf, ARCHIVE: files.archive}
    return Client(server, run, tmp_path / "panels", files)


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
    "wrong range": [cut, wrong_range],
    "range without cause": [wrong_range],
    "range not satisfiable": [cut, not_satisfiable],
    "redirect": [redirect],
    "redirect of a rest": [cut, redirect],
    "more bytes than stated": [cut, chunked_beyond_its_length],
    "all at once": [unavailable, cut, too_many_requests, close_at_once, wrong_bytes, ignore_range],
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_panel_is_that_of_the_local_files(client: Client, name: str) -> None:
    client.server.faults[VCF] = list(FAULTS[name])
    client.get().ok()
    client.check()
    assert client.server.faults[VCF] == []


def test_a_server_that_hangs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.3)
    client.server.faults[VCF] = [hang]
    client.get().ok("next attempt in")
    client.check()
    assert client.ranges() == [None, f"bytes={len(client.files.vcf) // 2}-"]


def test_a_cut_download_resumes_where_it_was_cut(client: Client) -> None:
    client.server.faults[VCF] = [cut, cut]
    client.get().ok()
    third = len(client.files.vcf) // 3
    assert client.ranges() == [None, f"bytes={third}-", f"bytes={2 * third}-"]


def test_a_run_that_gave_up_is_resumed(client: Client) -> None:
    client.server.faults[VCF] = [cut, *[unavailable] * transfer.ATTEMPTS]
    done = client.get().refused("503 Service Unavailable", "the next run resumes the download")
    assert not list(client.out.glob("*.spin"))
    assert client.left() == [f"{VCF}.json", f"{VCF}.part", ARCHIVE]
    assert done.err.count("next attempt in") == transfer.ATTEMPTS - 1
    client.server.requests.clear()
    client.server.faults.clear()
    client.get().ok()
    client.check()
    assert client.ranges() == [f"bytes={len(client.files.vcf) // 3}-"]


@pytest.mark.parametrize("damage", [b"", b"[1]", b'{"size": 3, "validator": 4}', b"\xff", b'{"size": 9}'])
def test_a_damaged_description_starts_over(client: Client, damage: bytes) -> None:
    client.server.faults[VCF] = [cut, *[unavailable] * transfer.ATTEMPTS]
    client.get()
    (client.out / WORK_FOLDER / f"{VCF}.json").write_bytes(damage)
    client.get().ok()
    client.check()


def test_the_file_changes_between_two_runs(client: Client) -> None:
    client.server.faults[VCF] = [other_version, *[unavailable] * transfer.ATTEMPTS]
    client.get().refused()
    client.get().ok()
    client.check()


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
    "loop": (to_itself, "the server answers 302 Found"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_what_cannot_be_downloaded_is_explained(client: Client, name: str) -> None:
    fault, message = DEFECTS[name]
    client.server.faults[VCF] = [fault] * 30
    error = client.get().refused(f"{client.server.url}/{VCF}", message).err
    assert error.splitlines()[-1].startswith("spinimpute: error: ")
    assert not list(client.out.glob("*.spin"))
    assert set(client.left()) <= {ARCHIVE, f"{VCF}.part", f"{VCF}.json"}
    del client.server.faults[VCF]
    client.get().ok()
    client.check()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no zip", "the archive of genetic maps is damaged"),
        ({"plink.chr2.GRCh37.map": map_text("2")}, "the archive has no file plink.chr20.GRCh37.map"),
        ({MAP: "20 . 0 1 1\n"}, "this is not a genetic map"),
        ({MAP: "20 . 0 5\n20 . x 9\n"}, "line 2: the genetic position 'x' is not a number"),
        ({MAP: "20 . 0 5\n" * 2**22}, "37,748,736 bytes; a map has at most 33,554,432"),
    ],
    ids=["no zip", "no map", "no rows", "wrong row", "bomb"],
)
def test_wrong_archives_of_maps(client: Client, tmp_path: Path, content: object, message: str) -> None:
    """They are reported before the VCF is downloaded, and downloaded again by the next run."""
    if isinstance(content, dict):
        content = write_archive(tmp_path / "wrong.zip", content).read_bytes()
    client.server.files[ARCHIVE] = content
    client.get().refused(message)
    assert client.ranges() == []
    assert client.left() == []
    client.server.files[ARCHIVE] = client.files.archive
    client.get().ok()
    client.check()


def test_damaged_archives_never_crash(files: Files, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / ARCHIVE
    refused = 0
    for _ in range(300):
        damaged = bytearray(files.archive)
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(len(damaged)) if rng.random() < 0.3 else None])
        try:
            read_archived_map(path, "20", "GRCh37")
        except InputError:
            refused += 1
        assert list(tmp_path.iterdir()) == [path]
    assert refused > 100


@pytest.mark.parametrize("chrom", ["X", "7"])
def test_paths_in_archives_are_ignored_and_parts_of_x_are_joined(tmp_path: Path, chrom: str) -> None:
    maps = {
        f"../../plink.chr{chrom}.GRCh38.map": f"{chrom} . 5 3000000\n{chrom} . 105 150000000\n",
        f"chr_in_chrom_field/plink.chrchr{chrom}.GRCh38.map": "wrong",
        f"a/plink.chr{chrom}_par2.GRCh38.map": "25 . 0 149999999\n25 . 1 155800000\n25 . 2 156000000\n",
        f"a/plink.chr{chrom}_par1.GRCh38.map": "par1 . 1 10000\npar1 . 21 2700000\n",
    }
    archive = write_archive(tmp_path / ARCHIVE, maps)
    genetic_map = read_archived_map(archive, chrom, "GRCh38")
    assert list(tmp_path.iterdir()) == [archive]
    cM = genetic_map.cM(np.array([10_000, 2_700_000, 3_000_000, 150_000_000, 155_800_000, 156_000_000]))
    if chrom == "X":
        assert cM[0] == 1
        np.testing.assert_allclose(np.diff(cM), [20, 0, 100, 0, 1])
    else:
        np.testing.assert_allclose(cM[2:4], [5, 105])
        assert genetic_map.last_position == 150_000_000


@pytest.mark.skipif(shutil.which("tabix") is None, reason="tabix is not installed")
def test_an_index_is_used_and_may_be_missing(client: Client, tmp_path: Path) -> None:
    vcf = tmp_path / VCF
    vcf.write_bytes(client.files.vcf)
    subprocess.run(["tabix", "-p", "vcf", vcf], check=True)
    client.get().ok(f"{VCF}.tbi: the server answers 404 Not Found", "a single process reads the panel")
    client.check()
    (client.out / "tiny.chr20.spin").unlink()
    client.server.files[f"{VCF}.tbi"] = Path(f"{vcf}.tbi").read_bytes()
    assert "404" not in client.get().ok().err
    client.check()


def test_a_damaged_vcf_is_downloaded_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no checksum is published, `panel build` finds the damage."""
    listed = catalogue.CATALOGUE
    listed.write_text(listed.read_text().partition("[tiny.md5]")[0])
    client.server.faults[VCF] = [truncated]
    client.get().refused(VCF)
    assert client.left() == [ARCHIVE]
    client.get().ok()
    client.check()


def test_chromosomes_that_exist_are_skipped(client: Client) -> None:
    client.get().ok()
    client.server.requests.clear()
    client.get().ok("tiny.chr20.spin: exists already")
    assert client.server.requests == []
    more = client.run("panel", "get", "tiny", "--chromosomes", "20-21", "--out", client.out)
    more.refused("the archive has no file plink.chr21.GRCh37.map")
    assert [name for name, _ in client.server.requests] == [ARCHIVE]


def test_another_run_is_noticed(client: Client) -> None:
    (client.out / WORK_FOLDER).mkdir(parents=True)
    with locked_folder(client.out / WORK_FOLDER):
        client.get().refused("another run is using it")
    client.get().ok()


def test_a_small_disk_is_noticed_before_the_download(client: Client, small_disk) -> None:
    client.out = small_disk(64).folder / "panels"
    client.server.faults[VCF] = [lambda handler, content: handler.send_file(content, length=10**7)]
    client.get().refused("the file has 0.01 GB, and 0.00 GB are free. Choose a folder on another disk")


def test_a_folder_that_cannot_be_written(client: Client) -> None:
    client.out.write_text("")
    client.get().refused(f"cannot write {client.out / WORK_FOLDER}")


def test_no_server(client: Client) -> None:
    client.server.shutdown()
    client.server.server_close()
    error = (
        client.get().refused("127.0.0.1 does not answer", "Connection refused", "Check the connection").err
    )
    assert error.count("next attempt in") == transfer.ATTEMPTS_WITHOUT_ANSWER - 1
    assert client.left() == []
