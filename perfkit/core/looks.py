"""Looks: how a page shows a frame, said with the frame itself."""

from __future__ import annotations

import pandas as pd


def brief(frame: pd.DataFrame, *first: str) -> pd.DataFrame:
    """The frame, of which a page shows the columns `first`, and all when asked."""
    frame.attrs["first"] = first
    return frame


def folded(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame, of which a page shows a line that opens."""
    frame.attrs["look"] = "folded"
    return frame
