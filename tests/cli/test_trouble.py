#!/usr/bin/env python3
"""Training runs survive kill -9 at any moment, a full disk, files that vanish, a second run.

usage: test_trouble.py QKV [unittest arguments]
QKV_KILLS says how many times a run is killed (default 60).
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

from qkv_cli import CliTest, command, configuration, CUT_SHORT, ENVIRONMENT, main, read, SLOWNESS, snapshot, write

KILLS = int(os.environ.get("QKV_KILLS", "60"))
STEPS = 40


def results(folder):
    """Files that must not depend on how a run came to its end: the checkpoint and the best model."""
    kept = {k: v for k, v in snapshot(folder).items() if k.startswith(("last", "best", "step-"))}
    assert kept, folder
    return kept


class Trouble(CliTest):
    def run_to_end(self, name, *arguments):
        return subprocess.run(command("train", name, *arguments), cwd=self.folder, env=ENVIRONMENT,
                              capture_output=True, timeout=120 * SLOWNESS)

    def step_of(self, folder):
        return json.loads(read(self.path(f"{folder}/last/trainer_state.json")))["step"]

    def test_kill_at_any_moment(self):
        """Killed at random moments, again and again, a run ends with the same bits, and loses at most the steps since
        its last checkpoint."""
        # A checkpoint every step: most of the time is spent where a kill could hurt.
        keys = dict(steps=STEPS, checkpoint_every=1, keep=2, eval_every=2, ema=0.9, layer_drop=0.1, sample_tokens=0)
        self.write("whole.toml", configuration(out="whole", **keys))
        start = time.time()
        self.assertEqual(self.run_to_end("whole.toml").returncode, 0)
        duration = time.time() - start
        want = results(self.path("whole"))
        chooser = random.Random(1)
        kills = rounds = 0
        while kills < KILLS:
            rounds += 1
            out = f"parts{rounds}"
            self.write("parts.toml", configuration(out=out, **keys))
            reached = 0
            while True:
                mode = "--resume" if os.path.exists(self.path(f"{out}/last")) else "--overwrite"
                run = subprocess.Popen(command("train", "parts.toml", mode), cwd=self.folder, env=CUT_SHORT,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                try:
                    _, err = run.communicate(timeout=chooser.uniform(0, duration / 2))
                    self.assertEqual(run.returncode, 0, err.decode())
                    break
                except subprocess.TimeoutExpired:
                    run.send_signal(signal.SIGKILL)
                    run.communicate()
                    kills += run.returncode == -signal.SIGKILL
                if os.path.exists(self.path(f"{out}/last")):
                    step = self.step_of(out)
                    self.assertGreaterEqual(step, reached, "a checkpoint was lost")
                    reached = step
            self.assertEqual(results(self.path(out)), want)
        print(f"killed {kills} times in {rounds} runs: every run ended with the same bits", file=sys.stderr)

    def test_kill_after_the_last_checkpoint(self):
        """The surplus checkpoint, a half removed one and the missing report: a resumed run puts all that in order."""
        self.write("a.toml", configuration(out="run", steps=4, checkpoint_every=1, keep=2))
        self.assertEqual(self.run_to_end("a.toml").returncode, 0)
        want = results(self.path("run"))
        shutil.copytree(self.path("run/step-3"), self.path("run/step-2"))
        os.mkdir(self.path("run/step-1.tmp"))
        os.remove(self.path("run/report.html"))
        self.assertEqual(self.run_to_end("a.toml", "--resume").returncode, 0)
        self.assertEqual(results(self.path("run")), want)
        self.assertEqual(sorted(f for f in os.listdir(self.path("run")) if f.startswith("step-")), ["step-3"])
        self.assertTrue(os.path.exists(self.path("run/report.html")))

    def test_full_disk(self):
        """A checkpoint that cannot be written whole leaves the one before it."""
        keys = dict(checkpoint_every=5, eval_every=1000, sample_tokens=0)
        self.write("a.toml", configuration(out="run", steps=20, **keys))
        self.write("whole.toml", configuration(out="whole", steps=20, **keys))
        stopped = subprocess.Popen(command("train", "a.toml"), cwd=self.folder, env=ENVIRONMENT,
                                   stderr=subprocess.PIPE)
        while not os.path.exists(self.path("run/last/trainer_state.json")) and stopped.poll() is None:
            time.sleep(0.001)
        stopped.send_signal(signal.SIGTERM)
        stopped.communicate()
        before = results(self.path("run"))
        if self.step_of("run") == 20:
            self.skipTest("the run was over too soon")

        def small_files():  # as on a full disk, writing fails after so many bytes
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

        failed = subprocess.run(command("train", "a.toml", "--resume"), cwd=self.folder, env=CUT_SHORT,
                                capture_output=True, preexec_fn=small_files, restore_signals=False,
                                timeout=60 * SLOWNESS)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        last_line = failed.stderr.decode().strip().splitlines()[-1]
        self.assertIn("run/", last_line)
        self.assertEqual(results(self.path("run")), before)
        self.assertEqual(self.run_to_end("a.toml", "--resume").returncode, 0)
        self.assertEqual(self.run_to_end("whole.toml").returncode, 0)
        self.assertEqual(results(self.path("run")), results(self.path("whole")))

    def test_vanished_or_changed_text(self):
        self.write("a.toml", configuration(out="run", steps=10, checkpoint_every=2))
        self.assertEqual(self.run_to_end("a.toml").returncode, 0)
        before = results(self.path("run"))
        self.write("b.toml", configuration(out="run", steps=10, checkpoint_every=2))
        os.rename(self.path("text.txt"), self.path("away.txt"))
        gone = self.run_to_end("b.toml", "--resume")
        self.assertEqual(gone.returncode, 1)
        self.assertIn(b"text.txt", gone.stderr)
        contents = read(self.path("away.txt"))
        self.write("text.txt", contents.replace(b"quick", b"quiet", 1))  # as long as before
        changed = self.run_to_end("b.toml", "--resume")
        self.assertEqual(changed.returncode, 1)
        self.assertIn(b"training tokens", changed.stderr)
        self.assertEqual(results(self.path("run")), before)
        self.write("text.txt", contents)
        self.assertEqual(self.run_to_end("b.toml", "--resume").returncode, 0)

    def test_a_second_run_in_the_same_folder(self):
        self.write("a.toml", configuration(out="run", steps=100000, checkpoint_every=5))
        first = subprocess.Popen(command("train", "a.toml"), cwd=self.folder, env=ENVIRONMENT,
                                 stderr=subprocess.PIPE)
        while not os.path.exists(self.path("run/last/trainer_state.json")) and first.poll() is None:
            time.sleep(0.01)
        for mode in ("--resume", "--overwrite"):
            second = self.run_to_end("a.toml", mode)
            self.assertEqual(second.returncode, 1)
            self.assertIn(b"another run", second.stderr)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=60 * SLOWNESS)
        self.assertEqual(first.returncode, 0, err)
        self.assertIn(b"--resume", err)

    def test_an_older_checkpoint_is_refused_by_name(self):
        self.write("a.toml", configuration(out="run", steps=4, checkpoint_every=2))
        self.assertEqual(self.run_to_end("a.toml").returncode, 0)
        path = self.path("run/last/trainer_state.json")
        state = read(path).decode()
        for version in ("1", "99"):
            write(path, state.replace('"version": 2', f'"version": {version}'))
            refused = self.run_to_end("a.toml", "--resume")
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"version {version}".encode(), refused.stderr)
            self.assertIn(b"trainer_state.json", refused.stderr)


if __name__ == "__main__":
    main()
