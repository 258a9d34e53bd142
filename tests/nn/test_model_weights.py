"""Networks rebuilt from what a file says of them."""

import threading

import pytest
import torch
from torch import nn

from spinimpute.nn.model_weights import arrays_of, check_weights, network_of


def stack(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))


def test_the_weights_are_those_given_and_torchs_generator_stays() -> None:
    arrays = arrays_of(stack(3).state_dict())
    state = torch.get_rng_state()
    network = network_of(lambda: stack(3), arrays)
    assert torch.equal(torch.get_rng_state(), state)
    assert all((value.numpy() == arrays[name]).all() for name, value in network.state_dict().items())


@pytest.mark.parametrize(("layers", "said"), [(2, "2.bias, 2.weight"), (10**9, "a larger network")])
def test_other_networks_are_refused(layers: int, said: str) -> None:
    arrays = arrays_of(stack(3).state_dict())
    with pytest.raises(ValueError, match=said):
        network_of(lambda: stack(layers), arrays)
    assert stack(9)  # nothing is counted any longer


def test_networks_of_other_threads_do_not_count() -> None:
    arrays = arrays_of(stack(1).state_dict())

    def make() -> nn.Module:
        built: list[nn.Module] = []
        other = threading.Thread(target=lambda: built.append(stack(50)))
        other.start()
        other.join()
        assert built
        return stack(1)

    check_weights(make, arrays)
