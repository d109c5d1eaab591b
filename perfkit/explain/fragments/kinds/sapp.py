"""SAPP's files: what its peaks say of layers and ends, or the layers as they are written."""

from __future__ import annotations

from perfkit.core.figure import figure
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.predict.plans.balance.sapp import is_sapp, read_sapp


def _read(piece: Piece) -> Part:
    problem = read_sapp(piece.text, piece.name)
    figures = []
    for layer in problem.body:
        figures.append(
            figure(say("{name}, forward", name=layer.name), layer.fwd_ns, "ns", "reported", "a third of its time, as SAPP takes it")
        )
        figures.append(
            figure(
                say("{name}, states", name=layer.name),
                layer.param_bytes,
                "bytes",
                "computed",
                "found from the peaks, or as written",
            )
        )
        figures += [
            figure(
                say("{name}, kept with recomputation {kind}", name=layer.name, kind=kind),
                value.act_bytes,
                "bytes",
                "computed",
                "of a micro batch",
            )
            for kind, value in layer.kinds.items()
        ]
    for name, end in (("first stage", problem.head), ("last stage", problem.tail)):
        if end is not None:
            figures.append(
                figure(
                    say("{name}, states beside layers", name=name),
                    end.param_bytes,
                    "bytes",
                    "computed",
                    "found from the peaks, or as written",
                )
            )
    return Part(
        kind=FRAGMENT.name,
        title=say("a file of SAPP: {layers} layers, {stages} stages", layers=problem.num_layers, stages=problem.num_stages),
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
