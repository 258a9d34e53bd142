"""Where the project is built and run: GitHub's workflow, the Dockerfile, the check of wheel and sdist."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "workflows" / "container" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CI = ROOT / ".github" / "workflows" / "ci.yml"


def tool(name: str) -> str:
    """Its path, beside this Python or elsewhere."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def check_dist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_dist", Path(__file__).with_name("check_dist.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel_of(path: Path, names: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in names.items():
            packed.writestr(name, text)
    return path


def test_a_wheel_that_lacks_weights_or_has_tests_is_refused(check_dist, tmp_path):
    whole = dict.fromkeys(check_dist.NEEDED, "x")
    check_dist.check_contents(wheel_of(tmp_path / "whole.whl", whole))
    for name in whole:
        lacking = wheel_of(tmp_path / "lacking.whl", {key: "x" for key in whole if key != name})
        with pytest.raises(check_dist.FaultyDistribution, match=f"lacks {re.escape(name)}"):
            check_dist.check_contents(lacking)
    with pytest.raises(check_dist.FaultyDistribution, match="has tests beside"):
        check_dist.check_contents(wheel_of(tmp_path / "more.whl", whole | {"tests/test_a.py": ""}))


def test_another_wheel_from_the_sdist_is_refused(check_dist, tmp_path):
    one = wheel_of(tmp_path / "one.whl", {"a": "1", "b": "1"})
    check_dist.check_same(one, wheel_of(tmp_path / "same.whl", {"b": "1", "a": "1"}))
    with pytest.raises(check_dist.FaultyDistribution, match="differs in b, c"):
        check_dist.check_same(one, wheel_of(tmp_path / "two.whl", {"a": "1", "b": "2", "c": "1"}))


def test_the_workflow_of_github_runs_what_there_is():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(CI.read_text())["jobs"]
    called = {
        target for job in jobs.values() for target in re.findall(r"'run': 'make (\w+)'", str(job["steps"]))
    }
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"lint", "demo", "test", "coverage", "dist", "docs"} == called <= targets
    matrix = jobs["test"]["strategy"]["matrix"]
    assert set(matrix["os"]) == {"ubuntu-latest", "macos-latest"}
    oldest = PROJECT["requires-python"]
    assert oldest == f">={matrix['python'][0]}" == f">={jobs['lint']['steps'][1]['with']['python-version']}"


def test_tags_are_released_by_trusted_publishing():
    """No other event publishes, and no job holds a password."""
    yaml = pytest.importorskip("yaml")
    release = yaml.safe_load((CI.parent / "release.yml").read_text())
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    jobs = release["jobs"]
    assert [step["run"] for step in jobs["build"]["steps"] if "run" in step][-1] == "make dist"
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert (jobs["pypi"]["needs"], jobs["github"]["needs"]) == ("build", ["build", "pypi"])
    assert not re.search("secrets|password", (CI.parent / "release.yml").read_text())
    (compared,) = (
        step["run"] for step in jobs["build"]["steps"] if step.get("name", "").startswith("The tag")
    )
    for tag, status in ((f"v{PROJECT['version']}", 0), ("v9.9", 1)):
        command = ["bash", "-c", compared]
        done = subprocess.run(command, cwd=ROOT, env={"GITHUB_REF_NAME": tag}, check=False, timeout=60)
        assert done.returncode == status


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_of_github_call_what_there_is(path):
    """Targets of the Makefile, files, and the commands of the image."""
    text = path.read_text()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"run: make (\w+)", text)) <= targets
    assert all((ROOT / name).is_file() for name in re.findall(r"docker build -f (\S+)", text))
    assert all((ROOT / name).is_dir() for name in re.findall(r"--workdir /data/(\S+)", text))


@pytest.mark.parametrize(
    ("linter", "path"), [*(("actionlint", path) for path in WORKFLOWS), ("hadolint", DOCKERFILE)]
)
def test_linters_of_the_workflow_and_the_image(linter, path):
    done = subprocess.run([tool(linter), path], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_image_gets_all_that_the_wheel_is_built_from():
    """And shows the help of the command that the wheel installs."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"spinimpute", "cli", "pyproject.toml", "setup.py", "README.md", "LICENSE"} & set(ignored)
    text = DOCKERFILE.read_text()
    (build,) = re.findall(r"^RUN (pip wheel .+)$", text, re.M)
    assert build.endswith(" .")
    (started,) = re.findall(r'^CMD \["(.+)", "--help"\]$', text, re.M)
    assert started in PROJECT["scripts"]


def test_the_image_suits_workflow_engines():
    """They start a shell in it, Nextflow calls `ps`, and modules and tasks name its tag."""
    text = DOCKERFILE.read_text()
    assert not re.search(r"^ENTRYPOINT", text, re.M)
    assert re.search(r"^RUN apt-get .*\bprocps\b", text, re.M)
    (tag,) = re.findall(r"^# docker build .* -t (\S+) \.$", text, re.M)
    assert tag == f"spinimpute:{PROJECT['version']}"
    modules = list((ROOT / "workflows/nextflow").rglob("modules/**/main.nf"))
    assert {re.findall(r'container "(.+)"', path.read_text())[0] for path in modules} == {tag}
    extras = re.findall(r"EXTRAS=([\w,]+)", text)
    assert extras
    assert {name for extra in extras for name in extra.split(",")} <= set(PROJECT["optional-dependencies"])
