"""A server on the loopback address that misbehaves on demand, and the files of a small published panel."""

import hashlib
import threading
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from spinimpute.downloads import catalogue, transfer
from spinimpute.downloads.get_panel import WORK_FOLDER
from spinimpute.pipeline.maps.build import build_panels
from tests.conftest import Result, Runner, convert

Fault = Callable[["Handler", bytes], None]
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


class Handler(BaseHTTPRequestHandler):
    """Answers one request: by the next fault for the file, or with the file."""

    server: "Server"

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.requests.append((name, self.headers.get("Range")))
        content = self.server.files.get(name)
        if faults := self.server.faults[name]:
            faults.pop(0)(self, content or b"")
        elif content is None:
            self.send_error(404)
        else:
            self.send_file(content)

    def send_file(
        self,
        content: bytes,
        *,
        etag: str | None = '"1"',
        modified: str | None = None,
        ranges: bool = True,
        length: int | None = None,
        sent: int | None = None,
    ) -> None:
        """Send a file, from the byte on that was asked for. `length` and `sent` are false sizes."""
        start = 0
        if ranges and self.headers.get("If-Range", "") in (etag, modified):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if etag is not None:
            self.send_header("ETag", etag)
        if modified is not None and not start:
            self.send_header("Last-Modified", modified)
        self.send_header("Content-Length", str(len(content) - start if length is None else length))
        self.end_headers()
        self.wfile.write(content[start:][:sent])

    def answer(self, status: int, **headers: str) -> None:
        """Send a status without content."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    """Serves `files` by name, in any folder. `faults` of a name are used up one by one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.requests: list[tuple[str, str | None]] = []
        self.ended = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/panels"

    def handle_error(self, *_: object) -> None:
        """Ignore connections that the client has closed."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server. The client does not wait long for it."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(transfer, "FIRST_WAIT", 0.001)
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.ended.set()
    running.shutdown()
    thread.join()
    running.server_close()


def phased_vcf(
    rng: np.random.Generator, chrom: str, contig: str, first: int = 60_000, n_sites: int = 150
) -> str:
    """A phased VCF of 30 samples, mosaics of a few founders."""
    founders = rng.random((n_sites, 8)) < rng.uniform(0.05, 0.5, (n_sites, 1))
    source = np.cumsum(rng.random((n_sites, 60)) < 0.02, axis=0) + rng.integers(0, 8, 60)
    alleles = np.take_along_axis(founders, source % 8, axis=1).astype(int)
    samples = "\t".join(f"s{number}" for number in range(30))
    lines = [
        "##fileformat=VCFv4.2",
        f"##contig=<ID={contig}>",
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
        f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{samples}",
    ]
    for site, row in enumerate(alleles.reshape(n_sites, 30, 2)):
        calls = "\t".join(f"{a}|{b}" for a, b in row)
        lines.append(f"{chrom}\t{first + 2000 * site}\t.\tA\tC\t.\tPASS\t.\tGT\t{calls}")
    return "\n".join(lines) + "\n"


def map_text(chrom: str, first: int = 50_000, last: int = 400_000) -> str:
    """A PLINK map of a chromosome, about 1 cM/Mb with a hot spot."""
    middle = (first + last) // 2
    rows = [(first, 0.0), (middle, 0.1), (middle + 1000, 0.3), (last, 0.5)]
    return "".join(f"{chrom} . {cM} {position}\n" for position, cM in rows)


def write_archive(path: Path, maps: dict[str, str]) -> Path:
    """Write a zip archive of texts by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in maps.items():
            archive.writestr(name, text)
    return path


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
        return sorted(path.name for path in (self.out / WORK_FOLDER).glob("*"))

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
