#!/usr/bin/env python3
"""Draws the pictures of docs/architecture.md (folders, from the includes; the ways of a batch and of a request) and concepts.md.

usage: pictures.py [REPOSITORY] [--check]

Writes docs/rooms.svg, docs/training_step.svg, docs/request.svg, and those of concept_pictures.py. With --check it writes nothing, prints a line for
each picture that is no longer what the sources say, and exits with 1 when there is any.
"""
import collections
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import concept_pictures  # noqa: E402
from drawing import arrow, box, svg, text_of  # noqa: E402
from include_lint import ALLOWED, includes_of, room_of, source_files  # noqa: E402

# (file, class or function, what happens there), in order. The file must exist and name the function.
TRAINING_STEP = [
    ("qkv/train/tasks/task.h", "batches", "the task cuts micro-batches from its corpus"),
    ("qkv/optim/training_state.cc", "TrainingState::step", "one update; the context carries seed and step"),
    ("qkv/models/transformer.cc", "Transformer::loss", "the head: a loss for the model's output"),
    ("qkv/models/embedding.cc", "InputEmbedding", "ids become rows [N, D]"),
    ("qkv/models/stack.cc", "BlockStack::forward", "block by block over the residual stream"),
    ("qkv/models/position_terms.cc", "PositionTerms::prepare", "once for each kind of block: rotations, biases"),
    ("qkv/nn/residual.cc", "Residual::forward", "x + f(norm(x)), wherever the norm stands"),
    ("qkv/nn/attention.cc", "SelfAttention::forward", "queries, keys and values; attention() of ops/"),
    ("qkv/nn/feed_forward.cc", "FeedForward::forward", "linear, activation, linear"),
    ("qkv/ops/cross_entropy.cc", "unembed_cross_entropy", "logits and loss a few rows at a time"),
    ("qkv/autograd/graph.cc", "backward", "the graph in reverse; gradients go into the arenas"),
    ("qkv/optim/optimizer.cc", "update", "clipped, the update rule, bf16 copies"),
]
REQUEST = [
    ("qkv/cli/generate_command.cc", "run", "qkv generate; or the C interface (api/qkv.h)"),
    ("qkv/api/text_model.cc", "TextModel", "a model with its tokenizer and its settings"),
    ("qkv/text/tokenizer.cc", "Tokenizer::encode", "the prompt becomes ids"),
    ("qkv/infer/engine.cc", "Engine::step", "a token for each sequence, then more of the prompts"),
    ("qkv/infer/decode_state.cc", "DecodeState", "which rows are new, where they stand"),
    ("qkv/models/transformer.cc", "Transformer::hidden", "as in training, over the new rows alone"),
    ("qkv/nn/layer_state.cc", "KeyValueState", "keys and values remembered, in pages"),
    ("qkv/models/unembedding.cc", "Unembedding::logits", "of the last row"),
    ("qkv/infer/sampler.cc", "sample", "penalties, filters, one random number"),
    ("qkv/text/stop_strings.cc", "StopStrings", "text that can be shown, until a stop string"),
]

def includes_between_rooms(root):
    """{room: {room that its files include: how often}}"""
    found = {room: collections.Counter() for room in ALLOWED}
    for path in source_files(root):
        if not path.startswith("qkv/"):
            continue
        for _, quoted, target in includes_of(root, path):
            if quoted and target.startswith("qkv/") and room_of(target) != room_of(path):
                found[room_of(path)][room_of(target)] += 1
    return found


def levels_of(graph):
    """{room: the longest way down from it}"""
    levels = {}

    def level(room):
        if room not in levels:
            levels[room] = max((level(below) + 1 for below in graph[room]), default=0)
        return levels[room]

    for room in graph:
        level(room)
    return levels


def reduced(graph):
    """The graph without arrows that say no more than longer ways do."""
    def reaches(start, goal, seen):
        for below in graph[start]:
            if below == goal or (below not in seen and not seen.add(below) and reaches(below, goal, seen)):
                return True
        return False

    return {room: [below for below in targets
                   if not any(other != below and reaches(other, below, set()) for other in targets)]
            for room, targets in graph.items()}


def rooms(root):
    graph = {room: sorted(targets) for room, targets in includes_between_rooms(root).items()}
    levels, arrows = levels_of(graph), reduced(graph)
    rows = [[room for room in graph if levels[room] == level] for level in range(max(levels.values()) + 1)]
    width, step, high, margin = 900, 74, 34, 20
    place = {}
    for level, row in enumerate(rows):
        # Below what it is included by: each row in the order of the middles of what it includes.
        row.sort(key=lambda room: (sum(place[r][0] for r in arrows[room]) / len(arrows[room])) if arrows[room] else 0)
        for i, room in enumerate(row):
            place[room] = (margin + (i + 0.5) * (width - 2 * margin) / len(row),
                           margin + (len(rows) - 1 - level) * step + high / 2)
    parts = []
    for room, targets in arrows.items():
        for target in targets:
            (x1, y1), (x2, y2) = place[room], place[target]
            # Around what stands between.
            bend = 0 if y2 - y1 < 1.5 * step else 200 if abs(x1 - x2) < 150 else 60
            middle = ((x1 + x2) / 2 + (-bend if x1 + x2 < width else bend), (y1 + y2) / 2)
            parts.append(f'<path d="M{x1:.0f},{y1 + high / 2:.0f} Q{middle[0]:.0f},{middle[1]:.0f} '
                         f'{x2:.0f},{y2 - high / 2 - 2:.0f}" fill="none" stroke="#9ab" marker-end="url(#to)"/>')
    for room, (x, y) in place.items():
        wide = 24 + 8 * len(room)
        parts.append(box(x - wide / 2, y - high / 2, wide, high, "#e8f0f8"))
        parts.append(text_of(x, y + 5, room + "/", text_anchor="middle"))
    return svg(width, margin * 2 + high + (len(rows) - 1) * step, parts)


def way(root, steps):
    """Boxes one below the other: a function, its file, and what happens there."""
    width, step, high, margin = 760, 58, 42, 16
    parts, problems = [], []
    for i, (path, name, what) in enumerate(steps):
        full = os.path.join(root, path)
        if not os.path.exists(full):
            problems.append(f"tools/pictures.py: no such file: {path}")
        elif name not in open(full, encoding="utf-8").read():
            problems.append(f"tools/pictures.py: {path} has no {name}")
        y = margin + i * step
        parts.append(box(margin, y, 330, high, "#e8f0f8"))
        parts.append(text_of(margin + 12, y + 18, name, font_weight="bold"))
        parts.append(text_of(margin + 12, y + 35, path, font_size="11", fill="#456"))
        parts.append(text_of(margin + 350, y + 26, what))
        if i + 1 < len(steps):
            parts.append(arrow(margin + 165, y + high, margin + 165, y + step - 2))
    return svg(width, margin * 2 + high + (len(steps) - 1) * step, parts), problems


def pictures(root):
    """({path: contents}, problems)"""
    step, problems = way(root, TRAINING_STEP)
    request, more = way(root, REQUEST)
    drawn = {"docs/rooms.svg": rooms(root), "docs/training_step.svg": step, "docs/request.svg": request}
    return {**drawn, **concept_pictures.pictures()}, problems + more


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    drawn, problems = pictures(root)
    for path, contents in drawn.items():
        full = os.path.join(root, path)
        if "--check" not in sys.argv:
            with open(full, "w", encoding="utf-8") as file:
                file.write(contents)
        elif not os.path.exists(full) or open(full, encoding="utf-8").read() != contents:
            problems.append(f"{path}: no longer what the sources say: run tools/pictures.py")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
