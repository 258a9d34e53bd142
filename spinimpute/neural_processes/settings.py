"""Names, sizes and options of neural processes.

The published models follow the SPIN paper (Rastogi et al., ICLR 2023, Tables 16
and 17). The improved models, which were developed for this package, compare the positions of points and start
from other weights.

| published | improved | |
| --- | --- | --- |
| CANP | CANP+, RCANP | conditional attentive neural process (Kim et al. 2018, without the latent path) |
| ANP | ANP+ | attentive neural process with a latent variable (Kim et al. 2018) |
| BANP | BANP+ | bootstrapping attentive neural process (Lee et al. 2020) |
| CIPNP | CIPNP+, RCIPNP | conditional inducing point neural process (Rastogi et al. 2023) |
| IPNP | IPNP+, RIPNP | CIPNP with a latent variable |
| – | LBANP+ | latent bottlenecked attentive neural process (Feng et al. 2023) |

RCANP, RCIPNP and RIPNP are CANP+, CIPNP+ and IPNP+ that read their context repeatedly. The first reading
reads outputs. Further readings read residuals: outputs minus the mean prediction of the readings so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spinimpute.nn.checks import require_choice, require_count

PUBLISHED = ("CANP", "ANP", "BANP", "CIPNP", "IPNP")
IMPROVED = ("CANP+", "ANP+", "BANP+", "CIPNP+", "IPNP+", "LBANP+", "RCANP", "RCIPNP", "RIPNP")
KINDS = (*PUBLISHED, *IMPROVED)

Source = Literal["paper", "released"]
SOURCES = ("paper", "released")
Outputs = Literal["continuous", "binary"]
OUTPUTS = ("continuous", "binary")


@dataclass(frozen=True)
class ModelSettings:
    """Kind and sizes of a model.

    Attributes
    ----------
    kind : str
        One of KINDS.
    x_size, y_size : int
        Input and output dimensions.
    width, heads : int
        Width of embeddings, and number of attention heads; heads must divide the width.
    inducing_points : int
        Number of inducing points. The SPIN paper uses half the smallest number of context points.
    outputs : {"continuous", "binary"}
        Distribution of outputs: normal, or Bernoulli for outputs 0 and 1. BANP and BANP+ have continuous
        outputs only, because they add resampled residuals to outputs.
    floor : float
        Lower bound of predicted standard deviations; it has no effect on binary outputs. The
        default is that of the paper's released code; it limits log-likelihoods to 1.38.
    samples : int
        Number of samples S in training, for models with a latent variable or a bootstrap.
    blocks : int
        Number of blocks of LBANP+.
    readings : int
        Number of times that RCANP, RCIPNP and RIPNP read the context.
    architecture, objective : {"paper", "released"}
        Where the SPIN paper and its released code differ, whether a published model follows the paper or the
        code. `architecture`: attention blocks (`blocks.make_block`) and number of layers of the decoder.
        `objective`: see `NeuralProcess.loss`. Improved models have no such choice.
    """

    kind: str
    x_size: int = 1
    y_size: int = 1
    width: int = 128
    heads: int = 8
    inducing_points: int = 32
    floor: float = 0.1
    samples: int = 4
    blocks: int = 3
    readings: int = 3
    architecture: Source = "paper"
    objective: Source = "paper"
    outputs: Outputs = "continuous"

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, KINDS)
        for name, value in list(vars(self).items()):
            if name not in ("kind", "floor", "architecture", "objective", "outputs"):
                require_count(name, value)
                object.__setattr__(self, name, int(value))  # JSON cannot store NumPy's types
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width, got {self.heads} and {self.width}")
        if not 0 < self.floor < 1:
            raise ValueError(f"floor must be between 0 and 1, got {self.floor}")
        require_choice("outputs", self.outputs, OUTPUTS)
        if self.is_binary and self.kind.startswith("BANP"):
            raise ValueError(f"{self.kind} adds residuals to outputs, which must be continuous. Use CANP+")
        for name in ("architecture", "objective"):
            require_choice(name, getattr(self, name), SOURCES)
            if not self.is_published and getattr(self, name) != "paper":
                raise ValueError(f"{name} must be 'paper' for {self.kind}, which was not released")

    @property
    def is_published(self) -> bool:
        """Whether this is a model of the SPIN paper."""
        return self.kind in PUBLISHED

    @property
    def is_binary(self) -> bool:
        """Whether outputs are 0 or 1."""
        return self.outputs == "binary"

    @property
    def reads_repeatedly(self) -> bool:
        """Whether this kind reads its context repeatedly."""
        return self.kind.startswith("R")

    @property
    def has_inducing_points(self) -> bool:
        """Whether targets attend to inducing points instead of context points."""
        return "IPNP" in self.kind or self.kind == "LBANP+"
