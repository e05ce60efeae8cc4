from __future__ import annotations

import re
import sys

import pytest

from umma_jit import _compile
from umma_jit._compile import compile_image, compile_images, compiler_identity, nvrtc_options
from umma_jit._image import ResourceUsage
from umma_jit._source import KernelSource
from umma_jit.errors import CompileError, CompilerNotFoundError, UnsupportedArchError

KERNEL = """\
extern "C" __global__ void scale(float* x) {
    __shared__ float y[64];
    y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = 2 * y[threadIdx.x ^ 1];
}
"""


def source(text: str = KERNEL, arch: str = "sm_100a", entry: str = "scale") -> KernelSource:
    return KernelSource(text=text, entry=entry, arch=arch, options=("--std=c++17", "-default-device"))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_one_compile_gives_cubin_and_ptx_of_the_arch(arch):
    cubin, ptx = compile_images(source(arch=arch))
    assert cubin.payload.startswith(b"\x7fELF")
    assert f".target {arch}" in ptx.text
    assert ".entry scale" in ptx.text
    assert "\0" not in ptx.text
    assert cubin.resources.static_shared_bytes == 256
    assert cubin.resources.registers > 0
    assert (cubin.resources.stack_bytes, cubin.resources.spill_store_bytes) == (0, 0)


def test_ptx_alone_is_the_same_text():
    # What the emulator runs must be what ptxas reads on the way to the cubin.
    assert compile_image(source(), "ptx").payload == compile_images(source())[1].payload


def test_kinds_come_in_the_order_asked_for():
    assert [image.kind for image in compile_images(source(), ("ptx", "cubin"))] == ["ptx", "cubin"]
    with pytest.raises(ValueError, match="kinds"):
        compile_images(source(), ("sass",))


def test_compiling_twice_gives_the_same_bytes():
    assert compile_image(source()).digest == compile_image(source()).digest


def test_the_identity_has_a_patch_level_and_a_build():
    version, build = compiler_identity().split()
    assert len(version.split(".")) == 3
    assert build


def test_an_error_shows_the_log_and_the_line_with_its_neighbours():
    text = KERNEL.replace("2 * y", "2 * nothing")
    with pytest.raises(CompileError) as caught:
        compile_image(source(text))
    message = str(caught.value)
    assert 'identifier "nothing" is undefined' in message
    assert ">     5 |     x[threadIdx.x] = 2 * nothing[threadIdx.x ^ 1];" in message
    assert "      4 |     __syncthreads();" in message
    assert "sm_100a" in message
    assert caught.value.source == text


def test_an_error_in_a_header_names_the_header_and_shows_its_line(monkeypatch, tmp_path):
    (tmp_path / "h.cuh").write_text("int fine;\nint broken = nonsense;\n")
    monkeypatch.setattr(_compile, "templates_directory", lambda: tmp_path)
    text = '#line 1 "h.cuh"\n' + (tmp_path / "h.cuh").read_text()
    with pytest.raises(CompileError) as caught:
        compile_images(source(text), ["ptx"])
    message = str(caught.value)
    assert "h.cuh(2): error" in message
    assert "h.cuh:\n" in message
    assert re.search(r">\s+2 \| int broken = nonsense;", message)


def test_an_error_of_ptxas_shows_the_line_of_ptx():
    text = KERNEL.replace("__syncthreads();", 'asm volatile("tcgen05.nonsense;");')
    with pytest.raises(CompileError) as caught:
        compile_image(source(text))
    assert "the PTX that ptxas refused" in str(caught.value)
    assert "| \ttcgen05.nonsense;" in str(caught.value)


def test_tcgen05_exists_for_sm_100a_and_not_for_hopper():
    text = KERNEL.replace("__syncthreads();", 'asm volatile("tcgen05.wait::ld.sync.aligned;");')
    compile_image(source(text))
    with pytest.raises(CompileError):
        compile_image(source(text, "sm_90a"))


def test_an_arch_without_its_suffix_is_refused_before_nvrtc_sees_it(monkeypatch):
    monkeypatch.setattr(_compile, "_run", None)
    with pytest.raises(UnsupportedArchError):
        compile_image(source(arch="sm_100"))


def test_options_are_exact():
    assert nvrtc_options(source(), "ptx") == ("--gpu-architecture=compute_100a", "--std=c++17", "-default-device")
    assert nvrtc_options(source(), "cubin")[0] == "--gpu-architecture=sm_100a"


def test_without_the_bindings_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    _compile._nvrtc.cache_clear()
    try:
        with pytest.raises(CompilerNotFoundError, match="pip install"):
            compile_image(source())
    finally:
        monkeypatch.undo()
        _compile._nvrtc.cache_clear()


LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_100a'
ptxas info    : Function properties for other
ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compiling entry function 'mine' for 'sm_100a'
ptxas info    : Function properties for mine
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers
"""


def test_resources_are_those_of_the_entry():
    assert ResourceUsage.from_ptxas_log(LOG, "other") == ResourceUsage(
        registers=255,
        stack_bytes=16,
        spill_store_bytes=4,
        spill_load_bytes=8,
        static_shared_bytes=1024,
        barriers=1,
    )
    mine = ResourceUsage.from_ptxas_log(LOG, "mine")
    assert (mine.registers, mine.stack_bytes, mine.static_shared_bytes, mine.barriers) == (168, 0, 0, 16)
    assert ResourceUsage.from_ptxas_log(LOG, "absent") is None
    assert ResourceUsage.from_dict(mine.to_dict()) == mine
