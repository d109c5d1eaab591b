"""Fragments: what a pasted piece of a configuration, log, graph, table or script means, and what is wrong with it.

One kind a module in `kinds/`, each with one `FRAGMENT`: adding one edits no list. Nothing that is read is executed.
"""

from perfkit.explain.fragments.explained import Explained as Explained
from perfkit.explain.fragments.explained import all_kinds as all_kinds
from perfkit.explain.fragments.explained import explain_fragment as explain_fragment
from perfkit.explain.fragments.kind import FragmentKind as FragmentKind
from perfkit.explain.fragments.kind import Part as Part
from perfkit.explain.fragments.kind import Piece as Piece
