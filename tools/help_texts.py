"""The help texts of the tool, for the checks and pages that read them."""
import re
import subprocess


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def section_of(text, title):
    """Lines of a section of a help text."""
    match = re.search(rf"^{title}:\n((?:  .*\n)+)", text, flags=re.M)
    return match[1].split("\n")[:-1] if match else []


def subcommands_of(text):
    return [line.split()[0] for line in section_of(text, "Subcommands") if line[2] != " "]


def option_lines_of(text):
    """Lines that begin with an option, without their indentation."""
    return [line.strip() for line in text.split("\n") if line.startswith("  -")]


def commands_of(qkv, words=()):
    """(words, help text) of the program and all its subcommands, in the order of the help."""
    text = output_of(qkv, *words, "--help")
    yield words, text
    for name in subcommands_of(text):
        yield from commands_of(qkv, (*words, name))
