"""The loop on a module of its own: steps, patience, several tasks of a step, states."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors
from spinimpute.training.loop import Report, TrainingLoop, Validation
from spinimpute.training.state import differences

FORMAT = "a-state-1"


class Line(TrainingLoop[nn.Linear]):
    """Fits a line to noisy points; a parameter has no gradient in odd steps."""

    def __init__(self, tasks: int = 1, patience: int = 0, validations: tuple[float, ...] = ()) -> None:
        torch.manual_seed(3)
        model = nn.Linear(1, 1)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 8)
        super().__init__(
            model, optimiser, schedule, steps=8, clip=1.0, tasks=tasks, patience=patience,
            run={"slope": 2.0, "tasks": tasks}, state_format=FORMAT,
        )  # fmt: skip
        self.validations = list(validations)

    def loss(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(100 * self.step + number)
        x = torch.randn(16, 1, generator=generator)
        bias = self.model.bias.detach() if self.step % 2 else self.model.bias
        return (x @ self.model.weight.T + bias - 2 * x - 1).square().mean()

    def validate(self) -> Validation | None:
        assert not torch.is_grad_enabled()
        return Validation(self.validations.pop(0)) if self.validations else None


def weights(loop: Line) -> list[float]:
    return [float(value) for parameter in loop.model.parameters() for value in parameter.detach().flatten()]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_resumed_run_is_the_same_run(tasks: int, tmp_path: Path) -> None:
    whole, half, resumed = Line(tasks), Line(tasks), Line(tasks)
    whole.take_steps(3, lambda found: None)
    half.take_steps(3, lambda found: None, until=5)
    half.save_state(tmp_path / "state")
    resumed.restore_state(tmp_path / "state")
    assert resumed.step == 5
    resumed.take_steps(3, lambda found: None)
    assert weights(resumed) == weights(whole)
    assert resumed.schedule.get_last_lr() == whole.schedule.get_last_lr()


def test_reports() -> None:
    loop, found = Line(), list[Report]()
    loop.take_steps(3, found.append)
    assert [report.step for report in found] == [3, 6, 8]
    alone = Line()
    losses = [alone.train_step() for _ in range(8)]
    means = [sum(losses[:3]) / 3, sum(losses[3:6]) / 3, sum(losses[6:]) / 2]
    assert [report.loss for report in found] == means
    assert not any(report.improved or report.validation for report in found)
    none = Line()
    none.take_steps(3, found.append, until=0)
    assert (none.step, len(found)) == (0, 3)


def test_the_loss_of_several_tasks_is_their_mean() -> None:
    loop = Line(tasks=4)
    alone = sum(float(loop.loss(number).detach()) for number in range(4)) / 4
    assert loop.train_step() == pytest.approx(alone, rel=1e-6)


def test_patience(tmp_path: Path) -> None:
    loop, found = Line(patience=2, validations=(3.0, 2.0, 2.0, 2.5, 1.0)), list[Report]()
    loop.take_steps(1, found.append)
    assert [report.improved for report in found] == [True, True, False, False]
    assert loop.exhausted
    assert loop.best == 2.0
    loop.save_state(tmp_path / "state")
    again = Line(patience=2)
    again.restore_state(tmp_path / "state")
    again.take_steps(1, found.append)
    assert len(found) == 4


def test_a_loss_that_is_no_number_ends_training() -> None:
    with pytest.raises(InputError, match=r"validation loss is nan after step 2\. Lower the learning rate"):
        Line(validations=(float("nan"),)).take_steps(2, lambda found: None)
    loop = Line()
    loop.train_step()
    before = weights(loop)
    loop.loss = lambda number: loop.model.weight.sum() * float("inf")  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"the loss of step 2 is -?inf\. Lower the learning rate"):
        loop.train_step()
    assert weights(loop) == before


def test_states_of_another_run_or_network(tmp_path: Path) -> None:
    state = tmp_path / "state"
    Line(tasks=2).save_state(state)
    with pytest.raises(InputError, match=r"another run \(tasks is 2 in the state, 3 now\)\. .*force=True"):
        Line(tasks=3).restore_state(state)
    arrays, metadata = load_tensors(state, FORMAT, "training state")
    save_tensors(state, {name: array.repeat(2, -1) for name, array in arrays.items()}, metadata, FORMAT)
    with pytest.raises(InputError, match="holds the weights of another network"):
        Line(tasks=2).restore_state(state)


def test_states_that_lack_an_entry(tmp_path: Path) -> None:
    loop, state = Line(), tmp_path / "state"
    loop.train_step()
    loop.save_state(state)
    arrays, metadata = load_tensors(state, FORMAT, "training state")
    content = dict(metadata["plain"]["__dict__"])
    for missing in ("run", "step", "best", "stale", "launch", "plain"):
        without = {name: value for name, value in metadata.items() if name != missing}
        save_tensors(state, arrays, without, FORMAT)
        with pytest.raises(InputError, match=f"state lacks '{missing}'.*force=True"):
            Line().restore_state(state)
    for missing in content:
        rest = [[name, value] for name, value in content.items() if name != missing]
        save_tensors(state, arrays, metadata | {"plain": {"__dict__": rest}}, FORMAT)
        with pytest.raises(InputError, match="force=True"):
            Line().restore_state(state)
    fewer = {name: array for name, array in arrays.items() if name != "/weights/bias"}
    save_tensors(state, fewer, metadata, FORMAT)
    with pytest.raises(InputError, match=r"lacks '/weights/bias'.*force=True"):
        Line().restore_state(state)


def test_differences_name_what_differs() -> None:
    there = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": "x" * 100}
    assert differences(there, there) == []
    here = {"a": 1, "b": {"c": [1, 3], "d": "new"}, "e": "y"}
    assert differences(there, here) == [
        "b.c is [1, 2] in the state, [1, 3] now",
        'b.d is absent in the state, "new" now',
        'e is something else in the state, "y" now',
    ]
