"""Sources are parsed in whatever thread: what the interpreter fails at while another thread parses is tried again."""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfkit.core import syntax
from perfkit.core.syntax import tree_of

PACKAGE = Path(syntax.__file__).parents[1]


@pytest.mark.parametrize(("failures", "is_told"), [(0, False), (1, False), (4, False), (5, True)])
def test_a_failure_of_the_interpreter_is_tried_again_but_not_for_ever(monkeypatch, failures: int, is_told: bool):
    left = [failures]

    def parse(text: str, filename: str) -> ast.Module:
        left[0] -= 1
        if left[0] >= 0:
            raise SystemError("AST constructor recursion depth mismatch (before=48, after=137)")
        return compile(text, filename, "exec", ast.PyCF_ONLY_AST)

    monkeypatch.setattr(ast, "parse", parse)
    if is_told:
        with pytest.raises(SystemError):
            tree_of("a = 1")
    else:
        assert len(tree_of("a = 1").body) == 1


def test_an_error_of_the_source_is_told_at_once_with_its_file():
    with pytest.raises(SyntaxError, match=r"x\.py") as told:
        tree_of("a = (", file="x.py")
    assert told.value.filename == "x.py"


def test_threads_that_parse_beside_each_other_get_what_they_get_alone():
    sums = "+".join(f"f({number}, [{number}])" for number in range(40))
    texts = [f"a = {sums}\nb = {'(' * depth}1{')' * depth}\n" for depth in range(1, 60)]
    alone = [ast.dump(tree_of(text)) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: ast.dump(tree_of(text)), texts * 4)) == alone * 4


def test_what_pages_parse_in_threads_goes_this_way():
    """Before a kernel is forked there is one thread."""
    alone = {PACKAGE / "face/app/preloaded.py", PACKAGE / "core/syntax.py"}
    found = [path for path in PACKAGE.rglob("*.py") if path not in alone and "ast.parse(" in path.read_text(encoding="utf-8")]
    assert found == []
