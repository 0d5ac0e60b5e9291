#!/usr/bin/env python3
"""Published weights give what their authors' programs give: greedy texts, inner values, searches.

usage: published_weights_test.py QKV

The models are in $QKV_WEIGHTS, or in the folder "weights" beside $QKV_REFERENCE; without either the test is skipped (77).
"""
import array
import base64
import json
import math
import os
import subprocess
import sys
import tempfile

import hf_cases

SKIPPED = 77


def folder():
    if given := os.environ.get("QKV_WEIGHTS"):
        return given
    reference = os.environ.get("QKV_REFERENCE")
    return os.path.join(os.path.dirname(os.path.normpath(reference)), "weights") if reference else ""


def converted(qkv, source, out, *options):
    """A directory that `qkv convert` made."""
    subprocess.run([qkv, "convert", source, "--out", out, *options], check=True)
    return out


def stories(qkv, weights, model):
    """A Llama 2 whose greedy text llama2.c's own tests expect; the number of texts that differ."""
    differ = 0
    for tokens in 200, 256:
        said = subprocess.run([qkv, "generate", model, "--prompt", "", "--temperature", "0", "--tokens", str(tokens)],
                              capture_output=True).stdout
        with open(os.path.join(weights, f"stories260K/expected_greedy_{tokens}.txt"), "rb") as file:
            same = said == file.read()
        print(f"{'ok  ' if same else 'FAIL'} {model}: {tokens} tokens")
        differ += not same
    return differ


def quantised_stories(qkv, weights, own):
    """GGUF files of the model: the published one, and ours in f16, give the text; in q8_0 the loss along it stays within 0.2%."""
    file = os.path.join(weights, "stories260K/stories260K-f32.gguf")
    differ = stories(qkv, weights, file)
    for kind in "f16", "q8_0":
        subprocess.run([qkv, "quantize", file, "--type", kind, "--out", own(f"{kind}.gguf")], check=True, capture_output=True)
    differ += stories(qkv, weights, own("f16.gguf"))
    with open(own("text.txt"), "wb") as out, open(os.path.join(weights, "stories260K/expected_greedy_256.txt"), "rb") as text:
        out.write(text.read())
    loss = [json.loads(subprocess.run([qkv, "eval", model, "--data", own("text.txt"), "--json"], check=True,
                                      capture_output=True).stdout)["loss"] for model in (file, own("q8_0.gguf"))]
    near = abs(loss[1] - loss[0]) < 2e-3 * loss[0]
    print(f"{'ok  ' if near else 'FAIL'} q8_0: loss {loss[1]:.5f}, of f32 {loss[0]:.5f}")
    return differ + (not near)


