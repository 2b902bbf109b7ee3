// The packed block: length of the header, header as JSON, arrays at multiples of 4.
const t0 = performance.now();
const $ = (id) => document.getElementById(id);
const packed = Uint8Array.from(atob($("data").textContent), (c) => c.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
const block = await new Response(stream).arrayBuffer();
const headerLength = new DataView(block).getUint32(0, true);
const meta = JSON.parse(new TextDecoder().decode(new Uint8Array(block, 4, headerLength)));
const data = {};
for (const [name, [kind, offset, length]] of Object.entries(meta.arrays)) {
  const type = { f4: Float32Array, i4: Int32Array, u1: Uint8Array }[kind];
  data[name] = new type(block, 4 + headerLength + offset, length);
}
const N = meta.names.length, D = meta.devices.length;

// Arcs between ops, and the tensors that each op reads and makes.
const reads = Array.from({ length: N }, () => []), makes = Array.from({ length: N }, () => []);
const tails = [], heads = [], cutArc = [];
for (let t = 0; t < data.producer.length; t++) {
  const u = data.producer[t];
  makes[u].push(t);
  for (let i = data.consumerPtr[t]; i < data.consumerPtr[t + 1]; i++) {
    const v = data.consumer[i];
    reads[v].push(t);
    tails.push(u); heads.push(v);
    cutArc.push(data.device[u] !== data.device[v]);
  }
}
const onCritical = new Uint8Array(N), criticalTransfer = new Set(), criticalCall = new Set();
for (const [kind, index] of meta.critical) {
  if (kind === "op") onCritical[index] = 1;
  else if (kind === "transfer") criticalTransfer.add(index);
  else { criticalCall.add(index); for (const v of meta.calls[index][1]) onCritical[v] = 1; }
}

// The one thing that everything shows: an op or a group that is looked at.
const state = { op: -1, group: -1, matches: null, listeners: [] };
function select(op, group = -1) {
  state.op = op; state.group = group;
  for (const listener of state.listeners) listener();
}

function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function seconds(s) {
  if (s === 0) return "0 s";
  const a = Math.abs(s);
  const [factor, unit] = a >= 1 ? [1, "s"] : a >= 1e-3 ? [1e3, "ms"] : a >= 1e-6 ? [1e6, "µs"] : [1e9, "ns"];
  const x = a * factor;
  return (s < 0 ? "−" : "") + x.toFixed(x < 100 ? 2 : x < 1000 ? 1 : 0) + " " + unit;
}
function bytes(b) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (b >= 1024 && i < 4) { b /= 1024; i++; }
  return b.toFixed(i ? 1 : 0) + " " + units[i];
}
function dark(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b < 140;
}
// Shortened in the middle: names of ops differ at their beginnings and at their ends.
function shortName(name, most) {
  if (name.length <= most) return name;
  if (most < 4) return name.slice(0, Math.max(most - 1, 0)) + "…";
  const tail = Math.floor((most - 1) / 2);
  return name.slice(0, most - 1 - tail) + "…" + name.slice(-tail);
}

// A canvas that is sharp on any screen and redraws at most once a frame.
function surface(canvas, draw) {
  const s = { canvas, ctx: canvas.getContext("2d"), w: 0, h: 0, waiting: false };
  s.redraw = () => {
    if (s.waiting) return;
    s.waiting = true;
    requestAnimationFrame(() => { s.waiting = false; s.now(); });
  };
  s.now = () => {
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
    }
    s.w = w; s.h = h;
    s.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    s.ctx.clearRect(0, 0, w, h);
    draw(s.ctx, w, h);
  };
  new ResizeObserver(s.redraw).observe(canvas);
  return s;
}
// Drag, wheel (once the canvas has the focus) and keys; the view is asked to pan and zoom.
function navigate(canvas, { pan, zoom, fit, click, hover }) {
  let from = null, last = null, dragged = false;
  canvas.addEventListener("pointerdown", (e) => {
    from = last = [e.offsetX, e.offsetY]; dragged = false;
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!from) { if (hover) hover(e.offsetX, e.offsetY); return; }
    if (Math.hypot(e.offsetX - from[0], e.offsetY - from[1]) > 4) dragged = true;
    if (dragged) { pan(e.offsetX - last[0], e.offsetY - last[1]); canvas.style.cursor = "grabbing"; }
    last = [e.offsetX, e.offsetY];
  });
  canvas.addEventListener("pointerup", (e) => {
    if (from && !dragged) click(e.offsetX, e.offsetY);
    from = null; canvas.style.cursor = "";
  });
  canvas.addEventListener("pointerleave", () => { if (hover) hover(-1, -1); });
  canvas.addEventListener("wheel", (e) => {
    if (document.activeElement !== canvas && !e.ctrlKey) return;
    e.preventDefault();
    zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), e.offsetX, e.offsetY);
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
    if (step) pan(...step);
    else if (e.key === "+" || e.key === "=") zoom(1.3);
    else if (e.key === "-") zoom(1 / 1.3);
    else if (e.key === "0") fit();
    else return;
    e.preventDefault();
  });
}
