#!/usr/bin/env python3
"""Drives the command-line tool as a user does.

usage: cli_test.py QKV [unittest arguments, e.g. Training.test_resume_is_bit_for_bit]

Plain python3. Every test works in a folder of its own; everything runs on one thread so that runs can be compared
bit for bit.
"""
import array
import fcntl
import json
import math
import os
import pty
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

QKV = ""
WORDS = "the quick brown fox jumps over a lazy dog and then it sleeps".split()
CACHE = tempfile.TemporaryDirectory(prefix="qkv_cli_cache_")  # tokenized texts, not among the user's own
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"QKV_CACHE_DIR": CACHE.name}


def make_text(words=1200, seed=1):
    chooser = random.Random(seed)
    return "".join(chooser.choice(WORDS) + (" " if i % 8 else "\n") for i in range(words))


class Result:
    def __init__(self, command, status, out, err):
        self.command, self.status, self.raw_out = command, status, out
        self.out, self.err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def __str__(self):
        return (f"\n$ {' '.join(self.command)}\nexit status {self.status}\n--- stdout\n{self.out[-1500:]}"
                f"--- stderr\n{self.err[-1500:]}---")


def run_qkv(*arguments, stdin="", cwd=None, threads=1, timeout=120, memory=None):
    """`memory`: bytes that the process may write to, files that it maps aside."""
    command = [QKV, *arguments] + (["--threads", str(threads)] if threads else [])
    limit = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))) if memory else None
    done = subprocess.run(command, input=stdin.encode() if isinstance(stdin, str) else stdin, capture_output=True,
                          cwd=cwd, env=ENVIRONMENT, timeout=timeout, preexec_fn=limit)
    return Result(command, done.returncode, done.stdout, done.stderr)


# ---- Files

FORMATS = {"I64": "q", "I32": "i", "F32": "f", "F64": "d", "U8": "B"}


def safetensors_bytes(tensors):
    """tensors: name -> (dtype, shape, flat values)."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        blob = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    return with_header(json.dumps(header).encode(), data)


def with_header(header, data=b""):
    return struct.pack("<Q", len(header)) + header + data


def write(path, contents):
    with open(path, "wb") as file:
        file.write(contents.encode() if isinstance(contents, str) else contents)
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_text(path):
    return read(path).decode()


def load_safetensors(path):
    """name -> (shape, flat values)."""
    raw = read(path)
    size = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = array.array(FORMATS[entry["dtype"]], raw[8 + size + begin:8 + size + end])
            out[name] = (entry["shape"], list(values))
    return out


def snapshot(folder):
    """Every path below `folder` with its contents."""
    out = {}
    for at, folders, files in os.walk(folder):
        for name in folders:
            out[os.path.relpath(os.path.join(at, name), folder)] = None
        for name in files:
            out[os.path.relpath(os.path.join(at, name), folder)] = read(os.path.join(at, name))
    return out


def read_terminal(descriptor):
    """What the other side wrote; nothing when it is closed."""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux's end of a terminal
        return b""


def toml(sections):
    return "".join(f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items())
                   for name, keys in sections.items())


def configuration(**train):
    """A tiny run; keyword arguments replace keys of [train], or of another section as model__width=8."""
    sections = {
        "data": {"train": "text.txt"},
        "tokenizer": {"type": "char"},
        "model": {"context": 16, "width": 16, "layers": 1, "heads": 2},
        "train": {"out": "run", "steps": 20, "batch": 4, "warmup_steps": 2, "precision": "f32", "log_every": 1,
                  "eval_every": 10, "checkpoint_every": 10},
    }
    for key, value in train.items():
        section, name = key.split("__") if "__" in key else ("train", key)
        sections[section][name] = value
    return toml(sections)


# A run of some seconds: long enough to be stopped in the middle, with everything in it that a resumed run has
# to restore (dropout, accumulation, schedule, a best model).
SLOW = dict(steps=300, batch=8, accumulate=2, eval_every=110, checkpoint_every=90, eval_windows=4, model__context=32,
            model__width=64, model__layers=2, model__dropout=0.1)


class CliTest(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="qkv_cli_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write("text.txt", make_text())

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, contents):
        return write(self.path(name), contents)

    def qkv(self, *arguments, **options):
        return run_qkv(*arguments, cwd=self.folder, **options)

    def ok(self, *arguments, **options):
        result = self.qkv(*arguments, **options)
        self.assertEqual(result.status, 0, result)
        return result

    def refused(self, *arguments, status=(1, 2), says=(), allow_progress=False, **options):
        """Runs what must fail: the status, and one line on stderr that holds each of `says`."""
        result = self.qkv(*arguments, **options)
        statuses = (status,) if isinstance(status, int) else status
        self.assertIn(result.status, statuses, result)
        lines = result.err.splitlines()
        if allow_progress:
            lines = lines[-1:]
        self.assertEqual(len(lines), 1, f"expected one line on stderr{result}")
        self.assertTrue(lines[0].startswith("qkv: "), result)
        for part in (says,) if isinstance(says, str) else says:
            self.assertIn(part, lines[0], result)
        return result

    def assert_no_leftovers(self):
        left = [p for p in snapshot(self.folder) if p.endswith(".tmp")]
        self.assertEqual(left, [], "temporary files are left over")

    def train(self, *arguments, name="config.toml", **train):
        self.write(name, configuration(**train))
        return self.ok("train", name, *arguments)


# ---- Help and usage


class Usage(CliTest):
    COMMANDS = [[], ["train"], ["eval"], ["generate"], ["score"], ["plan"], ["tokenizer"], ["tokenizer", "train"],
                ["tokenizer", "encode"], ["tokenizer", "decode"], ["report"], ["inspect"], ["forward"], ["translate"],
                ["average"], ["chat"], ["merge"], ["summarize"], ["classify"], ["tag"], ["answer"], ["fill"], ["embed"]]

    def test_help(self):
        for command in self.COMMANDS:
            with self.subTest(command=command):
                result = self.ok(*command, "--help", threads=None)
                self.assertIn("Example", result.out, result)
                self.assertIn("Usage: " + " ".join(["qkv", *command]), result.out, result)
                self.assertEqual(result.err, "", result)

    def test_help_lists_every_subcommand(self):
        out = self.ok("--help", threads=None).out
        for command in self.COMMANDS:
            if len(command) == 1:
                self.assertRegex(out, rf"\n  {command[0]}[ ,]")

    def test_version(self):
        self.assertRegex(self.ok("--version", threads=None).out, r"^qkv \d+\.\d+\.\d+\n$")

    def test_no_subcommand(self):
        self.refused(status=2, says="subcommand", threads=None)
        self.refused("tokenizer", status=2, says=["subcommand", "qkv tokenizer --help"], threads=None)

    def test_unknown_subcommand_is_named(self):
        self.refused("trian", status=2, says="trian", threads=None)
        self.refused("tokenizer", "encoed", status=2, says="encoed", threads=None)

    def test_unknown_option_is_named(self):
        for command in self.COMMANDS:
            with self.subTest(command=command):
                self.refused(*command, "--no-such-option", status=2, says="--no-such-option", threads=None)

    def test_missing_and_surplus_arguments(self):
        self.refused("train", status=2, says="CONFIG")
        self.refused("eval", "run", status=2, says="--data")
        self.refused("inspect", "one", "two", status=2, says="two")

    def test_values_out_of_range(self):
        self.refused("inspect", "x", "--threads", "0", status=2, says="--threads", threads=None)
        self.refused("inspect", "x", "--threads", "many", status=2, says="--threads", threads=None)
        self.refused("generate", "x", "--tokens", "0", status=2, says="--tokens")
        self.refused("generate", "x", "--temperature", "-1", status=2, says="--temperature")
        self.refused("generate", "x", "--temperature", "warm", status=2, says="--temperature")
        self.refused("generate", "x", "--top-p", "1.5", status=2, says="--top-p")
        self.refused("generate", "x", "--top-k", "-1", status=2, says="--top-k")
        for option, value in (("--min-p", "-0.1"), ("--min-p", "2"), ("--typical-p", "0"), ("--top-p", "nan"),
                              ("--repetition-penalty", "0"), ("--repetition-penalty", "-1"),
                              ("--frequency-penalty", "inf"), ("--presence-penalty", "1e9"), ("--stop", ""),
                              ("--stop", "\udce9"), ("--samples", "0"), ("--samples", "x"), ("--logprobs", "-1"),
                              ("--vote", "("), ("--vote", "\udce9")):
            with self.subTest(option=option, value=value):
                self.refused("generate", "x", option, value, status=2, says=option)
        self.refused("score", "x", "--by", "letter", status=2, says="--by")
        self.refused("score", "x", "--prompt", "a", status=2, says="--choice")
        self.refused("score", "x", "--choice", "a", status=2, says="--prompt")
        self.refused("score", "x", "--prompt", "a", "--choice", "a", "--file", "b", status=2,
                     says=["--prompt", "--file"])
        self.refused("generate", "x", "--dtype", "f8", status=2, says="--dtype")
        self.refused("generate", "x", "--prompt", "a", "--file", "b", status=2, says=["--prompt", "--file"])
        self.refused("tokenizer", "train", "text.txt", "--vocab-size", "-4", "--out", "t", status=2,
                     says="--vocab-size")

    def test_threads_stands_before_or_after_the_subcommand(self):
        self.write("config.toml", configuration(steps=1))
        self.ok("--threads", "1", "train", "config.toml", "--set", "train.out=before", threads=None)
        self.ok("train", "config.toml", "--set", "train.out=after", "--threads", "1", threads=None)
        self.assertEqual(read(self.path("before/last/model.safetensors")),
                         read(self.path("after/last/model.safetensors")))


# ---- A finished run and what is done with it


class FinishedRun(CliTest):
    """All share one run, which no test changes."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="qkv_cli_run_")
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        write(os.path.join(cls.shared, "text.txt"), make_text())
        write(os.path.join(cls.shared, "config.toml"), configuration())
        cls.trained = run_qkv("train", "config.toml", cwd=cls.shared)
        cls.run_dir = os.path.join(cls.shared, "run")
        cls.before = snapshot(cls.run_dir)

    def setUp(self):
        super().setUp()
        self.assertEqual(self.trained.status, 0, self.trained)

    def tearDown(self):
        self.assertEqual(set(snapshot(self.run_dir)), set(self.before), "a test changed the run")


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
            child = subprocess.Popen([QKV, "train", "config.toml", "--overwrite", "--threads", "1"], cwd=self.folder,
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
                self.assertTrue(all(line.endswith("left") for line in updates), updates)

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
        for change in ("train.learning_rate=0.5", "model.width=32", "train.seed=2", "train.steps=30"):
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


class MoreThanOneRun(CliTest):
    """Averages of checkpoints, several data sets in a run, texts larger than memory."""

    def test_average(self):
        self.train(keep=3, checkpoint_every=5)
        self.assertEqual({p for p in os.listdir(self.path("run")) if p.startswith("step-")}, {"step-10", "step-15"})
        said = self.ok("average", "run", "--last", "3", "--out", "mean")
        self.assertIn("the mean of run/step-10, run/step-15, run/last", said.err)
        parts = [load_safetensors(self.path("run", d, "model.safetensors")) for d in ("step-10", "step-15", "last")]
        for name, (_, mean) in load_safetensors(self.path("mean/model.safetensors")).items():
            for value, *of in zip(mean, *(p[name][1] for p in parts)):
                self.assertAlmostEqual(value, sum(of) / 3, delta=1e-7 + abs(value) * 1e-6)
        self.ok("generate", "mean", "--prompt", "the", "--tokens", "5")
        # Models by name, and what cannot be averaged.
        self.ok("average", "run/last", "run/step-15", "--out", "two")
        self.refused("average", "run/last", "run/step-15", "--out", "two", status=1, says=["two", "exists"])
        self.refused("average", "run", "--out", "one", status=1, says="two models")
        self.refused("average", "run", "--last", "9", "--out", "nine", status=1, says=["run", "train.keep = 9"])
        self.train(out="wide", model__width=32)
        self.refused("average", "run", "wide", "--out", "none", status=1, says=["wide", "run", "embedding"])
        self.refused("average", "run", "nowhere", "--out", "none", status=1, says="nowhere")
        self.refused("average", "run", "two", status=2, says="--out")
        self.assertFalse({"one", "nine", "none"} & set(os.listdir(self.folder)))
        self.assert_no_leftovers()

    def test_a_text_larger_than_memory(self):
        line = "the quick brown fox jumps over a lazy dog and then it sleeps\n"
        self.write("large.txt", line * (48_000_000 // len(line)))
        self.write("config.toml", configuration(data__train="large.txt", data__valid_fraction=0.0005, steps=2,
                                                tokenizer__type="byte", eval_windows=4, sample_tokens=0))
        memory = 144 << 20  # the tokens alone take 192 MB
        self.ok("train", "config.toml", memory=memory)
        again = self.ok("train", "config.toml", "--set", "train.out=again", memory=memory)
        self.assertIn("(cached)", again.err)
        uncached = self.ok("train", "config.toml", "--set", "train.out=uncached", "--set", "data.cache=false", memory=memory)
        self.assertNotIn("(cached)", uncached.err)
        for other in ("again", "uncached"):
            self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path(other, "last/model.safetensors")))
        # The limit is one: what does not fit is refused.
        self.refused("train", "config.toml", "--set", "train.out=none", "--set", "model.width=1024", memory=memory,
                     status=1, allow_progress=True)

    def test_pairs_larger_than_memory(self):
        def ok(out, *sets, memory):
            return self.ok("train", "pairs.toml", *(a for s in (f"train.out={out}", *sets) for a in ("--set", s)), memory=memory)
        line = "the quick brown fox jumps over a lazy dog and then it sleeps"
        count = 24_000_000 // len(line)
        self.write("a.txt", f"{line}\n" * count)
        self.write("b.txt", f"{line[::-1]}\n" * count)
        self.write("pairs.toml", configuration(data__train="a.txt", data__valid_fraction=0.00001, steps=2, tokenizer__type="byte",
                                               sample_tokens=0, model__architecture="encoder_decoder", model__context=64)
                   .replace("batch = 4", "batch_tokens = 300"))
        memory = 144 << 20  # the tokens alone take 192 MB
        ok("run", "data.train_target=b.txt", memory=memory)
        # Rows of columns are the same pairs.
        self.write("rows.tsv", "source\ttarget\n" + f"{line}\t{line[::-1]}\n" * count)
        ok("rows", "data.train=rows.tsv", "data.cache=false", memory=memory)
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("rows/last/model.safetensors")))

    def test_data_sets_are_mixed(self):
        self.write("a.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in WORDS * 9))
        self.write("b.tsv", "text\tlabel\n" + "".join(f"{w}\t{len(w)}\n" for w in WORDS * 9))
        self.write("config.toml", """
mix.backwards.train = "a.tsv"
mix.backwards.prefix = "<"
mix.backwards.weight = 3
mix.length.train = "b.tsv"
mix.length.source_column = "text"
mix.length.target_column = "label"
mix.length.prefix = "#"
tokenizer.type = "byte"
model.architecture = "encoder_decoder"
model.context = 12
model.width = 32
model.layers = 1
model.heads = 4
train.out = "run"
train.steps = 300
train.batch_tokens = 300
train.eval_every = 150
train.warmup_steps = 20
train.learning_rate = 0.01
train.precision = "f32"
""")
        trained = self.ok("train", "config.toml")
        self.assertRegex(trained.err, r"75% backwards: .*25% length: ")
        self.assertRegex(trained.err, r"validation loss [0-9.]+ \(backwards [0-9.]+, length [0-9.]+\)")
        lengths = self.ok("translate", "run", "--prefix", "#", stdin="quick\n\nfox\n").out
        self.assertEqual(lengths, "5\n\n3\n")
        self.assertEqual(self.ok("translate", "run", "--prefix", "<", stdin="fox\n").out, "xof\n")
        self.assertEqual(self.ok("translate", "run", stdin="<fox\n").out, "xof\n")
        judged = json.loads(self.ok("eval", "run", "--data", "b.tsv", "--source-column", "text", "--target-column", "label",
                                    "--prefix", "#", "--json").out)
        self.assertGreater(judged["exact_match"], 0.9)
        page = read_text(self.path("run/report.html"))
        for part in ("valid loss backwards", "valid loss length"):
            self.assertIn(part, page)
        # The run's own settings start it again; other weights do not continue it.
        self.ok("train", "run/config.toml", "--set", "train.out=again")
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("again/last/model.safetensors")))
        self.refused("train", "config.toml", "--resume", "--set", "mix.length.weight=2", status=1, says="mix.length.weight")
        # Older versions knew fewer settings, in another order: what they did not know had its default.
        state = json.loads(read(self.path("run/last/trainer_state.json")))
        lines = state["fingerprint"].splitlines(keepends=True)

        def older(without):
            kept = [line for line in lines if line.split(" = ")[0] not in without]
            self.assertEqual(len(kept), len(lines) - len(without))
            self.write("run/last/trainer_state.json", json.dumps({**state, "fingerprint": "".join(reversed(kept))}))
        older(["mix.length.columns", "data.split_seed"])
        self.ok("train", "config.toml", "--resume")
        older(["mix.length.weight"])
        self.ok("train", "config.toml", "--resume")
        older(["mix.length.prefix"])
        self.refused("train", "config.toml", "--resume", status=1, says=["without", "mix.length.prefix"])
        self.write("run/last/trainer_state.json", json.dumps({**state, "fingerprint": state["fingerprint"] + "data.more = 1\n"}))
        self.refused("train", "config.toml", "--resume", status=1, says=["data.more = 1"])
        self.refused("train", "config.toml", "--set", "mix.length.train=none.tsv", "--set", "train.out=none", status=1,
                     says="none.tsv")
        self.refused("plan", "config.toml", status=1, says="decoders")


