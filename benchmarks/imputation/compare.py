"""`compare`, `fewer-sites`, `small-panels`, `single-target`: accuracy and time of all imputers on cases."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.imputation.answers import Answers, read_answers, read_guess
from benchmarks.imputation.cases import Case
from benchmarks.imputation.derived import draw_targets, merged, only_targets, small_panel, thinned
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import Imputer, better_peer
from benchmarks.imputation.results import Outcome, models_used, write_configuration, write_outcome
from benchmarks.imputation.scoring import ALL, score
from benchmarks.imputation.strata import (
    Cell,
    Stratum,
    cells,
    distance_strata,
    people_strata,
    recombination_strata,
)
from benchmarks.imputation.study import Imputed, add_nearest, impute_case
from benchmarks.imputation.tables import (
    MEASURES,
    accuracy_table,
    bins,
    error_ratio,
    labels,
    markdown,
    number,
    our_labels,
    vcf_sizes,
)


def compare(arguments: argparse.Namespace) -> None:
    """Impute and score each case; its results go to a folder of its own."""
    with session(arguments) as run:
        for name in arguments.cases:
            case = run.case(name)
            work = run.work_folder(case.name)
            imputed = impute_case(case, run.imputers, work, run.threads, run.repeat)
            add_nearest(case, imputed, work)
            out = run.result_folder(f"{run.name}-{case.name}" if run.name else case.name)
            outcome = judged(case, imputed, run, out, strata=True)
            write_outcome(outcome, out, run)
            print(f"{accuracy_table(outcome.rows, 'pooled_r2')}\n{out / 'report.md'}")


def fewer_sites(arguments: argparse.Namespace) -> None:
    """Impute and score thinned arrays."""
    with session(arguments) as run:
        out = run.result_folder(run.name or "fewer-sites")
        outcomes = []
        for name in arguments.cases:
            full = run.case(name)
            panels = run.work_folder(full.name)
            for part in arguments.parts:
                work = run.work_folder(f"{full.name}-{part}")
                outcomes.append(one_of_several(thinned(full, part, run.seed, work), run, work, out, panels))
        write_summary(outcomes, out, run)


def small_panels(arguments: argparse.Namespace) -> None:
    """Impute and score with panels of few people."""
    with session(arguments) as run:
        out = run.result_folder(run.name or "small-panels")
        outcomes = []
        for name in arguments.cases:
            full = run.case(name)
            for people in arguments.people:
                work = run.work_folder(f"{full.name}-{people}")
                case = small_panel(full, people, run.seed, work)
                outcomes.append(one_of_several(case, run, work, out, work))
        write_summary(outcomes, out, run)


def single_target(arguments: argparse.Namespace) -> None:
    """Impute people one by one, and score them together."""
    with session(arguments) as run:
        out = run.result_folder(run.name or "single-target")
        outcomes = []
        for name in arguments.cases:
            full = run.case(name)
            work = run.work_folder(full.name)
            names = draw_targets(full, arguments.people, run.seed)
            case = only_targets(full, names, work)
            imputed = _one_by_one(case, names, run, work)
            outcome = judged(case, imputed, run, _subfolder(out, case), strata=False)
            write_outcome(outcome, out / case.name, run)
            outcomes.append(outcome)
        write_summary(outcomes, out, run)


def _one_by_one(case: Case, names: Sequence[str], run: Session, work: Path) -> Imputed:
    """Each person imputed alone; the seconds are those of one person, the files are merged."""
    stages = []
    singles: dict[str, list[Path]] = {imputer.label: [] for imputer in run.imputers}
    for name in names:
        folder = work / name
        folder.mkdir()
        alone = only_targets(case, [name], folder)
        imputed = impute_case(alone, run.imputers, folder, run.threads, run.repeat, panels=work)
        stages += imputed.stages
        for label, path in imputed.files.items():
            singles[label].append(path)
    files = {label: work / f"{label}.bcf" for label in singles}
    for label, paths in singles.items():
        merged(paths, files[label])
    return Imputed(files, stages)


def judged(case: Case, imputed: Imputed, run: Session, out: Path, *, strata: bool) -> Outcome:
    """Score the files, and write the scorer's table to the folder `out`."""
    rows = score(case, run.scorer, imputed.files, out / "accuracy.tsv")
    found: list[Cell] = []
    if strata:
        answers = read_answers(case)
        dosages = {label: read_guess(answers, path).dosage_XS for label, path in imputed.files.items()}
        found = cells(strata_of(case, answers), answers.minor_frequency, answers.true_XS, dosages)
    return Outcome(case, rows, imputed.stages, found, models_used(imputed.files), vcf_sizes(imputed.files))


