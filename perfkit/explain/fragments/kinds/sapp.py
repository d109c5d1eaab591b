"""SAPP's files: what its peaks say of layers and ends, or the layers as they are written."""

from __future__ import annotations

from perfkit.core.figure import figure
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.predict.plans.balance.sapp import is_sapp, read_sapp


def _read(piece: Piece) -> Part:
    problem = read_sapp(piece.text, piece.name)
    figures = []
    for layer in problem.body:
        figures.append(figure(f"{layer.name}, forward", layer.fwd_ns, "ns", "reported", "a third of its time, as SAPP takes it"))
        figures.append(
            figure(f"{layer.name}, states", layer.param_bytes, "bytes", "computed", "found from the peaks, or as written")
        )
        figures += [
            figure(f"{layer.name}, kept with recomputation {kind}", value.act_bytes, "bytes", "computed", "of a micro batch")
            for kind, value in layer.kinds.items()
        ]
    for name, end in (("first stage", problem.head), ("last stage", problem.tail)):
        if end is not None:
            figures.append(
                figure(f"{name}, states beside layers", end.param_bytes, "bytes", "computed", "found from the peaks, or as written")
            )
    return Part(
        kind=FRAGMENT.name,
        title=f"a file of SAPP: {problem.num_layers} layers, {problem.num_stages} stages",
        belongs="the argument of SAPP, or of `perfkit balance`",
        says=problem.assumptions,
        figures=tuple(figures),
    )


FRAGMENT = FragmentKind(
    name="sapp",
    title="a file of SAPP",
    looks_for="pipeline_config with memory_usage, or JSON with layers_description",
    order=0,
    claims=is_sapp,
    read=_read,
)