class Eval(FinishedRun):
    def test_text_and_json_agree(self):
        text = self.ok("eval", self.run_dir, "--data", "text.txt").out
        figures = json.loads(self.ok("eval", self.run_dir, "--data", "text.txt", "--json").out)
        self.assertEqual(figures["characters"], len(make_text()))
        self.assertEqual(figures["tokens"], len(make_text()) - 1)
        self.assertIn(f"{figures['loss']:.4f}", text)
        self.assertLess(figures["loss"], 3.4)

    def test_a_directory_or_its_run(self):
        run, best = (self.ok("eval", d, "--data", "text.txt", "--json").out
                     for d in (self.run_dir, os.path.join(self.run_dir, "best")))
        self.assertEqual(run, best)

    def test_bad_text(self):
        self.write("empty.txt", "")
        self.write("one.txt", "a")
        self.write("latin1.txt", b"the caf\xe9")
        self.refused("eval", self.run_dir, "--data", "missing.txt", status=1, says="missing.txt")
        self.refused("eval", self.run_dir, "--data", ".", status=1, says="directory")
        self.refused("eval", self.run_dir, "--data", "empty.txt", status=1, says=["empty.txt", "empty"])
        self.refused("eval", self.run_dir, "--data", "one.txt", status=1, says=["one.txt", "short"])
        self.refused("eval", self.run_dir, "--data", "latin1.txt", status=1, says=["latin1.txt", "UTF-8"])

    def test_bad_directory(self):
        os.mkdir(self.path("hollow"))
        self.refused("eval", "missing", "--data", "text.txt", status=1, says="missing")
        self.refused("eval", "hollow", "--data", "text.txt", status=1, says=["hollow", "config.json"])


class Generate(FinishedRun):
    def generate(self, *arguments, tokens=40, **options):
        return self.ok("generate", self.run_dir, "--tokens", str(tokens), *arguments, **options).out

    def test_same_seed_same_text(self):
        first = self.generate("--prompt", "the ", "--seed", "5")
        self.assertEqual(first, self.generate("--prompt", "the ", "--seed", "5"))
        self.assertNotEqual(first, self.generate("--prompt", "the ", "--seed", "6"))
        self.assertTrue(first.startswith("the "))
        self.assertEqual(len(first), len("the ") + 40 + 1)

    def test_prompt_from_option_file_and_stdin(self):
        self.write("prompt.txt", "the fox ")
        wanted = self.generate("--prompt", "the fox ", "--seed", "5")
        self.assertEqual(self.generate("--file", "prompt.txt", "--seed", "5"), wanted)
        self.assertEqual(self.generate("--seed", "5", stdin="the fox "), wanted)

    def test_echo(self):
        whole = self.generate("--prompt", "the ", "--seed", "5")
        self.assertEqual("the " + self.generate("--prompt", "the ", "--seed", "5", "--no-echo"), whole)

    def test_temperature_zero_needs_no_seed(self):
        first = self.generate("--prompt", "the ", "--temperature", "0")
        self.assertEqual(first, self.generate("--prompt", "the ", "--temperature", "0"))
        self.assertEqual(first, self.generate("--prompt", "the ", "--top-k", "1"))

    def test_longer_than_the_context(self):
        text = self.generate("--prompt", "the " * 30, "--seed", "1")
        self.assertTrue(text.startswith("the " * 30))
        self.assertEqual(len(text), 120 + 40 + 1)

    def test_bad_prompts(self):
        self.write("latin1.txt", b"caf\xe9")
        self.refused("generate", self.run_dir, "--prompt", "", status=1, says="prompt")
        self.refused("generate", self.run_dir, status=1, says="prompt", stdin="")
        self.refused("generate", self.run_dir, "--file", "missing.txt", status=1, says="missing.txt")
        self.refused("generate", "missing", "--prompt", "a", status=1, says="missing")

    def samples(self, *arguments, **options):
        """The JSON lines of --json."""
        return [json.loads(line) for line in self.generate("--json", *arguments, **options).splitlines()]

    def test_json(self):
        text = self.generate("--prompt", "the ", "--seed", "5", "--no-echo")
        (sample,) = self.samples("--prompt", "the ", "--seed", "5")
        self.assertEqual(sample["text"] + "\n", text)
        self.assertEqual((sample["sample"], sample["seed"], sample["finish"]), (0, 5, "length"))
        decoded = self.ok("tokenizer", "decode", self.run_dir, stdin=" ".join(map(str, sample["ids"]))).out
        self.assertEqual(decoded, sample["text"])

    def test_samples_equal_runs_of_their_own(self):
        samples = self.samples("--prompt", "the ", "--seed", "5", "--samples", "3")
        self.assertEqual([s["seed"] for s in samples], [5, 6, 7])
        for sample in samples:
            alone = self.generate("--prompt", "the ", "--seed", str(sample["seed"]), "--no-echo")
            self.assertEqual(sample["text"] + "\n", alone)
        text = self.generate("--prompt", "the ", "--seed", "5", "--samples", "3")
        self.assertEqual(text, "".join(f"--- sample {i + 1} of 3 (seed {5 + i})\nthe {s['text']}\n"
                                       for i, s in enumerate(samples)))

    def test_stop(self):
        whole = self.generate("--prompt", "the ", "--seed", "5", "--no-echo")[:-1]
        for stop in (whole[10:13], whole[0], whole[-1], whole[5:9]):
            with self.subTest(stop=stop):
                cut = self.generate("--prompt", "the ", "--seed", "5", "--no-echo", "--stop", "NEVER", "--stop", stop)
                self.assertEqual(cut, whole[:whole.index(stop)] + "\n")
                (sample,) = self.samples("--prompt", "the ", "--seed", "5", "--stop", stop)
                self.assertEqual((sample["text"], sample["finish"]), (whole[:whole.index(stop)], "stop"))
                self.assertEqual(len(sample["ids"]), whole.index(stop) + len(stop))
        # Text that looked like a stop string to the end is printed after all.
        self.assertEqual(self.generate("--prompt", "the ", "--seed", "5", "--no-echo", "--stop", whole[-3:] + "NEVER"),
                         whole + "\n")

    def test_beams(self):
        searched = ["--prompt", "the ", "--beams", "3"]
        text = self.generate(*searched, "--no-echo", tokens=6)[:-1]
        best = self.samples(*searched, "--samples", "3", tokens=6)
        self.assertEqual([text, len(text), len(best)], [best[0]["text"], 6, 3])
        self.assertEqual(sorted((b["score"] for b in best), reverse=True), [b["score"] for b in best])
        # One beam goes where the likeliest tokens do; what each is worth, forward says.
        self.assertEqual(self.generate("--prompt", "the ", "--beams", "1", tokens=6), self.generate("--prompt", "the ", "--temperature", "0", tokens=6))
        (drawn,) = self.samples("--prompt", "the ", "--temperature", "0", "--logprobs", "0", tokens=6)
        self.assertGreaterEqual(best[0]["logprob"], sum(t["logprob"] for t in drawn["tokens"]) - 1e-4)
        # As its makers generate, unless an option draws.
        shutil.copytree(os.path.join(self.run_dir, "best"), self.path("copy"))
        fields = json.loads(read(self.path("copy/generation_config.json")))
        self.write("copy/generation_config.json", json.dumps({**fields, "num_beams": 3}))
        made = ["generate", "copy", "--prompt", "the ", "--no-echo"]
        self.assertEqual(self.ok(*made, "--tokens", "6").out[:-1], text)
        self.assertEqual(len(self.ok(*made, "--tokens", "40", "--seed", "5").out), 41)
        self.write("copy/generation_config.json", json.dumps({**fields, "num_beams": 3, "do_sample": True}))
        self.refused(*made, status=1, says=["num_beams", "do_sample"])
        self.refused("generate", self.run_dir, "--prompt", "a", "--beams", "2", "--top-k", "3", status=2, says=["--top-k", "--beams"])
        self.refused("generate", self.run_dir, "--prompt", "a", "--beams", "2", "--samples", "3", status=2, says=["--samples", "2 beams"])

    def test_stop_of_several_samples(self):
        plain = self.samples("--prompt", "the ", "--seed", "5", "--samples", "4")
        stopped = self.samples("--prompt", "the ", "--seed", "5", "--samples", "4", "--stop", "e")
        for sample, whole in zip(stopped, plain):
            self.assertEqual(sample["text"], whole["text"].split("e")[0])

    def test_log_probabilities_equal_forward(self):
        arguments = ["--prompt", "the ", "--seed", "5", "--temperature", "2", "--repetition-penalty", "2",
                     "--logprobs", "3"]
        (sample,) = self.samples(*arguments, tokens=8)
        prompt = [int(i) for i in self.ok("tokenizer", "encode", self.run_dir, stdin="the ").out.split()]
        ids = prompt + sample["ids"]
        self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [1, len(ids)], ids)}))
        self.ok("forward", self.run_dir, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        (_, _, vocab), logits = load_safetensors(self.path("out.safetensors"))["logits"]
        self.assertEqual(len(sample["tokens"]), 8)
        for i, token in enumerate(sample["tokens"], len(prompt)):
            row = logits[(i - 1) * vocab:i * vocab]
            normalizer = math.log(sum(math.exp(z) for z in row))
            self.assertEqual(token["id"], ids[i])
            self.assertAlmostEqual(token["logprob"], row[ids[i]] - normalizer, delta=1e-5)
            best = sorted(range(vocab), key=lambda v: -row[v])[:3]
            self.assertEqual([t["id"] for t in token["likeliest"]], best)
            for other in token["likeliest"]:
                self.assertAlmostEqual(other["logprob"], row[other["id"]] - normalizer, delta=1e-5)
        table = self.generate(*arguments, "--no-echo", tokens=8).splitlines()[-8:]
        for line, token in zip(table, sample["tokens"]):
            self.assertTrue(line.lstrip().startswith(f"{token['logprob']:.4f}"), (line, token))
            self.assertIn(json.dumps(token["token"]), line)
        self.assertEqual(self.samples(*arguments[:-1], "0")[0]["tokens"][0]["likeliest"], [])

    def test_vote(self):
        arguments = ["--prompt", "the ", "--seed", "5", "--samples", "9"]
        pattern, answers = r"([a-z])[a-z]*\s", {}
        *samples, vote = self.samples(*arguments, "--vote", pattern)
        for sample in samples:
            found = re.findall(pattern, sample["text"])
            self.assertEqual(sample["answer"], found[-1] if found else None)
            if found:
                answers[found[-1]] = answers.get(found[-1], 0) + 1
        ranked = sorted(answers.items(), key=lambda item: -item[1])
        self.assertEqual([(v["answer"], v["count"]) for v in vote["votes"]], ranked)
        self.assertEqual(vote["winner"], ranked[0][0])
        lines = self.generate(*arguments, "--vote", pattern).splitlines()
        self.assertEqual(lines[-1], f"winner: {ranked[0][0]}")
        self.assertEqual(lines[-1 - len(ranked):-1], [f"{count:6}  {answer}" for answer, count in ranked])
        result = self.qkv("generate", self.run_dir, *arguments, "--vote", "NEVER")
        self.assertEqual(result.status, 1, result)
        self.assertIn("--vote", result.err)

    def test_penalties_and_filters_change_the_text(self):
        plain = self.generate("--prompt", "the ", "--seed", "5")
        for option in (["--min-p", "0.9"], ["--typical-p", "0.3"], ["--repetition-penalty", "5"],
                       ["--frequency-penalty", "5"], ["--presence-penalty", "-9"]):
            with self.subTest(option=option):
                self.assertNotEqual(self.generate("--prompt", "the ", "--seed", "5", *option), plain)
        self.assertEqual(self.generate("--prompt", "the ", "--seed", "5", "--min-p", "1"),
                         self.generate("--prompt", "the ", "--temperature", "0"))
        # No token twice: the vocabulary has more than 15 characters.
        text = self.generate("--prompt", "the ", "--presence-penalty", "100", "--no-echo", tokens=15)[:-1]
        self.assertEqual(len(set(text)), 15, text)

    def test_tokens_without_text_are_never_drawn(self):
        """<unk>, and ids beyond the tokenizer's: at an infinite temperature each would come up soon."""
        (sample,) = self.samples("--prompt", "the ", "--seed", "1", "--temperature", "inf", tokens=500)
        self.assertEqual(len(sample["text"]), 500)
        shutil.copytree(os.path.join(self.run_dir, "last"), self.path("padded"))
        padding, vocab = 300, 0
        tensors = {}
        for name, (shape, values) in load_safetensors(self.path("padded/model.safetensors")).items():
            if name == "transformer.wte.weight":
                vocab = shape[0]
                shape, values = [vocab + padding, shape[1]], values + [0.0] * (padding * shape[1])
            tensors[name] = ("F32", shape, values)
        self.write("padded/model.safetensors", safetensors_bytes(tensors))
        config = json.loads(read(self.path("padded/config.json")))
        self.write("padded/config.json", json.dumps(dict(config, vocab_size=vocab + padding)))
        out = self.ok("generate", "padded", "--json", "--prompt", "the ", "--temperature", "inf", "--tokens", "200").out
        sample = json.loads(out)
        self.assertEqual(len(sample["text"]), 200)
        self.assertLess(max(sample["ids"]), vocab)

    def test_examples(self):
        self.write("e.toml", 'separator = "\\n"\ntemplate = "{input} jumps {output}"\n'
                             '[[example]]\ninput = "fox"\noutput = "over"\n')
        prompt = "fox jumps over\ndog jumps"
        wanted = self.generate("--prompt", prompt, "--seed", "5")
        self.assertEqual(self.generate("--prompt", "dog", "--examples", "e.toml", "--seed", "5"), wanted)
        self.assertEqual(self.generate("--examples", "e.toml", "--seed", "5", stdin="dog\n"), wanted)
        self.write("e.jsonl", '{"input": "fox"}')
        self.refused("generate", self.run_dir, "--prompt", "a", "--examples", "e.jsonl", status=1,
                     says=["e.jsonl:1", "output"])


class Chat(FinishedRun):
    TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"

    def setUp(self):
        super().setUp()
        self.model = self.path("assistant")
        shutil.copytree(os.path.join(self.run_dir, "best"), self.model)

    def template(self, text):
        with open(os.path.join(self.model, "tokenizer_config.json"), "w", encoding="utf8") as file:
            json.dump({"chat_template": text}, file)

    def test_renders_what_the_model_reads(self):
        self.template(self.TEMPLATE)
        messages = [{"role": "user", "content": "hi"}]
        self.write("talk.json", json.dumps(messages))
        self.assertEqual(self.ok("chat", "assistant", "--render", "talk.json").out, "user: hi\nassistant:")
        self.write("talk.json", json.dumps({"messages": messages}))
        self.assertEqual(self.ok("chat", "assistant", "--render", "talk.json").out, "user: hi\n")

    def test_answers_line_by_line(self):
        self.template("{% for m in messages %}{{ m.content[:1] }}{% endfor %}")
        talk = lambda lines: self.ok("chat", "assistant", "--system", "the", "--tokens", "5", "--seed", "1", stdin=lines).out
        one, two = talk("the\n"), talk("the\nand\n")
        self.assertTrue(two.startswith(one), (one, two))
        self.assertGreater(len(two), len(one))
        self.assertEqual(talk("the\n\nand\n"), one)  # an empty line ends it
        self.assertEqual(talk(""), "")

    def test_what_is_missing_or_wrong_is_refused(self):
        self.refused("chat", "assistant", says=["chat_template", "qkv generate"])
        self.template("{{ messages | nothing }}")
        self.refused("chat", "assistant", says=["tokenizer_config.json", "line 1", "'nothing'"])
        self.template("{{ raise_exception('Never') }}")
        self.refused("chat", "assistant", stdin="the\n", says="Never")
        self.template(self.TEMPLATE)
        self.refused("chat", "assistant", stdin="the the the the the\n", says="no room")
        self.write("talk.json", "[" * 100000 + "]" * 100000)
        self.refused("chat", "assistant", "--render", "talk.json", says="talk.json")
        self.write("talk.json", "[")
        self.refused("chat", "assistant", "--render", "talk.json", says="talk.json")
        self.write("talk.json", "3")
        self.refused("chat", "assistant", "--render", "talk.json", says=["talk.json", "messages"])
        self.refused("chat", "assistant", "--temperature", "-1", stdin="the\n", status=2, says="temperature")


class Conversations(CliTest):
    """What the assistant says in conversations: a run of its own, and one that goes on with it."""
    CONFIG = """
data = { train = "talks.jsonl", valid_fraction = 0.1 }
tokenizer = { vocab_size = 300 }
model = { context = 48, width = 32, layers = 1, heads = 2 }
train = { objective = "chat", out = "run", steps = 60, batch_tokens = 400, learning_rate = 1e-2, eval_every = 30, checkpoint_every = 20, precision = "f32" }
"""

    def setUp(self):
        super().setUp()
        talk = lambda w: {"messages": [{"role": "user", "content": w}, {"role": "assistant", "content": "so be it"}]}
        self.write("talks.jsonl", "".join(json.dumps(talk(w)) + "\n" for w in WORDS * 3))
        self.write("config.toml", self.CONFIG)

    def generation(self, run):
        return json.loads(read(self.path(run, "best", "generation_config.json")))

    def test_a_run_answers_and_goes_on(self):
        trained = self.ok("train", "config.toml")
        self.assertIn("of them to learn", trained.err)
        self.assertIn("that the assistant says", trained.err)
        answer = self.ok("chat", "run", "--temperature", "0", stdin="quick\n").out
        self.assertEqual(answer, "so be it\n")
        self.assertIn(b"generation", read(self.path("run/best/chat_template.jinja")))
        report = json.loads(self.ok("eval", "run", "--data", "talks.jsonl", "--json").out)
        self.assertLess(report["loss"], 0.2)
        self.assertEqual(report["conversations"], 3 * len(WORDS))
        # Whoever goes on with it has its template, its ends and how it generates.
        end = self.generation("run")["eos_token_id"]
        self.assertEqual(len(end), 2)
        with open(self.path("run/best/generation_config.json"), "w", encoding="utf8") as file:
            json.dump({"eos_token_id": end, "top_k": 7}, file)
        for out, settings in (("tuned", ["train.learning_rate=1e-4"]), ("adapted", ["model.lora_rank=2"])):
            more = [part for s in settings for part in ("--set", s)]
            self.write("on.toml", re.sub("tokenizer = .*|model = .*", "", self.CONFIG) + '[model]\nfrom = "run"\n')
            self.ok("train", "on.toml", "--set", f"train.out={out}", "--set", "train.steps=20", *more)
            self.assertEqual(self.generation(out)["eos_token_id"], end)
            self.assertEqual(self.generation(out)["top_k"], 7)
            self.assertEqual(self.ok("chat", out, "--temperature", "0", stdin="quick\n").out, answer)
        self.ok("merge", "adapted", "--out", "merged")
        self.assertEqual(self.ok("chat", "merged", "--temperature", "0", stdin="quick\n").out, answer)

    def test_resumes_bit_for_bit(self):
        self.ok("train", "config.toml", "--set", "train.out=whole")
        self.ok("train", "config.toml", "--set", "train.keep=3")
        older = [name for name in os.listdir(self.path("run")) if re.fullmatch(r"step-0*40", name)]
        shutil.rmtree(self.path("run", "last"))
        shutil.copytree(self.path("run", older[0]), self.path("run", "last"))
        self.ok("train", "config.toml", "--set", "train.keep=3", "--resume")
        for name in ("model.safetensors", "chat_template.jinja", "generation_config.json"):
            with open(self.path("whole", "last", name), "rb") as a, open(self.path("run", "last", name), "rb") as b:
                self.assertEqual(a.read(), b.read(), name)

    def test_what_is_wrong_is_refused(self):
        good = read(self.path("talks.jsonl")).decode()
        for line, says in (("{", "talks.jsonl:2"), ("3", ["talks.jsonl:2", "messages"]), ('{"messages": 1}', "talks.jsonl:2"),
                           ('[{"content": "x"}]', ["talks.jsonl:2", "messages[0]", "role"]),
                           ('[{"role": "user", "content": "x"}]', ["talks.jsonl:2", "assistant says nothing"])):
            self.write("talks.jsonl", good.replace("\n", "\n" + line + "\n", 1))
            self.refused("train", "config.toml", says=says, allow_progress=True)
            self.assertFalse(os.path.exists(self.path("run")))
        self.write("talks.jsonl", good)
        self.write("bad.jinja", "{% for m in messages %}{{ m.nothing() }}{% endfor %}")
        self.refused("train", "config.toml", "--set", "data.chat_template=bad.jinja", says=["talks.jsonl:1", "bad.jinja", "line 1"],
                     allow_progress=True)
        self.refused("train", "config.toml", "--set", "data.chat_template=none.jinja", says="none.jinja")
        self.refused("train", "config.toml", "--set", "model.architecture=encoder", status=2, says=["chat", "decoder"])
        self.write("plain.toml", configuration())
        self.refused("train", "plain.toml", "--set", "data.chat_template=bad.jinja", status=2, says="data.chat_template")
        # A tokenizer without ChatML's tokens.
        self.ok("train", "plain.toml", "--set", "train.steps=1", "--set", "train.out=plain")
        self.refused("train", "config.toml", "--set", "tokenizer.path=plain/last", says=["chat_template", "<|im_end|>"])


class Adapters(CliTest):
    """A run beside another run's model, on a text with other letters."""
    CONFIG = """
data = {{ train = "other.txt", valid_fraction = 0.1 }}
model = {{ from = "{base}", lora_rank = 4, lora_dropout = 0.1 }}
train = {{ out = "adapted", steps = 60, batch = 8, learning_rate = 1e-2, eval_every = 20, checkpoint_every = 20, sample_tokens = 0 }}
"""

    def setUp(self):
        super().setUp()
        self.write("config.toml", configuration(steps=150, learning_rate=1e-2, model__width=32))
        self.ok("train", "config.toml")
        self.run_dir = self.path("run")
        self.write("other.txt", make_text().translate(str.maketrans("theoa", "htoae")))
        self.write("adapt.toml", self.CONFIG.format(base=self.run_dir))

    def scores(self, model):
        return json.loads(self.ok("eval", model, "--data", "other.txt", "--json").out)

    def test_learns_beside_the_model_and_runs_as_it_is_or_merged(self):
        self.ok("train", "adapt.toml")
        files = os.listdir(self.path("adapted", "best"))
        self.assertIn("adapter_model.safetensors", files)
        self.assertNotIn("model.safetensors", files)
        with open(self.path("adapted", "best", "adapter_config.json"), encoding="utf8") as file:
            config = json.load(file)
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 8))
        adapted, base = self.scores("adapted"), self.scores(self.run_dir)
        self.assertLess(adapted["loss"], base["loss"] - 0.1)
        self.ok("merge", "adapted", "--out", "merged")
        self.assertAlmostEqual(self.scores("merged")["loss"], adapted["loss"], places=3)
        self.assertEqual(self.ok("generate", "adapted", "--prompt", "t", "--tokens", "9", "--seed", "2").out,
                         self.ok("generate", "merged", "--prompt", "t", "--tokens", "9", "--seed", "2").out)
        self.assertIn("adapter", self.ok("inspect", "adapted").out)

    def test_resumes_bit_for_bit(self):
        def read(run):
            with open(self.path(run, "last", "adapter_model.safetensors"), "rb") as file:
                return file.read()

        self.ok("train", "adapt.toml", "--set", "train.out=whole")
        self.ok("train", "adapt.toml", "--set", "train.keep=3")
        older = [name for name in os.listdir(self.path("adapted")) if re.fullmatch(r"step-0*40", name)]
        self.assertEqual(len(older), 1, os.listdir(self.path("adapted")))
        shutil.rmtree(self.path("adapted", "last"))
        shutil.copytree(self.path("adapted", older[0]), self.path("adapted", "last"))
        self.ok("train", "adapt.toml", "--set", "train.keep=3", "--resume")
        self.assertEqual(read("whole"), read("adapted"))

    def test_what_makes_no_sense_is_refused(self):
        self.refused("train", "adapt.toml", "--set", "model.lora_rank=0", status=2, says=["lora_dropout", "lora_rank"])
        self.refused("train", "adapt.toml", "--set", "model.lora_targets=[\"nothing\"]", says=["lora_targets", "'nothing'"])
        self.refused("train", "adapt.toml", "--set", "model.from=", status=2, says="model.from")
        self.refused("merge", self.run_dir, "--out", "x", says="adapter")
        self.refused("train", "adapt.toml", "--set", "model.lora_rank=1000", says="rank")
        self.refused("train", "adapt.toml", "--set", "train.out=run", "--overwrite", status=2, says=["train.out", "must stay"])
        self.refused("train", "adapt.toml", "--set", "train.freeze=[\"*\"]", status=2, says="train.freeze")
        self.refused("train", "adapt.toml", "--set", "model.lora_targets=[]", status=2, says="lora_targets")

    def test_an_adapter_has_its_models_settings(self):
        self.ok("train", "adapt.toml")
        with open(self.path("run", "best", "generation_config.json"), "w", encoding="utf8") as file:
            json.dump({"do_sample": False, "max_new_tokens": 3}, file)
        for name in ("config.json", "generation_config.json", "tokenizer.json"):
            os.remove(self.path("adapted", "best", name))
        text = self.ok("generate", "adapted/best", "--prompt", "the ").out
        self.assertEqual(len(text), len("the ") + 3 + 1)
        self.ok("merge", "adapted/best", "--out", "merged")
        self.assertEqual(self.ok("generate", "merged", "--prompt", "the ").out, text)


