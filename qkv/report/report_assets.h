// The style sheet and the script of a report.
#pragma once

namespace qkv {

// The colours of the series are Okabe & Ito's, which colour-blind readers can distinguish; darkened on
// white and lightened on black for contrast.
inline constexpr const char* kReportStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --panel: #ffffff; --ink: #1b1f24; --muted: #667079; --rule: #e4e6e8; --grid: #eceef0; --faint: 0.35;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5679a; --c4: #c48a00; --c5: #3b9bd3; --c6: #7a5a3a; --c7: #1b1f24;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --panel: #1c2024; --ink: #e6e8ea; --muted: #98a2ab; --rule: #30363c; --grid: #2a2f35; --faint: 0.5;
    --c0: #4ba9e0; --c1: #f0843c; --c2: #2fc39a; --c3: #dd97c1; --c4: #e6b34a; --c5: #9ad3f5; --c6: #c9a27a; --c7: #e6e8ea;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 40px 24px 64px; max-width: 1080px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { margin: 0; font-size: 28px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { margin: 40px 0 12px; font-size: 18px; font-weight: 650; }
h3 { margin: 20px 0 8px; font-size: 15px; font-weight: 650; overflow-wrap: anywhere; }
.facts { margin: 6px 0 0; color: var(--muted); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); margin: 28px 0 0;
  background: var(--panel); border: 1px solid var(--rule); border-radius: 10px; overflow: hidden; }
.figures div { padding: 14px 16px 12px; box-shadow: 1px 1px var(--rule); }
.figures dt { color: var(--muted); font-size: 13px; }
.figures dd { margin: 2px 0 0; font-size: 24px; line-height: 1.25; font-weight: 600; }
.figures .note { display: block; min-height: 18px; color: var(--muted); font-size: 13px; line-height: 18px; font-weight: 400; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; margin-top: 16px; }
.charts:not(.even) figure:first-child { grid-column: 1 / -1; }
@media (max-width: 760px) { .charts { grid-template-columns: minmax(0, 1fr); } body { padding: 24px 14px 48px; } }
figure { position: relative; margin: 0; padding: 14px 16px 8px; background: var(--panel); border: 1px solid var(--rule);
  border-radius: 10px; overflow-x: auto; }
figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 8px; margin-bottom: 8px; }
figcaption .title { font-weight: 650; }
figcaption .unit { color: var(--muted); font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 0 auto; padding: 0; list-style: none;
  color: var(--muted); font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; }
.swatch { flex: none; width: 18px; border-top: 2.5px solid currentColor; }
.swatch.dashed { border-top-style: dashed; }
.swatch.faint { opacity: var(--faint); }
.swatch.marked { position: relative; }
.swatch.marked::after { content: ""; position: absolute; left: 5.5px; top: -5px; width: 7px; height: 7px;
  border-radius: 50%; background: currentColor; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--muted); font-size: 12px; }
svg.narrow { display: none; }
@media (max-width: 900px) { svg.wide text { font-size: 16px; } }
@media (max-width: 640px) { svg.wide { display: none; } svg.narrow { display: block; }
  .charts svg text { font-size: 14px; } }
.grid { stroke: var(--grid); } .axis { stroke: var(--muted); }
polyline { fill: none; stroke: currentColor; stroke-width: 1.75; stroke-linejoin: round; }
polyline.faint { stroke-width: 1; opacity: var(--faint); }
polyline.dashed { stroke-dasharray: 6 4; }
circle { fill: currentColor; stroke: var(--panel); stroke-width: 1; }
.s0 { color: var(--c0); } .s1 { color: var(--c1); } .s2 { color: var(--c2); } .s3 { color: var(--c3); }
.s4 { color: var(--c4); } .s5 { color: var(--c5); } .s6 { color: var(--c6); } .s7 { color: var(--c7); }
.heat { margin-top: 16px; }
.heat .frame { fill: none; stroke: var(--rule); } .heat rect { pointer-events: all; }
.heat .hit { fill: var(--c0); } .heat .miss { fill: var(--c1); }
.heat .axis-name { font-weight: 600; } .heat .count { fill: var(--ink); pointer-events: none; }
.heat .count.on { fill: var(--panel); }
.cursor { stroke: var(--muted); stroke-dasharray: 3 3; pointer-events: none; }
.readout { position: absolute; z-index: 1; padding: 6px 10px; pointer-events: none; background: var(--panel);
  color: var(--ink); border: 1px solid var(--rule); border-radius: 6px; box-shadow: 0 2px 8px #0003; font-size: 13px;
  white-space: nowrap; }
