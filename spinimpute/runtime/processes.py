"""Training with several processes, each on its own GPU, that `torchrun` starts.

Each process computes its share of the tasks; `Processes` exchanges the results. A run that was not started by
torchrun is a group of one process, in which all exchanges do nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed
from torch import Tensor

from spinimpute.runtime.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """A group of processes that train one model together.

    Attributes
    ----------
    rank : int
        Index of this process, from 0.
    count : int
        Number of processes.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the outputs."""
        return self.rank == 0

    def own_slice(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's slice of the items. The lengths of slices differ by at most one."""
        return items[len(items) * self.rank // self.count : len(items) * (self.rank + 1) // self.count]

    def sum_all(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor, in place, by its sum over the processes."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        torch.distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def maximize_all(self, tensor: Tensor) -> None:
        """Replace every element of a tensor, in place, by its maximum over the processes."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)

    def gather(self, items: Sequence[T]) -> list[T]:
        """Return the concatenated lists of all processes, in the order of their ranks."""
        if self.count == 1:
            return list(items)
        parts: list[Sequence[T]] = [[]] * self.count
        torch.distributed.all_gather_object(parts, list(items))
        return [item for part in parts for item in part]


SINGLE_PROCESS = Processes()


@contextmanager
def all_processes(device: torch.device) -> Iterator[Processes]:
    """Connect to the other processes of this torchrun, and yield the group.

    Raises InputError if they cannot be reached.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE_PROCESS
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store, rank, count = next(torch.distributed.rendezvous("env://"))
        # torchrun keeps its store when it restarts the processes, with the addresses of the ended ones;
        # a prefix for each restart hides these
        store = torch.distributed.PrefixStore(f"start-{_restarts()}", store)
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=count
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            "arguments",
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but the other processes cannot be joined ({error}). "
            "Start them with torchrun",
        ) from error
    try:
        yield Processes(rank, count)
    finally:
        torch.distributed.destroy_process_group()


def local_device(name: str) -> torch.device:
    """Return the torch device of this process. For "cuda", it is the GPU that torchrun assigned to it."""
    return (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if name == "cuda" else torch.device(name)
    )


def is_first() -> bool:
    """Whether this process writes the outputs. It can be called before `all_processes`."""
    return int(os.environ.get("RANK", "0")) == 0


def restarted() -> bool:
    """Whether torchrun restarted this process after a failure."""
    return _restarts() > 0


def launch_id() -> str:
    """Return an identifier of the torchrun that started this process. A restart does not change it."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {os.getppid()}"


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
