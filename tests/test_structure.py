"""Rooms lie one above the other: a module imports from its own room and from those below."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import spinimpute

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "runtime", "genotypes", "vcf", "panels", "targets", "outputs", "sequencing", "nn", "hmm", "phasing",
    "quality", "training", "predictors", "reports", "pipeline", "downloads", "evaluation", "neural_processes",
    "tabular", "cli",
)  # fmt: skip
MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_ROOM = 4_600
MOST_FILES_OF_A_ROOM = 16


def modules() -> dict[str, Path]:
    """Name -> file, of all but the package's own __init__ and __main__, which stand above all rooms."""
    found = {}
    for folder, package in ((ROOT / "spinimpute", "spinimpute"), (ROOT / "cli", "spinimpute.cli")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    del found["spinimpute"], found["spinimpute.__main__"]
    return found


MODULES = modules()


def imported(name: str) -> Iterator[str]:
    """Modules of the package that a module imports anywhere: in functions and for types, too."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            candidates = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                source = ".".join([*above, *([node.module] if node.module else [])])
            else:
                source = node.module or ""
            candidates = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for candidate in candidates:
            if candidate.startswith("spinimpute"):
                module = candidate if candidate in MODULES else candidate.rpartition(".")[0]
                assert module in MODULES, f"{name} imports {candidate}"
                yield module


IMPORTS = {name: set(imported(name)) - {name} for name in MODULES}


def room_of(name: str) -> str:
    return name.split(".")[1]


def circle_in(graph: dict[str, set[str]]) -> str:
    """One of the circles of a graph, as text; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def test_every_folder_is_a_room_that_has_its_place() -> None:
    folders = {path.parent.name for path in (ROOT / "spinimpute").glob("*/__init__.py")}
    assert folders | {"cli"} == set(ROOMS)


def test_imports_go_down() -> None:
    pairs = {(name, other) for name, others in IMPORTS.items() for other in others}
    assert [pair for pair in pairs if ROOMS.index(room_of(pair[1])) > ROOMS.index(room_of(pair[0]))] == []


def test_no_circle_of_modules() -> None:
    assert circle_in(IMPORTS) == ""


def n_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_is_too_long() -> None:
    folders = ("spinimpute", "cli", "tests", "benchmarks")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert [str(path) for path in paths if n_lines(path) > MOST_LINES_OF_A_FILE] == []


def test_no_room_is_too_large() -> None:
    """A room is a folder without the folders in it."""
    for folder in {path.parent for path in MODULES.values()}:
        paths = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(paths) <= MOST_FILES_OF_A_ROOM, folder
        assert sum(map(n_lines, paths)) <= MOST_LINES_OF_A_ROOM, folder


# Libraries that read files in ways and words of their own: one room each knows them.
ROOMS_OF_LIBRARIES = {"cyvcf2": "vcf", "pysam": "sequencing", "pgenlib": "targets", "pyliftover": "targets"}


def libraries(tree: ast.AST) -> set[str]:
    """Top names of all that is imported."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


def test_a_library_that_reads_files_is_known_to_one_room() -> None:
    found = {
        (library, room_of(name))
        for name, path in MODULES.items()
        for library in libraries(ast.parse(path.read_text())) & set(ROOMS_OF_LIBRARIES)
    }
    assert found == set(ROOMS_OF_LIBRARIES.items())


CONNECTIONS = {
    "aiohttp", "asyncio", "ftplib", "http", "httpx", "poplib", "requests", "smtplib", "socket",
    "socketserver", "ssl", "urllib", "urllib3", "xmlrpc",
}  # fmt: skip


def test_connections_are_opened_by_one_module() -> None:
    found = {name for name, path in MODULES.items() if libraries(ast.parse(path.read_text())) & CONNECTIONS}
    assert found == {"spinimpute.downloads.transfer"}


def test_pysam_is_loaded_where_reads_are_opened_alone() -> None:
    found = {name for name, path in MODULES.items() if "pysam" in libraries(ast.parse(path.read_text()))}
    assert found == {"spinimpute.sequencing.alignment_file"}
    tree = ast.parse(MODULES[found.pop()].read_text())
    assert not any(
        isinstance(node, ast.Import | ast.ImportFrom) and "pysam" in libraries(node) for node in tree.body
    )


def test_numba_and_llvmlite_are_used_by_their_public_interfaces() -> None:
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                used = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used = {f"{node.module}.{alias.name}" for alias in node.names}
            else:
                continue
            compilers = {one for one in used if one.startswith(("numba.", "llvmlite"))}
            private = compilers - {"numba.types", "llvmlite.ir"}
            assert not {one for one in private if not one.startswith("numba.extending.")}, name


@pytest.mark.parametrize(
    "command", ["-h", "version -h", "impute -h", "impute", "impute --predictor spin", "impute spip", "phase"]
)
def test_torch_is_not_loaded(command, example, example_panel, tmp_path) -> None:
    """It takes longer to load than imputing some files does."""
    words = command.split()
    if "-h" not in words:
        target, out, panel = example / "target.vcf.gz", tmp_path / "out.vcf", example_panel.path
        if "spip" in words:
            words.remove("spip")
            panel = tmp_path / "panel.spip"
            spinimpute.build_inducing_panel(example_panel, panel, target, inducing_points=8).close()
        words += ["--vcf", str(target), "--panel", str(panel), "--out", str(out), "--quiet"]
    script = """
import sys
from spinimpute.cli.main import run_command
status = run_command()
print([name for name in ("torch", "pandas", "sklearn") if name in sys.modules], status)
"""
    printed = subprocess.check_output([sys.executable, "-c", script, *words], cwd=ROOT, text=True)
    assert printed.endswith("[] 0\n"), printed


# Where weights that sum to one are computed outside of `nn`, and why that is no attention to inducing points.
OTHER_SOFTMAXES = {
    "spinimpute.predictors.spin.similarity": "rows of the confusion of K-mers",
    "spinimpute.predictors.spin.decoder": "the gate that mixes heads",
    "spinimpute.tabular.base": "probabilities of classes",
    "spinimpute.tabular.carrying_network": "probabilities of classes, of members of an ensemble",
    "spinimpute.tabular.row_networks": "FT-Transformer: attention inside one row, which can be asked for",
}


ATTENTION = {"softmax", "log_softmax", "Softmax", "scaled_dot_product_attention", "MultiheadAttention"}


def reached(name: str) -> set[str]:
    """All modules that a module imports, and those that they import."""
    found, waiting = set[str](), [name]
    while waiting:
        new = IMPORTS[waiting.pop()] - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("spinimpute.predictors.haplotype_attention.learner", {"spinimpute.nn.carrying"}),
        ("spinimpute.predictors.spin.predictor", {"spinimpute.nn.carrying"}),
        ("spinimpute.predictors.spin.learner", {"spinimpute.nn.carrying"}),
        ("spinimpute.neural_processes.models", {"spinimpute.nn.points", "spinimpute.nn.attention"}),
        ("spinimpute.tabular.context_estimators", {"spinimpute.nn.carrying", "spinimpute.nn.attention"}),
    ],
)
def test_genotypes_functions_and_tables_use_one_engine(name: str, engine: set[str]) -> None:
    assert reached(name) >= engine


def test_there_is_no_second_attention() -> None:
    """Attention to datapoints and to inducing points is computed in `nn` alone."""
    found = set()
    for name, path in MODULES.items():
        if room_of(name) == "nn":
            continue
        attributes = (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        )
        if {node.attr for node in attributes} & ATTENTION:
            found.add(name)
    assert found == set(OTHER_SOFTMAXES)
