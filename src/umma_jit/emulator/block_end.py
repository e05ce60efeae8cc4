"""What must be true when a block has ended: nothing of it is still held, in flight or owed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from umma_jit.emulator.context import Context

if TYPE_CHECKING:
    from umma_jit.emulator.in_flight import Groups
    from umma_jit.emulator.launch import Cluster, Cta, Launch
    from umma_jit.emulator.nodes import Instruction

__all__ = ["check_block_end", "check_cluster_end"]

Report = Callable[..., None]


def check_block_end(launch: Launch, cta: Cta, last: Instruction) -> None:
    """Report tensor memory not freed, copies not waited for and transactions that never matched.

    Call it when all warps of the CTA have exited and the engine has nothing of it in flight any more.

    Parameters
    ----------
    launch, cta
        The block.
    last
        An instruction to place the findings at, such as the last ``ret``.
    """
    ctx = Context(launch, cta, 0, 1)

    def report(rule: str, message: str, remedy: str, severity: str = "error") -> None:
        ctx.finding_at(last, None, rule=rule, message=message, remedy=remedy, severity=severity)

    for base, columns in cta.tmem.allocations.items():
        report(
            "tmem.dealloc-missing",
            f"the block exits with {columns} columns of tensor memory at {base:#x} allocated",
            "tcgen05.dealloc them in one warp after the last use; without it the next block of the SM blocks",
        )
    for key, groups in launch.engine.in_flight.groups_of_cta(id(cta)):
        _check_groups(report, key, groups)
    for offset, barrier in sorted(cta.shared.barriers.items()):
        if barrier.tx:
            report(
                "mbarrier.tx-unmatched",
                f"the mbarrier at {offset:#x} ends phase {barrier.phase} with a tx-count of {barrier.tx} bytes: "
                "what was expected and what the copies delivered differ",
                "expect exactly the bytes of the copies, filled elements included",
            )
    launch.engine.in_flight.forget_cta(id(cta))


def check_cluster_end(launch: Launch, cluster: Cluster, last: Instruction) -> None:
    """Report asynchronous work that outlives the shared and tensor memory it works on.

    Call it when all threads of the cluster have exited, before the rest of its work completes.
    """
    operations = launch.engine.held_by(cluster)
    if operations:
        names = ", ".join(dict.fromkeys(f"{op.name} (PTX line {op.line})" for op in operations))
        Context(launch, cluster.ctas[0], 0, 1).finding_at(
            last,
            None,
            rule="async.outlives-block",
            message=f"all threads have exited while this is still in flight: {names}; it will work on memory that the "
            "next block has by then",
            remedy="wait for the mbarrier that it arrives on before the last thread exits",
        )


def _check_groups(report: Report, key: object, groups: Groups) -> None:
    assert isinstance(key, tuple)
    _, kind, warp, lane = key
    pending = groups.unread() if kind == "bulk" else [e for g in groups.committed for e in g] + groups.open
    if not pending:
        return
    name = pending[0][1].name
    if kind == "bulk":
        report(
            "bulk.not-waited",
            f"thread {lane} of warp {warp} exits without waiting for {name} (PTX line {pending[0][1].line}), whose "
            "source is the block's shared memory",
            "cp.async.bulk.commit_group, then cp.async.bulk.wait_group.read 0 before the block exits",
        )
    elif kind == "cp.async":
        report(
            "cp-async.not-waited",
            f"warp {warp} exits without waiting for {name} (PTX line {pending[0][1].line})",
            "cp.async.wait_all, or an mbarrier with cp.async.mbarrier.arrive",
            "warning",
        )
    else:
        report(
            "wgmma.not-waited",
            f"warp {warp} exits without waiting for {name} (PTX line {pending[0][1].line})",
            "wgmma.commit_group and wgmma.wait_group 0 before the accumulator is used",
        )
