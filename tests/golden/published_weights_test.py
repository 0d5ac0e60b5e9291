#!/usr/bin/env python3
"""Published weights give what their authors' programs give: greedy texts, inner values, searches.

usage: published_weights_test.py QKV

The models are in $QKV_WEIGHTS, or in the folder "weights" beside $QKV_REFERENCE; without either the test is skipped (77).
"""
import os
import subprocess
import sys
import tempfile

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


def checked(qkv, script, *options):
    """Runs a checker that came with a model; 1 if it fails."""
    done = subprocess.run([sys.executable, script, qkv, *options], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    print("\n".join(["FAIL", *lines] if done.returncode else lines[-1:]), f"({script})")
    return int(done.returncode != 0)


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
        failed += checked(qkv, at("gpt_nano_sort/check_partials.py")) + checked(qkv, cases)
        failed += checked(qkv, cases, "--model", letters["aren-transliteration"])
        for model in letters.values():
            said = subprocess.run([qkv, "translate", model], input="آتزمون\nآزا\n", capture_output=True, text=True).stdout
            same = said.split() == ["atzmon", "azza"]
            print(f"{'ok  ' if same else 'FAIL'} {model}: translate")
            failed += not same
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
