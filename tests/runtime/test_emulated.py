"""The adapter alone, over a stand-in for the emulator; the real one runs in the tests of the kernels."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from umma_jit._arrays import view
from umma_jit._image import KernelImage
from umma_jit._plan import LaunchPlan, PointerArgument, ScalarArgument, TensorMapArgument, TensorMapLayout
from umma_jit.errors import ArchMismatchError, EmulationError, LaunchError
from umma_jit.runtime.emulated import EmulatedKernel, EmulatedRuntime, EmulationWarning

emulator = pytest.importorskip("umma_jit.emulator")
if not hasattr(emulator, "DeviceMemory"):
    pytest.skip("the emulator is not there", allow_module_level=True)

BF16 = np.dtype(ml_dtypes.bfloat16)


def image(**changes) -> KernelImage:
    fields = {"kind": "ptx", "arch": "sm_100a", "entry": "k", "payload": b"", "options": (), "compiler": ""}
    return KernelImage(**(fields | changes))


def finding(severity: str):
    return emulator.Finding(
        rule="r", severity=severity, message="m", remedy="do", line=7, opcode="op", source=None, cta=None, warp=None
    )


class StandIn:
    """A kernel that does in Python what it is told, on the emulated memory."""

    def __init__(self, body=lambda **_: None, findings=()) -> None:
        self.body = body
        self.findings = list(findings)

    def launch(self, *, progress=None, **arguments):
        self.arguments = arguments
        self.body(**arguments)
        return SimpleNamespace(findings=self.findings)


LAYOUT = TensorMapLayout(
    dtype="bfloat16", dims=(64, 8, 2, 1), strides_bytes=(256, 128, 2048), box=(64, 8, 1, 1), swizzle="128B"
)


def plan(*arguments) -> LaunchPlan:
    return LaunchPlan(grid=(2, 3, 4), cluster=(1, 1, 1), block=(512, 1, 1), shared_bytes=1000, arguments=arguments)


def launch(stand_in, plan, runtime=None, **arrays):
    runtime = runtime or EmulatedRuntime(schedule="lazy", seed=5)
    runtime.launch(EmulatedKernel("k", stand_in), plan, {n: view(a, n) for n, a in arrays.items()}, None)
    return runtime


def test_the_plan_reaches_the_emulator():
    q = np.ones((1, 8, 2, 64), BF16)
    stand_in = StandIn()
    launch(
        stand_in,
        plan(
            TensorMapArgument("q", LAYOUT),
            PointerArgument("q"),
            PointerArgument(None),
            ScalarArgument(np.int32(7)),
            ScalarArgument(np.float32(0.5)),
        ),
        q=q,
    )
    arguments = stand_in.arguments
    assert (arguments["grid"], arguments["block"], arguments["cluster"]) == ((2, 3, 4), (512, 1, 1), (1, 1, 1))
    assert (arguments["shared_bytes"], arguments["schedule"], arguments["seed"]) == (1000, "lazy", 5)
    tensor_map, pointer, null, number, scale = arguments["params"]
    assert isinstance(tensor_map, emulator.TensorMap)
    assert tensor_map.address == int(pointer) != 0
    assert (type(null), int(null)) == (np.uint64, 0)
    assert (type(number), number, type(scale), scale) == (np.int32, 7, np.float32, 0.5)


@pytest.mark.parametrize("layout", ["dense", "transposed", "padded"])
def test_arrays_go_in_and_come_out_with_their_strides(layout):
    def make():
        if layout == "transposed":
            return np.zeros((1, 2, 8, 64), BF16).transpose(0, 2, 1, 3)
        if layout == "padded":
            return np.zeros((1, 8, 2, 96), BF16)[..., :64]
        return np.zeros((1, 8, 2, 64), BF16)

    q, out = make(), make()
    q[...] = np.arange(q.size).reshape(q.shape) % 200
    if out.base is not None:
        out.base[...] = 3
    out[...] = 4

    def copy(memory, params, **_):
        """Copy q to out element by element, by the strides."""
        for index in np.ndindex(q.shape):
            offset = int(np.dot(index, q.strides))
            memory.write(int(params[1]) + offset, memory.read(int(params[0]) + offset, 2).copy())

    launch(StandIn(copy), plan(PointerArgument("q"), PointerArgument("out")), q=q, out=out)
    assert np.array_equal(out, q)
    if layout == "padded":
        assert (out.base[..., 64:] == 3).all()


def test_an_output_that_nobody_writes_comes_back_as_nan_between_untouched_neighbours():
    base = np.full((1, 8, 2, 96), 3, BF16)
    launch(StandIn(), plan(PointerArgument("out")), out=base[..., :64])
    assert np.isnan(base[..., :64].astype(np.float32)).all()
    assert (base[..., 64:] == 3).all()


def test_only_arrays_that_the_plan_names_are_uploaded():
    launch(StandIn(), plan(), k=np.zeros((1, 0, 2, 64), BF16))


def test_error_findings_are_a_typed_error_and_nothing_comes_out():
    out = np.zeros((1, 8, 2, 64), BF16)
    with pytest.raises(EmulationError, match=r"(?s)broke 1 rule.*\[r\].*line 7.*Remedy: do") as caught:
        launch(StandIn(findings=[finding("error"), finding("warning")]), plan(PointerArgument("out")), out=out)
    assert [f.severity for f in caught.value.findings] == ["error"]
    assert not out.astype(np.float32).any()


def test_warning_findings_are_a_warning():
    with pytest.warns(EmulationWarning, match="line 7"):
        launch(StandIn(findings=[finding("warning")]), plan())


def test_what_stops_the_emulator_is_the_cause():
    def stop(**_):
        raise emulator.EmulatorError("stuck", finding("error"))

    with pytest.raises(EmulationError, match="stuck") as caught:
        launch(StandIn(stop), plan())
    assert isinstance(caught.value.__cause__, emulator.EmulatorError)
    assert len(caught.value.findings) == 1


def test_the_latest_report_is_kept():
    assert launch(StandIn(), plan()).last_report.findings == []


def test_loads_ptx_of_its_own_arch_only():
    runtime = EmulatedRuntime("sm_100a")
    with pytest.raises(ArchMismatchError, match="sm_103a"):
        runtime.load(image(arch="sm_103a"))
    with pytest.raises(LaunchError, match="cubin"):
        runtime.load(image(kind="cubin"))
    with pytest.raises(LaunchError):
        runtime.load(image(payload=b"no PTX at all"))
