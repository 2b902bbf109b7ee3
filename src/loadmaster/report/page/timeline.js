// Devices and links over time; where the model has no schedule, what each device does per sample.
const scheduled = Boolean(data.start), gutter = 168;
const lanes = [];
const horizon = Math.max(meta.cost || 0, ...(data.measuredEnd ? [data.measuredEnd.reduce((a, b) => (b > a ? b : a), 0)] : [0])) || 1;
const span = { from: 0, to: horizon };
function lane(label, note, height, colour) {
  const made = { label, note, height, colour, bars: [] };
  lanes.push(made);
  return made;
}
const device = data.device;
meta.devices.forEach((d, i) => {
  const idle = meta.cost ? Math.max(0, 1 - meta.busy[i] / meta.cost) : 0;
  const row = lane(d.name, `idle ${(100 * idle).toFixed(0)} %`, 30, d.colour);
  if (meta.actions.length) {
    for (const [d, stage, m, back, from, to] of meta.actions) if (d === i)
      row.bars.push([from, to, -1, `stage ${stage} · microbatch ${m} · ${back ? "backward" : "forward"}`, false, back ? 0.5 : 1, `${back ? "B" : "F"}${m}`]);
    return;
  }
  if (!scheduled) {
    row.note = seconds(meta.load[i]);
    row.bars.push([0, meta.busy[i], -1, `${d.name}: compute ${seconds(meta.busy[i])}`, false, 1]);
    row.bars.push([meta.busy[i], meta.busy[i] + meta.comm[i], -1, `${d.name}: transfers ${seconds(meta.comm[i])}`, false, 0.45]);
    return;
  }
  const calls = meta.calls.map((call, c) => [call, c]).filter(([call]) => call[0] === i);
  for (const [call, c] of calls) row.bars.push([call[2], call[3], call[1][0], `call of ${call[1].length} ops`, criticalCall.has(c), 1]);
  if (!calls.length) for (let v = 0; v < N; v++) if (device[v] === i) row.bars.push([data.start[v], data.end[v], v, null, onCritical[v], 1]);
  if (data.measuredStart) {
    const below = lane("", "measured", 16, d.colour);
    for (let v = 0; v < N; v++) if (device[v] === i && data.measuredEnd[v] >= 0) below.bars.push([data.measuredStart[v], data.measuredEnd[v], v, null, false, 0.7]);
  }
});
if (scheduled) {
  const links = new Map();
  for (let i = 0; i < data.moved.length / 3; i++) {
    const [t, a, b] = data.moved.subarray(3 * i, 3 * i + 3), key = a * D + b;
    if (!links.has(key)) links.set(key, []);
    const text = `${meta.names[data.producer[t]]}${data.bytes[t] ? " · " + bytes(data.bytes[t]) : ""}`;
    links.get(key).push([data.movedSpan[2 * i], data.movedSpan[2 * i + 1], data.producer[t], text, criticalTransfer.has(i), 1]);
  }
  for (const key of [...links.keys()].sort((x, y) => x - y)) {
    const a = Math.floor(key / D), b = key % D, bars = links.get(key);
    const busy = bars.reduce((sum, bar) => sum + bar[1] - bar[0], 0);
    lane(`${meta.devices[a].name} → ${meta.devices[b].name}`, seconds(busy), 18, meta.devices[a].colour).bars = bars;
  }
}
if (meta.actions.length) {
  const links = new Map();
  for (const [a, b, stage, m, back, from, to] of meta.messages) {
    const key = a * D + b;
    if (!links.has(key)) links.set(key, []);
    if (to > from) links.get(key).push([from, to, -1, `${back ? "gradients" : "activations"} of stage ${stage} · microbatch ${m}`, false, 1]);
  }
  for (const key of [...links.keys()].sort((x, y) => x - y)) {
    const a = Math.floor(key / D), b = key % D, bars = links.get(key);
    const busy = bars.reduce((sum, bar) => sum + bar[1] - bar[0], 0);
    lane(`${meta.devices[a].name} → ${meta.devices[b].name}`, seconds(busy), 18, meta.devices[a].colour).bars = bars;
  }
}
for (const row of lanes) row.bars.sort((a, b) => a[0] - b[0]);
$("timeline-canvas").style.height = lanes.reduce((sum, row) => sum + row.height + 6, 44) + "px";
const timeline = surface($("timeline-canvas"), drawTimeline);
const toX = (s) => gutter + (s - span.from) / (span.to - span.from) * (timeline.w - gutter - 14);
const toSeconds = (x) => span.from + (x - gutter) / (timeline.w - gutter - 14) * (span.to - span.from);
function drawTimeline(ctx, w, h) {
  const theme = { fg: css("--fg"), soft: css("--soft"), line: css("--line"), paper: css("--paper"), accent: css("--accent") };
  let step = 10 ** Math.floor(Math.log10((span.to - span.from) / 4));
  while ((span.to - span.from) / step > 9) step *= step.toExponential()[0] === "2" ? 2.5 : 2;
  ctx.font = "11px system-ui, sans-serif"; ctx.textBaseline = "middle";
  for (let i = Math.ceil(span.from / step); i * step <= span.to; i++) {
    const x = toX(i * step);
    ctx.fillStyle = theme.line; ctx.fillRect(x, 24, 1, h - 30);
    ctx.fillStyle = theme.soft; ctx.textAlign = "center"; ctx.fillText(seconds(i * step), x, 13);
  }
  let y = 28;
  const showCritical = $("show-critical").checked;
  for (const row of lanes) {
    row.y = y;
    ctx.fillStyle = theme.paper; ctx.globalAlpha = 0.7;
    ctx.fillRect(gutter, y, w - gutter - 14, row.height);
    ctx.globalAlpha = 1;
    ctx.save();
    ctx.beginPath(); ctx.rect(gutter, y - 2, w - gutter - 12, row.height + 4); ctx.clip();
    let painted = -1;
    for (const bar of row.bars) {
      const [a, b, v, text, critical, alpha, short] = bar, x1 = toX(a), x2 = toX(b);
      if (x2 < gutter || x1 > w || (x2 < painted && !critical && v !== state.op)) continue;
      const wide = Math.max(x2 - x1 - (x2 - x1 > 4 ? 0.7 : 0), 0.7);
      ctx.globalAlpha = alpha; ctx.fillStyle = row.colour;
      ctx.fillRect(x1, y, wide, row.height);
      ctx.globalAlpha = 1;
      painted = x1 + 0.7;
      if (critical && showCritical) {
        if (wide > 5) { ctx.strokeStyle = theme.fg; ctx.lineWidth = 2; ctx.strokeRect(x1 + 1, y + 1, wide - 2, row.height - 2); }
        else { ctx.fillStyle = theme.fg; ctx.fillRect(x1, y, wide, 2.5); ctx.fillRect(x1, y + row.height - 2.5, wide, 2.5); }
      }
      if (v >= 0 && v === state.op) { ctx.strokeStyle = theme.accent; ctx.lineWidth = 4; ctx.strokeRect(x1 - 1, y - 1, wide + 2, row.height + 2); }
      if (wide > (short ? 6.5 * short.length + 6 : 46) && row.height > 17) {
        ctx.fillStyle = alpha < 1 ? theme.fg : dark(row.colour) ? "#fff" : "#111"; ctx.textAlign = "left";
        const label = short ? short : text === null ? meta.names[v] : text.replace(/^.*?: /, "");
        ctx.fillText(shortName(label, Math.floor((wide - 8) / 5.6)), Math.max(x1, gutter) + 5, y + row.height / 2 + 1);
      }
    }
    ctx.restore();
    ctx.fillStyle = row.colour; ctx.fillRect(10, y + row.height / 2 - 5, row.label ? 10 : 0, 10);
    ctx.fillStyle = theme.fg; ctx.textAlign = "left";
    ctx.fillText(shortName(row.label, 14), 26, y + row.height / 2 + 1);
    ctx.fillStyle = theme.soft; ctx.textAlign = "right"; ctx.fillText(row.note, gutter - 8, y + row.height / 2 + 1);
    y += row.height + 6;
  }
  for (const [value, label, dash] of [[meta.bound, "bound", [4, 4]], [meta.cost, "cost", []]]) {
    if (value === null || value < span.from || value > span.to * 1.0001) continue;
    const x = toX(value);
    ctx.strokeStyle = theme.fg; ctx.lineWidth = 1.3; ctx.setLineDash(dash);
    ctx.beginPath(); ctx.moveTo(x, 24); ctx.lineTo(x, y); ctx.stroke(); ctx.setLineDash([]);
    ctx.fillStyle = theme.fg; ctx.textAlign = "right"; ctx.fillText(label, x - 4, y + 5);
  }
}
function barAt(x, y) {
  const row = lanes.find((r) => y >= r.y && y < r.y + r.height);
  if (!row || x < gutter) return null;
  const s = toSeconds(x), near = 2 * (span.to - span.from) / Math.max(1, timeline.w);
  let found = null;
  for (const bar of row.bars) if (s >= bar[0] - near && s <= bar[1] + near) { found = bar; if (s >= bar[0] && s <= bar[1]) break; }
  return found;
}
function moveSpan(from, to) {
  const length = Math.min(to - from, horizon);
  span.from = Math.max(0, Math.min(from, horizon - length));
  span.to = span.from + length;
  timeline.redraw();
}
navigate(timeline.canvas, {
  pan: (dx) => { const ds = toSeconds(gutter + dx) - span.from; moveSpan(span.from - ds, span.to - ds); },
  zoom: (factor, x = timeline.w / 2) => {
    const s = Math.max(0, toSeconds(x)), length = Math.max((span.to - span.from) / factor, horizon * 1e-6);
    const share = (s - span.from) / (span.to - span.from);
    moveSpan(s - share * length, s - share * length + length);
  },
  fit: () => moveSpan(0, horizon),
  click: (x, y) => {
    timeline.canvas.focus();
    const bar = barAt(x, y);
    if (bar && bar[2] >= 0) { select(bar[2]); showOp(bar[2]); }
  },
  hover: (x, y) => {
    const bar = barAt(x, y), tip = $("tip");
    tip.hidden = !bar;
    if (!bar) return;
    tip.textContent = `${bar[3] === null ? meta.names[bar[2]] : bar[3]} · ${seconds(bar[1] - bar[0])}` + (scheduled || meta.actions.length ? ` from ${seconds(bar[0])}` : "") + (bar[4] ? " · on the critical path" : "");
    tip.style.left = Math.min(x + 14, timeline.w - 240) + "px";
    tip.style.top = y + 16 + "px";
  },
});
state.listeners.push(() => timeline.redraw());
