"""Checksums of outputs: what counts, and what does not."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.outputs.checksums import checksum, outputs_in
from benchmarks.outputs.commands import Runner, all_sets

RECORD = "20\t100\t.\tA\tC\t.\tPASS\t.\tGT\t0|1\n"
HEADER = '##fileformat=VCFv4.2\n##contig=<ID=20>\n##FORMAT=<ID=GT,Number=1,Type=String,Description="{}">\n'
COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n"


def test_records_count_and_headers_do_not(tmp_path: Path) -> None:
    found = []
    for words, record in (("a", RECORD), ("b", RECORD), ("a", RECORD.replace("0|1", "1|0"))):
        path = tmp_path / "o.vcf"
        path.write_text(HEADER.format(words) + COLUMNS + record)
        found.append(checksum(path))
    assert found[0] == found[1] != found[2]


def test_what_commands_read_is_no_output(tmp_path: Path) -> None:
    for name in ("inputs/a.vcf", "form/in/b.vcf", "form/out/c.vcf", "d.html", "e.spin"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert outputs_in(tmp_path) == {Path("form/out/c.vcf"), Path("e.spin")}


def test_the_example(tmp_path: Path) -> None:
    """All commands of the example are accepted, and write something."""
    commands = dict(all_sets(None))["example"]
    run = Runner(sys.executable, tmp_path)
    for command in commands(run):
        before = outputs_in(tmp_path)
        assert run(command), command
        assert outputs_in(tmp_path) - before
