#!/usr/bin/env python3
"""Each place that tools/breaks.toml breaks is there, once.

usage: breaks_test.py REPOSITORY [unittest arguments]
"""
import os
import sys
import tomllib
import unittest

REPOSITORY = ""


class Breaks(unittest.TestCase):
    def test_each_place_is_there_once(self):
        with open(f"{REPOSITORY}/tools/breaks.toml", "rb") as file:
            breaks = tomllib.load(file)["break"]
        self.assertEqual(len(breaks), 20)
        self.assertEqual(len({place["name"] for place in breaks}), 20)
        for place in breaks:
            with self.subTest(place["name"]):
                with open(f"{REPOSITORY}/{place['file']}", encoding="utf-8") as file:
                    self.assertEqual(file.read().count(place["old"]), 1)
                self.assertNotEqual(place["old"], place["new"])


if __name__ == "__main__":
    REPOSITORY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
