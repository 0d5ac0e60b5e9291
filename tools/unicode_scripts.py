#!/usr/bin/env python3
"""Writes the table of scripts that the pre-tokenizer UnicodeScripts goes by: those of Unicode 9, as in Hugging Face's tokenizers.

usage: unicode_scripts.py [FOLDER] > qkv/text/unicode_scripts_table.h

FOLDER holds Scripts.txt and DerivedAge.txt of that or a later version (Debian: /usr/share/unicode of unicode-data).
"""
import os
import sys

VERSION = (9, 0)
# Characters that later versions moved to another script.
MOVED = {0x589: "Common", 0x61C: "Common", 0x953: "Devanagari", 0x954: "Devanagari"}
COLUMNS = 110


def read(path):
    """code point -> value, of a file of the Unicode Character Database."""
    values = {}
    with open(path, encoding="utf8") as file:
        for line in file:
            fields = [field.strip() for field in line.split("#")[0].split(";")]
            if len(fields) < 2:
                continue
            first, _, last = fields[0].partition("..")
            for code in range(int(first, 16), int(last or first, 16) + 1):
                values[code] = fields[1]
    return values


def script_of(code, scripts):
    """The prolonged sound mark and all kana count as Han; a space has no script."""
    if code == 0x20:
        return None
    script = MOVED.get(code, scripts[code])
    return "Han" if code == 0x30FC or script in ("Hiragana", "Katakana") else script


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
    scripts, ages = read(os.path.join(folder, "Scripts.txt")), read(os.path.join(folder, "DerivedAge.txt"))
    ranges = []  # [first, last, script]
    for code in sorted(scripts):
        if tuple(map(int, ages[code].split("."))) > VERSION:
            continue
        script = script_of(code, scripts)
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == script:
            ranges[-1][1] = code
        elif script is not None:
            ranges.append([code, code, script])
    names = sorted({script for _, _, script in ranges})
    numbers = {name: i + 1 for i, name in enumerate(names)}
    lines, line = [], ""
    for first, last, script in ranges:
        entry = f"{{0x{first:X}, 0x{last:X}, {numbers[script]}}},"
        if len(line) + len(entry) + 3 > COLUMNS:
            lines.append(line)
            line = ""
        line += (" " if line else "    ") + entry
    lines.append(line)
    print(f"""// Scripts of characters (Unicode 9), by tools/unicode_scripts.py. Their numbers follow the order of their names:
// {names[0]} is 1, {names[-1]} {len(names)}.
#pragma once

#include <cstdint>

namespace qkv::text {{

// Characters [first, last] have this script.
struct ScriptRange {{
  int32_t first, last;
  uint8_t script;
}};

// clang-format off
inline constexpr ScriptRange kScriptRanges[] = {{""")
    print("\n".join(lines))
    print("""};
// clang-format on

}  // namespace qkv::text""")


main()
