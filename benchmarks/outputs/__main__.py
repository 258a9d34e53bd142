"""Checksums of the outputs of commands, to compare two versions of the program.

    python -m benchmarks.outputs checksums.tsv --data shared/data
    python -m benchmarks.outputs before.tsv --data shared/data --python other/venv/bin/python

`diff` of two such files lists the outputs that differ. For VCF and BCF files, the records are compared, not
the headers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from benchmarks.outputs.checksums import checksum, outputs_in
from benchmarks.outputs.commands import Runner, all_sets


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder of the real data."
)
@click.option("--python", default=sys.executable, help="Interpreter of the version to run.")
@click.option("--only", help="Run the commands of these sets only, such as example,chr22_1kg.")
def main(out: Path, data: Path | None, python: str, only: str | None) -> None:
    """Write one line for each output: its checksum and its name."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for set_name, commands in all_sets(data):
            if only is not None and set_name not in only.split(","):
                continue
            folder = Path(name) / set_name
            folder.mkdir()
            run = Runner(python, folder)
            for number, command in enumerate(commands(run)):
                before = outputs_in(folder)
                found = [] if run(command) else [f"refused\t{set_name}/{number} {command}"]
                written = sorted(outputs_in(folder) - before)
                found += [f"{checksum(folder / path)}\t{set_name}/{number}/{path}" for path in written]
                for line in found:
                    click.echo(line)
                lines += found
    out.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
