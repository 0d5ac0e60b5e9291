"""The pictures of docs/concepts.md: a batch, a block, the three architectures."""
from drawing import arrow, box, line, svg, text_of

BLUE, GREEN, YELLOW, GREY, RED = "#e8f0f8", "#e3f3e3", "#fdf3d4", "#f0f0f0", "#f8e4e4"


def labelled(x, y, width, height, fill, *lines):
    """A box with a bold line and smaller ones, in its middle."""
    parts = [box(x, y, width, height, fill)]
    top = y + height / 2 - 8 * (len(lines) - 1) + 4
    for i, words in enumerate(lines):
        more = {"font_weight": "bold"} if i == 0 else {"font_size": "11", "fill": "#345"}
        parts.append(text_of(x + width / 2, top + 16 * i, words, text_anchor="middle", **more))
    return "\n".join(parts)


def note(x, y, words, **more):
    return text_of(x, y, words, font_size="11", fill="#456", **more)


def batch():
    """Three sequences: padded, as others lay them out, and flat, as qkv does."""
    texts = [["the", "cat", "sat"], ["a", "dog"], ["birds", "sing", "at", "dawn"]]
    fills = [BLUE, GREEN, YELLOW]
    wide, high = 62, 26
    parts = [text_of(16, 26, "Padded: 3 x 4 rows; 3 hold no token", font_weight="bold")]
    for s, words in enumerate(texts):
        for i in range(4):
            x, y = 16 + i * wide, 38 + s * high
            parts.append(box(x, y, wide - 2, high - 2, fills[s] if i < len(words) else GREY))
            parts.append(text_of(x + wide / 2 - 1, y + 16, words[i] if i < len(words) else "pad", text_anchor="middle",
                                 font_size="12", fill="#000" if i < len(words) else "#999"))
    parts.append(text_of(16, 152, "Flat (qkv): N = 9 rows, each a token", font_weight="bold"))
    n = 0
    for s, words in enumerate(texts):
        start = 16 + n * wide
        parts.append(note(start, 172, f"sequence {s}"))
        for i, word in enumerate(words):
            x = 16 + n * wide
            parts.append(box(x, 178, wide - 2, high - 2, fills[s]))
            parts.append(text_of(x + wide / 2 - 1, 194, word, text_anchor="middle", font_size="12"))
            parts.append(note(x + wide / 2 - 1, 217, str(n), text_anchor="middle"))
            parts.append(note(x + wide / 2 - 1, 235, str(i), text_anchor="middle"))
            n += 1
    end = 16 + n * wide + 6
    parts += [note(end, 194, "ids [N]"), note(end, 217, "row"), note(end, 235, "position")]
    parts.append(text_of(16, 262, "Layout: offsets 0, 3, 5, 9. Attention stays between two offsets; all other ops see N rows."))
    return svg(700, 276, parts, with_arrow=False)


def block():
    """A pre-norm decoder block: values with shapes on the left, settings that change a step on the right."""
    left, wide, high, step = 150, 250, 40, 62
    steps = [("norm", "[N, D]", "norm: pre, post, ...; normalization: layer, rms, ...", BLUE),
             ("queries, keys, values", "one product: [N, (H + 2 H_kv) d]", "heads, kv_heads, attention_bias; positions: rotary", GREEN),
             ("attention", "softmax(Q K^T / sqrt(d) + mask) V", "patterns, attention_scale; positions: alibi, relative", GREEN),
             ("output projection", "[N, D]", "attention_out_bias, dropout", GREEN),
             ("+", "", "branches: serial, parallel, reversible", None),
             ("norm", "[N, D]", "", BLUE),
             ("linear", "[N, F]", "hidden, gated, experts", YELLOW),
             ("activation", "[N, F]", "activation: gelu, relu, silu, ...", YELLOW),
             ("linear", "[N, D]", "feed_forward_bias, dropout", YELLOW),
             ("+", "", "", None)]
    parts = [text_of(left + wide / 2, 24, "x [N, D]: the residual stream", text_anchor="middle", font_weight="bold"),
             text_of(left + wide + 40, 24, "settings of [model]", font_weight="bold")]
    y, middle, branch_from = 44, left + wide / 2, None
    for i, (name, shape, settings, fill) in enumerate(steps):
        top = y + i * step
        if fill is None:
            parts.append(f'<circle cx="{middle:.0f}" cy="{top + high / 2:.0f}" r="14" fill="white" stroke="#567"/>')
            parts.append(text_of(middle, top + high / 2 + 5, "+", text_anchor="middle", font_weight="bold"))
            parts.append(line((middle, branch_from), (left - 40, branch_from), (left - 40, top + high / 2),
                              (middle - 16, top + high / 2)))
            parts.append(line((middle, top + high / 2 + 14), (middle, top + high), arrow_at_end=False))
            parts.append(arrow(middle, top - (step - high), middle, top + high / 2 - 16))
        else:
            parts.append(arrow(middle, top - (18 if i == 0 else step - high), middle, top - 2))
            parts.append(labelled(left, top, wide, high, fill, name, *([shape] if shape else [])))
        if name == "norm":
            branch_from = top - 10
        if settings:
            parts.append(note(left + wide + 40, top + high / 2 + 4, settings))
    bottom = y + len(steps) * step
    parts.append(arrow(middle, bottom - (step - high), middle, bottom - 4))
    parts.append(text_of(middle, bottom + 12, "x [N, D], to the next block", text_anchor="middle", font_weight="bold"))
    return svg(780, bottom + 26, parts)


