"""What a launch needs beside the kernel: grid, block, shared memory and the arguments in the kernel's order.

Lengths, strides and the softmax scale live here and not in the configuration, so that one kernel image serves them
all. Nothing here holds an address: a plan is made once for a problem and the arrays of each call are filled in by the
runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np

ArrayName: TypeAlias = Literal["q", "k", "v", "out", "lse"]


@dataclass(frozen=True)
class TensorMapLayout:
    """Everything a TMA tensor map says except the address.

    Attributes
    ----------
    dtype
        Element type, ``"bfloat16"`` or ``"float16"``.
    dims
        Extents in elements, innermost first.
    strides_bytes
        Distances in bytes of all dimensions but the innermost, which is dense.
    box
        Extents of the box that one instruction moves, innermost first.
    swizzle
        ``"128B"``: 16-byte chunks permuted within groups of eight 128-byte rows of shared memory.
    """

    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map over one of the call's arrays, passed by value."""

    array: ArrayName
    layout: TensorMapLayout


@dataclass(frozen=True)
class PointerArgument:
    """The address of one of the call's arrays; null where ``array`` is None."""

    array: ArrayName | None


@dataclass(frozen=True)
class ScalarArgument:
    """A number, as the NumPy scalar of exactly the parameter's type."""

    value: np.int32 | np.int64 | np.float32


Argument: TypeAlias = TensorMapArgument | PointerArgument | ScalarArgument


@dataclass(frozen=True)
class LaunchPlan:
    """One launch of one kernel, but for the addresses.

    Attributes
    ----------
    grid, cluster, block
        Extents in CTAs, CTAs and threads.
    shared_bytes
        Dynamic shared memory per CTA, in bytes.
    arguments
        In the order of the kernel's parameters.
    """

    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]
