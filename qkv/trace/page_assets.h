// The style sheet and the script of a trace's page.
#pragma once

namespace qkv {

inline constexpr const char* kTraceStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --panel: #ffffff; --ink: #1b1f24; --muted: #667079; --rule: #e4e6e8; --mark: #d55e00;
  --heat: 0, 114, 178; --minus: 213, 94, 0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --panel: #1c2024; --ink: #e6e8ea; --muted: #98a2ab; --rule: #30363c; --mark: #f0843c;
    --heat: 75, 169, 224; --minus: 240, 132, 60;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 20px 64px; max-width: 1180px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 24px; line-height: 1.2; overflow-wrap: anywhere; }
.text { color: var(--ink); white-space: pre-wrap; overflow-wrap: anywhere; max-height: 8em; overflow-y: auto; }
h2 { display: inline; font-size: 18px; }
p { margin: 4px 0 10px; color: var(--muted); max-width: 76ch; }
details { margin-top: 20px; padding: 14px 16px; background: var(--panel); border: 1px solid var(--rule); border-radius: 10px; }
summary { cursor: pointer; }
details > p:first-of-type { margin-top: 8px; }
.tokens { display: flex; flex-wrap: wrap; gap: 4px; margin: 14px 0 0; }
.token { padding: 2px 7px; font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--rule); border-radius: 6px;
  cursor: pointer; white-space: pre; }
.token:focus-visible, button:focus-visible, select:focus-visible, canvas:focus-visible { outline: 2px solid var(--mark); outline-offset: 1px; }
.token.on { border-color: var(--mark); box-shadow: 0 0 0 1px var(--mark); }
.bar { position: sticky; top: 0; z-index: 2; max-height: 22vh; overflow-y: auto; margin: 16px -20px 0; padding: 8px 20px; background: var(--page); border-bottom: 1px solid var(--rule); }
.controls { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 16px; margin: 8px 0; }
select, button.plain { padding: 3px 8px; font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--rule); border-radius: 6px; }
.pair { display: flex; flex-wrap: wrap; gap: 24px; align-items: flex-start; }
.pair > div { min-width: 0; max-width: 100%; overflow-x: auto; }
canvas { display: block; image-rendering: pixelated; }
.head { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: flex-start; }
.head canvas { border: 1px solid var(--rule); }
.head .read { max-width: 340px; }
.grid { display: grid; gap: 4px; overflow-x: auto; }
.grid canvas { width: 56px; height: 56px; border: 1px solid var(--rule); cursor: pointer; }
.grid canvas.on { border-color: var(--mark); box-shadow: 0 0 0 1px var(--mark); }
.grid .name { font-size: 12px; color: var(--muted); align-self: center; white-space: nowrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 3px 8px; text-align: left; white-space: pre; border-bottom: 1px solid var(--rule); }
th { color: var(--muted); font-weight: 500; }
td.on, th.on { box-shadow: inset 2px 0 var(--mark), inset -2px 0 var(--mark); }
.parts { display: grid; grid-template-columns: minmax(0, max-content) max-content minmax(40px, 1fr); gap: 1px 10px; font-size: 13px; align-items: center; }
.parts span { overflow-wrap: anywhere; }
.parts b { font-weight: 500; text-align: right; }
.parts i { display: block; height: 12px; background: rgb(var(--heat)); }
.parts i.minus { background: rgb(var(--minus)); }
svg { flex: none; }
.read { min-height: 1.5em; color: var(--muted); font-size: 13px; }
svg text { fill: var(--ink); font-size: 12px; }
svg line { stroke: rgb(var(--heat)); }
)css";

inline constexpr const char* kTraceScript = R"js(
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
};
const tokens = data.tokens, state = { token: tokens.length - 1, set: 0, layer: 0, head: 0, pinned: null };
const sets = data.attention.map(s => ({ ...s, bytes: Uint8Array.from(atob(s.data), c => c.charCodeAt(0)) }));
const labels = of => (of === "source" ? data.source : tokens);

// Probabilities of a head: byte / 255.
const matrix = (set, layer, head) => {
  const s = sets[set], size = s.queries * s.keys, place = s.layers.slice(0, layer).reduce((n, h) => n + h, 0) + head;
  return { s, at: (q, k) => s.bytes[place * size + q * s.keys + k] / 255 };
};

const rgb = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const drawn = (canvas, m, cell) => {
  canvas.width = m.s.keys * cell;
  canvas.height = m.s.queries * cell;
  const c = canvas.getContext("2d"), colour = rgb("--heat");
  for (let q = 0; q < m.s.queries; ++q)
    for (let k = 0; k < m.s.keys; ++k) {
      c.fillStyle = `rgba(${colour}, ${m.at(q, k)})`;
      c.fillRect(k * cell, q * cell, cell, cell);
    }
};

