"""What a fixture is compiled from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value."""

    kind: str
    value: float


@dataclass(frozen=True)
class Const:
    """A compile-time argument."""

    value: Any


@dataclass(frozen=True)
class Tiles:
    """A tensor descriptor made by the host, of the array `array` (row-major)."""

    array: str
    dtype: str
    shape: tuple[int, ...]
    block: tuple[int, ...]
    layout: Any = None  # Gluon's shared-memory layout


@dataclass
class Spec:
    """One fixture to be.

    Attributes
    ----------
    family, problem
        Which reference checks it, and that reference's arguments.
    arguments
        By name: ``"*bf16"`` (an array of that name), `Scalar`, `Tiles` or `Const`.
    grid
        Programs; with clusters each is one cluster.
    options
        Of the compiler: num_warps, num_ctas, num_stages.
    """

    name: str
    kernel: Any
    family: str
    problem: dict[str, Any]
    arguments: dict[str, Any]
    grid: tuple[int, ...] = (1,)
    options: dict[str, Any] = field(default_factory=dict)
    arch: int = 100
    slow: bool = False