def checked(qkv, script, *options):
    """Runs a checker that came with a model; 1 if it fails."""
    done = subprocess.run([sys.executable, script, qkv, *options], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    print("\n".join(["FAIL", *lines] if done.returncode else lines[-1:]), f"({script})")
    return int(done.returncode != 0)


# The names of a pass's values in another program, and in qkv trace.
PARTIALS = {"tok_emb": "decoder.embedding.token", "pos_emb": "decoder.embedding.position", "x": "decoder.embedding",
            "ln_f": "decoder.norm", "lm_head": "logits", "probs": "probabilities"}
PARTIALS |= {name: "decoder.block.0." + value for name, value in (
    ("ln1", "attention.norm"), ("q", "attention.queries"), ("k", "attention.keys"), ("v", "attention.values"),
    ("att", "attention.scores"), ("attSm", "attention.probabilities"), ("y", "attention.heads"), ("yProj", "attention.branch"),
    ("attnResid", "attention.sum"), ("ln2", "feed_forward.norm"), ("fc", "feed_forward.up"), ("gelu", "feed_forward.hidden"),
    ("mlp", "feed_forward.branch"), ("mlpResid", "feed_forward.sum"))}
PARTIALS |= {f"block{l}": f"decoder.block.{l}.feed_forward.sum" for l in range(3)}


def partials(qkv, folder, scratch):
    """Every tensor that another program published of a pass, against `qkv trace`; the number of those that differ."""
    with open(os.path.join(folder, "partials.json"), encoding="utf8") as file:
        stored = json.load(file)
    want = {name: (t["shape"], array.array("f", base64.b64decode(t["data"]))) for name, t in stored.items() if "data" in t}
    (batch, length), ids = want.pop("idx")
    heads = stored["config"]["n_head"]
    off = {}
    for row in range(batch):
        out = os.path.join(scratch, "trace.safetensors")
        subprocess.run([qkv, "trace", os.path.join(folder, "hf"), "--out", out, "--ids",
                        " ".join(str(int(i)) for i in ids[row * length:(row + 1) * length])], check=True, capture_output=True)
        values = hf_cases.load(out)[0]

        def of(name):
            _, shape, value = values[PARTIALS[name]]
            if name not in ("q", "k", "v"):
                return value
            width = shape[1] // heads  # theirs are head by head
            return [value[t * shape[1] + h * width + c] for h in range(heads) for t in range(length) for c in range(width)]
        for name, (shape, theirs) in want.items():
            part = len(theirs) // shape[0]
            theirs = theirs[row * part:(row + 1) * part] if shape[0] == batch else theirs
            if name == "qkv":
                rows = [values[PARTIALS[n]][2] for n in "qkv"]
                width = len(rows[0]) // length
                ours = [x for t in range(length) for r in rows for x in r[t * width:(t + 1) * width]]
            else:
                ours = of(name)
            scale = max(abs(x) for x in theirs if math.isfinite(x))
            same_infinities = len(ours) == len(theirs) and all(a == b for a, b in zip(ours, theirs) if math.isinf(a) or math.isinf(b))
            worst = max(abs(a - b) for a, b in zip(ours, theirs) if math.isfinite(b)) / scale if same_infinities else math.inf
            off[name] = max(off.get(name, 0), worst)
    wrong = {name: worst for name, worst in off.items() if worst > 1e-5}
    print(f"{'FAIL' if wrong else 'ok  '} {len(off)} values of a pass by qkv trace, off by {max(off.values()):.1e} at most {wrong or ''}")
    return len(wrong)


def rwkv(qkv, weights, own, name):
    """A model of rwkv.cpp, whose logits behind three bytes came with it; 1 if they differ."""
    folder = os.path.join(weights, "rwkv")
    model = converted(qkv, os.path.join(folder, f"tiny-rwkv-{name}-FP32.bin"), own(name))
    out = own("rwkv.safetensors")
    subprocess.run([qkv, "trace", model, "--out", out, "--ids", " ".join(map(str, b'"in'))], check=True, capture_output=True)
    _, shape, logits = hf_cases.load(out)[0]["logits"]
    want = array.array("f")
    with open(os.path.join(folder, f"expected-logits-{name}.bin"), "rb") as file:
        want.frombytes(file.read())
    differences = [a - b for a, b in zip(logits[(shape[0] - 1) * shape[1]:], want)]
    worst, total = max(map(abs, differences)), abs(sum(differences))
    good = shape[1] == len(want) and worst < 1e-5 and total < 1e-3
    print(f"{'ok  ' if good else 'FAIL'} rwkv {name}: logits off by {worst:.1e} at most, by {total:.1e} together")
    return int(not good)


def main():
    qkv, weights = os.path.abspath(sys.argv[1]), folder()
    if not os.path.isdir(weights):
        print("published weights: skipped: neither QKV_WEIGHTS nor QKV_REFERENCE names a folder with them")
        return SKIPPED
    at = lambda *parts: os.path.join(weights, *parts)
    with tempfile.TemporaryDirectory() as scratch:
        own = lambda name: os.path.join(scratch, name)
        llama = converted(qkv, at("stories260K/stories260K.bin"), own("stories"), "--tokenizer", at("stories260K/tok512.bin"))
        letters = {name: converted(qkv, at("aren_transliteration", name), own(name), "--split", "characters")
                   for name in ("aren-transliteration", "aren-transliteration-i16", "aren-transliteration-i8")}
        cases = at("aren_transliteration/check_cases.py")
        failed = stories(qkv, weights, at("stories260K/hf")) + stories(qkv, weights, llama)
        failed += quantised_stories(qkv, weights, own)
        failed += checked(qkv, at("gpt_nano_sort/check_partials.py")) + checked(qkv, cases)
        failed += partials(qkv, at("gpt_nano_sort"), scratch)
        failed += checked(qkv, cases, "--model", letters["aren-transliteration"])
        failed += sum(rwkv(qkv, weights, own, name) for name in ("4v0-660K", "7v0-834K"))
        for model in letters.values():
            said = subprocess.run([qkv, "translate", model], input="آتزمون\nآزا\n", capture_output=True, text=True).stdout
            same = said.split() == ["atzmon", "azza"]
            print(f"{'ok  ' if same else 'FAIL'} {model}: translate")
            failed += not same
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
