"""Neural processes with one interface: `model(x_context, y_context, x_target)` is a distribution.

CANP  conditional attentive neural process (Kim et al. 2018, without the latent path)
ANP   attentive neural process with a latent variable (Kim et al. 2018)
BANP  bootstrapping attentive neural process (Lee et al. 2020)
CIPNP conditional inducing point neural process (Rastogi et al. 2023, section 3.3 and Table 16)
IPNP  the same with a latent variable (Table 17)
LBANP latent bottlenecked attentive neural process (Feng et al. 2023), with the start of the inducing models
RCANP, RCIPNP, RIPNP  CANP, CIPNP and IPNP that read their context again (ours): what is left of it, the
outputs less what has been read so far predicts there (with the mean of z). BANP reads its context again, too,
with outputs that are drawn from its first predictions.

What a model keeps of a context is a `Summary`; targets that come later need the summary alone. For the
inducing models its size does not depend on the context's.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal, kl_divergence
from torch.nn import functional

from spinimpute.neural_processes.blocks import (
    Decoder,
    InducedPoints,
    Reader,
    SelfAttendedPoints,
    induced,
    mlp,
    pooled,
    spread_points,
    start_alike,
    without_output,
)
from spinimpute.neural_processes.gaussian_tasks import Task
from spinimpute.nn.attention import MAB, MABOptions
from spinimpute.nn.shapes import require_count, require_dimensions, require_size

KINDS = ("CANP", "ANP", "BANP", "CIPNP", "IPNP", "LBANP", "RCANP", "RCIPNP", "RIPNP")
LATENT_FLOOR = 0.1  # of the latent variable's standard deviation
VALUE_LAYERS, QUERY_LAYERS, POOLED_LAYERS, DECODER_LAYERS = 4, 2, 2, 3


@dataclass(frozen=True)
class ModelSettings:
    """Kind and sizes of a model.

    Attributes
    ----------
    kind : str
        One of KINDS.
    x_size, y_size : int
        X and Y.
    width : int
        E.
    heads : int
        G; must divide the width.
    inducing_points : int
        H, of all ...IPNP and LBANP (the paper takes half the smallest context).
    floor : float
        Of the predicted standard deviation; the code released with the paper has 0.1, which caps the
        log-likelihood at 1.38.
    samples : int
        S of the latent and bootstrapping models in training.
    blocks : int
        Of LBANP.
    readings : int
        Of the context, by the models that read again.

    Raises
    ------
    ValueError
        A value is out of its range.
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

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, however: {self.kind!r}")
        for name, value in list(vars(self).items()):
            if name not in ("kind", "floor"):
                require_count(name, value)
                object.__setattr__(self, name, int(value))  # not numpy's, which files cannot hold
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width, however: {self.width=}, {self.heads=}")
        if not 0 < self.floor < 1:
            raise ValueError(f"floor must be between 0 and 1, however: {self.floor}")

    @property
    def reads_again(self) -> bool:
        """Whether this kind reads its context again."""
        return self.kind.startswith("R")


class Summary(NamedTuple):
    """What is kept of a context.

    Attributes
    ----------
    key_BLE, value_BLE : Tensor
        What targets read; of LBANP both are the latents of all blocks.
    pooled_BE : Tensor
        Of the whole context.
    left : tuple of Tensor (B, L, E)
        The values of what was read again.
    """

    key_BLE: Tensor
    value_BLE: Tensor
    pooled_BE: Tensor
    left: tuple[Tensor, ...] = ()


