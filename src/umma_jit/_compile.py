"""`KernelSource` → `KernelImage` by NVRTC.

Why `cuda.bindings.nvrtc` and not `cuda.core.Program`: asked for PTX, `cuda.core` queries the driver (could it load
this PTX?), and so fails on a machine that has none; and one of its compiles gives one kind of image, where NVRTC itself
gives PTX and cubin from the same run. `cuda.core` does load and launch; see `umma_jit.runtime.cuda`.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from ._arch import parse_arch
from ._image import ImageKind, KernelImage, ResourceUsage
from ._source import KernelSource, numbered_excerpt, templates_directory
from .errors import CompileError, CompilerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["compile_image", "compile_images", "compiler_identity", "nvrtc_options"]

_INSTALL = "pip install 'umma-jit[nvrtc12]', or the extra cu12 or cu13 for the CUDA version of your driver"
_SOURCE_LINE = re.compile(r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error", re.MULTILINE)
_PTX_LINE = re.compile(r"line (\d+); (?:error|fatal)")


def compile_image(source: KernelSource, kind: ImageKind = "cubin") -> KernelImage:
    """Compile a source to one kind of image; see `compile_images`."""
    return compile_images(source, (kind,))[0]


def compile_images(source: KernelSource, kinds: Sequence[ImageKind] = ("cubin", "ptx")) -> tuple[KernelImage, ...]:
    """Compile a source once, and return the images wanted of it, in the order asked for.

    Parameters
    ----------
    source : KernelSource
        What to compile, for which architecture, with which options.
    kinds : sequence of {"cubin", "ptx"}
        PTX alone is faster than either with the cubin: ptxas does not run then. The PTX is the same text.

    Raises
    ------
    CompileError
        NVRTC or ptxas refused the source, or gave an empty image.
    CompilerNotFoundError
        NVRTC cannot be loaded.
    """
    unknown = [kind for kind in kinds if kind not in ("cubin", "ptx")]
    if unknown or not kinds:
        raise ValueError(f"kinds: {tuple(kinds)!r}; expected one or both of 'cubin' and 'ptx'")
    options = nvrtc_options(source, "cubin" if "cubin" in kinds else "ptx")
    start = time.perf_counter()
    payloads, log = _run(source, options, kinds)
    seconds = time.perf_counter() - start
    identity = compiler_identity()
    images = []
    for kind in kinds:
        resources = ResourceUsage.from_ptxas_log(log, source.entry) if kind == "cubin" else None
        images.append(
            KernelImage(
                kind=kind,
                arch=source.arch,
                entry=source.entry,
                payload=payloads[kind],
                options=options if len(kinds) == 1 else nvrtc_options(source, kind),
                compiler=identity,
                resources=resources,
                compile_seconds=seconds,
                log=_warnings(log),
            )
        )
    return tuple(images)


def nvrtc_options(source: KernelSource, kind: ImageKind) -> tuple[str, ...]:
    """Return the exact options with which a source is compiled to one kind of image."""
    arch = parse_arch(source.arch)
    if kind == "ptx":
        # The virtual architecture: a real one would run ptxas as well and give the same PTX.
        return (f"--gpu-architecture={arch.virtual_name}", *source.options)
    return (f"--gpu-architecture={arch.name}", *source.options, "--ptxas-options=-v")


@functools.cache
def compiler_identity() -> str:
    """Return NVRTC's full version, with patch level and build number, such as ``"12.9.86 CL-36037853"``.

    `nvrtcVersion` knows major and minor only, so that two compilers that differ (12.9.41 and 12.9.86) look the same to
    it. The PTX that NVRTC writes names its build in full, whatever way the library came to be there, so that is asked:
    an empty source takes a few milliseconds.

    Raises
    ------
    CompilerNotFoundError
        NVRTC cannot be loaded.
    """
    probe = KernelSource(text="\n", entry="probe", arch="sm_90a", options=())
    payloads, _ = _run(probe, nvrtc_options(probe, "ptx"), ("ptx",))
    header = payloads["ptx"].decode("utf-8")
    version = re.search(r"release [\d.]+, V([\d.]+)", header)
    build = re.search(r"Compiler Build ID: (\S+)", header)
    if version is None or build is None:
        # An NVRTC that words its header differently: what differs between two builds is in these lines all the same.
        return " ".join(line.strip("/ ") for line in header.splitlines() if line.startswith("//")).strip()
    return f"{version[1]} {build[1]}"


# `nvrtcCompileProgram` is thread-safe; loading the library through its bindings for the first time is what is guarded.
_load_lock = threading.Lock()


@functools.cache
def _nvrtc() -> Any:
    with _load_lock:
        try:
            from cuda.bindings import nvrtc

            nvrtc.nvrtcVersion()
        except ImportError as error:
            raise CompilerNotFoundError(f"cuda.bindings is not installed ({error}). {_INSTALL}") from error
        except RuntimeError as error:  # cuda.pathfinder's DynamicLibNotFoundError among them
            raise CompilerNotFoundError(f"NVRTC cannot be loaded ({error}). {_INSTALL}") from error
        return nvrtc


def _run(source: KernelSource, options: Sequence[str], kinds: Sequence[ImageKind]) -> tuple[dict[str, bytes], str]:
    nvrtc = _nvrtc()
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    result, program = nvrtc.nvrtcCreateProgram(source.text.encode("utf-8"), source.file_name.encode(), 0, [], [])
    if result != success:
        raise CompileError(result.name, "", "", source.text, source.arch, options)
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _get(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode("utf-8", "replace")
        log = log.rstrip("\0 \n")
        if result != success:
            if result.name == "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE" or "nvrtc-builtins" in log:
                raise CompilerNotFoundError(f"NVRTC cannot load its built-ins library: {log}. {_INSTALL}")
            raise CompileError(result.name, log, _excerpts(source, log), source.text, source.arch, options)
        getters = {
            "ptx": (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
            "cubin": (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        }
        payloads: dict[str, bytes] = {kind: _get(*getters[kind], program) for kind in kinds}
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if "ptx" in payloads:
        payloads["ptx"] = payloads["ptx"].rstrip(b"\0")
    for kind, payload in payloads.items():
        if not payload:  # a virtual architecture with "cubin" does this, with no error
            raise CompileError(f"NVRTC gave an empty {kind}", log, "", source.text, source.arch, options)
    return payloads, log


def _get(size_of: Any, get: Any, program: Any) -> bytes:
    """Call one of NVRTC's pairs of getters; empty when it has nothing to give."""
    _, size = size_of(program)
    buffer: bytes = b" " * size  # the binding fills it in place
    get(program, buffer)
    return buffer


