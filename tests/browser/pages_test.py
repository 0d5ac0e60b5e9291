#!/usr/bin/env python3
"""The pages of qkv trace and of a training run in a browser: what they draw, and what clicks and keys do.

usage: pages_test.py QKV [unittest arguments]

Needs the Debian package chromium, which `make browser` installs. A script that each test adds to a copy of the page does
what a reader would do, and writes what it finds into the page; no network and no driver is used.
"""
import html
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from qkv_cli import FinishedRun, main, make_text, read_text  # noqa: E402

# Errors of the page itself are found, too.
BEFORE = "<script>window.faults = []; onerror = (message) => { faults.push(String(message)); };</script>"
AFTER = """<script>
const found = {};
const press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const painted = canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((x, i) => i % 4 === 3 && x > 0);
try { (ACT)(); } catch (e) { faults.push(String(e)); }
found.faults = faults;
document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "found", textContent: JSON.stringify(found) }));
</script></body>"""


class Pages(FinishedRun):
    def visit(self, page, act, width=1200):
        """Opens a page, runs `act` (JavaScript that fills `found`), and returns what it found."""
        text = read_text(self.path(page))
        self.assertEqual(text.count("</body>"), 1)
        self.write("visited.html", text.replace("<head>", "<head>" + BEFORE, 1).replace("</body>", AFTER.replace("ACT", act)))
        done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000",
                               f"--user-data-dir={self.path('profile')}", "--dump-dom", "file://" + self.path("visited.html")],
                              capture_output=True, timeout=120, text=True)
        match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
        self.assertIsNotNone(match, done.stdout[-2000:] + done.stderr[-2000:])
        found = json.loads(html.unescape(match.group(1)))
        self.assertEqual(found.pop("faults"), [])
        return found

    def test_trace(self):
        self.ok("trace", self.run_dir, "--text", "the fox ran", "--page", "t.html")
        for width in (1200, 500):  # the narrowest window that a headless browser opens
            found = self.visit("t.html", """() => {
              const heads = [...document.querySelectorAll("#model canvas")];
              found.heads = heads.length;
              found.painted = heads.every(painted);
              found.tokens = document.querySelectorAll("#tokens .token").length;
              const chosen = () => [...document.querySelectorAll("#tokens .token")].findIndex(t => t.classList.contains("on"));
              found.last = chosen();
              press("ArrowLeft");
              found.left = chosen();
              document.querySelectorAll("#tokens .token")[0].click();
              found.clicked = chosen();
              const head = () => document.querySelector("#head").value;
              found.head = head();
              press("n");
              found.next_head = head();
              heads[0].click();
              found.head_again = head();
              document.querySelector("#pin").click();
              found.compared = document.querySelectorAll("#heads canvas").length;
              document.querySelector("#pin").click();
              found.alone = document.querySelectorAll("#heads canvas").length;
              found.lens = document.querySelectorAll("#lens tr").length;
              found.parts = document.querySelectorAll("#parts b").length;
              found.neurons = document.querySelectorAll("#neurons td").length;
              found.lines = document.querySelectorAll("#heads line").length;
              const canvas = document.querySelector("#heads canvas"), box = canvas.getBoundingClientRect();
              canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + 1, clientY: box.top + 1, bubbles: true }));
              found.read = canvas.parentNode.querySelector(".read").textContent;
              found.wide = document.documentElement.scrollWidth;
            }""", width)
            tokens, heads = found["tokens"], found["heads"]
            self.assertTrue(found["painted"])
            self.assertGreater(heads, 0)
            self.assertEqual((found["last"], found["left"], found["clicked"]), (tokens - 1, tokens - 2, 0))
            self.assertEqual((found["head"], found["next_head"], found["head_again"]), ("0", "1", "0"))
            self.assertEqual((found["compared"], found["alone"]), (2, 1))
            self.assertGreater(found["lens"], 2)
            self.assertGreater(found["parts"], 2)
            self.assertGreater(found["neurons"], 0)
            self.assertGreater(found["lines"], 0)
            self.assertRegex(found["read"], r"0 .* attends to 0 .*: 1\.000")
            self.assertLessEqual(found["wide"], width)  # nothing sticks out of a narrow screen

    def test_heads_while_training(self):
        self.write("text.txt", make_text(600))
        settings = ["data.train=text.txt", "tokenizer.type=char", "model.context=16", "model.width=16", "model.heads=2", "model.layers=2",
                    "train.batch=4", "train.steps=6", "train.warmup_steps=1", "train.trace_every=2", "train.out=traced"]
        self.write("c.toml", "")
        self.ok("train", "c.toml", *[part for s in settings for part in ("--set", s)])
        found = self.visit("traced/report.html", """() => {
          const slider = document.getElementById("trace-step"), name = document.getElementById("trace-name");
          found.last = name.textContent;
          found.heads = document.querySelectorAll("#trace-heads canvas").length;
          found.painted = [...document.querySelectorAll("#trace-heads canvas")].every(painted);
          found.lens = document.querySelectorAll("#trace-lens tr").length;
          slider.value = 0;
          slider.dispatchEvent(new Event("input"));
          found.first = name.textContent;
          found.charts = document.querySelectorAll(".charts.even svg").length;
        }""")
        self.assertEqual(found, {"last": "step 6", "first": "step 0", "heads": 4, "painted": True, "lens": 4, "charts": 4})


if __name__ == "__main__":
    main()
