#!/usr/bin/env python3
"""How long a run is: train.epochs, and qkv train --resume to more steps.

usage: test_continue.py QKV [unittest arguments]
"""
import fcntl
import json
import math
import os
import pty
import re
import shutil
import struct
import subprocess
import termios

import qkv_cli
from qkv_cli import (CliTest, command, configuration, ENVIRONMENT, main, make_text, read, read_terminal, read_text, snapshot,
                     toml)


def records(path):
    return [json.loads(line) for line in read(path).splitlines()]


def rates(path):
    return {r["step"]: r["lr"] for r in records(path) if "lr" in r}


class MoreSteps(CliTest):
    def state(self, run="run"):
        return json.loads(read(self.path(run, "last/trainer_state.json")))

    def test_a_finished_run_goes_on_as_if_it_had_been_longer(self):
        """At a constant rate nothing depends on the number of steps: the runs are equal bit for bit."""
        keys = dict(schedule="constant", model__dropout=0.1, checkpoint_every=1000)
        self.train(steps=20, **keys)
        result = self.ok("train", "config.toml", "--resume", "--set", "train.steps=30")
        self.assertIn("step 20 of 30 now, of 20 before", result.err)
        self.assertIn("the schedule (constant) goes on as it is", result.err)
        self.train(name="whole.toml", out="whole", steps=30, **keys)
        for name in ("last/model.safetensors", "last/optimizer.safetensors", "last/trainer_state.json"):
            self.assertEqual(read(self.path("run", name)) == read(self.path("whole", name)), True, name)
        steps = [r["step"] for r in records(self.path("run/metrics.jsonl")) if "loss" in r]
        self.assertEqual(steps, list(range(1, 31)))
        self.assertIn("steps = 30\n", read_text(self.path("run/config.toml")))

    def test_schedules_are_stretched_and_say_so(self):
        for schedule in ("cosine", "linear", "one_cycle"):
            with self.subTest(schedule=schedule):
                out = "run_" + schedule
                self.train(out=out, schedule=schedule, steps=20)
                result = self.ok("train", "config.toml", "--resume", "--set", "train.steps=40")
                self.train(name="whole.toml", out="whole", schedule=schedule, steps=40, **{})
                got, want = rates(self.path(out, "metrics.jsonl")), rates(self.path("whole", "metrics.jsonl"))
                for step in range(21, 41):
                    self.assertEqual(got[step], want[step], step)
                self.assertGreater(got[21], got[20])
                self.assertIn("stretched over 40 steps", result.err)
                self.assertIn(f"the learning rate was {got[20]:.2e}, goes on at {got[21]:.2e}", result.err)
                shutil.rmtree(self.path("whole"))

    def test_a_warm_up_that_follows_from_the_steps_stays(self):
        sections = "[data]\ntrain = 'text.txt'\n[tokenizer]\ntype = 'char'\n[model]\ncontext = 16\nwidth = 16\n" \
                   "layers = 1\nheads = 2\n[train]\nout = 'run'\nbatch = 4\nprecision = 'f32'\n"
        self.write("config.toml", sections + "steps = 20\n")
        self.ok("train", "config.toml")
        self.ok("train", "config.toml", "--resume", "--set", "train.steps=60")
        self.assertIn("warmup_steps = 2\n", read_text(self.path("run/config.toml")))
        self.ok("train", "config.toml", "--resume", "--set", "train.steps=60")  # finished, and the same run
        self.ok("train", "run", "--resume", "--set", "train.steps=61")
        self.assertEqual(self.state()["step"], 61)

    def test_a_run_knows_its_configuration(self):
        self.train()
        os.rename(self.path("run"), self.path("moved"))
        os.remove(self.path("config.toml"))
        result = self.ok("train", "--resume", "moved/", "--set", "train.steps=25")
        self.assertIn("moved: step 20 of 25 now", result.err)
        self.assertEqual(self.state("moved")["step"], 25)
        self.assertFalse(os.path.exists(self.path("run")))
        self.refused("train", "moved", status=2, says="--resume")
        os.mkdir(self.path("empty"))
        self.refused("train", "empty", "--resume", status=1, says="empty/config.toml")

    def test_how_often_it_looks_may_change(self):
        self.train(steps=10)
        self.ok("train", "run", "--resume", "--set", "train.steps=20", "--set", "train.eval_every=4",
                "--set", "train.log_every=5", "--set", "train.checkpoint_every=3", "--set", "train.keep=2")
        validated = [r["step"] for r in records(self.path("run/metrics.jsonl")) if "valid_loss" in r]
        self.assertEqual(validated, [10, 12, 16, 20])

    def test_patience_may_change(self):
        self.train(steps=100, eval_every=2, patience=2, learning_rate=0.0, min_learning_rate=0.0)
        stopped = self.state()["step"]
        self.assertLess(stopped, 100)
        again = self.ok("train", "run", "--resume")
        self.assertIn("--set train.patience=0", again.err)
        self.ok("train", "run", "--resume", "--set", "train.patience=0", "--set", "train.steps=20")
        self.assertEqual(self.state()["step"], 20)

    def test_what_may_not_change(self):
        self.train()
        before = snapshot(self.path("run"))
        for change in ("train.learning_rate=0.5", "model.width=32", "train.seed=2", "train.eval_windows=3"):
            with self.subTest(change=change):
                key = change.split("=")[0]
                self.refused("train", "config.toml", "--resume", "--set", change, status=1,
                             says=[key, "steps, eval_every, patience"])
        self.refused("train", "config.toml", "--resume", "--set", "train.steps=12", status=1,
                     says=["20 steps are done already", "train.steps = 12"])
        self.assertEqual(snapshot(self.path("run")), before)

    def test_a_changed_text_is_named(self):
        self.train()
        self.write("text.txt", make_text() + "and then\n" * 40)
        result = self.refused("train", "config.toml", "--resume", status=1,
                              says="the training text has changed since the checkpoint (")
        self.assertRegex(result.err, r"\([0-9]+ tokens then, [0-9]+ now\)")
        self.assertNotRegex(result.err, "[0-9a-f]{32}")

    def test_changed_examples_are_named(self):
        rows = "text\tlabel\n" + "".join(f"{i} {'good' if i % 2 else 'bad'}\t{i % 2}\n" for i in range(60))
        self.write("rows.tsv", rows)
        self.write("c.toml", toml({"data": {"train": "rows.tsv"},
                                   "model": {"architecture": "encoder", "context": 16, "width": 16, "layers": 1, "heads": 2},
                                   "train": {"objective": "classify", "out": "run", "steps": 4, "batch_tokens": 200}}))
        self.ok("train", "c.toml")
        self.write("rows.tsv", rows + "more bad\t0\nmore good\t1\n")
        result = self.refused("train", "c.toml", "--resume", status=1, says="the examples have changed since the checkpoint")
        self.assertRegex(result.err, r"\([0-9]+ examples then, [0-9]+ now\)")