class NeuralProcess(nn.Module, ABC):
    """The interface, and what the models share."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, samples: int | None = None
    ) -> Distribution:
        """Predict every target's y on its own.

        Parameters
        ----------
        x_context : Tensor (B, N, X)
            Inputs of the context.
        y_context : Tensor (B, N, Y)
            Outputs of the context.
        x_target : Tensor (B, Q, X)
            Inputs of the targets.
        samples : int, optional
            S where the model draws; by default as in training.

        Returns
        -------
        Distribution
            Batch shape (B, Q, Y): Normal, or a mixture of S Normals where the model draws.

        Raises
        ------
        ValueError
            Shapes do not fit, or samples are no count.
        """
        self._check(x_context, y_context, x_target, samples)
        return self.decode(self.summarize(x_context, y_context), x_target, samples)

    @abstractmethod
    def summarize(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        """What is kept of a context; N may be 0."""

    @abstractmethod
    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Distribution:
        """Predict at targets from a summary alone."""

    def loss(self, task: Task) -> Tensor:
        """To be minimised in training; for the conditional models the mean negative log-likelihood."""
        predicted = self(task.x_BNX, task.y_BNY, task.x_BQX)
        return -predicted.log_prob(task.y_BQY).sum(-1).mean()

    def log_likelihood(self, task: Task, samples: int = 50) -> Tensor:
        """Log-likelihood of every target on its own, given the context, (B, Q); log-mean-exp over samples."""
        return self(task.x_BNX, task.y_BNY, task.x_BQX, samples).log_prob(task.y_BQY).sum(-1)

    def _check(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, samples: int | None = None
    ) -> None:
        if samples is not None:
            require_count("samples", samples)
        for name, x, size, what in (
            ("x_context", x_context, self.settings.x_size, "input dimensions"),
            ("y_context", y_context, self.settings.y_size, "output dimensions"),
            ("x_target", x_target, self.settings.x_size, "input dimensions"),
        ):
            require_dimensions(name, x, 3)
            require_size(name, x, 2, size, what)
            require_size(name, x, 0, x_context.shape[0], "tasks (as x_context has)")
        require_size("y_context", y_context, 1, x_context.shape[1], "points (as x_context has)")


def _mixture(parts_SBQY: Normal) -> Distribution:
    """Of S equally likely Normals."""
    mean, sd = (x.movedim(0, -1) for x in (parts_SBQY.mean, parts_SBQY.stddev))
    checked = None if mean.numel() else False  # torch's checks fail without targets
    equally = Categorical(logits=torch.zeros_like(mean), validate_args=checked)
    return MixtureSameFamily(equally, Normal(mean, sd), validate_args=checked)


class _AttentiveProcess(NeuralProcess):
    """Two encoders and a reader, and one of each for every further reading of the context."""

    def __init__(self, settings: ModelSettings, pooled_width: int) -> None:
        super().__init__(settings)
        inducing = settings.kind.endswith("IPNP")
        s, options = settings, MABOptions(heads=settings.heads)

        def encoder() -> SelfAttendedPoints | InducedPoints:
            if inducing:
                return InducedPoints(s.x_size, s.y_size, s.width, VALUE_LAYERS, s.inducing_points, options)
            return SelfAttendedPoints(s.x_size + s.y_size, s.width, VALUE_LAYERS, options)

        self.value_encoder, self.pooled_encoder = encoder(), encoder()
        self.after_pooling = mlp(s.width, s.width, pooled_width, POOLED_LAYERS)
        # of targets and of context points alike; inducing points are their own keys
        self.position = None if inducing else mlp(s.x_size, s.width, s.width, QUERY_LAYERS)
        self.reader = Reader(s.width, s.heads)
        further = s.readings - 1 if s.reads_again else 0
        self.left_encoders = nn.ModuleList(encoder() for _ in range(further))
        self.left_readers = nn.ModuleList(Reader(s.width, s.heads) for _ in range(further))
        known = s.x_size + 2 * s.width
        extra = known if s.kind == "BANP" else further * s.width
        self.decoder = Decoder(known, s.width, s.y_size, DECODER_LAYERS, s.floor, extra)

    def summarize(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        summary = self.first_reading(x_BNX, y_BNY)
        for encoder in self.left_encoders:
            with torch.no_grad():  # what is read before learns to predict, not to leave something
                left_BNY = y_BNY - self.mean(summary, x_BNX).to(y_BNY.dtype)
            left_BLE = encoder(torch.cat([x_BNX, left_BNY], -1))
            summary = summary._replace(left=(*summary.left, left_BLE))
        return summary

    def first_reading(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        """A summary that `decode` takes, too, without what a second reading finds."""
        d_BNI = torch.cat([x_BNX, y_BNY], -1)
        value_BLE = self.value_encoder(d_BNI)
        key_BLE = value_BLE if self.position is None else self.position(x_BNX)
        return Summary(key_BLE, value_BLE, self.after_pooling(pooled(self.pooled_encoder(d_BNI))))

    @abstractmethod
    def mean(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """What is predicted, without uncertainty: (B, Q, Y)."""

    @staticmethod
    def readings(summary: Summary) -> list[Summary]:
        """The first reading, the first two, ... all of them; training teaches each to predict."""
        return [summary._replace(left=summary.left[:n]) for n in range(len(summary.left) + 1)]

    def read(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """r(x, context): (B, Q, E)."""
        return self.reader(self._ask(self.value_encoder, x_BQX), summary.key_BLE, summary.value_BLE)

    def read_left(self, summary: Summary, x_BQX: Tensor) -> Tensor | None:
        """r(x, what was left of the context), (B, Q, (readings - 1) * E): of all further readings.

        It is zero for readings that the summary lacks; None where it has none.
        """
        if not summary.left:
            return None
        found = []
        for number, left_BLE in enumerate(summary.left):
            ask_BQE = self._ask(self.left_encoders[number], x_BQX)
            key_BLE = left_BLE if self.position is None else summary.key_BLE
            found.append(self.left_readers[number](ask_BQE, key_BLE, left_BLE))
        missing = len(self.left_readers) - len(found)
        return functional.pad(torch.cat(found, -1), (0, missing * self.settings.width))

    def _ask(self, encoder: nn.Module, x_BQX: Tensor) -> Tensor:
        if self.position is not None:
            return self.position(x_BQX)
        assert isinstance(encoder, InducedPoints)
        return encoder.at(x_BQX)


class ConditionalProcess(_AttentiveProcess):
    """CANP, CIPNP, RCANP and RCIPNP: the pooled context goes to the decoder as it is."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, settings.width)

    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Normal:
        """Predict at targets from a summary alone."""
        return self.decoder(self.known(summary, x_BQX), self.read_left(summary, x_BQX))

    def mean(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """Mean prediction at targets, (B, Q, Y)."""
        return self.decode(summary, x_BQX).mean

    def known(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """The decoder's input, (B, Q, X + 2 E)."""
        pooled_BQE = summary.pooled_BE[:, None].expand(-1, x_BQX.shape[1], -1)
        return torch.cat([x_BQX, self.read(summary, x_BQX), pooled_BQE], -1)

    def loss(self, task: Task) -> Tensor:
        """The negative log-likelihood, the mean of all readings'."""
        summary = self.summarize(task.x_BNX, task.y_BNY)
        log_p = [
            self.decode(reading, task.x_BQX).log_prob(task.y_BQY).sum(-1).mean()
            for reading in self.readings(summary)
        ]
        return -torch.stack(log_p).mean()


class LatentProcess(_AttentiveProcess):
    """ANP, IPNP and RIPNP: the pooled context gives the distribution of a latent variable z."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, 2 * settings.width)

    def latent(self, summary: Summary) -> Normal:
        """p(z | context), batch shape (B, E)."""
        mean, raw = summary.pooled_BE.float().chunk(2, -1)
        return Normal(mean, LATENT_FLOOR + (1 - LATENT_FLOOR) * torch.sigmoid(raw))

    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Distribution:
        """Predict at targets: a mixture over samples of z."""
        z_SBE = self.latent(summary).rsample((samples or self.settings.samples,))
        return _mixture(self._given(summary, x_BQX, z_SBE))

    def _given(self, summary: Summary, x_BQX: Tensor, z_SBE: Tensor) -> Normal:
        """p(y | z, x, context), batch shape (S, B, Q, Y)."""
        known_BQI = torch.cat([x_BQX, self.read(summary, x_BQX)], -1)
        shape = (len(z_SBE), *known_BQI.shape[:2], -1)
        z_SBQE = z_SBE[:, :, None].expand(*shape[:-1], z_SBE.shape[-1])
        known_SBQI = torch.cat([known_BQI.expand(*shape[:-1], known_BQI.shape[-1]), z_SBQE], -1)
        return self.decoder(known_SBQI, self.read_left(summary, x_BQX))

    def mean(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """Mean prediction at targets with the mean of z, (B, Q, Y)."""
        return self._given(summary, x_BQX, self.latent(summary).mean[None]).mean[0]

    def bounds(self, task: Task, samples: int | None = None) -> tuple[Tensor, Tensor]:
        """Two lower bounds of log p(y | x, context) / Q.

        Parameters
        ----------
        task : Task
            Context and targets.
        samples : int, optional
            S; by default as in training.

        Returns
        -------
        Tensor (B,)
            The evidence lower bound, E_q[log p(y | z)] - KL(q(z | context, targets) || p(z | context)).
        Tensor (B,)
            The importance-weighted one, which is tighter: the logarithm of the mean over samples of
            p(y | z) p(z) / q(z).

        References
        ----------
        Burda et al., Importance weighted autoencoders, ICLR 2016.
        """
        summary = self.summarize(task.x_BNX, task.y_BNY)
        return self._bounds(summary, self._posterior(task), task, samples)

    def _posterior(self, task: Task) -> Normal:
        """q(z | context, targets)."""
        x_BLX, y_BLY = torch.cat([task.x_BNX, task.x_BQX], 1), torch.cat([task.y_BNY, task.y_BQY], 1)
        return self.latent(self.first_reading(x_BLX, y_BLY))

    def _bounds(
        self, summary: Summary, posterior: Normal, task: Task, samples: int | None = None
    ) -> tuple[Tensor, Tensor]:
        prior = self.latent(summary)
        z_SBE = posterior.rsample((samples or self.settings.samples,))
        log_p_SB = self._given(summary, task.x_BQX, z_SBE).log_prob(task.y_BQY).sum((-2, -1))
        n_targets = task.x_BQX.shape[1]
        elbo = log_p_SB.mean(0) - kl_divergence(posterior, prior).sum(-1)
        weight_SB = log_p_SB + (prior.log_prob(z_SBE) - posterior.log_prob(z_SBE)).sum(-1)
        importance = torch.logsumexp(weight_SB, 0) - math.log(len(z_SBE))
        return elbo / n_targets, importance / n_targets

    def loss(self, task: Task) -> Tensor:
        """The negative importance-weighted bound, the mean of all readings'."""
        summary, posterior = self.summarize(task.x_BNX, task.y_BNY), self._posterior(task)
        found = [self._bounds(reading, posterior, task)[1].mean() for reading in self.readings(summary)]
        return -torch.stack(found).mean()


class BootstrappedProcess(ConditionalProcess):
    """BANP: contexts with resampled residuals beside the context itself."""

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, samples: int | None = None
    ) -> Distribution:
        """Predict every target's y on its own: a mixture over bootstrapped contexts, see `NeuralProcess`."""
        self._check(x_context, y_context, x_target, samples)
        return _mixture(self._bootstrapped(x_context, y_context, x_target, samples or self.settings.samples))

    def _bootstrapped(self, x_BNX: Tensor, y_BNY: Tensor, x_BQX: Tensor, samples: int) -> Normal:
        """Batch shape (S, B, Q, Y)."""
        known_BQI = self.known(self.summarize(x_BNX, y_BNY), x_BQX)
        n_tasks, n_context = x_BNX.shape[:2]
        x_SBNX = x_BNX.expand(samples, *x_BNX.shape).flatten(0, 1)
        y_SBNY = y_BNY.expand(samples, *y_BNY.shape).flatten(0, 1)
        if n_context:
            with torch.no_grad():
                chosen = torch.randint(n_context, (len(x_SBNX), n_context, 1), device=x_BNX.device)
                kept_x, kept_y = (
                    torch.gather(t, 1, chosen.expand(-1, -1, t.shape[-1])) for t in (x_SBNX, y_SBNY)
                )
                said = self.decoder(self.known(self.summarize(kept_x, kept_y), x_SBNX))
                residual = (y_SBNY - said.mean) / said.stddev
                again = torch.randint(n_context, (len(x_SBNX), n_context, 1), device=x_BNX.device)
                residual = torch.gather(residual, 1, again.expand(-1, -1, residual.shape[-1]))
                y_SBNY = said.mean + said.stddev * (residual - residual.mean(1, keepdim=True))
        x_SBQX = x_BQX.expand(samples, *x_BQX.shape).flatten(0, 1)
        extra = self.known(self.summarize(x_SBNX, y_SBNY), x_SBQX).unflatten(0, (samples, n_tasks))
        return self.decoder(known_BQI.expand(samples, *known_BQI.shape), extra)

    def loss(self, task: Task) -> Tensor:
        """That of the plain prediction and that of the bootstrapped ones together."""
        plain = super().decode(self.summarize(task.x_BNX, task.y_BNY), task.x_BQX)
        drawn = self(task.x_BNX, task.y_BNY, task.x_BQX)
        log_p = [predicted.log_prob(task.y_BQY).sum(-1).mean() for predicted in (plain, drawn)]
        return -torch.stack(log_p).mean()


class BottleneckProcess(NeuralProcess):
    """LBANP: blocks in which latents read the context and each other; targets read every block's latents.

    Unlike the published one, latents and targets are points without an output that pass through the context's
    network, and what asks starts equal to what answers, as in the inducing models: it learns much faster.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        s, options = settings, MABOptions(heads=settings.heads)
        self.embed = mlp(s.x_size + s.y_size, s.width, s.width, VALUE_LAYERS)
        self.points = spread_points(s.x_size, s.y_size, s.inducing_points)
        read, mix, answer = ([MAB(s.width, s.width, options) for _ in range(s.blocks)] for _ in range(3))
        for block in (*read, *answer):
            start_alike(block.attention)
        self.read_context, self.read_latents, self.answer = map(nn.ModuleList, (read, mix, answer))
        self.decoder = Decoder(s.width, s.width, s.y_size, DECODER_LAYERS, s.floor)

    def summarize(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        """value_BLE: the latents of all blocks, one block behind the other."""
        d_BNE = self.embed(torch.cat([x_BNX, y_BNY], -1))
        l_BHE = self.embed(self.points).expand(len(d_BNE), -1, -1)
        kept = []
        for read, mix in zip(self.read_context, self.read_latents, strict=True):
            l_BHE = induced(read, l_BHE, d_BNE)
            l_BHE = mix(l_BHE, l_BHE)
            kept.append(l_BHE)
        value_BLE = torch.cat(kept, 1)
        return Summary(value_BLE, value_BLE, pooled(l_BHE))

    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Normal:
        """Predict at targets from a summary alone."""
        q_BQE = self.embed(without_output(x_BQX, self.settings.y_size))
        blocks = summary.value_BLE.split(self.settings.inducing_points, 1)
        for answer, l_BHE in zip(self.answer, blocks, strict=True):
            q_BQE = answer(q_BQE, l_BHE)
        return self.decoder(q_BQE)


_CLASSES: dict[str, Callable[[ModelSettings], NeuralProcess]] = {
    "CANP": ConditionalProcess,
    "CIPNP": ConditionalProcess,
    "ANP": LatentProcess,
    "IPNP": LatentProcess,
    "BANP": BootstrappedProcess,
    "LBANP": BottleneckProcess,
    "RCANP": ConditionalProcess,
    "RCIPNP": ConditionalProcess,
    "RIPNP": LatentProcess,
}


def make_model(settings: ModelSettings) -> NeuralProcess:
    """Make a model with fresh weights, drawn from torch's generator.

    Parameters
    ----------
    settings : ModelSettings
        Kind and sizes.

    Returns
    -------
    NeuralProcess
        The untrained model.
    """
    return _CLASSES[settings.kind](settings)
