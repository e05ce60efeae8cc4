"""The few methods that every runtime has, in the order in which a call uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from umma_jit._arrays import ArrayView
    from umma_jit._image import ImageKind, KernelImage
    from umma_jit._plan import LaunchPlan

__all__ = ["Kernel", "Runtime"]


class Kernel(Protocol):
    """A kernel that is loaded on a device; what is in it is its runtime's business."""

    @property
    def entry(self) -> str:
        """The kernel's name."""
        ...


class Runtime(Protocol):
    """One device that runs kernels, real or emulated."""

    @property
    def arch(self) -> str:
        """The full name of its architecture, such as ``"sm_100a"``."""
        ...

    @property
    def image_kind(self) -> ImageKind:
        """What it loads: a cubin, or PTX."""
        ...

    @property
    def evidence(self) -> str:
        """What a result from here is: ``"measured"`` on real hardware, or ``"emulated"``."""
        ...

    def load(self, image: KernelImage) -> Kernel:
        """Load an image.

        Raises
        ------
        ArchMismatchError
            The image is for another architecture.
        LaunchError
            It does not load.
        """
        ...

    def launch(self, kernel: Any, plan: LaunchPlan, arrays: Mapping[str, ArrayView], stream: object) -> None:
        """Run a kernel of this runtime.

        Parameters
        ----------
        kernel : Kernel
            As `load` returned it.
        plan : LaunchPlan
            Grid, block, shared memory, arguments.
        arrays : mapping of str to ArrayView
            The call's arrays, by the names that the plan's arguments use.
        stream : object
            The stream to queue the work on: a handle, or an object with ``__cuda_stream__``; None for the caller's
            current stream. A runtime whose work is done when `launch` returns takes no notice.

        Raises
        ------
        LaunchError
            The kernel could not be launched, or, where the runtime notices, was at fault.
        """
        ...