class Translate(CliTest):
    """Pairs to an encoder-decoder, and what is done with it."""

    CONFIG = """
data.train = "pairs.tsv"
data.valid_fraction = 0.1
tokenizer.type = "byte"
model.architecture = "encoder_decoder"
model.context = 12
model.width = 16
model.layers = 1
model.heads = 2
train.out = "run"
train.steps = 6
train.batch_tokens = 300
train.eval_every = 3
train.warmup_steps = 2
train.precision = "f32"
"""

    def setUp(self):
        super().setUp()
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in WORDS * 5))
        self.write("config.toml", self.CONFIG)

    def test_a_model_is_taught_between_the_tokens_that_it_names(self):
        """As T5, whose targets begin with padding."""
        self.ok("train", "config.toml")
        config = json.loads(read(self.path("run/best/config.json")))
        for name in ("config.json", "generation_config.json"):
            more = {"length_penalty": 0.5} if name.startswith("gen") else {}
            fields = json.loads(read(self.path("run/best", name)))
            self.write("run/best/" + name, json.dumps({**fields, **more, "decoder_start_token_id": 70, "eos_token_id": 71}))
        self.write("on.toml", re.sub("(?m)^(model|tokenizer).*", "", self.CONFIG) + 'model.from = "run"\n')
        learnt = self.ok("train", "on.toml", "--set", "train.out=on", "--set", "train.steps=60",
                         "--set", "train.learning_rate=1e-2", "--set", "train.eval_every=30").err
        fields = json.loads(read(self.path("on/best/generation_config.json")))
        self.assertEqual((fields["decoder_start_token_id"], fields["eos_token_id"], fields["length_penalty"]), (70, 71, 0.5))
        self.assertNotEqual(config["decoder_start_token_id"], 70)
        # What was learnt is what is asked for: the loss of eval is that of the run.
        loss = json.loads(self.ok("eval", "on", "--data", "pairs.tsv", "--json").out)["loss"]
        self.assertLess(abs(loss - float(re.findall(r"validation loss ([0-9.]+)", learnt)[-1])), 0.5)

    def test_a_run_and_its_use(self):
        trained = self.ok("train", "config.toml")
        self.assertIn("58 training pairs", trained.err)
        self.assertTrue(os.path.exists(self.path("run/report.html")))
        records = [json.loads(line) for line in read(self.path("run/metrics.jsonl")).splitlines()]
        self.assertTrue(any("sample" in r and "prompt" in r for r in records))
        lines = "quick\n\nfox\r\nthis line is too long for it\nlast"
        plain = self.ok("translate", "run", stdin=lines)
        self.assertEqual(len(plain.out.splitlines()), 5, plain)
        self.assertEqual(plain.out.splitlines()[1], "")
        self.assertIn("1 lines are longer", plain.err)
        whole = [json.loads(line) for line in self.ok("translate", "run", "--json", "--best", "3", stdin=lines).out.splitlines()]
        self.assertEqual([w["source"] for w in whole], ["quick", "", "fox", "this line is too long for it", "last"])
        self.assertEqual([w["text"] for w in whole], plain.out.splitlines())
        scores = [b["score"] for b in whole[0]["best"]]
        self.assertEqual(len(scores), 3)
        self.assertEqual(scores, sorted(scores, reverse=True))
        # What a line gives does not depend on its neighbours.
        self.assertEqual(self.ok("translate", "run", stdin="fox\n").out, plain.out.splitlines()[2] + "\n")
        report = json.loads(self.ok("eval", "run", "--data", "pairs.tsv", "--json").out)
        self.assertEqual(report["pairs"], 65)
        self.assertGreater(report["loss"], 0)
        self.assertIn("tok:13a", report["signature"])
        self.assertIn("nc:6", report["chrf_signature"])
        self.assertTrue(0 <= report["chrf"] <= 100 and 0 <= report["rouge_l"] <= 1)
        self.write("a.txt", "fox\njumps\n")
        self.write("b.txt", "xof\nspmuj\n")
        text = self.ok("eval", "run", "--data", "a.txt", "--target", "b.txt").out
        for part in ("BLEU = ", "chrF2 = ", "nc:6", "ROUGE-L ", "exact match "):
            self.assertIn(part, text)
        self.refused("translate", "run", "--strict", stdin=lines, status=1, says=["1 of lines 1 to 5", "11 tokens"])
        self.refused("generate", "run", "--prompt", "x", status=1, says=["encoder_decoder", "qkv translate"])
        self.refused("score", "run", "--prompt", "x", "--choice", "y", status=1, says="encoder_decoder")
        self.refused("translate", "run", "--best", "9", status=2, says=["--best", "--beams"])

    def test_ways_of_writing(self):
        self.ok("train", "config.toml")
        lines = "quick\n\nfox\n"
        # As many lines of each source, also of an empty one.
        best = self.ok("translate", "run", "--best", "2", stdin=lines).out.splitlines()
        self.assertEqual(len(best), 6)
        self.assertEqual(best[2:4], ["", ""])
        # What the options say is done: each changes these outputs.
        plain = self.ok("translate", "run", "--json", stdin="quick\nfox\njumps\n").out
        for option in (["--begin", "zz"], ["--length-penalty", "-3"], ["--tokens", "1"], ["--beams", "1", "--no-repeat-ngram", "1"]):
            self.assertNotEqual(self.ok("translate", "run", "--json", *option, stdin="quick\nfox\njumps\n").out, plain, option)
        for line in self.ok("translate", "run", "--begin", "zz", stdin=lines).out.splitlines()[::2]:
            self.assertTrue(line.startswith("zz"), line)
        early = [json.loads(x) for x in self.ok("translate", "run", "--json", "--stop-early", stdin=lines).out.splitlines()]
        self.assertEqual([x["source"] for x in early], ["quick", "", "fox"])
        # From JSON, and in small groups, it is the same.
        rows = "".join(json.dumps({"source": s}) + "\n" for s in ("quick", "", "fox"))
        whole = self.ok("translate", "run", "--json", stdin=lines).out
        self.assertEqual(self.ok("translate", "run", "--json", "--json-lines", stdin=rows).out, whole)
        self.assertEqual(self.ok("translate", "run", "--lines", "1", stdin=lines).out, self.ok("translate", "run", stdin=lines).out)
        self.refused("translate", "run", "--json-lines", stdin='{"text": "a"}\n', status=1, says=[":1: ", "source"])
        # Drawn outputs depend on the seed alone.
        drawn = [self.ok("translate", "run", "--temperature", "2", "--seed", seed, "--best", "3", stdin=lines).out for seed in "112"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(len(set(drawn[0].splitlines()[:3])), 3)
        self.assertEqual(self.ok("translate", "run", "--top-k", "1", stdin=lines).out,
                         self.ok("translate", "run", "--beams", "1", stdin=lines).out)
        self.refused("translate", "run", "--temperature", "1", "--beams", "2", status=2, says="--beams", stdin=lines)
        self.refused("translate", "run", "--top-p", "3", status=2, says="--top-p", stdin=lines)

    def test_outputs_as_they_come(self):
        self.ok("train", "config.toml")
        with subprocess.Popen([QKV, "translate", "run", "--lines", "2"], cwd=self.folder, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdin.write(b"quick\nfox\n")
            process.stdin.flush()
            self.assertNotEqual(process.stdout.readline() + process.stdout.readline(), b"")  # before the input ends
            process.stdin.close()

    def test_what_eval_leaves_out_and_cuts(self):
        self.ok("train", "config.toml")
        self.write("odd.tsv", "source\ttarget\nfox\txof\n\tx\n  \tx\nfox\t\n")
        odd = self.ok("eval", "run", "--data", "odd.tsv")
        self.assertIn("3 pairs have an empty side", odd.err)
        self.assertIn("% of 1", odd.out)
        self.assertIn("nats per character", odd.out)
        self.write("long.tsv", "source\ttarget\nfox\t" + "abc " * 40 + "\n")
        cut = self.ok("eval", "run", "--data", "long.tsv")
        self.assertIn("1 sources or targets are longer", cut.err)
        self.assertNotIn("nats per character", cut.out)
        self.refused("eval", "run", "--data", "long.tsv", "--strict", status=1, says=["long.tsv", "1 sources or targets", "--strict"])
        self.ok("eval", "run", "--data", "odd.tsv", "--strict")
        # A file without a header, in training and after it.
        self.write("bare.tsv", read_text(self.path("pairs.tsv")).split("\n", 1)[1])
        named = ["--columns", "source,target", "--json"]
        self.assertEqual(self.ok("eval", "run", "--data", "bare.tsv", *named).out, self.ok("eval", "run", "--data", "pairs.tsv", "--json").out)
        self.ok("train", "config.toml", "--set", "data.train=bare.tsv", "--set", 'data.columns=["source", "target"]', "--set", "train.out=bare")
        self.assertEqual(read(self.path("bare/last/model.safetensors")), read(self.path("run/last/model.safetensors")))
        self.assertIn("1 targets cut", self.ok("train", "config.toml", "--dry-run", "--set", "data.train=long.tsv",
                                               "--set", "data.valid=odd.tsv", "--set", "train.out=other").err)
        # As its makers generate.
        path = "run/best/generation_config.json"
        self.write(path, json.dumps({**json.loads(read(self.path(path))), "num_beams": 2}))
        self.assertEqual(json.loads(self.ok("eval", "run", "--data", "odd.tsv", "--json").out)["beams"], 2)
        self.assertEqual(json.loads(self.ok("eval", "run", "--data", "odd.tsv", "--beams", "3", "--json").out)["beams"], 3)
        with open(self.path("bytes.tsv"), "wb") as f:
            f.write(b"source\ttarget\nfox\txof\nfox\tx\xff\n")
        self.write("wordpiece.toml", re.sub(r"tokenizer.type = .*", 'tokenizer.type = "wordpiece"', self.CONFIG))
        self.refused("train", "wordpiece.toml", "--set", "data.train=bytes.tsv", "--set", "data.valid_fraction=0",
                     "--set", "train.out=b", status=1, says=["bytes.tsv:3: ", "0xFF"])

    def test_eval_of_restored_texts(self):
        self.write("text.txt", "the fox . a dog . " * 60)
        for objective, key, option in (("span_corruption", "train.span_density=0.6", ("--span-density", "0.6")),
                                       ("denoise", "train.infill=0.6", ("--infill", "0.6")),
                                       ("denoise", "train.deletion=0.3", ("--deletion", "0.3")),
                                       ("denoise", "train.span_length=1", ("--span-length", "1")),
                                       ("denoise", "train.permute_sentences=false", ("--keep-order",))):
            with self.subTest(objective=objective, key=key):
                out = key.split("=")[0][6:]
                self.ok("train", "config.toml", "--set", f"train.objective={objective}", "--set", key, "--set", "data.train=text.txt",
                        "--set", "data.valid=text.txt", "--set", "train.steps=2", "--set", f"train.out={out}")
                valid = [r["valid_loss"] for r in map(json.loads, read(self.path(out, "metrics.jsonl")).splitlines()) if "valid_loss" in r]
                arguments = ("eval", out + "/last", "--data", "text.txt", "--objective", objective)
                told = json.loads(self.ok(*arguments, *option, "--json").out)
                self.assertAlmostEqual(told["loss"], valid[-1], places=4)
                self.assertAlmostEqual(told["perplexity"], math.exp(told["loss"]))
                self.assertIn(f"{told['loss']:.4f} nats a written token ({told['written']} for", self.ok(*arguments, *option).out)
                others = [json.loads(self.ok(*arguments, *more, "--json").out)["loss"] for more in ((), (*option, "--mask-seed", "4"))]
                self.assertNotAlmostEqual(others[0], told["loss"], places=5)
                self.assertNotAlmostEqual(others[1], told["loss"], places=5)
        self.refused("eval", out, "--data", "text.txt", status=2, says=["text.txt", "--target", "--objective"])
        self.refused("eval", out, "--data", "pairs.tsv", "--infill", "0.5", status=2, says=["--infill", "--objective"])
        for more in (("--target", "text.txt"), ("--beams", "3"), ("--strict",), ("--span-density", "0.2")):
            self.refused("eval", out, "--data", "text.txt", "--objective", "denoise", *more, status=2, says=more[0])
        self.refused("eval", "span_density", "--data", "text.txt", "--objective", "denoise", status=1, says=["span_density", "<mask>"])
        self.refused("eval", out, "--data", "none.txt", "--objective", "denoise", status=1, says="none.txt")

    def test_two_vocabularies(self):
        self.ok("train", "config.toml", "--set", "tokenizer.separate=true")
        self.assertTrue(os.path.exists(self.path("run/best/source/tokenizer.json")))
        self.assertIn("sources     a vocabulary of", self.ok("inspect", "run").out)
        self.assertEqual(len(self.ok("translate", "run", stdin="quick\n\nfox\n").out.splitlines()), 3)
        self.assertIn("loss", json.loads(self.ok("eval", "run", "--data", "pairs.tsv", "--json").out))
        os.rename(self.path("run/best/source"), self.path("elsewhere"))
        self.refused("translate", "run", stdin="fox\n", status=1, says=["tokenizer of the sources", "best/source"])

    def test_recurrences(self):
        sets = [a for s in ("model.encoder=lstm", "model.decoder=gru", "model.source_attention=additive",
                            "model.reverse_source=true") for a in ("--set", s)]
        self.ok("train", "config.toml", *sets)
        saved = json.loads(read(self.path("run/last/config.json")))["qkv"]
        self.assertEqual([saved[k] for k in ("encoder", "decoder", "bidirectional", "source_attention", "reverse_source")],
                         ["lstm", "gru", True, "additive", True])
        best = json.loads(self.ok("translate", "run", "--json", "--best", "2", "--beams", "2", stdin="quick\n").out)
        self.assertEqual(len(best["best"]), 2)
        self.assertIn("loss", json.loads(self.ok("eval", "run", "--data", "pairs.tsv", "--json").out))
        shown = self.ok("inspect", "run").out
        for part in ("encoder-decoder", "recurrences encoder lstm (both ways), decoder gru, source attention additive"):
            self.assertIn(part, shown)
        self.assertNotIn("heads", shown)
        self.refused("train", "config.toml", "--set", "model.source_attention=dot", status=2, says=["source_attention", "decoder"])

    def test_bleu_while_training(self):
        # BLEU looks at runs of four words.
        self.write("words.tsv", "source\ttarget\n" + "".join(f"{w}\t{t}\n" for w, t in (("x", "a b c d e"), ("y", "e d c b a"))) * 30)
        sets = [a for s in ("data.train=words.tsv", "train.steps=40", "train.eval_every=5", "train.learning_rate=0.02")
                for a in ("--set", s)]
        result = self.ok("train", "config.toml", *sets, "--set", "train.eval_bleu=5", "--set", "train.best_by=bleu")
        self.assertRegex(result.err, r"validation loss .*, BLEU \d+\.\d\d")
        bleu = {r["step"]: r["valid_bleu"] for r in map(json.loads, read(self.path("run/metrics.jsonl")).splitlines())
                if "valid_bleu" in r}
        self.assertEqual(sorted(bleu), list(range(5, 45, 5)))
        self.assertGreater(len(set(bleu.values())), 1, bleu)
        best = max(bleu, key=lambda step: (bleu[step], -step))  # the first of equals
        kept = json.loads(read(self.path("run/evaluation.json")))
        self.assertEqual((kept["step"], kept["scores"]["bleu"]), (best, bleu[best]))
        page = read_text(self.path("run/report.html"))
        for part in ("Validation BLEU", "Best validation BLEU", "<h2>Scores</h2>"):
            self.assertIn(part, page)
        self.ok("train", "config.toml", *sets, "--set", "train.out=plain")
        self.assertNotIn("valid_bleu", read_text(self.path("plain/metrics.jsonl")))
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("plain/last/model.safetensors")))
        self.ok("train", "config.toml", *sets, "--set", "train.out=exact", "--set", "train.eval_bleu=5", "--set", "train.best_by=exact_match")
        exact = [(r["valid_exact_match"], -r["step"]) for r in map(json.loads, read(self.path("exact/metrics.jsonl")).splitlines())
                 if "valid_exact_match" in r]
        self.assertEqual(max(exact)[0], 1)
        kept = json.loads(read(self.path("exact/evaluation.json")))
        self.assertEqual((kept["scores"]["exact_match"], -kept["step"]), max(exact))
        for sets, says in ((["train.best_by=bleu"], "train.eval_bleu"), (["train.best_by=exact_match"], "train.eval_bleu"), (["train.eval_bleu=-1"], "eval_bleu"),
                           (["train.eval_bleu=5", "model.architecture=decoder", "train.batch_tokens=4096"],
                            "sequence_to_sequence")):
            self.refused("train", "config.toml", *(a for s in sets for a in ("--set", s)), "--set", "train.out=bad",
                         status=2, says=says)

    def test_equal_runs_have_equal_bits(self):
        self.ok("train", "config.toml")
        self.ok("train", "config.toml", "--set", "train.out=other", "--set", "train.steps=6")
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("other/last/model.safetensors")))

    def test_bad_input(self):
        def refuse(says, *sets, status=(1, 2)):
            arguments = [a for s in sets for a in ("--set", s)]
            self.refused("train", "config.toml", *arguments, says=says, status=status, allow_progress=True)
        self.write("ragged.tsv", "source\ttarget\na\tb\nc\n")
        refuse(["ragged.tsv:3", "2 fields"], "data.train=ragged.tsv")
        self.write("quotes.csv", "source,target\n\"a,b\n")
        refuse(["quotes.csv:2", "never closed"], "data.train=quotes.csv")
        refuse(["pairs.tsv", "'german'", "did you mean"], "data.target_column=german")
        self.write("few.txt", "x\n")
        refuse(["text.txt", "few.txt", "each line needs"], "data.train=text.txt", "data.train_target=few.txt")
        refuse(["text.txt", ".tsv"], "data.train=text.txt")
        refuse(["batch", "batch_tokens"], "train.batch=fit", status=2)
        refuse(["train_target", "sequence_to_sequence"], "model.architecture=decoder", "data.train_target=few.txt", status=2)
        refuse(["encoder_layers"], "model.architecture=decoder", "model.encoder_layers=2", "train.batch_tokens=4096",
               status=2)
        refuse(["batch_tokens", "sequence_to_sequence"], "model.architecture=decoder", status=2)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_lines_stay_lines(self):
        """Outputs that hold line ends stand in one line each."""
        self.write("lines.jsonl", "".join(json.dumps({"source": w, "target": "x\n\ny"}) + "\n" for w in WORDS * 30))
        self.ok("train", "config.toml", "--set", "data.train=lines.jsonl", "--set", "train.steps=30", "--set", "train.learning_rate=0.02",
                "--set", "train.eval_every=30")
        self.assertIn("\n", json.loads(self.ok("translate", "run", "--json", stdin="fox\n").out)["text"])
        self.assertEqual(len(self.ok("translate", "run", stdin="fox\nquick\n").out.splitlines()), 2)

    def test_other_models_do_not_translate(self):
        self.train(steps=1)
        self.refused("translate", "run", status=1, says=["run", "decoder", "encoder-decoder"], stdin="a\n")


