"""The command line as it is kept in files: as little of it as determines their content."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection

import click


def command_text(ctx: click.Context, without: Collection[str]) -> str:
    r"""The command with the options that differ from their defaults, in the order of the help, on one line.

    The text is what a shell would take, with control characters and undecodable bytes as in $'\x0a'. A value
    that comes from the environment is written like one that was typed.

    Parameters
    ----------
    ctx : click.Context
        Of the command.
    without : collection of str
        Parameters that do not influence the result, such as the number of threads; without them the same
        input gives the same bytes.

    Returns
    -------
    str
        For the header of an output.
    """
    words = ctx.command_path.split()
    for parameter in ctx.command.params:
        if parameter.name is None or parameter.name in without:
            continue
        value = ctx.params.get(parameter.name)
        if value is None or value == parameter.get_default(ctx):
            continue
        for one in value if isinstance(value, tuple) else [value]:  # of those that may be repeated, each
            words.append(max(parameter.opts, key=len))
            if one is not True:
                words.append(_quoted(str(one)))
    return " ".join(words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(character) for character in word) + "'"


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
