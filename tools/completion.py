#!/usr/bin/env python3
"""Writes the bash completion of the command-line tool, from its help and its settings, to standard output.

usage: completion.py QKV

It completes commands, options, values that come from a list, settings (after --set and `qkv config`) and file names.
"""
import json
import re
import sys

from help_texts import commands_of, option_lines_of, output_of, section_of, subcommands_of

SCRIPT = r"""# Bash completion of qkv, made from its help texts.
_qkv() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="qkv" words="" setting=""
  local i=1
  # The command and its subcommand: words that the command so far knows.
  while [ $i -lt "$COMP_CWORD" ]; do
    case " ${_qkv_commands[$command]} " in
      *" ${COMP_WORDS[i]} "*) command="$command ${COMP_WORDS[i]}" ;;
    esac
    i=$((i + 1))
  done
  # Bash divides a setting at its sign: --set KEY = VALUE.
  if [ "$word" = "=" ]; then
    setting="$before" word=""
  elif [ "$before" = "=" ] && [ "$COMP_CWORD" -gt 2 ]; then
    setting="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [ -n "$setting" ]; then
    words="${_qkv_values[$setting]}"
  elif [ "$before" = "--set" ]; then
    compopt -o nospace 2>/dev/null
    COMPREPLY=($(compgen -S = -W "$_qkv_settings" -- "$word"))
    return
  elif [ -n "${_qkv_values[$command $before]+known}" ]; then
    words="${_qkv_values[$command $before]}"
  elif [[ "$word" == -* ]]; then
    words="${_qkv_options[$command]}"
  elif [ "$command" = "qkv config" ]; then
    words="$_qkv_settings presets"
  else
    words="${_qkv_commands[$command]} ${_qkv_arguments[$command]}"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _qkv qkv"""


def quoted(text):
    assert "'" not in text, text
    return f"'{text}'"


def table(name, entries):
    """An associative array of bash."""
    return "\n".join([f"declare -A {name}", *(f"{name}[{quoted(key)}]={quoted(' '.join(words))}" for key, words in entries.items())])


def script(qkv):
    commands, options, arguments, values = {}, {}, {}, {}
    for words, text in commands_of(qkv):
        name = " ".join(["qkv", *words])
        commands[name] = subcommands_of(text)
        options[name] = []
        for line in option_lines_of(text):
            names = line.split()[0].split(",")
            options[name] += names
            if listed := re.match(r"\S+ TEXT:\{([^}]*)\}", line):
                values.update({f"{name} {option}": listed[1].split(",") for option in names})
            elif re.match(r"\S+ (?:TEXT|INT|UINT|FLOAT)", line):
                values.update({f"{name} {option}": [] for option in names})
        for line in section_of(text, "Positionals"):
            if listed := re.match(r"  \S+ TEXT:\{([^}]*)\}", line):
                arguments[name] = listed[1].split(",")
    keys = [key for key in json.loads(output_of(qkv, "config", "--json")) if "NAME" not in key["section"]]
    for key in keys:
        if key["range"].startswith("one of "):
            values[f"{key['section']}.{key['key']}"] = key["range"][len("one of "):].split(", ")
    presets = [line.split()[0] for line in output_of(qkv, "config", "presets").splitlines() if re.match(r"  \S", line)]
    values.update({"qkv train --preset": presets, "model.preset": presets})
    settings = " ".join(f"{key['section']}.{key['key']}" for key in keys)
    return "\n".join([table("_qkv_commands", commands), table("_qkv_options", options), table("_qkv_arguments", arguments),
                      table("_qkv_values", values), f"_qkv_settings={quoted(settings)}", SCRIPT])


if __name__ == "__main__":
    print(script(sys.argv[1]))
