"""A whole configuration: what a dialect reads a plan from."""

from __future__ import annotations

from perfkit.config.dialects.compare import differences
from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.registry import dialect_named, recognised
from perfkit.config.lint import lint_text
from perfkit.config.lint.subjects import config_of
from perfkit.core.errors import InputError
from perfkit.core.figure import Figure, figure
from perfkit.core.params import count_params, trained_params
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.limits import assumed
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.reading import completed


def _plan(text: str) -> Plan | None:
    dialects = recognised(Document(name="fragment", text=text))
    if len(dialects) != 1:
        return None
    try:
        plan = config_of("fragment", text, dialects[0].name).plan
    except InputError:
        return None
    return None if plan is None else completed(plan)


def _read(piece: Piece) -> Part:
    plan = _plan(piece.text)
    if plan is None:
        raise ValueError("what is no configuration was taken for one")
    dialect = dialect_named(plan.document.dialect)
    problems = lint_text(f"fragment{dialect.suffix}", piece.text).problems
    says = [
        *plan.document.notes,
        *(
            say("{field} = {value}: {why}", field=one.field, value=str(one.value), why=one.why)
            for one in assumed(plan)
            if one.value is not None
        ),
    ]
    if piece.plan is not None:
        says += [say("not as in the project's plan: {difference}", difference=one) for one in differences(plan, piece.plan)]
    return Part(
        kind=FRAGMENT.name,
        title=say("a whole configuration: {dialect}", dialect=dialect.title),
        says=tuple(says),
        figures=(
            figure("parameters", float(count_params(plan.model).total), "", "computed", "sum of all weights"),
            *_trained(plan),
            figure("devices", plan.num_devices, "", "computed", "data x tensor x context x pipeline"),
            figure(
                "global batch", plan.workload.global_batch_size, "sequences", "computed", "micro batch x replicas x micro batches"
            ),
            figure(
                "training of a token",
                float(training_flops(plan.model, plan.workload.seq_length).total),
                "FLOP",
                "computed",
                "forward and backward of every product",
            ),
            figure("peak memory of a device", float(peak_memory(plan).peak.total), "bytes", "computed", "states and activations"),
        ),
        problems=tuple(
            piece.problem(one.rule, one.severity, one.message, line=one.line, key=one.key, fix=one.fix) for one in problems
        ),
    )


def _trained(plan: Plan) -> list[Figure]:
    """How many parameters are trained, where that is not all of them."""
    if plan.model.adapters is None and plan.model.trained_layers is None:
        return []
    whose = "those of the adapters" if plan.model.adapters else "those that are not frozen"
    return [figure("trained parameters", float(trained_params(plan.model).total), "", "computed", whose)]


FRAGMENT = FragmentKind(
    name="configuration",
    title="a whole configuration",
    looks_for="a text that a dialect reads a plan from",
    order=0,
    claims=lambda text: _plan(text) is not None,
    read=_read,
)
