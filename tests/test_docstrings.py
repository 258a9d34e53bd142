"""Docstrings have numpydoc's sections, underlined, and none in other styles."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OTHER_STYLES = re.compile(
    r"^\s*(Args|Arguments|Parameters|Attributes|Returns|Yields|Raises|Notes?|Examples?):\s*$|:param ", re.M
)


def sections_in_other_styles(path: Path) -> list[str]:
    return [
        match[0].strip()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        for match in OTHER_STYLES.finditer(ast.get_docstring(node) or "")
    ]


def test_no_sections_in_other_styles() -> None:
    found = {
        str(path.relative_to(ROOT).parent): (path.name, sections)
        for folder in ("spinimpute", "cli")
        for path in (ROOT / folder).rglob("*.py")
        if (sections := sections_in_other_styles(path))
    }
    assert found == {}
