#!/usr/bin/env python3
"""The help, and what is wrong on the command line itself.

usage: test_usage.py QKV [unittest arguments]
"""
# Covers: qkv/cli/console.cc, qkv/cli/main.cc, qkv/cli/options.cc
import subprocess

from qkv_cli import CliTest, command, configuration, main, read, safetensors_bytes


class Usage(CliTest):
    COMMANDS = [[], ["init"], ["train"], ["eval"], ["generate"], ["score"], ["plan"], ["tokenizer"], ["tokenizer", "train"],
                ["tokenizer", "encode"], ["tokenizer", "decode"], ["report"], ["inspect"], ["forward"], ["translate"],
                ["average"], ["chat"], ["merge"], ["summarize"], ["classify"], ["choose"], ["tag"], ["answer"], ["fill"], ["embed"]]

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

    def test_suggestions_are_near_or_what_other_tools_say(self):
        for words, says in ((["trian"], "did you mean train?"), (["generate", "x", "--temp", "1"], "did you mean --temperature?"),
                            (["generate", "x", "--max-tokens", "1"], "did you mean --tokens?"),
                            (["generate", "x", "--sed", "1"], "did you mean --seed?")):
            self.refused(*words, status=2, says=says, threads=None)
        self.assertNotIn("did you mean", self.refused("generate", "x", "--quantize", status=2, threads=None).err)
        self.write("c.toml", 'data.train = "text.txt"\ntrain.out = "run"\n')
        for key, says in (("train.lr=1", "did you mean learning_rate?"), ("model.n_layer=1", "did you mean layers?"),
                          ("model.d_model=1", "did you mean width?"), ("train.batch_size=1", "did you mean batch?"),
                          ("train.device=1", "trains on the processor"), ("model.vocab_size=1", "tokenizer.vocab_size")):
            self.refused("train", "c.toml", "--set", key, status=2, says=says)
        self.assertNotIn("did you mean", self.refused("train", "c.toml", "--set", "train.zebra=1", status=2).err)

    def test_output_that_is_lost_is_an_error(self):
        self.write("p.txt", "abc")
        for words in (["--help"], ["train", "--help"], ["tokenizer", "train", "--type", "byte", "--out", "tok"],
                      ["tokenizer", "encode", "tok", "p.txt"], ["tokenizer", "decode", "tok", "i.txt"], ["inspect", "x.safetensors"]):
            self.write("i.txt", "1 2 3")
            self.write("x.safetensors", safetensors_bytes({"a": ("F32", [2], [0, 1])}))
            with open("/dev/full", "w") as full:
                done = subprocess.run(command(*words), cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
            if words[:2] != ["tokenizer", "train"]:
                self.assertEqual((done.returncode, "standard output" in done.stderr), (1, True), (words, done.stderr))
            closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command(*words)], cwd=self.folder, stderr=subprocess.PIPE, text=True)
            if words[:2] != ["tokenizer", "train"]:
                self.assertEqual(closed.returncode, 1, (words, closed.stderr))

    def test_closed_standard_input(self):
        self.ok("tokenizer", "train", "--type", "byte", "--out", "tok")
        done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command("tokenizer", "encode", "tok")], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("standard input is closed", done.stderr)

    def test_numbers_and_seeds(self):
        self.refused("generate", "x", "--tokens", "abc", status=2, says="'abc' is not a whole number")
        self.refused("generate", "x", "--seed", "-1", status=2, says="--seed")

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


if __name__ == "__main__":
    main()
