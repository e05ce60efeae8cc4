"""Loads all instruction modules, and finds what executes an opcode."""

from __future__ import annotations

from umma_jit.emulator.isa import (
    async_copy,
    barrier,
    compare,
    convert,
    cp_async,
    data_movement,
    extended,
    fence,
    floating,
    integer,
    launch_control,
    matrix,
    mbarrier,
    tcgen05,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_transfer,
    tensormap,
    warp,
    wgmma,
)
from umma_jit.emulator.isa.registry import find_handler, find_operation, supported_opcodes

__all__ = ["MODULES", "find_handler", "find_operation", "supported_opcodes"]

MODULES = (
    integer,
    extended,
    floating,
    compare,
    convert,
    data_movement,
    warp,
    barrier,
    matrix,
    mbarrier,
    fence,
    cp_async,
    async_copy,
    tensormap,
    launch_control,
    tcgen05,
    tcgen05_transfer,
    tcgen05_copy,
    tcgen05_mma,
    wgmma,
)
"""In the order of the PTX ISA's chapters."""