.readout div { display: flex; align-items: center; gap: 6px; } .readout b { margin-left: auto; padding-left: 12px; }
.sample { display: grid; grid-template-columns: 96px minmax(0, 1fr); gap: 16px; padding: 14px 0;
  border-top: 1px solid var(--rule); }
.sample:last-child { border-bottom: 1px solid var(--rule); }
.sample .step { color: var(--muted); font-size: 13px; line-height: 22px; }
.sample pre { margin: 0; max-height: 360px; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate; font: 13px/22px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.prompt { color: var(--c0); font-weight: 600; }
@media (max-width: 560px) { .sample { grid-template-columns: minmax(0, 1fr); gap: 2px; } }
.scroll { overflow-x: auto; }
.heads { display: flex; flex-wrap: wrap; gap: 12px 16px; margin-top: 12px; }
.heads canvas { display: block; border: 1px solid var(--rule); image-rendering: pixelated; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: 5px 20px 5px 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
th { color: var(--muted); font-weight: 500; white-space: nowrap; }
td.value { overflow-wrap: anywhere; font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }
tr:first-child th { white-space: normal; vertical-align: bottom; line-height: 1.3; }
th .swatch { display: inline-block; margin-right: 8px; vertical-align: middle; }
tr.summary td { font-weight: 600; }
.mistakes td:first-child { min-width: 220px; max-width: 640px; overflow-wrap: anywhere; unicode-bidi: isolate; }
details { margin-top: 40px; } summary { font-size: 18px; font-weight: 650; cursor: pointer; }
details table { margin-top: 12px; }
)css";

// Shows the step and the values under the pointer, read back from the drawing.
inline constexpr const char* kReportScript = R"js(
for (const svg of document.querySelectorAll("svg[data-x]")) {
  const [x0, x1, left, right] = svg.dataset.x.split(" ").map(Number);
  const [y0, y1, bottom, top] = svg.dataset.y.split(" ").map(Number);
  const step = x => x0 + (x - left) / (right - left) * (x1 - x0);
  const value = y => {
    const part = (y - bottom) / (top - bottom);
    return svg.dataset.log === "1" ? y0 * Math.pow(y1 / y0, part) : y0 + part * (y1 - y0);
  };
  const curves = [...svg.querySelectorAll("polyline")].map(line => ({
    line, label: line.dataset.label, points: line.getAttribute("points").split(" ").map(p => p.split(",").map(Number)),
  }));
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return x - points[low][0] < points[high][0] - x ? points[low] : points[high];
  };
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", top);
  cursor.setAttribute("y2", bottom);
  const readout = document.createElement("div");
  readout.className = "readout";
  const hide = () => { cursor.remove(); readout.remove(); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = curves.map(c => [c, nearest(c.points, at.x)]);
    const distance = ([, p]) => Math.abs(p[0] - at.x);
    const x = found.reduce((a, b) => distance(b) < distance(a) ? b : a)[1][0];
    if (at.x < left - 8 || at.x > right + 8) return hide();
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    svg.append(cursor);
    const rows = [`step ${Math.round(step(x)).toLocaleString("en")}`];
    readout.replaceChildren(document.createTextNode(rows[0]));
    for (const [c, p] of found) {
      if (Math.abs(p[0] - x) > 6) continue;
      const row = document.createElement("div"), swatch = document.createElement("span"), number = document.createElement("b");
      swatch.className = "swatch " + c.line.getAttribute("class");
      number.textContent = Number(value(p[1]).toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
      row.append(swatch, c.label, number);
      readout.append(row);
    }
    const figure = svg.parentNode, box = figure.getBoundingClientRect();
    figure.append(readout);
    const beside = event.clientX - box.left + 16;
    const fits = beside + readout.offsetWidth < box.width;
    readout.style.left = (fits ? beside : event.clientX - box.left - 16 - readout.offsetWidth) + "px";
    readout.style.top = event.clientY - box.top + 12 + "px";
  });
}
)js";

}  // namespace qkv
