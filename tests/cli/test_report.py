#!/usr/bin/env python3
"""qkv report.

usage: test_report.py QKV [unittest arguments]
"""
import json
import os
import re
import shutil
import stat
import threading

from qkv_cli import FinishedRun, main, read


class Report(FinishedRun):
    def copy(self, name, change=lambda lines: lines):
        """A run with the shared one's records and settings."""
        os.mkdir(self.path(name))
        shutil.copy(os.path.join(self.run_dir, "config.toml"), self.path(name))
        lines = read(os.path.join(self.run_dir, "metrics.jsonl")).decode().splitlines(keepends=True)
        self.write(f"{name}/metrics.jsonl", "".join(change(lines)))

    def page(self, path):
        """The page's text; everything that it shows is in it."""
        page = read(self.path(path)).decode()
        for fetched in ("http-equiv=\"refresh", "src=", "href=", "url(h", "@import"):
            self.assertNotIn(fetched, page)
        for tag in ("html", "body", "figure", "svg", "pre", "table", "dl", "div", "span", "script", "style"):
            self.assertEqual(len(re.findall(f"<{tag}[ >]", page)), page.count(f"</{tag}>"), tag)
        return page

    def test_a_run(self):
        self.ok("report", self.run_dir, "--out", "page.html")
        page = self.page("page.html")
        lines = [json.loads(line) for line in read(os.path.join(self.run_dir, "metrics.jsonl")).splitlines()]
        best = min(line["valid_loss"] for line in lines if "valid_loss" in line)
        self.assertIn(f"{best:.4f}", page)
        for part in ("of 20", "Loss", "Learning rate", "Throughput", "Gradient norm", "tokenizer.type", "context 16"):
            self.assertIn(part, page)
        # 20 steps of 4 windows of 16 tokens.
        self.assertIn("1.28k", page)

    def test_curves_lead_back_to_the_records(self):
        self.ok("report", self.run_dir, "--out", "page.html")
        drawing = re.search('aria-label="Loss.*?</svg>', self.page("page.html"), re.S)[0]
        low_x, high_x, left, right = map(float, re.search('data-x="([^"]*)"', drawing)[1].split())
        low_y, high_y, bottom, top = map(float, re.search('data-y="([^"]*)"', drawing)[1].split())
        curve = re.search('data-label="training" points="([^"]*)"', drawing)[1]
        points = [tuple(map(float, p.split(","))) for p in curve.split()]
        lines = [json.loads(line) for line in read(os.path.join(self.run_dir, "metrics.jsonl")).splitlines()]
        records = [(line["step"], line["loss"]) for line in lines if "loss" in line]
        self.assertEqual(len(points), len(records))
        for (x, y), (step, loss) in zip(points, records):
            self.assertAlmostEqual(low_x + (x - left) / (right - left) * (high_x - low_x), step, delta=0.01)
            self.assertAlmostEqual(low_y + (y - bottom) / (top - bottom) * (high_y - low_y), loss, delta=0.001)

    def test_beside_the_run(self):
        self.copy("one")
        result = self.ok("report", "one/")
        self.assertEqual(os.path.normpath(result.out.strip()), "one/report.html")
        self.assertIn("<h1>one</h1>", self.page("one/report.html"))
        self.assert_no_leftovers()

    def test_links_and_devices_stay(self):
        self.copy("one")
        os.symlink("page.html", self.path("link.html"))
        self.ok("report", "one", "--out", "link.html")
        self.assertTrue(os.path.islink(self.path("link.html")))
        self.assertIn("<h1>one</h1>", self.page("page.html"))
        os.mkfifo(self.path("pipe"))
        reader = threading.Thread(target=lambda: read(self.path("pipe")), daemon=True)
        reader.start()
        self.ok("report", "one", "--out", "pipe")
        reader.join(10)
        piped = self.ok("report", "one", "--out", "/dev/stdout").out  # a link to a pipe
        self.assertIn("<h1>one</h1>", piped)
        os.symlink("b", self.path("a"))
        os.symlink("a", self.path("b"))
        self.refused("report", "one", "--out", "a", status=1, says=["a", "symbolic links"])
        self.assertTrue(os.path.islink(self.path("a")))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_samples_hold_anything(self):
        sample = json.dumps({"step": 20, "sample": "</pre></div><script>alert('x')</script>\u0000", "prompt": "A&B"})
        self.copy("one", lambda lines: lines + [sample + "\n", '{"step": 20, "lo'])
        self.ok("report", "one")
        self.assertIn('A&amp;B</span>&lt;/pre&gt;&lt;/div&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;\uFFFD<',
                      self.page("one/report.html"))

    def test_several_runs(self):
        self.copy("one")
        self.copy("two<i>")
        self.refused("report", "one", "two<i>", status=2, says="--out")
        self.ok("report", "one", "two<i>", "--out", "page.html")
        page = self.page("page.html")
        for part in ("2 runs", "one: validation", "two&lt;i&gt;: validation"):
            self.assertIn(part, page)

    def test_bad_input(self):
        self.refused("report", status=2, says="RUN")
        self.refused("report", "nowhere", status=1, says=["nowhere", "metrics.jsonl"])
        self.copy("one", lambda lines: lines[:2] + ["{]\n"] + lines[2:])
        self.refused("report", "one", status=1, says=["one/metrics.jsonl:3", "JSON"])
        self.copy("two", lambda lines: lines[:2] + ['{"step": "x"}\n'])
        self.refused("report", "two", status=1, says=["two/metrics.jsonl:3", "step"])
        self.assertFalse(os.path.exists(self.path("one/report.html")))
        self.refused("report", self.run_dir, "--out", "no/such/page.html", status=1, says="no/such")


if __name__ == "__main__":
    main()
