"""How much memory phasing needs. The sizes were measured (`python -m benchmarks.imputation budgets`)."""

from __future__ import annotations

from spinimpute.errors import InputError
from spinimpute.memory import COMPILED, remedy, resident_bytes, shown_size

SITE = 0.25  # bytes for each panel haplotype and typed site
HAPLOTYPE = 3_000  # bytes for each panel haplotype and thread


def check_phasing(budget: int | None, panel_haplotypes: int, typed_sites: int, threads: int) -> None:
    """Check that phasing fits into a budget of memory; it cannot be made to need less.

    Parameters
    ----------
    budget : int or None
        Bytes; None for no limit.
    panel_haplotypes : int
        Haplotypes of the panel.
    typed_sites : int
        Panel sites that are typed.
    threads : int
        Threads that phase.

    Raises
    ------
    InputError
        It does not fit.
    """
    if budget is None:
        return
    of_haplotype = SITE * typed_sites + HAPLOTYPE * threads
    needed = resident_bytes() + COMPILED + panel_haplotypes * of_haplotype
    if needed > budget:
        raise InputError(
            f"{shown_size(budget)} of memory are too little to phase {typed_sites} typed sites against a "
            f"panel of {panel_haplotypes} haplotypes with {threads} thread{'s' if threads > 1 else ''}: "
            f"{shown_size(needed)} are needed. {remedy(threads)}"
        )
