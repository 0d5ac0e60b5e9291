#!/usr/bin/env python3
"""qkv train under mpirun: the same bits on any number of ranks, and clean ends when one of them fails.

usage: test_ranks.py QKV [unittest arguments]
QKV_RANK_KILLS says how many times a rank is killed (default 6).
"""
# Covers: qkv/base/mpi_communicator.cc
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from qkv_cli import CliTest, command, configuration, CUT_SHORT, ENVIRONMENT, main, read, SLOWNESS, snapshot

KILLS = int(os.environ.get("QKV_RANK_KILLS", "6"))
# As root in a container; on fewer processors than ranks, which then must not spin.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_base_warn_component_unused": "0"}
GPT = dict(steps=40, batch=16, shards=8, eval_every=10, checkpoint_every=10, sample_tokens=0, model__dropout=0.1)


def results(folder):
    kept = {k: v for k, v in snapshot(folder).items() if k.startswith(("last", "best"))}
    assert kept, folder
    return kept


def own_lines(err):
    """The lines of the ranks, without those that mpirun prints about the job."""
    return [line for line in err.splitlines() if line.startswith("qkv: ")]


@unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
class Ranks(CliTest):
    def launch(self, ranks, *arguments, environment=ENVIRONMENT, **options):
        return self.start(["-n", str(ranks), *command("train", *arguments)], environment, **options)

    def start(self, arguments, environment=ENVIRONMENT, **options):
        process = subprocess.Popen(["mpirun", *arguments], cwd=self.folder, env=environment | MPI,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def end(self, process, status=0):
        _, err = process.communicate(timeout=300 * SLOWNESS)
        if status == 0:
            self.assertEqual(process.returncode, 0, err)
        else:
            self.assertNotEqual(process.returncode, 0, err)
        return err

    def run_on(self, ranks, *arguments):
        return self.end(self.launch(ranks, *arguments))

    def step(self, folder):
        try:
            return json.loads(read(self.path(folder, "last", "trainer_state.json")))["step"]
        except FileNotFoundError:
            return 0

    def wait_for_step(self, process, folder, step):
        end = time.time() + 120 * SLOWNESS
        while self.step(folder) < step and process.poll() is None and time.time() < end:
            time.sleep(0.005)

    def ranks_of(self, process):
        """The processes of a job, by rank."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    own = dict(e.split(b"=", 1) for e in f.read().split(b"\0") if b"=" in e)
                with open(f"/proc/{pid}/stat") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if parent == process.pid and b"OMPI_COMM_WORLD_RANK" in own:
                found[int(own[b"OMPI_COMM_WORLD_RANK"])] = int(pid)
        return found

    def assert_same_on_ranks(self, name):
        self.ok("train", name, "--overwrite")
        want = results(self.path("run"))
        for ranks in 1, 2, 3, 4:
            err = self.run_on(ranks, name, "--overwrite")
            self.assertEqual(results(self.path("run")) == want, True, f"{ranks} ranks give other bits\n{err}")
            self.assertEqual(err.count("done: "), 1, err)
            self.assertIn(f"{ranks} ranks of 1 thread" if ranks > 1 else "1 thread", err)

    # ---- The same bits on 1, 2, 3 and 4 ranks and without mpirun, after 200 steps with dropout

    def test_a_decoder(self):
        self.write("a.toml", configuration(**GPT | dict(steps=200, eval_every=100, checkpoint_every=100)))
        self.assert_same_on_ranks("a.toml")

    def test_a_mixture_of_experts(self):
        self.write("a.toml", configuration(**GPT | dict(steps=200, eval_every=100, checkpoint_every=100, model__experts=4,
                                                        model__expert_choice_bias=True)))
        self.assert_same_on_ranks("a.toml")

    def test_an_encoder_decoder(self):
        words = read(self.path("text.txt")).decode().split()
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{w} {v}\t{v} {w}\n" for w, v in zip(words, words[1:])))
        keys = dict(steps=200, batch_tokens=256, shards=8, eval_every=100, checkpoint_every=100, sample_tokens=0)
        text = configuration(data__train="pairs.tsv", model__architecture="encoder_decoder", model__dropout=0.1, **keys)
        self.write("a.toml", text.replace("batch = 4\n", ""))
        self.assert_same_on_ranks("a.toml")

    def test_a_classifier(self):
        words = read(self.path("text.txt")).decode().split()
        self.write("rows.tsv", "text\tlabel\n" + "".join(f"{w} {v}\t{'the' in (w, v)}\n" for w, v in zip(words, words[1:])))
        keys = dict(steps=200, batch_tokens=256, shards=8, eval_every=100, checkpoint_every=100, sample_tokens=0)
        text = configuration(data__train="rows.tsv", data__test_fraction=0.1, objective="classify",
                             model__architecture="encoder", model__dropout=0.1, **keys)
        self.write("a.toml", text.replace("batch = 4\n", ""))
        self.assert_same_on_ranks("a.toml")

    def test_an_adapter(self):
        self.train(out="base", name="base.toml")
        text = configuration(**GPT | dict(steps=200, eval_every=100, checkpoint_every=100))
        self.write("a.toml", text[:text.index("[tokenizer]")] + "[model]\nfrom = \"base\"\nlora_rank = 2\nlora_dropout = 0.1\n"
                   + text[text.index("[train]"):])
        self.assert_same_on_ranks("a.toml")

    def test_a_divided_optimizer(self):
        """ZeRO-1 has the bits of a run without it, and goes on as one."""
        keys = GPT | dict(model__width=96, model__layers=2, precision="bf16", ema=0.9)
        self.reference(**keys)
        self.write("a.toml", configuration(zero=True, **keys))
        for ranks in 2, 3:
            self.run_on(ranks, "a.toml", "--overwrite")
            self.assert_same_as_reference()
        plan = {zero: json.loads(self.ok("plan", "a.toml", "--ranks", "4", "--json", "--no-timing", "--set",
                                         f"train.zero={zero}").out)["memory"] for zero in ("true", "false")}
        for part in "optimizer", "weights", "average":
            self.assertEqual(plan["true"][part], plan["false"][part] // 4, part)
        self.refused("plan", "a.toml", "--ranks", "9", says=("--ranks", "train.shards of at least 9"))

    # ---- Faults

    def reference(self, **more):
        self.write("a.toml", configuration(**GPT | more))
        self.write("reference.toml", configuration(out="reference", **GPT | more))
        self.ok("train", "reference.toml")

    def assert_same_as_reference(self):
        self.assertEqual(results(self.path("run")) == results(self.path("reference")), True)
        self.assert_no_leftovers()

    def test_a_killed_rank(self):
        """The job ends and names the rank; what is left goes on, on another number of ranks, with the same bits."""
        keys = dict(steps=60, checkpoint_every=2, eval_every=4)
        self.reference(**keys)
        chooser = random.Random(1)
        kills = 0
        while kills < KILLS:
            shutil.rmtree(self.path("run"), ignore_errors=True)
            for attempt in range(100):
                ranks = chooser.choice((2, 3, 4))
                process = self.launch(ranks, "a.toml", *(["--resume"] if self.step("run") else ["--overwrite"]),
                                      environment=CUT_SHORT)
                if attempt < 2:
                    self.wait_for_step(process, "run", self.step("run") + 2)
                    time.sleep(chooser.uniform(0, 0.1))
                    victim = chooser.randrange(ranks)
                    pid = self.ranks_of(process).get(victim)
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)
                _, err = process.communicate(timeout=120 * SLOWNESS)
                if process.returncode == 0:
                    break
                self.assertIn(f"process rank {victim} ", err)
                kills += 1
            self.assert_same_as_reference()

    def test_a_rank_that_hangs(self):
        self.reference(steps=2000, checkpoint_every=20, eval_every=2000)
        for victim in 0, 1:  # the others wait for it, and for each other
            shutil.rmtree(self.path("run"), ignore_errors=True)
            process = self.launch(4, "a.toml", "--rank-timeout", str(2 * SLOWNESS), environment=CUT_SHORT)
            self.wait_for_step(process, "run", 20)
            os.kill(self.ranks_of(process)[victim], signal.SIGSTOP)
            err = self.end(process, status=1)
            lines = own_lines(err)
            self.assertEqual(len(lines), 1, err)
            self.assertIn(f"rank {victim} of 4 has not answered", lines[0])
            reached = self.step("run")
            self.assertGreaterEqual(reached, 20)
        stopped = self.launch(2, "a.toml", "--resume")
        self.wait_for_step(stopped, "run", reached + 20)
        stopped.send_signal(signal.SIGUSR1)  # mpirun passes it on: the run saves and ends
        self.assertIn("--resume", self.end(stopped))
        self.run_on(4, "a.toml", "--resume")
        self.assert_same_as_reference()

    def test_a_full_disk(self):
        """Rank 0 cannot write its checkpoint: all ranks end, and the one before is left as it was."""
        keys = dict(steps=1000, checkpoint_every=10, eval_every=1000, log_every=1000)
        self.reference(**keys)
        process = self.launch(2, "a.toml")
        self.wait_for_step(process, "run", 10)
        process.send_signal(signal.SIGUSR1)
        self.end(process)
        self.assertLess(self.step("run"), 1000)
        before = results(self.path("run"))
        for kilobytes, zero, file in (12, "false", "model"), (24, "true", "optimizer"):
            small = ["bash", "-c", f"trap '' XFSZ; ulimit -f {kilobytes}; exec \"$@\"", "small"]
            tool = command("train", "a.toml", "--resume", "--set", f"train.zero={zero}")
            err = self.end(self.start(["-n", "1", *small, *tool, ":", "-n", "2", *tool], environment=CUT_SHORT), status=1)
            self.assertEqual(len(own_lines(err)), 1, err)
            self.assertIn("rank 0 of 3: run/last", own_lines(err)[0])
            self.assertIn(f"{file}.safetensors: cannot be written: File too large", own_lines(err)[0])
            self.assertEqual(results(self.path("run")), before)
        self.run_on(3, "a.toml", "--resume")
        self.assert_same_as_reference()

    def refused_on(self, arguments, *says):
        err = self.end(self.start(arguments), status=1)
        lines = own_lines(err)
        self.assertEqual(len(lines), 1, err)
        for part in says:
            self.assertIn(part, lines[0])

    def test_ranks_that_differ(self):
        self.write("a.toml", configuration(**GPT))
        self.write("b.toml", configuration(**GPT | dict(learning_rate=0.5)))
        a, b = command("train", "a.toml"), command("train", "b.toml")
        self.refused_on(["-n", "2", *a, ":", "-n", "1", *b], "rank 2 of 3", "train.learning_rate = 0.5", "rank 0")
        self.refused_on(["-n", "1", *a, ":", "-n", "1", *command("train", "a.toml", threads=2)], "rank 1 of 2",
                        "threads = 2")
        os.mkdir(self.path("other"))
        for name in "a.toml", "text.txt":
            shutil.copy(self.path(name), self.path("other"))
        text = read(self.path("text.txt")).decode()
        self.write("other/text.txt", text.replace("quick", "quiet", 1))
        self.refused_on(["-n", "1", *a, ":", "-n", "1", "-wdir", self.path("other"), *a], "rank 1 of 2", "training tokens")
        self.refused_on(["-n", "1", *a, ":", "-n", "1", "-x", "QKV_MAX_ISA=generic", *a], "rank 1 of 2",
                        "instruction set")
        self.assertFalse(os.path.exists(self.path("run")))
        # On disks of their own, with the same text, they agree.
        self.write("other/text.txt", text)
        self.end(self.start(["-n", "1", *a, ":", "-n", "1", "-wdir", self.path("other"), *a]))
        self.assertTrue(os.path.exists(self.path("run/best")))
        self.assertFalse(os.path.exists(self.path("other/run")))

    def test_mistakes_are_said_once(self):
        self.write("a.toml", configuration(**GPT | dict(shards=2)))
        self.refused_on(["-n", "3", *command("train", "a.toml")], "train.shards = 2", "3 ranks", "at least 3")
        self.write("b.toml", configuration(**GPT | dict(nosuch=2)))
        self.refused_on(["-n", "3", *command("train", "b.toml")], "b.toml", "nosuch")
        self.refused_on(["-n", "2", *command("train", "none.toml")], "none.toml")
        self.write("c.toml", configuration(**GPT | dict(data__train="away.txt")))
        self.refused_on(["-n", "2", *command("train", "c.toml")], "away.txt")
        self.refused_on(["-n", "2", *command("train", "text.txt")], "text.txt", "configuration", "qkv init")
        self.write("d.toml", configuration(**GPT | dict(batch="fit")))
        self.refused_on(["-n", "2", *command("train", "d.toml")], "fit", "qkv plan")

    def test_a_rehearsal(self):
        self.write("a.toml", configuration(**GPT))
        err = self.run_on(2, "a.toml", "--dry-run")
        self.assertEqual(err.count("Configuration is valid"), 1, err)
        self.assertFalse(os.path.exists(self.path("run")))


main()