const svg = (tag, attributes, text) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
};

// A head as a matrix and as lines.
const panel = ({ set, layer, head }) => {
  const m = matrix(set, layer, head), rows = labels(m.s.rows), columns = labels(m.s.columns);
  const read = make("div", { className: "read" }), canvas = make("canvas", { tabIndex: 0 });
  canvas.setAttribute("aria-label", "attention matrix: rows are queries, columns are keys");
  drawn(canvas, m, Math.max(4, Math.min(18, Math.floor(Math.min(360, innerWidth - 84) / Math.max(m.s.queries, m.s.keys)))));
  const cell = canvas.width / m.s.keys;
  canvas.onmousemove = e => {
    const box = canvas.getBoundingClientRect();
    const q = Math.floor((e.clientY - box.top) / cell), k = Math.floor((e.clientX - box.left) / cell);
    if (q >= 0 && q < m.s.queries && k >= 0 && k < m.s.keys)
      read.textContent = `${q} ${rows[q].piece} attends to ${k} ${columns[k].piece}: ${m.at(q, k).toFixed(3)}`;
  };
  canvas.onclick = e => {
    const q = Math.floor((e.clientY - canvas.getBoundingClientRect().top) / cell);
    if (m.s.rows === "tokens") choose({ token: Math.min(q, tokens.length - 1) });
  };
  const step = 18, n = Math.max(rows.length, columns.length);
  const lines = svg("svg", { width: 320, height: n * step + 8, viewBox: `0 0 320 ${n * step + 8}` });
  const focus = m.s.rows === "tokens" ? state.token : -1;
  for (let q = 0; q < m.s.queries; ++q)
    for (let k = 0; k < m.s.keys; ++k) {
      const p = m.at(q, k), faint = focus >= 0 && q !== focus;
      if (p < 0.04) continue;
      lines.append(svg("line", { x1: 112, y1: q * step + 12, x2: 208, y2: k * step + 12, "stroke-width": 2, opacity: p * (faint ? 0.12 : 1) }));
    }
  rows.forEach((t, i) => lines.append(svg("text", { x: 106, y: i * step + 16, "text-anchor": "end", "font-weight": i === focus ? 700 : 400 }, t.piece)));
  columns.forEach((t, i) => lines.append(svg("text", { x: 214, y: i * step + 16 }, t.piece)));
  const name = make("div", { className: "read", textContent: `${m.s.name}, block ${m.s.numbers[layer]}, head ${head}` });
  return make("div", {}, name, make("div", { className: "head" }, make("div", {}, canvas, read), lines));
};

