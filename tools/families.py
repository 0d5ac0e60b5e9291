#!/usr/bin/env python3
"""Writes the table of families in docs/reference_cases.md: what each was compared with, and what it does not read.

usage: families.py ROOT [--check]

The cases and their deviations are those of the table of cases in the same document (tests/golden/reference_table.py).
The limits are the refusals in the family's file and its *_parts.cc. --check only says whether the table is up to date.
"""
import os
import re
import sys

HEAD = ("| `model_type` | cases | largest deviation | generated runs | what it does not read |", "|---|---|---|---|---|")
# Parts whose refusals many families share: the document names them once.
GENERAL = {"family_parts", "llama_parts", "window_parts", "gpt_parts"}
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def source(root, name):
    with open(os.path.join(root, "qkv", "io", "family", name + ".cc"), encoding="utf8") as file:
        return file.read()


def checks(text):
    """The messages of a file's checks, each with the keys that its placeholder stands for."""
    for call in re.finditer(r"\b(?:check|fail)\(", text):
        depth, end = 1, call.end()
        while depth > 0:  # parentheses inside of texts are in pairs
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        body = text[call.end():end]
        message = re.search(r'"\{\}: (?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*', body)
        if not message:
            continue
        loop = list(re.finditer(r"for \(const char\* \w+ : \{([^}]*)\}\)", text[max(0, call.start() - 200):call.start()]))
        yield "".join(STRING.findall(message.group())).replace('\\"', '"'), STRING.findall(loop[-1].group(1)) if loop else []


def functions(text):
    """The functions of a file: name -> text."""
    begins = [m for m in re.finditer(r"^[A-Za-z][\w:<>&* ]*?\b(\w+)\([^;]*?\{$", text, re.M)]
    ends = [m.start() for m in begins[1:]] + [len(text)]
    return {m.group(1): text[m.start():end] for m, end in zip(begins, ends)}


def reached(root, name):
    """The code of a family: its file, and the functions of its *_parts that this calls."""
    text = source(root, name)
    parts = [p for p in re.findall(r'#include "qkv/io/family/(\w+_parts)\.h"', text) if p not in GENERAL]
    there = {f: body for part in parts for f, body in functions(source(root, part)).items()}
    found, todo = [text], [text]
    while todo:
        code = todo.pop()
        for f in [f for f in there if re.search(rf"\b{f}\b", code)]:
            todo.append(there.pop(f))
            found.append(todo[-1])
    return found


def limits(root, name):
    """The fields that the family refuses, as "`key`" or "`key` other than ..."."""
    out = []
    for message, keys in (one for code in reached(root, name) for one in checks(code)):
        only = re.match(r"\{\}: ([\w{}]+): (?:\{\}: )?only (.+?) (?:is|are) supported", message)
        among = re.match(r"\{\}: (\w+): '\{\}' is not supported \((.+?) (?:is|are)\)", message)
        one = re.match(r"\{\}: (\w+): '(\w+)' is not supported", message)
        never = re.match(r"\{\}: ([\w{}]+): (?:\{\}: )?(?:is )?not supported", message)
        found = only or among or one or never
        if not found or found.group(1) == "architectures":
            continue
        allowed = "" if found is never else found.group(2)
        if "{}" in allowed:
            continue
        for key in keys if found.group(1) == "{}" else [found.group(1)]:
            if found is one:
                out.append(f"`{key}` {allowed}")
            elif allowed in ("", "false", "0"):
                out.append(f"`{key}`")
            else:
                out.append(f"`{key}` other than {allowed.split(', ')[0] if found is only else allowed}")
    return sorted(set(out))


def rows(root, document):
    """The rows of the table; `document`: its lines, in which the table of cases stands."""
    cases = {}
    for line in document:
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 6 and re.match(r"[-0-9.e]+$", cells[2]) and cells[2] != "---":
            cases.setdefault(cells[1], []).append(cells)
    names = sorted(f[:-3] for f in os.listdir(os.path.join(root, "qkv", "io", "family")) if f.endswith(".cc"))
    for name in names:
        text = source(root, name)
        if name.endswith("_parts") or f"const Family& " not in text or name in ("family", "native"):
            continue
        type_ = next((t for t in (name, name.replace("_", "-")) if f'"{t}"' in text), name)
        its = cases.get(type_, [])
        deviations = [float(c) for case in its for c in case[2:5] if c not in ("-", "")]
        runs = [list(map(int, case[5].split(" of "))) for case in its if " of " in case[5]]
        same = f"{sum(r[0] for r in runs)} of {sum(r[1] for r in runs)}" if runs else "-"
        refused = limits(root, name)
        yield (f"| `{type_}` | {len(its)} | {max(deviations):.1e} | {same} | {'; '.join(refused) or '-'} |" if deviations
               else f"| `{type_}` | {len(its)} | - | {same} | {'; '.join(refused) or '-'} |")


def main():
    root = sys.argv[1]
    path = os.path.join(root, "docs", "reference_cases.md")
    with open(path, encoding="utf8") as file:
        before = file.read().split("\n")
    begin = before.index(HEAD[0]) + len(HEAD)
    end = before.index("", begin)
    after = before[:begin] + list(rows(root, before[:begin - len(HEAD)])) + before[end:]
    if "--check" in sys.argv[2:]:
        if after != before:
            sys.exit(f"{path}: the table of families is not that of tools/families.py: run it")
        return
    with open(path, "w", encoding="utf8") as file:
        file.write("\n".join(after))


if __name__ == "__main__":
    main()