def tower(x, bottom, rows, width=150, high=34, step=50):
    """Boxes from bottom to top, with arrows; returns (parts, {name: middle of the box})."""
    parts, at, y = [], {}, bottom - high
    for i, (lines, fill) in enumerate(rows):
        parts.append(labelled(x, y, width, high, fill, *lines))
        at[lines[0]] = y + high / 2
        if i:
            parts.append(arrow(x + width / 2, below, x + width / 2, y + high + 2))
        below = y
        y -= step + (16 if lines[0] == "feed-forward" else 0)  # room for the frame's words
    return parts, at


def framed(x, y, width, height, words):
    return [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" stroke="#9ab" '
            'stroke-dasharray="5 4"/>', note(x + 8, y + 15, words)]


def architectures():
    bottom = 410
    parts = []
    titles = [(115, "Encoder (BERT)"), (335, "Decoder (GPT)"), (640, "Encoder-decoder")]
    for x, words in titles:
        parts.append(text_of(x, 24, words, text_anchor="middle", font_weight="bold"))
    own = [(("embedding", "tokens + positions"), GREY), (("self-attention", "each sees all"), GREEN), (("feed-forward",), YELLOW)]
    causal = [own[0], (("self-attention", "each sees those before"), GREEN), own[2]]
    encoder, at = tower(35, bottom, [*own, (("norm",), BLUE), (("head", "classes, masked tokens"), RED)], 160)
    parts += framed(25, at["feed-forward"] - 42, 180, 120, "x L") + encoder
    decoder, at = tower(255, bottom, [*causal, (("norm",), BLUE), (("unembedding", "next token"), RED)], 160)
    parts += framed(245, at["feed-forward"] - 42, 180, 120, "x L") + decoder
    source, at = tower(475, bottom, [*own, (("norm",), BLUE)], 150)
    parts += framed(465, at["feed-forward"] - 42, 170, 120, "x L_enc") + source
    z = at["norm"]
    target, at = tower(665, bottom, [causal[0], causal[1], (("cross-attention", "keys, values from Z"), GREEN), own[2],
                                     (("norm",), BLUE), (("unembedding", "next token"), RED)], 150)
    parts += framed(655, at["feed-forward"] - 42, 170, 170, "x L") + target
    parts.append(line((625, z), (645, z), (645, at["cross-attention"]), (663, at["cross-attention"])))
    parts.append(note(630, z - 6, "Z"))
    for x, words in ((115, "the text"), (335, "the text so far"), (550, "the source"), (740, "the target so far")):
        parts.append(arrow(x, bottom + 24, x, bottom + 2))
        parts.append(note(x, bottom + 40, words, text_anchor="middle"))
    for x, words in titles:
        parts.append(note(x, 42, f'architecture = "{words.split(" (")[0].lower().replace("-", "_")}"', text_anchor="middle"))
    return svg(840, bottom + 54, parts)


def pictures():
    return {"docs/batch.svg": batch(), "docs/block.svg": block(), "docs/architectures.svg": architectures()}
