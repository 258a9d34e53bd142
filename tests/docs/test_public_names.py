"""A public name means one thing in the whole package; docstrings have one style."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Names that two modules still share. Add none; remove a name once only one module has it.
SHARED = {
    "Chunk", "Reading", "Split", "TrainingSettings",
    "check_weights", "load", "group_lanes", "spread", "write_table",
}  # fmt: skip
# The entry point of the package hands over to the entry point of the command line.
SAME_BY_INTENT = {"main"}


def is_click_command(node: ast.FunctionDef) -> bool:
    """A command has the name that users type, which may be a library function's name."""
    calls = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in ("command", "group") for call in calls)


def public_names(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and is_click_command(node):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_no_two_modules_define_the_same_public_name() -> None:
    modules = defaultdict(list)
    for folder in ("spinimpute", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in public_names(path):
                modules[name].append(str(path.relative_to(ROOT)))
    shared = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED | SAME_BY_INTENT} == {}


SECTIONS = "Args|Arguments|Parameters|Attributes|Returns|Yields|Raises|Notes?|Examples?"
OTHER_STYLES = re.compile(rf"^\s*({SECTIONS}):\s*$|:param ", re.M)


def test_docstrings_have_no_sections_in_other_styles() -> None:
    """Sections of the library are numpydoc's, underlined; docstrings of commands are help texts."""
    for path in (ROOT / "spinimpute").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                assert not OTHER_STYLES.search(ast.get_docstring(node) or ""), (path, node)
