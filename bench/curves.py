"""Curves against lengths, as SVG: what the benchmarks that draw share."""
import math

COLOURS = ["#1b6ca8", "#c8553d", "#2e8b57", "#8e5ea2", "#b8860b", "#000000", "#e377c2", "#17becf", "#7f7f7f", "#ff7f0e", "#6b8e23", "#8b4513",
           "#d62728", "#4b0082", "#9acd32", "#ff9896"]
BESIDE = 6  # so many names stand beside the drawing instead of in its corner


def drawing(title, unit, lengths, curves, decades=False):
    """Curves [(name, [(x, y)], dashed)] (dashed may be absent) over lengths in powers of two; y by decades or evenly."""
    curves = [(*curve, False)[:3] for curve in curves]
    names = list(dict.fromkeys(name for name, _, _ in curves))
    room = 210 if len(names) >= BESIDE else 0
    width, height, left, right, top, bottom = 640 + room, 400, 70, 20 + room, 44, 40
    values = [y for _, points, _ in curves for _, y in points]
    scale = math.log10 if decades else float
    step = 1 if decades else 10 ** math.floor(math.log10(max(max(values) - min(values), 1e-9)))
    if not decades and max(values) - min(values) < 4 * step:
        step /= 5
    low, high = math.floor(scale(min(values)) / step) * step, math.ceil(scale(max(values)) / step) * step
    x0, x1 = math.log2(lengths[0]), math.log2(lengths[-1])
    px = lambda x: left + (math.log2(x) - x0) / (x1 - x0) * (width - left - right)
    py = lambda y: height - bottom - (scale(y) - low) / (high - low) * (height - top - bottom)
    s = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
         f'<rect width="{width}" height="{height}" fill="white"/>',
         f'<text x="{left}" y="20" font-size="15">{title}</text>']
    for i in range(round((high - low) / step) + 1):
        tick = 10 ** (low + i) if decades else round(low + i * step, 9)
        y = py(tick)
        s.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        s.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g} {unit}</text>')
    for x in lengths:
        s.append(f'<line x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{top}" y2="{height - bottom}" stroke="#eee"/>')
        s.append(f'<text x="{px(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{x}</text>')
    for name, points, dashed in curves:
        colour = COLOURS[names.index(name) % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        s.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        s += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
    for i, name in enumerate(names):
        x = width - room + 12 if room else left + 12
        s.append(f'<text x="{x}" y="{top + 16 + 16 * i}" fill="{COLOURS[i % len(COLOURS)]}">{name}</text>')
    return "\n".join(s + ["</svg>"]) + "\n"
