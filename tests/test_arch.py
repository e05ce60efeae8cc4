from __future__ import annotations

import pytest

from umma_jit._arch import ARCHITECTURES, arch_of_compute_capability, parse_arch
from umma_jit.errors import UnsupportedArchError


@pytest.mark.parametrize("name", ["sm_90a", "sm_100a", "sm_103a"])
def test_full_names_are_known(name):
    arch = parse_arch(name)
    assert arch.name == str(arch) == name
    assert arch.virtual_name == name.replace("sm_", "compute_")
    assert arch_of_compute_capability(arch.major, arch.minor) is arch


@pytest.mark.parametrize("name", ["sm_100", "100a", "compute_100a", "sm_100f", "100"])
def test_incomplete_names_are_refused_with_the_full_one(name):
    with pytest.raises(UnsupportedArchError, match="'sm_100a'") as caught:
        parse_arch(name)
    assert caught.value.supported == tuple(ARCHITECTURES)


@pytest.mark.parametrize("name", ["", "sm_", "sm_80", "sm_120a", "hopper", "SM_100A", "sm_100aa", None, 100])
def test_unknown_names_are_refused_with_what_is_supported(name):
    with pytest.raises(UnsupportedArchError, match="sm_90a, sm_100a, sm_103a"):
        parse_arch(name)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (10, 1), (11, 0), (12, 0), (12, 1)])
def test_other_devices_are_refused_by_their_compute_capability(capability):
    with pytest.raises(UnsupportedArchError, match=f"{capability[0]}.{capability[1]}"):
        arch_of_compute_capability(*capability)


def test_compute_capability_10_3_is_not_served_code_for_10_0():
    assert arch_of_compute_capability(10, 3).name == "sm_103a"
