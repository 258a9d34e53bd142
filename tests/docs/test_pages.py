"""What the README and the pages of docs/ show works as it stands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spinimpute

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(REPOSITORY / "data" / "example", tmp_path / "data" / "example")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return tmp_path


def run_console(block: str) -> None:
    """Commands follow `$`; what is shown below them comes in this order, and without a gap but at `...`."""
    for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *shown = step.splitlines()
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        printed = [
            " ".join(line.split()) for line in (done.stdout + done.stderr).splitlines() if line.strip()
        ]
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


def test_the_reference_has_all_public_names() -> None:
    named = re.findall(r"^::: spinimpute\.(\w+)$", (DOCS / "api.md").read_text(), re.M)
    assert sorted(named) == sorted(spinimpute.__all__)


def test_the_readme_is_a_front_page() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 100


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("mkdocs", "mkdocs_click", "mkdocstrings", "material"):
        pytest.importorskip(package, reason="pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "site" / "commands" / "index.html").read_text()
    assert "--min-typed-ratio" in commands  # an option of `impute`
    assert "impute_haplotypes" in (tmp_path / "site" / "api" / "index.html").read_text()
    assert list((tmp_path / "site").glob("*-r2-by-frequency.png"))
