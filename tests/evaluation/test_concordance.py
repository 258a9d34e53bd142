"""The files of GLIMPSE2_concordance: their bytes, compared with our own tables, and in MultiQC."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spinimpute.evaluation.evaluate import evaluate
from spinimpute.quality.concordance import INDEL, OTHER, SNP, variant_kind
from spinimpute.runtime.errors import InputError

BINS = (0, 0.2, 0.3, 0.5)
SUFFIXES = ("error.cal", "error.grp", "error.spl", "rsquare.grp", "rsquare.spl")
SAMPLE_COLUMNS = (
    "id sample_name #val_gt_RR #val_gt_RA #val_gt_AA #filtered_gp RR_hom_matches RA_het_matches "
    "AA_hom_matches RR_hom_mismatches RA_het_mismatches AA_hom_mismatches RR_hom_mismatches_rate_percent "
    "RA_het_mismatches_rate_percent AA_hom_mimatches non_reference_discordanc_rate_percent best_gt_rsquared "
    "imputed_ds_rsquared"
)
BIN_COLUMNS = (
    "id n_genotypes mean_AF #val_gt_RR #val_gt_RA #val_gt_AA filtered_gp RR_hom_matches RA_het_matches "
    "AA_hom_matches RR_hom_mismatches RA_het_mismatches AA_hom_mismatches RR_hom_mismatches_rate_percent "
    "RA_het_mismatches_rate_percent AA_hom_mimatches_rate_percent best_gt_rsquared imputed_ds_rsquared"
)
PROBABILITY_COLUMNS = (
    "id start_bin end_bin avg_bin RR_hom_matches RA_het_matches AA_hom_matches RR_hom_mismatches "
    "RA_het_mismatches AA_hom_mismatches RR_hom_mismatches_rate_percent RA_het_mismatches_rate_percent "
    "AA_hom_mimatches_rate_percent all_mismatches_rate_percent"
)
# worked out by hand from the genotypes of the fixture `files`
BY_SAMPLE = f"""\
#Genotype concordance by sample (SNPs)
#GCsS {SAMPLE_COLUMNS}
GCsS 0 a 0 2 0 0 0 2 0 0 0 0 0.000 0.000 0.000 0.000 nan nan
GCsS 1 b_2 1 0 1 0 1 0 1 0 0 0 0.000 0.000 0.000 0.000 1.000000 1.000000
GCsS 2 c 2 0 0 0 0 0 0 1 0 0 100.000 0.000 0.000 100.000 nan nan
#Genotype concordance by sample (indels)
#GCsI {SAMPLE_COLUMNS}
GCsI 0 a 1 0 0 0 1 0 0 0 0 0 0.000 0.000 0.000 0.000 nan nan
GCsI 1 b_2 0 1 0 0 0 0 0 0 1 0 0.000 100.000 0.000 100.000 nan nan
GCsI 2 c 0 0 0 0 0 0 0 0 0 0 0.000 0.000 0.000 0.000 0.000000 0.000000
#Genotype concordance by sample (Variants: SNPs + indels)
#GCsV {SAMPLE_COLUMNS}
GCsV 0 a 1 2 0 0 1 2 0 0 0 0 0.000 0.000 0.000 0.000 1.000000 0.942308
GCsV 1 b_2 1 1 1 0 1 0 1 0 1 0 0.000 100.000 0.000 50.000 0.750000 0.914557
GCsV 2 c 2 0 0 0 0 0 0 1 0 0 100.000 0.000 0.000 100.000 nan nan
"""
BY_BIN = f"""\
#Genotype concordance by allele frequency bin (SNPs)
#GCsSAF {BIN_COLUMNS}
GCsSAF 0 3 0.100000 2 1 0 0 1 1 0 1 0 0 50.000 0.000 0.000 0.250000 0.617347
GCsSAF 1 0 0.000000 0 0 0 0 0 0 0 0 0 0 0.000 0.000 0.000 0.000000 0.000000
GCsSAF 2 2 0.400000 1 1 1 0 0 1 1 0 0 0 0.000 0.000 0.000 1.000000 1.000000
#Genotype concordance by allele frequency bin (indels)
#GCsIAF {BIN_COLUMNS}
GCsIAF 0 2 0.200000 1 1 0 0 1 0 0 0 1 0 0.000 100.000 0.000 nan 1.000000
GCsIAF 1 0 0.000000 0 0 0 0 0 0 0 0 0 0 0.000 0.000 0.000 0.000000 0.000000
GCsIAF 2 0 0.000000 0 0 0 0 0 0 0 0 0 0 0.000 0.000 0.000 0.000000 0.000000
#Genotype concordance by allele frequency bin (Variants: SNPs + indels)
#GCsVAF {BIN_COLUMNS}
GCsVAF 0 5 0.140000 3 2 0 0 2 1 0 1 1 0 33.333 50.000 0.000 0.027778 0.476886
GCsVAF 1 0 0.000000 0 0 0 0 0 0 0 0 0 0 0.000 0.000 0.000 0.000000 0.000000
GCsVAF 2 2 0.400000 1 1 1 0 0 1 1 0 0 0 0.000 0.000 0.000 1.000000 1.000000
"""
EMPTY = "0 0 0 0 0 0 0.000000 0.000000 0.0000 0.000000"
BY_PROBABILITY = {  # bins that hold genotypes
    "S": {
        59: "0 1 0 1 0 0 100.000000 0.000000 0.0000 50.000000",
        79: "0 0 1 0 0 0 0.000000 0.000000 0.0000 0.000000",
        89: "1 1 0 0 0 0 0.000000 0.000000 0.0000 0.000000",
    },
    "I": {
        49: "0 0 0 0 1 0 0.000000 100.000000 0.0000 100.000000",
        99: "1 0 0 0 0 0 0.000000 0.000000 0.0000 0.000000",
    },
}
BY_PROBABILITY["V"] = BY_PROBABILITY["S"] | BY_PROBABILITY["I"]


def by_probability() -> str:
    kinds = {
        "S": "caoncordance by calibration bin (SNPs)",
        "I": "caoncordance by calibration bin (indels)",
        "V": "concordance by calibration bin (Variants: SNPs + indels)",
    }
    lines = []
    for letter, what in kinds.items():
        lines += [f"#Genotype {what}", f"#GCs{letter}C {PROBABILITY_COLUMNS}"]
        for b in range(100):
            edges = f"0.{b:02d} {'1.00' if b == 99 else f'0.{b + 1:02d}'} 0.{b:02d}5"
            lines.append(f"GCs{letter}C {b} {edges} {BY_PROBABILITY[letter].get(b, EMPTY)}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def files(tmp_path, write_vcf) -> tuple[Path, ...]:
    """Two SNPs, an indel whose minor allele is REF, two sites that are not counted, and a typed site."""
    names = ["a", "b 2", "c"]
    truth = [
        (100, "A", "C", ["0|1", "0|0", "0|0"]),
        (200, "A", "AT", ["1|1", "0|1", ".|."]),
        (300, "G", "T", ["0|1", "1|1", "0|0"]),
        (400, "AC", "GT", ["0|1", "1|1", "0|0"]),
        (500, "A", "G", ["0|1", "1|1", "0|0"]),  # the imputed file lacks it
        (600, "A", "G", ["0|1", "1|1", "0|0"]),
    ]
    imputed = [
        (100, "A", "C", ["0.9:0.1,0.9,0", "0.1:0.9,0.1,0", "0.6:0.4,0.6,0"]),
        (200, "A", "AT", ["2:0,0,1", "1.5:0,0.5,0.5", "1:0,1,0"]),
        (300, "G", "T", ["1.2:0.1,0.6,0.3", "1.8:0,0.2,0.8", "."]),
        (400, "AC", "GT", ["1:0,1,0", "1:0,1,0", "1:0,1,0"]),
    ]
    carriers = {100: 1, 200: 8, 300: 4, 400: 4, 500: 4, 600: 4}  # of ten haplotypes
    panel = []
    for position, ref, alt, _ in truth:
        alleles = [int(i < carriers[position]) for i in range(10)]
        calls = [f"{alleles[i]}|{alleles[i + 1]}" for i in range(0, 10, 2)]
        panel.append(("20", position, ref, alt, "GT", calls))
    return (
        write_vcf(tmp_path / "truth.vcf", names, [("20", *row[:3], "GT", row[3]) for row in truth]),
        write_vcf(tmp_path / "imputed.vcf", names, [("20", *row[:3], "DS:GP", row[3]) for row in imputed]),
        write_vcf(tmp_path / "panel.vcf", list("pqrst"), panel),
        write_vcf(tmp_path / "typed.vcf", names, [("20", *truth[-1][:3], "GT", truth[-1][3])]),
    )


def contents(prefix: Path) -> dict[str, str]:
    """Text of each file by its name behind the prefix."""
    found = {}
    for path in prefix.parent.glob(f"{prefix.name}.*"):
        name = path.name.removeprefix(f"{prefix.name}.").removesuffix(".txt.gz")
        found[name] = gzip.decompress(path.read_bytes()).decode()
    return found


def test_files_byte_by_byte(files, tmp_path):
    evaluate(*files, bins=BINS, concordance=tmp_path / "chr20")
    found = contents(tmp_path / "chr20")
    assert sorted(found) == sorted(SUFFIXES)
    assert found["error.spl"] == BY_SAMPLE
    assert found["error.grp"] == BY_BIN
    assert found["error.cal"] == by_probability()
    assert found["rsquare.grp"] == "0 5 0.14 0.0277778 0.476886\n1 0 0 0 0\n2 2 0.4 1 1\n"
    assert found["rsquare.spl"] == "a 1 0.942308\nb_2 0.75 0.914557\nc nan nan\n"
    first = (tmp_path / "chr20.error.grp.txt.gz").read_bytes()
    evaluate(*files, bins=BINS, concordance=tmp_path / "chr20", force=True)
    assert (tmp_path / "chr20.error.grp.txt.gz").read_bytes() == first


def test_without_probabilities_the_dosage_is_rounded(files, tmp_path):
    truth, imputed, panel, typed = files
    evaluate(*files, bins=BINS, concordance=tmp_path / "chr20")
    lines = []
    for line in imputed.read_text().splitlines():
        fields = line.replace("DS:GP", "DS").split("\t")
        lines.append("\t".join(fields[:9] + [call.split(":")[0] for call in fields[9:]]))
    imputed.write_text("\n".join(lines) + "\n")
    evaluate(truth, imputed, panel, typed, bins=BINS, concordance=tmp_path / "chr20", force=True)
    found = contents(tmp_path / "chr20")
    assert "error.cal" not in found
    # half a minor allele is rounded down; of two equally likely genotypes the one with fewer counts
    assert found["error.spl"] == BY_SAMPLE
    assert found["error.grp"] == BY_BIN


def test_a_haploid_genotype_counts_as_homozygous(write_vcf, tmp_path):
    def written(name, haploid):
        def call(gt, ds, gp):
            if haploid:
                return gt, f"{ds}:{1 - gp:.2f},{gp:.2f}"
            return f"{gt}|{gt}", f"{2 * ds}:{1 - gp:.2f},0,{gp:.2f}"

        truth, imputed = [], []
        for i, (ref, alt) in enumerate([("A", "C"), ("C", "CT"), ("G", "T")] * 3):
            p = [((i * 7 + k * 3) % 10) / 10 for k in range(4)]
            cells = [call(int((i + k) % 3 == 0), p[k], p[k]) for k in range(4)]
            truth.append(("X", 100 * (i + 1), ref, alt, "GT", [str(cell[0]) for cell in cells]))
            imputed.append(("X", 100 * (i + 1), ref, alt, "DS:GP", [cell[1] for cell in cells]))
        names = list("abcd")
        panel = [(*row[:4], "GT", ["0|1", "1|1" if i % 2 else "0|0"]) for i, row in enumerate(truth)]
        folder = tmp_path / name
        folder.mkdir()
        with pytest.warns(UserWarning, match="the file has no sites"):
            evaluate(
                write_vcf(folder / "truth.vcf", names, truth),
                write_vcf(folder / "imputed.vcf", names, imputed),
                write_vcf(folder / "panel.vcf", ["p", "q"], panel),
                write_vcf(folder / "typed.vcf", names, []),
                concordance=folder / "x",
            )
        return contents(folder / "x")

    assert written("haploid", True) == written("diploid", False)


def test_dosages_agree_with_our_own_tables(problem):
    """Where all sites are SNPs and imputed, r2 and counts are those of accuracy.tsv and samples.tsv."""
    problem.absent[:] = False
    result = evaluate(*problem.files(form="GT:DS:GP"), concordance=problem.folder / "q")
    found = contents(problem.folder / "q")
    of_bins = np.array([line.split() for line in found["rsquare.grp"].splitlines()], dtype=float)
    of_bins = of_bins[of_bins[:, 1] > 0]
    frame = pd.DataFrame(result.by_frequency)
    ours = frame[(frame["imputer"] == "imputed") & (frame["bin"] != "all")]
    np.testing.assert_allclose(of_bins[:, 4], ours["pooled_r2"], atol=1e-5)
    np.testing.assert_array_equal(of_bins[:, 1], ours["genotypes"])
    of_samples = np.array([line.split()[2] for line in found["rsquare.spl"].splitlines()], dtype=float)
    np.testing.assert_allclose(of_samples, [row["pooled_r2"] for row in result.by_sample], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "variants"),
    [
        (SNP, ["A>C", "GAT>CAT", "GAT>GCT"]),
        (INDEL, ["A>AT", "GTC>C"]),
        (OTHER, ["AC>GT", "TC>G", "A><DEL>", "A>*"]),
    ],
)
def test_kinds_of_variants(kind, variants):
    for variant in variants:
        ref, _, alt = variant.partition(">")
        assert variant_kind(ref, alt) == kind, variant


@pytest.mark.parametrize("prefix", ["", "new/", "new/.hidden"])
def test_prefixes_of_hidden_files(files, tmp_path, prefix):
    (tmp_path / "new").mkdir()
    with pytest.raises(InputError, match="would be hidden files"):
        evaluate(*files, concordance=f"{tmp_path}/{prefix}")
    assert not list((tmp_path / "new").iterdir())


def test_files_in_the_folder_of_the_tables(files, tmp_path):
    out = tmp_path / "new"
    evaluate(*files, bins=BINS, out=out, report=out / "page.html", concordance=out / "chr20")
    assert sorted(contents(out / "chr20")) == sorted(SUFFIXES)
    assert (out / "accuracy.tsv").exists()
    assert (out / "page.html").exists()


def test_files_that_are_there(files, tmp_path):
    mine = tmp_path / "q.rsquare.spl.txt.gz"
    mine.write_text("mine")
    with pytest.raises(InputError, match=r"q\.rsquare\.spl\.txt\.gz already exists; use force=True"):
        evaluate(*files, concordance=tmp_path / "q")
    with pytest.raises(InputError, match=r"to be written to the same file"):
        evaluate(*files, report=tmp_path / "r.error.spl.txt.gz", concordance=tmp_path / "r")
    with pytest.raises(InputError, match=r"there is no folder .*absent"):
        evaluate(*files, concordance=tmp_path / "absent" / "q")
    assert mine.read_text() == "mine"
    assert not (tmp_path / "q.error.spl.txt.gz").exists()


def test_multiqc_shows_both_sections(files, tmp_path):
    """MultiQC is large and not a requirement of the tests."""
    multiqc = shutil.which("multiqc")
    if multiqc is None:
        pytest.skip("multiqc is not installed (pip install multiqc)")
    evaluate(*files, bins=BINS, concordance=tmp_path / "chr20")
    options = ["--module", "glimpse", "--strict", "--cl-config", "no_version_check: true"]
    command = [multiqc, *options, "--outdir", "shown", "--data-format", "json", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "shown" / "multiqc_report.html").read_text()
    for title in ("Genotype concordance by allele frequency bin", "Genotype concordance by samples"):
        assert title in page
    data = json.loads((tmp_path / "shown" / "multiqc_data" / "multiqc_data.json").read_text())
    assert {"glimpse-err-grp-plot", "glimpse-err-spl-table"} <= set(data["report_plot_data"])
    read = data["report_saved_raw_data"]
    of_samples, of_bins = read["multiqc_glimpse_err_spl"], read["multiqc_glimpse_err_grp"]
    assert set(of_samples) == {"a", "b_2", "c"}
    assert of_samples["b_2"]["GCsV"]["imputed_ds_rsquared"] == 0.914557
    assert of_bins["chr20"]["GCsVAF"]["0"]["imputed_ds_rsquared"] == 0.476886
