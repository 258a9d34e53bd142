"""`maps`: does the genetic map that `panel build` estimates from a panel improve accuracy?

Panels are built with the case's map and with a constant rate. With `--keep-map` this map is kept, without
`--keep-map` the estimated map replaces it where the estimate is better.
"""

from __future__ import annotations

import argparse

import spinimpute
from benchmarks.imputation.options import session
from benchmarks.imputation.programs import Ours
from benchmarks.imputation.results import models_used, write_configuration
from benchmarks.imputation.scoring import score
from benchmarks.imputation.study import impute_case
from benchmarks.imputation.tables import MEASURES, accuracy_table
from spinimpute.panels.build import MAP_ESTIMATED

KEPT = ("--keep-map",)
IMPUTERS = (
    Ours("given", panel_name="given.spin", building=KEPT),
    Ours("given_or_estimated", panel_name="estimated.spin"),
    Ours("constant_rate", panel_name="constant.spin", with_map=False, building=KEPT),
    Ours("constant_rate_or_estimated", panel_name="alone.spin", with_map=False),
)


def maps(arguments: argparse.Namespace) -> None:
    """Analyse all cases; the results go to one folder."""
    with session(arguments) as run:
        out = run.result_folder(run.name or "maps")
        sections, stages, models = [f"# {out.name}"], [], {}
        for name in arguments.cases:
            case = run.case(name)
            work = run.work_folder(case.name)
            imputed = impute_case(case, IMPUTERS, work, run.threads, run.repeat)
            rows = score(case, run.scorer, imputed.files, out / f"{case.name}.tsv")
            stages += imputed.stages
            models |= models_used(imputed.files)
            sections.append(f"## {case.name}")
            for imputer in IMPUTERS:
                with spinimpute.Panel.open(work / imputer.panel_name) as panel:
                    estimate = panel.provenance.get(MAP_ESTIMATED)
                said = f"estimated, left out gain {estimate['gain']:.1%}" if estimate else "as it was"
                seconds = next(s.seconds for s in imputed.stages if imputer.panel_name in " ".join(s.command))
                sections.append(f"- {imputer.label}: {said}; panel built in {seconds:.1f} s")
            sections += [accuracy_table(rows, measure) for measure in MEASURES]
            print("\n\n".join(sections[-3:]))
        (out / "report.md").write_text("\n\n".join(sections) + "\n")
        write_configuration(out, run, stages, {"models": models})
