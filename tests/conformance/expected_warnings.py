"""Which warnings the emulator rightly gives for which fixtures: the compiler breaks the letter of the ISA, and knows.

``tcgen05.ld-register-dependence``
    Registers of ``tcgen05.ld`` are used before ``tcgen05.wait::ld``, which comes before the columns are given away.
``idesc.shape-unverified``
    A in tensor memory with M = 128 and N = 8: allowed by the ISA's table, refused by CUTLASS.
``mbarrier.parity``
    A wait for phase parity -1, where the ISA allows 0 and 1.
``shared.race``
    Several warps store the same value to the same word, unordered: the state that Triton's specialised warps read.
"""

from __future__ import annotations

__all__ = ["expected_warnings"]

_LATE_WAIT = (
    "blackwell_attention_",
    "blackwell_matmul_descriptors_KK",
    "blackwell_matmul_descriptors_MN",
    "blackwell_matmul_descriptors_fp8",
    "blackwell_matmul_host_descriptors",
    "blackwell_matmul_persistent",
    "blackwell_matmul_pointers_k16",
    "blackwell_matmul_pointers_masked",
    "gluon_specialised_mma",
)
_PARITY = ("hopper_attention_d64_specialised", "hopper_attention_d128_specialised")
_SAME_VALUE = ("_specialised", "_specialised_mma")


def expected_warnings(name: str) -> set[str]:
    """Rules of which a fixture may give warnings."""
    found = set()
    if name.startswith(_LATE_WAIT):
        found.add("tcgen05.ld-register-dependence")
    if name.startswith(_PARITY):
        found.add("mbarrier.parity")
    if name.startswith("gluon_mma_ts_128x8x"):
        found.add("idesc.shape-unverified")
    if name.endswith(_SAME_VALUE):
        found.add("shared.race")
    return found
