#!/usr/bin/env python3
"""qkv train --resume.

usage: test_resume.py QKV [unittest arguments]
"""
import json
import os
import shutil
import signal
import subprocess
import time

from qkv_cli import CliTest, command, configuration, CUT_SHORT, main, read, safetensors_bytes, SLOWNESS, \
    snapshot


# A run of some seconds: long enough to be stopped in the middle, with everything in it that a resumed run has
# to restore (dropout, accumulation, schedule, a best model).
SLOW = dict(steps=300, batch=8, accumulate=2, eval_every=110, checkpoint_every=90, eval_windows=4, model__context=32,
            model__width=64, model__layers=2, model__dropout=0.1)


class EarlierVersions(CliTest):
    """Runs that version 0.1.0 began, kept as it left them after step 10 of 20, and what it wrote of all 20.

    latents is of before mixers had names: a model of latent attention, of whose layers one kind has attention itself."""

    RUNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "runs")

    def test_runs_go_on(self):
        for name in "decoder", "classes", "latents":
            with self.subTest(run=name):
                shutil.copytree(os.path.join(self.RUNS, name), self.path(name))
                for data in "text.txt", "rows.tsv":
                    shutil.copy(os.path.join(self.RUNS, data), self.folder)
                self.ok("train", name, "--resume")
                now, then = (self.records(file) for file in (f"{name}/metrics.jsonl", f"{name}/expected.jsonl"))
                self.assertEqual(now.keys(), then.keys())
                for key, value in then.items():
                    self.assertAlmostEqual(now[key], value, delta=1e-5, msg=key)
                self.assertGreater(sum(step > 10 for step, _ in then), 10)

    def records(self, file):
        """(step, "loss" or "valid_loss") -> its value."""
        found = {}
        for line in read(self.path(file)).splitlines():
            record = json.loads(line)
            found.update({(record["step"], key): record[key] for key in ("loss", "valid_loss") if key in record})
        return found


class Resume(CliTest):
    FILES = ["last/model.safetensors", "last/optimizer.safetensors", "last/config.json", "last/tokenizer.json",
             "last/trainer_state.json", "best/model.safetensors"]

    def start(self, *arguments):
        """A run in the background; returns when its first step is done."""
        process = subprocess.Popen(command("train", "config.toml", *arguments), cwd=self.folder,
                                   env=CUT_SHORT, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        for line in process.stderr:
            if line.startswith("step "):
                return process
        self.fail(f"the run ended with {process.wait()} before its first step")

    def step(self):
        return json.loads(read(self.path("run/last/trainer_state.json")))["step"]

    def reference(self, **train):
        self.write("reference.toml", configuration(out="reference", **train))
        self.ok("train", "reference.toml")

    def assert_same_run(self):
        for name in self.FILES:
            self.assertEqual(read(self.path("run", name)) == read(self.path("reference", name)), True,
                             f"{name} differs from the run that was never stopped")
        self.assertEqual(self.losses("run"), self.losses("reference"))
        self.assert_no_leftovers()

    def losses(self, run):
        lines = [json.loads(line) for line in read(self.path(run, "metrics.jsonl")).splitlines()]
        return [(line["step"], line.get("loss"), line.get("valid_loss")) for line in lines]

    def test_resume_is_bit_for_bit(self):
        """Ctrl-C and SIGTERM, each followed by --resume, against a run that was never stopped."""
        self.write("config.toml", configuration(**SLOW))
        stopped_at = []
        for number, arguments in ((signal.SIGINT, []), (signal.SIGTERM, ["--resume"])):
            process = self.start(*arguments)
            process.send_signal(number)
            rest = process.stderr.read()
            self.assertEqual(process.wait(timeout=60 * SLOWNESS), 0, rest)
            self.assertIn("--resume", rest.splitlines()[-1])
            stopped_at.append(self.step())
        self.assertTrue(0 < stopped_at[0] < stopped_at[1] < SLOW["steps"], stopped_at)
        self.ok("train", "config.toml", "--resume")
        self.reference(**SLOW)
        self.assert_same_run()

    def test_kill_leaves_a_loadable_checkpoint(self):
        """kill -9 at moments of no choice while every step saves; the run that goes on equals an undisturbed one."""
        settings = dict(SLOW, steps=30, checkpoint_every=1, eval_every=7)
        self.write("config.toml", configuration(**settings))
        arguments = []
        for attempt in range(3):
            process = self.start(*arguments)
            while not os.path.exists(self.path("run/last/trainer_state.json")):
                time.sleep(0.001)
            time.sleep(0.013 * attempt)
            process.kill()
            process.wait(timeout=60 * SLOWNESS)
            self.assertGreater(self.step(), 0)
            self.ok("eval", "run/last", "--data", "text.txt")
            arguments = ["--resume"]
        self.ok("train", "config.toml", "--resume")
        self.reference(**settings)
        self.assert_same_run()

    def test_resume_of_a_finished_run(self):
        self.train()
        before = read(self.path("run/last/model.safetensors"))
        self.ok("train", "config.toml", "--resume")
        self.assertEqual(read(self.path("run/last/model.safetensors")), before)
        self.assert_no_leftovers()

    def test_damaged_checkpoints_are_refused(self):
        self.train()
        intact = self.path("intact")
        shutil.copytree(self.path("run"), intact)
        state = json.loads(read(self.path("run/last/trainer_state.json")))

        def damage(name, contents, says):
            with self.subTest(name=name, says=says):
                shutil.rmtree(self.path("run"))
                shutil.copytree(intact, self.path("run"))
                if contents is None:
                    os.remove(self.path("run/last", name))
                else:
                    self.write("run/last/" + name, contents)
                before = snapshot(self.path("run"))
                self.refused("train", "config.toml", "--resume", status=1, says=[name, *says])
                self.assertEqual(snapshot(self.path("run")), before)

        damage("trainer_state.json", "{", ["JSON"])
        damage("trainer_state.json", json.dumps(dict(state, step="20")), ["step"])
        damage("trainer_state.json", json.dumps(dict(state, version=99)), ["version"])
        damage("trainer_state.json", json.dumps(dict(state, step=-1)), ["step"])
        damage("optimizer.safetensors", None, [])
        damage("optimizer.safetensors", read(self.path("intact/last/optimizer.safetensors"))[:-100], [])
        damage("optimizer.safetensors", safetensors_bytes({"a": ("F32", [1], [0])}), [])
        damage("model.safetensors", None, [])
        damage("model.safetensors", read(self.path("intact/last/model.safetensors"))[:-100], [])
        damage("tokenizer.json", "{}", [])


if __name__ == "__main__":
    main()
