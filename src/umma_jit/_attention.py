"""`attention`: the call, the straight line from arrays to result, top to bottom."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import ArrayLayout, ArrayView, dense_strides, empty_like, view
from ._problem import AttentionProblem, as_flag, as_scale, check_addresses
from .errors import ArgumentTypeError, LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    from ._image import KernelImage
    from ._plan import LaunchPlan
    from .runtime import Kernel, Runtime

__all__ = ["PreparedCall", "attention", "prepare"]


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
    out: Any = None,
    out_dtype: Any = None,
    stream: Any = None,
) -> Any:
    """Compute ``softmax(softmax_scale * q kᵀ) v`` per batch entry and head.

    Parameters
    ----------
    q : array
        (batch, seqlen_q, num_heads, head_dim), bfloat16 or float16. NumPy arrays (bfloat16 as ``ml_dtypes.bfloat16``)
        run on the emulated device; CuPy arrays and others with ``__cuda_array_interface__`` or DLPack on their CUDA
        device. Any strides whose last axis is contiguous and whose others are positive multiples of 16 bytes, at an
        address that is a multiple of 16: a transposed (batch, heads, seqlen, head_dim) array needs no copy.
    k, v : array
        (batch, seqlen_k, num_heads_kv, head_dim), as q; `num_heads_kv` divides `num_heads` (GQA, MQA).
    causal : bool
        Query i sees the keys j with ``j <= i + seqlen_k - seqlen_q``: aligned to the bottom right. A row that sees no
        key gives zeros, and -inf for the log-sum-exp.
    softmax_scale : float, optional
        Positive and finite; by default ``1 / sqrt(head_dim)``.
    return_lse : bool
        Return the log-sum-exp of the scaled scores as well.
    out : array, optional
        Where to write, such as for capture in a CUDA graph: shape of q, dtype of q or float32, not sharing memory with
        an input.
    out_dtype : dtype, optional
        Of the result: that of q, the default, or float32, which leaves out the last rounding.
    stream : optional
        CUDA only: a stream's handle, or an object with ``__cuda_stream__``. By default the caller's current stream in
        the library that q is from. The work is queued; nothing waits for it.

    Returns
    -------
    out : array
        (batch, seqlen_q, num_heads, head_dim), of the kind of q.
    lse : array of float32
        (batch, num_heads, seqlen_q), natural logarithm; only with `return_lse`.

    Raises
    ------
    ArgumentTypeError, UnsupportedProblemError
        An argument cannot be served: named, with what it was and what is expected. Nothing was compiled or launched.
    UnsupportedArchError
        There are no kernels for the device's architecture.
    DeviceNotFoundError, CompilerNotFoundError, CompileError, LaunchError
        What their names say. `EmulationError`, a `LaunchError`: the emulated device found the kernel at fault.

    Examples
    --------
    >>> import ml_dtypes, numpy as np
    >>> from umma_jit import attention
    >>> q, k, v = np.zeros((3, 1, 128, 2, 64), ml_dtypes.bfloat16)
    >>> attention(q, k, v, causal=True).shape  # doctest: +SKIP
    (1, 128, 2, 64)
    """
    views, prepared = _find(q, k, v, causal, softmax_scale, return_lse, out, out_dtype)
    check_addresses(views)
    problem = prepared.problem
    if out is None:
        out = _allocate(q, problem.out_shape, prepared.out_layout)
        views["out"] = ArrayView(prepared.out_layout, _address(out), out)
    lse = None
    if return_lse:
        lse = _allocate(q, problem.lse_shape, prepared.lse_layout)
        views["lse"] = ArrayView(prepared.lse_layout, _address(lse), lse)
    if prepared.kernel is not None:
        prepared.runtime.launch(prepared.kernel, prepared.plan, views, stream)
    return (out, lse) if return_lse else out


def _allocate(q: Any, shape: tuple[int, ...], layout: ArrayLayout) -> Any:
    try:
        return empty_like(q, shape, layout.dtype, layout.device)
    except MemoryError as error:
        raise OutOfMemoryError(f"no memory for a result of shape {shape} and dtype {layout.dtype}: {error}") from error


@dataclass(frozen=True, eq=False)
class PreparedCall:
    """All of a call that does not depend on addresses: what a warm call finds by one look-up.

    Attributes
    ----------
    problem : AttentionProblem
        What is asked.
    runtime : Runtime
        Where it runs.
    plan : LaunchPlan or None
        How it is launched; None if there is nothing to compute.
    kernel : Kernel or None
        What runs; None if there is nothing to compute.
    image : KernelImage or None
        What the kernel was loaded from.
    out_layout, lse_layout : ArrayLayout
        Of results that are allocated here.
    """

    problem: AttentionProblem
    runtime: Runtime
    plan: Any
    kernel: Any
    image: Any
    out_layout: ArrayLayout
    lse_layout: ArrayLayout


# Each layout and set of options that was called. Sequence lengths come in endless variety, so the oldest go.
_MOST_PREPARED_CALLS = 4096
_prepared_calls: dict[tuple[Any, ...], PreparedCall] = {}
_kernels: dict[tuple[Any, ...], tuple[Kernel, KernelImage]] = {}
_mutex = threading.Lock()


def prepare(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
    out: Any = None,
    out_dtype: Any = None,
) -> PreparedCall:
    """Return what a call with these arguments stands on, compiled and loaded, without running it."""
    return _find(q, k, v, causal, softmax_scale, return_lse, out, out_dtype)[1]


def _find(
    q: Any, k: Any, v: Any, causal: Any, softmax_scale: Any, return_lse: Any, out: Any, out_dtype: Any
) -> tuple[dict[str, ArrayView], PreparedCall]:
    """Read the arguments and look the call up; only a miss walks the line."""
    views = {"q": view(q, "q"), "k": view(k, "k"), "v": view(v, "v")}
    if out is not None:
        views["out"] = view(out, "out")
    # What may be a hashable stand-in for something else (1 for True, True for 1.0) is settled before the look-up.
    causal = causal if causal is True or causal is False else as_flag(causal, "causal")
    return_lse = return_lse if return_lse is True or return_lse is False else as_flag(return_lse, "return_lse")
    softmax_scale = as_scale(softmax_scale)
    out_layout = None if out is None else views["out"].layout
    key = (
        views["q"].layout,
        views["k"].layout,
        views["v"].layout,
        out_layout,
        causal,
        softmax_scale,
        return_lse,
        None if out_dtype is None else _dtype_name(out_dtype),
    )
    prepared = _prepared_calls.get(key)
    if prepared is None:
        # Addresses are no part of the key: they are checked before anything is compiled, and again for every call.
        AttentionProblem.from_layouts(
            *key[:4], causal=causal, softmax_scale=softmax_scale, return_lse=return_lse, out_dtype=key[7]
        )
        check_addresses(views)
        prepared = _prepare(*key)
        _remember(key, prepared)
    return views, prepared


def _prepare(
    q: ArrayLayout,
    k: ArrayLayout,
    v: ArrayLayout,
    out: ArrayLayout | None,
    causal: bool,
    softmax_scale: float | None,
    return_lse: bool,
    out_dtype: str | None,
) -> PreparedCall:
    """Walk the line of a cold call, up to the launch."""
    from . import backends, runtime

    problem = AttentionProblem.from_layouts(
        q, k, v, out, causal=causal, softmax_scale=softmax_scale, return_lse=return_lse, out_dtype=out_dtype
    )
    device = runtime.for_device(q.device)
    backend = backends.for_arch(device.arch)
    backend.check(problem)
    dtype = q.dtype if problem.out_dtype == problem.dtype else np.dtype(np.float32)
    out_layout = _dense_layout(problem.out_shape, dtype, q.device)
    lse_layout = _dense_layout(problem.lse_shape, np.dtype(np.float32), q.device)
    if problem.is_empty:
        return PreparedCall(problem, device, None, None, None, out_layout, lse_layout)
    config = backend.choose_config(problem)
    plan: LaunchPlan = backend.launch_plan(problem, config)
    kernel, image = _kernel(device, config)
    return PreparedCall(problem, device, plan, kernel, image, out_layout, lse_layout)


def _kernel(device: Runtime, config: Any) -> tuple[Kernel, KernelImage]:
    """Render, compile and load the kernel of a configuration, or find it."""
    key = (device, config)
    found = _kernels.get(key)
    if found is not None:
        return found
    from ._source import render
    from .cache import default_cache

    source = render(config, device.arch)
    cache = default_cache()
    image = cache.get_or_compile(source, device.image_kind, config.to_dict())
    try:
        kernel = device.load(image)
    except LaunchError:
        if image.origin != "disk":
            raise
        # What a cache hands out and a device refuses may be no longer what was once put in.
        image = cache.get_or_compile(source, device.image_kind, config.to_dict(), anew=True)
        kernel = device.load(image)
    return _kernels.setdefault(key, (kernel, image))


def _remember(key: tuple[Any, ...], prepared: PreparedCall) -> None:
    with _mutex:
        while len(_prepared_calls) >= _MOST_PREPARED_CALLS:
            del _prepared_calls[next(iter(_prepared_calls))]
        _prepared_calls[key] = prepared


def _dense_layout(shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> ArrayLayout:
    return ArrayLayout(shape, dense_strides(shape, dtype.itemsize), dtype, device, writable=True)


def _address(array: Any) -> int:
    """Return where an array made here begins."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    pointer = getattr(array, "data_ptr", None)  # PyTorch
    return int(array.data.ptr if pointer is None else pointer())


def _dtype_name(dtype: Any) -> str:
    """Return a dtype's name, whichever library it is from."""
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        name = str(dtype).rpartition(".")[2]  # torch.float32
        if name in ("bfloat16", "float16", "float32"):
            return name
        raise ArgumentTypeError("out_dtype", f"{dtype!r}", "a dtype: that of q, or float32") from None
