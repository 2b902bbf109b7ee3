// What is known about the op or the group that is selected. Text goes in as text: names are never read as HTML.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function swatch(d) { return el("span", { class: "swatch", style: `background:${meta.devices[d].colour}` }); }
function opButton(v) { return el("button", { class: "link", "data-op": v }, meta.names[v]); }
function moveText(v, d) {
  const delta = data.move[v * D + d];
  if (d === data.device[v]) return el("td", { class: "n" }, "current");
  if (!Number.isFinite(data.time[v * D + d])) return el("td", { class: "n" }, "not supported");
  if (!data.allowed[v * D + d]) return el("td", { class: "n" }, "not allowed");
  if (Number.isNaN(delta)) return el("td", { class: "n" }, "not computed");
  if (!Number.isFinite(delta)) return el("td", { class: "n" }, "infeasible");
  const share = meta.cost ? delta / meta.cost : 0;
  if (Math.abs(share) < 1e-6) return el("td", { class: "n" }, "no change");
  return el("td", { class: `n ${delta < 0 ? "better" : "worse"}` }, `${delta > 0 ? "+" : ""}${seconds(delta)} (${delta > 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(share > 0.1 ? 0 : 2)} %)`);
}
function why(v) {
  const here = data.device[v], name = meta.devices[here].name, own = data.time[v * D + here];
  if (data.pin[v] >= 0) return `It is pinned to ${meta.devices[data.pin[v]].name}.`;
  let choices = 0, fastest = here, cheapest = -1;
  for (let d = 0; d < D; d++) {
    if (!data.allowed[v * D + d]) continue;
    choices++;
    if (data.time[v * D + d] < data.time[v * D + fastest]) fastest = d;
    const delta = data.move[v * D + d];
    if (d !== here && Number.isFinite(delta) && (cheapest < 0 || delta < data.move[v * D + cheapest])) cheapest = d;
  }
  if (choices <= 1) return `${name} is the only device that may run it.`;
  const speed = fastest === here ? `No device runs it faster than ${name}.` : `${meta.devices[fastest].name} would run it ${seconds(own - data.time[v * D + fastest])} faster.`;
  if (cheapest < 0) return speed;
  const delta = data.move[v * D + cheapest], other = meta.devices[cheapest].name;
  if (delta > 1e-6 * meta.cost) return `${speed} Moving it makes the plan slower, by at least ${seconds(delta)} (to ${other}).`;
  if (delta < -1e-6 * meta.cost) return `${speed} On ${other} the plan would be ${seconds(-delta)} faster.`;
  return `${speed} Moving it to ${other} does not change the cost: it is not on the bottleneck.`;
}
function neighbours(title, entries) {
  if (!entries.length) return [];
  const list = el("ul");
  for (const [v, t, cut] of entries.slice(0, 12)) {
    const size = data.bytes[t] ? ` ${bytes(data.bytes[t])}` : "";
    list.append(el("li", {}, swatch(data.device[v]), opButton(v), el("span", { class: "small" }, `${size}${cut ? " · transferred" : ""}`)));
  }
  if (entries.length > 12) list.append(el("li", { class: "small" }, `and ${entries.length - 12} more`));
  return [el("h4", {}, title), list];
}
function opPanel(v) {
  const d = data.device[v], kind = meta.types[data.type[v]];
  const facts = [kind, data.memory[v] ? bytes(data.memory[v]) : "", data.flops[v] ? `${data.flops[v].toExponential(2)} flop` : ""];
  const rows = meta.devices.map((device, e) => {
    const own = data.time[v * D + e];
    return el("tr", e === d ? { class: "here" } : {}, el("td", {}, swatch(e), device.name), el("td", { class: "n" }, Number.isFinite(own) ? seconds(own) : "–"), moveText(v, e));
  });
  const head = el("tr", {}, el("th", {}, "device"), el("th", { class: "n" }, "op time"), el("th", { class: "n" }, "change if moved"));
  const inputs = reads[v].map((t) => [data.producer[t], t, data.device[data.producer[t]] !== d]);
  const outputs = makes[v].flatMap((t) => Array.from(data.consumer.subarray(data.consumerPtr[t], data.consumerPtr[t + 1]), (u) => [u, t, data.device[u] !== d]));
  const together = [];
  for (let u = 0; u < N && together.length < 13; u++) if (u !== v && data.class[u] === data.class[v]) together.push([u, -1, false]);
  const parts = [
    el("h3", {}, meta.names[v]),
    el("div", { class: "small" }, facts.filter(Boolean).join(" · ")),
    el("div", {}, swatch(d), meta.devices[d].name, scheduled ? ` · ${seconds(data.start[v])} to ${seconds(data.end[v])}` : "", onCritical[v] ? " · on the critical path" : ""),
    el("div", { class: "why" }, why(v)),
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)),
    ...neighbours("reads from", inputs),
    ...neighbours("read by", outputs),
    ...neighbours("colocated with", together),
  ];
  return parts;
}
function groupPanel(g) {
  const share = meta.devices.map(() => 0);
  for (const v of members[g]) share[data.device[v]]++;
  const open = isOpen(g), button = el("button", { id: "toggle-group" }, open ? "Close" : "Open");
  button.addEventListener("click", () => toggleGroup(g, !open));
  return [
    el("h3", {}, meta.groups[g]),
    el("p", {}, `${members[g].length.toLocaleString("en")} ops `, button),
    el("ul", {}, ...share.flatMap((count, d) => (count ? [el("li", {}, swatch(d), `${meta.devices[d].name}: ${count.toLocaleString("en")}`)] : []))),
    el("h4", {}, "ops"),
    el("ul", {}, ...members[g].slice(0, 40).map((v) => el("li", {}, swatch(data.device[v]), opButton(v)))),
  ];
}
function overviewPanel() {
  const count = meta.devices.map(() => 0);
  for (let v = 0; v < N; v++) count[data.device[v]]++;
  const improving = [];
  for (let v = 0; v < N; v++) {
    let best = 0;
    for (let d = 0; d < D; d++) if (data.move[v * D + d] < best) best = data.move[v * D + d];
    if (best < -1e-6 * meta.cost) improving.push([best, v]);
  }
  improving.sort((a, b) => a[0] - b[0]);
  const longest = [...data.x.keys()].sort((a, b) => data.time[b * D + device[b]] - data.time[a * D + device[a]]).slice(0, 8);
  const parts = [
    el("h3", {}, "Overview"),
    el("p", { class: "small" }, grouped ? "This graph is large and is shown by name scope: click a group to open it, or zoom in." : "Click an op to see its time on every device and what moving it would change."),
    el("ul", {}, ...meta.devices.map((d, i) => el("li", {}, swatch(i), `${d.name}: ${count[i].toLocaleString("en")} ops, ${seconds(meta.busy[i])}`))),
    el("h4", {}, "longest ops"),
    el("ul", {}, ...longest.map((v) => el("li", {}, swatch(device[v]), opButton(v), el("span", { class: "small" }, ` ${seconds(data.time[v * D + device[v]])}`)))),
    el("h4", {}, "single moves that would help"),
  ];
  if (improving.length) parts.push(el("ul", {}, ...improving.slice(0, 8).map(([delta, v]) => el("li", {}, swatch(device[v]), opButton(v), el("span", { class: "small better" }, ` ${seconds(delta)}`)))));
  else parts.push(el("p", { class: "small" }, "None: no op is better elsewhere while the others stay put."));
  return parts;
}
function showPanel() {
  $("panel").replaceChildren(...(state.op >= 0 ? opPanel(state.op) : state.group >= 0 ? groupPanel(state.group) : overviewPanel()));
  $("panel").scrollTop = 0;
}
state.listeners.push(showPanel);
document.addEventListener("click", (e) => {
  const button = e.target.closest("button[data-op]");
  if (!button) return;
  const v = Number(button.dataset.op);
  select(v); showOp(v);
  if (!$("graph").contains(button)) $("graph").scrollIntoView({ behavior: "smooth" });
});
