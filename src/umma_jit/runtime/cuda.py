"""The CUDA runtime: images loaded and kernels launched on one GPU, on `cuda.core` and `cuda.bindings`.

`cuda.core` finds the device, loads the cubin and knows the kernel's attributes. The launch itself is the driver's
``cuLaunchKernelEx``, since `cuda.core.launch` takes no tensor map but one it has encoded from an array itself, axes in
that array's order; a plan's maps have theirs in the kernel's.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umma_jit._arch import arch_of_compute_capability
from umma_jit._arrays import current_stream
from umma_jit._plan import LaunchPlan, PointerArgument, ScalarArgument, TensorMapArgument
from umma_jit.errors import ArchMismatchError, DeviceNotFoundError, LaunchError

from .tensor_map import encode_for_driver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from umma_jit._arrays import ArrayView
    from umma_jit._image import ImageKind, KernelImage

__all__ = ["CudaKernel", "CudaRuntime"]

_INSTALL = "pip install 'umma-jit[cu12]' or 'umma-jit[cu13]', by the CUDA version of your driver"


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A kernel loaded on one GPU.

    Attributes
    ----------
    entry : str
        Its name.
    handle : object
        The driver's ``CUkernel``.
    owner : object
        The `cuda.core.Kernel` and its `ObjectCode`, which keep the module loaded.
    registers, local_bytes : int
        Per thread, as the driver reports them.
    """

    entry: str
    handle: Any
    owner: Any
    registers: int
    local_bytes: int


class CudaRuntime:
    """One GPU.

    Parameters
    ----------
    device : int
        Its ordinal.

    Raises
    ------
    DeviceNotFoundError
        No `cuda.core`, no driver, or no such device.
    UnsupportedArchError
        No target here has its compute capability.
    """

    image_kind: ClassVar[ImageKind] = "cubin"
    evidence: ClassVar[str] = "measured"

    def __init__(self, device: int) -> None:
        # Asked first, by itself: without a driver some of cuda.core's calls do not fail but hang.
        driver = _require_driver()
        from cuda.core import Device

        (result, count) = driver.cuDeviceGetCount()
        if result != driver.CUresult.CUDA_SUCCESS or not 0 <= device < count:
            raise DeviceNotFoundError(f"there is no CUDA device {device}; the driver reports {count}")
        self.ordinal = device
        self._device = Device(device)
        capability = self._device.compute_capability
        self.arch = arch_of_compute_capability(capability.major, capability.minor).name
        self._driver = driver
        self._load_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CudaRuntime(device {self.ordinal}, {self._device.name}, {self.arch})"

    def load(self, image: KernelImage) -> CudaKernel:
        """Load a cubin; see `Runtime.load`."""
        if image.arch != self.arch:
            raise ArchMismatchError(image.arch, self.arch)
        if image.kind != self.image_kind:
            raise LaunchError(f"a CUDA device loads a cubin, not {image.kind}")
        from cuda.core import ObjectCode

        with self._load_lock, _Current(self._driver, self._device):
            try:
                code = ObjectCode.from_cubin(image.payload, name=image.entry)
                kernel = code.get_kernel(image.entry)
            except Exception as error:  # cuda.core's CUDAError is not public under a stable name
                raise LaunchError(f"{image!r} does not load on {self!r}: {error}") from error
            attributes = kernel.attributes[self._device]
            loaded = CudaKernel(
                entry=image.entry,
                handle=kernel.handle,
                owner=(code, kernel),
                registers=int(attributes.num_regs),
                local_bytes=int(attributes.local_size_bytes),
            )
            self._allow_shared_memory(loaded, int(attributes.shared_size_bytes))
        return loaded

    def launch(self, kernel: CudaKernel, plan: LaunchPlan, arrays: Mapping[str, ArrayView], stream: object) -> None:
        """Queue a kernel; see `Runtime.launch`. Returns before the work is done."""
        driver = self._driver
        parameters = pack_parameters(plan, arrays)
        handle = current_stream(arrays["q"].array) if stream is None else stream_handle(stream)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = plan.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = plan.block
        config.sharedMemBytes = plan.shared_bytes
        config.hStream = driver.CUstream(handle)
        if plan.cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = plan.cluster
            config.attrs = [attribute]
            config.numAttrs = 1
        with _Current(driver, self._device):
            # The driver takes a CUkernel where it takes a CUfunction, and finds the current context's instance of it.
            (result,) = driver.cuLaunchKernelEx(
                config, driver.CUfunction(int(kernel.handle)), ctypes.addressof(parameters.pointers), 0
            )
        if result != driver.CUresult.CUDA_SUCCESS:
            raise LaunchError(
                f"{kernel.entry} on {self!r}: {result.name}; grid {plan.grid}, cluster {plan.cluster}, "
                f"block {plan.block}, {plan.shared_bytes} bytes of shared memory, {kernel.registers} registers"
            )

    def _allow_shared_memory(self, kernel: CudaKernel, static_bytes: int) -> None:
        """Let launches ask for all the shared memory there is: beyond 48 KB it takes an explicit word."""
        driver = self._driver
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        _check(driver, *(answer := driver.cuDeviceGetAttribute(attribute, self.ordinal))[:1])
        most = int(answer[1]) - static_bytes
        (result,) = driver.cuKernelSetAttribute(
            driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            most,
            kernel.handle,
            self.ordinal,
        )
        _check(driver, result)


