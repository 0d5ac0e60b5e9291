#!/usr/bin/env python3
"""Prints the headers that are installed: those that docs/library.md names, and all that they include.

usage: public_headers.py SOURCES

A folder that the page names, `qkv/nn/`, stands for its headers.
"""
import re
import sys
from pathlib import Path


def public_headers(sources):
    """Paths relative to the sources, sorted."""
    page = (sources / "docs/library.md").read_text(encoding="utf8")
    table = page.split("## What to include")[1].split("\n## ")[0]
    named = []
    for path in re.findall(r"`(qkv/[\w./]+)`", table):
        named += sorted(p.relative_to(sources).as_posix() for p in (sources / path).glob("*.h")) if path.endswith("/") else [path]
    found, waiting = set(), named
    while waiting:
        header = waiting.pop()
        if header in found:
            continue
        found.add(header)
        text = (sources / header).read_text(encoding="utf8")
        waiting += re.findall(r'^ *#include "(qkv/[^"]+)"', text, flags=re.M)
    return sorted(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(public_headers(Path(sys.argv[1]))))
