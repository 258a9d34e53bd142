"""One thread: the models are small, and several threads on few cores wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
