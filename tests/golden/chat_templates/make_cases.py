#!/usr/bin/env python3
"""Writes cases.json: what Jinja itself (python3-jinja2) makes of templates, with the settings and extensions that Hugging
Face's code runs chat templates with.

    tests/golden/chat_templates/make_cases.py        # with Jinja 3.1
"""
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
BEGIN, END = "\x01", "\x02"


class Generation(Extension):
    """Marks what a generation block writes."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        mark = lambda text: jinja2.nodes.Output([jinja2.nodes.TemplateData(text)]).set_lineno(line)
        return [mark(BEGIN), *body, mark(END)]


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    made.filters["tojson"] = lambda x, ensure_ascii=False, indent=None: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)
    made.globals["raise_exception"] = refuse
    return made


def render(source, variables):
    """The text and the bytes that lie in generation blocks, or None where Jinja refuses."""
    try:
        marked = environment().from_string(source).render(**{"tools": None, "documents": None, "add_generation_prompt": False,
                                                             **variables})
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, OverflowError, AssertionError):
        return None
    text, spans, begin = b"", [], 0
    for c in marked:
        if c == BEGIN:
            begin = len(text)
        elif c == END:
            spans.append([begin, len(text)])
        else:
            text += c.encode()
    return text.decode(), spans


TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " What is 2 + 2? "},
        {"role": "assistant", "content": "4"}, {"role": "user", "content": "Und auf Deutsch, \"bitte\"?\nÄ – é"}]
PLAIN = TALK[1:]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a town.", "parameters": {
    "type": "object", "properties": {"town": {"type": "string", "description": "Its name"}, "days": {"type": "integer"}},
    "required": ["town"]}}}
CALLING = [{"role": "user", "content": "Weather in Köln?"},
           {"role": "assistant", "content": None, "tool_calls": [
               {"id": "a1b2c3d4e", "type": "function", "function": {"name": "weather", "arguments": {"town": "Köln", "days": 2}}}]},
           {"role": "tool", "tool_call_id": "a1b2c3d4e", "name": "weather", "content": {"rain": True, "degrees": 11.5}},
           {"role": "assistant", "content": "It rains, 11.5 degrees."}]
CONVERSATIONS = [
    {"messages": TALK, "add_generation_prompt": True}, {"messages": TALK}, {"messages": PLAIN, "add_generation_prompt": True},
    {"messages": PLAIN[:1]}, {"messages": CALLING, "tools": [WEATHER]},
    {"messages": CALLING[:1], "tools": [WEATHER, WEATHER], "add_generation_prompt": True}, {"messages": []},
    {"messages": [PLAIN[1], PLAIN[0]]},
    {"messages": PLAIN, "documents": [{"title": "One", "text": "First."}, {"title": "Two", "text": "Second."}]}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
VARIABLES = {"x": 3, "s": "Hello, Wörld", "l": [3, 1, 2], "d": {"b": 1, "a": [True, None, 1.5]}, "e": [], "n": None,
             "people": [{"name": "Zoë", "age": 30, "in": {"town": "Bonn"}}, {"name": "adam", "age": 4}, {"name": "Bea", "age": 30}]}


def snippets():
    return [block.strip("\n") for block in (HERE / "snippets.txt").read_text(encoding="utf8").split("\n=====\n")]


def main():
    cases = []
    for path in sorted(HERE.glob("*.jinja")):
        source = path.read_text(encoding="utf8")
        for variables in CONVERSATIONS:
            cases.append((path.name, source, {**TOKENS, **variables}))
    for i, source in enumerate(snippets()):
        cases.append((f"snippet {i + 1}", source, VARIABLES))
    out = []
    for name, source, variables in cases:
        made = render(source, variables)
        case = {"name": name, "variables": variables}
        if not name.endswith(".jinja"):
            case["template"] = source
        if made is not None:
            case["text"], case["generated"] = made
        out.append(case)
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in out)
    (HERE / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf8")
    print(f"{len(out)} cases, {sum('text' not in c for c in out)} of them refused")


main()
