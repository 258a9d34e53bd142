"""Of one sample, R2 is no estimate, and does not stand among the first numbers of a page."""

import numpy as np
import pytest

from spinimpute.quality.details import RunDetails
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.summary import ImputationSummary
from spinimpute.reports.imputation_report import imputation_report


def report(imputed: ImputedSites, samples: int) -> str:
    details = RunDetails(SampleQuality([f"s{x}" for x in range(samples)]), imputed)
    return imputation_report(ImputationSummary(samples=samples), details, "t.vcf", "p.spin").html


@pytest.mark.parametrize(("samples", "headlined"), [(1, False), (2, True)])
def test_r2_is_headlined_of_several_samples(samples: int, headlined: bool) -> None:
    imputed = ImputedSites()
    r2 = np.linspace(0, 1, 8)
    imputed.add("20", np.arange(1, 9) * 1_000, np.full(8, 0.2), r2, np.arange(8) == 0)
    page = report(imputed, samples)
    first = page[page.index('<dl class="cards">') : page.index("</dl>")]
    assert ("R2" in first) == headlined


def test_the_histogram_is_of_imputed_sites() -> None:
    imputed = ImputedSites()
    typed = np.arange(6) < 2
    imputed.add("20", np.arange(1, 7) * 1_000, np.full(6, 0.2), np.array([1, 1, 0.1, 0.9, 0.9, 0.9]), typed)
    page = report(imputed, 3)
    drawn = page[page.index("R2 of imputed sites") : page.index("What was matched")]
    assert drawn.count('class="bar s0"') == 2
