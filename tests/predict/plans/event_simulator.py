"""A pipeline run event by event: every stage is a process that receives, computes and sends, without a graph.

Messages are found by name, time moves to the next thing that can happen, and a deadlock is a state in which nothing can.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.predict.plans.schedule.order import Op, lanes
from perfkit.predict.plans.schedule.schedule import ScheduleCase

Route = list[tuple[int, int]]


def route_of(case: ScheduleCase, op: Op) -> Route:
    stages = range(case.num_stages)
    if case.schedule == "dualpipe":
        return [(op.chunk, stage) for stage in (stages if op.chunk == 0 else reversed(stages))]
    return [(chunk, stage) for chunk in range(case.num_chunks) for stage in stages]


def neighbours(case: ScheduleCase, op: Op, stage: int) -> tuple[tuple[Op, int] | None, tuple[Op, int] | None]:
    """(what `op` needs and where it runs, what needs it and where)."""
    route = route_of(case, op)
    here = route.index((op.chunk, stage))
    if op.kind == "W":
        return None, None
    step = -1 if op.kind == "F" else 1

    def at(place: int, kind: str) -> tuple[Op, int] | None:
        if not 0 <= place < len(route):
            return None
        chunk, where = route[place]
        return Op(kind, op.microbatch, chunk), where

    before, after = at(here + step, op.kind), at(here - step, op.kind)
    if op.kind == "B" and before is None:
        before = (Op("F", op.microbatch, op.chunk), stage)
    if op.kind == "F" and after is None:
        after = (Op("B", op.microbatch, op.chunk), stage)
    return before, after


def duration(case: ScheduleCase, op: Op, stage: int) -> int:
    chunk = op.chunk
    if case.schedule == "dualpipe":
        stage, chunk = (stage if op.chunk == 0 else case.num_stages - 1 - stage), 0
    rows = {"F": case.fwd_ns, "B": case.bwd_ns, "W": case.wgrad_ns}[op.kind]
    return 0 if rows is None else rows[chunk][stage]


def simulate_asynchronous(case: ScheduleCase) -> int:
    """The makespan with `none`, `overlap` or `sender`: sweep over the stages until nothing can start any more."""
    hop = 0 if case.p2p_mode == "none" else case.p2p_ns
    todo = [list(lane) for lane in lanes(case.schedule, case.num_stages, case.num_chunks, case.num_microbatches)]
    free, makespan = [0] * case.num_stages, 0
    ready: dict[tuple[Op, int], int] = {}  # when the output of an operation can be used at a stage
    moved = True
    while moved:
        moved = False
        for stage, items in enumerate(todo):
            while items:
                needs = [neighbours(case, op, stage)[0] for op in items[0]]
                if any(need is not None and (need[0], stage) not in ready for need in needs):
                    break
                start = max([free[stage], *(ready[need[0], stage] for need in needs if need is not None)])
                end = start + sum(duration(case, op, stage) for op in items[0])
                free[stage] = end
                for op in items[0]:
                    target = neighbours(case, op, stage)[1]
                    if target is not None:
                        away = target[1] != stage
                        ready[op, target[1]] = end + (hop if away else 0)
                        if away and case.p2p_mode == "sender":
                            free[stage] = end + hop
                makespan = max(makespan, end)
                items.pop(0)
                moved = True
    assert not any(todo), "deadlock"
    return makespan


def simulate_blocking(case: ScheduleCase) -> int:
    """The makespan with `rendezvous`: stages are generators that yield what they want to do next."""

    def stage_program(stage: int) -> Iterator[tuple[str, object]]:
        script: list[tuple[str, object]] = []
        for (op,) in lanes(case.schedule, case.num_stages, 1, case.num_microbatches)[stage]:
            before, after = neighbours(case, op, stage)
            if before is not None and before[1] != stage:
                script.append(("recv", (before[0], before[1], stage)))
            script.append(("compute", duration(case, op, stage)))
            if after is not None and after[1] != stage:
                script.append(("send", (op, stage, after[1])))
        return iter(script)

    scripts = [list(stage_program(stage)) for stage in range(case.num_stages)]
    at, clock, makespan = [0] * case.num_stages, [0] * case.num_stages, 0

    def wants(stage: int, ahead: int = 0) -> tuple[str, object]:
        position = at[stage] + ahead
        return scripts[stage][position] if position < len(scripts[stage]) else ("done", None)

    moved = True
    while moved:
        moved = False
        for stage in range(case.num_stages):
            what, thing = wants(stage)
            if what == "compute":
                clock[stage] += thing
                makespan = max(makespan, clock[stage])
                at[stage] += 1
                moved = True
            elif what == "send":
                other = thing[2]
                exchange = (
                    wants(stage, 1)[0] == "recv"
                    and wants(stage, 1)[1][1] == other
                    and wants(other) == ("send", wants(stage, 1)[1])
                    and wants(other, 1) == ("recv", thing)
                )
                if exchange or wants(other) == ("recv", thing):
                    clock[stage] = clock[other] = max(clock[stage], clock[other]) + case.p2p_ns
                    at[stage] += 2 if exchange else 1
                    at[other] += 2 if exchange else 1
                    moved = True
    assert all(wants(stage)[0] == "done" for stage in range(case.num_stages)), "deadlock"
    return makespan


def simulate(case: ScheduleCase) -> int:
    return simulate_blocking(case) if case.p2p_mode == "rendezvous" else simulate_asynchronous(case)
