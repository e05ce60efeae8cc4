"""Scale factors of the block-scaled ``tcgen05.mma`` (PTX ISA 9.7.16.10.7): layout, checks, values.

Row m of A (or column n of B) has its factors in lane m % 32 of column m // 32 behind the operand's address, one byte
for each block of K: byte ID for one block, bytes ID and ID + 1 for two, the whole word for four. All four lane
partitions of tensor memory hold the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from umma_jit.emulator.isa._machine import Site, clocks_of
from umma_jit.emulator.isa.registry import Unsupported
from umma_jit.emulator.isa.tcgen05 import report_conflict
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.tensor_memory import HALVES, TensorMemoryMisuse, granules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.instruction_descriptor import InstructionDescriptor
    from umma_jit.emulator.launch import Cta

__all__ = ["SCALED_KINDS", "SCALE_MODIFIERS", "ScaleFactors", "blocks_of"]

SCALED_KINDS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
SCALE_MODIFIERS = ("block_scale", "scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
_ALLOWED = {
    "mxf8f6f4": {"": 1, "scale_vec::1X": 1, "block32": 1},
    "mxf4": {"": 2, "scale_vec::2X": 2, "block32": 2},
    "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
}
_SLAB = 32
_E8M0_NAN = 255


def blocks_of(kind: str, parts: tuple[str, ...]) -> int:
    """Scale factors for a row in one instruction: 1, 2 or 4.

    Raises
    ------
    Unsupported
        A combination that Table 57 does not have.
    """
    given = next((part for part in parts if part.startswith(("scale_vec::", "block1", "block3"))), "")
    if given not in _ALLOWED[kind]:
        raise Unsupported(f".kind::{kind} with {', '.join(f'.{name}' for name in _ALLOWED[kind] if name)}")
    return _ALLOWED[kind][given]


def _values(raw: NDArray[np.uint8], kind: str) -> NDArray[np.float64]:
    if kind == "ue4m3":
        values: NDArray[np.float64] = (raw & np.uint8(0x7F)).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        return values
    powers: NDArray[np.float64] = np.where(raw == _E8M0_NAN, np.nan, np.ldexp(1.0, raw.astype(np.int32) - 127))
    return powers


class ScaleFactors:
    """The factors of one operand of one MMA.

    Parameters
    ----------
    site
        The MMA.
    side
        ``"A"`` or ``"B"``.
    address
        Tensor-memory address of the factors.
    rows
        M of a CTA, or N.
    blocks
        Factors for each row.
    idesc
        Says type and ID.
    members
        The CTAs that take part.
    """

    def __init__(
        self,
        site: Site,
        side: str,
        address: int,
        rows: int,
        blocks: int,
        idesc: InstructionDescriptor,
        members: list[Cta],
    ) -> None:
        self._site = site
        self._side = side
        self._rows = rows
        self._blocks = blocks
        self._members: list[Cta] = members
        self._id = idesc.a_scale_id if side == "A" else idesc.b_scale_id
        self._kind = idesc.scale or ""
        self._column = address & 0xFFFF
        self._count = -(-rows // _SLAB)
        what = f"scale factors of {side}"
        try:
            if address >> 16:
                raise TensorMemoryMisuse(
                    "invalid_datapath_alignment",
                    f"address {address:#x} of the {what} has a lane",
                    "give the column only",
                )
            if self._id % min(blocks, 4):
                raise TensorMemoryMisuse(
                    "mma.scale-id",
                    f"ID {self._id} of the {what} with {blocks} for a row",
                    "use a multiple of that number",
                )
            for cta in members:
                cta.tmem.check_columns(self._column, self._count, what)
        except Misuse as misuse:
            site.fault(misuse)

    def enter(self, agent: int) -> None:
        """Enter the read in the hazard checks."""
        clocks = clocks_of(self._site.ctx)
        order = clocks.order[agent]
        where = granules(self._column, self._count, tuple(range(HALVES)))
        own_store = clocks.tensor_store(self._site.ctx.cta.rank, self._site.warp)
        for cta in self._members:
            conflict = cta.tmem.shadow.unordered_write(where, order, last=own_store)
            if conflict is not None:
                report_conflict(self._site, conflict, f"the MMA reads scale factors of {self._side} from", "tmem.race")
            cta.tmem.shadow.mark_read(where, agent, int(order[agent]), self._site.line)

    def read(self) -> list[NDArray[np.float64]]:
        """Values (rows, blocks) in each CTA."""
        found = []
        columns = slice(self._column, self._column + self._count)
        for cta in self._members:
            words = cta.tmem.words[columns].reshape(self._count, 4, _SLAB)
            if not cta.tmem.written[columns].reshape(-1, _SLAB)[:, : min(_SLAB, self._rows)].all():
                self._report(
                    "tmem.uninitialised", "were not written in all lanes", "tcgen05.st or tcgen05.cp them first"
                )
            elif (words != words[:, :1]).any():
                self._report("mma.scale-copies", "differ between the four lane partitions", "store them in all four")
            raw = np.ascontiguousarray(words[:, 0]).reshape(-1, 1).view(np.uint8)[: self._rows]
            found.append(_values(np.ascontiguousarray(raw[:, self._id : self._id + self._blocks]), self._kind))
        return found

    def _report(self, rule: str, what: str, remedy: str) -> None:
        self._site.finding(
            rule=rule,
            message=f"the scale factors of {self._side} in columns from {self._column} on {what}",
            remedy=remedy,
        )
