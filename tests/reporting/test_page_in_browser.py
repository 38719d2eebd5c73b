"""The page in a real Chromium: it fits, keeps nobody out, asks for nothing, obeys keys, runs no hostile text."""

from __future__ import annotations

import datetime
import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reporting.report import page as rendering
from reporting.report.charts.prose import number
from reporting.report.data import ReportData
from reporting.report.page import render
from reporting.report.page.words import nights_between
from tests import browser
from tests.reporting import report_samples as samples

pytestmark = pytest.mark.slow
TELEPHONE = {"width": 360, "height": 740}
DESK = {"width": 1440, "height": 900}
WALL = {"width": 2560, "height": 1440}
MADE = datetime.datetime(2026, 11, 23, 6, 12, 4, tzinfo=datetime.UTC)  # the samples
Open = Callable[..., Any]
OPEN_ONE_OF_EACH = """
const seen = new Set();
for (const details of document.querySelectorAll("details")) {
  const kind = details.dataset.condition || details.className;
  details.open = !seen.has(kind);
  seen.add(kind);
}
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as running:
        yield running


@functools.cache
def page_of(name: str) -> str:
    made: ReportData = {
        "year": lambda: samples.year(nights=60),
        "hostile": samples.hostile,
        "long names": samples.long_names,
        "quiet": samples.quiet,
        "new site": samples.new_site,
        "single run": samples.single_run,
        "twelve incidents": samples.twelve_incidents,
    }[name]()
    return render(made, evidence="https://ci.example.org/runs")


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page. At the end of the test no error may be in its console, and it may have asked for nothing else."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(html: str, size: dict[str, int] = DESK, hash_: str = "", **options: Any) -> Any:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(html, encoding="utf-8")
        context = chromium.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if _is_foreign(request.url, file) else None)
        page.goto(file.as_uri() + hash_)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def _is_foreign(url: str, file: Path) -> bool:
    return not url.startswith((file.as_uri(), "data:,"))


# --- it fits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(
            (name, TELEPHONE)
            for name in ("year", "hostile", "long names", "new site", "single run", "twelve incidents")
        ),
        ("year", DESK),
        ("year", WALL),
    ],
)
def test_a_page_never_scrolls_sideways(open_page: Open, name: str, size: dict[str, int]) -> None:
    page = open_page(page_of(name), size)
    page.evaluate("document.querySelectorAll('details').forEach((details, at) => { if (at < 9) details.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]


@pytest.mark.parametrize(("size", "dark"), [(TELEPHONE, False), (DESK, True)], ids=["telephone", "desk, dark"])
def test_axe_finds_nothing_that_keeps_people_from_the_page(
    chromium: Any, tmp_path: Path, size: dict[str, int], dark: bool
) -> None:
    """With a test of each condition open."""
    axe = browser.axe_source()
    file = tmp_path / "page.html"
    file.write_text(page_of("year"), encoding="utf-8")
    with browser.opened(chromium, file, **size, dark=dark) as page:
        page.evaluate(OPEN_ONE_OF_EACH)
        assert browser.violations(page, axe) == []


def test_a_telephone_shows_three_incidents_with_their_four_answers(open_page: Open) -> None:
    page = open_page(page_of("year"), TELEPHONE)
    bottom = page.evaluate("[...document.querySelectorAll('.cards .card')][2].getBoundingClientRect().bottom")
    assert bottom <= TELEPHONE["height"]
    assert page.locator(".card").first.locator("dt").all_inner_texts() == ["How much", "Since when", "Where", "Why"]


@pytest.mark.parametrize("size", [DESK, WALL], ids=["small", "large"])
def test_a_wall_shows_the_answer_and_the_whole_grid_only(open_page: Open, size: dict[str, int]) -> None:
    page = open_page(page_of("year"), size, "#wall")
    assert page.evaluate("document.documentElement.scrollHeight") <= size["height"]
    assert page.locator("#grid").is_visible()
    assert page.locator("h1").is_visible()
    for part in ("#tests", "#numbers", "#filter", "nav", "#theme"):
        assert not page.locator(part).is_visible()


def test_the_trend_of_the_only_machine_fills_its_cell(open_page: Open) -> None:
    page = open_page(render(samples.year(nights=60, platforms=1), evidence=None))
    cell = page.locator(".cell").first.bounding_box()
    spark = page.locator(".cell .spark").first.bounding_box()
    assert cell["width"] < 400
    assert spark["width"] > 0.9 * cell["width"]
    assert "The line shows 60 nights." in page.locator("#grid caption").inner_text()


def test_a_wall_loads_the_page_again_while_its_server_answers(chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page_of("single run"))
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            asked.append(f"{self.command} {self.path}")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        context = chromium.new_context(viewport=WALL)
        page = context.new_page()
        page.clock.install()
        page.goto(f"http://127.0.0.1:{server.server_port}/report.html#wall")
        with page.expect_navigation():
            page.clock.fast_forward("05:01")
        assert asked == ["GET /report.html", "HEAD /report.html", "GET /report.html"]
        assert page.url.endswith("#wall")
        context.close()
    finally:
        server.shutdown()
        server.server_close()


# --- old pages say so ------------------------------------------------------------------------------------------------


def test_a_page_that_was_not_made_again_says_so(open_page: Open) -> None:
    page = open_page(page_of("quiet"))
    page.clock.set_fixed_time(MADE + datetime.timedelta(hours=35))
    page.reload()
    assert not page.locator("#stale").is_visible()
    page.clock.set_fixed_time(MADE + datetime.timedelta(hours=75))
    page.reload()
    assert page.locator("#stale").inner_text() == "This page is 3 days old. It says nothing of what happened since."


# --- hostile texts, and no script at all -----------------------------------------------------------------------------


def test_hostile_texts_run_nothing(open_page: Open) -> None:
    page = open_page(page_of("hostile"))
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true })")
    page.wait_for_function("document.querySelectorAll('.more-runs button').length == 12")
    page.evaluate("document.querySelectorAll('.more-runs button').forEach((button) => button.click())")
    assert page.locator(".more-runs td", has_text="window.hacked").count() > 100
    page.locator(".plot").first.hover()
    page.locator("#filter-words").fill("script")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('img, iframe, [onmouseover], [onload], [onerror]').length") == 0
    assert page.locator("h1").inner_text() == "Yes: </script><script>window.hacked = 1</script>"


def test_a_page_works_without_a_script(open_page: Open) -> None:
    page = open_page(page_of("year"), java_script_enabled=False)
    assert page.locator("h1").inner_text().startswith("Yes: 4 of 60 tests are slower")
    assert not page.locator("#filter").is_visible()
    assert not page.locator("#theme").is_visible()
    test = page.locator(".test").first
    assert not test.locator(".trend").is_visible()
    test.locator("summary").click()
    assert test.locator(".trend").is_visible()
    assert "python -m reporting accept" in test.locator("pre").inner_text()


def test_a_print_shows_every_test_in_light_colours(open_page: Open) -> None:
    page = open_page(page_of("year"), java_script_enabled=False, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator(".test pre").last.is_visible()
    assert page.locator("body").evaluate("(body) => getComputedStyle(body).color") == "rgb(27, 30, 34)"
    assert not page.locator("nav").is_visible()


def test_a_page_of_very_many_tests_holds_most_as_text_and_shows_and_prints_the_same(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_page(page_of("year"))
    monkeypatch.setattr(rendering, "MOST_AT_ONCE", 59)
    large = render(samples.year(nights=60), evidence="https://ci.example.org/runs")
    page = open_page(large)
    assert page.locator("#numbers tbody tr").count() == 0
    assert page.locator(".test pre").count() == 0
    test = page.locator(".test").first
    test.locator("summary").click()
    assert test.locator("pre").is_visible()
    assert test.locator(".scrub").count() > 0
    page.locator("#numbers").scroll_into_view_if_needed()
    page.locator("#numbers .sort").first.wait_for()
    whole.locator(".test summary").first.click()
    for one in (whole, page):
        one.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".test pre").count() == 60
    assert page.locator("main").inner_html() == whole.locator("main").inner_html()
    without_script = open_page(large, java_script_enabled=False)
    assert without_script.locator("#numbers tbody tr").count() == 60


# --- what the script adds --------------------------------------------------------------------------------------------


def test_the_keyboard_reaches_the_answer_the_filter_and_a_trend(open_page: Open) -> None:
    page = open_page(page_of("year"))

    def focused(selector: str) -> bool:
        return bool(page.evaluate("(selector) => document.activeElement.matches(selector)", selector))

    page.keyboard.press("Tab")
    assert focused(".skip")
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused(".card a")
    seen = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.className || ''"))
        if focused(".test > summary"):
            break
    assert {"filter-words", "scroll"} <= seen
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    while not focused("input.scrub"):
        page.keyboard.press("Tab")
    last = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    assert last.startswith("Sun 22 Nov 2026, ")
    page.keyboard.press("ArrowLeft")
    before = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    assert before.startswith("Sat 21 Nov 2026, ")
    assert "\u22128.4\u202f%, slower since Tue 17 Nov 2026" in before
    readout = page.locator(".test[open] .readout").first.inner_text()
    assert readout == before.replace("2026, ", "2026 ", 1)


def test_pointing_at_a_trend_reads_the_run_of_that_night(open_page: Open) -> None:
    report = samples.year(nights=365, platforms=1)
    page = open_page(render(report, evidence=None))
    point = report.tests[0].series[0].points[200]
    page.locator(".test > summary").first.click()
    picture = page.locator(".test[open] .trend").first
    box = picture.bounding_box()
    left = picture.evaluate("(svg) => parseFloat(getComputedStyle(svg).paddingLeft)")
    right = picture.evaluate("(svg) => parseFloat(getComputedStyle(svg).paddingRight)")
    nights = picture.evaluate("(svg) => svg.querySelector('svg').viewBox.baseVal.width")
    assert nights == 365
    day = nights_between(report.first_night, point.night)
    x = box["x"] + left + (box["width"] - left - right) * (day + 0.5) / nights
    page.mouse.move(x, box["y"] + box["height"] / 2)
    readout = page.locator(".test[open] .readout").first.inner_text()
    assert f"run {point.run_id}" in readout
    assert f"on {point.nodes[0]}" in readout
    assert f"{number(point.value)} samples/s" in readout


def test_the_filter_shows_the_tests_that_have_all_words_and_one_of_the_conditions(open_page: Open) -> None:
    page = open_page(page_of("year"))
    page.locator("#filter-words").fill("eidf_a100 resnet50")
    assert page.locator("#filter-result").inner_text() == "2 of 60 tests"
    assert page.locator(".test:visible").count() == 2
    assert page.locator(".grid thead th:visible").count() == 2
    page.locator("#filter-words").fill("")
    page.locator("#filter input[value=acknowledged]").check()
    assert page.locator("#filter-result").inner_text() == "2 of 60 tests"
    page.locator("#filter input[value=failed]").check()
    assert page.locator("#filter-result").inner_text() == "3 of 60 tests"
    page.locator("#filter-words").fill("nothing like this")
    assert page.locator("#nothing-found").is_visible()


def test_a_table_is_sorted_by_the_column_that_is_clicked(open_page: Open) -> None:
    page = open_page(page_of("year"))
    button = page.locator("#numbers-table .sort", has_text="Change")
    button.click()
    changes = page.locator("#numbers-table tbody tr td:nth-child(4)")
    assert changes.first.inner_text() == "\u221211.0\u202f%"
    button.click()
    assert changes.first.inner_text() == "+6.1\u202f%"
    assert page.locator("#numbers-table th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_the_colours_can_be_switched_and_stay(open_page: Open) -> None:
    page = open_page(page_of("quiet"), color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.locator("#theme").click()
    light = page.evaluate(ground)
    assert light == "rgb(246, 245, 242)" != dark
    page.reload()
    assert page.evaluate(ground) == light


def test_a_link_to_a_test_opens_it(open_page: Open) -> None:
    page = open_page(page_of("year"))
    page.locator(".card a").first.click()
    page.locator(".test[open] .trend").wait_for()  # the browser tells the script of the new address a moment later
    assert page.locator(".test[open]").count() == 1


def test_nothing_moves_after_a_page_is_shown(open_page: Open) -> None:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")  # an old page says how old it is
    page = open_page(render(replace(samples.year(nights=60), made_at=now), evidence="https://ci.example.org/runs"))
    shift = page.evaluate(
        """() => new Promise((done) => {
            let sum = 0;
            new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value; })
                .observe({ type: "layout-shift", buffered: true });
            setTimeout(() => done(sum), 300);
        })"""
    )
    assert shift == 0
