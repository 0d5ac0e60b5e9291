#!/usr/bin/env python3
"""qkv train: what a run leaves behind, when it is refused.

usage: test_train.py QKV [unittest arguments]
"""
# Covers: qkv/base/progress.cc
# Covers: qkv/train/run/recorder.cc, qkv/train/run/run_text.cc
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

from qkv_cli import (CliTest, command, configuration, ENVIRONMENT, FinishedRun, load_safetensors, main, make_text, read,
                     read_terminal, run_qkv, snapshot)


class Training(FinishedRun):
    def test_files(self):
        checkpoint = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
        self.assertEqual(set(os.listdir(os.path.join(self.run_dir, "best"))), checkpoint)
        self.assertEqual(set(os.listdir(os.path.join(self.run_dir, "last"))),
                         checkpoint | {"optimizer.safetensors", "trainer_state.json"})
        self.assertEqual(json.loads(read(os.path.join(self.run_dir, "last/trainer_state.json")))["step"], 20)
        self.assertEqual([p for p in self.before if p.endswith(".tmp")], [])

    def test_metrics(self):
        lines = [json.loads(line) for line in read(os.path.join(self.run_dir, "metrics.jsonl")).splitlines()]
        training = [line for line in lines if "loss" in line]
        self.assertEqual([line["step"] for line in training], list(range(1, 21)))
        for line in training:
            for key in ("loss", "smoothed_loss", "lr", "grad_norm", "tokens_per_second", "seconds"):
                self.assertIsInstance(line[key], (int, float), line)
        self.assertLess(training[-1]["loss"], training[0]["loss"])
        self.assertEqual([line["step"] for line in lines if "valid_loss" in line], [10, 20])

    def test_messages(self):
        self.assertEqual(self.trained.out, "", self.trained)
        last = self.trained.err.splitlines()[-1]
        self.assertIn("run/best", last)

    def test_progress_fits_the_terminal(self):
        self.write("config.toml", configuration(steps=200, eval_every=1000))
        for columns in (30, 500):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            child = subprocess.Popen(command("train", "config.toml", "--overwrite"), cwd=self.folder,
                                     stderr=theirs, env=ENVIRONMENT)
            os.close(theirs)
            shown = b""
            while chunk := read_terminal(ours):
                shown += chunk
            os.close(ours)
            self.assertEqual(child.wait(), 0, shown)
            updates = re.findall("\r\033\\[K(step [0-9]+/[^\r\n]*)", shown.decode())
            self.assertTrue(updates, shown)
            if columns == 30:
                self.assertLess(max(map(len, updates)), columns)
            else:
                self.assertTrue(all(line.endswith("left") for line in updates[1:]), updates)

    def test_a_run_is_not_overwritten_by_accident(self):
        before = snapshot(self.run_dir)
        result = run_qkv("train", "config.toml", cwd=self.shared)
        self.assertEqual(result.status, 1, result)
        self.assertIn("--resume", result.err)
        self.assertIn("--overwrite", result.err)
        self.assertEqual(snapshot(self.run_dir), before)

    def test_resume_needs_a_checkpoint(self):
        self.write("config.toml", configuration())
        self.refused("train", "config.toml", "--resume", status=1, says=["run/last", "checkpoint"])
        self.assertFalse(os.path.exists(self.path("run")))

    def test_resume_refuses_another_configuration(self):
        before = snapshot(self.run_dir)
        for change in ("train.learning_rate=0.5", "model.width=32", "train.seed=2"):
            with self.subTest(change=change):
                result = run_qkv("train", "config.toml", "--resume", "--set", change, cwd=self.shared)
                self.assertEqual(result.status, 1, result)
                self.assertEqual(len(result.err.splitlines()), 1, result)
                self.assertIn(change.split("=")[0], result.err, result)
        self.assertEqual(snapshot(self.run_dir), before)

    def test_overwrite_replaces(self):
        self.train()
        self.train("--overwrite", seed=7)
        self.assertNotEqual(read(self.path("run/last/model.safetensors")),
                            self.before["last/model.safetensors"])
        self.train("--overwrite")
        self.assertEqual(read(self.path("run/last/model.safetensors")), self.before["last/model.safetensors"])
        self.assert_no_leftovers()


