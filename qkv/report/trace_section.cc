#include "qkv/report/trace_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "qkv/report/chart.h"

namespace qkv {
namespace {

constexpr size_t kMostHeads = 8;  // curves that have a colour of their own

constexpr const char* kScript = R"js(
const steps = JSON.parse(document.getElementById("traces").textContent), slider = document.getElementById("trace-step");
const heat = () => getComputedStyle(document.documentElement).getPropertyValue("--c0");
const element = (tag, properties = {}, ...children) => {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
};
const showTrace = () => {
  const t = steps[slider.value], pieces = t.tokens.map(x => x.piece);
  document.getElementById("trace-name").textContent = `step ${t.step.toLocaleString("en")}`;
  const blocks = [];
  for (const s of t.attention) {
    const bytes = Uint8Array.from(atob(s.data), c => c.charCodeAt(0)), cell = Math.max(2, Math.floor(144 / Math.max(s.queries, s.keys)));
    let at = 0;
    s.layers.forEach((heads, l) => {
      const row = element("div", { className: "heads" });
      for (let h = 0; h < heads; ++h, at += s.queries * s.keys) {
        const canvas = element("canvas", { width: s.keys * cell, height: s.queries * cell, title: `block ${s.numbers[l]}, head ${h}` });
        const c = canvas.getContext("2d"), from = at;
        c.fillStyle = heat();
        for (let q = 0; q < s.queries; ++q)
          for (let k = 0; k < s.keys; ++k) {
            c.globalAlpha = bytes[from + q * s.keys + k] / 255;
            c.fillRect(k * cell, q * cell, cell, cell);
          }
        const read = element("div", { className: "facts", textContent: `head ${s.numbers[l]}.${h}` });
        canvas.onpointermove = e => {
          const box = canvas.getBoundingClientRect();
          const q = Math.floor((e.clientY - box.top) / box.height * s.queries), k = Math.floor((e.clientX - box.left) / box.width * s.keys);
          if (q >= 0 && q < s.queries && k >= 0 && k < s.keys)
            read.textContent = `${pieces[q] ?? q} to ${pieces[k] ?? k}: ${(bytes[from + q * s.keys + k] / 255).toFixed(2)}`;
        };
        canvas.onpointerleave = () => { read.textContent = `head ${s.numbers[l]}.${h}`; };
        row.append(element("div", {}, canvas, read));
      }
      blocks.push(row);
    });
  }
  document.getElementById("trace-heads").replaceChildren(...blocks);
  const table = element("table", {}, element("tr", {}, element("th"), ...pieces.map(p => element("th", { textContent: p }))));
  t.lens.forEach((layer, l) => table.append(element("tr", {}, element("th", { textContent: l ? `block ${l - 1}` : "embedding" }),
    ...layer.map(best => element("td", { textContent: best[0][0], title: best.map(([p, x]) => `${p} ${(100 * x).toFixed(1)}%`).join("\n"),
      style: `background: color-mix(in srgb, var(--c0) ${Math.round(60 * best[0][1])}%, transparent)` })))));
  document.getElementById("trace-lens").replaceChildren(table);
};
slider.oninput = showTrace;
matchMedia("(prefers-color-scheme: dark)").onchange = showTrace;
showTrace();
)js";

// A role of all heads over the steps: those that have most of it are named.
std::string chart_of(const RunLog& run, const std::string& role, const std::string& title) {
  std::map<std::string, std::vector<Point>> heads;
  for (const RunTrace& trace : run.traces)
    for (const auto& [head, shares] : trace.roles)
      if (const auto share = shares.find(role); share != shares.end())
        heads[head].push_back({static_cast<double>(trace.step), share->second});
  // A few heads have a colour each, the same in every chart; of many, those with most of the role.
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [head, points] : heads)
    order.emplace_back(heads.size() <= kMostHeads ? 0 : -std::ranges::max(points, {}, &Point::y).y, head);
  std::ranges::stable_sort(order, {}, [](const auto& x) { return x.first; });
  Chart chart{title, "share of attention"};
  chart.from_zero = true;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string& head = order[i].second;
    const bool named = i < kMostHeads;
    chart.series.push_back({"head " + head, named ? "head " + head : "", heads[head],
                            named ? SeriesStyle::line : SeriesStyle::faint, static_cast<int>(named ? i : 7)});
  }
  return heads.empty() ? "" : draw(chart);
}

}  // namespace

std::string traces_html(const RunLog& run) {
  if (run.traces.empty()) return "";
  std::string out = "<h2>Heads while training</h2>\n<div class=\"charts even\">\n";
  if (run.traces.size() > 1)
    out += chart_of(run, "induction", "Attention to what followed the same token") +
           chart_of(run, "previous", "Attention to the token before") +
           chart_of(run, "first", "Attention to the first token") +
           chart_of(run, "duplicate", "Attention to earlier tokens that are the same");
  out += "</div>\n";
  std::string data;
  size_t shown = 0;
  for (const RunTrace& trace : run.traces)
    if (!trace.json.empty()) data += (shown++ == 0 ? "" : ",") + trace.json;
  for (size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
  return out + fmt::format(
                   "<p class=\"facts\">Attention of each head (rows are queries) and, by the logit lens, the "
                   "likeliest next token if the model ended with a layer.</p>\n"
                   "<p><input type=\"range\" id=\"trace-step\" min=\"0\" max=\"{0}\" value=\"{0}\" "
                   "aria-label=\"step\"> "
                   "<b id=\"trace-name\"></b></p>\n<div id=\"trace-heads\"></div>\n"
                   "<div class=\"scroll\" id=\"trace-lens\"></div>\n"
                   "<script type=\"application/json\" id=\"traces\">[{1}]</script>\n<script>{2}</script>\n",
                   shown - 1, data, kScript);
}

}  // namespace qkv