const show = {
  tokens() {
    for (const [id, list] of [["tokens", tokens], ["source", data.source]])
      if ($(id)) $(id).replaceChildren(...list.map((t, i) => make(id === "tokens" ? "button" : "span", {
        className: "token" + (id === "tokens" && i === state.token ? " on" : ""), textContent: t.piece, title: `position ${i}, id ${t.id}`,
        onclick: id === "tokens" ? () => choose({ token: i }) : null })));
    const next = data.next[state.token];
    $("next").textContent = next ? `${data.causal ? "Behind" : "In the place of"} token ${state.token} (${tokens[state.token].piece}): ` +
      next.map(([piece, p]) => `${piece} ${(100 * p).toFixed(1)}%`).join(", ") : "";
  },
  attention() {
    if (!sets.length) return;
    const s = sets[state.set], option = (name, i, on) => make("option", { value: i, textContent: name, selected: i === on });
    $("set").replaceChildren(...sets.map((x, i) => option(x.name, i, state.set)));
    $("layer").replaceChildren(...s.numbers.map((n, i) => option(`block ${n}`, i, state.layer)));
    $("head").replaceChildren(...Array.from({ length: s.layers[state.layer] }, (_, i) => option(`head ${i}`, i, state.head)));
    $("heads").replaceChildren(panel(state), ...(state.pinned ? [panel(state.pinned)] : []));
    $("pin").textContent = state.pinned ? "stop comparing" : "compare with this head";
    for (const c of $("model").querySelectorAll("canvas"))
      c.classList.toggle("on", +c.dataset.set === state.set && +c.dataset.layer === state.layer && +c.dataset.head === state.head);
  },
  lens() {
    if (!data.lens.length) return;
    const head = make("tr", {}, make("th", { textContent: "layer" }), ...tokens.map((t, i) =>
      make("th", { textContent: t.piece, className: i === state.token ? "on" : "" })));
    const rows = data.lens.map((row, l) => make("tr", {}, make("th", { textContent: l === 0 ? "embedding" : `block ${l - 1}` }),
      ...row.map((best, i) => {
        const cell = make("td", { textContent: best[0][0], className: i === state.token ? "on" : "",
          title: best.map(([piece, p]) => `${piece} ${(100 * p).toFixed(1)}%`).join("\n"), onclick: () => choose({ token: i }) });
        cell.style.background = `rgba(${rgb("--heat")}, ${0.6 * best[0][1]})`;
        return cell;
      })));
    $("lens").replaceChildren(make("table", {}, head, ...rows));
  },
  parts() {
    if (!data.contributions.length) return;
    const { piece, logit, parts } = data.contributions[state.token];
    const most = Math.max(...parts.map(Math.abs), 1e-9);
    $("parts-of").textContent = `The logit of ${piece} ${data.causal ? "behind" : "in the place of"} token ${state.token} (${tokens[state.token].piece}) is ${logit.toFixed(3)}, the sum of:`;
    $("parts").replaceChildren(...parts.flatMap((value, i) => {
      const bar = make("i", { className: value < 0 ? "minus" : "" });
      bar.style.width = `${100 * Math.abs(value) / most}%`;
      return [make("span", { textContent: data.parts[i] }), make("b", { textContent: value.toFixed(3) }), bar];
    }));
  },
  neurons() {
    if (!data.neurons.length) return;
    $("neurons").replaceChildren(make("table", {}, ...data.neurons.map((layer, l) => make("tr", {}, make("th", { textContent: `block ${data.neurons_of[l]}` }),
      ...layer[state.token].map(([i, value]) => {
        const cell = make("td", { textContent: `${i}: ${value.toFixed(2)}` });
        cell.style.background = `rgba(${rgb(value < 0 ? "--minus" : "--heat")}, ${0.5 * Math.abs(value) / data.most_active[l]})`;
        return cell;
      })))));
  },
};

const choose = change => {
  Object.assign(state, change);
  const s = sets[state.set];
  if (s) {
    state.layer = Math.min(state.layer, s.layers.length - 1);
    state.head = Math.min(state.head, s.layers[state.layer] - 1);
  }
  for (const part of Object.values(show)) part();
};

sets.forEach((s, set) => {
  const heads = Math.max(...s.layers), grid = make("div", { className: "grid" });
  grid.style.gridTemplateColumns = `max-content repeat(${heads}, 58px)`;
  s.layers.forEach((count, layer) => {
    grid.append(make("div", { className: "name", textContent: `block ${s.numbers[layer]}` }));
    for (let head = 0; head < heads; ++head) {
      if (head >= count) { grid.append(make("div")); continue; }
      const c = make("canvas", { title: `block ${s.numbers[layer]}, head ${head}`, tabIndex: 0, onclick: () => choose({ set, layer, head }) });
      c.onkeydown = e => { if (e.key === "Enter") choose({ set, layer, head }); };
      Object.assign(c.dataset, { set, layer, head });
      drawn(c, matrix(set, layer, head), Math.max(1, Math.floor(56 / Math.max(s.queries, s.keys))));
      grid.append(c);
    }
  });
  $("model").append(make("div", { className: "read", textContent: s.name }), grid);
});
for (const [id, name] of [["set", "set"], ["layer", "layer"], ["head", "head"]])
  if ($(id)) $(id).onchange = e => choose({ [name]: +e.target.value });
if ($("pin")) $("pin").onclick = () => choose({ pinned: state.pinned ? null : { set: state.set, layer: state.layer, head: state.head } });
document.onkeydown = e => {
  if (e.target.tagName === "SELECT" || e.altKey || e.ctrlKey || e.metaKey) return;
  const move = (name, by, count) => choose({ [name]: (state[name] + by + count) % count });
  const s = sets[state.set];
  if (e.key === "ArrowRight") move("token", 1, tokens.length);
  else if (e.key === "ArrowLeft") move("token", -1, tokens.length);
  else if (s && e.key === "n") move("head", 1, s.layers[state.layer]);
  else if (s && e.key === "p") move("head", -1, s.layers[state.layer]);
  else if (s && e.key === "j") move("layer", 1, s.layers.length);
  else if (s && e.key === "k") move("layer", -1, s.layers.length);
  else return;
  e.preventDefault();
};
matchMedia("(prefers-color-scheme: dark)").onchange = () => choose({});
choose({});
)js";

}  // namespace qkv