def strata_of(case: Case, answers: Answers) -> list[Stratum]:
    """Return all strata of a case."""
    genetic_map = case.read_map(answers.truth.keys[0][0])
    n_people = len(answers.people)
    return [
        *recombination_strata(answers.position, genetic_map, n_people),
        *distance_strata(answers.position, answers.typed_position, n_people),
        *people_strata(answers.people, case.populations(), answers.n_sites),
    ]


def one_of_several(
    case: Case,
    run: Session,
    work: Path,
    out: Path,
    panels: Path,
    imputers: Sequence[Imputer] = (),
    *,
    strata: bool = True,
) -> Outcome:
    """Impute and score a case, and write its tables to a folder of its own in `out`."""
    imputed = impute_case(case, imputers or run.imputers, work, run.threads, run.repeat, panels=panels)
    outcome = judged(case, imputed, run, _subfolder(out, case), strata=strata)
    write_outcome(outcome, out / case.name, run)
    return outcome


def _subfolder(out: Path, case: Case) -> Path:
    folder = out / case.name
    folder.mkdir(exist_ok=True)
    return folder


def write_summary(outcomes: Sequence[Outcome], out: Path, run: Session) -> None:
    """Write one table over the cases: all sites, both measures, and errors relative to the better peer."""
    imputers, ours = labels(outcomes[0].rows), our_labels(outcomes[0].rows)
    sections = [f"# {out.name}"]
    for measure, title in MEASURES.items():
        table = [["case", *(label.replace("_", " ") for label in imputers)]]
        for outcome in outcomes:
            value = {row.imputer: getattr(row, measure) for row in outcome.rows if row.bin == ALL}
            table.append([outcome.case.name, *(number(value[label]) for label in imputers)])
        sections += [f"{title.capitalize()} over all sites:", markdown(table)]
    ratio = [["case", *(label.replace("_", " ") for label in ours)]]
    ratio += [
        [outcome.case.name, *(f"{error_ratio(outcome.rows, label):.3f}" for label in ours)]
        for outcome in outcomes
    ]
    sections += ["Errors (1 − pooled r²) as a part of the better peer's, below 1 is better:", markdown(ratio)]
    sections += ["Bins of minor allele frequency in which a peer is ahead or level:", _behind(outcomes)]
    sections.append("Bins, times and strata are in the folders of the cases.")
    report = "\n\n".join(sections) + "\n"
    (out / "report.md").write_text(report)
    stages = [stage for outcome in outcomes for stage in outcome.stages]
    write_configuration(out, run, stages, {"models": outcomes[0].models})
    print(report)


def _behind(outcomes: Sequence[Outcome]) -> str:
    """The bins in which one of ours is not ahead of both peers, by case and measure."""
    lines = []
    for outcome in outcomes:
        for ours in our_labels(outcome.rows):
            for measure, title in MEASURES.items():
                value = {(row.imputer, row.bin): getattr(row, measure) for row in outcome.rows}
                for one in bins(outcome.rows):
                    peer = better_peer({label: value[label, one] for label in labels(outcome.rows)})
                    if peer is not None and not value[ours, one] > peer[1]:
                        lines.append(
                            f"- {outcome.case.name}, {title}, {one}: {ours.replace('_', ' ')} "
                            f"{number(value[ours, one])}, {peer[0]} {number(peer[1])}"
                        )
    return "\n".join(lines) or "none."