class Encoders(CliTest):
    """Encoders with heads, and what is done with them. All share the runs, which no test changes."""

    CONFIG = """
data.cache = false
data.valid_fraction = 0.1
model.architecture = "encoder"
model.context = 16
model.width = 16
model.layers = 1
model.heads = 2
train.steps = 40
train.batch_tokens = 300
train.eval_every = 20
train.warmup_steps = 4
train.learning_rate = 0.01
train.precision = "f32"
"""
    KINDS = {"fruit": ["apple", "pear", "plum"], "tool": ["saw", "axe", "drill"]}
    CONTEXTS = {"masked": "a masked language model", "classify": "a classifier of texts", "tag": "a tagger of words",
                "answer": "a model that finds answers", "decoder": "a language model", "pairs": "an encoder-decoder"}
    COMMANDS = {"fill": "masked", "classify": "classify", "tag": "tag", "answer": "answer"}

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="qkv_cli_encoders_")
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        chooser = random.Random(3)
        kinds = list(cls.KINDS)
        rows, words, answers = ["text\tlabel"], [], ["question\tcontext\tanswer"]
        for i in range(300):
            kind = kinds[i % 2]
            text = [chooser.choice(WORDS) for _ in range(1 + i % 4)]
            text.insert(i % (len(text) + 1), chooser.choice(cls.KINDS[kind]))
            rows.append(f"{' '.join(text)}\t{kind}")
            answers.append(f"which {kind}\t{' '.join(text)}\t{next(w for w in text if w in cls.KINDS[kind])}")
            words.append("".join(f"{w}\t{'IT' if w in cls.KINDS[kind] else 'O'}\n" for w in text))
        files = {"classes.tsv": "\n".join(rows) + "\n", "tags.conll": "\n".join(words),
                 "answers.tsv": "\n".join(answers) + "\n",
                 "lines.txt": "\n".join(r.split("\t")[0] for r in rows[1:]) + "\n",
                 "pairs.tsv": "source\ttarget\n" + "a\tb\n" * 30,
                 "numbers.tsv": "text\tlabel\n" + "".join(f"{w}\t{5 * len(w)}\n" for w in WORDS * 5),
                 "text.txt": make_text(), "config.toml": cls.CONFIG}
        for name, contents in files.items():
            write(os.path.join(cls.shared, name), contents)

        def train(name, *sets):
            arguments = [a for s in (f"train.out={name}", *sets) for a in ("--set", s)]
            result = run_qkv("train", "config.toml", *arguments, cwd=cls.shared)
            assert result.status == 0, result
            return result
        cls.trained = {
            "masked": train("masked", "train.objective=masked", "data.train=lines.txt", 'data.separator="\\n"'),
            "classify": train("classify", "train.objective=classify", "data.train=classes.tsv", "data.test_fraction=0.1",
                              "train.steps=100"),
            "tag": train("tag", "train.objective=tag", "data.train=tags.conll"),
            "answer": train("answer", "train.objective=answer", "data.train=answers.tsv"),
            "decoder": train("decoder", "model.architecture=decoder", "data.train=text.txt", "train.batch_tokens=4096",
                             "tokenizer.type=char", "train.steps=1", "model.width=8"),
            "pairs": train("pairs", "model.architecture=encoder_decoder", "data.train=pairs.tsv", "tokenizer.type=byte",
                           "train.steps=1"),
            "tag2": train("tag2", "train.objective=tag", "data.train=tags.conll", "train.seed=2", "train.steps=6"),
            "answer2": train("answer2", "train.objective=answer", "data.train=answers.tsv", "train.seed=2", "train.steps=6"),
            "answer_of_bytes": train("answer_of_bytes", "train.objective=answer", "data.train=answers.tsv", "tokenizer.type=byte",
                                     "train.steps=1", "model.context=48"),
            "pairs2": train("pairs2", "model.architecture=encoder_decoder", "data.train=pairs.tsv", "tokenizer.type=byte",
                            "train.steps=1", "train.seed=2"),
            "decoder2": train("decoder2", "model.architecture=decoder", "data.train=text.txt", "train.batch_tokens=4096",
                              "tokenizer.type=char", "train.steps=1", "model.width=8", "train.seed=2"),
            "decoder_of_bytes": train("decoder_of_bytes", "model.architecture=decoder", "data.train=text.txt",
                                      "train.batch_tokens=4096", "tokenizer.type=byte", "train.steps=1", "model.width=8"),
            "second": train("second", "train.objective=classify", "data.train=classes.tsv", "train.seed=2", "train.steps=4"),
            "numbers": train("numbers", "train.objective=classify", "data.train=numbers.tsv", "train.steps=1"),
        }

    def run_dir(self, name):
        return os.path.join(self.shared, name)

    def ask(self, command, name, *arguments, **options):
        return self.ok(command, self.run_dir(name), *arguments, **options)

    def jsons(self, command, name, *arguments, **options):
        return [json.loads(line) for line in self.ask(command, name, "--json", *arguments, **options).out.splitlines()]

    # What each key changes is the first step's loss.
    NOISES = {"classify": (["data.train=classes.tsv"], ["token_drop=0.5", "token_swap=0.5", "token_mask=0.5"]),
              "tag": (["data.train=tags.conll"], ["token_mask=0.5"]),
              "masked": (["data.train=lines.txt", 'data.separator="\\n"'], ["mask_rate=0.6", "mask_random=0.9", "mask_keep=0.8",
                                                                          "next_sentence=true"]),
              "span_corruption": (["data.train=lines.txt"], ["span_density=0.5", "span_length=1"]),
              "span_corruption of a decoder": (["data.train=lines.txt", "model.architecture=decoder"], ["span_density=0.5", "span_length=1"]),
              "denoise": (["data.train=stops.txt"], ["infill=0.6", "deletion=0.4", "permute_sentences=false", "span_length=1"])}

    def test_keys_of_noise_decide_what_is_learnt(self):
        write(os.path.join(self.shared, "stops.txt"), "the quick . fox runs . a dog . " * 40)

        def first_loss(name, objective, *sets):
            objective = objective.split()[0]
            model = ["model.architecture=encoder_decoder", "tokenizer.type=char"] if objective in ("span_corruption", "denoise") else []
            arguments = [a for s in (f"train.out={self.path(name)}", f"train.objective={objective}", "train.steps=1", "train.log_every=1",
                                     "model.dropout=0", *model, *sets) for a in ("--set", s)]
            result = run_qkv("train", "config.toml", *arguments, cwd=self.shared)
            self.assertEqual(result.status, 0, result)
            return json.loads(read_text(self.path(name, "metrics.jsonl")).splitlines()[0])["loss"]

        for objective, (data, keys) in self.NOISES.items():
            plain = first_loss(objective, objective, *data)
            for key in keys:
                with self.subTest(objective=objective, key=key):
                    self.assertNotEqual(first_loss(objective + key, objective, *data, "train." + key), plain)

    def test_vectors_of_pairs(self):
        fruit = [(f"{a} {b}", f"{b} {a} {a}") for a in WORDS for b in WORDS if a != b]
        self.write("pairs.tsv", "one\tother\n" + "".join(f"{a}\t{b}\n" for a, b in fruit))
        arguments = [a for s in (f"train.out={self.path('vectors')}", "train.objective=embed", f"data.train={self.path('pairs.tsv')}",
                                 "data.text_column=one", "data.second_column=other") for a in ("--set", s)]
        trained = run_qkv("train", "config.toml", *arguments, cwd=self.shared)
        self.assertEqual(trained.status, 0, trained)
        self.assertRegex(trained.err, r"simple methods: words in common [0-9.]+%")
        self.assertRegex(trained.err, r"found among [0-9]+: ")
        self.write("few.tsv", "one\tother\n" + "".join(f"{a}\t{b}\n" for a, b in fruit[::3][:12]))
        columns = ["--text-column", "one", "--second-column", "other"]
        told = json.loads(self.ok("eval", "vectors", "--data", "few.tsv", *columns, "--json").out)
        self.assertEqual((told["pairs"], told["among"], told["accuracy"]), (12, 12, told["first"]))

        def vectors(lines):
            return [json.loads(line)["embedding"] for line in self.ok("embed", "vectors", "--json", stdin="\n".join(lines) + "\n").out.splitlines()]
        rows = [line.split("\t") for line in read_text(self.path("few.tsv")).splitlines()[1:]]
        first, second = vectors([r[0] for r in rows]), vectors([r[1] for r in rows])
        ranks = []
        for i, v in enumerate(first):
            cosines = [sum(a * b for a, b in zip(v, w)) for w in second]
            ranks.append(1 + sum(c > cosines[i] for c in cosines))
        self.assertAlmostEqual(told["first"], sum(r == 1 for r in ranks) / 12)
        self.assertAlmostEqual(told["mean_reciprocal_rank"], sum(1 / r for r in ranks) / 12, places=5)
        text = self.ok("eval", "vectors", "--data", "few.tsv", *columns).out
        self.assertIn(f"mean reciprocal rank {told['mean_reciprocal_rank']:.4f}", text)
        self.refused("eval", "vectors", "--data", "few.tsv", status=2, says="--second-column")
        self.refused("eval", "vectors", "--data", "few.tsv", "--label-column", "x", status=2, says=["--label-column", "only for"])
        self.refused("embed", "vectors", "--query", "", stdin="fox\n", status=1, says="--query")
        self.refused("embed", "vectors", "--best", "2", stdin="fox\n", status=2, says="--query")

    def test_what_the_vocabulary_lacks(self):
        arguments = [a for s in (f"train.out={self.path('words')}", "model.architecture=decoder", "data.train=text.txt",
                                 "tokenizer.type=word", "train.batch_tokens=4096", "train.steps=1") for a in ("--set", s)]
        self.assertEqual(run_qkv("train", "config.toml", *arguments, cwd=self.shared).status, 0)
        self.write("known.txt", "the quick fox the quick fox")
        self.write("unknown.txt", "the quick fox zzz quick fox")
        known, unknown = (self.ok("eval", "words", "--data", name) for name in ("known.txt", "unknown.txt"))
        self.assertIn("bits per byte", known.out)
        self.assertNotIn("bits per byte", unknown.out)
        self.assertIn("the vocabulary lacks some of the text", unknown.err)
        self.assertNotIn("bits_per_byte", json.loads(self.ok("eval", "words", "--data", "unknown.txt", "--json").out))

    def test_which_text_follows(self):
        arguments = [a for s in (f"train.out={self.path('next')}", "train.objective=masked", "data.train=lines.txt", "train.steps=3",
                                 'data.separator="\\n"', "train.next_sentence=true") for a in ("--set", s)]
        self.assertEqual(run_qkv("train", "config.toml", *arguments, cwd=self.shared).status, 0)
        told = [json.loads(line) for line in self.ok("classify", "next", "--json", "--best", "2", stdin="the fox\truns\nthe\tdog\n").out.splitlines()]
        for line in told:
            self.assertEqual({b["label"] for b in line["best"]}, {"next", "random"})
            self.assertAlmostEqual(sum(b["probability"] for b in line["best"]), 1, places=3)
        self.assertEqual(len(self.ok("fill", "next", stdin="the [MASK] runs\n").out.splitlines()), 1)

    def test_texts_of_rows_and_what_is_left_out(self):
        rows = [json.dumps({"body": text, "n": i}) for i, text in enumerate(["the quick fox runs"] * 3 + [make_text(), "no"])]
        write(os.path.join(self.shared, "rows.jsonl"), "\n".join(rows) + "\n")
        sets = ["model.architecture=decoder", "train.batch_tokens=4096", "tokenizer.type=char", "train.steps=1", "model.width=8",
                "data.train=rows.jsonl", "data.text_column=body"]
        arguments = [a for s in (*sets, f"train.out={self.path('rows')}") for a in ("--set", s)]
        result = run_qkv("train", "config.toml", *arguments, "--set", "data.deduplicate=true", "--set", "data.min_characters=3",
                         cwd=self.shared)
        self.assertEqual(result.status, 0, result)
        self.assertIn("(3 left out: 2 repeated, 1 of other lengths)", result.err)
        told = json.loads(self.ok("eval", "rows", "--data", os.path.join(self.shared, "rows.jsonl"), "--text-column", "body", "--json").out)
        self.assertGreater(told["tokens"], 100)
        # What SentencePiece trains has <s> and </s>, but documents end with <|endoftext|>.
        result = run_qkv("train", "config.toml", *arguments, "--set", "tokenizer.type=unigram", "--set", "tokenizer.vocab_size=320",
                         "--set", f"train.out={self.path('pieces')}", cwd=self.shared)
        self.assertEqual(result.status, 0, result)
        ids = json.loads(read_text(self.path("pieces/last/generation_config.json")))
        self.assertEqual([ids["eos_token_id"], "decoder_start_token_id" in ids], [0, False])
        self.ok("eval", "pieces", "--data", os.path.join(self.shared, "rows.jsonl"), "--text-column", "body")
        for more, says in ((["data.text_column=text"], ["rows.jsonl", "text"]), (["data.max_ratio=2"], ["max_ratio", "sequence_to_sequence"]),
                           (["data.min_characters=9", "data.max_characters=8"], ["max_characters", "8"])):
            refused = run_qkv("train", "config.toml", *arguments, *(a for s in (*more, "train.out=other") for a in ("--set", s)), cwd=self.shared)
            self.assertNotEqual(refused.status, 0)
            for part in says:
                self.assertIn(part, refused.err)
        write(os.path.join(self.shared, "one.tsv"), "text\tlabel\n" + "".join(f"fox {i}\tanimal\n" for i in range(9)))
        refused = run_qkv("train", "config.toml", "--set", "train.objective=classify", "--set", "data.train=one.tsv",
                          "--set", f"train.out={self.path('one')}", cwd=self.shared)
        self.assertEqual(refused.status, 1, refused)
        self.assertIn("all examples are of the class 'animal'", refused.err)

    def test_runs(self):
        for name in ("masked", "classify", "tag", "answer"):
            self.assertTrue(os.path.exists(os.path.join(self.run_dir(name), "report.html")), name)
        for name, parts in (("classify", ["What was taken for what (test)", "naive Bayes", "Validation scores", "(right: "]),
                            ("tag", ["What was taken for what (validation)", "words and suffixes", "nats per word"]),
                            ("answer", ["exact match", "F1", "<h2>Scores</h2>"])):
            page = read_text(os.path.join(self.run_dir(name), "report.html"))
            for part in parts:
                self.assertIn(part, page, name)
            records = [json.loads(line) for line in read(os.path.join(self.run_dir(name), "metrics.jsonl")).splitlines()]
            self.assertTrue(any(r.get("sample") for r in records), name)
            self.assertTrue(any("valid_loss" in r for r in records), name)
        self.assertIn("simple methods: most frequent class", self.trained["classify"].err)
        self.assertIn("test of the best model", self.trained["classify"].err)
        self.assertIn("243 training, 27 validation and 30 test examples of 2 classes", self.trained["classify"].err)
        self.assertNotIn("test of the best model", self.trained["tag"].err)
        # What was chosen and what follows from it is written down, and starts the same run again.
        again = run_qkv("train", "tag/config.toml", "--set", f"train.out={self.path('again')}", cwd=self.shared)
        self.assertEqual(again.status, 0, again)
        self.assertEqual(read(self.path("again/best/model.safetensors")),
                         read(os.path.join(self.run_dir("tag"), "best/model.safetensors")))

    def test_classify(self):
        lines = "the apple\n\nsaw\r\n  \na lazy drill and\nlast plum"
        plain = self.ask("classify", "classify", stdin=lines)
        self.assertEqual(plain.err, "")
        rows = [line.split("\t") for line in plain.out.split("\n")]
        self.assertEqual([r[0] for r in rows], ["fruit", "", "tool", "", "tool", "fruit", ""])
        found = self.jsons("classify", "classify", "--best", "5", stdin=lines)
        self.assertEqual([f["label"] for f in found], [r[0] or None for r in rows[:-1]])
        for f, row in zip(found, rows):
            if f["label"] is None:
                self.assertEqual(f, {"label": None})
                continue
            self.assertEqual(row[1], f"{f['probability']:.4f}")
            self.assertEqual({b["label"] for b in f["best"]}, set(self.KINDS))
            self.assertEqual(f["best"][0], {"label": f["label"], "probability": f["probability"]})
            self.assertAlmostEqual(sum(b["probability"] for b in f["best"]), 1, places=6)
        self.assertEqual(found[2]["text"], "saw")
        best = self.ask("classify", "classify", "--best", "2", stdin="saw\n").out.split("\t")
        self.assertEqual([best[0], best[2]], ["tool", "fruit"])
        # A line says the same alone, from a file, and a few tokens at a time.
        self.assertEqual(self.ask("classify", "classify", stdin="saw\n").out, plain.out.split("\n")[2] + "\n")
        self.write("in.txt", lines)
        for arguments in (["--file", self.path("in.txt")], ["--batch-tokens", "1", "--file", self.path("in.txt")]):
            self.assertEqual(self.ask("classify", "classify", *arguments).out, plain.out)
        self.assertEqual(self.ask("classify", "classify", stdin="").out, "")
        # More lines than are read at a time.
        many = self.ask("classify", "classify", stdin=(lines + "\n") * 250)
        self.assertEqual(many.out, plain.out * 250)
        self.refused("classify", self.run_dir("classify"), "--strict", stdin=(lines + "\n") * 250 + "fox " * 20 + "\n",
                     status=1, says=":1501: longer")
        self.assertEqual(self.ask("classify", "classify", "--dtype", "bf16", stdin="saw\n").out[:4], "tool")

    def test_pairs_of_texts(self):
        first = self.jsons("classify", "classify", stdin="the\tapple pear\n")[0]
        self.assertEqual((first["text"], first["second"]), ("the", "apple pear"))
        line = json.dumps({"text": "the", "second": "apple pear"})
        self.assertEqual(self.jsons("classify", "classify", "--json-lines", stdin=line), [first])
        # A pair is not the same as one text, and the order counts.
        others = self.jsons("classify", "classify", stdin="the apple pear\napple pear\tthe\n")
        self.assertEqual(len({first["probability"], *(o["probability"] for o in others)}), 3)
        self.assertNotIn("second", others[0])
        # A tab inside a JSON string divides nothing.
        line = json.dumps({"text": "the\tapple pear"})
        self.assertNotIn("second", self.jsons("classify", "classify", "--json-lines", stdin=line)[0])

    def test_cross_validation(self):
        sets = [a for s in ("train.objective=classify", f"data.train={os.path.join(self.shared, 'classes.tsv')}", "data.folds=3",
                            "train.out=folds", "train.steps=60") for a in ("--set", s)]
        self.write("config.toml", self.CONFIG)
        done = self.ok("train", "config.toml", *sets)
        rows = [re.split(r"  +", line.strip()) for line in done.out.splitlines()]
        self.assertEqual([r[0] for r in rows], ["fold (%)", "1", "2", "3", "mean", "deviation"], done)
        scores = json.loads(read(self.path("folds/cross_validation.json")))["scores"]
        self.assertEqual(set(rows[0][1:]), set(scores))
        self.assertIn("baseline_naive Bayes", scores)
        for name, value in scores.items():
            column = rows[0].index(name)
            self.assertEqual([r[column] for r in rows[1:]],
                             [f"{100 * v:.2f}" for v in (*value["folds"], value["mean"], value["deviation"])])
        self.assertGreater(scores["accuracy"]["mean"], 0.8)
        again = self.ok("train", "config.toml", *sets, "--resume")
        self.assertEqual(again.out, done.out)
        self.assertEqual(again.err.count("is finished"), 3, again)
        self.refused("train", "config.toml", *sets, status=1, says=["folds", "--resume", "--overwrite"])
        folds = [self.path("folds", f"fold-{f}") for f in (1, 2, 3)]
        found = self.ok("classify", folds[0], "--ensemble", *folds[1:], stdin="the apple\nsaw the\n").out
        self.assertLessEqual({line.split("\t")[0] for line in found.splitlines()}, set(self.KINDS))
        self.ok("train", "config.toml", *sets, "--set", "train.out=dry", "--dry-run")
        self.assertFalse(os.path.exists(self.path("dry")))
        self.refused("train", "config.toml", *sets, "--set", "data.folds=1", status=2, says="data.folds")
        self.refused("train", "config.toml", *sets, "--set", "train.objective=masked", status=2, says="data.folds")

    def test_ensemble(self):
        lines = "the apple\n\nsaw the\n"
        probabilities = []
        for name in ("classify", "second"):
            found = self.jsons("classify", name, "--best", "2", stdin=lines)
            probabilities.append([{b["label"]: b["probability"] for b in f.get("best", [])} for f in found])
        both = self.jsons("classify", "classify", "--best", "2", "--ensemble", self.run_dir("second"), stdin=lines)
        self.assertEqual(both[1], {"label": None})
        for i in (0, 2):
            for b in both[i]["best"]:
                self.assertAlmostEqual(b["probability"], sum(p[i][b["label"]] for p in probabilities) / 2, places=9)
        self.refused("classify", self.run_dir("classify"), "--ensemble", self.run_dir("numbers"), stdin="a\n",
                     status=1, says=[self.run_dir("numbers"), "classes are not those of", self.run_dir("classify")])
        self.refused("classify", self.run_dir("classify"), "--ensemble", self.run_dir("tag"), stdin="a\n",
                     status=1, says=[self.run_dir("tag"), "a tagger of words"])

    def test_ensembles_of_tags_and_answers(self):
        lines = "the apple saw\n\nfox over pear\n"
        one, two = (self.jsons("tag", name, stdin=lines) for name in ("tag", "tag2"))
        both = self.jsons("tag", "tag", "--ensemble", self.run_dir("tag2"), stdin=lines)
        self.assertEqual(both[1], {"words": [], "tags": [], "probabilities": []})
        differ = 0
        for i in (0, 2):
            for w, (tag, p) in enumerate(zip(both[i]["tags"], both[i]["probabilities"])):
                of = [f[i]["probabilities"][w] if f[i]["tags"][w] == tag else 1 - f[i]["probabilities"][w] for f in (one, two)]
                self.assertAlmostEqual(p, sum(of) / 2, places=9)  # of two tags
                differ += one[i]["tags"][w] != two[i]["tags"][w]
        self.assertGreater(differ, 0)
        lines = "which fruit\tthe quick pear\n"
        (alone,), (both,), (same,) = (self.jsons("answer", "answer", *more, stdin=lines) for more in (
            (), ("--ensemble", self.run_dir("answer2")), ("--ensemble", self.run_dir("answer"))))
        self.assertLess(both["score"], 0)  # the sum of two logarithms
        self.assertEqual((same["answer"], same["begin"]), (alone["answer"], alone["begin"]))
        self.assertNotAlmostEqual(both["score"], same["score"], places=4)
        self.refused("answer", self.run_dir("answer"), "--ensemble", self.run_dir("answer_of_bytes"), stdin=lines,
                     status=1, says=[self.run_dir("answer_of_bytes"), "share a tokenizer"])
        self.refused("tag", self.run_dir("tag"), "--ensemble", self.run_dir("answer"), stdin="a\n",
                     status=1, says=[self.run_dir("answer"), "a model that finds answers"])

    def test_ensembles_that_write(self):
        # A model beside itself writes what it writes alone; another changes what is said of it.
        def p_of(*more):
            (found,) = self.jsons("translate", "pairs", "--tokens", "5", *more, stdin="aba\n")
            return found["logprob"]
        self.assertAlmostEqual(p_of("--ensemble", self.run_dir("pairs")), p_of(), places=4)
        self.assertNotAlmostEqual(p_of("--ensemble", self.run_dir("pairs2")), p_of(), places=4)
        self.assertNotAlmostEqual(p_of("--ensemble", self.run_dir("pairs2"), "--seed", "3"), p_of("--seed", "3"), places=4)
        self.refused("translate", self.run_dir("pairs"), "--ensemble", self.run_dir("decoder"), stdin="a\n", status=1,
                     says=[self.run_dir("decoder"), "encoder-decoder"])

        def token_of(*more):
            (found,) = self.jsons("generate", "decoder", "--prompt", "the", "--tokens", "1", "--temperature", "0", "--logprobs", "0", *more)
            return found["tokens"][0]["logprob"]
        self.assertAlmostEqual(token_of("--ensemble", self.run_dir("decoder")), token_of(), places=4)
        self.assertNotAlmostEqual(token_of("--ensemble", self.run_dir("decoder2")), token_of(), places=4)
        (found,) = self.jsons("generate", "decoder", "--prompt", "the", "--beams", "2", "--tokens", "3", "--ensemble", self.run_dir("decoder2"))
        (alone,) = self.jsons("generate", "decoder", "--prompt", "the", "--beams", "2", "--tokens", "3")
        self.assertNotAlmostEqual(found["logprob"], alone["logprob"], places=4)
        self.refused("generate", self.run_dir("decoder"), "--ensemble", self.run_dir("decoder_of_bytes"), "--prompt", "a", status=1,
                     says=[self.run_dir("decoder_of_bytes"), "its tokenizer is not that", "share one"])

    def test_labels_that_are_numbers(self):
        found = self.jsons("classify", "numbers", "--best", "9", stdin="the\n")[0]
        self.assertEqual({b["label"] for b in found["best"]}, {str(5 * len(w)) for w in WORDS})
        labels = json.loads(read(os.path.join(self.run_dir("numbers"), "best/config.json")))["id2label"]
        labels = [labels[str(i)] for i in range(len(labels))]
        self.assertEqual(labels, sorted(labels, key=int))

    def test_tag(self):
        lines = "the  apple \n\n\tsaw\tover\r\nfox"
        plain = self.ask("tag", "tag", stdin=lines)
        self.assertEqual(plain.out, "the/O apple/IT\n\nsaw/IT over/O\nfox/O\n")
        self.assertEqual(self.ask("tag", "tag", "--columns", stdin=lines).out,
                         "the\tO\napple\tIT\n\n\nsaw\tIT\nover\tO\n\nfox\tO\n\n")
        found = self.jsons("tag", "tag", stdin=lines)
        self.assertEqual([f["words"] for f in found], [["the", "apple"], [], ["saw", "over"], ["fox"]])
        self.assertEqual(found[0]["tags"], ["O", "IT"])
        for f in found:
            self.assertEqual(len(f["probabilities"]), len(f["words"]))
            self.assertTrue(all(0.5 < p <= 1 for p in f["probabilities"]), f)
        # Words that the model cannot read have no tag. Two tokens stand around 14 words.
        long = self.ask("tag", "tag", stdin="fox " * 20)
        tagged = long.out.split()
        self.assertEqual((len(tagged), tagged[14:]), (20, ["fox/_"] * 6))
        self.assertNotIn("fox/_", tagged[:14])
        self.assertEqual(long.err, "note: 1 lines are longer than the model's 16 tokens and were cut\n")
        (found,) = self.jsons("tag", "tag", "--json-lines", stdin=json.dumps({"text": "saw\nover"}))
        self.assertEqual(found["words"], ["saw", "over"])

    def test_answer(self):
        lines = "which fruit\tthe quick pear\n\nwhich tool\tan axe over it\n"
        plain = self.ask("answer", "answer", stdin=lines)
        self.assertEqual(len(plain.out.split("\n")), 4)
        self.assertEqual(plain.out.split("\n")[1], "")
        found = self.jsons("answer", "answer", stdin=lines)
        self.assertEqual([f["answer"] for f in found], [a or None for a in plain.out.split("\n")[:-1]])
        for f, line in zip(found, lines.split("\n")):
            if f["answer"] is not None:
                context = line.split("\t")[1]
                self.assertEqual(f["question"], line.split("\t")[0])
                self.assertEqual(context[f["begin"]:f["end"]], f["answer"])
                self.assertTrue(f["answer"])
        for limit in ("1", "2"):
            for f in self.jsons("answer", "answer", "--longest", limit, stdin=lines):
                self.assertLessEqual(len((f["answer"] or "").split()), int(limit))
        # Bytes, not characters.
        (found,) = self.jsons("answer", "answer", "--longest", "1", "--json-lines",
                              stdin=json.dumps({"question": "which fruit", "context": "\u00e9\u00e9 pear \u00e9"}))
        self.assertEqual("\u00e9\u00e9 pear \u00e9".encode()[found["begin"]:found["end"]].decode(), found["answer"])
        self.ok("train", os.path.join(self.shared, "config.toml"), "--set", "train.objective=answer", "--set",
                f"data.train={self.shared}/answers.tsv", "--set", "tokenizer.type=byte", "--set", "train.out=bytes",
                "--set", "train.steps=1", "--set", "model.context=48")
        chooser = random.Random(1)
        contexts = ["".join(chooser.choice("\u00e9\u00fc\u4e00\u4e8c a") for _ in range(8)) + "z" for _ in range(60)]
        for longest in ("1", "2"):  # tokens of bytes, yet answers of characters
            found = self.ok("answer", "bytes", "--json", "--longest", longest,
                            stdin="".join(f"q\t{c}\n" for c in contexts)).out.splitlines()
            for context, f in zip(contexts, map(json.loads, found)):
                self.assertEqual(context.encode()[f["begin"]:f["end"]].decode(), f["answer"])
        self.refused("answer", self.run_dir("answer"), stdin="\nwhich fruit\n", status=1,
                     says=[":2: expected a question, a tab"])
        self.assertEqual(self.ask("answer", "answer", stdin="\n  \n").out, "\n\n")

    def test_fill(self):
        lines = "the [MASK] fox\n\n[MASK] [MASK]\n"
        plain = self.ask("fill", "masked", stdin=lines)
        filled = plain.out.split("\n")
        self.assertEqual(len(filled), 4)
        self.assertEqual(filled[1], "")
        self.assertNotIn("[", plain.out)
        found = self.jsons("fill", "masked", "--best", "3", stdin=lines)
        self.assertEqual([f.get("filled", "") for f in found], filled[:-1])
        self.assertEqual([len(f.get("masks", [])) for f in found], [1, 0, 2])
        for f in found:
            for candidates in f.get("masks", []):
                p = [c["probability"] for c in candidates]
                self.assertEqual(len(p), 3)
                self.assertEqual(p, sorted(p, reverse=True))
        best = self.ask("fill", "masked", "--best", "2", stdin=lines).out.split("\n")
        self.assertEqual([len(line.split("\t")) for line in best], [2, 1, 3, 1])
        self.assertTrue(best[0].startswith(filled[0] + "\t"))
        self.assertIn(f"{found[0]['masks'][0][1]['token']} {found[0]['masks'][0][1]['probability']:.4f}", best[0])
        self.refused("fill", self.run_dir("masked"), stdin="[MASK]\nthe fox\n", status=1,
                     says=[":2: ", "[MASK] in this line"])
        # What the model does not read stays as it is.
        beyond = self.ok("fill", self.run_dir("masked"), stdin="fox " * 20 + "[MASK]\nthe [MASK]\n")
        self.assertEqual(beyond.out.splitlines()[0], "fox " * 20 + "[MASK]")
        self.assertNotIn("[", beyond.out.splitlines()[1])
        self.assertIn("1 lines are longer", beyond.err)
        # So do words that it does not know, capitals and spaces.
        kept = self.ok("fill", self.run_dir("masked"), stdin='"Zebra\u2603,  [MASK]." said\n').out
        self.assertRegex(kept, '^"Zebra\u2603, \\S+." said\n$')

    def test_embed(self):
        lines = "the apple\n\nsaw the fox\nthe apple\n"
        vectors = [[float(x) for x in line.split()] for line in self.ask("embed", "masked", stdin=lines).out.splitlines()]
        self.assertEqual([len(v) for v in vectors], [16, 0, 16, 16])
        self.assertEqual(vectors[0], vectors[3])
        for v in (vectors[0], vectors[2]):
            self.assertAlmostEqual(sum(x * x for x in v), 1, places=4)
        found = self.jsons("embed", "masked", stdin=lines)
        self.assertEqual(found[1], {"embedding": None})
        self.assertEqual(found[2]["text"], "saw the fox")
        for a, b in zip(found[2]["embedding"], vectors[2]):
            self.assertAlmostEqual(a, b, places=5)
        pooled = {p: self.ask("embed", "masked", "--pooling", p, stdin="saw the fox\n").out for p in ("first", "mean")}
        self.assertNotEqual(pooled["first"], pooled["mean"])
        self.assertEqual(pooled["first"], self.ask("embed", "masked", stdin="saw the fox\n").out)
        self.refused("embed", self.run_dir("masked"), "--pooling", "max", status=2, says=["--pooling"], stdin="a\n")
        # Every encoder has vectors.
        for name in ("classify", "tag", "answer"):
            v = [float(x) for x in self.ask("embed", name, stdin="the fox\n").out.split()]
            self.assertAlmostEqual(sum(x * x for x in v), 1, places=4)
        # Nothing but empty lines, and nothing at all.
        self.assertEqual(self.ask("embed", "masked", stdin="\n \n").out, "\n\n")
        self.assertEqual(self.ask("embed", "masked", stdin="").out, "")

    def test_embed_of_a_query(self):
        lines = "saw\n\nthe apple\nquick brown fox\n"
        ranked = self.ask("embed", "masked", "--query", "the apple", stdin=lines).out.splitlines()
        self.assertEqual(ranked[0], "1.0000\tthe apple")
        self.assertEqual(len(ranked), 3)
        cosines = [float(r.split("\t")[0]) for r in ranked]
        self.assertEqual(cosines, sorted(cosines, reverse=True))
        vectors = {f["text"]: f["embedding"] for f in self.jsons("embed", "masked", stdin=lines.replace("\n\n", "\n"))}
        for found in self.jsons("embed", "masked", "--query", "the apple", stdin=lines):
            expected = sum(a * b for a, b in zip(vectors[found["text"]], vectors["the apple"]))
            self.assertAlmostEqual(found["cosine"], expected, places=5)
        self.assertEqual(self.ask("embed", "masked", "--query", "the apple", "--best", "1", stdin=lines).out,
                         ranked[0] + "\n")

    def test_long_lines(self):
        long = "the [MASK] " + "fox " * 30
        for command, name, line in (("fill", "masked", long), ("classify", "classify", long), ("tag", "tag", long),
                                    ("answer", "answer", "which fruit\tpear " + long), ("embed", "masked", long)):
            short = "the [MASK]\tfox\n"
            cut = self.ask(command, name, stdin=f"{short}{line}\n{line}\n")
            self.assertEqual(cut.err, "note: 2 lines are longer than the model's 16 tokens and were cut\n", command)
            self.assertEqual(len(cut.out.splitlines()), 3, command)
            self.refused(command, self.run_dir(name), "--strict", stdin=f"{short}{line}\n", status=1,
                         says=[":2: longer than the model's 16 tokens", "--strict"])
            self.assertEqual(self.ask(command, name, "--strict", stdin=short).err, "")
        # Unknown words count like others.
        cut = self.ask("classify", "classify", stdin="\u4e00" * 40 + "\n")
        self.assertIn("1 lines", cut.err)

    def test_the_wrong_head(self):
        for command, wanted in self.COMMANDS.items():
            for name, what in self.CONTEXTS.items():
                if name == wanted:
                    continue
                self.refused(command, self.run_dir(name), stdin="a\tb\n", status=1,
                             says=[self.run_dir(name), f"this checkpoint is {what};", f"{command} needs a",
                                   f'train.objective = "{wanted}"'])
        for name in ("decoder", "pairs"):
            self.refused("embed", self.run_dir(name), stdin="a\n", status=1,
                         says=[f"this checkpoint is {self.CONTEXTS[name]};", "embed needs an encoder"])
        for name in ("masked", "classify", "tag", "answer"):
            self.refused("generate", self.run_dir(name), "--prompt", "a", status=1, says=[self.run_dir(name)])
            self.refused("translate", self.run_dir(name), stdin="a\n", status=1, says=[self.run_dir(name)])
            self.refused("score", self.run_dir(name), "--prompt", "a", "--choice", "b", status=1,
                         says=[self.run_dir(name)])

    def evaluated(self, name, file, *arguments):
        data = ("--data", os.path.join(self.shared, file))
        return (json.loads(self.ask("eval", name, *data, "--json", *arguments).out),
                self.ask("eval", name, *data, *arguments).out)

    def test_eval_of_classes(self):
        figures, text = self.evaluated("classify", "classes.tsv")
        self.assertEqual(set(figures), {"loss", "accuracy", "macro_f1", "micro_f1", "matthews", "examples", "cut", "missed", "classes",
                                        "confusion"})
        self.assertEqual(figures["examples"], 300)
        rows = [line.split("\t") for line in read_text(os.path.join(self.shared, "classes.tsv")).splitlines()[1:]]
        said = [f["label"] for f in self.jsons("classify", "classify", stdin="".join(r[0] + "\n" for r in rows))]
        kinds = sorted(self.KINDS)
        self.assertEqual(figures["confusion"], [[sum(1 for (_, g), p in zip(rows, said) if (g, p) == (gold, predicted))
                                                 for predicted in kinds] for gold in kinds])
        right = sum(g == p for (_, g), p in zip(rows, said))
        self.assertAlmostEqual(figures["accuracy"], right / 300)
        self.assertIn(f"accuracy      {100 * right / 300:.2f}%", text)
        self.assertAlmostEqual(figures["micro_f1"], right / 300)
        self.assertIn(f"micro_f1      {100 * right / 300:.2f}%", text)
        for i, c in enumerate(figures["classes"]):
            self.assertEqual(c["label"], kinds[i])
            self.assertEqual(c["gold"], 150)
            self.assertAlmostEqual(c["precision"], figures["confusion"][i][i] / c["predicted"])
            self.assertAlmostEqual(c["recall"], figures["confusion"][i][i] / 150)
            self.assertRegex(text, rf"(?m)^{c['label']} +{100 * c['precision']:.2f}% +{100 * c['recall']:.2f}% ")
            self.assertRegex(text, rf"(?m)^{c['label']} +{figures['confusion'][i][0]} +{figures['confusion'][i][1]}$")
        # Columns by other names, in a file without a header.
        self.write("bare.csv", "".join(f'{label},"{text}"\n' for text, label in rows))
        named = self.ask("eval", "classify", "--data", "bare.csv", "--columns", "kind,line", "--text-column", "line",
                         "--label-column", "kind", "--json").out
        self.assertEqual(json.loads(named), figures)
        self.write("long.tsv", "text\tlabel\n" + "fox " * 30 + "\ttool\n")
        self.assertIn("cut           1 were longer than 16 tokens", self.ask("eval", "classify", "--data", "long.tsv").out)
        self.refused("eval", self.run_dir("classify"), "--data", "long.tsv", "--strict", status=1, says=["long.tsv", "1 examples", "16 tokens"])
        self.refused("eval", self.run_dir("masked"), "--data", "long.tsv", "--strict", status=2, says=["--strict", "only for"])

    def test_eval_of_many_classes(self):
        self.write("config.toml", self.CONFIG)
        self.write("many.tsv", "text\tlabel\n" + "".join(f"{WORDS[i % 8]}\tc{i % 21}\n" for i in range(84)))
        self.ok("train", "config.toml", "--set", "train.objective=classify", "--set", "data.train=many.tsv", "--set",
                "train.steps=1", "--set", "train.out=many")
        text = self.ok("eval", "many", "--data", "many.tsv").out
        self.assertIn("classes       21: --json lists them", text)
        self.assertNotIn("precision", text)
        self.assertEqual(len(json.loads(self.ok("eval", "many", "--data", "many.tsv", "--json").out)["classes"]), 21)

    def test_eval_of_tags(self):
        figures, text = self.evaluated("tag", "tags.conll")
        self.assertEqual(set(figures), {"loss", "accuracy", "macro_f1", "micro_f1", "f1", "chunk_precision", "chunk_recall", "examples",
                                        "words", "cut", "missed", "classes", "confusion"})
        sentences = [[line.split("\t") for line in s.splitlines()]
                     for s in read_text(os.path.join(self.shared, "tags.conll")).split("\n\n")]
        self.assertEqual(figures["examples"], len(sentences))
        found = self.jsons("tag", "tag", stdin="".join(" ".join(w for w, _ in s) + "\n" for s in sentences))
        pairs = [(gold, tag) for s, f in zip(sentences, found) for (_, gold), tag in zip(s, f["tags"])]
        self.assertEqual(figures["words"], len(pairs))
        self.assertAlmostEqual(figures["accuracy"], sum(g == p for g, p in pairs) / len(pairs))
        self.assertIn(f"of            {len(pairs)} words in {len(sentences)} sentences", text)
        # Words that are cut away are wrong, and said to be.
        self.write("long.conll", "fox N O\n" * 40)
        arguments = ("eval", "tag", "--data", "long.conll", "--word-column", "1", "--tag-column", "3")
        cut = json.loads(self.ask(*arguments, "--json").out)
        self.assertEqual((cut["words"], cut["cut"]), (40, 1))
        self.assertGreaterEqual(cut["missed"], 26)
        self.assertEqual(sum(map(sum, cut["confusion"])), 40 - cut["missed"])
        self.assertLessEqual(cut["accuracy"], 1 - cut["missed"] / 40)
        # Nothing was found for them, so that they are missed, but not found wrongly.
        self.assertAlmostEqual(cut["micro_f1"], 2 * 40 * cut["accuracy"] / (40 + 40 - cut["missed"]))
        text = self.ask(*arguments).out
        self.assertIn(f"{cut['missed']} words beyond count as wrong", text)
        self.assertIn("(cut away)", text)

    def test_eval_of_answers(self):
        figures, text = self.evaluated("answer", "answers.tsv")
        self.assertEqual(set(figures), {"loss", "exact_match", "f1", "examples", "cut", "missed"})
        rows = [line.split("\t") for line in read_text(os.path.join(self.shared, "answers.tsv")).splitlines()[1:]]
        said = [f["answer"] for f in self.jsons("answer", "answer", stdin="".join(f"{q}\t{c}\n" for q, c, _ in rows))]

        def words(text):
            return [w for w in text.split() if w not in ("a", "an", "the")]
        exact = sum(words(a) == words(p) for (_, _, a), p in zip(rows, said)) / len(rows)
        self.assertAlmostEqual(figures["exact_match"], exact)
        self.assertGreaterEqual(figures["f1"], exact)
        self.assertIn(f"exact_match   {100 * exact:.2f}%", text)
        self.write("far.tsv", "q\tc\ta\nwhich tool\t" + "fox " * 30 + "saw\tsaw\n")
        arguments = ("eval", "answer", "--data", "far.tsv", "--text-column", "q", "--second-column", "c",
                     "--label-column", "a")
        far = json.loads(self.ask(*arguments, "--json").out)
        self.assertEqual((far["missed"], far["cut"], far["exact_match"], far["f1"], far["loss"]), (1, 1, 0, 0, 0))
        self.assertIn("1 of them lost the answer", self.ask(*arguments).out)

    def test_eval_of_hidden_tokens(self):
        figures, text = self.evaluated("masked", "lines.txt", "--separator", "\n")
        self.assertEqual(set(figures), {"loss", "perplexity", "hidden", "tokens", "sequences", "mask_rate", "seed"})
        self.assertAlmostEqual(figures["perplexity"], math.exp(figures["loss"]))
        self.assertIn(f"perplexity    {figures['perplexity']:.2f}", text)
        self.assertEqual(figures["sequences"], 300)
        other, _ = self.evaluated("masked", "lines.txt", "--separator", "\n", "--mask-seed", "5")
        self.assertNotEqual(other["loss"], figures["loss"])
        more, _ = self.evaluated("masked", "lines.txt", "--separator", "\n", "--mask-rate", "0.5")
        self.assertGreater(more["hidden"], 2 * figures["hidden"])
        # What is hidden, and so the loss, is what the validation of a run has.
        self.write("config.toml", self.CONFIG)
        self.ok("train", "config.toml", "--set", "train.objective=masked", "--set", f"data.train={self.shared}/lines.txt",
                "--set", f"data.valid={self.shared}/lines.txt", "--set", 'data.separator="\\n"', "--set", "train.steps=2",
                "--set", "train.out=run")
        valid = [r["valid_loss"] for r in map(json.loads, read(self.path("run/metrics.jsonl")).splitlines())
                 if "valid_loss" in r]
        again = json.loads(self.ok("eval", "run/last", "--data", f"{self.shared}/lines.txt", "--separator", "\n",
                                   "--batch-tokens", "300", "--json").out)
        self.assertAlmostEqual(again["loss"], valid[-1], places=5)

    def test_eval_refuses(self):
        def refuse(name, data, *arguments, says, status=1):
            self.refused("eval", self.run_dir(name), "--data", data, *arguments, says=says, status=status)
        classes, tags = (os.path.join(self.shared, f) for f in ("classes.tsv", "tags.conll"))
        for name, option, kinds in (("classify", "--beams=2", "an encoder-decoder"), ("classify", "--batch=2", "a language"),
                                    ("tag", "--text-column=a", "a classifier or a model that finds answers"),
                                    ("masked", "--tag-column=1", "a tagger"), ("answer", "--separator=x", "a masked"),
                                    ("pairs", "--mask-rate=0.1", "masked")):
            refuse(name, classes, option, status=2, says=[option.split("=")[0], f"only for", kinds])
        refuse("decoder", classes, "--target=a", says=["this checkpoint is a decoder", "trained on pairs"])
        self.write("odd.tsv", "text\tlabel\nfox\tfruit\nfox\tfrut\n")
        refuse("classify", "odd.tsv", says=["odd.tsv:3", "'frut'", "did you mean 'fruit'"])
        self.write("odd.conll", "fox O\n\nfox XX\n")
        refuse("tag", "odd.conll", says=["odd.conll:3", "'XX'"])
        refuse("classify", classes, "--label-column", "class", says=["classes.tsv", "'class'"])
        refuse("classify", "nowhere.tsv", says=["nowhere.tsv"])
        refuse("answer", classes, says=["classes.tsv", "'question'"])
        refuse("tag", tags, "--tag-column", "3", says=["tags.conll:1", "column 3"])
        refuse("masked", "empty.txt", says=["empty.txt"])
        refuse("classify", classes, "--mask-rate", "2", says=["--mask-rate"], status=2)

    def test_bad_lines(self):
        good = {"fill": {"text": "[MASK]"}, "classify": {"text": "a"}, "tag": {"text": "a"}, "embed": {"text": "a"},
                "answer": {"question": "a", "context": "b"}}
        for command, line in good.items():
            name, first = self.COMMANDS.get(command, "masked"), next(iter(line))
            good_line = json.dumps(line) + "\n\n"
            self.assertEqual(len(self.ask(command, name, "--json-lines", stdin=good_line).out.splitlines()), 2)
            for bad, says in (("{", "JSON"), ("[1]", "object"), ('"a"', "object"), (json.dumps({first: 3}), first),
                              (json.dumps({first + "x": "a"}), f'{first}')):
                self.refused(command, self.run_dir(name), "--json-lines", stdin=good_line + bad + "\n", status=1,
                             says=[":3", says])
            self.refused(command, self.run_dir(name), stdin=b"a\tb\n[MASK]\xff\tc\n", status=1, says=["UTF-8"])
            self.refused(command, self.run_dir(name), "--file", "nowhere.txt", status=1, says=["nowhere.txt"])
        self.refused("classify", self.run_dir("classify"), "--json-lines", status=1, says=[":1", "second"],
                     stdin='{"text": "a", "second": 3}\n')
        self.refused("answer", self.run_dir("answer"), "--json-lines", status=1, says=[":1", "expected a question"],
                     stdin='{"question": "a"}\n')

    def test_bad_training_data(self):
        def refuse(says, objective, *sets, status=1):
            arguments = [a for s in (f"train.objective={objective}", *sets) for a in ("--set", s)]
            self.refused("train", "config.toml", *arguments, says=says, status=status, allow_progress=True)
        self.write("config.toml", self.CONFIG)
        self.write("ragged.tsv", "text\tlabel\na\tb\nc\n")
        refuse(["ragged.tsv:3", "2 fields"], "classify", "data.train=ragged.tsv")
        self.write("empty.tsv", "text\tlabel\na\t\n")
        refuse(["empty.tsv:2", "'label'", "empty"], "classify", "data.train=empty.tsv")
        refuse(["empty.tsv", "'class'", "did you mean"], "classify", "data.train=empty.tsv", "data.label_column=class")
        self.write("header.tsv", "text\tlabel\n")
        refuse(["header.tsv", "no example"], "classify", "data.train=header.tsv")
        refuse(["text.txt", ".tsv"], "classify", "data.train=text.txt")
        self.write("ragged.conll", "a X\nb\n")
        refuse(["ragged.conll:2", "column 2"], "tag", "data.train=ragged.conll", "data.tag_column=2")
        self.write("answers.tsv", "question\tcontext\tanswer\nwho\tthe fox\tdog\n")
        refuse(["answers.tsv:2", "'dog'", "'context'"], "answer", "data.train=answers.tsv")
        refuse(["mask_rate", "masked"], "classify", "data.train=empty.tsv", "train.mask_rate=0.5", status=2)
        refuse(["objective", "'guess'"], "guess", "data.train=empty.tsv", status=2)
        refuse(["model.from", "nowhere"], "classify", "data.train=empty.tsv", "model.from=nowhere", status=2)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_labels_that_training_does_not_show(self):
        self.write("config.toml", self.CONFIG)
        self.write("train.tsv", "text\tlabel\n" + "a\tx\nb\ty\n" * 20)
        self.write("valid.tsv", "text\tlabel\na\tx\nc\tz\n")
        result = self.ok("train", "config.toml", "--set", "train.objective=classify", "--set", "data.train=train.tsv",
                         "--set", "data.valid=valid.tsv", "--set", "train.out=run", "--set", "train.steps=2")
        self.assertIn("of 3 classes (z never in training)", result.err)
        labels = [b["label"] for b in json.loads(self.ok("classify", "run", "--json", "--best", "9", stdin="a").out)["best"]]
        self.assertEqual(sorted(labels), ["x", "y", "z"])

    def test_overwritten_scores(self):
        self.write("config.toml", self.CONFIG)
        arguments = [a for s in (f"data.train={self.shared}/classes.tsv", "train.steps=2", "train.out=run")
                     for a in ("--set", s)]
        self.ok("train", "config.toml", *arguments, "--set", "train.objective=classify")
        self.assertIn("What was taken for what", read_text(self.path("run/report.html")))
        self.ok("train", "config.toml", *arguments, "--set", "train.objective=masked", "--overwrite")
        self.assertFalse(os.path.exists(self.path("run/evaluation.json")))
        self.assertNotIn("What was taken for what", read_text(self.path("run/report.html")))

    def test_from_another(self):
        self.write("config.toml", "".join(line + "\n" for line in self.CONFIG.splitlines() if "model." not in line))
        arguments = [a for s in ("train.objective=classify", f"data.train={self.shared}/classes.tsv", "train.steps=2",
                                 f"model.from={self.run_dir('masked')}", "train.out=run") for a in ("--set", s)]
        self.ok("train", "config.toml", *arguments)
        self.assertEqual(read(self.path("run/best/tokenizer.json")),
                         read(os.path.join(self.run_dir("masked"), "best/tokenizer.json")))
        self.ok("classify", "run", stdin="saw\n")
        self.refused("train", "config.toml", *arguments, "--set", "model.width=24", "--set", "train.out=other", status=2,
                     says=["model.width", "24", "16"])
        self.refused("train", "config.toml", *arguments, "--set", "tokenizer.path=x", "--set", "train.out=other", status=2,
                     says=["tokenizer.path", "model.from"])
        self.assertFalse(os.path.exists(self.path("other")))


