"""The Galaxy tool: planemo finds no fault, and its command gives what its own tests assert."""

import gzip
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.workflow.runs import ENVIRONMENT, REPOSITORY
from cli.impute import FORMATS

pytestmark = pytest.mark.slow

FOLDER = REPOSITORY / "workflows" / "galaxy"
XML = FOLDER / "spinimpute_impute.xml"
TOOL = ElementTree.parse(XML).getroot()  # our own file
TESTS = TOOL.findall("tests/test")


class Dataset:
    """A dataset of a Galaxy history: its path, which shows no format, and its datatype."""

    def __init__(self, path: Path, datatype: str) -> None:
        self.path, self.ext = path, datatype

    def __str__(self) -> str:
        return str(self.path)


def test_versions_and_options_are_those_of_the_program() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert [token.text for token in TOOL.iter("token") if token.get("name") == "@TOOL_VERSION@"] == [version]
    help_command = [sys.executable, "-m", "spinimpute", "impute", "--help"]
    options = set(re.findall(r"--[\w-]+", subprocess.check_output(help_command, text=True, timeout=120)))
    stated = [parameter.get("argument", "") for parameter in TOOL.findall("inputs//param")]
    assert set(stated) <= options
    command = TOOL.findtext("command", "")
    assert set(re.findall(r"--[\w-]+", command)) <= options
    fields = {option.get("value") for option in TOOL.findall("inputs/param[@argument='--format']/option")}
    assert fields == set(FORMATS)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: f"{len(test)} parts")
def test_the_command_gives_what_the_test_asserts(test: ElementTree.Element, tmp_path: Path) -> None:
    """Filled in by Cheetah, as Galaxy does, and run by a shell."""
    template = pytest.importorskip("Cheetah.Template", reason="Cheetah is not installed: pip install ct3")
    values: dict[str, object] = {"map": None, "region": "", "format": "GT,DS", "force": ""}
    filters = {"min_r2": "0.0", "min_maf": "0.0"}
    for parameter in test.findall("param"):
        name, value, datatype = (parameter.get(key, "") for key in ("name", "value", "ftype"))
        if datatype:
            data = tmp_path / f"dataset_{len(values)} of Anna.dat"
            shutil.copy(FOLDER / "test-data" / value, data)
        values[name] = Dataset(data, datatype) if datatype else value
    filters |= {part.get("name", ""): part.get("value", "") for part in test.findall("section/param")}
    source = TOOL.findtext("command", "")
    command = str(template.Template(source=source, searchList=[values | {"filters": filters}]))
    done = subprocess.run(
        ["bash", "-c", " ".join(command.split("\n"))], cwd=tmp_path,
        env=ENVIRONMENT | {"GALAXY_MEMORY_MB": "2000"}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = gzip.decompress((tmp_path / "imputed.vcf.gz").read_bytes()).decode()
    asserts = test.findall("output/assert_contents/*")
    assert asserts
    for asserted in asserts:
        assert (asserted.get("text", "") in text) == (asserted.tag == "has_text")


@pytest.mark.skipif(shutil.which("planemo") is None, reason="planemo is not installed")
def test_planemo_finds_no_fault() -> None:
    done = subprocess.run(
        ["planemo", "lint", "--fail_level", "warn", XML],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
