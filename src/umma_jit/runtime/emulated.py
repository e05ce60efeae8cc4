"""The emulated runtime: PTX run by `umma_jit.emulator` on NumPy arrays, instead of a cubin on a GPU.

Each launch has a device memory of its own. An array is laid into it with the strides it has, so that tensor maps and
strides mean the same here as on a GPU; what lies between its elements is filled with NaN going in, and what a kernel
writes there is thrown away coming out.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from umma_jit._arrays import ArrayView, span_bytes
from umma_jit._plan import LaunchPlan, PointerArgument, ScalarArgument, TensorMapArgument
from umma_jit.errors import ArchMismatchError, EmulationError, LaunchError

from ._progress import ProgressBar
from .tensor_map import emulated_tensor_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from umma_jit._image import ImageKind, KernelImage
    from umma_jit._settings import Settings

__all__ = ["EmulatedKernel", "EmulatedRuntime", "EmulationWarning"]

_POISON = 0xFF
"""Fills the gaps between an array's elements: NaN in every float type."""

_OUTPUTS = ("out", "lse")


class EmulationWarning(UserWarning):
    """The emulated device saw something that the PTX ISA forbids and that compilers in use rely on all the same."""


@dataclass(frozen=True, eq=False)
class EmulatedKernel:
    """A kernel parsed and translated for the emulated device.

    Attributes
    ----------
    entry : str
        Its name.
    kernel : umma_jit.emulator.Kernel
        What runs.
    """

    entry: str
    kernel: Any


class EmulatedRuntime:
    """The emulated device.

    Parameters
    ----------
    arch : str
        The architecture it stands for, such as ``"sm_100a"``.
    schedule : str
        When asynchronous work completes: ``"program"``, ``"eager"``, ``"lazy"`` or ``"random"``.
    seed : int
        Of the schedule ``"random"``.
    strict : bool
        Whether warnings end a launch too.
    progress : bool
        Whether a bar may be shown on a terminal.
    """

    image_kind: ClassVar[ImageKind] = "ptx"
    evidence: ClassVar[str] = "emulated"

    def __init__(
        self,
        arch: str = "sm_100a",
        *,
        schedule: str = "program",
        seed: int = 0,
        strict: bool = False,
        progress: bool = True,
    ) -> None:
        self.arch = arch
        self.schedule = schedule
        self.seed = seed
        self.strict = strict
        self.progress = progress
        self.last_report: Any = None
        """The emulator's report on the latest launch: instruction counts and findings."""

    @classmethod
    def from_settings(cls, settings: Settings) -> EmulatedRuntime:
        """Return the emulated device that the environment asks for."""
        return cls(
            settings.arch,
            schedule=settings.emulator_schedule,
            seed=settings.emulator_seed,
            strict=settings.emulator_strict,
            progress=settings.progress,
        )

    def __repr__(self) -> str:
        return f"EmulatedRuntime({self.arch}, schedule {self.schedule!r}, seed {self.seed})"

    def load(self, image: KernelImage) -> EmulatedKernel:
        """Parse and translate PTX; see `Runtime.load`."""
        if image.arch != self.arch:
            raise ArchMismatchError(image.arch, self.arch)
        if image.kind != self.image_kind:
            raise LaunchError(f"the emulated device loads PTX, not a {image.kind}")
        from umma_jit.emulator import EmulatorError, Module

        try:
            return EmulatedKernel(image.entry, Module(image.text)[image.entry])
        except (EmulatorError, KeyError) as error:
            raise LaunchError(f"{image!r} does not load on the emulated device: {error}") from error

    def launch(
        self,
        kernel: EmulatedKernel,
        plan: LaunchPlan,
        arrays: Mapping[str, ArrayView],
        stream: object = None,  # noqa: ARG002 - the work is done on return
    ) -> None:
        """Run a kernel to its end; see `Runtime.launch`.

        Raises
        ------
        EmulationError
            The kernel broke a rule of the machine; ``findings`` says which, where, and what to do.
        """
        from umma_jit.emulator import DeviceMemory, EmulatorError

        memory = DeviceMemory()
        addresses = {name: memory.upload(_spread(name, arrays[name])) for name in _used(plan)}
        options: dict[str, Any] = {}
        with ProgressBar(f"emulating {kernel.entry}", enabled=self.progress) as bar:
            if "progress" in inspect.signature(kernel.kernel.launch).parameters:
                options["progress"] = bar.update
            try:
                report = kernel.kernel.launch(
                    grid=plan.grid,
                    block=plan.block,
                    cluster=plan.cluster,
                    shared_bytes=plan.shared_bytes,
                    memory=memory,
                    params=pack_parameters(plan, addresses),
                    schedule=self.schedule,
                    seed=self.seed,
                    strict=self.strict,
                    **options,
                )
            except EmulatorError as error:
                finding = getattr(error, "finding", None)
                raise EmulationError(
                    f"{kernel.entry} on the emulated {self.arch}: {error}", () if finding is None else (finding,)
                ) from error
        self.last_report = report
        _judge(kernel.entry, self.arch, report)
        for name, address in addresses.items():
            if name in _OUTPUTS:
                layout = arrays[name].layout
                data = memory.download(address, (span_bytes(layout),), np.uint8)
                arrays[name].array[...] = _elements(data, arrays[name])


def pack_parameters(plan: LaunchPlan, addresses: Mapping[str, int]) -> list[Any]:
    """Fill addresses into a plan's arguments, as the emulator takes them."""
    parameters: list[Any] = []
    for argument in plan.arguments:
        if isinstance(argument, TensorMapArgument):
            parameters.append(emulated_tensor_map(argument.layout, addresses[argument.array]))
        elif isinstance(argument, PointerArgument):
            parameters.append(np.uint64(0 if argument.array is None else addresses[argument.array]))
        else:
            assert isinstance(argument, ScalarArgument)
            parameters.append(argument.value)
    return parameters


def _used(plan: LaunchPlan) -> list[str]:
    """Return the names of the arrays that a plan's arguments refer to, each once."""
    names = [
        argument.array
        for argument in plan.arguments
        if isinstance(argument, (TensorMapArgument, PointerArgument)) and argument.array is not None
    ]
    return list(dict.fromkeys(names))


def _spread(name: str, view: ArrayView) -> NDArray[np.uint8]:
    """Return the bytes from an array's first to its last element: gaps, and all of an output, poisoned."""
    data = np.full(span_bytes(view.layout), _POISON, np.uint8)
    if name not in _OUTPUTS:
        _elements(data, view)[...] = view.array
    return data


def _elements(data: NDArray[np.uint8], view: ArrayView) -> NDArray[Any]:
    """Return the elements of an array within its bytes."""
    layout = view.layout
    # An axis of extent 1 may have any stride, which as_strided would take for an overrun.
    strides = tuple(
        stride if extent > 1 else layout.dtype.itemsize
        for extent, stride in zip(layout.shape, layout.strides, strict=True)
    )
    elements: NDArray[Any] = np.ndarray(layout.shape, layout.dtype, buffer=data.data, strides=strides)
    return elements


def _judge(entry: str, arch: str, report: Any) -> None:
    """Raise if a report has errors; warn if it has warnings."""
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if errors:
        text = "\n".join(f"  {finding}" for finding in errors)
        raise EmulationError(f"{entry} on the emulated {arch} broke {len(errors)} rule(s):\n{text}", errors)
    if report.findings:
        text = "\n".join(f"  {finding}" for finding in report.findings)
        warnings.warn(f"{entry} on the emulated {arch}:\n{text}", EmulationWarning, stacklevel=5)
