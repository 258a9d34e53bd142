"""Networks rebuilt from weights in files."""

import threading

import pytest
import torch
from torch import nn

from spinimpute.nn.model_weights import arrays_of, check_weights, network_of


def stack(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))


def test_a_network_gets_its_weights_and_torchs_generator_keeps_its_state() -> None:
    arrays = arrays_of(stack(3).state_dict())
    state = torch.get_rng_state()
    network = network_of(lambda: stack(3), arrays)
    assert torch.equal(torch.get_rng_state(), state)
    assert all((value.numpy() == arrays[name]).all() for name, value in network.state_dict().items())


@pytest.mark.parametrize(("layers", "message"), [(2, "2.bias, 2.weight"), (10**9, "of a larger network")])
def test_other_networks_are_refused(layers: int, message: str) -> None:
    arrays = arrays_of(stack(3).state_dict())
    with pytest.raises(ValueError, match=message):
        network_of(lambda: stack(layers), arrays)
    assert stack(9)  # the hook is gone


def test_networks_of_other_threads_are_not_counted() -> None:
    arrays = arrays_of(stack(1).state_dict())

    def make() -> nn.Module:
        built: list[nn.Module] = []
        other = threading.Thread(target=lambda: built.append(stack(50)))
        other.start()
        other.join()
        assert built
        return stack(1)

    check_weights(make, arrays)
