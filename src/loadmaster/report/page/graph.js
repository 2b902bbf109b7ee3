// The placed graph. World units are those of the layout; view maps them to the canvas: screen = (world - at) * k.
const grouped = Boolean(meta.groups);
const allArcs = [...tails.keys()], allOps = [...data.x.keys()];
const [nodeW, nodeH] = meta.node;
const view = { x: 0, y: 0, k: 1 };
const opened = grouped ? new Uint8Array(meta.groups.length) : null;
const members = grouped ? meta.groups.map(() => []) : null;
const groupArcCut = grouped ? new Map() : null;
const innerArcs = grouped ? meta.groups.map(() => []) : null;
if (grouped) {
  for (let v = 0; v < N; v++) members[data.group[v]].push(v);
  for (let i = 0; i < tails.length; i++) {
    const a = data.group[tails[i]], b = data.group[heads[i]];
    if (a === b) innerArcs[a].push(i);
    else if (cutArc[i]) groupArcCut.set(a * meta.groups.length + b, true);
  }
}
const scaleOf = (v) => (grouped ? data.groupScale[data.group[v]] : 1);
const isOpen = (g) => opened[g] === 1 || (opened[g] === 0 && view.k * data.groupScale[g] * nodeH > 7);
const graph = surface($("graph-canvas"), drawGraph);
function fitBox(x, y, w, h) {
  const width = graph.canvas.clientWidth, height = graph.canvas.clientHeight;
  view.k = Math.min(width / w, height / h, 2.5);
  view.x = x + w / 2 - width / 2 / view.k;
  view.y = y + h / 2 - height / 2 / view.k;
  graph.redraw();
}
function fitAll() { fitBox(-20, -20, meta.size[0] + 40, meta.size[1] + 40); }
function zoomGraph(factor, x = graph.w / 2, y = graph.h / 2) {
  const k = Math.min(Math.max(view.k * factor, 0.002), 60);
  view.x += x / view.k - x / k;
  view.y += y / view.k - y / k;
  view.k = k;
  graph.redraw();
}
function showOp(v) {
  if (grouped && !isOpen(data.group[v])) opened[data.group[v]] = 1;
  const s = scaleOf(v), w = nodeW * 7 * s, h = w * graph.canvas.clientHeight / graph.canvas.clientWidth;
  const sx = (data.x[v] - view.x) * view.k, sy = (data.y[v] - view.y) * view.k;
  const away = sx < 40 || sy < 40 || sx > graph.w - 40 || sy > graph.h - 40;
  if (away || view.k * s * nodeH < 12) fitBox(data.x[v] - w / 2, data.y[v] - h / 2, w, h);
  graph.redraw();
}

