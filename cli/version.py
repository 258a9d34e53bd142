"""`spinimpute version`: what a result was, or would be, made with."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def version(as_json: bool) -> None:
    """Versions of spinimpute, its models and its libraries, and what there is to compute with."""
    from spinimpute.pipeline.versions import environment

    found = environment()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    width = max(map(len, found))
    for name, value in found.items():
        click.echo(f"{name:{width}}  {value}")
