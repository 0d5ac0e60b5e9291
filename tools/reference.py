#!/usr/bin/env python3
"""Writes docs/reference-settings.md and docs/reference-commands.md from what the tool says of itself.

usage: reference.py REPOSITORY QKV [--check]

The settings are those of `QKV config --json`, the commands those of `QKV --help`. With --check nothing is written: a page
that is not up to date is named, and the exit status is 1.
"""
import json
import os
import sys

from help_texts import commands_of, output_of

TITLES = {"data": "Data", "mix.NAME": "Mixtures of datasets", "tokenizer": "Tokenizer", "model": "Model",
          "model.kind.NAME": "Kinds of layers", "train": "Training"}


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def settings_page(qkv):
    keys = json.loads(output_of(qkv, "config", "--json"))
    of_data = {key["key"] for key in keys if key["section"] == "data"}
    lines = ["# Settings", "", "`qkv config WORDS` searches this list in the terminal.", "",
             "Set a key in the configuration file, or with `--set section.key=value`. A key that names objectives is rejected",
             "for others.", ""]
    for section, title in TITLES.items():
        lines += [f"## {title}: `[{section}]`", ""]
        if section == "mix.NAME":
            lines += ["Each dataset of a mixture has a table of its own, with the keys of `[data]` and these:", ""]
        lines += ["| key | default | meaning | values | objectives |", "|---|---|---|---|---|"]
        for key in keys:
            if key["section"] == section and not (section == "mix.NAME" and key["key"] in of_data):
                lines.append("| " + " | ".join([f"`{key['key']}`", cell(key["default"]), cell(key["help"]),
                                                cell(key["range"]), key["objectives"]]) + " |")
        lines.append("")
    assert {key["section"] for key in keys} == set(TITLES), "a section without a title"
    return "\n".join(lines).rstrip() + "\n"


def commands_page(qkv):
    lines = ["# Commands: all options", "", "These are the help texts of the tool. [Commands](commands.md) is an overview.", ""]

    for words, text in commands_of(qkv):
        lines.extend([f"## {' '.join(['qkv', *words])}", "", "```text", *text.rstrip().split("\n"), "```", ""])
    return "\n".join(lines).rstrip() + "\n"


def main():
    root, qkv = sys.argv[1:3]
    stale = 0
    for name, text in (("reference-settings.md", settings_page(qkv)), ("reference-commands.md", commands_page(qkv))):
        path = os.path.join(root, "docs", name)
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if text == old:
            continue
        if "--check" in sys.argv:
            print(f"docs/{name}: not what the tool says: run tools/reference.py . build/qkv")
            stale = 1
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
