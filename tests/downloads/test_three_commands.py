"""From nothing to an imputed file: get the panel, impute. On the example and on a simulated genome."""

import shutil
import signal
import ssl
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from spinimpute.downloads import catalogue
from spinimpute.downloads.get_panel import WORK_FOLDER
from spinimpute.panels.spin_files import open_spin_file
from tests.cli.conftest import LIMIT, records, start  # noqa: F401  (a fixture)
from tests.conftest import convert
from tests.downloads.conftest import Handler, Server, map_text, phased_vcf, write_archive

pytestmark = pytest.mark.slow

PHASE3 = "ALL.chr20.phase3_shapeit2_mvncall_integrated_v5b.20130502.genotypes.vcf.gz"
BUILDS = {"20": 64444167, "21": 46709983, "22": 50818468, "X": 156040895}  # GRCh38


@pytest.fixture
def panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of downloaded panels."""
    monkeypatch.setenv(catalogue.PANELS_VARIABLE, str(tmp_path / "panels"))
    return tmp_path / "panels"


@pytest.fixture
def phase3(server: Server, example: Path, tmp_path: Path) -> tuple[str, ...]:
    """Arguments of `panel get`; the server has the example as chromosome 20 of phase 3 of 1000 Genomes."""
    server.files[PHASE3] = (example / "panel.vcf.gz").read_bytes()
    text = (example / "genetic.map").read_text()
    archive = write_archive(tmp_path / "maps.zip", {"plink.chr20.GRCh37.map": text})
    server.files["plink.GRCh37.map.zip"] = archive.read_bytes()
    return (
        "panel", "get", "1000g-phase3", "--chromosomes", "chr20", "--base-url", server.url,
        "--map-url", f"{server.url}/",
    )  # fmt: skip


def test_the_example(run, phase3, panels, example, example_panel, tmp_path, monkeypatch) -> None:
    target = example / "target.vcf.gz"
    run.impute(target, "1000g-phase3", tmp_path / "o.vcf").refused(
        f"there are no panel files in {panels}/1000g-phase3. Run 'spinimpute panel get 1000g-phase3'"
    )
    done = run(*phase3).ok("1000 Genomes Project, phase 3", "Nature 526", "IGSR_disclaimer", "https://ftp.")
    assert [path.relative_to(panels) for path in panels.rglob("*") if path.is_file()] == [
        Path("1000g-phase3", "1000g-phase3.chr20.spin")
    ]
    assert f"{panels}/1000g-phase3/1000g-phase3.chr20.spin: 300 haplotypes of 150 samples" in done.err
    assert "downloaded: 20" in run("panel", "get", "--list").ok().out
    assert "1000g-30x" not in run("panel", "get", "1000g-phase3", "--list").ok().out
    monkeypatch.setenv("SPINIMPUTE_PANEL", "1000g-phase3")
    run("impute", "--vcf", target, "--out", tmp_path / "o.vcf").ok()
    run.impute(target, example_panel.path, tmp_path / "local.vcf").ok()
    assert records(tmp_path / "o.vcf") == records(tmp_path / "local.vcf")
    assert run("check", "--vcf", target, "--panel", "1000g-phase3").ok().out
    run.phase(target, "1000g-phase3", tmp_path / "phased.vcf").ok()
    run.convert(target, "1000g-phase3", tmp_path / "converted.vcf").ok()


def test_a_simulated_genome(run, server, panels, tmp_path, monkeypatch) -> None:
    """It has the names of the 30x panel, but other checksums. X lies across the end of PAR1."""
    listed = tmp_path / "catalogue.toml"
    listed.write_text(catalogue.CATALOGUE.read_text().partition("[1000g-30x.md5]")[0])
    monkeypatch.setattr(catalogue, "CATALOGUE", listed)
    published = catalogue.find_published("1000g-30x")
    rng = np.random.default_rng(3)
    maps, contigs, typed = {}, [], []
    for chrom, length in BUILDS.items():
        first = 2_600_000 if chrom == "X" else 60_000  # across the end of PAR1 of X
        text = phased_vcf(rng, f"chr{chrom}", f"chr{chrom},length={length}", first)
        (tmp_path / "text.vcf").write_text(text)
        vcf = convert(tmp_path / "text.vcf", tmp_path / "panel.vcf.gz")
        server.files[published.vcf_name(chrom)] = vcf.read_bytes()
        maps[f"no_chr_in_chrom_field/plink.chr{chrom}.GRCh38.map"] = map_text(
            chrom, first - 1, first + 400_000
        )
        maps[f"chr_in_chrom_field/plink.chrchr{chrom}.GRCh38.map"] = "wrong"
        version, contig, *head = text.splitlines()[:4]
        contigs.append(contig)
        typed += text.splitlines()[4::3]
    server.files["plink.GRCh38.map.zip"] = write_archive(tmp_path / "maps.zip", maps).read_bytes()
    mirror = ("--base-url", server.url, "--map-url", server.url)
    run("panel", "get", "1000g-30x", "--chromosomes", ",".join(BUILDS), *mirror).ok()
    names = [f"1000g-30x.chr{chrom}.spin" for chrom in BUILDS]
    assert sorted(path.name for path in (panels / "1000g-30x").iterdir()) == names
    with open_spin_file(panels / "1000g-30x" / names[-1]) as parts:
        assert len(parts) == 2
    target = tmp_path / "target.vcf"
    few = ["\t".join(line.split("\t")[:12]) for line in [head[-1], *typed]]
    target.write_text("\n".join([version, *contigs, head[0], *few]) + "\n")
    run.impute(target, "1000g-30x", tmp_path / "imputed.vcf").ok()
    imputed = [line.split("\t")[0] for line in records(tmp_path / "imputed.vcf")]
    assert imputed == [f"chr{chrom}" for chrom in BUILDS for _ in range(150)]
    assert "chrX" in run("check", "--vcf", target, "--panel", "1000g-30x").ok().out
    for command in (run.phase, run.convert):
        command(target, "1000g-30x", tmp_path / "typed.vcf", "--force").ok()
        assert len(records(tmp_path / "typed.vcf")) == 50 * len(BUILDS)


def test_ctrl_c_leaves_what_can_be_resumed(start, run, server, phase3, tmp_path) -> None:  # noqa: F811
    size = len(server.files[PHASE3])

    def hang(handler: Handler, content: bytes) -> None:
        handler.send_file(content, sent=size // 2)
        handler.wfile.flush()
        handler.server.ended.wait(LIMIT)

    server.faults[PHASE3] = [hang]
    out = tmp_path / "panels"
    process = start(*phase3, "--out", out)
    part = out / WORK_FOLDER / f"{PHASE3}.part"
    end = time.monotonic() + LIMIT
    while not (part.exists() and part.stat().st_size == size // 2) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err.splitlines()[-1]) == (130, "spinimpute: interrupted")
    assert part.stat().st_size == size // 2
    run(*phase3, "--out", out).ok()
    assert server.requests[-2:] == [(PHASE3, f"bytes={size // 2}-"), (f"{PHASE3}.tbi", None)]
    assert [path.name for path in out.iterdir()] == ["1000g-phase3.chr20.spin"]


@pytest.fixture
def encrypted(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Encrypt the server's connections. Return the certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed; it writes the certificate of the server")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return certificate


def test_certificates_are_checked(run, server, phase3, encrypted, panels, monkeypatch) -> None:
    words = [word.replace("http://", "https://") for word in phase3]
    run(*words).refused("the certificate of 127.0.0.1 is not valid")
    assert server.requests == []
    monkeypatch.setenv("SSL_CERT_FILE", str(encrypted))
    server.faults[PHASE3] = [lambda handler, content: handler.answer(302, Location=f"{server.url}/{PHASE3}")]
    run(*words).refused(f"the server redirects to {server.url}/{PHASE3}, which is not encrypted")
    run(*words).ok()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "'spinimpute panel get --list' lists the panels"),
        (("1000g",), "there is no published panel '1000g'. The panels are: 1000g-phase3, 1000g-30x"),
        (("1000g-30x", "--chromosomes", "Y"), "'Y' is not a published chromosome"),
        (("1000g-30x", "--chromosomes", "22-20"), "'22-20' is not a published chromosome or range"),
        (("1000g-30x", "--chromosomes", "20-"), "'20-' is not"),
        (("1000g-30x", "--chromosomes", "1,,2"), "'' is not"),
        (("--list", "--out", "folder"), "--out has no effect on --list"),
        (("--list", "1000g"), "there is no published panel '1000g'"),
        (("1000g-30x", "--base-url", "ftp://example.org/a"), "this is not the address of a folder"),
        (("1000g-30x", "--base-url", "file:///tmp"), "this is not the address of a folder"),
        (("1000g-30x", "--base-url", "https://example.org:x/"), "this is not the address of a folder"),
        (("1000g-30x", "--map-url", "https://me:secret@example.org/"), "this is not the address of a folder"),
        (("1000g-30x", "--map-url", "https://example.org/a b"), "this is not the address of a folder"),
        (("1000g-30x", "--map-url", "https://[::1/"), "this is not the address of a folder"),
        (("1000g-30x", "--base-url", ""), "this is not the address of a folder"),
    ],
)
def test_wrong_words_are_refused_without_a_connection(run, panels, words, message) -> None:
    done = run("panel", "get", *words).refused(message)
    assert "citation" not in done.err  # the panel is not described
    assert not panels.exists()


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("1", ["1"]),
        ("X,chr2,1-3", ["1", "2", "3", "X"]),
        ("22-X, 20", ["20", "22", "X"]),
        (None, [*map(str, range(1, 23)), "X"]),
    ],
)
def test_chromosomes_are_chosen_in_the_order_of_the_genome(text: str | None, chosen: list[str]) -> None:
    assert catalogue.choose_chromosomes(text) == chosen


def test_the_catalogue() -> None:
    """Names have no folder in them, all addresses are encrypted, and checksums are complete."""
    panels = catalogue.published_panels()
    assert list(panels) == ["1000g-phase3", "1000g-30x"]
    for panel in panels.values():
        names = [panel.vcf_name(chrom) for chrom in catalogue.PUBLISHED_CHROMOSOMES]
        assert len(set(names)) == 23
        assert not any("/" in name or "{" in name for name in [*names, panel.map_archive, panel.id])
        assert all(
            f"chr{chrom}." in name for chrom, name in zip(catalogue.PUBLISHED_CHROMOSOMES, names, strict=True)
        )
        assert panel.url.startswith("https://")
        assert panel.map_url.startswith("https://")
        assert all(len(md5) == 32 and int(md5, 16) for md5 in panel.md5.values())
    assert set(panels["1000g-30x"].md5) == set(catalogue.PUBLISHED_CHROMOSOMES)


def test_a_file_of_a_panels_name_takes_precedence(panels, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = panels / "1000g-30x"
    folder.mkdir(parents=True)
    (folder / "._a.spin").touch()  # hidden
    for number, name in enumerate(("a.spin", "b.spin")):
        (folder / name).touch()
        assert catalogue.find_downloaded("1000g-30x") == str(folder if number else folder / "a.spin")
    for other in ("./1000g-30x", "1000g-30x.spin", "-", "missing.spin"):
        assert catalogue.find_downloaded(other) == other
    Path("1000g-30x").touch()
    assert catalogue.find_downloaded("1000g-30x") == "1000g-30x"


def test_the_default_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(catalogue.PANELS_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(catalogue.sys, "platform", "linux")
    assert catalogue.panels_folder() == tmp_path / "data" / "spinimpute" / "panels"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert catalogue.panels_folder() == tmp_path / ".local" / "share" / "spinimpute" / "panels"
    monkeypatch.setattr(catalogue.sys, "platform", "darwin")
    assert catalogue.panels_folder() == tmp_path / "Library" / "Application Support" / "spinimpute" / "panels"
