#!/usr/bin/env python3
"""Input that every command of an encoder refuses or cuts: other models, long lines, bad lines.

usage: test_encoder_input.py QKV [unittest arguments]
"""
# Covers: qkv/cli/encoder_command.cc
import json

from qkv_cli import command, EncoderTest, main


class EncoderInput(EncoderTest):
    def test_long_lines(self):
        long = "the [MASK] " + "fox " * 30
        for command, name, line in (("fill", "masked", long), ("classify", "classify", long), ("tag", "tag", long),
                                    ("answer", "answer", "which fruit\tpear " + long), ("embed", "masked", long)):
            short = "the [MASK]\tfox\n"
            cut = self.ask(command, name, stdin=f"{short}{line}\n{line}\n")
            self.assertEqual(cut.err, "note: 2 texts are longer than the model's 16 tokens and were cut\n", command)
            self.assertEqual(len(cut.out.splitlines()), 3, command)
            self.refused(command, self.run_dir(name), "--strict", stdin=f"{short}{line}\n", status=1,
                         says=[":2: longer than the model's 16 tokens", "--strict"])
            self.assertEqual(self.ask(command, name, "--strict", stdin=short).err, "")
        # Unknown words count like others.
        cut = self.ask("classify", "classify", stdin="\u4e00" * 40 + "\n")
        self.assertIn("1 text is", cut.err)

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


if __name__ == "__main__":
    main()
