"""Runs the command-line tool as a user does: what the tests of all commands share.

Plain python3. Every test works in a folder of its own; everything runs on one thread so that runs can be compared
bit for bit.
"""
import array
import io
import json
import math
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

QKV = ""
WORDS = "the quick brown fox jumps over a lazy dog and then it sleeps".split()
CACHE = tempfile.TemporaryDirectory(prefix="qkv_cli_cache_")  # tokenized texts, not among the user's own
SLOWNESS = int(os.environ.get("QKV_TEST_SLOWNESS", "1"))  # factor by which a sanitizer slows the build down
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"QKV_CACHE_DIR": CACHE.name}
# For processes that are killed or may not write: their coverage data may be cut short, so it is kept apart.
CUT_SHORT = ENVIRONMENT | {"GCOV_PREFIX": CACHE.name}


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


def command(*arguments, threads=1):
    return [QKV, *arguments] + (["--threads", str(threads)] if threads else [])


def run_qkv(*arguments, stdin="", cwd=None, threads=1, timeout=120, memory=None):
    """`memory`: bytes that the process may write to, files that it maps aside."""
    if memory and SLOWNESS > 1:
        raise unittest.SkipTest("a sanitizer's shadow takes more memory than this test allows")
    run = command(*arguments, threads=threads)
    limit = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))) if memory else None
    done = subprocess.run(run, input=stdin.encode() if isinstance(stdin, str) else stdin, capture_output=True, cwd=cwd,
                          env=ENVIRONMENT, timeout=timeout * SLOWNESS, preexec_fn=limit)
    return Result(run, done.returncode, done.stdout, done.stderr)


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


def pytorch_bytes(tensors):
    """A file as torch.save() writes it: name -> (shape, values), in f32."""
    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def numbers(values):
        return b"(" + b"".join(b"J" + struct.pack("<i", v) for v in values) + b"t"

    table, storages = b"\x80\x02}(", []
    for name, (shape, values) in tensors.items():
        strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
        storage = (b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(str(len(storages))) + text("cpu") + b"J"
                   + struct.pack("<i", len(values)) + b"tQ")
        table += (text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + numbers(shape) + numbers(strides)
                  + b"\x89ccollections\nOrderedDict\n)RtR")
        storages.append(struct.pack(f"<{len(values)}f", *values))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", table + b"u.")
        for i, storage in enumerate(storages):
            archive.writestr(f"archive/data/{i}", storage)
    return out.getvalue()


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
    """Reads what the other side wrote; nothing when it is closed."""
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


class EncoderTest(CliTest):
    """Encoders with heads, and models of other kinds. All tests of a class share the runs, which no test changes."""

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
    RUNS = {
        "masked": ["train.objective=masked", "data.train=lines.txt", 'data.separator="\\n"'],
        "classify": ["train.objective=classify", "data.train=classes.tsv", "data.test_fraction=0.1", "train.steps=100"],
        "tag": ["train.objective=tag", "data.train=tags.conll"],
        "answer": ["train.objective=answer", "data.train=answers.tsv"],
        "decoder": ["model.architecture=decoder", "data.train=text.txt", "tokenizer.type=char",
                    "train.steps=1", "model.width=8"],
        "pairs": ["model.architecture=encoder_decoder", "data.train=pairs.tsv", "tokenizer.type=byte", "train.steps=1"],
        "tag2": ["train.objective=tag", "data.train=tags.conll", "train.seed=2", "train.steps=6"],
        "answer2": ["train.objective=answer", "data.train=answers.tsv", "train.seed=2", "train.steps=6"],
        "answer_of_bytes": ["train.objective=answer", "data.train=answers.tsv", "tokenizer.type=byte", "train.steps=1",
                            "model.context=48"],
        "pairs2": ["model.architecture=encoder_decoder", "data.train=pairs.tsv", "tokenizer.type=byte", "train.steps=1",
                   "train.seed=2"],
        "decoder2": ["model.architecture=decoder", "data.train=text.txt", "tokenizer.type=char",
                     "train.steps=1", "model.width=8", "train.seed=2"],
        "decoder_of_bytes": ["model.architecture=decoder", "data.train=text.txt", "tokenizer.type=byte", "train.steps=1", "model.width=8"],
        "second": ["train.objective=classify", "data.train=classes.tsv", "train.seed=2", "train.steps=4"],
        "numbers": ["train.objective=classify", "data.train=numbers.tsv", "train.steps=1"],
    }
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
                 "text.txt": make_text(), "config.toml": cls.CONFIG,
                 "windows.toml": cls.CONFIG.replace("train.batch_tokens = 300\n", "")}
        for name, contents in files.items():
            write(os.path.join(cls.shared, name), contents)
        cls.trained = {}

    def training(self, name):
        """How the training of one of RUNS ended, which happens when a test first asks for it."""
        if name not in self.trained:
            arguments = [a for s in (f"train.out={name}", *self.RUNS[name]) for a in ("--set", s)]
            config = "windows.toml" if "data.train=text.txt" in self.RUNS[name] else "config.toml"
            result = run_qkv("train", config, *arguments, cwd=self.shared)
            self.assertEqual(result.status, 0, result)
            self.trained[name] = result
        return self.trained[name]

    def run_dir(self, name):
        self.training(name)
        return os.path.join(self.shared, name)

    def ask(self, command, name, *arguments, **options):
        return self.ok(command, self.run_dir(name), *arguments, **options)

    def jsons(self, command, name, *arguments, **options):
        return [json.loads(line) for line in self.ask(command, name, "--json", *arguments, **options).out.splitlines()]


def main():
    """Runs the tests of the script that calls this."""
    global QKV
    if len(sys.argv) < 2 or not os.path.isfile(sys.argv[1]):
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} QKV [unittest arguments, e.g. -k resume]")
    QKV = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
