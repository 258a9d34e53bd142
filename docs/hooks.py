"""Parts of the site that are made from other sources.

The command reference is made from the click commands. Some Markdown files outside of docs/ become pages.
Links from pages to other files of the repository show their paths; images that pages show are copied.
"""

import html
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

PAGES = {  # file of the repository -> page
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/tried.md": "tried.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "workflows/README.md": "workflows.md",
}
COMMANDS = "::: commands"  # the line of docs/commands.md that the reference replaces
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and images that lie outside of docs/."""
    repository = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(repository / source)))
    for page in list(files.documentation_pages()):
        folder = Path(page.abs_src_path).parent
        for image, _, target, _ in LINK.findall(page.content_string):
            path = (folder / target).resolve()
            outside = not path.is_relative_to(config.docs_dir) and path.exists()
            if image and outside and files.get_file_from_path(path.name) is None:
                files.append(File.generated(config, path.name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Write the command reference, and point links at pages and copied images."""
    repository = Path(config.config_file_path).parent
    folder = Path(page.file.abs_src_path).parent

    def link(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups(default="")
        path = Path(os.path.normpath(folder / target))
        if not path.exists() or (path.is_relative_to(config.docs_dir) and folder == Path(config.docs_dir)):
            return match[0]  # a page beside this one, or a broken link, at which the strict build stops
        name = path.relative_to(repository).as_posix()
        if name in PAGES:
            return f"[{text}]({PAGES[name]}{anchor})"
        if path.is_relative_to(config.docs_dir) and path.suffix == ".md":
            return f"[{text}]({path.relative_to(config.docs_dir).as_posix()}{anchor})"
        if image:
            return f"![{text}]({path.name})"
        return text if name in text else f"{text} (`{name}`)"

    markdown = LINK.sub(link, markdown)
    return markdown.replace(COMMANDS, command_reference()) if COMMANDS in markdown else markdown


class OptionTables(click.HelpFormatter):
    """Collects the tables of a help text under their headings, instead of printing them."""

    def __init__(self) -> None:
        super().__init__(width=10_000)
        self.heading = ""
        self.tables: list[tuple[str, Sequence[tuple[str, str]]]] = []

    def write_heading(self, heading: str) -> None:
        """Keep the heading for the tables that follow."""
        self.heading = heading

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: Any, **__: Any) -> None:
        """Collect a table."""
        self.tables.append((self.heading, list(rows)))


def command_reference() -> str:
    """Return the reference of all commands in Markdown."""
    from spinimpute.cli.main import spinimpute

    context = spinimpute.make_context("spinimpute", [], resilient_parsing=True)
    return "\n\n".join(describe(spinimpute, context))


def describe(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the heading, usage, text and options of a command, then do the same for its subcommands."""
    yield f"## {context.command_path}"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```"
    text = inspect.cleandoc(command.help or "").partition("\f")[0].replace("\b\n", "")
    yield escape(text)
    formatter = OptionTables()
    command.format_options(context, formatter)
    if isinstance(command, click.Group):
        command.format_commands(context, formatter)
        formatter.tables = list({heading: (heading, rows) for heading, rows in formatter.tables}.values())
    for heading, rows in formatter.tables:
        yield f"**{escape(heading)}**"
        yield "\n\n".join(f"`{name}`\n:   {escape(' '.join(text.split())) or '–'}" for name, text in rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from describe(child, click.Context(child, info_name=name, parent=context))


def escape(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))
