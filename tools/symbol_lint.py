#!/usr/bin/env python3
"""Checks that the code compiled for AVX-512 and AMX stays behind its own functions.

usage: symbol_lint.py LIBRARY.a

qkv/kernels/tile/share.cc, block.cc and groups.cc are compiled for more than the processor that the program may run on. Of an
inline function or template that they have in common with other files, the linker keeps one version, perhaps that
one: so their objects may define nothing for others but plain functions of qkv::tile. Prints one line a violation and
exits with 1 when there is any.
"""
import re
import subprocess
import sys

MEMBERS = ("block.cc.o", "groups.cc.o", "share.cc.o")
LOCAL = "abdgrst"  # nm's letters; small ones that are not local: u, v and w
POINTER = "DW.ref."  # data: the address of what unwinds the stack, which ThreadSanitizer's builds have
SYMBOL = re.compile(r"^[0-9a-f]* +([A-Za-z]) (.*)$")


def main():
    lines = subprocess.run(["nm", "-C", "--defined-only", sys.argv[1]], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    member, functions, problems = None, {}, []
    for line in lines:
        if line.endswith(":") and " " not in line:
            member = line[:-1]
        elif member in MEMBERS and (symbol := SYMBOL.match(line)) and symbol[1] not in LOCAL:
            if symbol[1] == "T" and symbol[2].startswith("qkv::tile::"):
                functions[member] = functions.get(member, 0) + 1
            elif not symbol[2].startswith(POINTER):
                problems.append(f"{member} defines {symbol[2]} ({symbol[1]}), which other files may be linked with")
    for missing in set(MEMBERS) - set(functions):
        problems.append(f"{sys.argv[1]}: {missing} with functions of qkv::tile not found")
    for problem in problems:
        print(problem)
    print(f"{sum(functions.values())} functions, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
