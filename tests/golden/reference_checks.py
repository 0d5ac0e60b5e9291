#!/usr/bin/env python3
"""Compares the built tool with Hugging Face's models, and trains, writes and reads those models again.

usage: reference_checks.py QKV

The cases of tests/golden/hf are always compared: at least one of each family. With $QKV_REFERENCE the checks run over
the cases of $QKV_REFERENCE/hf, too, and the checkers that come with them run (check/, hf/, tokenizers/).
"""
# Covers: qkv/bridge/forward_clip.cc
import json
import os
import shutil
import subprocess
import sys
import tempfile

import hf_cases

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Cases and vocabularies that need no settings beside them.
TOKENIZER_CASES = {"gpt2": "gpt2", "llamacpp_gpt2": "gpt2", "bert_uncased": "bert_uncased", "llama": "llama", "clip": "clip"}


def families(qkv):
    """The model types that qkv reads: its own message lists them. CLIP, a directory of two models, is not among them."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf8") as file:
            file.write('{"model_type": "none"}')
        said = subprocess.run([qkv, "inspect", folder], capture_output=True, text=True).stderr
    return set(said.strip().split("qkv reads ")[-1].split(", ")) | {"clip"}


def families_without_case(qkv, golden):
    """Families of which tests/golden/hf has none. "qkv" is the form of models that no other family describes."""
    known = families(qkv)
    missing = sorted(known - {"qkv"} - {case.family for case in golden})
    print(f"{len(known)} families")
    for family in missing:
        print(f"FAIL {family}: tests/golden/hf has no case: copy one with tools/thin_reference.py")
    return len(missing) + (len(known) < 40)


def supported(qkv, root):
    """The cases of families that qkv reads; the names of the others are printed."""
    known, found, others = families(qkv), [], []
    for case in hf_cases.cases_of(root):
        (found if case.family in known else others).append(case)
    print(f"{len(found)} cases in {root}; not compared:", " ".join(case.name for case in others))
    return found


def not_as_thinned(reference):
    """Files of tests/golden/hf that are not what tools/thin_reference.py makes of the reference."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "hf")
        shutil.copytree(hf_cases.GOLDEN, made)
        subprocess.run([sys.executable, os.path.join(ROOT, "tools", "thin_reference.py"), os.path.join(reference, "hf"), made], check=True,
                       capture_output=True)
        for case in hf_cases.cases_of(made):
            for name in sorted(os.listdir(case.dir)):
                with open(os.path.join(case.dir, name), "rb") as new, open(os.path.join(hf_cases.GOLDEN, case.name, name), "rb") as held:
                    if new.read() != held.read():
                        print(f"FAIL {case.name}/{name}: thin_reference.py makes another")
                        differ += 1
    return differ


def commands(qkv, reference, cases):
    """hf_cases.py alone compares what depends on inputs that check_forward.py does not hand on: the tokens Whisper
    begins with, and Reformer's rotations."""
    check = os.path.join(reference, "check")
    cases = [c for c in cases if not any(name.startswith("rotations.") for name in c.expected)]
    has = {"": cases, "--inner": cases, "--train": [c for c in cases if "train.loss" in c.expected],
           "--generate": [c for c in cases if c.runs() and c.meta["kind"] != "whisper"
                         and c.name not in {name for name, _ in hf_cases.SEARCHED_OTHERWISE}]}
    for mode, of_mode in has.items():
        yield [sys.executable, os.path.join(check, "check_forward.py"), qkv, os.path.join(reference, "hf"),
               *mode.split(), "--all", *(c.name for c in of_mode)]
    for cases, vocabulary in TOKENIZER_CASES.items():
        yield [sys.executable, os.path.join(check, "check_tokenizer.py"), qkv,
               os.path.join(reference, "tokenizers", "vocab", vocabulary),
               os.path.join(reference, "tokenizers", "cases", cases + ".json")]


def not_written_back(qkv, cases):
    """Cases whose tensors are others after a model was read and written."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w", encoding="utf8") as file:
            file.write("a b c\n")
        tokens = os.path.join(folder, "tokens")
        subprocess.run([qkv, "tokenizer", "train", text, "--type", "wordpiece", "--vocab-size", "20", "--out", tokens],
                       check=True, capture_output=True)
        for case in cases:
            if case.family == "clip":
                continue
            source, out = os.path.join(folder, case.name), os.path.join(folder, case.name + ".out")
            shutil.copytree(case.dir, source)
            shutil.copy(os.path.join(tokens, "tokenizer.json"), source)
            subprocess.run([qkv, "average", source, source, "--out", out], check=True, capture_output=True)
            before, after = (hf_cases.load(os.path.join(d, "model.safetensors"))[0] for d in (source, out))
            if before != {n: t for n, t in after.items() if not n.startswith("rotations.")}:  # drawn where a file has none
                print(f"FAIL {case.name}: written back with other tensors")
                differ += 1
    return differ


def objective_of(case):
    """Arguments for training on with the model's own objective."""
    if case.meta["kind"] == "encdec":
        return ["train.objective=sequence_to_sequence", "data.train=pairs.tsv", "train.batch_tokens=200"]
    if case.meta["kind"] == "causal":
        return ["train.objective=next_token", "data.train=text.txt", "train.batch=1", "train.window=8"]
    return ["train.objective=masked", "data.train=text.txt", "train.batch_tokens=200"]


