#!/usr/bin/env python3
"""Turns the plain comments of a header into Doxygen's: an INPUT_FILTER of docs/Doxyfile.

usage: doxygen_filter.py HEADER

The headers are written for readers of source: a comment stands above what it speaks of, or behind it, and the first
one speaks of the file. On standard output
- a comment directly above a declaration begins with ///; where functions of a namespace follow without a blank line,
  it speaks of all of them;
- a comment behind a declaration begins with ///<, also where it goes on in the next lines;
- the file's comment stands at the end with @file;
- "REQUIRES:" and "Throws Error" become sections;
- comments inside functions stay what they are.
Lines keep their numbers, for warnings.
"""
import re
import sys

LITERAL = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
SCOPE = re.compile(r"\b(namespace|class|struct|enum|union)\b")
FORWARD = re.compile(r"\s*(class|struct|enum)\b[^{]*;")  # a comment behind it would go to the next class


def doxygen(text):
    """Comment text with sections; nothing outside backticks may look like a command or a tag."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        part = re.sub(r"([\\@<>#&%])", r"\\\1", parts[i]).replace("REQUIRES:", "@pre")
        parts[i] = re.sub(r"\bThrows (Error|UsageError)\b", r"@throws \1 ", part)
    return "".join(parts)


def split_comment(line):
    """(code, comment) of a line; the comment is None where there is none."""
    at = LITERAL.sub(lambda match: "_" * len(match[0]), line).find("//")
    return (line, None) if at < 0 else (line[:at], line[at + 2:])


class Scopes:
    """Follows the code: in which kind of braces the next character lies, and whether a declaration begins there."""

    def __init__(self):
        self.stack, self.statement, self.parentheses = ["namespace"], "", 0

    def kind(self):
        return self.stack[-1]

    def begins(self):
        return self.kind() != "body" and not self.statement.strip()

    def kind_of_brace(self):
        keyword = SCOPE.search(self.statement)
        if self.kind() == "body" or not keyword or re.search(r"[(=]", self.statement):
            return "body"
        return keyword[1] if keyword[1] == "namespace" else "class"

    def read(self, code):
        if code.lstrip().startswith("#"):
            return
        for character in LITERAL.sub("_", code):
            self.parentheses += (character == "(") - (character == ")")
            if character == "{":
                self.stack.append(self.kind_of_brace())
            elif character == "}":
                self.stack.pop()
            access = character == ":" and self.statement.strip() in ("public", "protected", "private")
            ended = character in "{}" or (character == ";" and self.parentheses == 0) or access
            self.statement = "" if ended else self.statement + character


def precedes_declaration(following):
    """True if a declaration comes next, after the rest of a comment."""
    for line in following:
        code, comment = split_comment(line)
        if code.strip() or comment is None:
            return code.strip() != "" and not code.lstrip().startswith(("}", "#"))
    return False


def convert(lines):
    out, scopes = [], Scopes()
    head = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    previous = "blank"
    above = []     # the comment above this paragraph
    column = None  # column of the comment behind the last declaration
    for i, line in enumerate(lines):
        code, comment = split_comment(line)
        kind = "code" if code.strip() else "blank" if comment is None else "comment"
        if kind == "blank" or i < head:
            above, column = [], None
        elif kind == "comment" and column == len(code):
            line = f"{code}///<{doxygen(comment)}"
        elif kind == "comment" and scopes.begins() and precedes_declaration(lines[i:]):
            above = (above if previous == "comment" else []) + [doxygen(comment)]
            line = f"{code}///{above[-1]}"
        elif kind == "code":
            shares = "(" in code or code.startswith(("template", "using"))  # not constants
            if above and previous == "code" and shares and scopes.begins() and scopes.kind() == "namespace":
                line = f"/**{' '.join(above)} */ {line}"
            scopes.read(code)
            declares = scopes.kind() != "body" and not code.startswith("}") and not FORWARD.match(code)
            column = len(code) if comment is not None and declares else None
            if column is not None:
                line = f"{line[:len(line) - len(comment)]}/<{doxygen(comment)}"
        out.append(line)
        previous = kind
    return out + ["/// @file"] + [f"///{doxygen(line[2:])}" for line in lines[:head]]


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(convert(file.read().split("\n"))))
