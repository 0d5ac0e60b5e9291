"""Parts of SVG pictures: texts, boxes, arrows."""
import html

FONT = 'font-family="sans-serif" font-size="13"'


def text_of(x, y, text, **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{html.escape(text)}</text>'


def box(x, y, width, height, fill):
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6" fill="{fill}" stroke="#567"/>'


def svg(width, height, parts, with_arrow=True):
    arrow = ('<marker id="to" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
             '<path d="M0,0 L8,4 L0,8 z" fill="#789"/></marker>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {FONT}>\n'
            + (f"<defs>{arrow}</defs>\n" if with_arrow else "")
            + f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def arrow(x1, y1, x2, y2, color="#789"):
    return f'<path d="M{x1:.0f},{y1:.0f} L{x2:.0f},{y2:.0f}" fill="none" stroke="{color}" marker-end="url(#to)"/>'


def line(*points, color="#789", arrow_at_end=True):
    """Straight lines through the points (x, y)."""
    way = " L".join(f"{x:.0f},{y:.0f}" for x, y in points)
    end = ' marker-end="url(#to)"' if arrow_at_end else ""
    return f'<path d="M{way}" fill="none" stroke="{color}"{end}/>'