def changed_by_tuning(qkv, cases):
    """Cases that training changes though no weight moves: tensors, or the family and the class. A step at a rate that no f32
    number feels goes through reading, training and writing."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("text.txt", "a b c a b c b a\n" * 600), ("pairs.tsv", "source\ttarget\n" + "a b\tb a\n" * 40), ("empty.toml", "")):
            with open(os.path.join(folder, name), "w", encoding="utf8") as file:
                file.write(text)
        subprocess.run([qkv, "tokenizer", "train", "text.txt", "--type", "wordpiece", "--vocab-size", "20", "--out", "tokens"],
                       cwd=folder, check=True, capture_output=True)
        for case in cases:
            if not case.writes or case.family == "whisper":  # whose head or inputs are not an objective's
                continue
            source, run = os.path.join(folder, case.name), os.path.join(folder, "run")
            shutil.copytree(case.dir, source)
            shutil.copy(os.path.join(folder, "tokens", "tokenizer.json"), source)
            shutil.rmtree(run, ignore_errors=True)
            settings = ["model.from=" + case.name, "train.out=run", "train.steps=1", "train.precision=f32", "train.learning_rate=1e-30",
                        "train.warmup_steps=0", "train.weight_decay=0", *objective_of(case)]
            done = subprocess.run([qkv, "train", "empty.toml", *(a for s in settings for a in ("--set", s))], cwd=folder,
                                  capture_output=True, text=True)
            if done.returncode != 0:
                print(f"FAIL {case.name}: {done.stderr.strip().splitlines()[-1]}")
                differ += 1
                continue
            before, after = (hf_cases.load(os.path.join(d, "model.safetensors"))[0] for d in (source, os.path.join(run, "last")))
            with open(os.path.join(run, "last", "config.json"), encoding="utf8") as file:
                says = json.load(file)
            keys = [k for k in ("model_type", "architectures") if case.config[k] != says[k]]
            tensors = [k for k in before if before[k] != after.get(k)] + [k for k in after if k not in before and not k.startswith("rotations.")]
            if keys or tensors:
                print(f"FAIL {case.name}: saved with other {keys}, {tensors[:3]}")
                differ += 1
    return differ


# Families whose published code classifies sequences: a new head on their models has its form.
CLASSIFIED = ["gpt2", "llama_mha", "mistral_sliding", "phi", "opt_preln", "gpt_neox", "bert_mlm", "roberta_mlm", "distilbert_mlm", "albert_mlm",
              "electra_mlm", "deberta_v2_mlm", "longformer_mlm", "xlnet"]


def adapters_of_no_family(qkv):
    """Cases of tests/golden/hf whose adapter with a new classifier has names that their family does not know."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("rows.tsv", "text\tlabel\n" + "".join(f"a b {i}\tx\nb a {i}\ty\n" for i in range(30))), ("empty.toml", "")):
            with open(os.path.join(folder, name), "w", encoding="utf8") as file:
                file.write(text)
        subprocess.run([qkv, "tokenizer", "train", "rows.tsv", "--type", "wordpiece", "--vocab-size", "40", "--out", "tokens"], cwd=folder,
                       check=True, capture_output=True)
        for case in CLASSIFIED:
            shutil.copytree(os.path.join(hf_cases.GOLDEN, case), os.path.join(folder, case))
            shutil.copy(os.path.join(folder, "tokens", "tokenizer.json"), os.path.join(folder, case))
            settings = ["model.from=" + case, "train.out=run-" + case, "train.steps=1", "model.lora_rank=2", "train.objective=classify",
                        "data.train=rows.tsv", "train.batch_tokens=100"]
            subprocess.run([qkv, "train", "empty.toml", *(a for s in settings for a in ("--set", s))], cwd=folder, check=True,
                           capture_output=True)
            types = []
            # And a classifier that goes on from one.
            for out, begin in (("tuned-", case), ("again-", "tuned-" + case)):
                again = ["model.from=" + begin, f"train.out={out}{case}", "train.steps=1", *settings[4:]]
                subprocess.run([qkv, "train", "empty.toml", *(a for s in again for a in ("--set", s))], cwd=folder, check=True,
                               capture_output=True)
            for path in (case, os.path.join("run-" + case, "last"), os.path.join("again-" + case, "last")):
                with open(os.path.join(folder, path, "config.json"), encoding="utf8") as file:
                    types.append(json.load(file)["model_type"])
            if len(set(types)) > 1:
                print(f"FAIL {case}: an adapter with a classifier is written as {types[1]}, one that goes on from another as {types[2]}")
                differ += 1
    return differ


def check(qkv, cases):
    """How many of the checks fail that every case goes through."""
    return sum(hf_cases.compare(qkv, case) for case in cases) + not_written_back(qkv, cases) + changed_by_tuning(qkv, cases)


def check_reference(qkv, reference):
    cases = supported(qkv, os.path.join(reference, "hf"))
    failed = check(qkv, cases) + not_as_thinned(reference)
    for command in commands(qkv, reference, cases):
        print("$", " ".join(command), flush=True)
        done = subprocess.run(command, timeout=300)
        print(f"exit status {done.returncode}", flush=True)
        failed += done.returncode != 0
    return failed


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    qkv, reference = os.path.abspath(sys.argv[1]), os.environ.get("QKV_REFERENCE")
    if not os.path.exists(qkv):
        print(f"{qkv}: not found")
        return 1
    golden = hf_cases.cases_of(hf_cases.GOLDEN)
    failed = families_without_case(qkv, golden) + check(qkv, golden) + adapters_of_no_family(qkv)
    if reference:
        failed += check_reference(qkv, reference)
    print(f"{failed} checks failed" if failed else "all checks pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
