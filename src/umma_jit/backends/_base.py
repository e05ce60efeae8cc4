"""The methods that every back end has, in the order in which a call uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from umma_jit._config import AttentionFwdConfig
    from umma_jit._plan import LaunchPlan
    from umma_jit._problem import AttentionProblem


class Backend(Protocol):
    """From a valid problem to the kernel that solves it."""

    architectures: ClassVar[tuple[str, ...]]

    @property
    def arch(self) -> str:
        """The architecture that it makes kernels for."""
        ...

    def check(self, problem: AttentionProblem) -> None:
        """Raise UnsupportedProblemError, naming argument and limit, if no kernel of this back end can solve it."""
        ...

    def choose_config(self, problem: AttentionProblem) -> AttentionFwdConfig:
        """The configuration for a problem that passed :meth:`check`."""
        ...

    def configs(self) -> Iterator[AttentionFwdConfig]:
        """Every configuration that :meth:`choose_config` can return."""
        ...

    def launch_plan(self, problem: AttentionProblem, config: AttentionFwdConfig) -> LaunchPlan:
        """Grid, block and arguments for the problem with that configuration."""
        ...