class Epochs(CliTest):
    def steps(self, run="run"):
        return json.loads(read(self.path(run, "last/trainer_state.json")))["step"]

    def epochs(self, epochs, **train):
        text = configuration(**train).replace("steps = 20\n", f"epochs = {epochs}\n", 1)
        self.assertIn("epochs", text)
        return self.write("config.toml", text)

    def training_tokens(self):
        return len(make_text()) - int(len(make_text()) * 0.1)  # one a character

    def test_of_a_text(self):
        for epochs in (0.25, 1.0):
            self.epochs(epochs, out=f"run{epochs}", warmup_steps=2)
            result = self.ok("train", "config.toml")
            want = math.ceil(epochs * self.training_tokens() / (4 * 16))
            self.assertAlmostEqual(self.steps(f"run{epochs}"), want, delta=1)
            self.assertIn(f"{self.steps(f'run{epochs}')} steps ({epochs:.2g} epochs)", result.err)
        self.assertIn("epochs = 0.25\n", read_text(self.path("run0.25/config.toml")))

    def test_it_is_remembered(self):
        self.epochs(0.5)
        self.ok("train", "config.toml")
        once = self.steps()
        self.assertIn("is finished", self.ok("train", "run", "--resume").err)
        self.assertIn("is finished", self.ok("train", "config.toml", "--resume").err)
        result = self.ok("train", "run", "--resume", "--set", "train.epochs=1")
        self.assertAlmostEqual(self.steps(), 2 * once, delta=1)
        self.assertIn("stretched", result.err)
        self.ok("train", "run", "--resume", "--set", f"train.steps={self.steps() + 3}")
        self.assertAlmostEqual(self.steps(), 2 * once + 3, delta=1)

    def test_both_are_an_error(self):
        self.write("config.toml", configuration(epochs=2.0))
        self.refused("train", "config.toml", status=2, says=["train.epochs", "train.steps", "not both"])
        self.ok("train", "config.toml", "--set", "train.steps=3")  # an override replaces either
        self.assertEqual(self.steps(), 3)
        self.refused("train", "config.toml", "--set", "train.steps=3", "--set", "train.epochs=1", status=2,
                     says="not both")

    def test_with_as_many_windows_as_fit(self):
        self.epochs(2, batch="fit", memory_gb=0.15)
        self.ok("train", "config.toml")
        batch = json.loads(read(self.path("run/last/trainer_state.json")))["batch"]
        self.assertAlmostEqual(self.steps(), math.ceil(2 * self.training_tokens() / (batch * 16)), delta=1)
        self.assertIn("is finished", self.ok("train", "run", "--resume").err)

    def test_of_examples_and_pairs(self):
        self.write("rows.tsv", "text\tlabel\n" + "".join(f"{i} word\t{i % 2}\n" for i in range(200)))
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{i} a\t{i} b\n" for i in range(200)))
        model = {"context": 16, "width": 16, "layers": 1, "heads": 2}
        for out, train, keys, its in (("e", "rows.tsv", {"objective": "classify"}, {"architecture": "encoder"}),
                                      ("p", "pairs.tsv", {}, {"architecture": "encoder_decoder"})):
            self.write("c.toml", toml({"data": {"train": train}, "tokenizer": {"vocab_size": 300}, "model": model | its,
                                       "train": {"out": out, "epochs": 1.5, "batch_tokens": 200} | keys}))
            result = self.ok("train", "c.toml")
            a_pass = int(result.err.split(" steps per epoch")[0].split("(")[-1])
            self.assertEqual(self.steps(out), math.ceil(1.5 * a_pass), result)
            self.assertIn(f"({self.steps(out) / a_pass:.2g} epochs)", result.err)

    def test_many_passes_are_told(self):
        result = self.train(steps=2000, model__width=2, model__heads=1, eval_every=2000, out="long", sample_tokens=0,
                            log_every=1000)
        self.assertRegex(result.err.splitlines()[0], r"2000 steps \([0-9]+ epochs: many for a text")

    def test_in_the_plan(self):
        self.epochs(3)
        out = self.ok("plan", "config.toml", "--no-timing").out
        self.assertRegex(out, r"3\.0[01] passes over the text")  # the last step is whole