class Accumulation(CliTest):
    def test_two_halves_equal_one_batch(self):
        common = dict(steps=10, model__dropout=0.0, model__width=32)
        self.train(name="one.toml", out="one", batch=8, accumulate=1, **common)
        self.train(name="two.toml", out="two", batch=4, accumulate=2, **common)
        one, two = (load_safetensors(self.path(run, "last/model.safetensors")) for run in ("one", "two"))
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            # Adam divides by the gradient's size: where that is rounding alone, rounding moves the parameter by
            # up to the learning rate, here 1e-3 a step. Such elements are few.
            differences = sorted(abs(a - b) for a, b in zip(one[name][1], two[name][1]))
            self.assertLess(differences[int(0.98 * (len(differences) - 1))], 1e-5, name)
            self.assertLess(differences[-1], 2e-3, name)
        losses = [[json.loads(line)["loss"] for line in read(self.path(run, "metrics.jsonl")).splitlines()
                   if b'"loss"' in line] for run in ("one", "two")]
        self.assertEqual(len(losses[0]), 10)
        for a, b in zip(*losses):
            self.assertAlmostEqual(a, b, delta=1e-5)


class BadTraining(CliTest):
    def setUp(self):
        super().setUp()
        # A run that every failing command is pointed at with --overwrite: it must survive.
        self.train()
        self.before = snapshot(self.path("run"))

    def refuse(self, status=1, says=(), config=None, sets=(), **train):
        self.write("bad.toml", configuration(**train) if config is None else config)
        arguments = ["train", "bad.toml"]
        for s in sets:
            arguments += ["--set", s]
        self.refused(*arguments, "--overwrite", status=status, says=says)
        self.assertEqual(snapshot(self.path("run")), self.before, "the run that was there has changed")
        # The same without a run: nothing is left.
        self.refused(*arguments, "--set", "train.out=new", status=status, says=says)
        self.assertFalse(os.path.exists(self.path("new")), "a run that could not start left something")
        self.assert_no_leftovers()

    def test_windows_longer_than_the_context(self):
        self.write("config.toml", configuration())
        self.refused("train", "config.toml", "--set", "train.window=4096", status=2, says=["train.window", "4096", "model.context"])
        self.write("config.toml", configuration().replace("batch = 4\n", ""))
        self.refused("train", "config.toml", "--set", "train.objective=sequence_to_sequence", "--set", "train.window=8",
                     status=2, says=["train.window", "next_token"])

    def test_texts(self):
        self.write("empty.txt", "")
        self.write("short.txt", "too short")
        self.write("latin1.txt", b"the caf\xe9 " * 50)
        self.refuse(says="missing.txt", data__train="missing.txt")
        self.refuse(says=["is a directory"], data__train=self.folder)
        self.refuse(says=["empty.txt", "empty"], data__train="empty.txt")
        self.refuse(says=["short.txt", "short", "16"], data__train="short.txt")
        self.refuse(says="missing.txt", data__valid=["missing.txt"])
        self.refuse(says=["latin1.txt", "UTF-8"], data__train="latin1.txt")
        self.refuse(says=["latin1.txt", "UTF-8"], data__valid=["latin1.txt"])
        self.refuse(says=["latin1.txt", "UTF-8"], data__train="latin1.txt", tokenizer__type="word")

    def test_tokenizers_of_bytes_take_any_bytes(self):
        self.write("latin1.txt", b"the caf\xe9 \xff" * 50)
        self.train(out="bytes", steps=2, data__train="latin1.txt", tokenizer__type="byte")
        # Merges of them would be learnt from noise.
        self.refuse(says=["latin1.txt:1", "UTF-8", "iconv"], data__train="latin1.txt", tokenizer__type="bpe")

    def test_configuration_files(self):
        self.refused("train", "missing.toml", says="missing.toml")
        self.refuse(2, ["bad.toml:1"], config="[train\n")
        self.refuse(2, ["bad.toml:2"], config="[train]\nsteps = = 3\n")
        self.refuse(2, ["bad.toml:2"], config="[train]\nsteps = 3 4\n")
        self.refuse(2, ["bad.toml", "data.train"], config="")
        self.refuse(2, ["bad.toml", "trian"], config=configuration() + "[trian]\nsteps = 3\n")
        self.refuse(2, ["bad.toml:2", "utf-8"], config=b"[train]\nout = \"\xff\"\n")

    def test_keys(self):
        self.refuse(2, ["bad.toml:", "train.stepz", "steps"], stepz=3)
        self.refuse(2, ["bad.toml:", "model.widht", "width"], model__widht=3)
        self.refuse(2, ["--set", "train.stepz"], sets=["train.stepz=3"])
        self.refuse(2, ["--set", "stepz"], sets=["stepz=3"])
        self.refuse(2, ["--set", "train.steps"], sets=["train.steps=many"])

    def test_mistyped_values(self):
        self.refuse(2, ["bad.toml:", "train.steps", "integer"], steps="20")
        self.refuse(2, ["bad.toml:", "train.steps", "integer"], steps=2.5)
        self.refuse(2, ["bad.toml:", "train.learning_rate", "number"], learning_rate="fast")
        self.refuse(2, ["bad.toml:", "train.recompute", "true or false"], recompute=1)
        self.refuse(2, ["bad.toml:", "model.activation", "string"], model__activation=3)
        self.refuse(2, ["bad.toml:", "data.train", "string"], data__train=3)
        self.refuse(2, ["bad.toml:", "tokenizer.type", "bpe"], tokenizer__type="sentencepiece")
        self.refuse(2, ["bad.toml:", "train.optimizer", "adamw"], optimizer="adamax")

    def test_impossible_values(self):
        self.refuse(2, ["bad.toml:", "model.context"], model__context=0)
        self.refuse(2, ["bad.toml:", "model.layers"], model__layers=-1)
        self.refuse(2, ["bad.toml", "16 is not divisible", "3 heads"], model__heads=3)
        self.refuse(2, ["bad.toml", "kv_heads"], model__heads=4, model__kv_heads=3)
        self.refuse(2, ["bad.toml", "width"], model__width=1 << 40)
        self.refuse(2, ["bad.toml:", "model.dropout"], model__dropout=1.0)
        self.refuse(2, ["bad.toml:", "train.batch"], batch=0)
        self.refuse(2, ["bad.toml:", "train.learning_rate"], learning_rate=-1.0)
        self.refuse(2, ["bad.toml:", "data.valid_fraction"], data__valid_fraction=1.5)
        self.refuse(1, ["text.txt", "short", "100000"], model__context=100000)

    def test_unwritable_output(self):
        """Below a regular file, where not even root can write."""
        for out in ("text.txt/run", "text.txt"):
            self.write("bad.toml", configuration(out=out))
            self.refused("train", "bad.toml", status=1, says=out)
        self.assertEqual(read(self.path("text.txt")).decode(), make_text())
        self.assert_no_leftovers()

    def test_not_finite(self):
        """Learning that diverges stops, says at which step, and keeps the last checkpoint."""
        self.write("diverge.toml", configuration(out="diverge", optimizer="sgd", learning_rate=1e6, clip=0.0,
                                                 warmup_steps=0, checkpoint_every=1))
        result = self.refused("train", "diverge.toml", status=1, allow_progress=True,
                              says=["step ", "diverge/last"])
        self.assertRegex(result.err, "not finite|norm overflows")  # which comes first, roundings decide
        step = int(result.err.splitlines()[-1].split("step ")[1].split(":")[0])
        state = json.loads(read(self.path("diverge/last/trainer_state.json")))
        self.assertEqual(state["step"], step - 1)
        for name, (_, values) in load_safetensors(self.path("diverge/last/model.safetensors")).items():
            self.assertTrue(all(v - v == 0 for v in values), f"{name} in the kept checkpoint is not finite")
        self.ok("inspect", "diverge/last")
        self.assert_no_leftovers()


if __name__ == "__main__":
    main()
