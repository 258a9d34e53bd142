"""`spinimpute panel`: commands for reference panels.

`build` writes a panel (.spin) or, with --inducing, an inducing panel (.spip). An inducing panel is made for
one array and has averages of panel haplotypes instead of the haplotypes.
"""

from __future__ import annotations

import click

from .build import build, get
from .change import labels, merge, tune
from .describe import chunks, info, verify


@click.group()
def panel() -> None:
    """Build, download, merge, tune, label, describe and verify reference panels."""


for command in (build, get, merge, tune, labels, info, chunks, verify):
    panel.add_command(command)
