"use strict";
const $ = (id) => document.getElementById(id);
const EVERY = 500;

function seconds(value) {
  if (value === null || !isFinite(value)) return "–";
  const [scale, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  const shown = value * scale;
  return `${shown.toFixed(shown < 100 ? 2 : 1)} ${unit}`;
}
const perSecond = (value) => (value === null ? "–" : `${value.toFixed(value < 100 ? 2 : 0)} /s`);

function cell(row, text, number = false) {
  const made = row.insertCell();
  made.textContent = text;
  if (number) made.className = "n";
  return made;
}

function devices(list) {
  const body = $("devices").tBodies[0];
  body.replaceChildren();
  for (const device of list) {
    const row = body.insertRow();
    const name = cell(row, "");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = device.colour;
    name.append(swatch, device.name);
    cell(row, device.node || "here");
    cell(row, device.submodels, true);
    const queue = cell(row, device.queue ? `${"■".repeat(Math.min(device.queue, 12))} ${device.queue}` : "0");
    queue.className = "queue";
    const busy = cell(row, "");
    const meter = document.createElement("span"), fill = document.createElement("i");
    meter.className = "meter wide";
    fill.style.width = `${Math.round(100 * device.busy)}%`;
    fill.style.background = device.colour;
    meter.append(fill);
    busy.append(meter, `${Math.round(100 * device.busy)} %`);
    cell(row, seconds(device.measured), true);
    cell(row, seconds(device.predicted), true);
    const ratio = cell(row, device.ratio === null ? "–" : `${device.ratio.toFixed(2)}x`, true);
    if (device.slow) ratio.classList.add("bad");
  }
}

function line(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function plot(history, predicted) {
  const svg = $("plot"), left = 56, right = 790, top = 12, bottom = 190;
  const most = 1.1 * Math.max(predicted || 0, ...history.map((p) => p[1]), 1e-9);
  const first = history.length ? history[0][0] : 0, last = Math.max(first + 10, history.length ? history.at(-1)[0] : 0);
  const x = (t) => left + ((right - left) * (t - first)) / (last - first), y = (r) => bottom - ((bottom - top) * r) / most;
  svg.replaceChildren();
  for (const share of [0, 0.5, 1]) {
    const rate = (share * most) / 1.1;
    svg.append(line("line", { class: "grid", x1: left, x2: right, y1: y(rate), y2: y(rate) }));
    svg.append(line("text", { x: left - 6, y: y(rate) + 4, "text-anchor": "end" }, rate.toFixed(rate < 10 ? 1 : 0)));
  }
  svg.append(line("text", { x: left, y: bottom + 18 }, `${first.toFixed(0)} s`), line("text", { x: right, y: bottom + 18, "text-anchor": "end" }, `${last.toFixed(0)} s`));
  if (predicted) svg.append(line("line", { class: "bound", x1: left, x2: right, y1: y(predicted), y2: y(predicted) }));
  if (history.length) svg.append(line("path", { stroke: "var(--accent)", d: history.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("") }));
}

function show(state) {
  $("status").textContent = state.status;
  $("rate").textContent = perSecond(state.rate);
  $("rate-predicted").textContent = `predicted ${perSecond(state.predicted_rate)}`;
  $("each").textContent = seconds(state.each);
  const ratio = state.each && state.predicted ? `, measured / predicted ${(state.each / state.predicted).toFixed(2)}x` : "";
  $("each-predicted").textContent = `predicted ${seconds(state.predicted)}${ratio}`;
  $("requests").textContent = state.requests.toLocaleString("en");
  $("running").textContent = `in ${seconds(state.seconds)}`;
  devices(state.devices);
  plot(state.history, state.predicted_rate);
  $("events-box").hidden = !state.events.length;
  $("events").replaceChildren(...state.events.map((event) => {
    const item = document.createElement("li");
    item.textContent = `after ${seconds(event.at)}: ${event.text}`;
    return item;
  }));
  return !state.ended;
}

async function look() {
  let more = true;
  try {
    more = show(await (await fetch("state.json", { cache: "no-store" })).json());
  } catch (error) {
    $("status").textContent = "The run has ended.";
    more = false;
  }
  if (more) setTimeout(look, EVERY);
}
look();
