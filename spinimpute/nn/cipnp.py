"""The conditional inducing point neural process over tokens (SPIN paper, section 3.3).

r_c = Encoder(context), r(x, r_c) = MAB(x, r_c), and a small network turns (x, r) into the parameters of a
distribution of every attribute.

Axes: see `spinimpute.nn`.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical

from spinimpute.nn.attention import MABOptions
from spinimpute.nn.predictors import TokenwiseReader
from spinimpute.nn.spin import SPIN, SPINConfig

DistributionName = Literal["categorical", "bernoulli"]


class CIPNPHead(nn.Module):
    """Decoder of (x, r(x, H)), and of the mean of H too where `pooled`, to `outputs` numbers an attribute.

    Parameters
    ----------
    width : int
        E.
    outputs : int
        Parameters of one attribute's distribution.
    layers : int
        Layers of the reader that computes r(x, H).
    options : MABOptions
        Shared by the attention blocks.
    hidden : int, optional
        Width of the decoder's two hidden layers; 4 * E by default.
    pooled : bool
        Also give the decoder the mean of all inducing points, the deterministic pooling path of the
        conditional neural processes.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        layers: int,
        options: MABOptions,
        *,
        hidden: int | None = None,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        hidden = 4 * width if hidden is None else hidden
        self.reader = TokenwiseReader(width, layers, options)
        self.pooled = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) if pooled else None
        )
        self.decoder = nn.Sequential(
            nn.Linear((3 if pooled else 2) * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Decode.

        Parameters
        ----------
        x_BQDE : Tensor
            Embedded queries.
        h_BHFE : Tensor
            Inducing points.

        Returns
        -------
        Tensor (B, Q, D, outputs)
            Parameters of the distribution of each attribute.
        """
        parts = [x_BQDE, self.reader(x_BQDE, h_BHFE)]
        if self.pooled is not None:
            pooled_BE = self.pooled(h_BHFE).mean((1, 2))
            parts.append(pooled_BE[:, None, None].expand_as(x_BQDE))
        return self.decoder(torch.cat(parts, -1))


class CIPNP(SPIN):
    """A `SPIN` whose predictor is a `CIPNPHead`: `predict` gives distribution parameters (logits).

    Parameters
    ----------
    config : SPINConfig
        Of the encoder and the reader; `config.predictor` must be "tokenwise".
    distribution : DistributionName
        "categorical": K logits an attribute; "bernoulli": one, of category 1.
    pooled : bool
        See `CIPNPHead`.

    Raises
    ------
    ValueError
        Another predictor, or a Bernoulli of more than two categories.
    """

    def __init__(
        self, config: SPINConfig, distribution: DistributionName = "categorical", *, pooled: bool = False
    ) -> None:
        if config.predictor != "tokenwise":
            raise ValueError(f"predictor must be 'tokenwise' for CIPNP, however: {config.predictor!r}")
        if distribution not in ("categorical", "bernoulli"):
            raise ValueError(f"distribution must be 'categorical' or 'bernoulli', however: {distribution!r}")
        if distribution == "bernoulli" and config.vocabulary != 2:
            raise ValueError(f"vocabulary must be 2 for a Bernoulli, however: {config.vocabulary}")
        outputs = config.vocabulary if distribution == "categorical" else 1
        head = CIPNPHead(config.width, outputs, config.predictor_layers, config.options, pooled=pooled)
        super().__init__(config, predictor=head)
        self.distribution_name = distribution

    def distribution(self, parameters: Tensor) -> Categorical | Bernoulli:
        """Distribution of every attribute.

        Parameters
        ----------
        parameters : Tensor (B, Q, D, K)
            What `predict` gave.

        Returns
        -------
        Categorical or Bernoulli
            Of batch shape (B, Q, D).
        """
        if self.distribution_name == "categorical":
            return Categorical(logits=parameters)
        return Bernoulli(logits=parameters.squeeze(-1))
