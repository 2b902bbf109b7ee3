"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c510a", "#5e3c99", "#b2182b", "#4d9221", "#000080"];
const byName = new Map(data.instances.map((entry) => [entry.name, entry]));
const runs = data.runs.map(([instance, method, budget, seed, cost, ratio, optimal, seconds, why, effort, history]) =>
  ({ instance, method, budget, seed, cost, ratio, optimal, seconds, why, effort, history }));

function make(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const SVG = new Set(["svg", "path", "line", "text", "g"]);

function seconds(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) if (value >= size) return `${(value / size).toPrecision(5)} ${unit}`;
  return value === 0 ? "0 s" : `${value.toExponential(3)} s`;
}
const percent = (value, digits = 0) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`);

/* A table whose columns are sorted by buttons in their heads. columns: {title, value, show, n} */
function table(target, columns, entries, sorted) {
  const state = sorted;
  const draw = (focus) => {
    const column = columns[state.column];
    const order = [...entries].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * (state.down ? -1 : 1);
    });
    const head = make("tr", {}, ...columns.map((entry, i) => make("th",
      { scope: "col", class: entry.n ? "n" : "", "aria-sort": i === state.column ? (state.down ? "descending" : "ascending") : "none" },
      make("button", { type: "button", onclick: () => { state.down = i === state.column ? !state.down : false; state.column = i; draw(i); } }, entry.title))));
    const body = order.map((entry) => make("tr", {}, ...columns.map((column) => {
      const cell = make("td", { class: column.n ? "n" : "" });
      const shown = column.show ? column.show(entry) : column.value(entry);
      cell.append(shown === null || shown === undefined ? "–" : shown);
      return cell;
    })));
    target.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
    if (focus !== undefined) target.querySelectorAll("th button")[focus].focus();
  };
  draw();
}

function drawScores() {
  const [suite, budget] = [$("suite").value, $("budget").value];
  const entries = data.scores.filter((entry) => entry.suite === suite && entry.budget === budget);
  table($("score-table"), [
    { title: "method", value: (e) => e.method, show: (e) => { const span = make("span", { title: data.methods[e.method] || "" }); span.append(e.method); return span; } },
    { title: "score", n: true, value: (e) => e.score, show: (e) => `${e.score.toFixed(4)}${e.seeds > 1 ? ` (${e.low.toFixed(4)}–${e.high.toFixed(4)})` : ""}` },
    { title: "instances", n: true, value: (e) => e.instances },
    { title: "reached", n: true, value: (e) => e.reached, show: (e) => percent(e.reached) },
    { title: "proved", n: true, value: (e) => e.proved, show: (e) => percent(e.proved) },
    { title: "found nothing", n: true, value: (e) => e.nothing },
    { title: "seeds", n: true, value: (e) => e.seeds },
    { title: "what it is", value: (e) => data.methods[e.method] || "" },
  ], entries, { column: 1, down: false });
  const chosen = data.suites.find((entry) => entry.name === suite);
  const instances = new Set(runs.filter((run) => byName.get(run.instance).suite === suite && run.budget === budget).map((run) => run.instance));
  const methods = new Set(runs.filter((run) => byName.get(run.instance).suite === suite && run.budget === budget).map((run) => run.method));
  const left = chosen.methods.filter((name) => !methods.has(name));
  $("missing").textContent = `${chosen.title}. ${chosen.why} Run with this budget: ${instances.size} of ${chosen.size} instances` +
    (left.length ? `; methods that the suite states and that were not run: ${left.join(", ")}.` : "; all methods that the suite states.");
  drawProfile(suite, budget);
  drawInstances(suite);
}

function drawProfile(suite, budget) {
  const within = Number($("within").value);
  const mine = runs.filter((run) => byName.get(run.instance).suite === suite && run.budget === budget && run.ratio !== null);
  const methods = [...new Set(mine.map((run) => run.method))].sort();
  const W = Math.max(300, Math.min(1060, $("profile").clientWidth || 900));
  const [H, L, B, R, T] = [W < 600 ? 240 : 320, 46, 34, 12, 10];
  const counted = !/ s(,|$)/.test(budget);
  const from = counted ? 1 : 0.001;
  const most = Math.max(10 * from, ...mine.map((run) => run.effort));
  const label = (t) => (counted ? t.toLocaleString("en") : t < 1 ? `${Math.round(1000 * t)} ms` : `${t} s`);
  $("effort").textContent = counted ? "by the evaluations that it had made" : "by the seconds that had passed";
  const x = (t) => L + (W - L - R) * Math.log(Math.max(t, from) / from) / Math.log(most / from);
  const y = (share) => T + (H - T - B) * (1 - share);
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Share of runs of ${suite} near the best known value, over time` });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(make("line", { x1: L, x2: W - R, y1: y(share), y2: y(share), stroke: "currentColor", "stroke-opacity": 0.15 }),
      make("text", { x: L - 6, y: y(share) + 4, "text-anchor": "end", fill: "currentColor", "font-size": 12 }, percent(share)));
  }
  for (let t = from; t <= most * 1.001; t *= 10) svg.append(make("text", { x: x(t), y: H - 12, "text-anchor": "middle", fill: "currentColor", "font-size": 12 }, label(Math.round(t / from) * from)));
  const legend = make("ul", { class: "legend" });
  methods.forEach((method, i) => {
    const own = mine.filter((run) => run.method === method);
    const times = own.map((run) => { const hit = run.history.find((point) => point[1] <= within); return hit ? hit[0] : (run.ratio <= within ? run.effort : null); })
      .filter((time) => time !== null).sort((a, b) => a - b);
    let path = `M ${x(from)} ${y(0)}`;
    times.forEach((time, k) => { path += ` H ${x(time)} V ${y((k + 1) / own.length)}`; });
    path += ` H ${x(most)}`;
    const [colour, dash] = [COLOURS[i % COLOURS.length], i >= COLOURS.length ? "6 3" : "none"];
    svg.append(make("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash }));
    const key = make("span"); key.style.borderColor = colour;
    legend.append(make("li", {}, key, `${method} ${percent(times.length / own.length)}`));
  });
  $("profile").replaceChildren(mine.length ? svg : make("p", {}, "Nothing was run."), legend);
}

function drawInstances(suite) {
  const entries = data.instances.filter((entry) => entry.suite === suite);
  table($("instance-table"), [
    { title: "instance", value: (e) => e.name, show: (e) => make("button", { type: "button", class: "link", onclick: () => { location.hash = `instance=${e.name}`; } }, e.name) },
    { title: "model", value: (e) => e.model },
    { title: "ops", n: true, value: (e) => e.ops, show: (e) => e.ops.toLocaleString("en") },
    { title: "devices", n: true, value: (e) => e.devices },
    { title: "best known", n: true, value: (e) => e.cost, show: (e) => seconds(e.cost) },
    { title: "gap", n: true, value: (e) => e.gap, show: (e) => (e.proved ? make("span", { class: "good" }, "optimal") : percent(e.gap, 2)) },
    { title: "checked", value: (e) => e.certificate || "", show: (e) => (e.certificate ? `${e.certificate}${e.proof_checked ? ": optimal" : ""}` : "–") },
    { title: "why it is in", value: (e) => e.why },
  ], entries, { column: 0, down: false });
}

function drawDetail(name) {
  const entry = byName.get(name);
  if (!entry) { $("detail").replaceChildren(); return; }
  const facts = [
    ["where it comes from", entry.origin], ["why it is in", entry.why], ["execution model", entry.model],
    ["size", `${entry.ops.toLocaleString("en")} ops, ${entry.devices} devices`], ["hash", entry.hash],
    ["best known", entry.cost === undefined ? "nothing yet" : `${seconds(entry.cost)} by ${entry.found_by}, ${entry.found_on}`],
    ["proven bound", entry.bound ? `${seconds(entry.bound)} by ${entry.bound_by} (gap ${percent(entry.gap, 4)})` : "none"],
    ["checked again", entry.checked ? `${seconds(entry.checked)} by ${entry.certificate}` : "no certificate"],
  ];
  const list = make("dl");
  for (const [term, text] of facts) list.append(make("dt", {}, term), make("dd", {}, text));
  const parts = [make("h2", { id: "detail-title" }, entry.name), list];
  if (entry.report) parts.push(make("p", {}, make("a", { href: entry.report }, "Report of the best known placement: graph, timeline, memory")));
  parts.push(make("pre", {}, [`loadmaster bench show ${name} --report ${name}.html`, `loadmaster bench export ${name} -o ${name}.json`, `loadmaster bench verify ${name}`].join("\n")));
  const own = runs.filter((run) => run.instance === name);
  const box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Runs on ${name}` });
  const grid = make("table");
  box.append(grid);
  if (own.length) parts.push(make("h3", {}, "Runs"), box, make("h3", {}, "The command that makes a number again"), make("pre", { id: "command" }, "Select a cost above."));
  $("detail").replaceChildren(...parts);
  if (own.length) table(grid, [
    { title: "method", value: (r) => r.method }, { title: "budget", value: (r) => r.budget }, { title: "seed", n: true, value: (r) => r.seed },
    { title: "cost", n: true, value: (r) => r.cost, show: (r) => (r.cost === null ? make("span", { class: "dim", title: r.why }, r.ratio === null ? "not supported" : "found nothing") : make("button", { type: "button", class: "link", onclick: () => { $("command").textContent = command(r); } }, seconds(r.cost))) },
    { title: "ratio", n: true, value: (r) => r.ratio, show: (r) => (r.ratio === null ? "–" : r.ratio.toFixed(4)) },
    { title: "proved", value: (r) => r.optimal, show: (r) => (r.optimal ? "yes" : "") },
    { title: "seconds", n: true, value: (r) => r.seconds, show: (r) => r.seconds.toFixed(2) },
  ], own, { column: 4, down: false });
  $("detail").focus({ preventScroll: true });
  $("detail").scrollIntoView();
}

function command(run) {
  const given = run.budget.split(", ").map((part) => (part.endsWith(" s") ? `--budget ${part.replace(" ", "")}` : `--evaluations ${part.split(" ")[0].replaceAll(",", "")}`)).join(" ");
  return `loadmaster bench run --instances ${run.instance} --methods ${run.method} ${given} --seeds ${run.seed + 1} --placements found -o results.jsonl`;
}

function budgets() {
  const suite = $("suite").value;
  const found = [...new Set(data.scores.filter((entry) => entry.suite === suite).map((entry) => entry.budget))];
  $("budget").replaceChildren(...found.map((budget) => make("option", { value: budget }, budget)));
}

function start() {
  const done = data.suites.filter((suite) => data.scores.some((entry) => entry.suite === suite.name)).length;
  const known = data.instances.filter((entry) => entry.cost !== undefined);
  $("summary").textContent = `Version ${data.version}: ${data.instances.length} instances in ${data.suites.length} suites. Best known values of ${known.length}; ` +
    `${known.filter((entry) => entry.proved).length} are proved optimal, ${known.filter((entry) => entry.proof_checked).length} of these by a proof that was checked again. ` +
    `${data.runs.length} runs in ${done} suites.`;
  $("origin").textContent = `Run on ${data.dates.join(", ") || "no day"} on: ${data.machines.join(" | ") || "nothing"}.`;
  $("suite").replaceChildren(...data.suites.map((suite) => make("option", { value: suite.name }, suite.name)));
  $("suite").addEventListener("change", () => { budgets(); drawScores(); });
  $("budget").addEventListener("change", drawScores);
  $("within").addEventListener("change", drawScores);
  const follow = () => {
    const match = /^#instance=(.+)$/.exec(decodeURIComponent(location.hash));
    if (match && byName.has(match[1])) {
      const suite = byName.get(match[1]).suite;
      if ($("suite").value !== suite) { $("suite").value = suite; budgets(); drawScores(); }
      drawDetail(match[1]);
    }
  };
  addEventListener("hashchange", follow);
  addEventListener("resize", () => drawProfile($("suite").value, $("budget").value));
  budgets();
  drawScores();
  follow();
}
start();
