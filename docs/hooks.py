"""Links from pages to files of the repository that are no pages: images are copied, others are named."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add images outside of docs/ that pages show."""
    repository = Path(config.config_file_path).parent
    for page in list(files.documentation_pages()):
        for image, _, path in OUTSIDE.findall(page.content_string):
            if image and files.get_file_from_path(Path(path).name) is None:
                files.append(File.generated(config, Path(path).name, abs_src_path=str(repository / path)))
    return files


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Point to the copies; a file without a page is named by its path in the repository."""

    def link(match: re.Match[str]) -> str:
        image, text, path = match.groups()
        if not (Path(config.config_file_path).parent / path).exists():
            return match[0]  # a broken link: the strict build stops at it
        return f"![{text}]({Path(path).name})" if image else f"{text} (`{path}`)"

    return OUTSIDE.sub(link, markdown)
