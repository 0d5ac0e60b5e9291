#!/usr/bin/env python3
"""Checks that a tensor's elements are reached through accessors that check their bounds.

usage: data_lint.py [REPOSITORY]

Tensor::data<T>(), mutable_data<T>() and raw() hand out a bare pointer. Only qkv/tensor, qkv/ops and qkv/kernels, which
check shapes at their borders, may call them; tests and benchmarks may too. All other code uses values<T>(), row<T>(),
part<T>() and their mutable twins, copy() and copy_rows() (qkv/tensor/tensor.h). Prints one line a violation,
"file:line: why", and exits with 1 when there is any.
"""
import os
import re
import sys

ROOTS = ["qkv", "examples"]
ALLOWED = ["qkv/tensor/", "qkv/ops/", "qkv/kernels/"]
COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
POINTER = re.compile(r"\b((?:mutable_)?data)\s*<[^<>;(){}]+>\s*\(\s*\)|(?:\.|->)\s*((?:mutable_)?raw)\s*\(\s*\)")


def source_files(root):
    for top in ROOTS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
                if name.endswith((".h", ".hpp", ".cc", ".cpp", ".inc")) and not path.startswith(tuple(ALLOWED)):
                    yield path


def lint(root):
    problems, files = [], 0
    for path in source_files(root):
        files += 1
        with open(os.path.join(root, path), encoding="utf-8") as file:
            # Comments and texts go, their line ends stay, so that lines keep their numbers.
            code = COMMENT_OR_TEXT.sub(lambda match: '""' + "\n" * match[0].count("\n"), file.read())
        for match in POINTER.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{line}: {match[1] or match[2]}() checks nothing: use values<T>(), row<T>(), "
                            "part<T>(), copy() or copy_rows() of qkv/tensor/tensor.h")
    return problems, files


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
