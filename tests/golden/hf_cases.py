"""Cases of Hugging Face models: the folders of tests/golden/hf and of $QKV_REFERENCE/hf, and how qkv's values are compared with theirs."""
import array
import json
import math
import os
import struct
import subprocess
import tempfile

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf")
# Searches by a release in which beams that have not ended compete in the last step, although enough others have ended
# and early_stopping is on. qkv stops there, as other releases do: the last token of a row differs.
SEARCHED_OTHERWISE = {("led", "beam4_eos_lp2")}
BOUND = 3e-4  # relative to a tensor's largest expected magnitude
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "pixel_values", "input_features",
          "global_attention_mask")
BUFFERS = {"grad.final_logits_bias"}  # theirs is no parameter, and has no gradient
LETTERS = {"F32": "f", "I64": "q", "I32": "i"}


def load(path):
    """name -> (dtype, shape, values), and the metadata"""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    metadata = header.pop("__metadata__", {})
    return {name: (entry["dtype"], entry["shape"], array.array(LETTERS[entry["dtype"]], data[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}, metadata


def save(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(values) * values.itemsize]}
        offset += len(values) * values.itemsize
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, values in tensors.values():
            file.write(values.tobytes())


class Case:
    """One folder: a model, what goes in, and what is expected."""

    def __init__(self, root, name):
        self.name, self.dir = name, os.path.join(root, name)
        with open(os.path.join(self.dir, "config.json"), encoding="utf8") as file:
            self.config = json.load(file)
        with open(os.path.join(self.dir, "meta.json"), encoding="utf8") as file:
            self.meta = json.load(file)
        self.expected, self.metadata = load(os.path.join(self.dir, "expected.safetensors"))

    @property
    def family(self):
        return self.config["model_type"]

    @property
    def writes(self):
        """True if its head writes the next token, a masked one or a target."""
        head = self.config["architectures"][0]
        return self.meta["kind"] in ("causal", "encdec", "whisper") or head.endswith("ForMaskedLM")

    def inputs(self):
        return {name: tensor for name, tensor in self.expected.items() if name in INPUTS or name.startswith("rotations.")}

    def left_out(self):
        """Names of tensors whose expected values the case goes without."""
        return set(self.metadata.get("left_out", "").split())

    def runs(self):
        """Generation runs: their names."""
        return sorted(n[len("gen."):-len(".sequences")] for n in self.expected if n.startswith("gen.") and n.endswith(".sequences"))


def cases_of(root):
    return [Case(root, name) for name in sorted(os.listdir(root)) if os.path.isdir(os.path.join(root, name))]


def forward(qkv, case, inputs, options=()):
    """Outputs of `qkv forward`, and why it failed ("": it did not)."""
    with tempfile.TemporaryDirectory() as scratch:
        given, made = os.path.join(scratch, "in.safetensors"), os.path.join(scratch, "out.safetensors")
        save(given, inputs)
        done = subprocess.run([qkv, "forward", case.dir, "--inputs", given, "--outputs", made, *options], capture_output=True,
                              text=True, timeout=300)
        if done.returncode != 0:
            return {}, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return load(made)[0], ""


def is_read(qkv, case):
    """True if qkv reads the case's family."""
    return forward(qkv, case, case.inputs())[1].find("is not supported") < 0


def real_places(shape, mask):
    """For each element whether it counts: rows of padding are each implementation's own."""
    count = math.prod(shape)
    if mask is not None and len(shape) == 4 and [shape[0], shape[2]] == mask[1]:
        heads, width, rows = shape[1], shape[3], shape[2]
        return [mask[2][i // width // rows // heads * rows + i // width % rows] != 0 for i in range(count)]
    if mask is not None and len(shape) >= 2 and shape[:2] == mask[1]:
        width = math.prod(shape[2:])
        return [mask[2][i // width] != 0 for i in range(count)]
    return [True] * count


def without_padded_queries(got, want):
    """For each element of probabilities by chunks [B, heads, chunks, queries, keys] if it counts: rows that qkv left 0 are padding."""
    width = want[1][-1]
    rows = [any(got[2][i:i + width]) for i in range(0, len(got[2]), width)]
    return [row for row in rows for _ in range(width)]


def deviation(got, want, mask=None):
    """The largest difference over the largest magnitude of `want`; infinite where a value is missing or not finite."""
    if got is None or len(got[2]) != len(want[2]):
        return math.inf
    scale, largest = 1e-6, 0.0
    real_ones = without_padded_queries(got, want) if mask is not None and len(want[1]) == 5 else real_places(want[1], mask)
    for g, w, real in zip(got[2], want[2], real_ones):
        if not real:
            continue
        if not math.isfinite(g):
            return math.inf
        scale, largest = max(scale, abs(w)), max(largest, abs(g - w))
    return largest / scale


def compared_names(case):
    """Outputs that are compared. BigBird stores the probabilities of only one copy of a random block, though all copies count."""
    sparse = case.config.get("attention_type") == "block_sparse"
    return [n for n in case.expected if n.startswith("f64.") and not (sparse and "attentions" in n)]


def outputs(qkv, case):
    """(tensor, deviation) of each output, hidden state and attention that is expected."""
    got, why = forward(qkv, case, case.inputs(), ("--hidden-states", "--attentions"))
    if why:
        yield why, math.inf
    for name in compared_names(case) if not why else ():
        key = name[len("f64."):]
        of_decoder = "decoder_input_ids" in case.expected and not key.startswith("encoder_")
        yield key, deviation(got.get(key), case.expected[name], None if of_decoder else case.expected.get("attention_mask"))


def training(qkv, case):
    """(tensor, deviation) of the loss and each gradient. Every gradient must be expected, or named as left out."""
    inputs = {n: t for n, t in case.inputs().items() if n != "decoder_input_ids"}
    inputs["labels"] = case.expected["train.labels"]
    got, why = forward(qkv, case, inputs, ("--gradients",))
    if why:
        yield why, math.inf
        return
    yield "loss", deviation(got.get("loss"), case.expected["train.loss"])
    expected = {n[len("train."):] for n in case.expected if n.startswith("train.grad.")}
    for name in sorted(expected):
        yield name, deviation(got.get(name), case.expected["train." + name])
    known = expected | BUFFERS | {name[len("train."):] for name in case.left_out() if name.startswith("train.")}
    for name in sorted(n for n in got if n.startswith("grad.") and n not in known):
        yield name + " is not expected", math.inf


def generation(qkv, case):
    """(run, deviation) of each: 0 for the same ids."""
    for run in case.runs():
        if (case.name, run) in SEARCHED_OTHERWISE:
            continue
        inputs = case.inputs()
        inputs.pop("decoder_input_ids", None)
        if any(f"gen.{begin}.input_ids" in case.expected for begin in ("greedy", run)):
            inputs.pop("attention_mask", None)  # that of other rows
        for name in ("input_ids", "attention_mask", "decoder_input_ids"):
            for begin in ("greedy", run):  # a run without inputs of its own has those of the first
                if f"gen.{begin}.{name}" in case.expected:
                    inputs[name] = case.expected[f"gen.{begin}.{name}"]
        settings = case.meta["generation"][run]
        said = ",".join(f"{k}={json.dumps(v)}" for k, v in settings.items() if k != "inputs" and not isinstance(v, (list, dict)))
        got, why = forward(qkv, case, inputs, ("--generate", said))
        same = not why and got["sequences"][2] == case.expected[f"gen.{run}.sequences"][2]
        yield f"{run} {why}".strip(), 0.0 if same else math.inf


def compare(qkv, case):
    """Prints a line for each kind of values; the number of those that differ."""
    kinds = {"outputs": outputs}
    if "train.loss" in case.expected:
        kinds["training"] = training
    if case.runs():
        kinds["generation"] = generation
    differ = 0
    for kind, values in kinds.items():
        found = list(values(qkv, case))
        worst, most = max(found, key=lambda v: v[1], default=("nothing to compare", math.inf))
        good = most <= BOUND
        differ += not good
        print(f"{'ok  ' if good else 'FAIL'} {case.name}: {kind}: {len(found)} compared, at most {most:.2e} ({worst})", flush=True)
    return differ
