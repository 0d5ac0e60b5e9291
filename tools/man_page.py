#!/usr/bin/env python3
"""Writes the manual page of the command-line tool, from what its --help says, to standard output.

usage: man_page.py QKV
"""
import re
import sys

from help_texts import commands_of, output_of


def verbatim(text):
    """Roff that shows these lines as they are."""
    escaped = text.strip("\n").replace("\\", "\\e").replace("-", "\\-")
    return ".nf\n" + re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.M) + "\n.fi"


def page(tool):
    version = output_of(tool, "--version").strip()
    (_, overview), *commands = commands_of(tool)
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
