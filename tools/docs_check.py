#!/usr/bin/env python3
"""Checks the documents: links, anchors, paths, commands and configuration keys.

usage: docs_check.py REPOSITORY QKV [--run | --run-in-full] [FILE.md...]

Of every *.md file (or the FILEs):
- relative links, images and anchors lead somewhere; paths in `backticks` that begin in a folder of the project exist;
- `qkv` commands, in code blocks and in `backticks`, name a subcommand and options that its --help lists, with as many
  positional arguments as it takes; `make` targets exist;
- TOML, in ```toml blocks and in here-documents, parses, and its keys and those in `backticks` and after --set are among
  those that `qkv config --all` lists.

Commands are read, not run, except with --run: a comment `<!-- run: NAME -->` above a code block has it run by bash in a
scratch copy of the checkout. tools/docs_check.toml says under [NAME] how: limit_s, the longest time; before, commands
that bring the files that the reader is assumed to have; set, overrides that make training short. `make build` is taken
as done. With --run-in-full nothing is made short, and the longest time is an hour.
Prints one line a violation, "file:line: why", and exits with 1 when there is any.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from help_texts import commands_of, output_of, section_of, subcommands_of

TOPS = ("bench", "cmake", "data", "docs", "examples", "formal", "qkv", "tests", "tools", ".ci")
SKIPPED = {"build", "runs", ".git", "__pycache__", "node_modules"}
SECTIONS = "data|tokenizer|model|train|mix"
FILES = {"json", "safetensors", "model", "txt", "toml", "cc", "h", "jinja", "bin", "py", "tsv", "csv", "en", "de"}
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]*)>?[^)]*\)")
CODE = re.compile(r"(`+)(.+?)\1")
KEY = re.compile(rf"^({SECTIONS})\.[A-Za-z_][\w.]*")
PATH = re.compile(r"^[\w.-]+(/[\w.-]+)+/?$")
SHELL = {"", "sh", "bash", "shell", "console"}


# --- the tool --------------------------------------------------------------------------------------------------------

class Command:
    """Options and arguments of a subcommand, by its --help."""

    def __init__(self, text):
        self.options, self.required, self.allowed = {}, 0, 0  # an option's values: 0, 1, or None for any number
        for line in section_of(text, "Options"):
            if match := re.match(r"  (-[\w-]+(?:,--[\w-]+)*)( (?:TEXT|INT|UINT|FLOAT)\S*)?( \.\.\.)?", line):
                for name in match[1].split(","):
                    self.options[name] = 0 if not match[2] else None if match[3] else 1
        for line in section_of(text, "Positionals"):
            if match := re.match(r"  \S+ (?:TEXT|INT|UINT|FLOAT)\S*( \.\.\.)?( REQUIRED)?", line):
                self.required += bool(match[2])
                self.allowed += 10**9 if match[1] else 1
        self.subcommands = subcommands_of(text)


class Tool:
    """Subcommands, by their words, and the keys of a configuration."""

    def __init__(self, qkv):
        self.commands = {words: Command(text) for words, text in commands_of(qkv)}
        self.keys = {f"{key['section']}.{key['key']}" for key in json.loads(output_of(qkv, "config", "--json"))}

    def key_problem(self, key):
        parts = key.split(".")
        if key == "key":  # a placeholder
            return None
        if parts[0] == "mix" and len(parts) > 2:
            parts[1] = "NAME"
        if parts[:2] == ["model", "kind"] and len(parts) > 3:  # a kind of layers has the keys of [model]
            del parts[1:3]
        return None if ".".join(parts) in self.keys else f"the configuration has no key '{key}' (qkv config --all)"

    def command_problems(self, words, whole):
        """Problems of the words behind `qkv`. `whole`: a command, not a sketch of its usage in running text."""
        at = ()
        while words and (*at, words[0]) in self.commands:
            at, words = (*at, words[0]), words[1:]
        command, everywhere = self.commands[at], self.commands[()].options
        if command.subcommands and words and not words[0].startswith("-"):
            yield f"'qkv {' '.join(at)}'".replace(" '", "'") + f" has no subcommand '{words[0]}'"
            return
        least = most = 0
        i = 0
        while i < len(words):
            word, i = words[i], i + 1
            if not word.startswith("-") or word == "-" or re.match(r"-[\d.]", word):
                least, most = least + 1, most + 1
                continue
            name, _, given = word.partition("=")
            if name not in command.options and name not in everywhere:
                yield f"'qkv {' '.join(at)}' has no option {name}"
                continue
            takes = command.options.get(name, everywhere.get(name))
            if takes == 0 or given:
                continue
            value, i = words[i] if i < len(words) else "", i + 1
            if name == "--set" and "=" in value and (problem := self.key_problem(value.split("=")[0])):
                yield problem
            while takes is None and i < len(words) and not words[i].startswith("-"):  # the option's or positional
                most, i = most + 1, i + 1
        if whole and "--help" not in words and "--version" not in words and not command.subcommands:
            if most < command.required or least > command.allowed:
                yield f"'qkv {' '.join(at)}' takes {command.required} positional arguments, not {least}"


# --- documents -------------------------------------------------------------------------------------------------------

class Block:
    def __init__(self, line, language, run):
        self.line, self.language, self.run, self.lines = line, language, run, []


class Document:
    """A file's code blocks, and its other lines with their numbers."""

    def __init__(self, path):
        self.path, self.blocks, self.prose, self.anchors = path, [], [], set()
        self.loose = []  # (line, name) of marks above which no block stands
        block, fence, run, previous = None, None, None, ""
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            mark = re.match(r"\s*(```+|~~~+)\s*([\w+-]*)", line)
            if fence:
                if line.strip().startswith(fence):
                    block, fence = None, None
                else:
                    block.lines.append((number, line))
            elif mark:
                block, fence, run = Block(number, mark[2], run), mark[1], None
                self.blocks.append(block)
            elif line.startswith("    ") and (block or not previous.strip()) and not self.in_list(previous, block):
                if not block:
                    block, run = Block(number, "", run), None
                    self.blocks.append(block)
                block.lines.append((number, line[4:]))
            elif not line.strip() and block:
                block.lines.append((number, ""))
            else:
                block = None
                if run and line.strip():
                    self.loose.append((number, run))
                    run = None
                if match := re.match(r"\s*<!--\s*run:\s*(\S+)\s*-->\s*$", line):
                    run = match[1]
                self.prose.append((number, line))
                self.note_anchor(line)
            previous = line
        if run:
            self.loose.append((number, run))

    def in_list(self, previous, block):
        """True if an indented line continues an item of a list, and is no code."""
        if block:
            return False
        for _, line in reversed(self.prose):
            if line.strip():
                return bool(re.match(r"\s*([-*+]|\d+\.)\s|  \S", line))
        return False

    def note_anchor(self, line):
        for name in re.findall(r'<a (?:name|id)="([^"]+)"', line):
            self.anchors.add(name)
        if match := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            text = LINK.sub(lambda m: re.search(r"\[([^\]]*)\]", m[0])[1], match[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            again = sum(a.startswith(slug) for a in self.anchors) if slug in self.anchors else 0
            self.anchors.add(f"{slug}-{again}" if again else slug)


def links_of(line):
    """Targets of a line outside code."""
    bare = CODE.sub(lambda m: "x" * len(m[0]), line)
    return LINK.findall(bare) + re.findall(r"^\[[^\]]+\]:\s*(\S+)", bare)


def link_problem(document, target, document_at):
    """Why a link leads nowhere, or None; `document_at`: from a path to its Document."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    to = (document.path.parent / path).resolve() if path else document.path
    if not to.exists():
        return f"the link leads nowhere: {target}"
    if anchor and to.suffix == ".md" and anchor not in document_at(to).anchors:
        return f"{path or 'this page'} has no heading #{anchor}"
    return None


def documents_below(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            if name.endswith(".md"):
                yield Path(folder) / name


# --- shell -----------------------------------------------------------------------------------------------------------

class Shell:
    """A block's commands as lists of words, and the TOML that its here-documents hold."""

    def __init__(self, lines):
        self.commands, self.toml, self.problems = [], [], []  # with line numbers
        end, body, words, start = None, [], "", 0
        for number, line in lines:
            if end is not None:
                if line.strip() == end:
                    if body is not None:
                        self.toml.append((start, "\n".join(body)))
                    end = None
                elif body is not None:
                    body.append(line)
                continue
            start = start if words else number
            words += line.rstrip("\\") if line.endswith("\\") else line
            if line.endswith("\\"):
                continue
            if match := re.search(r"<<-?\s*['\"]?(\w+)['\"]?", words):
                end, start = match[1], number
                body = [] if re.search(r">\s*\S+\.toml\b", words) else None
                words = words.replace(match[0], "")
            self.split(start, words)
            words = ""
        if end is not None:
            self.problems.append((start, f"the here-document has no end {end}"))

    def split(self, number, line):
        # Parts of an expression are looked at as commands of their own.
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&()<>")
        lexer.whitespace_split = True
        try:
            tokens = list(lexer)
        except ValueError as error:
            if "qkv" in line:
                self.problems.append((number, f"the command cannot be read: {error}"))
            return
        command, skip = [], False
        for token in [*tokens, ";"]:
            if skip:
                skip = False
            elif token and set(token) <= set("<>") or re.fullmatch(r"[<>&]+", token) and "&" not in token[:1]:
                skip = True
            elif token and set(token) <= set("|;&()<>"):
                self.add(number, command)
                command = []
            else:
                command.append(token)

    def add(self, number, words):
        while words and (re.match(r"^\w+=", words[0]) or words[0] in ("$", "do", "then", "time", "env", "sudo")):
            words = words[1:]
        if words:
            self.commands.append((number, words))


# --- checks ----------------------------------------------------------------------------------------------------------

class Check:
    def __init__(self, root, qkv):
        self.root, self.tool = root, Tool(qkv)
        self.documents, self.problems, self.seen = {}, [], 0
        makefile = (root / "Makefile").read_text() if (root / "Makefile").exists() else ""
        self.targets = set(" ".join(re.findall(r"^([\w -]+):(?!=)", makefile, flags=re.M)).split())

    def document(self, path):
        path = path.resolve()
        if path not in self.documents:
            self.documents[path] = Document(path)
        return self.documents[path]

    def refuse(self, document, number, why):
        self.problems.append(f"{document.path.relative_to(self.root.resolve())}:{number}: {why}")

    def check(self, path):
        document = self.document(path)
        for number, line in document.prose:
            for target in links_of(line):
                self.link(document, number, target)
            for _, code in CODE.findall(line):
                self.span(document, number, code.strip().replace("\\|", "|"))
        for number, name in document.loose:
            self.refuse(document, number, f"no code block follows <!-- run: {name} -->")
        for block in document.blocks:
            self.block(document, block)

    def link(self, document, number, target):
        self.seen += not re.match(r"[a-z]+:", target)
        if why := link_problem(document, target, self.document):
            self.refuse(document, number, why)

    def span(self, document, number, code):
        """Code in running text: a command, a key, a path."""
        if match := re.match(r"(?:build/)?qkv\s+(.+)", code):
            words = re.sub(r"[\[\]]|\.\.\.", " ", match[1]).split()
            names = words[0].split("|") if words else []
            if len(words) > 1 and words[0] == "tokenizer" and "|" in words[1]:
                names = [f"tokenizer {name}" for name in words[1].split("|")]
                words = words[1:]
            for name in names:
                self.command(document, number, [*name.split(), *words[1:]], False)
        elif (match := KEY.match(code)) and (self.root / "tests").resolve() not in document.path.parents:
            key = match[0].rstrip(".")
            parts = key.split(".")
            if parts[-1] not in FILES and parts[1] not in FILES and not re.match(r"[\w.]*[(/*]", code[match.end():]):
                self.seen += 1
                if problem := self.tool.key_problem(key):
                    self.refuse(document, number, problem)
        elif PATH.match(code):
            self.path(document, number, code)

    def path(self, document, number, code):
        top = code.split("/")[0]
        if "NAME" in code:  # a placeholder
            return
        places = [code] if top in TOPS else []
        if match := re.match(r"(?:build/)?bench/(\w+)$", code):  # a program
            places.append(f"bench/{match[1]}.cc")
        if (self.root / "qkv" / top).is_dir() and re.search(r"\.(h|cc)$", code):
            places.append(f"qkv/{code}")
        self.seen += bool(places)
        if places and not any((self.root / place).exists() for place in places):
            self.refuse(document, number, f"no such file: {' or '.join(places)}")

    def command(self, document, number, words, whole):
        self.seen += 1
        for problem in self.tool.command_problems(words, whole):
            self.refuse(document, number, problem)

    def block(self, document, block):
        if block.language == "toml":
            self.toml(document, block.line + 1, "\n".join(text for _, text in block.lines))
        if block.language not in SHELL:
            return
        shell = Shell(block.lines)
        for number, why in shell.problems:
            self.refuse(document, number, why)
        for number, text in shell.toml:
            self.toml(document, number, text)
        for number, words in shell.commands:
            if words[0].split("/")[-1] == "qkv" and words[0] in ("qkv", "build/qkv", "../build/qkv", "./qkv"):
                self.command(document, number, words[1:], True)
            elif words[0] == "make":
                for word in (w for w in words[1:] if "=" not in w and not w.startswith("-")):
                    self.seen += 1
                    if word not in self.targets:
                        self.refuse(document, number, f"the Makefile has no target {word}")
            for word in words:
                if PATH.match(word) and word.split("/")[0] in TOPS:
                    self.path(document, number, word)

    def toml(self, document, number, text):
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.refuse(document, number, f"the TOML cannot be read: {error}")
            return
        for section, table in values.items():
            for name, value in table.items() if isinstance(table, dict) else [("", table)]:
                if section == "mix" and isinstance(value, dict):
                    keys = [f"mix.{name}.{k}" for k in value]
                elif (section, name) == ("model", "kind"):
                    keys = [f"model.kind.{kind}.{k}" for kind, values in value.items() for k in values]
                else:
                    keys = [f"{section}.{name}"]
                for key in keys:
                    self.seen += 1
                    if problem := self.tool.key_problem(key):
                        self.refuse(document, number, problem)


# --- running ---------------------------------------------------------------------------------------------------------

def wrapper(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def run_block(root, qkv, block, how):
    """Why the block failed, or None; in a scratch copy of the checkout."""
    with tempfile.TemporaryDirectory(prefix="qkv_docs_") as scratch:
        copy = Path(scratch) / "checkout"
        shutil.copytree(root, copy, symlinks=True, ignore=lambda _, names: SKIPPED.intersection(names))
        sets = " ".join(shlex.quote(word) for value in how.get("set", []) for word in ("--set", value))
        tool = f'case "${{1:-}}" in train|plan) set -- "$@" {sets} ;; esac\nexec {shlex.quote(qkv)} "$@"\n'
        wrapper(copy / "build/qkv", tool)
        wrapper(Path(scratch) / "bin/qkv", tool)
        make = shlex.quote(shutil.which("make") or "make")
        wrapper(Path(scratch) / "bin/make", f'[ "$*" = build ] || exec {make} "$@"\n')
        text = "\n".join(text for _, text in block.lines)
        script = f"set -eu\n{how.get('before', '')}\nset -x\n{text}\n"
        path = f"{scratch}/bin:{os.environ['PATH']}"
        process = subprocess.Popen(["bash", "-c", script], cwd=copy, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                                   env={**os.environ, "PATH": path, "QKV_CACHE_DIR": f"{scratch}/cache"})
        try:
            out, _ = process.communicate(timeout=how["limit_s"])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # also the processes that bash started
            process.communicate()
            return f"took longer than {how['limit_s']} seconds"
        ending = " | ".join(out[-1500:].strip().split("\n")[-8:])
        return f"exit status {process.returncode}: {ending}" if process.returncode else None


def run_marked(check, qkv, settings, in_full, every):
    marked = [(d, b) for d in check.documents.values() for b in d.blocks if b.run]
    for document, block in marked:
        name, how = block.run, settings.get(block.run)
        where = f"{document.path.relative_to(check.root.resolve())}:{block.line}"
        if how is None:
            check.refuse(document, block.line, f"tools/docs_check.toml has no [{name}]")
            continue
        if in_full:
            how = {**how, "limit_s": 3600, "set": []}
        start = time.monotonic()
        if why := run_block(check.root, qkv, block, how):
            check.refuse(document, block.line, why)
        print(f"{where}: {name} ran for {time.monotonic() - start:.1f} s", flush=True)
    if every and (missing := set(settings) - {b.run for _, b in marked}):
        check.problems.append(f"tools/docs_check.toml:1: no code block is marked {', '.join(sorted(missing))}")
    return len(marked)


def main(arguments):
    in_full = "--run-in-full" in arguments
    run = in_full or "--run" in arguments
    root, qkv, *files = [a for a in arguments if a not in ("--run", "--run-in-full")]
    root, qkv = Path(root).resolve(), os.path.abspath(qkv)
    check = Check(root, qkv)
    for path in [Path(file) for file in files] or documents_below(root):
        check.check(path)
    settings_file = root / "tools/docs_check.toml"
    settings = tomllib.loads(settings_file.read_text()) if settings_file.exists() else {}
    ran = run_marked(check, qkv, settings, in_full, not files) if run else 0
    for problem in check.problems:
        print(problem)
    print(f"{len(check.documents)} documents, {check.seen} links, paths, commands and keys, {ran} blocks run, "
          f"{len(check.problems)} violations")
    if check.seen == 0:
        print(f"{root}: nothing to check was found")
    return 1 if check.problems or check.seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
