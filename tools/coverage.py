#!/usr/bin/env python3
"""Prints which part of each folder's lines the tests ran, and the files of which they ran least.

usage: coverage.py SUMMARY.json      (gcovr --json-summary)
"""
import json
import sys


def folders_of(files):
    """{folder: [covered, total]} of qkv/FOLDER and of the other folders, and of all."""
    folders = {}
    for file in files:
        folder = "/".join(file["filename"].split("/")[:2 if file["filename"].startswith("qkv/") else 1])
        for name in folder, "all":
            sums = folders.setdefault(name, [0, 0])
            sums[0] += file["line_covered"]
            sums[1] += file["line_total"]
    return folders


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        files = [f for f in json.load(file)["files"] if f["line_total"] > 0]
    for folder, (covered, total) in sorted(folders_of(files).items()):
        print(f"{folder:16} {100 * covered / total:5.1f}% of {total} lines")
    print("least:")
    for file in sorted(files, key=lambda f: f["line_covered"] / f["line_total"])[:20]:
        print(f"  {100 * file['line_covered'] / file['line_total']:5.1f}% {file['filename']}")
    return 0 if files else 1


if __name__ == "__main__":
    sys.exit(main())