@dataclass(frozen=True, eq=False)
class Parameters:
    """A kernel's parameters in host memory, as the driver wants them: an array of pointers to the values.

    Attributes
    ----------
    pointers : ctypes array of void pointers
        One per parameter.
    values : tuple of object
        What they point at, kept alive.
    """

    pointers: ctypes.Array[ctypes.c_void_p]
    values: tuple[Any, ...]


def pack_parameters(plan: LaunchPlan, arrays: Mapping[str, ArrayView]) -> Parameters:
    """Fill the addresses of a call's arrays into a plan's arguments."""
    values: list[Any] = []
    addresses: list[int] = []
    for argument in plan.arguments:
        if isinstance(argument, TensorMapArgument):
            tensor_map = encode_for_driver(argument.layout, arrays[argument.array].address)
            values.append(tensor_map)
            addresses.append(tensor_map.address)
        elif isinstance(argument, PointerArgument):
            pointer = ctypes.c_uint64(0 if argument.array is None else arrays[argument.array].address)
            values.append(pointer)
            addresses.append(ctypes.addressof(pointer))
        else:
            assert isinstance(argument, ScalarArgument)
            scalar = ctypes.create_string_buffer(argument.value.tobytes(), argument.value.nbytes)
            values.append(scalar)
            addresses.append(ctypes.addressof(scalar))
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    return Parameters(pointers, tuple(values))


def stream_handle(stream: object) -> int:
    """Return the driver's handle of a stream.

    Parameters
    ----------
    stream : int or object
        The handle, or an object with ``__cuda_stream__``, ``ptr`` (CuPy) or ``cuda_stream`` (PyTorch).

    Raises
    ------
    LaunchError
        It is none of these.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        _, handle = protocol() if callable(protocol) else protocol
        return int(handle)
    for attribute in ("ptr", "cuda_stream"):  # CuPy's, PyTorch's
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    raise LaunchError(f"stream: {stream!r}; expected a CUDA stream's handle, or an object with __cuda_stream__")


class _Current:
    """Makes a device's primary context current for the duration, as the caller's other libraries use it."""

    def __init__(self, driver: Any, device: Any) -> None:
        self._driver = driver
        self._device = device

    def __enter__(self) -> None:
        driver = self._driver
        result, self._before = driver.cuCtxGetCurrent()
        _check(driver, result)
        self._device.set_current()

    def __exit__(self, *_: object) -> None:
        (result,) = self._driver.cuCtxSetCurrent(self._before)
        _check(self._driver, result)


def _require_driver() -> Any:
    try:
        from cuda.bindings import driver
        from cuda.core import Device  # noqa: F401 - only to see that it is there
    except ImportError as error:
        raise DeviceNotFoundError(f"cuda.core is not installed ({error}). {_INSTALL}") from error
    try:
        (result,) = driver.cuInit(0)
    except RuntimeError as error:  # libcuda cannot be found
        raise DeviceNotFoundError(f"there is no CUDA driver ({error})") from error
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DeviceNotFoundError(f"the CUDA driver does not start: {result.name}")
    return driver


def _check(driver: Any, result: Any) -> None:
    if result != driver.CUresult.CUDA_SUCCESS:
        raise LaunchError(f"the CUDA driver says {result.name}")


def device_count() -> int:
    """Return how many CUDA devices there are: 0 without a driver or without its Python bindings."""
    try:
        driver = _require_driver()
    except DeviceNotFoundError:
        return 0
    result, count = driver.cuDeviceGetCount()
    return int(count) if result == driver.CUresult.CUDA_SUCCESS else 0
