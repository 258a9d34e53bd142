"""The neural processes: `model(x_context, y_context, x_target)` returns a distribution for each target.

`settings` lists the models.

A prediction consists of two steps. `summarize` encodes the context as a `Summary`, and `decode` predicts
targets from the summary. In models with inducing points (`ModelSettings.has_inducing_points`), the size of
the summary does not depend on the number of context points.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Normal, kl_divergence
from torch.nn import functional

from spinimpute.neural_processes.blocks import (
    Decoder,
    InducedPoints,
    MABReader,
    PaperBlock,
    Reader,
    SelfAttendedPoints,
    append_zero_outputs,
    make_block,
    mixture,
    pooled,
)
from spinimpute.neural_processes.gaussian_tasks import TaskBatch
from spinimpute.neural_processes.settings import ModelSettings
from spinimpute.nn.attention import MAB, STEEPNESS, MABOptions
from spinimpute.nn.checks import require_count, require_shape
from spinimpute.nn.points import (
    ContextPoints,
    PointEncoder,
    PointReader,
    TargetReading,
    mlp,
    spread_positions,
)

LATENT_FLOOR = 0.1  # lower bound of the standard deviation of the latent variable
QUERY_LAYERS, POOLED_LAYERS = 2, 2  # numbers of layers of the MLPs
VALUE_LAYERS, DECODER_LAYERS = 4, 3  # of improved models
PUBLISHED_VALUE_LAYERS = 2
PUBLISHED_DECODER_LAYERS = {"paper": 4, "released": 3}  # "FC, MLP (2 hidden layer)" in Table 16


class Summary(NamedTuple):
    """Summary of a context: everything that predictions need."""

    reading_points: tuple[
        ContextPoints, ...
    ]  # for each reading; LBANP+: one entry, the latents of all blocks
    pooled_BE: Tensor  # mean over points, transformed by an MLP (LBANP+: the mean itself)


class NeuralProcess(nn.Module, ABC):
    """Base class of all models, with their interface."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, samples: int | None = None
    ) -> Distribution:
        """Predict the output y of each target independently.

        Parameters
        ----------
        x_context : Tensor (B, N, X)
            Inputs of the context.
        y_context : Tensor (B, N, Y)
            Outputs of the context.
        x_target : Tensor (B, Q, X)
            Inputs of the targets.
        samples : int, optional
            Number of samples S for latent and bootstrapping models. Default: the number used in training.

        Returns
        -------
        Distribution
            Normal, or Bernoulli for binary outputs, of batch shape (B, Q, Y). Latent and bootstrapping models
            return a mixture of S of these distributions.

        Raises
        ------
        ValueError
            The shapes do not fit together, or `samples` is not a positive whole number.
        """
        self._check(x_context, y_context, x_target, samples)
        return self.decode(self.summarize(x_context, y_context), x_target, samples)

    @abstractmethod
    def summarize(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        """Summarize a context, which may be empty."""

    @abstractmethod
    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Distribution:
        """Predict targets from a summary."""

    def loss(self, task: TaskBatch) -> Tensor:
        """Return the training loss; by default the mean negative log-likelihood of targets.

            paper     section 3.4: the log-likelihood of targets. With a latent variable, appendix A.6: the
                      evidence lower bound (there, the divergence has the wrong sign)
            released  the log-likelihood of context points and targets. With a latent variable, the
                      importance-weighted bound with S samples

        Improved models take the targets of the paper and the bound of the released code. The loss is always
        divided by the number of points that it counts.
        """
        predicted = self(task.x_BNX, task.y_BNY, task.x_BQX)
        return -predicted.log_prob(task.y_BQY).sum(-1).mean()

    def scored(self, task: TaskBatch) -> TaskBatch:
        """Return the task with the points that the loss counts as its targets."""
        if self.settings.objective == "paper":
            return task
        x_BLX, y_BLY = torch.cat([task.x_BNX, task.x_BQX], 1), torch.cat([task.y_BNY, task.y_BQY], 1)
        return task._replace(x_BQX=x_BLX, y_BQY=y_BLY)

    def log_likelihood(self, task: TaskBatch, samples: int = 50) -> Tensor:
        """Return the log-likelihood (B, Q) of each target; likelihoods are averaged over samples."""
        return self(task.x_BNX, task.y_BNY, task.x_BQX, samples).log_prob(task.y_BQY).sum(-1)

    def _check(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, samples: int | None = None
    ) -> None:
        if samples is not None:
            require_count("samples", samples)
        tasks, points = x_context.shape[:2]
        require_shape("x_context", x_context, None, None, self.settings.x_size)
        require_shape("y_context", y_context, tasks, points, self.settings.y_size)
        require_shape("x_target", x_target, tasks, None, self.settings.x_size)


class _AttentiveProcess(NeuralProcess):
    """Base class of all models but LBANP+: an encoder and a reader for each reading of the context.

    `left_encoders` and `left_readers` serve the further readings, which read the residuals that are left.
    CIPNP+ and IPNP+ use the encoder and reader of `nn.points`, and pool what this encoder returns; the other
    models have a second encoder for pooling.
    """

    def __init__(self, settings: ModelSettings, pooled_width: int) -> None:
        super().__init__(settings)
        s, n_more = settings, settings.readings - 1 if settings.reads_repeatedly else 0
        has_positions = s.has_inducing_points and not s.is_published
        self.points = nn.Parameter(spread_positions(s.x_size, s.inducing_points)) if has_positions else None
        self.value_encoder = self._encoder()
        self.pooled_encoder = None if has_positions else self._encoder(is_pooled=True)
        self.after_pooling = self._mlp(s.width, pooled_width, POOLED_LAYERS)
        self.position = self._mlp(s.x_size, s.width, QUERY_LAYERS)  # embeds positions of any points
        self.reader = self._reader()
        self.left_encoders = nn.ModuleList(self._encoder() for _ in range(n_more))
        self.left_readers = nn.ModuleList(self._reader() for _ in range(n_more))
        inputs = s.x_size + self.reader.width + s.width
        extra = n_more * self.reader.width
        if s.kind.startswith("BANP"):
            extra = inputs - s.x_size * s.is_published
        layers = PUBLISHED_DECODER_LAYERS[s.architecture] if s.is_published else DECODER_LAYERS
        self.decoder = Decoder(
            inputs,
            s.width,
            s.y_size,
            layers,
            s.floor,
            extra,
            he_start=not s.is_published,
            is_binary=s.is_binary,
        )

    def _mlp(self, input_width: int, output_width: int, layers: int) -> nn.Sequential:
        s = self.settings
        return mlp(input_width, s.width, output_width, layers, he_start=not s.is_published)

    def _encoder(self, *, is_pooled: bool = False) -> SelfAttendedPoints | InducedPoints | PointEncoder:
        s, inputs = self.settings, self.settings.x_size + self.settings.y_size
        if s.is_published:
            embed = self._mlp(inputs, s.width, PUBLISHED_VALUE_LAYERS)
            if is_pooled and s.architecture == "released":
                embed.append(nn.ReLU())
            block = make_block(s.architecture, s.width, s.heads)
            if s.has_inducing_points:
                return InducedPoints(embed, block, s.inducing_points, s.width)
            return SelfAttendedPoints(embed, block)
        if self.points is None:
            return SelfAttendedPoints(self._mlp(inputs, s.width, VALUE_LAYERS), PaperBlock(s.width, s.heads))
        options = MABOptions(heads=s.heads, score="distance", steepness=STEEPNESS)
        return PointEncoder(s.x_size, s.y_size, s.width, VALUE_LAYERS, options)

    def _reader(self) -> MABReader | Reader | PointReader:
        s = self.settings
        if s.is_published:
            return MABReader(s.width, make_block(s.architecture, s.width, s.heads))
        if self.points is None:
            return Reader(s.width, MABOptions(heads=s.heads, steepness=STEEPNESS))
        options = MABOptions(heads=s.heads, score="distance", steepness=STEEPNESS)
        return PointReader(s.x_size, s.y_size, s.width, options)

    def summarize(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        summary = self.first_reading(x_BNX, y_BNY)
        for encoder in self.left_encoders:
            with torch.no_grad():  # no gradient: earlier readings must not learn to produce useful residuals
                residual_BNY = y_BNY - self.mean(summary, x_BNX).to(y_BNY.dtype)
            points = self._encode_points(encoder, x_BNX, residual_BNY)
            summary = summary._replace(reading_points=(*summary.reading_points, points))
        return summary

    def first_reading(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        """Return the summary of only the first reading; `decode` accepts it."""
        points = self._encode_points(self.value_encoder, x_BNX, y_BNY)
        pooling_input_BLE = points.value_BLE
        if self.pooled_encoder is not None:
            pooling_input_BLE = self.pooled_encoder(torch.cat([x_BNX, y_BNY], -1))
        return Summary((points,), self.after_pooling(pooled(pooling_input_BLE)))

    def _encode_points(self, encoder: nn.Module, x_BNX: Tensor, y_BNY: Tensor) -> ContextPoints:
        if isinstance(encoder, PointEncoder):
            return encoder([(x_BNX, y_BNY)], self.points, self.position)
        value_BLE = encoder(torch.cat([x_BNX, y_BNY], -1))
        key_BLE = value_BLE if isinstance(encoder, InducedPoints) else self.position(x_BNX)
        return ContextPoints(key_BLE, value_BLE, value_BLE[:, None, :, :0])

    @abstractmethod
    def mean(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """Return the mean prediction (B, Q, Y) at targets."""

    @staticmethod
    def readings(summary: Summary) -> list[Summary]:
        """Return the summaries after one reading, two readings, and so on; all of them enter the loss."""
        points = summary.reading_points
        return [summary._replace(reading_points=points[: n + 1]) for n in range(len(points))]

    def read(self, summary: Summary, x_BQX: Tensor) -> list[TargetReading]:
        """Return what these targets read in each reading."""
        key_BQE, all_points = self.position(x_BQX), summary.reading_points
        readers = [self.reader, *self.left_readers][: len(all_points)]
        return [reader(key_BQE, x_BQX, points) for reader, points in zip(readers, all_points, strict=True)]

    def _decoded(self, input_BQI: Tensor, results: list[TargetReading]) -> Normal | Bernoulli:
        """Return the sum of the carried outputs, corrected by the decoder.

        The decoder reads 0 in place of readings that have not been done.
        """
        carried_BQY = torch.stack([reading.carried_BQY for reading in results]).sum(0)
        if len(results) == 1:
            return self.decoder(input_BQI, None, carried_BQY)
        extra_BQI = torch.cat([reading.r_BQI for reading in results[1:]], -1)
        missing_width = (1 + len(self.left_readers) - len(results)) * self.reader.width
        return self.decoder(input_BQI, functional.pad(extra_BQI, (0, missing_width)), carried_BQY)


class ConditionalProcess(_AttentiveProcess):
    """CANP, CIPNP, CANP+, CIPNP+, RCANP and RCIPNP: models without a latent variable."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, settings.width)

    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Normal | Bernoulli:
        """Predict targets from a summary."""
        results = self.read(summary, x_BQX)
        return self._decoded(self.decoder_input(summary, x_BQX, results), results)

    def mean(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """Return the mean prediction (B, Q, Y) at targets."""
        return self.decode(summary, x_BQX).mean

    @staticmethod
    def decoder_input(summary: Summary, x_BQX: Tensor, results: list[TargetReading]) -> Tensor:
        """Return the decoder's input (B, Q, I): position, result of the first reading, pooled context."""
        pooled_BQE = summary.pooled_BE[:, None].expand(-1, x_BQX.shape[1], -1)
        return torch.cat([x_BQX, results[0].r_BQI, pooled_BQE], -1)

    def loss(self, task: TaskBatch) -> Tensor:
        """Return the negative log-likelihood, averaged over the summaries of `readings`."""
        task = self.scored(task)
        summary = self.summarize(task.x_BNX, task.y_BNY)
        log_p = [
            self.decode(reading, task.x_BQX).log_prob(task.y_BQY).sum(-1).mean()
            for reading in self.readings(summary)
        ]
        return -torch.stack(log_p).mean()


class LatentProcess(_AttentiveProcess):
    """ANP, IPNP, ANP+, IPNP+ and RIPNP: models with a latent variable z, which depends on the context."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings, 2 * settings.width)

    def latent(self, summary: Summary) -> Normal:
        """Return p(z | context), batch shape (B, E)."""
        mean, raw = summary.pooled_BE.float().chunk(2, -1)
        return Normal(mean, LATENT_FLOOR + (1 - LATENT_FLOOR) * torch.sigmoid(raw))

    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Distribution:
        """Predict targets by a mixture over samples of z."""
        z_SBE = self.latent(summary).rsample((samples or self.settings.samples,))
        return mixture(self._decode_given_latent(summary, x_BQX, z_SBE))

    def _decode_given_latent(self, summary: Summary, x_BQX: Tensor, z_SBE: Tensor) -> Normal | Bernoulli:
        """Return p(y | z, x, context), batch shape (S, B, Q, Y)."""
        results = self.read(summary, x_BQX)
        input_BQI = torch.cat([x_BQX, results[0].r_BQI], -1)
        shape = (len(z_SBE), *input_BQI.shape[:2], -1)
        z_SBQE = z_SBE[:, :, None].expand(*shape[:-1], z_SBE.shape[-1])
        input_SBQI = torch.cat([input_BQI.expand(*shape[:-1], input_BQI.shape[-1]), z_SBQE], -1)
        return self._decoded(input_SBQI, results)

    def mean(self, summary: Summary, x_BQX: Tensor) -> Tensor:
        """Return the mean prediction (B, Q, Y) at targets if z is its mean."""
        return self._decode_given_latent(summary, x_BQX, self.latent(summary).mean[None]).mean[0]

    def posterior(self, task: TaskBatch) -> Normal:
        """Return q(z | context, targets)."""
        x_BLX, y_BLY = torch.cat([task.x_BNX, task.x_BQX], 1), torch.cat([task.y_BNY, task.y_BQY], 1)
        return self.latent(self.first_reading(x_BLX, y_BLY))

    def bounds(
        self, summary: Summary, posterior: Normal, task: TaskBatch, samples: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return two lower bounds (B,) of log p(y | x, context), divided by the number of targets.

        The first is the evidence lower bound, E_q[log p(y | z)] - KL(q(z | context, targets) || p(z |
        context)). The second is the tighter importance-weighted bound: the logarithm of the mean over samples
        of p(y | z) p(z) / q(z) (Burda et al., Importance weighted autoencoders, ICLR 2016).
        """
        prior = self.latent(summary)
        z_SBE = posterior.rsample((samples or self.settings.samples,))
        log_p_SB = self._decode_given_latent(summary, task.x_BQX, z_SBE).log_prob(task.y_BQY).sum((-2, -1))
        n_targets = task.x_BQX.shape[1]
        elbo = log_p_SB.mean(0) - kl_divergence(posterior, prior).sum(-1)
        weight_SB = log_p_SB + (prior.log_prob(z_SBE) - posterior.log_prob(z_SBE)).sum(-1)
        importance = torch.logsumexp(weight_SB, 0) - math.log(len(z_SBE))
        return elbo / n_targets, importance / n_targets

    def loss(self, task: TaskBatch) -> Tensor:
        """Return the negative bound, averaged over the summaries of `readings`."""
        summary, posterior = self.summarize(task.x_BNX, task.y_BNY), self.posterior(task)
        is_elbo = self.settings.is_published and self.settings.objective == "paper"
        task = self.scored(task)
        bounds = [self.bounds(reading, posterior, task) for reading in self.readings(summary)]
        return -torch.stack([elbo if is_elbo else importance for elbo, importance in bounds]).mean()


class BootstrappedProcess(ConditionalProcess):
    """BANP and BANP+: a CANP or CANP+ that reads, besides the context, bootstrapped contexts.

    To draw one, predict the context's outputs from context points sampled with replacement, and add residuals
    sampled with replacement to these predictions.
    """

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, samples: int | None = None
    ) -> Distribution:
        """Predict the output y of each target by a mixture over bootstrapped contexts."""
        self._check(x_context, y_context, x_target, samples)
        return mixture(self._bootstrapped(x_context, y_context, x_target, samples or self.settings.samples))

    def _bootstrapped(self, x_BNX: Tensor, y_BNY: Tensor, x_BQX: Tensor, samples: int) -> Normal | Bernoulli:
        """Return the prediction with each of S bootstrapped contexts, batch shape (S, B, Q, Y)."""
        input_BQI = self._decoder_input_of(x_BNX, y_BNY, x_BQX)
        n_tasks, n_context = x_BNX.shape[:2]
        x_SBNX = x_BNX.expand(samples, *x_BNX.shape).flatten(0, 1)
        y_SBNY = y_BNY.expand(samples, *y_BNY.shape).flatten(0, 1)
        if n_context:
            with torch.no_grad():
                chosen = torch.randint(n_context, (len(x_SBNX), n_context, 1), device=x_BNX.device)
                resampled_x, resampled_y = (
                    torch.gather(t, 1, chosen.expand(-1, -1, t.shape[-1])) for t in (x_SBNX, y_SBNY)
                )
                predicted = self.decoder(self._decoder_input_of(resampled_x, resampled_y, x_SBNX))
                residual = (y_SBNY - predicted.mean) / predicted.stddev
                resampled = torch.randint(n_context, (len(x_SBNX), n_context, 1), device=x_BNX.device)
                residual = torch.gather(residual, 1, resampled.expand(-1, -1, residual.shape[-1]))
                y_SBNY = predicted.mean + predicted.stddev * (residual - residual.mean(1, keepdim=True))
        x_SBQX = x_BQX.expand(samples, *x_BQX.shape).flatten(0, 1)
        extra = self._decoder_input_of(x_SBNX, y_SBNY, x_SBQX).unflatten(0, (samples, n_tasks))
        if self.settings.is_published:  # without the position, as in the code of Lee et al.
            extra = extra[..., self.settings.x_size :]
        return self.decoder(input_BQI.expand(samples, *input_BQI.shape), extra)

    def _decoder_input_of(self, x_BNX: Tensor, y_BNY: Tensor, x_BQX: Tensor) -> Tensor:
        """Return the decoder's input for targets and a context that is not summarized yet."""
        summary = self.summarize(x_BNX, y_BNY)
        return self.decoder_input(summary, x_BQX, self.read(summary, x_BQX))

    def loss(self, task: TaskBatch) -> Tensor:
        """Return the mean of the losses with and without bootstrapped contexts."""
        task = self.scored(task)
        plain = super().decode(self.summarize(task.x_BNX, task.y_BNY), task.x_BQX)
        bootstrapped = self(task.x_BNX, task.y_BNY, task.x_BQX)
        log_p = [predicted.log_prob(task.y_BQY).sum(-1).mean() for predicted in (plain, bootstrapped)]
        return -torch.stack(log_p).mean()


class BottleneckProcess(NeuralProcess):
    """LBANP+: in each block, latent vectors attend to the context and to each other; targets attend to them.

    Two differences from the published model make it learn much faster. One network embeds pairs (x, y) of
    context points, latents and targets; targets, and latents at the start, get y = 0. The projections of
    queries and keys are initialized with equal weights, as in the models with inducing points.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        s = settings
        plain, steep = (MABOptions(heads=s.heads, steepness=steepness) for steepness in (None, STEEPNESS))
        self.embed = mlp(s.x_size + s.y_size, s.width, s.width, VALUE_LAYERS)
        start_HX = spread_positions(s.x_size, s.inducing_points)
        self.points = nn.Parameter(append_zero_outputs(start_HX[None], s.y_size))
        self.read_context, self.read_latents, self.answer = (
            nn.ModuleList(MAB(s.width, s.width, options) for _ in range(s.blocks))
            for options in (steep, plain, steep)
        )
        self.decoder = Decoder(s.width, s.width, s.y_size, DECODER_LAYERS, s.floor, is_binary=s.is_binary)

    def summarize(self, x_BNX: Tensor, y_BNY: Tensor) -> Summary:
        """Summarize a context as the latents of all blocks, concatenated; they are both keys and values."""
        d_BNE = self.embed(torch.cat([x_BNX, y_BNY], -1))
        l_BHE = self.embed(self.points).expand(len(d_BNE), -1, -1)
        latents = []
        for read, mix in zip(self.read_context, self.read_latents, strict=True):
            l_BHE = read(l_BHE, d_BNE)
            l_BHE = mix(l_BHE, l_BHE)
            latents.append(l_BHE)
        value_BLE = torch.cat(latents, 1)
        nothing_B1L0 = value_BLE[:, None, :, :0]
        return Summary((ContextPoints(value_BLE, value_BLE, nothing_B1L0),), pooled(l_BHE))

    def decode(self, summary: Summary, x_BQX: Tensor, samples: int | None = None) -> Normal | Bernoulli:
        """Predict targets from a summary."""
        q_BQE = self.embed(append_zero_outputs(x_BQX, self.settings.y_size))
        blocks = summary.reading_points[0].value_BLE.split(self.settings.inducing_points, 1)
        for answer, l_BHE in zip(self.answer, blocks, strict=True):
            q_BQE = answer(q_BQE, l_BHE)
        return self.decoder(q_BQE)


_CLASSES: dict[str, Callable[[ModelSettings], NeuralProcess]] = {
    "CANP": ConditionalProcess,
    "ANP": LatentProcess,
    "BANP": BootstrappedProcess,
    "CIPNP": ConditionalProcess,
    "IPNP": LatentProcess,
    "LBANP": BottleneckProcess,
}


def make_model(settings: ModelSettings) -> NeuralProcess:
    """Make an untrained model; its weights are drawn from torch's generator."""
    return _CLASSES[settings.kind.strip("R+")](settings)
