#!/usr/bin/env python3
"""Says what programs in C rely on: functions, enumerators, and the members of structs with their places.

usage: c_abi.py SOURCES COMPILER [--check]

Prints the interface of qkv/api/qkv.h on this processor's kind (64 bits). With --check it is compared with
qkv/api/qkv.abi instead, and what differs is printed; exits with 1 when anything does. Lines may be added to that file
(functions, and members at the end of a struct); one that changes or goes breaks programs.
"""
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def declarations(header, compiler):
    """The header without comments and directives, its blanks as one space."""
    text = subprocess.run([compiler, "-E", "-P", "-x", "c", header], check=True, capture_output=True, text=True).stdout
    ours = text[text.index("typedef enum qkv_status"):]
    return re.sub(r"\s+", " ", ours)


def interface(sources, compiler):
    header = sources / "qkv/api/qkv.h"
    text = declarations(header, compiler)
    lines, prints = [], []
    for name, body in re.findall(r"typedef enum (\w+) \{ (.*?),? \}", text):
        for enumerator in re.findall(r"(\w+) =", body):
            prints.append(f'printf("enum {name}: {enumerator} = %d\\n", {enumerator});')
    for name, body in re.findall(r"typedef struct (\w+) \{ (.*?) \}", text):
        for member in body.rstrip("; ").split("; "):
            field = re.search(r"(\w+)$", member)[1]
            prints.append(f'printf("struct {name}: {member} at %zu\\n", offsetof({name}, {field}));')
    functions = re.sub(r"typedef (?:enum|struct) \w+ \{.*?\} \w+;", "", text)
    for statement in functions.split(";"):
        statement = statement.strip().removeprefix("}").strip()
        if statement.startswith("typedef"):
            lines.append(statement)
        elif "(" in statement:
            lines.append("function: " + statement)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "abi.c")
        program.write_text('#include <stdio.h>\n#include "qkv/api/qkv.h"\nint main(void) {\n' + "\n".join(prints) + "\n}\n")
        subprocess.run([compiler, "-x", "c", "-I", sources, program, "-o", Path(folder, "abi")], check=True)
        lines += subprocess.run([Path(folder, "abi")], check=True, capture_output=True, text=True).stdout.splitlines()
    return lines


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    sources = Path(sys.argv[1])
    lines = interface(sources, sys.argv[2])
    if len(sys.argv) == 3:
        print("\n".join(lines))
        return 0
    kept = (sources / "qkv/api/qkv.abi").read_text(encoding="utf8").splitlines()
    difference = list(difflib.unified_diff(kept, lines, "qkv/api/qkv.abi", "qkv/api/qkv.h", lineterm="", n=0))
    for line in difference:
        print(line)
    if difference:
        print("tools/c_abi.py prints the interface as it is; qkv/api/qkv.abi may only gain lines")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
