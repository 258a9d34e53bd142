"""The commands and examples of the README and of the pages in docs/ work."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from spinimpute.cli.main import spinimpute as cli

import spinimpute

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
GUIDES = [*PAGES, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "workflows" / "README.md"]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```", re.M | re.S)
WIDEST_CODE = 105  # characters that fit beside the navigation

HELP = ["-h", "--help"]  # click keeps the help option that it makes first


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(REPOSITORY / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return tmp_path


def run_console(block: str) -> None:
    """Run the commands that follow `$` and compare their output with the lines below; `...` skips lines."""
    for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *shown = step.replace("\\\n", " ").splitlines()
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        said = done.stdout + done.stderr
        printed = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
        at, gap = 0, False
        for line in (" ".join(line.split()) for line in shown if line.strip()):
            if line == "...":
                gap = True
                continue
            assert line in printed[at:], f"{command} does not print: {line}\n" + "\n".join(printed)
            found = printed.index(line, at)
            assert gap or found == at, f"{command} prints first: {printed[at]}"
            at, gap = found + 1, False
        assert gap or at == len(printed), f"{command} prints also: {printed[at:]}"


def test_the_tutorial(folder: Path) -> None:
    blocks = BLOCK.findall((DOCS / "tutorial.md").read_text())
    assert len(blocks) >= 6
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, "tutorial.md", "exec"), {})
        elif "plink2" in block and shutil.which("plink2") is None:
            pytest.skip("plink2 is not installed; all before the association ran")
        else:
            run_console(block)


def test_console_blocks_are_compared() -> None:
    run_console("$ printf 'a\\nb\\nc\\n'\na\n...\nc\n")
    for wrong in ("$ echo a\nb\n", "$ printf 'a\\nb\\n'\nb\n", "$ printf 'a\\nb\\n'\na\n", "$ false\n"):
        with pytest.raises(AssertionError):
            run_console(wrong)


@pytest.mark.parametrize("page", ["python.md", "tables.md", "neural-processes.md"])
def test_python_examples_run(page: str, folder: Path) -> None:
    examples = [block for kind, block in BLOCK.findall((DOCS / page).read_text()) if kind == "python"]
    assert len(examples) >= (5 if page == "python.md" else 1)
    for example in examples:
        if page == "neural-processes.md":
            example = re.sub(r"\bsteps=[\d_]+", "steps=5", example)  # good models need minutes
        exec(compile(example, page, "exec"), {})
    if page == "python.md":
        assert (folder / "imputed.vcf.gz.tbi").exists()
        assert (folder / "panel.spip").exists()


def test_commands_and_files_that_pages_name_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text()
        for config in re.findall(r"--config (configs/\S+)", text):
            assert (REPOSITORY / config).is_file(), f"{page}: {config}"
        for target in re.findall(r"^make (\w+)", text, re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"
        prose = re.sub(
            r"^ *```.*?^ *```|`[^`\n]+`", "", text, flags=re.M | re.S
        )  # code has brackets of its own
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
            assert (page.parent / link).exists(), f"{page}: {link}"


def commands_of(text: str) -> list[list[str]]:
    """Return the spinimpute commands of all shell blocks, as words."""
    code = "\n".join(block for kind, block in CODE.findall(text) if kind in ("sh", "console"))
    lines = code.replace("\\\n", " ").splitlines()
    return [
        shlex.split(line.removeprefix("$ "), comments=True)[1:]
        for line in map(str.strip, lines)
        if line.removeprefix("$ ").startswith("spinimpute ")
    ]


def unknown_options(words: list[str]) -> list[str]:
    """Return the options of a command line that the command does not have."""
    command: click.Command = cli
    context = click.Context(cli, help_option_names=HELP)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return words[:1]
        context = click.Context(found, parent=context, info_name=words[0])
        command, words = found, words[1:]
    known = {name for parameter in command.get_params(context) for name in parameter.opts} | {"-h"}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [word for word in given if word not in known]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_commands_on_pages_exist_with_their_options(page: Path) -> None:
    for words in commands_of(page.read_text()):
        assert unknown_options(words) == [], f"{page}: {shlex.join(words)}"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_code_fits_the_page_and_has_a_language(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"^ *<!-- [\w-]+ number", text, re.M), "a comment at the start of a line ends a list"
    assert "\\|" not in text, "a pipe in a table: move the example into a code block"
    for language, block in CODE.findall(text):
        assert language, f"{page}: {block}"
        too_long = [line for line in block.splitlines() if len(line) > WIDEST_CODE]
        assert too_long == [], page


def test_the_commands_of_the_readme_run(folder: Path) -> None:
    shell = [block for kind, block in CODE.findall((REPOSITORY / "README.md").read_text()) if kind == "sh"]
    (block,) = [block for block in shell if "panel build" in block]
    for line in block.replace("\\\n", " ").splitlines():
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert (folder / "evaluation" / "accuracy.tsv").exists()


def test_the_reference_has_all_public_names() -> None:
    named = re.findall(r"^::: spinimpute\.(\w+)$", (DOCS / "api.md").read_text(), re.M)
    assert sorted(named) == sorted(spinimpute.__all__)


def test_the_readme_is_a_front_page() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 100


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "mkdocstrings", "material"):
        pytest.importorskip(package, reason="pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


def all_commands(command: click.Command, path: str) -> dict[str, click.Command]:
    found = {path: command}
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            found |= all_commands(child, f"{path} {name}")
    return found


def test_the_reference_of_commands_has_all_options(site: Path) -> None:
    page = (site / "commands" / "index.html").read_text()
    assert "UNSET" not in page  # how click marks an option without a default
    sections = re.split(r'<h2 id="[^"]*">', page)[1:]
    text_of = {section.partition("<a ")[0]: section for section in sections}
    commands = all_commands(cli, "spinimpute")
    assert set(text_of) == set(commands)
    for path, command in commands.items():
        for parameter in command.get_params(click.Context(command, help_option_names=HELP)):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[-1] in text_of[path], f"{path} {parameter.opts[-1]}"


def test_the_site_has_its_pages_and_pictures(site: Path) -> None:
    assert "impute_haplotypes" in (site / "api" / "index.html").read_text()
    assert list(site.glob("*-r2-by-frequency.png"))
    for page in ("contributing", "changelog", "benchmarks", "tried", "workflows"):
        assert (site / page / "index.html").is_file()


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    links = '<link[^>]*rel="(?:stylesheet|preload|preconnect)[^>]*href="https?:'
    loaded = f'<(?:script|img|iframe)[^>]* src="https?:|{links}'
    assert [page for page in site.rglob("*.html") if re.search(loaded, page.read_text())] == []


def test_modules_that_the_architecture_names_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    paths = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", text))
    assert len(paths) > 50
    roots = (REPOSITORY / "spinimpute", REPOSITORY)
    assert {path for path in paths if not any((root / path).is_file() for root in roots)} == set()


def test_the_architecture_lists_all_packages() -> None:
    table = (DOCS / "architecture.md").read_text().partition("| package | job |")[2]
    listed = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.M)
    folders = [path.parent.name for path in (REPOSITORY / "spinimpute").glob("*/__init__.py")]
    assert sorted(listed) == sorted(folders)
