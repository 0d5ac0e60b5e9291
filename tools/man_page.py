#!/usr/bin/env python3
"""Writes the manual page of the command-line tool, from what its --help says, to standard output.

usage: man_page.py QKV
"""
import re
import subprocess
import sys


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def verbatim(text):
    """Roff that shows these lines as they are."""
    escaped = text.strip("\n").replace("\\", "\\e").replace("-", "\\-")
    return ".nf\n" + re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.M) + "\n.fi"


def subcommands(help_text):
    """(name, summary) of each line below "Subcommands:"."""
    section = re.search(r"^Subcommands:\n((?:  .*\n)+)", help_text, flags=re.M)
    return re.findall(r"^  (\S+) +(.*)$", section[1], flags=re.M) if section else []


def commands_below(tool, words):
    """(words, help) of a command and, after it, of its subcommands."""
    help_text = output_of(tool, *words, "--help")
    yield words, help_text
    for name, _ in subcommands(help_text):
        yield from commands_below(tool, words + [name])


def page(tool):
    version = output_of(tool, "--version").strip()
    (_, overview), *commands = commands_below(tool, [])
    summary = overview.split("\n")[0]
    lines = [f'.TH QKV 1 "" "{version}" "User commands"', ".SH NAME", "qkv \\- train and run transformers natively",
             ".SH SYNOPSIS", ".B qkv", "[OPTIONS] SUBCOMMAND ...", ".SH DESCRIPTION", summary,
             verbatim(overview.split("\n", 2)[2]), ".SH SUBCOMMANDS"]
    for words, help_text in commands:
        lines += [f".SS qkv {' '.join(words)}", verbatim(help_text)]
    lines += [".SH EXIT STATUS", "0 done, 1 failed, 2 wrong usage; one line on standard error says why."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(sys.argv[1]))
