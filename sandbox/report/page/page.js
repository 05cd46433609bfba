"use strict";
// The page of a run. Texts of harnesses are hostile: they reach the document as text nodes only.
// The part above "the page" is free of the document, so that it can be tested without a browser.

/** Letters say the same as the colours. */
const LETTERS = { pass: "P", known: "K", flaky: "Y", fail: "F", error: "E", refused: "R", not_applicable: "–" };
const STATUS = { P: "pass", K: "known", Y: "flaky", F: "fail", E: "error", N: "not_applicable" };

/** Turn what was typed into tests; a word without a star matches where a word begins. */
function parseQuery(typed) {
  return typed.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const not = word.length > 1 && word.startsWith("!");
    const text = not ? word.slice(1) : word;
    const pattern = text.split("*").map((part) => part.replace(/[\\^$.|?+()[\]{}/-]/g, "\\$&")).join(".*");
    return { not, test: new RegExp(text.includes("*") ? "^" + pattern + "$" : "(^|[^a-z0-9])" + pattern) };
  });
}

/** Whether a cell is shown: every word matches its id, a part of it, its state or an open check. */
function matches(cell, query, states) {
  if (!states.has(cell.state)) return false;
  const texts = [cell.id, ...cell.id.split("/"), cell.state, ...cell.bad];
  return query.every(({ not, test }) => texts.some((text) => test.test(text.toLowerCase())) !== not);
}

/** Return the ids of the checks of a cell that neither pass nor are not applicable. */
function badChecks(letters, checks) {
  return [...letters].flatMap((letter, i) => ("PN.".includes(letter) ? [] : [checks[i].id]));
}

/** Arrange cells as rows (harness and image) by scenarios, in the order given. */
function arrange(cells) {
  const rows = new Map();
  const scenarios = [];
  for (const cell of cells) {
    const [harness, image, scenario] = cell.path;
    const name = harness + "/" + image;
    if (!rows.has(name)) rows.set(name, { harness, image, version: "", cells: new Map() });
    const row = rows.get(name);
    row.version = row.version || cell.version;
    row.cells.set(scenario, cell);
    if (!scenarios.includes(scenario)) scenarios.push(scenario);
  }
  return { rows: [...rows.values()], scenarios };
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  return value >= 100 ? value.toFixed(0) + " s" : value >= 1 ? value.toFixed(1) + " s" : (value * 1000).toFixed(0) + " ms";
}

/** Return where an arrow key leads from a place in the grid of visible cells, or null. */
function step(grid, row, column, key) {
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
  if (!by) return null;
  for (let r = row + by[0], c = column + by[1]; grid[r] && c >= 0 && c < grid[r].length; r += by[0], c += by[1]) {
    if (grid[r][c]) return [r, c];
  }
  return null;
}

/** Undo base64 and deflate; the browser does both. */
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** Only web addresses become links; a javascript: address stays text. */
function isWebAddress(text) {
  return /^https?:\/\//i.test(text);
}

if (typeof module !== "undefined") module.exports = { parseQuery, matches, badChecks, arrange, seconds, step, unpack, isWebAddress };

// --- the page ---------------------------------------------------------------------------------

/** Make an element; children are nodes or texts. */
function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function state(name, text) {
  return el("span", { class: "state " + name }, LETTERS[name] + " " + (text || name.replace("_", " ")));
}

