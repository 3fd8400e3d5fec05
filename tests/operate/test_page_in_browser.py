"""The status page in a real browser: clicked, typed into, in the dark, on a phone, and live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrorlib.operate.overview import Overview
from mirrorlib.operate.page.render import make_page
from mirrorlib.operate.status import TableStatus
from pages import HOSTILE, JournalWriter, Looked, browse, full, many, overview, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# How long each act takes until the page is laid out again.
TIMED = """() => {
  const took = {}, buttons = document.querySelectorAll('#tables thead button'), input = document.getElementById('filter');
  const time = (name, act) => {
    const start = performance.now();
    act();
    document.body.offsetHeight;
    took[name] = Math.round(performance.now() - start);
  };
  const type = (text) => { input.value = text; input.dispatchEvent(new Event('input')); };
  document.body.offsetHeight;  // what is not the first act's
  time('sort by name', () => buttons[0].click());
  time('sort by rows', () => buttons[4].click());
  time('sort back', () => buttons[4].click());
  time('filter', () => type('table_01'));
  time('filter off', () => type(''));
  return took;
}"""
# Texts that are hard to read on what is behind them: WCAG asks for 4.5 to 1.
FAINT = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const light = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    const part = (one) => (one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
    return a ? 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b) : null;
  };
  const faint = [];
  for (const one of document.querySelectorAll('body *')) {
    const text = [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join('');
    if (!text || one.closest('svg, script, option')) continue;
    let behind = null;
    for (let at = one; behind === null && at; at = at.parentElement) behind = light(getComputedStyle(at).backgroundColor);
    const [low, high] = [light(getComputedStyle(one).color), behind].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) faint.push(text);
  }
  return faint;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for all of these."""
    with browse() as found:
        yield found


def look(browser: Browser, tmp_path: Path, page: str | Overview, **how: str | int) -> Looked:
    """Open a page that was saved."""
    text = page if isinstance(page, str) else make_page(page)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    return Looked(browser, (tmp_path / "page.html").as_uri(), **how)  # type: ignore[arg-type]  # width, scheme


@pytest.mark.thorough
def test_a_thousand_tables_are_sorted_and_filtered(browser: Browser, tmp_path: Path) -> None:
    """By clicks and typing; what is not known comes last either way; words, state and order are in the address."""
    looked = look(browser, tmp_path, many(1000))
    page = looked.page
    heads = page.locator("#tables thead th")
    by_lag = "[...document.querySelectorAll('#tables > tbody')].map(row => row.querySelector('[data-l=lag]').dataset.v)"

    assert ["dbo/table_0000", "dbo/table_0051"] == looked.names()[
        :2
    ]  # what needs somebody comes first
    page.get_by_role("button", name="table").first.click()
    assert [f"dbo/table_{n:04d}" for n in range(1000)] == looked.names()
    page.locator("#tables thead button").nth(3).click()
    page.locator("#tables thead button").nth(3).click()
    ages = [float(age) for age in page.evaluate(by_lag) if age]
    assert sorted(ages, reverse=True) == ages
    assert "" == page.evaluate(by_lag)[-1]
    assert "descending" == heads.nth(3).get_attribute("aria-sort")
    assert "none" == heads.nth(0).get_attribute("aria-sort")
    page.locator("#filter").type("TABLE_00 odd")
    page.locator("#chip-blocked").click()
    assert ["dbo/table_0041", "dbo/table_0092"] == sorted(looked.names())
    assert "2 of 1,000 tables" == page.locator("#found").text_content()
    assert {"tables=3-", "q=TABLE_00+odd", "state=blocked"} == set(
        page.url.partition("#")[2].split("&")
    )
    page.reload()
    assert ["dbo/table_0041", "dbo/table_0092"] == sorted(looked.names())
    assert "TABLE_00 odd" == page.locator("#filter").input_value()
    page.locator("#filter").fill("no such table")
    assert [] == looked.names()
    assert page.locator("#tables + .none").is_visible()
    assert [] == looked.errors
    page.goto((tmp_path / "page.html").as_uri().partition("#")[0])
    page.reload()
    print("milliseconds for 1,000 tables:", page.evaluate(TIMED))  # noqa: T201  # a figure, not a condition


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """They are there as text, and the browser has had no script of theirs to refuse."""
    report = overview(*(TableStatus(table=name, state="failed", reason=name) for name in HOSTILE))

    looked = look(browser, tmp_path, report)

    assert len(HOSTILE) == len(looked.names())
    assert set(HOSTILE[:-1]) <= set(looked.names())
    everywhere = look(browser, tmp_path, full(" ".join(HOSTILE)))
    everywhere.page.locator("#filter").fill("alert")
    everywhere.page.locator("thead button").first.click()
    assert [] == looked.errors + everywhere.errors


