#!/usr/bin/env python3
"""Checks which file includes which.

usage: include_lint.py [REPOSITORY]

ALLOWED says of each folder below qkv/, and of the rooms of some, which others its files include; together they make
no circle. formal/ (the specification) and qkv/ (the engine) include nothing of each other, so that one can be the
other's judge. No file includes itself in a circle, and a third-party library that is wrapped is included where it is
wrapped. A spec is data: what NAME_spec.h, models/spec.h and mixers include, all the way down, are no layers, tensors
or kernels.
Prints one line a violation, "file:line: why", and exits with 1 when there is any.
"""
import os
import re
import sys

ALLOWED = {
    "base": [],
    "tensor": ["base"],
    "quant": ["base", "tensor"],
    "kernels": ["base", "tensor", "quant"],
    "batch": ["base", "tensor", "kernels"],
    "autograd": ["base", "tensor", "kernels"],
    "ops": ["base", "tensor", "quant", "kernels", "autograd", "batch"],
    "nn": ["base", "tensor", "kernels", "autograd", "batch", "ops"],
    "models": ["base", "kernels", "batch", "nn", "ops"],
    "text": ["base"],
    "chat": ["base", "text"],
    "metrics": ["base", "text"],
    "io/container": ["base", "tensor"],
    "io/family": ["base", "models"],
    "io/gguf": ["base", "tensor", "quant", "models", "text", "io/container", "io/family"],
    "io": ["base", "tensor", "ops", "models", "chat", "io/container", "io/family", "io/gguf"],
    "data": ["base", "tensor", "batch", "text"],
    "infer": ["base", "tensor", "kernels", "autograd", "ops", "nn", "models", "text", "io", "io/container", "data"],
    "bridge": ["base", "ops", "models", "io", "io/container"],
    "trace": ["base", "autograd", "ops", "models", "text", "infer", "io/container", "report", "optim"],
    "convert": ["base", "tensor", "quant", "models", "text", "io", "io/container", "io/family", "io/gguf"],
    "report": ["base", "text", "metrics", "io/container"],
    "optim": ["base", "tensor", "kernels", "autograd", "nn", "models", "data"],
    "train/config": ["base", "kernels", "models", "io", "io/family", "data", "optim"],
    "train/corpora": ["base", "text", "chat", "io", "io/container", "data", "infer", "train/config"],
    "train/tasks": ["base", "autograd", "ops", "nn", "models", "text", "metrics", "io", "data", "infer",
                    "train/config", "train/corpora"],
    "train/run": ["base", "kernels", "nn", "text", "io", "io/container", "data", "trace", "report",
                  "optim", "train/config", "train/corpora", "train/tasks"],
    "api": ["base", "text", "chat", "io", "infer", "trace"],
    "cli": ["base", "tensor", "quant", "ops", "models", "text", "metrics", "io", "data", "infer", "bridge", "trace", "convert", "report",
            "io/container", "io/gguf", "train/config", "train/corpora", "train/tasks", "train/run", "api"],
}
# Headers that only one file may include; a benchmark may name a peer.
WRAPPED = {"dnnl.hpp": "qkv/kernels/gemm.cc", "dnnl.h": "qkv/kernels/gemm.cc", "omp.h": "qkv/base/parallel.cc",
           "sentencepiece_trainer.h": "qkv/text/sentencepiece_training.cc", "zlib.h": "qkv/base/unpack.cc",
           "zstd.h": "qkv/base/unpack.cc", "mpi.h": "qkv/base/mpi_communicator.cc"}