function start() {
  const $ = (id) => document.getElementById(id);
  const index = JSON.parse($("index").textContent);
  const cells = index.cells.map((cell, number) => ({
    number, id: cell[0], path: cell[1], state: cell[2], label: cell[3], letters: cell[4], version: cell[5], seconds: cell[6],
    bad: badChecks(cell[4], index.checks),
  }));
  const byId = new Map(cells.map((cell) => [cell.id, cell]));
  const found = arrange(cells);
  const longest = Math.max(1, ...cells.map((cell) => cell.seconds || 0));
  const buttons = new Map();
  let shown = null;

  function matrix() {
    const head = el("tr", {}, el("th", { scope: "col" }, "harness, image"));
    for (const name of found.scenarios) {
      head.append(el("th", { scope: "col", title: index.proves[name] || null, "data-scenario": name }, name.replace(/_/g, "_\u200b")));
    }
    const body = el("tbody");
    for (const row of found.rows) {
      const line = el("tr", {}, el("th", { scope: "row" }, row.harness + " ", el("span", { class: "soft" }, row.version), el("br"), el("span", { class: "soft" }, row.image)));
      for (const name of found.scenarios) line.append(el("td", {}, ...(row.cells.has(name) ? [button(row.cells.get(name))] : [])));
      body.append(line);
    }
    $("matrix").append(el("table", { "aria-label": "harness and image by scenario" }, el("thead", {}, head), body));
  }

  function button(cell) {
    const bar = el("i", { class: "bar", "aria-hidden": "true" });
    bar.style.width = (100 * (cell.seconds || 0)) / longest + "%";
    const made = el("button", { class: "c " + cell.state, type: "button", tabindex: "-1", title: cell.id + ", " + seconds(cell.seconds), "aria-label": cell.id.replace(/[/_]/g, " ") + ": " + cell.label }, el("b", {}, LETTERS[cell.state]), " " + cell.label, bar);
    made.addEventListener("click", () => { location.hash = cell.id; });
    buttons.set(cell.id, made);
    return made;
  }

  function filter() {
    const query = parseQuery($("query").value);
    const states = new Set([...$("states").querySelectorAll("input:checked")].map((box) => box.value));
    const columns = new Set();
    let count = 0;
    for (const cell of cells) {
      const visible = matches(cell, query, states);
      buttons.get(cell.id).hidden = !visible;
      if (visible) { count += 1; columns.add(cell.path[2]); }
    }
    const table = $("matrix").querySelector("table");
    found.scenarios.forEach((name, i) => {
      for (const row of table.rows) row.cells[i + 1].hidden = !columns.has(name);
    });
    found.rows.forEach((row, i) => {
      table.tBodies[0].rows[i].hidden = ![...row.cells.values()].some((cell) => !buttons.get(cell.id).hidden);
    });
    $("count").textContent = count + " of " + cells.length + " cells";
    rove();
  }

  /** One cell of the grid takes the Tab key; arrow keys move on from it. */
  function rove(to) {
    const first = to || [...buttons.values()].find((one) => !one.hidden);
    for (const one of buttons.values()) one.tabIndex = one === first ? 0 : -1;
  }

  function move(event) {
    const here = event.target.closest("button.c");
    if (!here) return;
    const lines = [...$("matrix").querySelectorAll("tbody tr")];
    const grid = lines.map((line) => [...line.cells].slice(1).map((td) => {
      const one = td.firstChild;
      return !line.hidden && !td.hidden && one && !one.hidden ? one : null;
    }));
    const row = grid.findIndex((line) => line.includes(here));
    const to = step(grid, row, grid[row].indexOf(here), event.key);
    if (!to) return;
    event.preventDefault();
    rove(grid[to[0]][to[1]]);
    grid[to[0]][to[1]].focus();
  }

  function states() {
    const present = Object.keys(LETTERS).filter((name) => cells.some((cell) => cell.state === name));
    for (const name of present) {
      const count = cells.filter((cell) => cell.state === name).length;
      $("states").append(el("label", {}, el("input", { type: "checkbox", value: name, checked: true }), " ", state(name, name + " " + count)));
    }
  }

  function gates() {
    if (!index.gates.length) return;
    const body = el("tbody");
    for (const gate of index.gates) {
      body.append(el("tr", {}, ...[gate.harness, gate.image].map((text) => el("th", { scope: "row" }, text)),
        el("td", {}, el("span", { class: "state " + (gate.reached ? "pass" : "fail") }, gate.reached || "none")),
        ...["P0", "P1", "P2"].map((tier) => el("td", {}, (gate.tiers[tier] || "-") + (gate.open[tier] ? ", " + gate.open[tier] + " open" : ""))),
        el("td", {}, String(gate.known))));
    }
    const titles = ["harness", "image", "gate holds up to", "P0 passed", "P1 passed", "P2 passed", "known"];
    $("gates").append(el("h2", {}, "Gates"), el("table", {}, el("thead", {}, el("tr", {}, ...titles.map((text) => el("th", { scope: "col" }, text)))), body));
  }

  function stale() {
    if (!index.stale.length) return;
    $("stale").append(el("h2", {}, "Stale baseline entries"), el("ul", {}, ...index.stale.map((entry) => el("li", {}, entry.cell + " " + entry.check + ": its failure is gone (" + entry.reason + ")" + (entry.near ? "; near miss: " + entry.near : "")))));
  }

  async function open() {
    const cell = byId.get(decodeURIComponent(location.hash.slice(1)));
    const panel = $("cell");
    if (shown) buttons.get(shown.id).removeAttribute("aria-current");
    shown = cell || null;
    panel.hidden = !cell;
    panel.replaceChildren();
    if (!cell) return;
    buttons.get(cell.id).setAttribute("aria-current", "true");
    rove(buttons.get(cell.id));
    const close = el("button", { type: "button" }, "Close");
    close.addEventListener("click", leave);
    panel.append(el("header", {}, el("h2", {}, cell.id + " ", state(cell.state, cell.label)), close));
    if (!$("d" + cell.number).textContent) {
      panel.append(el("p", {}, "This run has too many cells for the details of each. See them with: sandbox show " + cell.id));
      panel.focus();
      return;
    }
    let data;
    try {
      data = await unpack($("d" + cell.number).textContent);
    } catch (error) {
      panel.append(el("p", {}, "The details cannot be shown by this browser: " + error));
      return;
    }
    if (shown !== cell) return;
    panel.append(...sections(cell, data));
    panel.focus();
  }

  function leave() {
    const back = shown && buttons.get(shown.id);
    history.replaceState(null, "", location.pathname + location.search);
    open();
    if (back) back.focus();
  }

  function sections(cell, data) {
    const facts = el("dl", {});
    for (const [name, text] of data.facts) facts.append(el("dt", {}, name), el("dd", { class: "mono" }, text));
    if (data.attempts.length) facts.append(el("dt", {}, "attempts"), el("dd", {}, ...data.attempts.map((name) => state(name))));
    return [facts, ...part("Checks", checks(cell, data)), ...part("Time", times(data)), ...part("Story", story(data)),
      ...part("Processes", list(data.processes)), ...part("Files changed", list(data.files)), ...part("Transcripts and output", texts(data))];
  }

  function part(title, node) {
    return node ? [el("h3", {}, title), node] : [];
  }

  function list(lines) {
    return lines.length ? el("ul", { class: "mono" }, ...lines.map((line) => el("li", {}, line))) : null;
  }

  function checks(cell, data) {
    const more = new Map(data.verdicts.map((verdict) => [verdict.check, verdict]));
    const body = el("tbody");
    const rows = [...cell.letters].map((letter, i) => [index.checks[i], letter]).filter(([, letter]) => letter !== ".");
    const weight = (letter) => "FEYKPN".indexOf(letter);
    rows.sort((a, b) => weight(a[1]) - weight(b[1]));
    for (const [check, letter] of rows) {
      const said = more.get(check.id) || {};
      const reason = el("td", { class: "reason" }, said.flaky ? said.flaky + ": " : "", said.reason || "");
      if (said.known) reason.append(el("div", { class: "soft" }, "baseline: " + said.known + " "));
      if (said.link) reason.append(isWebAddress(said.link) ? el("a", { href: said.link, rel: "noreferrer" }, said.link) : said.link);
      body.append(el("tr", {}, el("th", { scope: "row", class: "mono", title: check.why }, check.id), el("td", {}, check.tier), el("td", {}, check.group), el("td", {}, state(STATUS[letter])), reason));
    }
    return el("table", { class: "checks" }, el("thead", {}, el("tr", {}, ...["check", "tier", "group", "verdict", "reason"].map((text) => el("th", { scope: "col" }, text)))), body);
  }

  function times(data) {
    const phases = Object.entries(data.phases);
    const total = phases.reduce((sum, [, value]) => sum + value, 0);
    if (!total) return null;
    const made = el("div", { class: "times" });
    let before = 0;
    for (const [name, value] of phases) {
      const bar = el("i");
      bar.style.left = (100 * before) / total + "%";
      bar.style.width = (100 * value) / total + "%";
      before += value;
      made.append(el("span", {}, name), el("span", { class: "track" }, bar), el("span", {}, seconds(value)));
    }
    return made;
  }

  function story(data) {
    if (!data.events.length) return null;
    return el("div", {}, ...data.events.map((event) => {
      const title = (event.at === null ? "" : "+" + event.at.toFixed(2) + " s  ") + event.title + (event.s === null ? "" : "  (" + seconds(event.s) + ")");
      if (!event.parts.length) return el("div", { class: "event " + event.kind }, title);
      return el("details", { class: "event " + event.kind }, el("summary", {}, title), el("div", {}, ...event.parts.flatMap(([label, text]) => [el("span", { class: "soft" }, label), el("pre", {}, text)])));
    }));
  }

  function texts(data) {
    if (!data.texts.length) return null;
    return el("div", {}, ...data.texts.map(([name, text]) => el("details", {}, el("summary", { class: "mono" }, name), el("div", {}, el("pre", {}, text)))));
  }

  states();
  matrix();
  gates();
  stale();
  filter();
  $("filter").addEventListener("input", filter);
  $("filter").addEventListener("submit", (event) => event.preventDefault());
  $("matrix").addEventListener("keydown", move);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && shown) leave(); });
  window.addEventListener("hashchange", open);
  open();
}

if (typeof document !== "undefined") start();
