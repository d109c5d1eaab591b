"""The reader of graph files: what it reads in every version, what it says about damage, and that nothing makes it fail."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.explain.graph.model import parameter_of
from perfkit.explain.graph.parse import read_file, read_stream
from perfkit.explain.graph.report import analyse

IR = Path(__file__).resolve().parents[2] / "data" / "ir"
WHOLE = sorted(path for path in IR.glob("**/*validate*.ir") if "malformed" not in path.parts)
SMALL = (IR / "malformed/junk_lines.ir").read_bytes()


def read(data: bytes):
    return read_stream(io.BytesIO(data), name="given.ir")


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_counts_agree_with_those_that_the_file_states(path):
    file = read_file(path)
    text = path.read_text(encoding="utf-8")
    stated = file.header.get("Total number of cnodes")
    assert file.complete
    assert (file.skipped_lines, file.repaired_lines, file.problems) == (0, 0, ())
    assert stated is None or int(stated) == file.node_lines + text.count("  Return(")
    assert len(file.subgraphs) == int(file.header.get("Total subgraphs", "6"))
    assert len(file.parameters) == int(file.header["Total params"])


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_argument_is_an_earlier_operator_or_a_parameter(path):
    file = read_file(path)
    for node in file.nodes():
        for place, argument in enumerate(node.arguments):
            if argument.startswith("%") and parameter_of(argument) is None:
                source = file.source(node, place)
                assert source is not None
                assert source.id < node.id


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_collectives_change_shapes_by_the_size_of_their_group(path):
    for entry in analyse(read_file(path)).communications:
        assert entry.ranks is not None
        assert len(entry.ranks) == entry.group_size
        given, made = entry.in_shape, entry.out_shape
        if entry.op == "AllReduce":
            assert given == made
        elif entry.op == "AllGather":
            assert made == (given[0] * entry.group_size, *given[1:])
        else:
            assert entry.op == "ReduceScatter"
            assert given == (made[0] * entry.group_size, *made[1:])


def test_ids_restart_in_each_sub_graph():
    file = read_file(IR / "control_flow/21_validate_0076.ir")
    assert len(file.subgraphs) == 6
    assert {min(subgraph.nodes) for subgraph in file.subgraphs if subgraph.nodes} == {0}
    assert file.node_lines == 18
    called = next(node for node in file.nodes() if node.op == "%3")
    assert called.arguments == ()


def test_source_lines_of_user_code_are_kept():
    file = read_file(IR / "control_flow/21_validate_0076.ir")
    switch = next(node for node in file.nodes() if node.op == "Switch")
    assert switch.sources[-1].startswith("<src>/control_flow.py:12~14")


def test_back_end_graphs_with_several_type_lines_are_read():
    file = read_file(IR / "control_flow/graph_build_0_0104.ir")
    assert (file.node_lines, file.skipped_lines) == (3, 0)


@pytest.mark.parametrize(
    ("name", "nodes", "skipped", "lines"),
    [
        ("malformed/truncated_mid_line.ir", 35, 0, [200]),
        ("malformed/crlf_and_bom.ir", 36, 0, []),
        ("malformed/junk_lines.ir", 39, 2, [203, 204]),
        ("malformed/bad_utf8.ir", 37, 0, [203]),
        ("malformed/two_graphs_concatenated.ir", 36, 0, [205]),
        ("malformed/guide_ocr_allreduce.txt", 2, 0, [1, 5]),
        ("old_formats/v1_3_header_and_conv.ir", 2, 0, []),
        ("old_formats/v1_8_parallel.ir", 8, 0, []),
        ("old_formats/v2_0_parallel.ir", 5, 0, []),
        ("old_formats/v2_1_parallel.ir", 4, 0, []),
        ("old_formats/v2_1_recompute.ir", 3, 1, [3]),
        ("guide_excerpts/guide_wq_excerpt.txt", 4, 0, []),
        ("guide_excerpts/guide_cast_duplicated.txt", 1, 0, []),
    ],
)
def test_damaged_old_and_quoted_files_are_read_as_far_as_they_go(name, nodes, skipped, lines):
    file = read_file(IR / name)
    assert (file.node_lines, file.skipped_lines) == (nodes, skipped)
    assert set(lines) <= {problem.line for problem in file.problems}
    assert file.complete == (name == "old_formats/v1_3_header_and_conv.ir")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("malformed/empty.ir", "is empty"),
        ("malformed/not_ir.ir", "is not a graph file: none of its 2 lines is an operator"),
        ("control_flow/final_actor_set.ir", "is an actor set or tracker graph"),
        ("no_such_file.ir", "cannot be read"),
    ],
)
def test_files_of_which_nothing_can_be_read_say_why(name, message):
    with pytest.raises(InputError, match=message):
        read_file(IR / name)


def test_the_guides_wq_product_has_its_shapes_and_strategy():
    file = read_file(IR / "guide_excerpts/guide_wq_excerpt.txt")
    assert [node.op for node in file.nodes()] == ["Load", "MatMul", "Reshape", "Transpose"]
    product = file.nodes()[1]
    assert [kind.shape for kind in product.in_types[:2]] == [(4096, 4096), (512, 4096)]
    assert product.out.shape == (4096, 512)
    assert product.attribute("in_strategy") == ((1, 1), (8, 1))
    assert product.attribute("origin_output_shape") == (4096, 4096)


def test_the_guides_recomputed_cast_has_its_sizes():
    (cast,) = read_file(IR / "guide_excerpts/guide_cast_duplicated.txt").nodes()
    assert cast.is_copy
    assert (cast.in_types[0].num_bytes, cast.out.num_bytes) == (33_554_432, 67_108_864)
    assert cast.attribute("recompute_id") == 65


def test_old_shapes_joined_with_the_type_are_scalars():
    assert read_file(IR / "old_formats/v1_3_header_and_conv.ir").nodes()[0].out.tensors == (("Float32", ()),)


def test_a_strategy_on_the_next_line_belongs_to_the_operator_above():
    nodes = {node.id: node for node in read_file(IR / "old_formats/v1_8_parallel.ir").nodes()}
    assert nodes[7].attribute("in_strategy") == ((2, 4), (4, 1))
    assert nodes[7].out.shape == (32, 64)


def test_a_name_that_attacks_a_page_is_kept_as_text():
    line = b"  %0(x) = <img/src=x>(%para1_x) {instance name: <script>}\n      : () -> ()\n"
    file = read(line)
    assert (file.nodes()[0].op, file.nodes()[0].instance_name) == ("<img/src=x>", "<script>")


def test_nothing_is_imported_or_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marker = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    read(f"  %0(x) = Op({code}) primitive_attrs: {{a: {code}}}\n      : (<Tensor[Float32], ({code})>) -> ()\n".encode())
    assert not marker.exists()


def judged(data: bytes):
    """What is said of `data`; None where it is refused, which must be by an InputError."""
    try:
        return analyse(read(data)).to_json()
    except InputError:
        return None


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused_in_words(data):
    found = judged(data)
    assert found is None or json.dumps(found)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_real_file_damaged_anywhere_is_still_read(data):
    damaged = bytearray(SMALL[18_000:])
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        length = data.draw(st.integers(0, 40))
        damaged[place : place + length] = data.draw(st.binary(max_size=20))
    file = read(bytes(damaged))
    found = analyse(file).to_json()
    assert all(0 < problem["line"] <= file.num_lines for problem in found["problems"])
    assert found["node_lines"] <= file.num_lines


@pytest.mark.parametrize("digits", ["0O", "0o", "1l", "1I", "0O1l"])
@pytest.mark.parametrize("path", WHOLE[:4], ids=lambda path: f"{path.parent.name}-{path.name}")
def test_letters_in_the_numbers_of_operators_are_read_as_the_digits_that_they_stand_for(path, digits):
    """Recognised characters: %10l for %101; a number of one digit keeps it, since a letter alone may be a name."""
    letters = str.maketrans(digits[::2], digits[1::2])
    text = path.read_text(encoding="utf-8")

    def misread(number: re.Match[str]) -> str:
        return number[0][:-1] + number[0][-1:].translate(letters) if len(number[0]) > 2 else number[0]

    damaged = re.sub(r"%\d+(?=[(),\[])", misread, text)
    found, whole = read(damaged.encode()), read(text.encode())
    assert [(node.id, node.op, node.arguments, node.line) for node in found.nodes()] == [
        (node.id, node.op, node.arguments, node.line) for node in whole.nodes()
    ]
    assert (found.repaired_lines > 0) == (damaged != text)
    assert all("is read as" in problem.what for problem in found.problems)


PIECES = (
    "%0(a) = ", "%1(b) = ", "Reshape(%1)", "MakeTuple(%0, %1)", "TupleGetItem(%0, I64(0))", "AllReduce(%0)", "(", "{",
    "<", '"', "}",
    ")", "\n", "  : (", ") -> (", "# Scope: (Gradients/", "in_strategy: ((", 'group: "', "recompute: Bool(1)", "%para1_x",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60))
@settings(max_examples=300, deadline=None)
def test_pieces_of_the_grammar_in_any_order_are_survived(pieces):
    found = judged("".join(pieces).encode())
    assert found is None or json.dumps(found)


@pytest.mark.parametrize("unit", ["(", "{", "<", '"', "(,", "%1(", "a: (", "((1, ", "[{(<"])
def test_deep_nesting_and_long_lines_are_read_in_linear_time(unit):
    text = "  %0(a) = Op(" + unit * 20_000 + ") primitive_attrs: {in_strategy: " + unit * 20_000 + "}\n"
    assert len(read(text.encode()).nodes()) == 1


def test_a_line_without_end_is_skipped(monkeypatch):
    monkeypatch.setattr("perfkit.explain.graph.parse.MAX_LINE_BYTES", 1000)
    file = read(b"# IR entry: @x\n" + b"%" * 5000 + b"\n  %0(a) = Add(%para1_x)\n")
    assert (file.skipped_lines, file.node_lines, file.problems[0].line) == (1, 1, 2)


def test_operators_defined_twice_are_told():
    file = read(b"  %0(a) = Add(%para1_x)\n  %0(b) = Mul(%para1_x)\n")
    assert [node.op for node in file.nodes()] == ["Add"]
    assert [problem.what for problem in file.problems] == ["%0 is defined twice; the first one counts"]
