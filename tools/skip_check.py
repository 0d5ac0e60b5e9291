#!/usr/bin/env python3
"""Checks that a test run skipped no test but those that may be skipped.

usage: skip_check.py ALLOWED RESULTS.xml...

RESULTS are JUnit files: ctest's (--output-junit, with --test-output-size-passed large enough for the tests' words) and
GoogleTest's (--gtest_output=xml:FILE), whose tests are called FILE:Suite.Test. A line of ALLOWED is
    PATTERN | WORDS | REASON
and allows what matches PATTERN (* and ? as in a shell) to be skipped where the test's output holds WORDS. Prints each
allowed skip's REASON with its number, one line a violation, and exits with 1 when there is any. Tests that are disabled
count as skipped, and tests that a program of Python's unittest skips are called PROGRAM:test.
"""
import fnmatch
import os
import re
import sys
import xml.etree.ElementTree as ET


def read_allowed(path):
    """[(pattern, words, reason)]"""
    allowed = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = [part.strip() for part in line.split("|")]
            if len(parts) != 3 or not all(parts):
                raise SystemExit(f"{path}:{number}: a line is PATTERN | WORDS | REASON")
            allowed.append(tuple(parts))
    return allowed


def skips_of_unittest(words):
    """(test, why) of what a program of unittest skipped; without a name where it was not told to be verbose."""
    named = re.findall(r"^(\w+) \(.*\) \.\.\. (?:.*\n)?skipped (.*)$", words, flags=re.M)
    sums = re.findall(r"^(?:OK|FAILED) \((?:.*, )?skipped=(\d+)", words, flags=re.M)
    return named + [("", words)] * max(0, sum(map(int, sums)) - len(named))


def skips_of(path):
    """(tests, [(name, its words)]) of a file of results."""
    root = ET.parse(path).getroot()
    prefix = "" if root.tag == "testsuite" else os.path.splitext(os.path.basename(path))[0] + ":"
    tests, skipped = 0, []
    for case in root.iter("testcase"):
        tests += 1
        name = prefix + (f"{case.get('classname')}." if prefix else "") + case.get("name")
        words = " ".join(f"{element.get('message', '')} {element.text or ''}" for element in case.iter()
                         if element.tag in ("skipped", "system-out"))
        left_out = case.get("status") == "disabled" or case.get("result") == "skipped"
        if case.find("skipped") is not None or left_out:
            skipped.append((name, words))
        skipped += [(f"{name}:{test}" if test else name, why) for test, why in skips_of_unittest(words)]
    return tests, skipped


def main():
    allowed = read_allowed(sys.argv[1])
    total, counts, problems = 0, {}, []
    for path in sys.argv[2:]:
        tests, skipped = skips_of(path)
        total += tests
        if tests == 0:
            problems.append(f"{path}: no tests")
        for name, words in skipped:
            entry = next((a for a in allowed if fnmatch.fnmatchcase(name, a[0]) and a[1] in words), None)
            if entry:
                counts[entry] = counts.get(entry, 0) + 1
            else:
                said = " ".join(words.split())[-200:]
                problems.append(f"{name}: skipped, which {sys.argv[1]} does not allow: {said}")
    for (pattern, _, reason), count in counts.items():
        print(f"{count:5} {pattern}: {reason}")
    for problem in problems:
        print(problem)
    print(f"{total} tests, {sum(counts.values())} allowed skips, {len(problems)} violations")
    return 1 if problems or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
