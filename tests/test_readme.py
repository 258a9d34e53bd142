"""The Python examples of the README run as they stand, one after the other."""

import re
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.M | re.S)
    assert len(examples) >= 3
    shutil.copytree(REPOSITORY / "data" / "example", tmp_path / "data" / "example")
    monkeypatch.chdir(tmp_path)
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})
    assert (tmp_path / "imputed.vcf.gz.tbi").exists()
    assert (tmp_path / "panel.spip").exists()


def test_commands_of_the_readme_exist(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for config in re.findall(r"--config (\S+)", readme):
        assert (REPOSITORY / config).is_file(), config
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", readme, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