@pytest.mark.thorough("light")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_the_light_and_in_the_dark(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    """As the reader's machine is set."""
    states = ("failed", "blocked", "gone", "waiting", "behind", "current")
    tables = [
        TableStatus(table=one, state=one, reason="It is. So do.", warnings=("w",)) for one in states
    ]  # type: ignore[arg-type]  # its states
    looked = look(browser, tmp_path, overview(*tables), scheme=scheme)
    other = look(browser, tmp_path, full("orders"), scheme=scheme)

    assert [[], []] == [looked.page.evaluate(FAINT), other.page.evaluate(FAINT)]
    background = looked.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert {"light": "rgb(246, 247, 249)", "dark": "rgb(14, 19, 26)"}[scheme] == background


@pytest.mark.thorough("800", "1280")
@pytest.mark.parametrize("width", [375, 800, 1280])
def test_a_page_is_as_wide_as_its_window(browser: Browser, tmp_path: Path, width: int) -> None:
    """Nothing lies beside it, whatever tables are called."""
    for page in (many(30), full("x" * 230), full("a b " * 60)):
        looked = look(browser, tmp_path, page, width=width)
        assert width >= looked.page.evaluate("document.documentElement.scrollWidth")
        beside = "[...document.querySelectorAll('th, td, dd, p, h1')].filter(one => !one.closest('.scroll, caption') && one.getBoundingClientRect().right > innerWidth).map(one => one.textContent)"
        assert [] == looked.page.evaluate(beside)
        looked.page.close()


def test_a_page_is_used_by_keyboard_and_screen_reader(browser: Browser, tmp_path: Path) -> None:
    """Tab leads to the filter, the states and the headers; rows that are drawn as grids are rows of a table."""
    looked = look(browser, tmp_path, full("orders"))
    page = looked.page
    reached = []
    for _ in range(5):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent")
        )
    page.keyboard.press("Enter")
    page.keyboard.press("Space")

    assert ["filter", "chip-failed", "table", "state", "waiting"] == reached
    assert "waiting" == page.evaluate("document.activeElement.textContent")
    assert "descending" == page.locator("#tables thead th").nth(2).get_attribute("aria-sort")
    assert "none" != page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in tree]
    assert ("rowheader", "orders") in roles
    assert ("columnheader", "state") in roles
    assert ("searchbox", "Filter") in roles
    assert {"table", "row", "cell", "image", "main", "heading"} <= {role for role, _ in roles}
    assert [] == [role for role in roles if role[0] == "image" and not role[1]]


@pytest.mark.thorough
def test_a_live_page_stays_as_it_is_looked_at(
    browser: Browser, target: str, tmp_path: Path
) -> None:
    """Rows come and change under the same order, words and place; a server that is gone is told, and comes back."""
    tables = {name: JournalWriter(target, tmp_path / "zone", name) for name in ("b", "a", "c")}
    for one in tables.values():
        one.apply()
    with serving(target) as (url, child):
        look_at_a_live_page(browser, url, target, tables["b"], tmp_path / "away")
        looked = Looked(browser, url)
        child.kill()
        looked.page.wait_for_selector("#trouble:not([hidden])")
    assert "does not answer" in str(looked.page.locator("#trouble").text_content())
    assert ["a", "b", "c"] == looked.names()


def look_at_a_live_page(
    browser: Browser, url: str, target: str, table: JournalWriter, away: Path
) -> None:
    """Sort, filter and scroll, and let a batch be applied; then let the target be gone for a moment."""
    looked = Looked(browser, url)
    page = looked.page
    page.locator("#tables thead button").nth(0).click()
    page.locator("#tables thead button").nth(0).click()
    page.locator("#filter").fill("current")
    page.evaluate("document.body.style.minHeight = '4000px'; scrollTo(0, 120)")
    page.locator("#tables thead button").nth(0).focus()
    assert ["c", "b", "a"] == looked.names()
    table.apply()
    page.wait_for_selector("#tables [data-l=version][data-v='2']")
    assert ["c", "b", "a"] == looked.names()
    assert ("current", 120) == (page.locator("#filter").input_value(), page.evaluate("scrollY"))
    assert "table" == page.evaluate("document.activeElement.textContent")
    assert [] == looked.errors
    (Path(target) / "_mirrorlib").rename(away)
    page.wait_for_selector("#trouble:not([hidden])")
    assert "nothing has been applied" in str(page.locator("#trouble").text_content())
    away.rename(Path(target) / "_mirrorlib")
    page.wait_for_selector("#trouble", state="hidden")
    page.close()