def _excerpts(source: KernelSource, log: str) -> str:
    """Return the lines that the log's errors point at, of the CUDA source or of the PTX that ptxas read."""
    places = dict.fromkeys((match["file"], int(match["line"])) for match in _SOURCE_LINE.finditer(log))
    parts = [excerpt for file, line in list(places)[:5] if (excerpt := _excerpt(source, file, line))]
    ptx_lines = list(dict.fromkeys(int(number) for number in _PTX_LINE.findall(log)))[:5]
    if ptx_lines:
        try:
            payloads, _ = _run(source, nvrtc_options(source, "ptx"), ("ptx",))
        except (CompileError, CompilerNotFoundError):
            return "\n\n".join(parts)  # the log stands for itself
        text = payloads["ptx"].decode("utf-8")
        parts.append("\n\n".join(["the PTX that ptxas refused:", *(numbered_excerpt(text, n) for n in ptx_lines)]))
    return "\n\n".join(parts)


def _excerpt(source: KernelSource, file: str, line: int) -> str:
    """Return the lines around one of the rendered source, or of a template header that it names; else nothing."""
    if file == source.file_name:
        return source.excerpt(line)
    header = templates_directory() / file
    if not header.is_file():
        return ""
    return f"{file}:\n{numbered_excerpt(header.read_text(encoding='utf-8'), line)}"


def _warnings(log: str) -> str:
    """Return the log without what ``ptxas -v`` says in passing."""
    lines = [line for line in log.splitlines() if not line.lstrip().startswith(("ptxas info", "ptxas   "))]
    return "\n".join(lines).strip()
