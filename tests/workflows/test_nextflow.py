"""The Nextflow modules: their commands and stubs run; descriptions name what processes take and make."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import cyvcf2
import pytest

from benchmarks.workflow.runs import ENVIRONMENT, REPOSITORY

pytestmark = pytest.mark.slow

yaml = pytest.importorskip("yaml", reason="snakemake is not installed: pip install 'spinimpute[workflow]'")

NEXTFLOW = REPOSITORY / "workflows" / "nextflow"
MODULES = sorted(path.parent for path in NEXTFLOW.glob("modules/spinimpute/*/main.nf"))
EXAMPLE = REPOSITORY / "workflows" / "wrapper" / "spinimpute" / "impute" / "test"
IMPUTE, LIGATE = MODULES


def quote(text: str) -> str:
    """As the closure of that name in the modules."""
    return "'" + text.replace("'", "'\\''") + "'"


def filled(text: str, values: dict[str, str]) -> str:
    """Values in place of what Nextflow fills in: ${name}, ${quote(name)} and ${quote("...")}."""
    text = re.sub(r'\$\{quote\("(.+?)"\)\}', lambda match: quote(filled(match[1], values)), text)
    text = re.sub(r"\$\{quote\((\w+)\)\}", lambda match: quote(values[match[1]]), text)
    return re.sub(r"\$\{(.+?)\}", lambda match: values[match[1]], text)


def command(module: Path, part: str, values: dict[str, str]) -> str:
    """The shell command of `script` or `stub`, with values in place of what Nextflow fills in."""
    text = (module / "main.nf").read_text().split(f"    {part}:\n")[1].split('"""')[1]
    return filled(text, values).replace("\\\\", "\\")


