"""Panel files with right checksums of which a part is another one."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spinimpute.panels import inducing_panel, panel
from spinimpute.panels.container import Container, ContainerWriter, compress
from spinimpute.panels.file_kind import FileKind

KINDS: dict[str, FileKind] = {"spin": panel.KIND, "spip": inducing_panel.KIND}

Change = Callable[[dict[str, Any], dict[str, bytes], list[bytes]], None]


def rewritten(source: Path, out: Path, change: Change) -> Path:
    """The same file with another header, other sections and parts, which `change` is given to change."""
    kind = KINDS[source.suffix[1:]]
    with Container(source, kind) as opened:
        sections = {name: opened.section(name) for name in opened.sections if name != "parts"}
        parts = [opened.block(number) for number in range(opened.n_blocks)]
        header = copy.deepcopy(opened.header)
    change(header, sections, parts)
    with out.open("wb") as file:
        writer = ContainerWriter(file, kind)
        for part in parts:
            writer.add_block(compress(part))
        for name, section in sections.items():
            writer.add_section(name, section)
        writer.finish(header, {})
    return out