class Plan(CliTest):
    ENCODER = {"architecture": "encoder", "context": 16, "width": 16, "layers": 1, "heads": 2}

    def test_a_run_that_does_not_fit_fails(self):
        self.write("config.toml", configuration(memory_gb=0.01))
        for more in ([], ["--json"]):
            result = self.qkv("plan", "config.toml", "--no-timing", *more)
            self.assertEqual(result.status, 1, result)
            self.assertIn("does not fit", result.err)
            self.assertIn("memory", result.out)

    def test_other_kinds_of_models(self):
        self.write("rows.tsv", "text\tlabel\n" + "".join(f"{i} word\t{i % 2}\n" for i in range(100)))
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{i} a\t{i} b\n" for i in range(100)))
        for data, model, train in (("rows.tsv", self.ENCODER, {"objective": "classify"}), ("text.txt", self.ENCODER, {}),
                                   ("pairs.tsv", dict(self.ENCODER, architecture="encoder_decoder"), {})):
            with self.subTest(data=data):
                self.write("c.toml", toml({"data": {"train": data}, "tokenizer": {"vocab_size": 300}, "model": model,
                                           "train": {"batch_tokens": 200, "out": "run", "steps": 5} | train}))
                plan = json.loads(self.ok("plan", "c.toml", "--json").out)
                self.assertGreater(plan["seconds_per_step"], 0)
                self.assertGreater(plan["memory_total"], 0)
                self.assertGreater(plan["passes"], 0)
                self.assertIn("5 steps: ", self.ok("plan", "c.toml").out)
        self.assertFalse(os.path.exists(self.path("run")))


