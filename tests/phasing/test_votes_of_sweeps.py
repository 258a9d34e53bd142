"""Which chain of a sequenced sample has the ALT of a heterozygote."""

from collections.abc import Iterator

import numpy as np
import pytest

from spinimpute.phasing.chains import SCALES, Chains, Evidence
from spinimpute.phasing.copying_windows import CopyingWindows


class ScriptedChains(Chains):
    """Sweeps that find what a script says: P(ALT) of both chains at all sites, and whether they exchange."""

    def __init__(self, script: list[tuple[float, float, bool]], n_sites: int) -> None:
        flat = np.zeros((n_sites, 1, 3), np.uint8)
        of_panel = np.arange(n_sites) / 100, np.full(n_sites, 0.5), np.ones(n_sites, np.float32)
        windows = CopyingWindows(np.arange(n_sites) / 100, [n_sites], 1.0)
        super().__init__(Evidence(*of_panel, flat, np.array([False]), [], 0), 4, windows, None)
        self.script = iter(script)

    def _go(
        self, jump_S: np.ndarray, starting: bool, exchanged_HS: np.ndarray, counted: bool
    ) -> Iterator[None]:
        if not starting:
            *p_2, exchange = next(self.script)
            self.probability_SL[:] = p_2
            exchanged_HS[0, 1] = exchange
        yield None


@pytest.mark.parametrize("last", [0.6, 0.4])
def test_all_sweeps_say_which_chain_has_an_allele(last: float) -> None:
    """The last one alone says too little; what chains exchange changes what the sweeps before have said."""
    sweeps = [(0.8, 0.2, False)] * (len(SCALES) - 2)
    chains = ScriptedChains([*sweeps, (0.8, 0.2, True), (last, 1 - last, False)], 4)
    chains.run()
    assert chains.second_carries()[:, 0].tolist() == [False, False, True, True]
