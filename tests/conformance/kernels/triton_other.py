"""Kernels in Triton without matrix instructions: reductions, scans, sorting, atomics, gathers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    """Softmax of one row; the row's tail is masked."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    shifted = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, shifted / tl.sum(shifted, 0), mask=at < columns)


@triton.jit
def layer_norm(x, weight, bias, y, columns, epsilon, BLOCK: tl.constexpr):
    """Layer normalisation of one row of 16-bit values."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / columns
    scale = tl.load(weight + at, mask=inside, other=0.0)
    shift = tl.load(bias + at, mask=inside, other=0.0)
    result = centred * tl.rsqrt(variance + epsilon) * scale + shift
    tl.store(y + row * columns + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def scan(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Cumulative sums along the rows."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tl.cumsum(tl.load(x + at), 1))


@triton.jit
def sort(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sort the rows."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tl.sort(tl.load(x + at), 1))


@triton.jit
def best(x, values, places, columns, BLOCK: tl.constexpr):
    """Largest value of a row and where it is."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(values + row, tl.max(value, 0))
    tl.store(places + row, tl.argmax(value, 0))


@triton.jit
def gather(table, index, y, n, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of a table by index."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.arange(0, WIDTH)
    inside = (rows[:, None] < n) & (at[None, :] < width)
    which = tl.load(index + rows, mask=rows < n, other=0)
    value = tl.load(table + which[:, None] * width + at[None, :], mask=inside, other=0.0)
    tl.store(y + rows[:, None] * width + at[None, :], value, mask=inside)


@triton.jit
def atomics(index, weight, counts, sums, largest, lock, n, BLOCK: tl.constexpr):
    """Histogram, weighted sums and maxima per bucket, and a compare-and-swap."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    bucket = tl.load(index + at, mask=inside, other=0)
    value = tl.load(weight + at, mask=inside, other=0.0)
    tl.atomic_add(counts + bucket, 1, mask=inside)
    tl.atomic_add(sums + bucket, value, mask=inside)
    tl.atomic_max(largest + bucket, (value * 16.0).to(tl.int32), mask=inside)
    if tl.atomic_cas(lock, 0, 1) == 0:
        tl.atomic_add(lock + 1, 7)


@triton.jit
def transpose(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Transpose a tile through shared memory."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    value = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(y + columns[:, None] * ROWS + rows[None, :], tl.trans(value))


@triton.jit
def integers(x, y, z, BLOCK: tl.constexpr):
    """Integer arithmetic of several widths."""
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    wide = a.to(tl.int64) * b.to(tl.int64)
    result = (a // b) ^ (a % b)
    result += tl.umulhi(a.to(tl.uint32), b.to(tl.uint32)).to(tl.int32)
    result += (wide >> 7).to(tl.int32)
    result ^= (a << 3) | (b >> 2)
    result += tl.minimum(a, b) - tl.maximum(a, b) + tl.abs(a)
    tl.store(z + at, result)


@triton.jit
def conversions(x, y, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """To a narrow type and back."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at).to(DTYPE).to(tl.float32))


@triton.jit
def functions(x, y, BLOCK: tl.constexpr):
    """Elementary functions, one row of results each."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(y + at, tl.exp(value))
    tl.store(y + BLOCK + at, tl.log(value))
    tl.store(y + 2 * BLOCK + at, tl.sqrt(value))
    tl.store(y + 3 * BLOCK + at, tl.sin(value))
    tl.store(y + 4 * BLOCK + at, tl.cos(value))
    tl.store(y + 5 * BLOCK + at, tl.erf(value))
    tl.store(y + 6 * BLOCK + at, tl.rsqrt(value))
    tl.store(y + 7 * BLOCK + at, tl.floor(value * 3.7))
    tl.store(y + 8 * BLOCK + at, tl.div_rn(1.0, value))
    tl.store(y + 9 * BLOCK + at, tl.sigmoid(value))
