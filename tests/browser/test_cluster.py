"""Page 17 by keyboard: the answer of the sixteen ranks, another metric, a rank with its groups."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from perfkit.core.resources import data_folder
from perfkit.explain.cluster import judge_cluster
from perfkit.record.load import load

OpenPage = Callable[..., Page]


def test_another_metric_and_a_rank_are_chosen_by_keyboard(open_page: OpenPage):
    page = open_page("17_cluster")
    answer, ranks, groups = (
        page.locator(f'section[data-panel="{name}"]') for name in ("is-one-slow", "every-rank", "groups-of-the-rank")
    )
    expect(answer.locator(".pk-sentence")).to_contain_text("No rank is slow.")
    expect(answer).to_contain_text("Rank 8 computes most (80.1 ms in the mean step)")
    choice = ranks.get_by_label("Compare", exact=True)
    choice.focus()
    choice.select_option("step without the bubble")
    expect(ranks).to_contain_text("Every rank: step without the bubble")
    table = judge_cluster(load(data_folder() / "traces" / "cluster_16card")).compared("stage").to_frame()
    rows = ranks.get_by_role("table", name="Ranks, furthest").locator("tbody tr")
    expect(rows.first.locator("td").first).to_have_text(str(table["rank"].iloc[0]))
    rows.nth(1).focus()
    rows.nth(1).press("Enter")
    expect(groups).to_contain_text(f"The groups of rank {table['rank'].iloc[1]}")
