"""The Slurm profile on a cluster of one node on the loopback address, with kills of jobs and Snakemake."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cyvcf2
import pytest

import spinimpute
from benchmarks.workflow.runs import CHUNKS, ENVIRONMENT, WORKFLOW, copy_example, snakemake

pytestmark = pytest.mark.slow

pytest.importorskip(
    "snakemake_executor_plugin_slurm",
    reason="Snakemake's plugin is not installed: pip install 'spinimpute[slurm]'",
)

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sacct", "sinfo")
SBIN = (
    f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"  # the daemons may be outside a user's PATH
)
lacking = [name for name in DAEMONS + CLIENTS if shutil.which(name, path=SBIN) is None]
if lacking:
    pytest.skip(f"{', '.join(lacking)}: not installed (apt install slurm-wlm munge)", allow_module_level=True)

LIMIT = 300  # seconds
JOINED = "imputed/example.20.vcf.gz"
CONFIGURATION = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
KillWait=2
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill,UsePss
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=32000
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)


def call(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
    ).stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a user of a cluster, whose daemons end with the tests."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("bin", "state", "spool"):
        (folder / name).mkdir()
    key, configuration = folder / "munge.key-file", folder / "slurm.conf"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    host = socket.gethostname().split(".")[0]
    configuration.write_text(
        CONFIGURATION.format(host=host, ports=free_ports(2), folder=folder, user=getpass.getuser())
    )
    # programs, because a step of a job starts without the variable SLURM_CONF
    for name in CLIENTS:
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    files = ("socket", "key-file", "pid-file", "log-file", "seed-file")
    munge = [f"--{name}={folder}/munge.{name}" for name in files]
    # --force: others cannot read the folder
    commands = (["munged", "--foreground", "--force", *munge], ["slurmctld", "-D", "-i"], ["slurmd", "-D"])
    environment = ENVIRONMENT | {"PATH": f"{folder / 'bin'}{os.pathsep}{ENVIRONMENT['PATH']}"}
    daemons = []
    try:
        for command in commands:
            with (folder / f"{command[0]}.out").open("w") as said:
                daemons.append(
                    subprocess.Popen(
                        command, env=environment | {"PATH": SBIN, "SLURM_CONF": str(configuration)},
                        stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                    )
                )  # fmt: skip
            if command[0] == "munged":
                wait_for((folder / "munge.socket").exists, "munged")
        wait_for(lambda: "idle" in call(environment, "sinfo", "--noheader", "--format=%T"), "the node")
        yield environment
        call(environment, "scancel", "--user", getpass.getuser())
        wait_for(lambda: not jobs(environment), "the end of all jobs")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(LIMIT)


def jobs(environment: dict[str, str], rule: str = "") -> list[str]:
    """Numbers of the jobs of a rule that run; of all jobs in the queue if no rule is given."""
    rows = (
        line.split("|")
        for line in call(environment, "squeue", "--noheader", "--format=%i|%T|%k").splitlines()
    )
    return [
        number
        for number, state, comment in rows
        if not rule or (state == "RUNNING" and comment.startswith(f"rule_{rule}_"))
    ]


def start(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Snakemake as the documentation shows for clusters without an accounting database."""
    with (folder / "snakemake.log").open("a") as said:
        return subprocess.Popen(
            [
                sys.executable, "-m", "snakemake", JOINED, *CHUNKS,
                "--snakefile", str(WORKFLOW / "Snakefile"), "--profile", str(WORKFLOW / "profiles" / "slurm"),
                "--directory", str(folder),
                "--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "5",
            ],
            env=environment, stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip


def records(path: Path) -> list[str]:
    return [str(record) for record in cyvcf2.VCF(str(path))]


def test_killed_jobs_and_a_killed_snakemake_end_as_a_single_run(cluster, tmp_path) -> None:
    """The cluster gets the chunks and joins them. Its other jobs are done before, to save time."""
    folder = copy_example(tmp_path)
    done = snakemake(folder, "imputed/example/20/phased.vcf.gz", "imputed/panels/20.chunks.tsv", *CHUNKS)
    assert done.returncode == 0, done.stderr[-3000:]

    first, log = start(folder, cluster), folder / "snakemake.log"
    try:
        wait_for(lambda: bool(jobs(cluster, "impute")) or first.poll() is not None, "a chunk")
        assert first.poll() is None, log.read_text()[-3000:]
    finally:
        first.kill()
        first.wait()
    assert jobs(cluster), "jobs outlive Snakemake"
    call(cluster, "scancel", "--user", getpass.getuser())
    wait_for(lambda: not jobs(cluster), "the end of all jobs")
    assert not (folder / JOINED).exists()
    assert snakemake(folder, *CHUNKS, "--unlock").returncode == 0

    second = start(folder, cluster)
    wait_for(lambda: bool(jobs(cluster, "impute")) or second.poll() is not None, "a chunk")
    call(cluster, "scancel", jobs(cluster, "impute")[0])  # Snakemake submits it again
    assert second.wait(LIMIT) == 0, log.read_text()[-3000:]
    said = log.read_text()
    assert "CANCELLED" in said
    assert said.count("Trying to restart job") == 1, "no other job exceeded its memory or its time"
    made, whole = folder / "imputed", tmp_path / "whole.vcf.gz"
    spinimpute.impute(made / "example" / "20" / "phased.vcf.gz", whole, made / "panels" / "20.spin")
    assert records(folder / JOINED) == records(whole)
