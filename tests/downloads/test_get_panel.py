"""`panel get`: archives of maps, several chromosomes, disks, mirrors, and what is kept."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.downloads import catalogue, transfer
from spinimpute.downloads.get_panel import WORK_FOLDER
from spinimpute.downloads.map_archive import read_archived_map
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.partial_files import locked_folder
from tests.conftest import convert
from tests.downloads.conftest import (
    ARCHIVE,
    MAP,
    VCF,
    Client,
    Fault,
    Files,
    Handler,
    Server,
    map_text,
    phased_vcf,
    write_archive,
)
from tests.downloads.faults import truncated, unavailable


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no zip", "the archive of genetic maps is damaged"),
        ({"plink.chr2.GRCh37.map": map_text("2")}, "the archive has no file plink.chr20.GRCh37.map"),
        ({MAP: "20 . 0 1 1\n"}, f"/panels/{ARCHIVE}: {MAP}, line 1: this is not a genetic map"),
        (
            {f"a/{MAP}": "20 . 0 5\n20 . x 9\n"},
            f"/{ARCHIVE}: a/{MAP}, line 2: the genetic position 'x' is not a number",
        ),
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
            read_archived_map(path, "20", "GRCh37", "the address")
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
    genetic_map = read_archived_map(archive, chrom, "GRCh38", "the address")
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
    client.get().refused(
        f"{client.server.url}/{VCF}: the downloaded file cannot be used",
        "Run 'spinimpute panel get' again, or try another mirror",
    )
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


def test_an_existing_file_that_cannot_be_read_is_refused(client: Client) -> None:
    """Such as a panel file of an older version."""
    client.get().ok()
    path = client.out / "tiny.chr20.spin"
    path.write_bytes(path.read_bytes()[:-100])
    client.get().refused(f"Delete {path} and run 'spinimpute panel get' again")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in (catalogue.PANELS_VARIABLE, "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", fails)
    with pytest.raises(InputError, match=f"Set the environment variable {catalogue.PANELS_VARIABLE}"):
        catalogue.panels_folder()


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
    assert not client.out.exists()


def test_a_disk_that_is_full_during_the_download(
    client: Client, small_disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_check_space", lambda *_: None)
    disk = small_disk(32)
    client.out = disk.folder / "panels"
    name = f"{VCF}.tbi"  # of 100,000 bytes
    client.server.files[name] = bytes(100_000)
    client.get().refused(f"cannot write {client.out / WORK_FOLDER / name}: No space left on device")
    assert client.left() == [VCF, name + ".json", name + ".part", ARCHIVE]
    disk.resize(4096)
    del client.server.files[name]
    client.get().ok()
    client.check()


def test_one_chromosome_is_built_while_the_next_is_downloaded(
    server: Server, files: Files, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panels are complete one by one. What a later chromosome lacks does not harm the earlier ones."""
    chroms = ["18", "19", "20", "21"]
    maps = {f"plink.chr{chrom}.GRCh37.map": map_text(chrom) for chrom in chroms}
    server.files[ARCHIVE] = write_archive(tmp_path / "all.zip", maps).read_bytes()
    for chrom in chroms[:2]:
        text = tmp_path / "text.vcf"
        text.write_text(phased_vcf(np.random.default_rng(2), chrom, chrom))
        server.files[f"chr{chrom}.vcf.gz"] = convert(text, tmp_path / "other.vcf.gz").read_bytes()
    reported: list[tuple[str, set[str]]] = []
    fractions: list[float] = []

    def report(path: Path) -> None:
        downloads = {one.name.removesuffix(".part") for one in (client.out / WORK_FOLDER).glob("*.vcf.gz*")}
        reported.append((path.name, {name for name in downloads if name.endswith(".vcf.gz")}))

    with pytest.raises(InputError, match=r"chr21\.vcf\.gz: the server answers 404"):
        spinimpute.get_panel("tiny", client.out, "18-21", progress=fractions.append, report_built=report)
    names = [f"tiny.chr{chrom}.spin" for chrom in chroms[:3]]
    assert [name for name, _ in reported] == names
    assert all(len(downloads) <= 1 for _, downloads in reported)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 0.75
    assert sorted(path.name for path in client.out.glob("*.spin")) == names
    assert (client.out / names[2]).read_bytes() == files.panel
    assert client.left() == [ARCHIVE]


@pytest.mark.parametrize(
    "proxy", ["http:nonsense", "socks5://127.0.0.1:1", "http://" + "a" * 70 + ".invalid"]
)
def test_wrong_proxies(client: Client, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    client.get().refused("127.0.0.1 does not answer")


def test_a_proxy_is_used(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", client.server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    mirror = "http://panels.invalid/a"
    client.get("--base-url", mirror, "--map-url", mirror).ok()
    client.check()


def drip(handler: Handler, content: bytes) -> None:
    """Send one byte after the other, until the client closes the connection."""
    handler.send_file(content, sent=10)
    for byte in content[10:]:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        handler.server.ended.wait(0.05)


@pytest.mark.parametrize("fault", [drip, unavailable])
def test_an_error_stops_the_next_download(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(transfer, "FIRST_WAIT", 60.0)
    maps = {f"plink.chr{chrom}.GRCh37.map": map_text(chrom) for chrom in ("19", "20")}
    server.files[ARCHIVE] = write_archive(tmp_path / "all.zip", maps).read_bytes()
    server.files["chr19.vcf.gz"] = b"no VCF"
    server.faults[VCF] = [fault]
    with pytest.raises(InputError, match=r"chr19\.vcf\.gz"):
        spinimpute.get_panel("tiny", client.out, "19,20")
    assert not [name for name in client.left() if "19" in name]
    client.get().ok()
    client.check()
