"""A share in a tooltip that is too small to read is said as tables say it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from perfkit.core.units import format_change, format_ratio

SOURCE = Path(__file__).parents[2] / "js" / "src" / "shares.js"
WRITTEN = {1.5e-7: "0.0000150%", -1.5e-7: "−0.0000150%", 0.0: "0.00%", 0.25: "25.0%", 1.2e-5: "0.00120%", 12.5: "1,250%"}


@pytest.mark.parametrize("ratio", WRITTEN)
def test_a_tooltip_tells_a_share_as_a_table_does(ratio: float, page: Page):
    shown = page.evaluate(f"{SOURCE.read_text().replace('export ', '')}; leastShare({WRITTEN[ratio]!r})")
    least = format_ratio(ratio)
    assert shown == (least.replace(" ", "") if least[0] in "<>" else WRITTEN[ratio]).replace("<0", "< 0").replace(">-", "> -")


def test_a_change_keeps_its_sign_and_what_is_no_share_stays(page: Page):
    source = SOURCE.read_text().replace("export ", "")
    assert page.evaluate(f"{source}; leastShare('+0.0000150%')") == format_change(1.5e-7).replace(" %", "%")
    assert page.evaluate(f"{source}; leastShares({{ a: 'x%', b: '0.0000150', c: 7 }})") == {"a": "x%", "b": "0.0000150", "c": 7}
