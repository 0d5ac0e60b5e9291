#!/usr/bin/env python3
"""qkv average.

usage: test_average.py QKV [unittest arguments]
"""
import os

from qkv_cli import CliTest, load_safetensors, main


class Average(CliTest):
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


if __name__ == "__main__":
    main()
