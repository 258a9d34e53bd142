"""`evaluate` gives the r2 of other programs for the same files, where these are installed."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spinimpute.evaluation.evaluate import evaluate

BINS = (0, 0.02, 0.1, 0.5)


def run(program: str, *arguments: object) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed (apt-get install {program})")
    command = [path, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def unknown_in_truth(problem) -> np.ndarray:
    """bool (n_sites, n_samples); the truth file is written without these genotypes."""
    unknown = np.random.default_rng(3).random((len(problem.position), len(problem.samples))) < 0.05
    lines = problem.truth_file().read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line[0] != "#")
    for i, of_site in enumerate(unknown):
        fields = lines[first + i].split("\t")
        for k in np.flatnonzero(of_site):
            fields[9 + k] = "./."
        lines[first + i] = "\t".join(fields)
    (problem.folder / "truth.vcf").write_text("\n".join(lines) + "\n")
    return unknown


def scored(problem) -> np.ndarray:
    """Rows of the sites that `evaluate` scores."""
    return np.flatnonzero(~problem.typed & (problem.panel.min(1) == 0) & (problem.panel.max(1) == 1))


def minor_alleles(problem, name: str, alleles: np.ndarray, unknown: np.ndarray) -> Path:
    """An indexed BCF of the scored sites whose ALT is the panel's minor allele, with its frequency."""
    frequency = problem.panel.mean(axis=1)
    minor = np.where(frequency[:, None] > 0.5, 1 - alleles, alleles)
    path = problem.file(f"{name}.minor.vcf", minor, problem.samples, scored(problem))
    *header, columns = [line for line in path.read_text().splitlines() if line[0] == "#"]
    header.append('##INFO=<ID=MAF,Number=A,Type=Float,Description="in the panel">')
    records = []
    for i, line in zip(scored(problem), path.read_text().splitlines()[len(header) :], strict=True):
        fields = line.split("\t")
        fields[7] = f"MAF={min(frequency[i], 1 - frequency[i]):.6f}"
        fields[9:] = np.where(unknown[i], "./.", fields[9:])
        records.append("\t".join(fields))
    path.write_text("\n".join([*header, columns, *records]) + "\n")
    run("bcftools", "view", "-Ob", "-o", path.with_suffix(".bcf"), path)
    run("bcftools", "index", path.with_suffix(".bcf"))
    return path.with_suffix(".bcf")


def test_calls_by_frequency_and_sample_as_in_bcftools_stats(problem):
    """bcftools stats correlates the calls (GT) of two files, pooled over a bin of ALT frequency or a sample.

    It turns no alleles: it is given files whose ALT is the panel's minor allele.
    """
    problem.absent[:] = False
    unknown = unknown_in_truth(problem)
    truth, imputed = problem.folder / "truth.vcf", problem.imputed_file(form="GT")
    result = evaluate(truth, imputed, problem.panel_file(), problem.typed_file(), bins=BINS)

    calls = (problem.probability >= 0.5).astype(int)
    both = (
        minor_alleles(problem, "truth", problem.truth, unknown),
        minor_alleles(problem, "imputed", calls, np.zeros_like(unknown)),
    )
    edges = "0.0201,0.1001,0.5001"  # its bins are open on the right
    said = run("bcftools", "stats", "-s", "-", "--af-tag", "MAF", "--af-bins", edges, *both)
    rows = [line.split("\t") for line in said.splitlines()]
    of_bins = [row[9:11] for row in rows if row[0] == "GCsAF"]
    of_samples = [float(row[10]) for row in rows if row[0] == "GCsS"]

    ours = pd.DataFrame(result.by_frequency).query("imputer == 'imputed' and bin != 'all'")
    assert len(of_bins) == 3
    np.testing.assert_allclose(ours["pooled_r2"], [float(r2) for r2, _ in of_bins], atol=1e-5)
    assert ours["genotypes"].tolist() == [int(n) for _, n in of_bins]
    np.testing.assert_allclose([row["pooled_r2"] for row in result.by_sample], of_samples, atol=1e-5)


def test_dosages_by_site_as_in_plink2_glm(problem):
    """plink2 regresses the truth of a site on its dosage: r2 = t2 / (t2 + n - 2), of the t that it prints."""
    problem.absent[:] = False
    problem.probability = np.round(problem.probability * 16) / 16  # plink2 keeps dosages as 1/16,384ths
    unknown = unknown_in_truth(problem)
    count = problem.truth[:, ::2] + problem.truth[:, 1::2]
    true = {}
    for i in scored(problem)[::8]:
        known = count[i][~unknown[i]]
        if known.min() < known.max():  # half an allele more, or it would be taken for cases and controls
            true[int(problem.position[i])] = np.where(unknown[i], np.nan, count[i] + 0.5)
    phenotypes = problem.folder / "true.txt"
    frame = pd.DataFrame({"#IID": problem.samples} | {f"at{position}": of for position, of in true.items()})
    frame.to_csv(phenotypes, sep="\t", index=False, na_rep="NA")
    imputed, out = problem.imputed_file(form="GT:DS"), problem.folder / "glm"
    vcf = ("--vcf", imputed, "dosage=DS", "--set-all-var-ids", "@:#")
    regression = ("--glm", "allow-no-covars", "cols=chrom,pos,nobs,tz")
    run("plink2", *vcf, "--pheno", phenotypes, *regression, "--threads", 1, "--memory", 640, "--out", out)

    frequency = problem.panel.mean(axis=1)
    theirs: dict[str, list[float]] = {"(0,0.02]": [], "(0.02,0.1]": [], "(0.1,0.5]": []}
    for position in true:
        table = pd.read_csv(f"{out}.at{position}.glm.linear", sep="\t").set_index("POS")
        t, n = table.loc[position, ["T_STAT", "OBS_CT"]]
        minor = frequency[np.flatnonzero(problem.position == position)[0]]
        number = np.searchsorted(BINS, min(minor, 1 - minor)) - 1
        theirs[list(theirs)[number]].append(t**2 / (t**2 + n - 2))
    assert min(map(len, theirs.values())) > 1

    files = problem.folder / "truth.vcf", imputed, problem.panel_file(), problem.typed_file()
    result = evaluate(*files, bins=BINS, regions=[f"20:{position}" for position in true])
    assert result.scored_sites == len(true)
    ours = (
        pd.DataFrame(result.by_frequency)
        .query("imputer == 'imputed' and bin != 'all'")
        .set_index("bin")["mean_r2"]
    )
    assert ours.to_dict() == pytest.approx({name: np.mean(r2) for name, r2 in theirs.items()}, abs=1e-5)
