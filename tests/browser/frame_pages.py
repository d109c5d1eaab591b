"""Pages that exist only for tests of the frame: one panel with every control, and one panel a state."""

from __future__ import annotations

import json
from pathlib import Path

HOSTILE = "<img src=x onerror=alert(1)>"

RANKS = f"""
import altair as alt
import pandas as pd
from perfkit.face.charts import theme
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Slider, Text, Toggle
from perfkit.face.widgets.panel import Panel, PanelView
from perfkit.face.widgets.table import Table

def compute(state):
    ranks = range(state["n"])
    names = [{HOSTILE!r} if rank % 2 else "computing" for rank in ranks]
    times = [(rank + 1) * 1_500_000 for rank in ranks]
    return pd.DataFrame({{"rank": [f"r{{rank}}" for rank in ranks], "name": names, "duration_ns": times}}), state

def view(result):
    frame, state = result
    rows = frame.assign(ms=frame["duration_ns"] / 1e6).to_dict("records")
    bars = alt.Chart(alt.NamedData("rows"), width="container", height=200).mark_bar().encode(
        x=alt.X("rank:N", sort=None), y="ms:Q", color="name:N", tooltip=["rank:N", "name:N", "ms:Q"])
    figure = Figure(theme.with_rows(bars, {{"rows": rows}}), title="Time of every rank", sources=["measured: a.csv ({HOSTILE})"])
    tables = {{"ranks": Table(frame, title="Ranks", selectable=True)}}
    return {{"bars": figure}}, tables, f"{{len(frame)}} ranks, picked {{state['picked']}}."

PANEL = Panel(
    title="Ranks",
    start={{"n": 8, "unit": "ms", "peak": 376.0, "flag": True, "picked": "none", "case": "a"}},
    controls=(
        Slider("n", low=1, high=64, label="Ranks", unit="ranks", key="device_num"),
        Choice("case", label="Case", options=("a", "b")),
        Choice("unit", label="Unit", options=("ms", "%"), buttons=True),
        Number("peak", label="Peak", low=1, high=5000, unit="TFLOP/s"),
        Text("picked", label="Picked"),
        Toggle("flag", label="Count the head"),
    ),
    compute=compute, view=view, shared=("n",),
    on_select=lambda state, chart, datum: {{**state, "picked": datum["rank"]}},
    on_row=lambda state, table, row: {{**state, "picked": row["rank"]}},
)
PanelView(PANEL, name="ranks")
"""

STATES = """
import threading
import time
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.face.widgets.control import Choice
from perfkit.face.widgets.panel import Empty, Panel, PanelView
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.worker import running

GO = threading.Event()
def compute(state):
    match state["show"]:
        case "empty": raise NothingYet("No run is open. A run shows where the step goes.")
        case "unmeasured": raise NotMeasuredError("memory", how_to_collect="profile_memory: True")
        case "error": raise InputError("run.csv", ["line 3: step = x is no number", "line 9: rank = -1 must be at least 0"])
        case "bug": raise ValueError("boom")
        case "loading":
            for part in range(400):
                running()("trace_view.json", part * 2**20, 400 * 2**20)
                time.sleep(0.05)
        case "slow": time.sleep(1.5)
    return state["show"]

PANEL = Panel(
    title="States", start={"show": "result"}, compute=compute, view=lambda result: ({}, {}, f"shown: {result}"),
    controls=(Choice("show", label="Show", options=("result", "empty", "unmeasured", "error", "bug", "loading", "slow")),),
    empty=Empty(action="Use the sample run", fill=lambda state: {"show": "result"}),
)
PanelView(PANEL, name="states")
"""

LATER = ("import time", *["time.sleep(0.2)"] * 60)
"""Cells of a page that takes a while; between two of them the kernel answers."""

BY_ITSELF = f"""
import threading, time
{RANKS.replace('PanelView(PANEL, name="ranks")', "").replace('"n": 8,', '"n": 0,').replace("low=1,", "low=0,")}
view = PanelView(PANEL, name="ranks")
import os, pathlib
go = pathlib.Path(os.environ["PERFKIT_PROJECT"]) / "go"
def change():
    while not go.exists():
        time.sleep(0.1)
    for n in (1, 2, 3):
        view.set({{"n": n}})
        time.sleep(0.3)
threading.Thread(target=change, daemon=True).start()
view
"""

FOREIGN = (
    "import ipywidgets\nipywidgets.IntSlider()",
    f"import pandas\npandas.DataFrame({{'name': [{HOSTILE!r}]}})",
    f"from IPython.display import HTML\nHTML({HOSTILE!r} + '<script>alert(1)</script><b>bold</b>')",
    "import base64\nfrom IPython.display import Image\n"
    "Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))",
    "class Plain:\n    def __repr__(self):\n        return '<plain>'\nPlain()",
)
"""Outputs of a page that are not views of perfkit."""

HEADER = "from perfkit import widgets\nwidgets.header()"


def write_pages(folder: Path) -> Path:
    """Seven pages in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, "00_start_here", "# Where am I?\n\nSome words.", HEADER, "widgets.next_pages('11', p11='because')")
    _write(folder, "11_ranks", "# How long is every rank?", HEADER, RANKS)
    _write(folder, "13_slow", "# What is seen before all is computed?", HEADER, RANKS, *LATER)
    _write(folder, "14_later", "# What changes by itself?", BY_ITSELF)
    _write(folder, "16_foreign", "# What is not perfkit's own?", *FOREIGN)
    _write(folder, "12_states", "# Which states are there?", STATES)
    _write(folder, "20_bare", "# What is there without a widget?", "1 / 0")
    return folder


def _write(folder: Path, name: str, question: str, *cells: str) -> None:
    markdown = {"cell_type": "markdown", "id": "question", "metadata": {}, "source": question}
    code = [
        {"cell_type": "code", "id": f"code-{index}", "metadata": {}, "source": source, "execution_count": None, "outputs": []}
        for index, source in enumerate(cells)
    ]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    document = {"cells": [markdown, *code], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (folder / f"{name}.ipynb").write_text(json.dumps(document), encoding="utf-8")
