// Search, buttons, theme, and the first picture.
for (const d of meta.devices) {
  $("legend").append(el("span", {}, el("span", { class: "swatch", style: `background:${d.colour}` }), d.name));
}
if (!meta.critical.length) $("critical-label").hidden = true;
const search = $("search"), list = $("matches");
const lower = meta.names.map((name) => name.toLowerCase());
let chosen = -1;
function choose(i) {
  chosen = i;
  [...list.children].forEach((li, j) => li.setAttribute("aria-selected", String(i === j)));
  if (list.children[i]) list.children[i].scrollIntoView({ block: "nearest" });
}
function closeList() { list.hidden = true; search.setAttribute("aria-expanded", "false"); }
function take(v) { closeList(); select(v); showOp(v); }
search.addEventListener("input", () => {
  const text = search.value.trim().toLowerCase();
  state.matches = text ? lower.flatMap((name, v) => (name.includes(text) || meta.types[data.type[v]].toLowerCase() === text ? [v] : [])) : null;
  const shown = (state.matches || []).slice(0, 40);
  list.replaceChildren(...shown.map((v) => {
    const li = el("li", { role: "option" }, swatch(data.device[v]), meta.names[v]);
    li.addEventListener("pointerdown", (e) => { e.preventDefault(); take(v); });
    return li;
  }));
  if (state.matches && !shown.length) list.replaceChildren(el("li", {}, "no matching op"));
  if (state.matches && state.matches.length > 40) list.append(el("li", { class: "small" }, `and ${state.matches.length - 40} more`));
  list.hidden = !state.matches;
  search.setAttribute("aria-expanded", String(!list.hidden));
  choose(shown.length ? 0 : -1);
  graph.redraw();
});
search.addEventListener("keydown", (e) => {
  const count = Math.min(40, (state.matches || []).length);
  if (e.key === "ArrowDown" && count) choose((chosen + 1) % count);
  else if (e.key === "ArrowUp" && count) choose((chosen + count - 1) % count);
  else if (e.key === "Enter" && chosen >= 0) take(state.matches[chosen]);
  else if (e.key === "Escape") { search.value = ""; state.matches = null; closeList(); graph.canvas.focus(); graph.redraw(); }
  else return;
  e.preventDefault();
});
search.addEventListener("blur", closeList);
document.addEventListener("keydown", (e) => {
  if (e.target.tagName === "INPUT") return;
  if (e.key === "/") { search.focus(); search.select(); e.preventDefault(); }
  if (e.key === "Escape") select(-1);
});
for (const id of ["show-cuts", "show-critical"]) $(id).addEventListener("change", () => { graph.redraw(); timeline.redraw(); });
$("zoom-in").addEventListener("click", () => zoomGraph(1.4));
$("zoom-out").addEventListener("click", () => zoomGraph(1 / 1.4));
$("fit").addEventListener("click", fitAll);
const darkMedia = matchMedia("(prefers-color-scheme: dark)");
$("theme").addEventListener("click", () => {
  const root = document.documentElement, now = root.dataset.theme || (darkMedia.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  graph.redraw(); timeline.redraw();
});
darkMedia.addEventListener("change", () => { graph.redraw(); timeline.redraw(); });
fitAll();
graph.now(); timeline.now();
const drawn = performance.now() - t0;
showPanel();
// For tests and for the curious: the state, and how long the first picture took.
window.loadmaster = { meta, data, state, view, select, drawn, isOpen: grouped ? isOpen : null, onScreen: (v) => [(data.x[v] - view.x) * view.k, (data.y[v] - view.y) * view.k] };
document.documentElement.dataset.ready = "yes";
