"""The page in a real browser: what a person sees, types and clicks, in light and dark, on a phone, by keyboard."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.service.conftest import NASTY, serving

expect = pytest.importorskip("playwright.sync_api").expect
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"

TOKEN = "token-of-many-letters"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the page was not tried in a browser")


@pytest.fixture(scope="module")
def served(folders, graph, tmp_path_factory):
    import numpy as np

    folder = tmp_path_factory.mktemp("browsed")
    ids = np.array(graph.node_id)
    np.savez(folder / "graph.npz", x=graph.x.numpy(), edge_index=graph.edge_index.numpy(), node_id=ids)
    (folder / "token").write_text(TOKEN)
    files = ("--graph", folder / "graph.npz", "--history", folder / "h.db", "--token-file", folder / "token")
    with serving(f"blocks={folders[0]}", *files) as service:
        yield service


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def opened_page(browser, served):
    """Pages of one who has logged in by the form, as a browser sends it."""
    first = browser.new_page(base_url=served.url, java_script_enabled=False)
    first.goto("/nodes")  # which leads to the form
    for token, heading in (("wrong", "Log in"), (TOKEN, "Calm")):
        first.get_by_label("Token").fill(token)
        first.get_by_label("Token").press("Enter")
        first.get_by_role("heading", level=1, name=heading).wait_for()
    state = first.context.storage_state()
    first.close()
    return lambda **settings: browser.new_page(base_url=served.url, storage_state=state, **settings)


@pytest.fixture
def page(opened_page):
    """A page whose console stays empty: no script is refused, no file is missing."""
    opened, told = opened_page(), []
    opened.on("console", lambda message: told.append(message.text))
    opened.on("pageerror", lambda error: told.append(str(error)))
    opened.on("dialog", lambda dialog: told.append(f"dialog {dialog.message}"))
    yield opened
    opened.close()
    assert told == []


def test_one_glance(page):
    page.goto("/")
    assert page.get_by_role("heading", level=1).inner_text() in ("Calm", "Alarm")
    assert page.get_by_text("120", exact=True).first.is_visible()
    names = [one.get_attribute("aria-label") for one in page.get_by_role("img").all()]
    assert len(names) >= 5
    assert all(names)
    assert page.locator("svg.chart .p-4, svg.chart .p-0").count() > 0  # the map
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "overview.png", full_page=True)


@pytest.mark.parametrize("path", ["/", "/nodes"])
def test_a_page_whose_login_has_ended_says_so(opened_page, path):
    page = opened_page()
    page.clock.install()
    page.goto(path)
    page.context.clear_cookies()
    if path == "/nodes":
        page.get_by_label("Search ids").fill("n11")
    page.clock.run_for(31_000)
    page.get_by_role("heading", level=1, name="Log in").wait_for(timeout=5000)
    page.close()


def test_search_filter_sort_and_pages(page):
    page.goto("/nodes")
    rows = page.locator("#found tbody tr")
    assert rows.count() == 50
    scores = [float(row.locator("td").nth(2).inner_text()) for row in rows.all()]
    assert scores == sorted(scores, reverse=True)
    page.get_by_role("link", name="Next").click()
    assert "page 2 of 3" in page.locator("caption").inner_text()
    page.get_by_label("Search ids").fill("n11")
    expect(page.locator("#found tbody tr")).to_have_count(10)
    assert "search=n11" in page.url
    page.get_by_label("Search ids").fill("script")
    expect(page.locator("#found tbody tr")).to_have_count(1)
    assert rows.first.locator("a").inner_text() == NASTY  # seen, not run
    rows.first.locator("a").click()
    assert page.get_by_role("heading", level=1).inner_text().startswith(f"Node {NASTY}")
    page.goto("/nodes")
    page.get_by_role("link", name="p-value").click()
    assert page.locator("th[aria-sort]").inner_text().startswith("p-value")


def test_a_node_is_drawn_and_taken_apart(page):
    page.goto("/nodes/n17")
    picture = page.get_by_role("img", name="The node and").first
    picture.scroll_into_view_if_needed()
    picture.evaluate("one => one.decode()")  # an error where it cannot be drawn
    assert page.get_by_text("Who counts in the score").is_visible()
    assert page.locator("caption", has_text="Logits").is_visible()
    page.locator(".near a").first.click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("Node ")


def test_an_uploaded_graph_is_scored_and_a_wrong_one_explained(page, graph, tmp_path):
    nodes = ["id," + ",".join(f"f{number}" for number in range(8))]
    nodes += [",".join([f'"{number}<i>"', *map(str, row)]) for number, row in enumerate(graph.x.tolist())]
    (tmp_path / "nodes.csv").write_text("\n".join(nodes) + "\n")
    pairs = "".join(f'"{a}<i>","{b}<i>"\n' for a, b in graph.edge_index.T.tolist())
    (tmp_path / "edges.csv").write_text("source,target\n" + pairs)
    page.goto("/upload")
    page.get_by_label("Nodes").set_input_files(tmp_path / "nodes.csv")
    page.get_by_label("Edges").set_input_files(tmp_path / "edges.csv")
    page.get_by_role("button", name="Score").click()
    page.locator("#result h2").wait_for()
    assert "of 120 nodes flagged" in page.locator("#result h2").inner_text()
    assert "<i>" in page.locator("#result tbody tr").first.inner_text()


def test_what_is_wrong_with_an_upload_is_said(opened_page, tmp_path):
    page = opened_page()
    (tmp_path / "nodes.csv").write_text("id,f0\n1,many\n")
    page.goto("/upload")
    page.get_by_label("Nodes").set_input_files(tmp_path / "nodes.csv")
    page.get_by_label("Edges").set_input_files(tmp_path / "nodes.csv")
    page.get_by_role("button", name="Score").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("nodes (read as CSV): has no feature column")
    page.close()


@pytest.mark.parametrize("path", ["/", "/nodes", "/nodes/n17", "/upload", "/docs"])
def test_on_a_phone_in_the_dark_nothing_is_cut_off(opened_page, path):
    page = opened_page(viewport={"width": 360, "height": 740}, color_scheme="dark")
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(json.loads(background.replace("rgb(", "[").replace(")", "]"))) < 60
    page.close()


def test_by_keyboard_alone(page):
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes")
    page.get_by_label("Search ids").focus()
    page.keyboard.type("n42")
    page.keyboard.press("Enter")
    expect(page.locator("#found tbody tr")).to_have_count(1)
    page.locator("#found tbody a").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/n42")
