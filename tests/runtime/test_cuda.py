"""What can be said of the CUDA runtime without a GPU: over a stand-in for the driver."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from umma_jit._arrays import ArrayLayout, ArrayView
from umma_jit._image import KernelImage
from umma_jit._plan import LaunchPlan, PointerArgument, ScalarArgument, TensorMapArgument, TensorMapLayout
from umma_jit.errors import ArchMismatchError, DeviceNotFoundError, LaunchError
from umma_jit.runtime import cuda as cuda_runtime
from umma_jit.runtime import tensor_map
from umma_jit.runtime.cuda import CudaKernel, CudaRuntime, pack_parameters, stream_handle

driver = pytest.importorskip("cuda.bindings.driver")

LAYOUT = TensorMapLayout(
    dtype="float16", dims=(64, 8, 2, 1), strides_bytes=(256, 128, 2048), box=(64, 8, 1, 1), swizzle="128B"
)
VIEW = ArrayView(ArrayLayout((1, 8, 2, 64), (2048, 256, 128, 2), np.dtype(np.float16), 0, True), 0xABC0, None)
OK = driver.CUresult.CUDA_SUCCESS


@pytest.fixture
def encoder(monkeypatch):
    """An encoder of tensor maps that writes the address into the first eight bytes."""

    def encode(target, dtype, rank, address, *_):
        ctypes.c_uint64.from_address(target).value = address
        return 0

    monkeypatch.setattr(tensor_map, "driver_encoder", lambda: encode)
    tensor_map.encode_for_driver.cache_clear()
    yield
    tensor_map.encode_for_driver.cache_clear()


def test_parameters_are_pointers_to_values_in_the_kernels_order(encoder):
    plan = LaunchPlan(
        grid=(1, 1, 1),
        cluster=(1, 1, 1),
        block=(128, 1, 1),
        shared_bytes=0,
        arguments=(
            TensorMapArgument("q", LAYOUT),
            PointerArgument("out"),
            PointerArgument(None),
            ScalarArgument(np.int64(-5)),
            ScalarArgument(np.int32(7)),
            ScalarArgument(np.float32(0.5)),
        ),
    )
    parameters = pack_parameters(plan, {"q": VIEW, "out": VIEW._replace(address=0xDEF0)})
    pointers = list(parameters.pointers)
    read = [
        kind.from_address(p).value
        for kind, p in zip(
            [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.c_float],
            pointers,
            strict=True,
        )
    ]
    assert read == [0xABC0, 0xDEF0, 0, -5, 7, 0.5]
    assert pointers[0] % 64 == 0  # the driver demands it of a tensor map


class Callable:
    def __cuda_stream__(self):
        return (0, 11)


class Property:
    __cuda_stream__ = (0, 12)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (0, 0),
        (7, 7),
        (Callable(), 11),
        (Property(), 12),
        (SimpleNamespace(ptr=13), 13),
        (SimpleNamespace(cuda_stream=14), 14),
    ],
)
def test_streams_of_every_kind(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["default", True, object(), 1.5])
def test_what_is_no_stream(stream):
    with pytest.raises(LaunchError, match="stream"):
        stream_handle(stream)


def test_without_a_driver_there_is_a_typed_error_and_no_hang(monkeypatch):
    def missing(flags):
        raise RuntimeError("libcuda is not there")

    pytest.importorskip("cuda.core")
    monkeypatch.setattr(driver, "cuInit", missing)
    with pytest.raises(DeviceNotFoundError, match="no CUDA driver"):
        CudaRuntime(0)
    assert cuda_runtime.device_count() == 0


def test_without_cuda_core_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cuda.core", None)
    with pytest.raises(DeviceNotFoundError, match="pip install"):
        CudaRuntime(0)


class FakeDriver:
    """Notes launches; everything else is the real bindings' types."""

    def __init__(self) -> None:
        self.launches = []
        self.result = OK
        self.current = "before"

    def __getattr__(self, name):
        return getattr(driver, name)

    def cuCtxGetCurrent(self):  # noqa: N802
        return OK, self.current

    def cuCtxSetCurrent(self, context):  # noqa: N802
        self.current = context
        return (OK,)

    def cuLaunchKernelEx(self, config, function, parameters, extra):  # noqa: N802
        self.launches.append((config, int(function), parameters, extra, self.current))
        return (self.result,)


@pytest.fixture
def runtime():
    made = object.__new__(CudaRuntime)
    made.ordinal = 0
    made.arch = "sm_100a"
    made._driver = FakeDriver()
    made._device = SimpleNamespace(name="fake", set_current=lambda: setattr(made._driver, "current", "device"))
    return made


KERNEL = CudaKernel(entry="k", handle=0x1234, owner=None, registers=168, local_bytes=0)
PLAN = LaunchPlan(grid=(2, 3, 4), cluster=(1, 1, 1), block=(512, 1, 1), shared_bytes=1000, arguments=())


def test_a_launch_is_on_the_stream_with_the_devices_context_and_restores_the_callers(runtime):
    runtime.launch(KERNEL, PLAN, {"q": VIEW}, 77)
    ((config, function, _, _, current),) = runtime._driver.launches
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (2, 3, 4)
    assert (config.blockDimX, config.sharedMemBytes, int(config.hStream)) == (512, 1000, 77)
    assert (function, current) == (0x1234, "device")
    assert config.numAttrs == 0
    assert runtime._driver.current == "before"


def test_a_cluster_is_an_attribute_and_the_grid_still_counts_ctas(runtime):
    from dataclasses import replace

    runtime.launch(KERNEL, replace(PLAN, cluster=(2, 1, 1)), {"q": VIEW}, 77)
    config = runtime._driver.launches[0][0]
    assert config.numAttrs == 1
    assert config.attrs[0].value.clusterDim.x == 2
    assert config.gridDimX == 2


def test_a_failed_launch_says_what_was_launched(runtime):
    runtime._driver.result = driver.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(LaunchError, match=r"OUT_OF_RESOURCES.*1000 bytes"):
        runtime.launch(KERNEL, PLAN, {"q": VIEW}, 77)
    assert runtime._driver.current == "before"


def test_only_images_of_the_devices_own_arch_are_loaded(runtime):
    fields = {"entry": "k", "payload": b"\x7fELF", "options": (), "compiler": ""}
    with pytest.raises(ArchMismatchError, match="sm_103a"):
        runtime.load(KernelImage(kind="cubin", arch="sm_103a", **fields))
    with pytest.raises(LaunchError, match="ptx"):
        runtime.load(KernelImage(kind="ptx", arch="sm_100a", **fields))
