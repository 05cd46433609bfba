"""The page of a run: bounded, self-contained, and with no way in for hostile texts."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sandbox.report
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.judge import judge_cell
from sandbox.evidence.nativetext import native_texts
from sandbox.evidence.records import EgressEvent, FileChange, Survivor
from sandbox.evidence.results import CellResult, RunVerdicts, tally
from sandbox.evidence.story import story
from sandbox.evidence.view import CellEvidence
from sandbox.report.cut import cut
from sandbox.report.details import details, unpack
from sandbox.report.html import (
    CELL_LEAST,
    MOST_SHOWN,
    PAGE_LIMIT,
    budget,
    most_detailed,
    page,
    script_json,
)
from tests.broken.defects import with_cell, with_witness
from tests.broken.goodcells import good
from tests.reported import gathered

SCRIPT = Path(sandbox.report.__file__).with_name("page") / "page.js"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028'\"&"


def result(files: CellFiles) -> CellResult:
    return judge_cell(
        CellEvidence(files),
        baseline=Baseline(),
        today=dt.date(2027, 1, 1),
        checks=CHECKS.values(),
    )


def hostile() -> CellFiles:
    files = with_witness(good("tool_failure"), survivors=(Survivor(pid=9, command=HOSTILE),))
    files = replace(
        files,
        footprint=(FileChange(path=HOSTILE, change="added"),),
        egress=(EgressEvent(at=files.cell.started_at + 1, name=HOSTILE, record_type="A"),),
    )
    return with_cell(files, rollout_id=HOSTILE)


def page_of(*cells: CellFiles, native: dict[str, str] | None = None, run_id: str = "r1") -> str:
    found = tuple(map(result, cells))
    run = RunVerdicts(
        run_id=run_id,
        profile="quick",
        cells=found,
        stale=(),
        summary=tally(found).summary(()),
        exit_code=int(tally(found).exit_code(())),
        gates=tally(found).gates(),
    )
    most = budget(len(cells))
    packed = {
        one.cell_id: details(one, files, native or {}, most=most)
        for one, files in zip(found, cells, strict=True)
    }
    return page(gathered(run), packed)


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.names: list[str] = []
        self.open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


def tags(text: str) -> Tags:
    parser = Tags()
    parser.feed(text)
    return parser


def test_hostile_texts_add_no_element() -> None:
    clean = tags(page_of(good("tool_failure")))
    dirty = tags(page_of(hostile(), native={HOSTILE: HOSTILE}, run_id=HOSTILE))
    assert dirty.names == clean.names
    scripts = [text for attributes, text in dirty.scripts if "type" not in attributes]
    assert scripts == [SCRIPT.read_text()]


def test_hostile_texts_are_all_there_when_a_cell_is_opened() -> None:
    files = hostile()
    data = unpack(details(result(files), files, {"stdout": HOSTILE}, most=100_000))
    assert ["rollout", HOSTILE] in data["facts"]
    assert f"added {HOSTILE}" in data["files"]
    assert f"left running: 9 {HOSTILE}" in data["processes"]
    assert ["stdout", HOSTILE] in data["texts"]
    assert any(HOSTILE in event["title"] for event in data["events"])
    assert json.loads(script_json([HOSTILE])) == [HOSTILE]


def test_the_script_never_writes_markup_and_loads_nothing() -> None:
    script = SCRIPT.read_text()
    forbidden = "innerHTML|outerHTML|insertAdjacent|document.write|eval\\(|Function\\(|setTimeout"
    assert not re.search(forbidden, script)
    assert not re.search("fetch|XMLHttpRequest|import\\(|localStorage", script)
    text = page_of(good())
    assert not re.search("(src|href)=", text.replace(script, ""))


def test_the_policy_allows_the_page_s_own_script_and_nothing_else() -> None:
    text = page_of(good())
    (script,) = [body for attributes, body in tags(text).scripts if "type" not in attributes]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_a_cell_s_details_tell_its_story() -> None:
    files = good("retry_500")
    data = unpack(details(result(files), files, {}, most=100_000))
    titles = [event["title"] for event in data["events"]]
    assert sum("-> 500" in title for title in titles) == 1
    assert sum("-> 200" in title for title in titles) == 2
    assert any(title.startswith("tool call shell") for title in titles)
    assert titles[-1] == "rollout with reward 1.0"
    assert dict(data["facts"])["version"] == "codex 1.2.3"
    assert data["phases"] == files.cell.phases


def test_the_story_is_in_order_and_shows_each_text_once() -> None:
    events = story(good("tool_success"))
    times = [event.at for event in events if event.at is not None]
    assert times[:-1] == sorted(times[:-1])
    prompts = [p for e in events for p in e.parts if p.label == "asked, user"]
    assert len(prompts) == 1


@pytest.mark.parametrize("most", [3_000, 8_000, 30_000])
def test_details_keep_to_their_size_and_show_the_cut(most: int) -> None:
    files = good("tool_success")
    noise = base64.b64encode(hashlib.shake_256(b"seed").digest(400_000)).decode()
    packed = details(result(files), files, {"stdout": noise}, most=most)
    assert len(packed) <= most
    assert re.search("characters cut", dict(unpack(packed)["texts"])["stdout"])


def test_many_events_are_cut_in_the_middle() -> None:
    files = good("tool_success")
    egress = tuple(
        EgressEvent(at=files.cell.started_at + n, name=f"host-{n}", record_type="A")
        for n in range(500)
    )
    data = unpack(details(result(files), replace(files, egress=egress), {}, most=100_000))
    assert len(data["events"]) == 201
    assert "events cut" in data["events"][-2]["title"]
    assert data["events"][-1]["title"].startswith("rollout")


def test_500_cells_fit_into_the_page() -> None:
    assert 500 * (budget(500) + 300) < PAGE_LIMIT


def test_of_too_many_cells_only_some_have_details() -> None:
    assert budget(2_000) > 0
    assert budget(10_000) == 0
    assert most_detailed(7_000) * CELL_LEAST + 7_000 * 300 < PAGE_LIMIT
    assert most_detailed(100_000) * CELL_LEAST + MOST_SHOWN * 300 < PAGE_LIMIT
    assert most_detailed(100_000) == most_detailed(10_000) > 900


def test_a_cut_keeps_head_and_tail() -> None:
    assert cut("abc", 3) == "abc"
    found = cut("a" * 50 + "b" * 50, 30)
    assert found == "a" * 20 + "\n[... 70 characters cut ...]\n" + "b" * 10


def test_native_files_are_bounded_and_no_link_is_followed(tmp_path: Path) -> None:
    native = tmp_path / "native"
    native.mkdir()
    (native / "long").write_text("x" * 500 + "end")
    (native / "empty").write_text("")
    (native / "db").write_bytes(b"SQLite\0\1")
    (native / "link").symlink_to("/etc/hostname")
    (native / "odd").write_bytes(b"\xff\xfe text")
    os.mkfifo(native / "pipe")
    names = ("db", "empty", "gone", "link", "long", "odd", "pipe")
    found = native_texts(tmp_path, names, most=90)
    assert found["long"].endswith("end")
    assert "[... 413 bytes cut ...]" in found["long"]
    assert found["db"] == "[no text: 8 bytes]"
    assert found["link"] == "[a symlink to /etc/hostname]"
    assert found["pipe"] == "[no regular file]"
    assert "cannot be read" in found["gone"]
    assert "text" in found["odd"]
    assert "empty" not in found


def node(source: str) -> Any:
    """Run JavaScript with the page's functions in ``page`` and return what it gives as JSON."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node to run the page's functions with")
    text = f"const page = require({json.dumps(str(SCRIPT))});\n(async () => {{ {source} }})()"
    text += ".then((found) => console.log(JSON.stringify(found)))"
    ended = subprocess.run(
        [program, "-e", text], capture_output=True, text=True, timeout=30, check=True
    )
    return json.loads(ended.stdout)


