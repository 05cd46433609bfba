"""The page in a real browser: opened from a file, by keyboard, light and dark, with hostile texts.

Skips where there is no Chromium; what the page's functions do is tested without one in
``tests/unit/test_report_page.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broken.defects import with_cell, with_witness
from tests.broken.goodcells import good
from tests.report.browser import Browser, browser, program
from tests.unit.test_report_page import HOSTILE, hostile, page_of

CELL = "codex/debian-12/tool_failure"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    name = program()
    if name is None:
        pytest.skip("there is no Chromium on this machine")
    with browser(name) as page:
        yield page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    cells = [
        good("tool_success"),
        hostile(),
        with_witness(good("model_error"), session_dir_gone=False),
        good("tool_success", "chat", image="alpine-3.23"),
    ]
    path.write_text(page_of(*cells, native={"stdout": HOSTILE}))
    return path


@pytest.fixture
def opened(chromium: Browser, report: Path) -> Browser:
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.open(report)
    return chromium


def visible(page: Browser) -> list[str]:
    found = page.value(
        "[...document.querySelectorAll('button.c')].filter((one) => one.offsetParent)"
        ".map((one) => one.getAttribute('aria-label'))"
    )
    return [str(name) for name in found]


def focused(page: Browser) -> str:
    return str(page.value("document.activeElement.getAttribute('aria-label')"))


def test_it_opens_from_a_file_without_a_complaint_or_a_request(opened: Browser) -> None:
    assert len(visible(opened)) == 4
    assert opened.value("document.querySelectorAll('#gates tbody tr').length") == 2
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "about:"))] == []


def test_letters_stand_beside_the_colours(opened: Browser) -> None:
    texts = opened.value(
        "[...document.querySelectorAll('button.c b')].map((one) => one.textContent).sort()"
    )
    assert texts == ["F", "F", "P", "P"]
    colours = opened.value(
        "[...document.querySelectorAll('button.c')]"
        ".map((one) => one.className + ' ' + getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) == 2
    assert all("rgba(0, 0, 0, 0)" not in colour for colour in colours)


def test_the_filter_hides_cells_columns_and_rows(opened: Browser) -> None:
    opened.value("document.getElementById('query').focus()")
    opened.write("alpine")
    assert visible(opened) == ["opencode alpine-3.23 tool success: pass"]
    assert opened.value("document.querySelectorAll('thead th[hidden]').length") == 2
    assert opened.value("document.querySelectorAll('#matrix tbody tr[hidden]').length") == 1
    assert opened.value("document.getElementById('count').textContent") == "1 of 4 cells"
    opened.open(Path(opened.value("location.pathname")))
    opened.value("document.getElementById('query').focus()")
    opened.write("session_dir_gone")
    assert visible(opened) == ["codex debian-12 model error: FAIL (1)"]


def test_everything_is_reached_by_keyboard(opened: Browser) -> None:
    opened.value("[...document.querySelectorAll('#states input')].at(-1).focus()")
    opened.press("Tab")
    assert focused(opened).startswith("codex debian-12 tool success")
    opened.press("ArrowRight", "ArrowRight")
    assert focused(opened).startswith("codex debian-12 model error")
    opened.press("Enter")
    opened.wait(
        "!document.getElementById('cell').hidden && document.querySelector('.checks') !== null"
    )
    assert opened.value("document.activeElement.id") == "cell"
    first = opened.value("document.querySelector('.checks tbody th').textContent")
    assert first == "session_dir_gone"
    opened.press("Escape")
    opened.wait("document.getElementById('cell').hidden")
    assert focused(opened).startswith("codex debian-12 model error")


def test_hostile_texts_are_shown_as_texts(opened: Browser, report: Path) -> None:
    opened.open(report, CELL)
    opened.wait("document.querySelector('.checks') !== null")
    text = opened.value("document.getElementById('cell').textContent")
    assert text.count(HOSTILE) >= 4
    assert opened.value("document.querySelectorAll('#cell img, #cell script').length") == 0
    assert opened.value("document.images.length") == 0
    assert opened.complaints == []


def test_an_opened_cell_shows_checks_exchanges_transcript_and_times(
    opened: Browser, report: Path
) -> None:
    opened.open(report, "codex/debian-12/tool_success")
    opened.wait("document.querySelector('.checks') !== null")
    titles = opened.value("[...document.querySelectorAll('#cell h3')].map((h) => h.textContent)")
    assert titles == [
        "Checks",
        "Time",
        "Story",
        "Processes",
        "Files changed",
        "Transcripts and output",
    ]
    assert opened.value("document.querySelectorAll('#cell details.exchange').length") == 3
    assert opened.value("document.querySelectorAll('#cell .track i').length") == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_can_be_read_in_both_schemes(
    scheme: str, opened: Browser, tmp_path: Path
) -> None:
    opened.scheme(scheme)
    opened.size(1100, 700)
    ratios = opened.value(CONTRASTS)
    assert min(ratios.values()) >= 4.5, ratios
    shot = opened.screenshot()
    (tmp_path / f"{scheme}.png").write_bytes(shot)
    assert shot.startswith(b"\x89PNG")
    assert len(shot) > 10_000


def test_500_cells_open_and_stay_small(opened: Browser, tmp_path: Path) -> None:
    cells = [
        with_cell(
            good("tool_success"),
            harness=f"h{n % 7}",
            image=f"i{n // 7 % 6}",
            scenario=f"s{n // 42}",
            cell_id=f"h{n % 7}/i{n // 7 % 6}/s{n // 42}",
        )
        for n in range(500)
    ]
    path = tmp_path / "many.html"
    path.write_text(page_of(*cells, native={"stdout": "line\n" * 2000}))
    assert path.stat().st_size < 5_000_000
    opened.open(path)
    assert len(visible(opened)) == 500


CONTRASTS = """
(() => {
  const probe = document.createElement('span');
  document.body.append(probe);
  const numbers = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = (colour) => numbers(colour).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const found = {};
  for (const name of ['pass', 'known', 'flaky', 'fail', 'error', 'refused']) {
    probe.className = name;
    const style = getComputedStyle(probe);
    const pair = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
    found[name] = (pair[0] + 0.05) / (pair[1] + 0.05);
  }
  probe.remove();
  return found;
})()
"""