class Terminal(CliTest):
    def shown(self, columns, **environment):
        """The lines that a terminal of so many columns shows of a run."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        child = subprocess.Popen(command("train", "config.toml", "--overwrite"), cwd=self.folder, stderr=theirs,
                                 env=ENVIRONMENT | {"TERM": "xterm"} | environment)
        os.close(theirs)
        shown = b""
        while chunk := read_terminal(ours):
            shown += chunk
        os.close(ours)
        self.assertEqual(child.wait(), 0, shown)
        text = shown.decode()
        return [line for line in re.split("\r\n|\r\033\\[K", text) if line], text

    def test_lines_fit_and_keep_the_time_that_is_left(self):
        self.write("config.toml", configuration(steps=60, model__width=64, eval_every=20, sample_tokens=30))
        for columns in (40, 60, 200):
            lines, _ = self.shown(columns, NO_COLOR="1")
            updates = [line for line in lines if re.match("step [0-9]+/", line)]
            self.assertTrue(updates)
            for line in updates:
                self.assertLess(len(line), columns)
                self.assertTrue(line.endswith(" left") or line.startswith("step 1/"), line)
            # At 60 columns there is room for a bar, of which each step fills its share.
            bars = [line.split("[")[1].split("]")[0] for line in updates if "[" in line]
            self.assertEqual(bool(bars), columns > 40, updates)
            self.assertEqual(bars, sorted(bars))
            self.assertEqual({len(bar) for bar in bars}, {7} if bars else set())
            if columns == 40:  # the least important parts are left out
                self.assertNotIn(" lr ", "".join(updates))
            for line in lines:
                if " " in line.strip():
                    self.assertLess(len(line), columns, line)
            said = " ".join(line.strip() for line in lines)
            self.assertRegex(said, r"step 60: validation loss [0-9.]+")

    def test_samples_and_the_best_in_bold(self):
        self.write("config.toml", configuration(sample_tokens=30, sample_prompt="quick"))
        lines, text = self.shown(200)
        self.assertIn("\033[1mthe best so far\033[0m", text)
        self.assertTrue(any(line.startswith("  quick") for line in lines), lines)
        _, plain = self.shown(200, NO_COLOR="1")
        self.assertNotIn("\033[1m", plain)
        self.assertIn("the best so far", plain)
        piped = self.ok("train", "config.toml", "--overwrite")
        self.assertNotIn("\033", piped.err)
        self.assertNotIn("  quick", piped.err)


class Texts(CliTest):
    def test_heads_that_are_too_wide(self):
        self.write("c.toml", configuration(model__width=100000))
        self.refused("train", "c.toml", status=2,
                     says="model.width / model.heads = 100000 / 2 = 50000, but a head is at most 576 wide: use more heads")

    def test_dry_run(self):
        self.write("c.toml", configuration())
        result = self.ok("train", "c.toml", "--dry-run")
        self.assertEqual(result.err.splitlines()[-1], "Configuration is valid; no run was written (tokens are cached in "
                         f"{qkv_cli.CACHE.name}).")
        self.assertIn("1 thread,", result.err)

    def test_the_next_command(self):
        result = self.train()
        self.assertTrue(result.err.splitlines()[-1].endswith('; next: qkv generate run --prompt "..."'), result)
        self.ok("generate", "run", "--prompt", "the", "--tokens", "2")


if __name__ == "__main__":
    main()
