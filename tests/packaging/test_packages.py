"""What is installed from a wheel, and what other packagers are told, is what the project says."""

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Of a copy of the sources, so that nothing is left among them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("spinimpute", "cli"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = f"import setuptools.build_meta as b; print(b.build_wheel({str(out)!r}))"
    subprocess.run(
        [sys.executable, "-c", build], cwd=source, check=True, capture_output=True, text=True, timeout=120
    )
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_a_wheel_holds_every_file_of_the_packages(wheel):
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {
        str(installed / path.relative_to(ROOT / folder))
        for folder, installed in (("spinimpute", Path("spinimpute")), ("cli", Path("spinimpute/cli")))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == files
    data = {"weights/haplotype.safetensors", "reports/page.css", "downloads/catalogue.toml"}
    assert {f"spinimpute/{name}" for name in data} <= packed


def test_a_wheel_installs_the_command_and_its_licence(wheel):
    folder = next(name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    assert "spinimpute = spinimpute.__main__:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()


def test_a_wheel_names_authors_and_versions_of_python(wheel):
    """The authors are those of CITATION.cff, the versions of Python those of the CI."""
    yaml = pytest.importorskip("yaml")
    folder = next(name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    metadata = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert metadata["Author"] == ", ".join(author["name"] for author in citation["authors"])
    assert metadata["Version"] == str(citation["version"])
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    stated = re.findall(r"Python :: (3\.\d+)\n", "\n".join(metadata.get_all("Classifier", [])))
    assert stated == jobs["test"]["strategy"]["matrix"]["python"]


@pytest.mark.parametrize("dependencies", ["", str(Path(click.__file__).parents[1])])
def test_sources_that_are_not_installed_say_how_to_install_them(tmp_path, dependencies):
    for name in ("spinimpute", "cli"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-S", "-m", "spinimpute", "--help"],  # -S: without what is installed
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": dependencies},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(
        r"spinimpute: error: No module named .*: run 'pip install \.' in the folder .*\n", done.stderr
    )


def test_the_conda_recipe_asks_for_what_the_project_needs():
    recipe = (ROOT / "workflows/conda/meta.yaml").read_text()
    project = PROJECT["project"]
    assert conda_packages(recipe, "run") == {"python": project["requires-python"]} | bounds(
        project["dependencies"]
    )
    extras = project["optional-dependencies"]
    optional = bounds(line for name in ("charts", "tables", "torch", "train") for line in extras[name])
    assert conda_packages(recipe, r"run_constrained:.*") == optional
    assert f'set version = "{project["version"]}"' in recipe


def conda_packages(recipe: str, section: str) -> dict[str, str]:
    """The packages in a section of the recipe, and their bounds."""
    found = re.search(rf"  {section}:?\n((?:    - .+\n)+)", recipe)
    assert found is not None
    return dict(line[6:].split(maxsplit=1) for line in found[1].splitlines())


def bounds(requirements: Iterable[str]) -> dict[str, str]:
    """The packages of requirements, by their names in conda, and their bounds."""
    split = (re.fullmatch(r"([\w-]+)(.*)", line) for line in requirements if "[" not in line)
    return {CONDA_NAMES.get(found[1], found[1]): found[2] for found in split if found is not None}


def test_the_conda_recipe_renders_and_starts_what_the_wheel_starts():
    jinja2 = pytest.importorskip("jinja2")
    yaml = pytest.importorskip("yaml")
    text = jinja2.Template((ROOT / "workflows/conda/meta.yaml").read_text(), undefined=jinja2.StrictUndefined)
    pins: list[tuple[str, str]] = []
    recipe = yaml.safe_load(
        text.render(
            PYTHON="python", pin_subpackage=lambda name, max_pin: pins.append((name, max_pin)) or name
        )
    )
    assert recipe["build"]["run_exports"] == ["spinimpute"]
    assert pins == [("spinimpute", "x.x")]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert recipe["extra"]["recipe-maintainers"] == [author["name"] for author in citation["authors"]]
    about, project = recipe["about"], PROJECT["project"]
    assert (about["home"], about["license"]) == (project["urls"]["Paper"], project["license"])
    assert [about["license_file"]] == project["license-files"]
    assert about["summary"] == project["description"]
    assert recipe["package"] == {"name": PROJECT["project"]["name"], "version": PROJECT["project"]["version"]}
    scripts = [f"{name} = {start}" for name, start in PROJECT["project"]["scripts"].items()]
    assert recipe["build"]["entry_points"] == scripts
    assert (ROOT / "workflows/conda" / recipe["source"]["path"]).resolve() == ROOT
    assert set(PROJECT["build-system"]["requires"]) <= {
        line.replace(" ", "") for line in recipe["requirements"]["host"]
    }
    for command in recipe["test"]["commands"]:
        subprocess.run([sys.executable, "-m", *command.split()], check=True, capture_output=True, timeout=120)
    for module in recipe["test"]["imports"]:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True, timeout=120)
