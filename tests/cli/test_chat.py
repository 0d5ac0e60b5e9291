#!/usr/bin/env python3
"""qkv chat, and runs that learn from conversations.

usage: test_chat.py QKV [unittest arguments]
"""
import json
import os
import pty
import re
import shutil
import subprocess

from qkv_cli import command, CliTest, configuration, ENVIRONMENT, FinishedRun, main, make_text, read, read_terminal, WORDS

# Covers: qkv/api/chat_session.cc, qkv/cli/line_editor.cc


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

    def test_keeps_what_it_has_read(self):
        self.template("{% for m in messages %}{{ m.content }} {% endfor %}")
        folder = os.path.join(ENVIRONMENT["QKV_CACHE_DIR"], "prompts")
        talk = lambda *more: self.ok("chat", "assistant", "--tokens", "3", "--temperature", "0", *more, stdin="the fox a\n")
        shutil.rmtree(folder, ignore_errors=True)
        plain = talk("--no-prompt-cache")
        self.assertFalse(os.path.exists(folder))
        for _ in range(2):
            self.assertEqual(talk().out, plain.out)
            self.assertEqual(len(os.listdir(folder)), 1)
        self.assertEqual(talk("--prompt-cache", "here", "--draft", "ngrams").out, plain.out)
        self.assertEqual(len(os.listdir(self.path("here"))), 1)

    def test_old_messages_are_left_out(self):
        self.template("{% for m in messages %}{{ m.content }} {% endfor %}")
        talk = lambda lines, *more: self.ok("chat", "assistant", "--tokens", "3", "--temperature", "0", *more, stdin=lines)
        alone = talk("the fox\n")
        self.assertEqual(alone.err, "")
        # The model reads 16 characters.
        twice = talk("the fox\nthe fox\nthe fox\n")
        self.assertEqual(twice.out, alone.out * 3)
        self.assertEqual(twice.err.splitlines(), [f"note: the conversation is longer than the model's 16 tokens: it no longer reads the oldest "
                                                  f"{n} messages" for n in (2, 4)])
        # The system message stays.
        self.template("{% if messages[0].role != 'system' %}{{ raise_exception('Never') }}{% endif %}"
                      "{% for m in messages %}{{ m.content }} {% endfor %}")
        self.assertEqual(talk("the fox\nthe fox\n", "--system", "a").out, talk("the fox\n", "--system", "a").out * 2)

    def test_positions_without_end_have_a_window_too(self):
        self.template("{% for m in messages %}{{ m.content }} {% endfor %}")
        self.write("text.txt", make_text())
        self.write("far.toml", configuration(out="far", model__positions="rotary"))
        self.ok("train", "far.toml")
        shutil.copy(self.path("assistant/tokenizer_config.json"), self.path("far/best"))
        said = self.ok("chat", "far", "--tokens", "3", "--temperature", "0", stdin="the fox\n" * 4).err
        self.assertIn("longer than the model's 16 tokens", said)

    def test_commands(self):
        self.template("{% if messages|length > 1 %}{{ raise_exception('More') }}{% endif %}{{ messages[0].content }}")
        talk = lambda lines: self.ok("chat", "assistant", "--tokens", "3", "--temperature", "0", stdin=lines)
        once = talk("the\n").out
        self.assertEqual(talk("the\n/reset\nthe\n").out, once * 2)
        self.refused("chat", "assistant", stdin="the\nthe\n", says="More")
        self.assertEqual(talk("the\n/exit\nthe\n").out, once)
        helped = talk("/help\nthe\n")
        self.assertEqual(helped.out, once)
        self.assertIn("/reset", helped.err)

    def test_lines_are_edited_at_a_terminal(self):
        self.template("{% if messages[-1].content == 'b' and messages|length != 3 %}{{ raise_exception('Forgotten') }}{% endif %}"
                      "{% for m in messages %}{{ m.content }} {% endfor %}")
        arguments = ("chat", "assistant", "--tokens", "3", "--temperature", "0")
        ours, theirs = pty.openpty()
        child = subprocess.Popen(command(*arguments), cwd=self.folder, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
                                 env=ENVIRONMENT | {"TERM": "xterm"})
        os.close(theirs)
        shown = []
        delete, back, end = b"\177", b"\020", b"/exit\r"
        for keys in (b"thx" + delete + b"e\r", b"/reset\r", back + back + b"\r", b"the fox the fox the fox\r", b"b\r", end):
            shown.append(b"")
            while not shown[-1].endswith(b"\n> "):  # the prompt, on a line of its own
                chunk = read_terminal(ours)
                self.assertTrue(chunk, shown)
                shown[-1] += chunk
            os.write(ours, keys)
        self.assertEqual(child.wait(60), 0)
        out = child.stdout.read().decode()
        child.stdout.close()
        os.close(ours)
        said = lambda line: self.ok(*arguments, stdin=line).out
        self.assertEqual(out, said("the\n") + said("the\nb\n"))
        self.assertIn(b"/reset begins", shown[0])
        self.assertIn(b"forgotten", shown[2])
        self.assertIn(b"the message is too long", shown[4])  # which neither ends the conversation nor is a part of it

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
        for option, value in (("--top-k", "3"), ("--top-p", "0.5")):  # options of sampling
            self.refused("chat", "assistant", "--temperature", "0", option, value, stdin="the\n", status=2, says=f"{option}: has no effect")


class Conversations(CliTest):
    """Learning the assistant's part of conversations: a run of its own, and one that goes on with it."""
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
        self.assertIn(" assistant tokens)", trained.err)
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


if __name__ == "__main__":
    main()
