#!/usr/bin/env python3
"""Holds comments, help and documents to plain English, as far as that can be counted.

usage: words_lint.py REPOSITORY [--tool QKV] [--count] [PATH...]

Rules:
- headless: no sentence begins with What, Of, Where, Whether or Likewise, in comments of sources and scripts, in
  documents and in help texts. Questions and headings may.
- long: a sentence of a document has at most 25 words.
- wide: a line of help has at most 200 characters; with --tool, `QKV config --json` and the --help of every command are
  read.
tools/words_exceptions.txt lists what is excused: "PATH RULE NUMBER" (the file may have so many; fewer must be written
there) or "PATH RULE TEXT" (a sentence that begins with TEXT). Prints one line a violation, "file:line: why", and exits
with 1 when there is any. --count prints the numbers of each rule by file instead. With PATH only these files or folders
are read.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys

from help_texts import commands_of, output_of

HEADLESS = re.compile(r"(?:What|Of|Where|Whether|Likewise)\b")
LONGEST_SENTENCE, LONGEST_HELP = 25, 200
SOURCES, SCRIPTS, DOCUMENTS = (".h", ".cc", ".c"), (".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile"), (".md",)
OPTION = re.compile(r"^-\S+(?: (?:TEXT|INT|UINT|FLOAT)(?::\{[^}]*\}|:\([^)]*\))?(?:=\S+)?)?(?: \.\.\.)?(?: REQUIRED)?"
                    r"(?: (?:Excludes|Needs):.*)?(?:\s+|$)")


def sentences(text):
    """Parts of running text: a full stop ends one before a capital letter, and so do a colon and a semicolon."""
    return [part.strip() for part in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`\"(\[]|(?:code|qkv)\b)|(?<=;)\s+", text) if part.strip()]


def capitalized(text):
    return text[:1].upper() + text[1:]


def comments(lines, mark):
    """(line number, text) of each comment: lines of marks one after the other are one. In scripts also docstrings, in C also /** */."""
    block, first = [], 0
    for number, line in enumerate([*lines, ""], 1):
        plain = line.strip()
        if plain.startswith(mark):
            first = first if block else number
            block.append(plain[len(mark):].strip())
            continue
        if block:
            yield first, " ".join(block)
            block = []
        if mark == "#" and plain.startswith('"""'):
            yield number, plain.strip('"')
        elif mark == "//" and (inside := re.search(r"/\*\*<?\s+(.*)", line)):
            yield number, capitalized(re.sub(r"\\file|\*/.*", "", inside[1]).strip())
        elif mark == "//" and (inside := re.match(r"\s+\* (.*)", line)):
            block, first = [re.sub(r"\*/.*", "", inside[1])], number
        elif match := re.search(rf"[^\s{mark}].*?\s{mark}\s(.*)$", line):
            yield number, capitalized(match[1])  # a trailing comment begins with a small letter


def paragraphs(lines):
    """(line number, text) of a document's running text: no code, tables, headings."""
    block, first, code = [], 0, False
    for number, line in enumerate([*lines, ""], 1):
        if line.lstrip().startswith("```"):
            code = not code
        plain = line.strip()
        skip = code or not plain or plain.startswith(("|", "#", "<", "```", "![")) or line.startswith("    ")
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        if block and (skip or item):
            yield first, " ".join(block)
            block = []
        if not skip:
            first = first if block else number
            block.append(line[item.end():].strip() if item else plain)


def plain_text(text):
    """Without marks: a link is its words, code is a word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "code", text).replace("**", "").replace("*", "")


def headless_in(text):
    """(rule, message, sentence)"""
    for sentence in sentences(text):
        if HEADLESS.match(sentence) and not sentence.endswith("?"):
            yield "headless", f"a sentence begins with '{sentence.split()[0]}'", sentence


def findings_in(path, text):
    """(line, rule, message, sentence)"""
    lines = text.split("\n")
    document = path.endswith(DOCUMENTS)
    for number, part in paragraphs(lines) if document else comments(lines, "//" if path.endswith(SOURCES) else "#"):
        part = plain_text(part) if document else part
        yield from ((number, *finding) for finding in headless_in(part))
        for sentence in sentences(part) if document else []:
            if (words := len(sentence.split())) > LONGEST_SENTENCE:
                yield number, "long", f"a sentence of {words} words", sentence


def findings_in_help(tool):
    """(name, rule, message, sentence)"""
    lines = [(" ".join(["qkv", *words]), line.strip()) for words, text in commands_of(tool) for line in text.split("\n")]
    for key in json.loads(output_of(tool, "config", "--json")):
        lines += [(f"{key['section']}.{key['key']}", key["help"]), (f"{key['section']}.{key['key']}", key["default"])]
    for name, line in lines:
        yield from ((name, *finding) for finding in headless_in(capitalized(OPTION.sub("", line))))
        if len(line) > LONGEST_HELP:
            yield name, "wide", f"{len(line)} characters", line


def exceptions_of(root):
    """({(path, rule): number}, [(path, rule, beginning)])"""
    numbers, texts = {}, []
    with open(os.path.join(root, "tools/words_exceptions.txt"), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                path, rule, what = line.rstrip("\n").split(" ", 2)
                if what.isdigit():
                    numbers[path, rule] = int(what)
                else:
                    texts.append((path, rule, what))
    return numbers, texts


def main():
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n")[2])
    arguments.add_argument("root")
    arguments.add_argument("paths", nargs="*")
    arguments.add_argument("--tool")
    arguments.add_argument("--count", action="store_true")
    given = arguments.parse_intermixed_args()
    names = subprocess.run(["git", "-C", given.root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                           check=True).stdout.split()
    found = collections.defaultdict(list)
    for name in names:
        wanted = not given.paths or any(name == p or name.startswith(p.rstrip("/") + "/") for p in given.paths)
        if wanted and name.endswith(SOURCES + SCRIPTS + DOCUMENTS) and os.path.exists(os.path.join(given.root, name)):
            with open(os.path.join(given.root, name), encoding="utf-8") as file:
                for number, rule, why, sentence in findings_in(name, file.read()):
                    found[name, rule].append((f"{name}:{number}", why, sentence))
    if given.tool:
        for name, rule, why, sentence in findings_in_help(given.tool):
            found["help", rule].append((name, why, sentence))
    numbers, texts = exceptions_of(given.root)
    violations = 0
    for (path, rule), cases in sorted(found.items()):
        cases = [c for c in cases if not any(p == path and r == rule and c[2].startswith(t) for p, r, t in texts)]
        if given.count:
            print(f"{path} {rule} {len(cases)}")
            continue
        allowed = numbers.pop((path, rule), 0)
        if len(cases) > allowed:
            violations += len(cases)
            for place, why, sentence in cases:
                print(f"{place}: {rule}: {why}: {sentence[:400]}")
        elif len(cases) < allowed:
            violations += 1
            print(f"tools/words_exceptions.txt: {path} {rule}: {allowed} are excused, it has {len(cases)}")
    if not given.paths and not given.count:
        for path, rule in numbers:
            if path != "help" or given.tool:
                violations += 1
                print(f"tools/words_exceptions.txt: {path} {rule}: it has none")
    if not given.count:
        print(f"{violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
