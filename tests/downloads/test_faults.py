"""`panel get` from a server that fails in the ways of servers. The panel is that of the local files."""

import numpy as np
import pytest

from spinimpute.downloads import transfer
from spinimpute.downloads.get_panel import WORK_FOLDER
from tests.downloads.conftest import ARCHIVE, VCF, Client
from tests.downloads.faults import DEFECTS, FAULTS, cut, hang, other_version, unavailable


@pytest.mark.parametrize("name", FAULTS)
def test_the_panel_is_that_of_the_local_files(client: Client, name: str) -> None:
    client.server.faults[VCF] = list(FAULTS[name])
    client.get().ok()
    client.check()
    assert client.server.faults[VCF] == []


@pytest.mark.parametrize("seed", range(15))
def test_any_sequence_of_faults(client: Client, seed: int) -> None:
    """Wrong bytes may come twice: then the run is refused, and the next one succeeds."""
    rng = np.random.default_rng(seed)
    pool = [fault for faults in FAULTS.values() for fault in faults]
    client.server.faults[VCF] = [pool[number] for number in rng.integers(len(pool), size=7)]
    client.server.faults[ARCHIVE] = [pool[number] for number in rng.integers(len(pool), size=2)]
    for _ in range(5):
        if client.get().code == 0:
            break
    client.check()


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