# Headers that are data, and those that data may include.
SPEC = re.compile(r"^qkv/(\w+/\w+_spec|models/spec|models/mixers/\w+)\.h$")
PLAIN = re.compile(r"^qkv/(base/\w+|batch/(output|pair_layout)|kernels/(activation|pattern)|models/spec_field)\.h$")
LAYER = "qkv/models/mixers/mixer_place.h"  # for mixers' layers
ROOTS = ["qkv", "formal", "tests", "bench", "examples"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def source_files(root):
    for top in ROOTS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".h", ".hpp", ".cc", ".cpp", ".inc")):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def includes_of(root, path):
    """(line number, quoted or angled, what) of each #include."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match[1] == '"', match[2]


def room_of(path):
    """The entry of ALLOWED that a file below qkv/ belongs to: its folder's room where that has rooms, or its folder."""
    parts = path.split("/")
    room = "/".join(parts[1:3])
    return room if len(parts) > 3 and room in ALLOWED else parts[1]


def folder_problem(path, target):
    """Why `path` may not include `target`, both from the root of the repository; None when it may."""
    top, target_top = path.split("/")[0], target.split("/")[0]
    if {top, target_top} == {"qkv", "formal"}:
        return f"{top}/ must not include {target_top}/ ({target})"
    if top == "qkv" and target_top in ("tests", "bench"):
        return f"qkv/ must not include {target_top}/ ({target})"
    if top != "qkv" or target_top != "qkv":
        return None
    folder, target_folder = room_of(path), room_of(target)
    for name in (folder, target_folder):
        if name not in ALLOWED:
            return f"the folder qkv/{name} is unknown: add it to ALLOWED in tools/include_lint.py ({target})"
    if target_folder != folder and target_folder not in ALLOWED[folder]:
        return f"{folder} must not include {target_folder}: tools/include_lint.py lists what it may ({target})"
    return None


def find_cycle(graph):
    """One circle of includes as a list of files, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for next_node in graph.get(node, ()):
            circle = visit(next_node)
            if circle:
                return circle
        path.pop()
        done.add(node)
        return None

    for start in sorted(graph):
        circle = visit(start)
        if circle:
            return circle
    return None


def is_spec(path):
    return SPEC.match(path) and path != LAYER


def spec_problems(graph):
    """Includes of specs that are more than data."""
    for path in sorted(filter(is_spec, graph)):
        for target in graph[path]:
            if not is_spec(target) and not PLAIN.match(target):
                yield f"{path}:1: a spec is data: it must not include {target}"


def lint(root):
    problems, graph = [], {}
    for path in source_files(root):
        graph[path] = []
        for number, quoted, target in includes_of(root, path):
            def refuse(why):
                problems.append(f"{path}:{number}: {why}")
            name = target.split("/")[-1]
            if name in WRAPPED and path != WRAPPED[name] and not path.startswith("bench/"):
                refuse(f"only {WRAPPED[name]} includes {name}")
            beside = os.path.normpath(os.path.join(os.path.dirname(path), target)).replace(os.sep, "/")
            if target.split("/")[0] in ("qkv", "formal", "tests", "bench"):
                resolved = target
            elif quoted and os.path.exists(os.path.join(root, beside)):
                resolved = beside
                if path.startswith("qkv/"):
                    refuse(f'include it from the root of the repository: "{beside}"')
            else:
                continue
            if not quoted:
                refuse(f"files of this project are included in quotes ({target})")
            if not os.path.exists(os.path.join(root, resolved)):
                refuse(f"no such file ({target})")
                continue
            why = folder_problem(path, resolved)
            if why:
                refuse(why)
            # Highway compiles a file once a target by having it include itself (foreach_target.h).
            if resolved != path:
                graph[path].append(resolved)
    problems += spec_problems(graph)
    circle = find_cycle(ALLOWED)
    if circle:
        problems.append(f"tools/include_lint.py:1: ALLOWED has a circle: {' -> '.join(circle)}")
    circle = find_cycle(graph)
    if circle:
        problems.append(f"{circle[0]}:1: a circle of includes: {' -> '.join(circle)}")
    return problems, len(graph)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    problems, files = lint(root)
    for problem in problems:
        print(problem)
    print(f"{files} files, {len(problems)} violations")
    if files == 0:
        print(f"{root}: no sources found")
    return 1 if problems or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