def run(command: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def outputs(module: Path) -> list[str]:
    """Names of the files that a process declares, with ${prefix} and the like."""
    text = (module / "main.nf").read_text().split("    output:\n")[1].split("    when:\n")[0]
    return re.findall(r'path\("([^"]+)"', text)


def made(module: Path, values: dict[str, str], folder: Path) -> None:
    """Every output that is declared is there."""
    for name in (filled(name, values) for name in outputs(module)):
        found = list(folder.glob(name)) if name.startswith("*") else [folder / name]
        assert any(path.is_file() for path in found), (name, os.listdir(folder))


def test_chunks_are_imputed_and_joined(tmp_path: Path) -> None:
    names = {name: f"Anna's $(touch ran) {name}" for name in ("target.vcf.gz", "panel.vcf.gz", "genetic.map")}
    for name, odd in names.items():
        shutil.copy(EXAMPLE / name, tmp_path / odd)
    chunks = []
    for n, region in enumerate(("20:1-125000", "20:125001-1000000")):
        values = {
            "vcf": names["target.vcf.gz"], "panel": names["panel.vcf.gz"],
            "map_option": f"--map {quote(names['genetic.map'])}",
            "region_option": f"--region {region}", "task.cpus": "2",
            "args": f"--format GT,DS,GP --multiqc chunk{n}_mqc.json", "prefix": f"chunk [{n}] `x`",
            "extension": "vcf.gz", "suffix": "tbi",
        }  # fmt: skip
        run(command(IMPUTE, "script", values), tmp_path)
        made(IMPUTE, values, tmp_path)
        chunks.append(quote(f"{values['prefix']}.vcf.gz"))
    values = {"task.cpus": "2", "args": "", "prefix": "all;x", "quoted_chunks": " ".join(chunks)}
    run(command(LIGATE, "script", values), tmp_path)
    made(LIGATE, values, tmp_path)
    written, panel = (
        len(list(cyvcf2.VCF(str(tmp_path / name)))) for name in ("all;x.vcf.gz", names["panel.vcf.gz"])
    )
    assert written == panel > 0
    assert not (tmp_path / "ran").exists()


GROOVY = """
new groovy.json.JsonSlurper().parse(new File('values.json')).each { k, v -> binding.setVariable(k, v) }
print({ -> BODY }())
"""


@pytest.mark.skipif(shutil.which("groovy") is None, reason="groovy is not installed")
@pytest.mark.parametrize("part", ["script", "stub"])
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_groovy_fills_in_as_these_tests_do(module: Path, part: str, tmp_path: Path) -> None:
    """Groovy evaluates the block of a module as Nextflow does."""
    names = [f'it\'s \\ "{n}" $(touch ran)' for n in range(4)]
    given = {"vcf": names[0], "panel": names[1], "map": names[2], "region": "20:1-9", "chunks": names[:2]}
    task = {"cpus": 2, "ext": {"args": "--multiqc a_mqc.json", "prefix": names[3]}}
    (tmp_path / "values.json").write_text(json.dumps(given | {"task": task, "meta": {"id": "x"}}))
    text = (module / "main.nf").read_text().split(f"    {part}:\n")[1]
    body = '"""'.join(text.split('"""')[:2]) + '"""'
    (tmp_path / "block.groovy").write_text(GROOVY.replace("BODY", body))
    java = Path(shutil.which("java") or "/usr/bin/java").resolve().parents[1]
    done = subprocess.run(
        ["groovy", "block.groovy"], cwd=tmp_path, env=ENVIRONMENT | {"JAVA_HOME": str(java)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    values = given | {
        "map_option": f"--map {quote(names[2])}", "region_option": "--region '20:1-9'", "task.cpus": "2",
        "args": "--multiqc a_mqc.json", "prefix": names[3], "extension": "vcf.gz", "suffix": "tbi",
        "quoted_chunks": " ".join(map(quote, names[:2])), "touch_multiqc": "touch a_mqc.json",
    }  # fmt: skip
    assert shlex.split(done.stdout) == shlex.split(command(module, part, values))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_stubs_make_what_is_declared(module: Path, tmp_path: Path) -> None:
    values = {"prefix": "a", "extension": "vcf.gz", "suffix": "tbi", "touch_multiqc": "touch a_mqc.json"}
    run(command(module, "stub", values), tmp_path)
    made(module, values, tmp_path)


@pytest.mark.parametrize(
    "form", ["--multiqc {}", "--multiqc={} --format GP", "--format GP --multiqc '{}' --decimals 2"]
)
def test_the_stub_makes_the_table_that_the_arguments_name(form: str, tmp_path: Path) -> None:
    stub = (IMPUTE / "main.nf").read_text().split("    stub:\n")[1]
    pattern, touched = re.findall(r"args =~ /(--multiqc.+)/\n.*\"(touch .+)\" : ''", stub)[0]
    assert touched == "touch ${multiqc[0][1]}"
    found = re.search(pattern, form.format("a.1000G.20_1-9_mqc.json"))
    values = {"prefix": "b", "extension": "vcf.gz", "suffix": "tbi", "touch_multiqc": f"touch {found[1]}"}
    run(command(IMPUTE, "stub", values), tmp_path)
    assert [path.name for path in tmp_path.glob("*.json")] == ["a.1000G.20_1-9_mqc.json"]
    assert re.search(pattern, "--format GP") is None


def test_tables_of_all_regions_have_names_of_their_own() -> None:
    """The example's arguments contain the prefix, which differs between chunks."""
    folder = NEXTFLOW / "subworkflows" / "vcf_impute_spinimpute"
    config = (folder / "nextflow.config").read_text()
    prefix = re.search(r'SPINIMPUTE_IMPUTE \{\n +ext\.prefix = \{ "(.+)" \}', config)
    text = (REPOSITORY / "workflows" / "README.md").read_text()
    example = re.search(r'SPINIMPUTE_IMPUTE \{ *\n? *ext\.args = \{ "--multiqc (.+)_mqc\.json" \}', text)
    assert example[1] == prefix[1]
    assert all(f"meta.{name}" in example[1] for name in ("id", "panel", "region"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_descriptions_name_what_processes_take_and_make(module: Path) -> None:
    text = (module / "main.nf").read_text()
    meta = yaml.safe_load((module / "meta.yml").read_text())
    taken = re.search(r"    input:\n    tuple (.+)\n", text)
    assert re.findall(r"\((\w+)\)", taken[1]) == [name for entry in meta["input"][0] for name in entry]
    assert set(re.findall(r"emit: (\w+)", text)) == set(meta["output"])
    described = [name for rows in meta["output"].values() for entry in rows[0] for name in entry]
    assert [name for name in described if name in outputs(module)] == outputs(module)
    assert meta["name"] == f"spinimpute_{module.name}"
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert f'container "spinimpute:{version}"' in text
    environment = yaml.safe_load((module / "environment.yml").read_text())
    assert environment["dependencies"] == [f"bioconda::spinimpute={version}"]


def test_the_subworkflow_describes_its_channels() -> None:
    folder = NEXTFLOW / "subworkflows" / "vcf_impute_spinimpute"
    text, meta = (folder / "main.nf").read_text(), yaml.safe_load((folder / "meta.yml").read_text())
    taken = re.findall(r"^    (ch_\w+) +// channel", text, re.M)
    assert taken == [name for entry in meta["input"] for name in entry]
    emitted = re.findall(r"^    (\w+) += SPINIMPUTE_\w+\.out\.(\w+) +// channel", text, re.M)
    assert [name for name, _ in emitted] == [name for entry in meta["output"] for name in entry]
    modules = "".join((module / "main.nf").read_text() for module in MODULES)
    assert all(f"emit: {channel}" in modules for _, channel in emitted)
    assert [name.removeprefix("ch_") for name in taken] == ["input", "panel", "posfile", "chunks", "map"]
    for name, path in re.findall(r"include \{ (\w+) \} from '(.+)'", text):
        assert f"process {name} {{" in (folder / path / "main.nf").read_text()


@pytest.mark.skipif(shutil.which("nf-test") is None, reason="nf-test is not installed")
def test_with_nf_test() -> None:
    done = subprocess.run(
        ["nf-test", "test", "modules/spinimpute/impute/tests/main.nf.test"], cwd=NEXTFLOW, env=ENVIRONMENT,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