class Score(FinishedRun):
    CHOICES = ["fox jumps", "lazy", "xx", " "]

    def score(self, *arguments, **options):
        return [json.loads(line) for line in self.ok("score", self.run_dir, *arguments, **options).out.splitlines()]

    def arguments(self, choices):
        return [a for c in choices for a in ("--choice", c)]

    def expected(self, prompt, choices):
        """log P of each choice by `qkv forward`, one at a time."""
        out = []
        for choice in choices:
            ids = [int(i) for i in self.ok("tokenizer", "encode", self.run_dir, stdin=prompt + choice).out.split()]
            self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [1, len(ids)], ids)}))
            self.ok("forward", self.run_dir, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
            (_, _, vocab), logits = load_safetensors(self.path("out.safetensors"))["logits"]
            total = 0
            for i in range(len(prompt), len(ids)):
                row = logits[(i - 1) * vocab:i * vocab]
                total += row[ids[i]] - math.log(sum(math.exp(z) for z in row))
            out.append(total)
        return out

    def test_equals_forward(self):
        expected = self.expected("the ", self.CHOICES)
        (answer,) = self.score("--prompt", "the ", *self.arguments(self.CHOICES), "--json")
        self.assertEqual([c["choice"] for c in answer["choices"]], self.CHOICES)
        for choice, log_p in zip(answer["choices"], expected):
            length = len(choice["choice"])
            self.assertAlmostEqual(choice["logprob"], log_p, delta=1e-4)
            self.assertAlmostEqual(choice["per_token"], log_p / length, delta=1e-4)
            self.assertAlmostEqual(choice["per_byte"], log_p / length, delta=1e-4)
            self.assertEqual(choice["tokens"], length)
        self.assertEqual(answer["best"], expected.index(max(expected)))
        self.assertEqual(answer["best_choice"], self.CHOICES[answer["best"]])

    def test_table(self):
        for by, key in (("sum", "logprob"), ("token", "per_token"), ("byte", "per_byte")):
            arguments = ["--prompt", "the ", *self.arguments(self.CHOICES[:2]), "--by", by]
            (answer,) = self.score(*arguments, "--json")
            values = [c[key] for c in answer["choices"]]
            self.assertEqual(answer["best"], values.index(max(values)))
            lines = self.ok("score", self.run_dir, *arguments).out.splitlines()[1:]
            self.assertEqual([line.startswith("*") for line in lines], [v == max(values) for v in values])
            self.assertIn(f"{values[0]:.4f}", lines[0])
            self.assertIn('"lazy"', lines[1])

    def test_json_lines(self):
        questions = [("the ", self.CHOICES), ("a", [" dog"]), ("fox\n", ["and", "then"])]
        lines = "\n".join(json.dumps({"prompt": p, "choices": c}) for p, c in questions)
        self.write("questions.jsonl", lines)
        answers = self.score("--file", "questions.jsonl")
        self.assertEqual(answers, self.score(stdin=lines + "\n\n"))
        self.assertEqual(len(answers), 3)
        for answer, (prompt, choices) in zip(answers, questions):
            self.assertEqual(answer["prompt"], prompt)
            (alone,) = self.score("--prompt", prompt, *self.arguments(choices), "--json")
            self.assertEqual(answer, alone)

    def test_examples(self):
        self.write("e.jsonl", '{"template": "{input} {output}", "separator": " "}\n{"input": "a", "output": "fox"}\n')
        (answer,) = self.score("--prompt", "the", "--choice", "dog", "--examples", "e.jsonl", "--json")
        (expected,) = self.expected("a fox the ", ["dog"])
        self.assertAlmostEqual(answer["choices"][0]["logprob"], expected, delta=1e-4)
        self.assertEqual(answer["prompt"], "the")

    def test_bad_input(self):
        score = ("score", self.run_dir)
        self.refused(*score, "--prompt", "a", "--choice", "", status=1, says="choice")
        self.refused(*score, "--prompt", "", "--choice", "a", status=1, says=["precedes", '"a"'])
        self.refused(*score, "--prompt", "a" * 17, "--choice", "a", status=1, says=["18", "context is 16"])
        self.refused(*score, "--file", "missing.jsonl", status=1, says="missing.jsonl")
        self.refused(*score, "--file", ".", status=1, says=".: cannot be read")
        for line, says in (("x", "JSON"), ("[1]", "object"), ("{}", "prompt"), ('{"prompt": 3}', "string"),
                           ('{"prompt": "a"}', "choices"), ('{"prompt": "a", "choices": []}', "choices"),
                           ('{"prompt": "a", "choices": "b"}', "list"),
                           ('{"prompt": "a", "choices": [3]}', "choices[0]"),
                           ('{"prompt": "a", "choices": ["b"], "gold": 0}', "gold"),
                           ('{"prompt": "a", "choices": [""]}', "no token")):
            with self.subTest(line=line):
                self.refused(*score, stdin="\n" + line, status=1, says=["standard input:2", says])


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


class Tokenize(FinishedRun):
    def test_round_trip_through_the_run(self):
        text = "the lazy dog\nsleeps"
        for directory in (self.run_dir, os.path.join(self.run_dir, "last")):
            ids = self.ok("tokenizer", "encode", directory, stdin=text).out
            self.assertEqual(len(ids.split()), len(text))
            self.assertEqual(self.ok("tokenizer", "decode", directory, stdin=ids).out, text)

    def test_json_lines(self):
        texts = ["the lazy dog\nsleeps", "", "a"]
        lines = "".join(json.dumps(t) + "\n" for t in texts)
        ids = self.ok("tokenizer", "encode", self.run_dir, "--jsonl", stdin=lines).out
        back = self.ok("tokenizer", "decode", self.run_dir, "--jsonl", stdin=ids).out
        self.assertEqual([json.loads(line) for line in back.splitlines()], texts)

    def test_pairs_details_and_the_lengths_that_the_file_names(self):
        self.write("corpus.txt", "the lazy dog sleeps on\n" * 4)
        self.ok("tokenizer", "train", "corpus.txt", "--type", "wordpiece", "--vocab-size", "60", "--out", "plain")
        document = json.loads(read(self.path("plain/tokenizer.json")))
        document["truncation"] = {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
        document["padding"] = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                               "pad_type_id": 0, "pad_token": "[PAD]"}
        os.mkdir(self.path("sized"))
        self.write("sized/tokenizer.json", json.dumps(document))
        lines = '["the lazy dog", "the dog sleeps"]\n"lazy dog"\n'
        encode = ("tokenizer", "encode", "sized", "--jsonl", "--details")
        whole, fitting = ([json.loads(line) for line in self.ok(*encode, *more, stdin=lines).out.splitlines()]
                          for more in ((), ("--fit",)))
        self.assertEqual([len(e["ids"]) for e in whole], [9, 4])
        self.assertEqual(whole[0]["type_ids"], [0] * 5 + [1] * 4)
        self.assertEqual(fitting[0]["tokens"], "[CLS] the [SEP] the dog [SEP]".split())
        self.assertEqual(fitting[1], {"ids": [0, 0] + whole[1]["ids"], "tokens": ["[PAD]"] * 2 + whole[1]["tokens"],
                                      "offsets": [[0, 0], [0, 0], [0, 0], [0, 4], [5, 8], [0, 0]],
                                      "type_ids": [0] * 6, "attention_mask": [0, 0, 1, 1, 1, 1]})
        text = self.ok("tokenizer", "encode", "sized", "--fit", stdin="the lazy dog sleeps on").out
        self.assertEqual(len(text.split()), 6)
        self.refused("tokenizer", "encode", "plain", "--fit", stdin="a", status=2, says=["--fit", "plain"])
        self.refused(*encode, stdin='["a"]\n', status=1, says=["standard input:1", "list of two"])

    def test_byte_level_takes_any_bytes_and_char_does_not(self):
        contents = b"caf\xe9 \xff\xfe"
        self.write("latin1.txt", contents)
        self.refused("tokenizer", "encode", self.run_dir, "latin1.txt", status=1, says=["latin1.txt", "UTF-8"])
        self.ok("tokenizer", "train", "--type", "byte", "--out", "bytes")
        ids = self.ok("tokenizer", "encode", "bytes", "latin1.txt").out
        self.assertEqual(len(ids.split()), len(contents))
        self.assertEqual(self.ok("tokenizer", "decode", "bytes", stdin=ids).raw_out, contents)

    def test_every_type_is_trained(self):
        text = "the lazy dog sleeps and the quick brown fox jumps over the lazy dog\n" * 20
        self.write("corpus.txt", text)
        for kind in ("bpe", "wordpiece", "unigram", "sentencepiece_bpe", "char", "byte", "word"):
            sized = kind not in ("char", "byte")
            self.ok("tokenizer", "train", "corpus.txt", "--type", kind, "--out", kind, "--special", "<unk>", "[UNK]",
                    *(["--vocab-size", "300"] if sized else []))
            ids = self.ok("tokenizer", "encode", kind, "--no-special", stdin="the lazy fox").out
            self.assertLessEqual(len(ids.split()), 13)
            self.assertEqual(self.ok("tokenizer", "decode", kind, stdin=ids).out.replace(" ", ""),
                             "t h e l a z y f o x".replace(" ", ""))
        self.assertTrue(os.path.exists(self.path("unigram/tokenizer.model")))
        model = self.ok("tokenizer", "encode", "unigram/tokenizer.model", "--jsonl", stdin='"the <unk>"\n').out
        self.assertGreater(len(json.loads(model)), 2)  # the library itself sees no special tokens
        train = ("tokenizer", "train", "corpus.txt", "--out", "t", "--type")
        self.refused(*train, "unigram", "--min-frequency", "3", status=2, says=["--min-frequency", "unigram"])
        self.refused(*train, "bpe", "--cased", status=2, says=["--cased", "bpe"])
        self.refused(*train, "wordpiece", "--vocab-size", "20", status=1, says=["20", "characters"])
        self.refused(*train, "sentencepiece_bpe", "--vocab-size", "200", status=1, says=["200", "bytes"])
        self.write("cut.model", "\n\x7f")
        self.refused("tokenizer", "encode", "cut.model", status=1, says=["cut.model", "SentencePiece"])

    def test_bad_input(self):
        encode, decode = ("tokenizer", "encode", self.run_dir), ("tokenizer", "decode", self.run_dir)
        self.refused("tokenizer", "encode", "missing", status=1, says="missing")
        self.refused(*encode, "missing.txt", status=1, says="missing.txt")
        self.refused(*encode, "--jsonl", stdin="not json\n", status=1, says=["standard input:1", "JSON"])
        self.refused(*encode, "--jsonl", stdin='"a"\n3\n', status=1, says=["standard input:2", "string"])
        self.refused(*decode, stdin="1 x", status=1, says=["standard input", '"x"'])
        self.refused(*decode, stdin="1 100000", status=1, says=["standard input", "100000"])
        self.refused(*decode, "--jsonl", stdin="[1]\n[-1]\n", status=1, says=["standard input:2", "-1"])
        self.refused("tokenizer", "train", "missing.txt", "--out", "t", status=1, says="missing.txt")
        self.refused("tokenizer", "train", "--out", "t", status=2, says="INPUT")
        self.refused("tokenizer", "train", "text.txt", "--out", "text.txt/t", status=1, says="text.txt/t")
        self.assertFalse(os.path.exists(self.path("t")))
        self.assert_no_leftovers()


class Inspect(FinishedRun):
    def test_run(self):
        out = self.ok("inspect", self.run_dir).out
        for part in ("gpt2", "layers      1", "width       16", "transformer.wte.weight", "parameters"):
            self.assertIn(part, out)

    def test_presets(self):
        self.write("t.txt", "the quick brown fox jumps over the lazy dog. " * 60)
        self.write("c.toml", """
data = { train = "t.txt", cache = false }
tokenizer.type = "char"
model = { context = 16, width = 16, layers = 1, heads = 2 }
train = { out = "p", steps = 3, batch = 2, warmup_steps = 1 }
""")
        self.ok("train", "c.toml", "--preset", "llama")
        self.assertEqual(json.loads(read(self.path("p/best/config.json")))["model_type"], "llama")
        out = self.ok("inspect", "p").out
        for part in ("hidden      64, silu, gated", "positions   rotary (8 of 8 columns, base 10000)", "norms       rms, pre"):
            self.assertIn(part, out)
        self.ok("train", "c.toml", "--set", "model.experts=3", "--set", "model.expert_hidden=8", "--set", "model.shared_hidden=4",
                "--set", "model.attention_cap=5", "--set", 'model.patterns=["window 4 global 1", "all"]', "--set", "train.out=m")
        out = self.ok("inspect", "m").out
        for part in ("experts     3 of 8 hidden, 2 of a token (softmax), beside 4 for all tokens", "caps        scores 5, logits 0",
                     "patterns    window 4 global 1, all in turn", "remembers   32 numbers a token"):
            self.assertIn(part, out)
        self.ok("train", "c.toml", "--preset", "deepseek-mla", "--set", "model.kv_latent=4", "--set", "model.rotary_width=2",
                "--set", "train.out=d")
        out = self.ok("inspect", "d").out
        for part in ("latents     4 wide for keys and values", "remembers   6 numbers a token"):
            self.assertIn(part, out)
        for run in ("m", "d"):
            self.assertGreaterEqual(len(self.ok("generate", run, "--prompt", "the", "--tokens", "9").out), 9)
        for name, settings, words in [("gopher", [], ["distances   transformer_xl, of all"]),
                                      ("gpt2", ["model.relative_attention=shaw", "model.relative_attention_distance=3"],
                                       ["distances   shaw, up to 3"]),
                                      ("gpt2", ["model.normalization=batch", "model.embedding_unit=true"], ["norms       batch, pre"]),
                                      ("gpt2", ["model.positions=rotary", "model.grid=4"], ["grid        rows of 4 tokens"])]:
            self.ok("train", "c.toml", "--preset", name, "--overwrite", "--set", "train.out=v",
                    *[part for s in settings for part in ("--set", s)])
            out = self.ok("inspect", "v").out
            for part in words:
                self.assertIn(part, out)
            self.assertGreaterEqual(len(self.ok("generate", "v", "--prompt", "the", "--tokens", "9").out), 9)
        self.write("e.toml", """
data = { train = "t.txt", cache = false }
tokenizer.vocab_size = 60
model = { context = 24, width = 16, layers = 1, heads = 2 }
train = { steps = 3, batch_tokens = 96, warmup_steps = 1 }
""")
        for name in ("xlnet", "deberta-v3", "longformer"):
            self.ok("train", "e.toml", "--preset", name, "--set", "train.out=" + name)
            self.ok("fill", name, stdin="the quick [MASK] fox\n")
        # Rotary positions do not end with the context.
        self.assertGreaterEqual(len(self.ok("generate", "p", "--prompt", "the", "--tokens", "40").out), 40)
        self.refused("train", "c.toml", "--preset", "lama", status=2, says=["c.toml", "preset", "llama", "lama"])
        self.refused("train", "c.toml", "--preset", "llama", "--set", "model.norm=post", "--set", "model.branches=one_norm",
                     "--set", "train.out=q", status=2, says=["branches", "pre-norms"])
        self.assertFalse(os.path.exists(self.path("q")))

    def test_safetensors_file(self):
        self.write("x.safetensors", safetensors_bytes({"a": ("F32", [2, 3], [0] * 6)}))
        out = self.ok("inspect", "x.safetensors").out
        self.assertIn("[2, 3]", out)
        self.assertIn("1 tensors, 6 elements, 24 bytes", out)

    def test_bad_input(self):
        self.refused("inspect", "missing", status=1, says="missing")
        self.refused("inspect", "text.txt", status=1, says="text.txt")
        self.refused("inspect", ".", status=1, says="config.json")


# ---- Stopping and going on


class Resume(CliTest):
    FILES = ["last/model.safetensors", "last/optimizer.safetensors", "last/config.json", "last/tokenizer.json",
             "last/trainer_state.json", "best/model.safetensors"]

    def start(self, *arguments):
        """A run in the background; returns when its first step is done."""
        process = subprocess.Popen([QKV, "train", "config.toml", "--threads", "1", *arguments], cwd=self.folder,
                                   env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
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
            self.assertEqual(process.wait(timeout=60), 0, rest)
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
            process.wait(timeout=60)
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


# ---- Bad input to training


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
        self.refused("train", "config.toml", "--set", "train.objective=sequence_to_sequence", "--set", "train.window=8",
                     "--set", "train.batch=16", status=2, says=["train.window", "next_token"])

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

    def test_byte_level_tokenizers_take_any_bytes(self):
        self.write("latin1.txt", b"the caf\xe9 \xff" * 50)
        for kind, size in (("byte", 300), ("bpe", 300)):
            self.train(out=kind, steps=2, data__train="latin1.txt", tokenizer__type=kind, tokenizer__vocab_size=size)

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


# ---- forward


class Forward(FinishedRun):
    IDS = ("I64", [2, 3], [1, 2, 3, 4, 5, 6])

    def forward(self, tensors, *arguments, directory=None):
        self.write("in.safetensors", tensors if isinstance(tensors, bytes) else safetensors_bytes(tensors))
        return ["forward", directory or self.run_dir, "--inputs", "in.safetensors", "--outputs", "out.safetensors",
                *arguments]

    def outputs(self, tensors, *arguments):
        self.ok(*self.forward(tensors, *arguments))
        return load_safetensors(self.path("out.safetensors"))

    def refuse(self, tensors, says, *arguments, status=1, directory=None):
        with self.subTest(says=says):
            self.refused(*self.forward(tensors, *arguments, directory=directory), status=status, says=says)
            self.assertFalse(os.path.exists(self.path("out.safetensors")), "outputs of a failed command")
            self.assert_no_leftovers()

    def test_outputs(self):
        out = self.outputs({"input_ids": self.IDS, "labels": self.IDS}, "--hidden-states", "--attentions",
                           "--gradients")
        vocabulary = out["logits"][0][2]
        self.assertEqual(out["logits"][0], [2, 3, vocabulary])
        self.assertEqual(out["hidden_states.0"][0], [2, 3, 16])
        self.assertEqual(out["hidden_states.1"][0], [2, 3, 16])
        self.assertEqual(out["attentions.0"][0], [2, 2, 3, 3])
        self.assertEqual(out["grad.transformer.wte.weight"][0], [vocabulary, 16])
        self.assertAlmostEqual(out["attentions.0"][1][0], 1.0)  # the first position sees itself only
        self.assertEqual(out["attentions.0"][1][1:3], [0, 0])

    def test_i32_ids_and_padding(self):
        plain = self.outputs({"input_ids": self.IDS})["logits"][1]
        self.assertEqual(self.outputs({"input_ids": ("I32", *self.IDS[1:])})["logits"][1], plain)
        padded = self.outputs({"input_ids": ("I64", [1, 5], [0, 4, 5, 6, 0]),
                               "attention_mask": ("I64", [1, 5], [0, 1, 1, 1, 0])})["logits"]
        width = padded[0][2]
        for a, b in zip(padded[1][width:4 * width], plain[3 * width:]):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_routers(self):
        self.write("text.txt", make_text())
        self.write("mixture.toml", configuration(out="mixture", model__experts=4, model__expert_hidden=8, model__layers=2))
        self.ok("train", "mixture.toml")

        def of(*ids, mask):
            self.ok(*self.forward({"input_ids": ("I64", [1, len(ids)], ids), "attention_mask": ("I64", [1, len(ids)], mask)},
                                  "--hidden-states", directory="mixture"))
            return load_safetensors(self.path("out.safetensors"))
        alone, padded, other = of(3, 4, 5, mask=[1, 1, 1]), of(3, 4, 5, 0, 0, mask=[1, 1, 1, 0, 0]), of(
            3, 4, 5, 1, 0, mask=[1, 1, 1, 0, 0])
        self.assertEqual(padded["router_logits.1"][0], [5, 4])
        loads, mean = [[0.0] * 4, [0.0] * 4], [0.0] * 4
        for layer in ("router_logits.0", "router_logits.1"):
            rows = [padded[layer][1][4 * i:4 * i + 4] for i in range(5)]
            for a, b in zip(alone[layer][1], sum(rows[:3], [])):
                self.assertAlmostEqual(a, b, delta=1e-5)
            # Padding is computed, and seen by none: not even by the padding behind it.
            changed = other[layer][1]
            self.assertTrue(any(abs(a - b) > 1e-4 for a, b in zip(rows[3], changed[12:16])))
            for a, b in zip(sum(rows[:3], []) + rows[4], changed[:12] + changed[16:]):
                self.assertAlmostEqual(a, b, delta=1e-5)
            for row in rows[:3]:
                total = sum(map(math.exp, row))
                for rank, expert in enumerate(sorted(range(4), key=lambda j: -row[j])[:2]):
                    loads[rank][expert] += 1 / 6
                for j in range(4):
                    mean[j] += math.exp(row[j]) / total / 6
        self.assertAlmostEqual(padded["aux_loss"][1][0], 4 * sum(f[j] * mean[j] for f in loads for j in range(4)), places=5)

    def test_generate(self):
        (shape, values) = self.outputs({"input_ids": self.IDS}, "--generate", "max_new_tokens=4,eos_token_id=null"
                                       )["sequences"]
        self.assertEqual(shape, [2, 7])
        self.assertEqual(values[:3], [1, 2, 3])

    def test_ids(self):
        for extra in ([], ["--generate", "max_new_tokens=2"]):
            self.refuse({"input_ids": ("I64", [1, 2], [1, 500])}, ["in.safetensors", "input_ids", "500"], *extra)
            self.refuse({"input_ids": ("I64", [1, 2], [1, -1])}, ["in.safetensors", "input_ids", "-1"], *extra)
            self.refuse({"input_ids": ("I64", [1, 2], [1, 1 << 40])}, ["in.safetensors", "input_ids"], *extra)
        self.refuse({"input_ids": ("I64", [1, 17], [1] * 17)}, ["in.safetensors", "input_ids", "17", "context"])
        self.refuse({"ids": self.IDS}, ["in.safetensors", "input_ids", "missing"])
        self.refuse({"input_ids": ("F32", [1, 2], [1, 2])}, ["in.safetensors", "input_ids", "I64", "f32"])
        self.refuse({"input_ids": ("I64", [3], [1, 2, 3])}, ["in.safetensors", "input_ids", "[batch, length]"])

    def test_masks_and_labels(self):
        def with_(**others):
            return {"input_ids": self.IDS, **others}
        mask, labels = ["in.safetensors", "attention_mask"], ["in.safetensors", "labels"]
        self.refuse(with_(attention_mask=("I64", [1, 3], [1] * 3)), mask)
        self.refuse(with_(attention_mask=("I64", [2, 3], [1, 1, 7, 1, 1, 1])), [*mask, "7"])
        self.refuse(with_(attention_mask=("F32", [2, 3], [1] * 6)), [*mask, "f32"])
        self.refuse(with_(attention_mask=("I64", [2, 3], [0] * 3 + [1] * 3)), ["in.safetensors", "row 0"],
                    "--generate", "max_new_tokens=2")
        self.refuse(with_(labels=("I64", [2, 3], [500] * 6)), [*labels, "500"])
        self.refuse(with_(labels=("I64", [2, 2], [1] * 4)), labels)
        self.refuse(with_(labels=("F32", [2, 3], [1] * 6)), [*labels, "f32"])
        self.refuse(with_(labels=("I64", [2, 3], [-100] * 6)), [*labels, "-100"])
        self.refuse(with_(), [*labels, "missing"], "--gradients")

    def test_generation_settings(self):
        for settings in ("max_new_tokens", "max_new_tokens=x", "max_new_tokens=3x", "max_new_tokens=0",
                         "temperature=nan", "top_k=-1", "pad_token_id=-5", "eos_token_id=-2", "do_sample=maybe",
                         "num_beams=0", "no_such_setting=1"):
            self.refuse({"input_ids": self.IDS}, ["--generate", settings.split("=")[0]], "--generate", settings,
                        status=2)

    def test_damaged_safetensors(self):
        intact = safetensors_bytes({"input_ids": self.IDS})

        def entry(shape="[2]", offsets="[0, 16]", dtype='"I64"', name="input_ids"):
            return f'"{name}": {{"dtype": {dtype}, "shape": {shape}, "data_offsets": {offsets}}}'

        def header(*entries):
            return with_header(("{" + ", ".join(entries) + "}").encode(), bytes(16))

        cases = {
            "empty file": b"",
            "no header": b"abcd",
            "truncated header": intact[:20],
            "truncated data": intact[:-5],
            "surplus data": intact + b"xx",
            "header longer than the file": struct.pack("<Q", 1 << 20) + b"{}",
            "header longer than anything": struct.pack("<Q", (1 << 64) - 1) + b"{}",
            "header is not JSON": with_header(b'{"a'),
            "header is a list": with_header(b"[]"),
            "header nested deeply": with_header(b'{"a":' * 5000),
            "header is not UTF-8": with_header(b'{"\xff\xfe": 3}'),
            "shape larger than the data": header(entry("[200]")),
            "shape that overflows": header(entry("[4611686018427387904, 4]")),
            "shape that wraps to nothing": header(entry("[65536, 65536, 65536, 65536]", "[0, 0]")),
            "negative shape": header(entry("[-2]")),
            "shape of strings": header(entry('["2"]')),
            "six axes": header(entry("[1, 1, 1, 1, 1, 2]")),
            "offsets beyond the end": header(entry(offsets="[8, 24]")),
            "offsets backwards": header(entry(offsets="[16, 0]")),
            "negative offsets": header(entry(offsets="[-16, 0]")),
            "one offset": header(entry(offsets="[0]")),
            "unknown dtype": header(entry(dtype='"F4"')),
            "dtype is a number": header(entry(dtype="3")),
            "entry is a number": header('"input_ids": 3'),
            "overlap": header(entry(), entry(name="other")),
            "a gap": header(entry("[1]", "[8, 16]")),
            "same name twice": header(entry("[1]", "[0, 8]"), entry("[1]", "[8, 16]")),
        }
        for name, contents in cases.items():
            with self.subTest(case=name):
                self.refuse(contents, ["in.safetensors"])
        self.refused("forward", self.run_dir, "--inputs", "missing", "--outputs", "out.safetensors", status=1,
                     says="missing")

    def test_unwritable_outputs(self):
        self.write("in.safetensors", safetensors_bytes({"input_ids": self.IDS}))
        self.refused("forward", self.run_dir, "--inputs", "in.safetensors", "--outputs", "text.txt/out", status=1,
                     says="text.txt/out")

    def test_model_directories(self):
        last = os.path.join(self.run_dir, "last")
        config = json.loads(read(os.path.join(last, "config.json")))
        weights = read(os.path.join(last, "model.safetensors"))

        def refuse(says, file, contents):
            shutil.rmtree(self.path("m"), ignore_errors=True)
            shutil.copytree(last, self.path("m"))
            if contents is None:
                os.remove(self.path("m", file))
            else:
                self.write("m/" + file, json.dumps(contents) if isinstance(contents, (dict, list)) else contents)
            self.refuse({"input_ids": self.IDS}, says, directory="m")
            if file == "config.json":
                self.refused("inspect", "m", status=1, says=says)

        refuse(["m", "config.json"], "config.json", None)
        name = "m/config.json"
        refuse([name, "JSON"], "config.json", '{"a":')
        refuse([name, "JSON"], "config.json", "")
        refuse([name, "JSON"], "config.json", b'{"model_type": "\xff"}')
        refuse([name, "object"], "config.json", [1])
        refuse([name, "model_type"], "config.json", {})
        refuse([name, "model_type", "gpt2"], "config.json", dict(config, model_type="gpt9"))
        refuse([name, "model_type"], "config.json", dict(config, model_type=3))
        refuse([name, "n_embd", "integer"], "config.json", dict(config, n_embd="16"))
        refuse([name, "n_embd", "integer"], "config.json", dict(config, n_embd=16.5))
        refuse([name, "layer_norm_epsilon"], "config.json", dict(config, layer_norm_epsilon="small"))
        refuse([name, "activation_function"], "config.json", dict(config, activation_function="mish"))
        refuse([name, "heads"], "config.json", dict(config, n_head=3))
        refuse([name, "heads"], "config.json", dict(config, n_head=0))
        refuse([name, "n_embd"], "config.json", dict(config, n_embd=-16))
        refuse([name, "vocab_size"], "config.json", dict(config, vocab_size=1 << 61))
        name = "m/model.safetensors"
        refuse([name, "missing"], "model.safetensors", None)
        refuse([name], "model.safetensors", weights[:-10])
        refuse([name, "missing"], "model.safetensors", safetensors_bytes({}))
        for field, value in (("n_layer", 2), ("vocab_size", 500), ("n_embd", 32), ("n_positions", 8)):
            shutil.rmtree(self.path("m"), ignore_errors=True)
            shutil.copytree(last, self.path("m"))
            self.write("m/config.json", json.dumps(dict(config, **{field: value})))
            self.refuse({"input_ids": self.IDS}, [name, "transformer."], directory="m")

    def test_pickled_weights_are_not_read(self):
        shutil.copytree(os.path.join(self.run_dir, "last"), self.path("m"))
        os.rename(self.path("m/model.safetensors"), self.path("m/pytorch_model.bin"))
        self.refuse({"input_ids": self.IDS}, ["pytorch_model.bin", "safetensors"], directory="m")


def main():
    global QKV
    if len(sys.argv) < 2 or not os.path.isfile(sys.argv[1]):
        print(__doc__)
        return 2
    QKV = os.path.abspath(sys.argv.pop(1))
    program = unittest.main(exit=False, verbosity=2, buffer=False)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