function curve(ctx, x1, y1, x2, y2, straight) {
  ctx.moveTo(x1, y1);
  if (straight) { ctx.lineTo(x2, y2); return; }
  const bend = y2 > y1 ? (y2 - y1) / 2 : Math.min(Math.abs(x2 - x1) / 3 + 20 * view.k, 200 * view.k);
  ctx.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
}
function arc(ctx, u, v, straight) {
  const hu = nodeH / 2 * scaleOf(u), hv = nodeH / 2 * scaleOf(v), k = view.k;
  const x1 = (data.x[u] - view.x) * k, y1 = (data.y[u] + hu - view.y) * k;
  const x2 = (data.x[v] - view.x) * k, y2 = (data.y[v] - hv - view.y) * k;
  if (Math.max(x1, x2) < -50 || Math.min(x1, x2) > graph.w + 50) return;
  if (Math.max(y1, y2) < -50 || Math.min(y1, y2) > graph.h + 50) return;
  curve(ctx, x1, y1, x2, y2, straight);
}
function strokeArcs(ctx, list, wanted, colour, width, alpha, straight) {
  ctx.beginPath();
  for (const i of list) if (wanted(i)) arc(ctx, tails[i], heads[i], straight);
  ctx.strokeStyle = colour; ctx.lineWidth = width; ctx.globalAlpha = alpha;
  ctx.stroke();
  ctx.globalAlpha = 1;
}
function drawArcs(ctx, list, theme) {
  const cutsShown = $("show-cuts").checked, far = view.k < 0.25;
  // Seen from afar, thousands of lines would hide what they connect.
  const fade = (most) => (far ? Math.max(0.1, Math.min(most, 250 / list.length)) : most);
  // Arcs that lead up again go from one column of the folded layout to another: thin, so that they stay behind.
  const folded = (i) => data.y[heads[i]] < data.y[tails[i]];
  const cut = (i) => cutsShown && cutArc[i];
  strokeArcs(ctx, list, (i) => !cut(i) && folded(i), theme.edge, 0.8, fade(0.45), far);
  strokeArcs(ctx, list, (i) => !cut(i) && !folded(i), theme.edge, far ? 0.6 : 1, fade(0.8), far);
  strokeArcs(ctx, list, (i) => cut(i) && folded(i), theme.fg, 0.8, fade(0.35), far);
  strokeArcs(ctx, list, (i) => cut(i) && !folded(i), theme.fg, far ? 1 : 1.8, fade(0.75), far);
}
function box(ctx, x, y, w, h, r) {
  if (w < 5) ctx.rect(x, y, w, h); else ctx.roundRect(x, y, w, h, r);
}
function drawOps(ctx, list, theme) {
  const k = view.k, showCritical = $("show-critical").checked;
  const byDevice = meta.devices.map(() => []);
  for (const v of list) {
    const w = nodeW * scaleOf(v) * k, x = (data.x[v] - view.x) * k, y = (data.y[v] - view.y) * k;
    if (x + w > 0 && x - w < graph.w && y + w > 0 && y - w < graph.h) byDevice[data.device[v]].push(v);
  }
  meta.devices.forEach((device, d) => {
    ctx.fillStyle = device.colour;
    ctx.beginPath();
    for (const v of byDevice[d]) {
      const s = scaleOf(v) * k, w = Math.max(nodeW * s, 1.5), h = Math.max(nodeH * s, 1.2);
      box(ctx, (data.x[v] - view.x) * k - w / 2, (data.y[v] - view.y) * k - h / 2, w, h, 6 * s);
    }
    ctx.fill();
    if (showCritical) {
      ctx.beginPath();
      for (const v of byDevice[d]) {
        if (!onCritical[v]) continue;
        const s = scaleOf(v) * k, w = Math.max(nodeW * s, 3), h = Math.max(nodeH * s, 2.5);
        box(ctx, (data.x[v] - view.x) * k - w / 2, (data.y[v] - view.y) * k - h / 2, w, h, 6 * s);
      }
      ctx.strokeStyle = theme.fg; ctx.lineWidth = Math.max(0.6, Math.min(3, 3 * k * (list.length ? scaleOf(list[0]) : 1)));
      ctx.stroke();
    }
    ctx.fillStyle = dark(device.colour) ? "#fff" : "#111";
    ctx.textAlign = "center"; ctx.textBaseline = "middle";
    for (const v of byDevice[d]) {
      const s = scaleOf(v) * k;
      if (nodeH * s < 13) continue;
      const size = Math.min(nodeH * s * 0.36, 15), most = Math.floor(nodeW * s / (size * 0.56));
      const x = (data.x[v] - view.x) * k, y = (data.y[v] - view.y) * k;
      ctx.font = `${size}px system-ui, sans-serif`;
      const kind = meta.types[data.type[v]];
      if (kind && nodeH * s > 24) {
        ctx.fillText(shortName(meta.names[v], most), x, y - size * 0.62);
        ctx.globalAlpha = 0.8;
        ctx.fillText(kind.length > most ? kind.slice(0, most - 1) + "…" : kind, x, y + size * 0.62);
        ctx.globalAlpha = 1;
      } else ctx.fillText(shortName(meta.names[v], most), x, y);
    }
  });
}
function drawGroups(ctx, theme) {
  const k = view.k, [w, h] = meta.box, G = meta.groups.length, cutsShown = $("show-cuts").checked;
  for (const cut of [false, true]) {
    for (let i = 0; i < data.groupTail.length; i++) {
      const a = data.groupTail[i], b = data.groupHead[i];
      if ((cutsShown && groupArcCut.has(a * G + b)) !== cut) continue;
      const x1 = (data.groupX[a] - view.x) * k, y1 = (data.groupY[a] + h / 2 - view.y) * k;
      const x2 = (data.groupX[b] - view.x) * k, y2 = (data.groupY[b] - h / 2 - view.y) * k;
      if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > graph.w || Math.max(y1, y2) < 0 || Math.min(y1, y2) > graph.h) continue;
      ctx.beginPath();
      curve(ctx, x1, y1, x2, y2, k < 0.1);
      ctx.strokeStyle = cut ? theme.fg : theme.edge;
      ctx.globalAlpha = Math.max(0.06, Math.min(0.6, 80 / data.groupTail.length)) * Math.min(1, 0.4 + data.groupCount[i] / 20);
      ctx.lineWidth = Math.min(6, (1 + Math.log2(data.groupCount[i]) / 2) * Math.max(0.7, k));
      ctx.stroke();
    }
  }
  ctx.globalAlpha = 1;
  for (let g = 0; g < G; g++) {
    const x = (data.groupX[g] - w / 2 - view.x) * k, y = (data.groupY[g] - h / 2 - view.y) * k;
    if (x > graph.w || y > graph.h || x + w * k < 0 || y + h * k < 0) continue;
    ctx.beginPath();
    box(ctx, x, y, w * k, h * k, 10 * k);
    ctx.fillStyle = theme.paper; ctx.fill();
    ctx.strokeStyle = g === state.group ? theme.accent : theme.edge;
    ctx.lineWidth = g === state.group ? 3 : 1.2;
    ctx.stroke();
    const open = isOpen(g);
    if (open) { drawArcs(ctx, innerArcs[g], theme); drawOps(ctx, members[g], theme); }
    else {
      const share = meta.devices.map(() => 0);
      for (const v of members[g]) share[data.device[v]]++;
      let at = x + 8 * k;
      const full = (w - 16) * k, top = y + h * k * 0.42, tall = h * k * 0.5;
      share.forEach((count, d) => {
        const part = full * count / members[g].length;
        ctx.fillStyle = meta.devices[d].colour;
        ctx.fillRect(at, top, part, tall);
        at += part;
      });
    }
    const size = Math.min(open ? 16 * k : 30 * k, 17);
    if (size < 5) continue;
    ctx.fillStyle = theme.fg; ctx.textAlign = "left"; ctx.textBaseline = "top";
    ctx.font = `600 ${size}px system-ui, sans-serif`;
    const most = Math.floor((w - 16) * k / (size * 0.56));
    ctx.fillText(shortName(meta.groups[g], most), x + 8 * k, y + 5 * k);
    if (!open && size > 6) {
      ctx.font = `${size * 0.85}px system-ui, sans-serif`; ctx.fillStyle = theme.soft;
      ctx.fillText(`${members[g].length.toLocaleString("en")} ops`, x + 8 * k, y + 5 * k + size * 1.2);
    }
  }
}
function drawGraph(ctx) {
  const theme = { fg: css("--fg"), edge: css("--edge"), accent: css("--accent"), paper: css("--paper"), soft: css("--soft") };
  if (grouped) drawGroups(ctx, theme);
  else { drawArcs(ctx, allArcs, theme); drawOps(ctx, allOps, theme); }
  const v = state.op, k = view.k;
  const outline = (u, colour, width) => {
    if (grouped && !isOpen(data.group[u])) return;
    const s = scaleOf(u) * k, w = Math.max(nodeW * s, 6) + 5, h = Math.max(nodeH * s, 6) + 5;
    ctx.beginPath();
    box(ctx, (data.x[u] - view.x) * k - w / 2, (data.y[u] - view.y) * k - h / 2, w, h, 8 * s);
    ctx.strokeStyle = colour; ctx.lineWidth = width;
    ctx.stroke();
  };
  if (state.matches) for (const u of state.matches) outline(u, theme.accent, 2);
  if (v >= 0) {
    ctx.beginPath();
    for (const t of reads[v]) arc(ctx, data.producer[t], v, false);
    for (const t of makes[v]) for (let i = data.consumerPtr[t]; i < data.consumerPtr[t + 1]; i++) arc(ctx, v, data.consumer[i], false);
    ctx.strokeStyle = theme.accent; ctx.lineWidth = 2.5;
    ctx.stroke();
    outline(v, theme.accent, 4);
  }
}
function opAt(px, py) {
  const x = px / view.k + view.x, y = py / view.k + view.y;
  for (let v = 0; v < N; v++) {
    if (grouped && !isOpen(data.group[v])) continue;
    const s = scaleOf(v), reach = 2 / view.k;
    if (Math.abs(x - data.x[v]) <= nodeW * s / 2 + reach && Math.abs(y - data.y[v]) <= nodeH * s / 2 + reach) return v;
  }
  return -1;
}
function groupAt(px, py) {
  if (!grouped) return -1;
  const x = px / view.k + view.x, y = py / view.k + view.y, [w, h] = meta.box;
  for (let g = 0; g < meta.groups.length; g++)
    if (Math.abs(x - data.groupX[g]) <= w / 2 && Math.abs(y - data.groupY[g]) <= h / 2) return g;
  return -1;
}
function toggleGroup(g, open) {
  opened[g] = open ? 1 : 2; // 0: by zoom, 1: open, 2: closed
  if (open) fitBox(data.groupX[g] - meta.box[0] * 0.6, data.groupY[g] - meta.box[1] * 0.6, meta.box[0] * 1.2, meta.box[1] * 1.2);
  select(-1, g);
}
navigate(graph.canvas, {
  pan: (dx, dy) => { view.x -= dx / view.k; view.y -= dy / view.k; graph.redraw(); },
  zoom: zoomGraph, fit: fitAll,
  click: (x, y) => {
    graph.canvas.focus();
    const v = opAt(x, y);
    if (v >= 0) { select(v); return; }
    const g = groupAt(x, y);
    if (g >= 0 && !isOpen(g)) toggleGroup(g, true);
    else select(-1, g);
  },
});
state.listeners.push(() => graph.redraw());
