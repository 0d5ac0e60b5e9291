#!/usr/bin/env python3
"""Published weights give what their authors' programs give: greedy texts, inner values, searches.

usage: published_weights_test.py QKV

The models are in $QKV_WEIGHTS, or in the folder "weights" beside $QKV_REFERENCE; without either the test is skipped (77).
"""
import os
import subprocess
import sys

SKIPPED = 77


def folder():
    if given := os.environ.get("QKV_WEIGHTS"):
        return given
    reference = os.environ.get("QKV_REFERENCE")
    return os.path.join(os.path.dirname(os.path.normpath(reference)), "weights") if reference else ""


def stories(qkv, weights):
    """A Llama 2 whose greedy text llama2.c's own tests expect; the number of texts that differ."""
    differ = 0
    for tokens in 200, 256:
        said = subprocess.run([qkv, "generate", os.path.join(weights, "stories260K/hf"), "--prompt", "", "--temperature", "0", "--tokens",
                               str(tokens)], capture_output=True).stdout
        with open(os.path.join(weights, f"stories260K/expected_greedy_{tokens}.txt"), "rb") as file:
            same = said == file.read()
        print(f"{'ok  ' if same else 'FAIL'} stories260K: {tokens} tokens")
        differ += not same
    return differ


def checked(qkv, script):
    """Runs a checker that came with a model; 1 if it fails."""
    done = subprocess.run([sys.executable, script, qkv], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    print("\n".join(["FAIL", *lines] if done.returncode else lines[-1:]), f"({script})")
    return int(done.returncode != 0)


def main():
    qkv, weights = os.path.abspath(sys.argv[1]), folder()
    if not os.path.isdir(weights):
        print("published weights: skipped: neither QKV_WEIGHTS nor QKV_REFERENCE names a folder with them")
        return SKIPPED
    return int(stories(qkv, weights) + checked(qkv, os.path.join(weights, "gpt_nano_sort/check_partials.py"))
               + checked(qkv, os.path.join(weights, "aren_transliteration/check_cases.py")) > 0)


if __name__ == "__main__":
    sys.exit(main())
