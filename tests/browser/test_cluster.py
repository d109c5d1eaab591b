"""Page 17 by keyboard: the answer of the sixteen ranks, another metric, a rank with its groups."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from perfkit.face.panels import cluster

OpenPage = Callable[..., Page]


def test_another_metric_and_a_rank_are_chosen_by_keyboard(open_page: OpenPage):
    page = open_page("17_cluster")
    panel = page.locator('section[data-panel="cluster"]')
    expect(panel.locator(".pk-sentence")).to_contain_text("No rank is slow: rank 8 computes most (80.072 ms)")
    choice = panel.get_by_label("Compare", exact=True)
    choice.focus()
    choice.select_option("step without the bubble")
    expect(panel).to_contain_text("Every rank: step without the bubble")
    table = cluster.compute(cluster.State(run=cluster.start().run, metric="stage")).ranks
    furthest = int(table.loc[(table["over_stage"] - 1).abs().idxmax(), "rank"])
    row = panel.get_by_role("table", name="Ranks, furthest").locator("tbody tr").first
    expect(row.locator("td").first).to_have_text(str(furthest))
    row.focus()
    row.press("Enter")
    expect(panel).to_contain_text(f"the groups of rank {furthest}")
