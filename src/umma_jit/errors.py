"""The exceptions of umma_jit, in one tree.

::

    UmmaJitError
    ├── InvalidArgumentError            an argument of a call; names it, what it was, what is expected
    │   ├── ArgumentTypeError           (TypeError)   of the wrong type
    │   └── UnsupportedProblemError     (ValueError)  of the right type, with a value that cannot be served
    ├── SettingsError                   (ValueError)  an environment variable with a value that means nothing
    ├── UnsupportedArchError            (ValueError)  an architecture that no templates exist for
    ├── ArchMismatchError               (RuntimeError) an image made for another architecture than the device's
    ├── TemplateError                   (RuntimeError) a template that is missing, or that does not render
    ├── CompilerNotFoundError           (ImportError) NVRTC or its Python bindings are not installed
    ├── CompileError                    (RuntimeError) NVRTC or ptxas refused the source
    ├── DeviceNotFoundError             (RuntimeError) no CUDA driver, or no device
    ├── OutOfMemoryError                (MemoryError) no memory for a result
    └── LaunchError                     (RuntimeError) the kernel could not be launched
        └── EmulationError              the emulated device found the kernel at fault

Each is also the built-in exception that a caller would expect, and carries its facts as attributes. The cache has
no exception of its own: it can never fail a call, it warns once (`CacheWarning`) and carries on.

The emulator is a package that stands alone; its exceptions are rooted in `umma_jit.emulator.EmulatorError`. Where
one ends a call of `attention`, it arrives as the ``__cause__`` of an `EmulationError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ArchMismatchError",
    "ArgumentTypeError",
    "CacheWarning",
    "CompileError",
    "CompilerNotFoundError",
    "DeviceNotFoundError",
    "EmulationError",
    "InvalidArgumentError",
    "LaunchError",
    "OutOfMemoryError",
    "SettingsError",
    "TemplateError",
    "UmmaJitError",
    "UnsupportedArchError",
    "UnsupportedProblemError",
]


class UmmaJitError(Exception):
    """Root of every exception that umma_jit raises on purpose."""


class CacheWarning(UserWarning):
    """The kernel cache could not do its work; the call went on without it."""


class InvalidArgumentError(UmmaJitError):
    """An argument cannot be served.

    Parameters
    ----------
    argument : str
        The argument's name, as the caller wrote it.
    have : str
        What it was.
    expected : str
        What would be accepted.
    hint : str, optional
        What to do about it.
    """

    def __init__(self, argument: str, have: str, expected: str, hint: str | None = None) -> None:
        self.argument = argument
        self.have = have
        self.expected = expected
        self.hint = hint
        message = f"{argument}: {have}; expected {expected}"
        super().__init__(message if hint is None else f"{message}. {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.argument, self.have, self.expected, self.hint))


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument is of the wrong type."""


class UnsupportedProblemError(InvalidArgumentError, ValueError):
    """An argument has a value, shape, dtype or layout that cannot be served."""


class SettingsError(UmmaJitError, ValueError):
    """An environment variable holds a value that means nothing.

    Parameters
    ----------
    variable, have, expected : str
        The variable's name, its value, and what would be accepted.
    """

    def __init__(self, variable: str, have: str, expected: str) -> None:
        self.variable = variable
        self.have = have
        self.expected = expected
        super().__init__(f"environment variable {variable}={have!r}; expected {expected}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.variable, self.have, self.expected))


class UnsupportedArchError(UmmaJitError, ValueError):
    """An architecture is not known, or nothing has been written for it.

    Parameters
    ----------
    have : str
        The architecture asked for.
    supported : sequence of str
        The ones that would do.
    hint : str, optional
        What to do about it.
    """

    def __init__(self, have: str, supported: Sequence[str], hint: str | None = None) -> None:
        self.have = have
        self.supported = tuple(supported)
        self.hint = hint
        message = f"architecture {have!r} is not supported; supported: {', '.join(self.supported) or 'none'}"
        super().__init__(message if hint is None else f"{message}. {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.have, self.supported, self.hint))


class ArchMismatchError(UmmaJitError, RuntimeError):
    """An image was made for another architecture than the device it was to be loaded on.

    Parameters
    ----------
    image_arch, device_arch : str
        Full names, such as ``"sm_100a"``.
    """

    def __init__(self, image_arch: str, device_arch: str) -> None:
        self.image_arch = image_arch
        self.device_arch = device_arch
        super().__init__(
            f"the image is for {image_arch}, the device is {device_arch}: code for an 'a' target runs on exactly "
            f"that target. Render and compile the source for {device_arch}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.image_arch, self.device_arch))


class TemplateError(UmmaJitError, RuntimeError):
    """A template is missing or does not render.

    Parameters
    ----------
    template : str
        Its path below ``templates/``.
    reason : str
        What went wrong.
    line : int, optional
        Where, counted from 1.
    """

    def __init__(self, template: str, reason: str, line: int | None = None) -> None:
        self.template = template
        self.reason = reason
        self.line = line
        where = template if line is None else f"{template}, line {line}"
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.template, self.reason, self.line))


class CompilerNotFoundError(UmmaJitError, ImportError):
    """NVRTC, its built-ins library or its Python bindings cannot be loaded."""


class CompileError(UmmaJitError, RuntimeError):
    """NVRTC, or the ptxas inside it, refused a source.

    Parameters
    ----------
    reason : str
        NVRTC's name of the fault.
    log : str
        NVRTC's log, whole.
    excerpts : str
        The source lines that the log points at, with their neighbours.
    source : str
        The rendered source, whole.
    arch : str
        The target, such as ``"sm_100a"``.
    options : sequence of str
        The exact options.
    """

    def __init__(self, reason: str, log: str, excerpts: str, source: str, arch: str, options: Sequence[str]) -> None:
        self.reason = reason
        self.log = log
        self.excerpts = excerpts
        self.source = source
        self.arch = arch
        self.options = tuple(options)
        parts = [f"{reason} for {arch}, options {' '.join(self.options)}", log.strip()]
        if excerpts:
            parts.append(excerpts)
        super().__init__("\n\n".join(parts))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.reason, self.log, self.excerpts, self.source, self.arch, self.options))


class DeviceNotFoundError(UmmaJitError, RuntimeError):
    """There is no CUDA driver, or no CUDA device, where one is needed."""


class OutOfMemoryError(UmmaJitError, MemoryError):
    """There is no memory for a result."""


class LaunchError(UmmaJitError, RuntimeError):
    """A kernel could not be launched, or a launch failed."""


class EmulationError(LaunchError):
    """The emulated device found the kernel at fault.

    Parameters
    ----------
    message : str
        What was found.
    findings : sequence of object
        The emulator's findings (`umma_jit.emulator.Finding`), the errors among them.
    """

    def __init__(self, message: str, findings: Sequence[object] = ()) -> None:
        self.findings = tuple(findings)
        super().__init__(message)
