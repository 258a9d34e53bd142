"""Several processes that train one model, as `torchrun` starts them; or one, alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed
from torch import Tensor

from spinimpute.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """rank: of this process, from 0; count: of all."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def mine(self, items: Sequence[T]) -> Sequence[T]:
        """This process's slice of items; slices are equally long but for the last ones."""
        return items[len(items) * self.rank // self.count : len(items) * (self.rank + 1) // self.count]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Every tensor becomes its sum over processes."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        torch.distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def take_largest(self, tensor: Tensor) -> None:
        """Every number becomes the largest that a process has there."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)

    def joined(self, items: Sequence[T]) -> list[T]:
        """What every process has of a list, one part behind the other, in all of them."""
        if self.count == 1:
            return list(items)
        parts: list[Sequence[T]] = [[]] * self.count
        torch.distributed.all_gather_object(parts, list(items))
        return [item for part in parts for item in part]


ALONE = Processes()


@contextmanager
def all_processes(device: torch.device) -> Iterator[Processes]:
    """The processes that torchrun has started this one with (NCCL between GPUs, gloo otherwise), or this one.

    Raises InputError if they cannot be joined.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store, rank, count = next(torch.distributed.rendezvous("env://"))
        # torchrun's store outlives a restart: under the same names there lie addresses of the dead
        store = torch.distributed.PrefixStore(f"start-{_restarts()}", store)
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=count
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, however the other processes cannot be joined "
            f"({error}); start them with torchrun"
        ) from error
    try:
        yield Processes(rank, count)
    finally:
        torch.distributed.destroy_process_group()


def local_device(name: str) -> torch.device:
    """ "cuda" is the GPU that torchrun means for this process."""
    return (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if name == "cuda" else torch.device(name)
    )


def is_first() -> bool:
    """Whether this is the process that writes; known before they have joined."""
    return int(os.environ.get("RANK", "0")) == 0


def restarted() -> bool:
    """Whether torchrun has started this process anew, after one of them failed."""
    return _restarts() > 0


def launch() -> str:
    """Names the torchrun that started this process: the same before and after a restart."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {os.getppid()}"


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