def test_the_page_s_own_functions() -> None:
    files = good("tool_failure")
    packed = details(result(files), files, {"stdout": HOSTILE}, most=50_000)
    found = node(
        """
        const cell = { id: "codex/alpine-3.23/tool_failure", state: "fail", bad: ["tool_status"] };
        const all = new Set(["fail", "pass"]);
        const shows = (text, states) => page.matches(cell, page.parseQuery(text), states || all);
        const grid = [["a", null, "b"], [null, null, "c"]];
        return {
          shown: ["", "codex", "CODEX fail", "alpine-*", "tool_status", "!pi", "*/tool_failure",
            "3.23"].map((text) => shows(text)),
          hidden: ["pi", "!codex", "codex pi", "lpine", "debian-*", "[", "3x23", "*_success"]
            .map((text) => shows(text)),
          state: shows("", new Set(["pass"])),
          bad: page.badChecks("PFNK.E", ["a", "b", "c", "d", "e", "f"].map((id) => ({ id }))),
          steps: [page.step(grid, 0, 0, "ArrowRight"), page.step(grid, 0, 2, "ArrowDown"),
            page.step(grid, 0, 0, "ArrowUp"), page.step(grid, 0, 0, "x")],
          links: ["https://a", "javascript:alert(1)", " http://a"].map(page.isWebAddress),
          times: [null, 0.0123, 2.345, 123.4].map(page.seconds),
          texts: (await page.unpack(PACKED)).texts,
        };
        """.replace("PACKED", json.dumps(packed))
    )
    assert found["shown"] == [True] * 8
    assert found["hidden"] == [False] * 8
    assert found["state"] is False
    assert found["bad"] == ["b", "d", "f"]
    assert found["steps"] == [[0, 2], [1, 2], None, None]
    assert found["links"] == [True, False, False]
    assert found["times"] == ["", "12 ms", "2.3 s", "123 s"]
    assert found["texts"] == [["stdout", HOSTILE]]
