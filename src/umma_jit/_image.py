"""What a compile gives: `KernelImage`, and the `ResourceUsage` that ptxas reported for it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

__all__ = ["ImageKind", "KernelImage", "ResourceUsage"]

ImageKind = Literal["cubin", "ptx"]


@dataclass(frozen=True, kw_only=True)
class ResourceUsage:
    """What one thread, or one CTA, of a kernel takes, as ptxas counts it.

    Attributes
    ----------
    registers : int
        32-bit registers per thread at launch.
    stack_bytes : int
        Local memory per thread. Anything but zero is a performance bug in this library's kernels.
    spill_store_bytes, spill_load_bytes : int
        Of that, what register spilling wrote and read.
    static_shared_bytes : int
        Shared memory per CTA that the source declares itself; dynamic shared memory is the plan's.
    barriers : int
        Hardware barriers per CTA.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    barriers: int

    @classmethod
    def from_ptxas_log(cls, log: str, entry: str) -> ResourceUsage | None:
        """Read the usage of one entry from the log of ``ptxas -v``; ``None`` if it is not there."""
        start = log.find(f"Compiling entry function '{entry}'")
        if start < 0:
            return None
        end = log.find("Compiling entry function", start + 1)
        part = log[start : end if end >= 0 else len(log)]
        registers = re.search(r"Used (\d+) registers", part)
        if registers is None:
            return None
        properties = re.search(
            rf"Function properties for {re.escape(entry)}\s.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
            r"(\d+) bytes spill loads",
            part,
            re.DOTALL,
        )
        stack, stores, loads = (int(n) for n in properties.groups()) if properties else (0, 0, 0)
        shared = re.search(r"(\d+) bytes smem", part)
        barriers = re.search(r"used (\d+) barriers", part)
        return cls(
            registers=int(registers[1]),
            stack_bytes=stack,
            spill_store_bytes=stores,
            spill_load_bytes=loads,
            static_shared_bytes=int(shared[1]) if shared else 0,
            barriers=int(barriers[1]) if barriers else 0,
        )

    def to_dict(self) -> dict[str, int]:
        """Return the fields as a dictionary that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ResourceUsage:
        """Return what `to_dict` described; a missing or mistyped field raises ``KeyError`` or ``ValueError``."""
        return cls(**{field.name: int(data[field.name]) for field in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class KernelImage:
    """One compiled kernel: what a runtime loads.

    Attributes
    ----------
    kind : {"cubin", "ptx"}
        A cubin for a GPU, PTX for the emulated device.
    arch : str
        The full target, such as ``"sm_100a"``.
    entry : str
        The kernel's name.
    payload : bytes
        The ELF file, or the PTX text in ASCII without a closing NUL.
    options : tuple of str
        The exact options it was compiled with.
    compiler : str
        The compiler's identity; see `umma_jit._compile.compiler_identity`.
    resources : ResourceUsage or None
        What ptxas reported; ``None`` for PTX, which ptxas has not seen.
    compile_seconds : float
        Wall time of the compile that made it, kept when the image comes from a cache.
    log : str
        NVRTC's warnings, if any.
    origin : {"compiled", "disk"}
        Whether it was compiled just now or read from the disk cache.
    """

    kind: ImageKind
    arch: str
    entry: str
    payload: bytes
    options: tuple[str, ...]
    compiler: str
    resources: ResourceUsage | None = None
    compile_seconds: float = 0.0
    log: str = ""
    origin: Literal["compiled", "disk"] = "compiled"

    @property
    def text(self) -> str:
        """The PTX as a string; raises ``ValueError`` for a cubin."""
        if self.kind != "ptx":
            raise ValueError(f"this image is a {self.kind}; only PTX has a text")
        return self.payload.decode("utf-8")

    @property
    def digest(self) -> str:
        """SHA-256 of the payload, in hexadecimal."""
        return hashlib.sha256(self.payload).hexdigest()

    def __repr__(self) -> str:
        return (
            f"KernelImage({self.kind} {self.entry} for {self.arch}, {len(self.payload)} bytes, "
            f"sha256 {self.digest[:12]}, {self.resources})"
        )
