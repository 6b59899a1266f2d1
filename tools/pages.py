#!/usr/bin/env python3
"""Makes the manual pages of `memlith`, and the completions of bash and zsh, of what `memlith help --json` prints.

    pages.py MEMLITH FOLDER

FOLDER/man/memlith.1 and memlith-COMMAND.1, FOLDER/bash/memlith, FOLDER/zsh/_memlith.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

FILES = """The files of a store are described in
.I README.md
and
.IR docs/format.md .
"""
EXIT = """0: done.
1: the command failed, or its arguments are wrong.
2:
.B verify
found damage, or pointers.
3:
.B verify
found a store of another format version.
130: stopped by a signal.
.B memlith run
exits as the program does; 126: memlith cannot run it; 127: there is no such program.
"""
EXAMPLES = [
    ("memlith info app-store", "shows the regions and the log of a store"),
    ("memlith verify app-store", "checks every structure on the disk"),
    ("memlith stat --watch app-store", "one line a second of what the process that has the store open does"),
    ("memlith run --match '*.kch' -- server", "runs a program whose files are always as its last fsync left them"),
]


def commands_of(program):
    done = subprocess.run([program, "help", "--json"], capture_output=True, text=True, check=True)
    return {row["command"]: row for row in map(json.loads, done.stdout.splitlines())}


# ---- manual pages --------------------------------------------------------------------------------------------------

def roff(text):
    """Text that roff prints as it is: hyphens to copy, no dot or quote that begins a request."""
    text = text.replace("\\", "\\(rs").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith(".") else text


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def italic(text):
    return f"\\fI{roff(text)}\\fR"


def sentence(text):
    return text if text.endswith((".", "?")) else text + "."


def kind_of(value):
    """("TEXT", "one of a, b") of CLI11's "TEXT:{a,b}"; ("NUMBER", "from 1 to 9") of its "UINT:UINT in [1 - 9]"."""
    name, _, limits = value.partition(":")
    name = {"UINT": "NUMBER", "INT": "NUMBER", "FLOAT": "NUMBER"}.get(name, name)
    if choice := re.match(r"\{(.*)\}", limits):
        return name, "one of " + choice[1].replace(",", ", ")
    if bounds := re.search(r"\[(\S+) - (\S+)\]", limits):
        return name, f"from {bounds[1]} to {bounds[2]}"
    return name, ""


def choices_of(option):
    found = re.search(r"\{(.*)\}", option["value"] or "")
    return found[1].split(",") if found else []


def synopsis(row):
    words = [bold(f"memlith {row['command']}".strip()), "[" + italic("OPTIONS") + "]"]
    if row["commands"]:
        words.append(italic("COMMAND") + " ...")
    for each in row["arguments"]:
        word = italic(each["name"]) + (" ..." if each["repeats"] else "")
        words.append(word if each["required"] else f"[{word}]")
    return " ".join(words)


def option_lines(row):
    lines = []
    for each in row["arguments"]:
        lines += [".TP", italic(each["name"]), roff(sentence(each["description"]))]
    for each in row["options"]:
        head = ", ".join(bold(name) for name in each["names"])
        text = each["description"].rstrip(".")
        if each["value"] is not None:
            name, limits = kind_of(each["value"])
            head += " " + italic(name) + (" ..." if each["repeats"] else "")
            text += f" ({limits})" if limits else ""
            if each["default"]:
                text += f". Default: {each['default'].strip('[]')}"
        lines += [".TP", head, roff(sentence(text))]
    return lines


def first_clause(text):
    return text.split(". ")[0].split("; ")[0].rstrip(".")


def page(name, version, date, rows, extra):
    top = rows[0]
    summary = first_clause(top["description"].removeprefix("memlith: "))
    lines = [f'.TH {name.upper()} 1 "{date}" "memlith {version}" "memlith"',
             ".SH NAME", f"{roff(name)} \\- {roff(summary[0].lower() + summary[1:])}",
             ".SH SYNOPSIS"]
    with_synopsis = [row for row in rows if not row["commands"] or row is top]
    for row in with_synopsis:
        lines += [synopsis(row)] + ([".br"] if row is not with_synopsis[-1] else [])
    lines += [".SH DESCRIPTION", roff(sentence(top["description"]))]
    lines += [".SH OPTIONS", *option_lines(top)]
    for row in rows[1:]:
        lines += [f'.SS "{roff("memlith " + row["command"])}"', roff(sentence(row["description"])), *option_lines(row)]
    return "\n".join(lines + extra) + "\n"


def see_also(names):
    return [".SH SEE ALSO", ",\n".join(f".BR {name} (1)" for name in names).replace(",\n", " ,\n")]


def pages(rows, version):
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", 0))
    date = (datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc) if epoch else
            datetime.datetime.now(datetime.timezone.utc)).strftime("%Y-%m-%d")
    tops = [name for name in rows[""]["commands"] if name != "help"]
    listed = [".SH COMMANDS"]
    for name in rows[""]["commands"]:
        where = f" See \\fBmemlith\\-{name}\\fR(1)." if name in tops else ""
        listed += [".TP", bold(name), roff(sentence(first_clause(rows[name]["description"]))) + where]
    shown = [".SH EXAMPLES"]
    for line, meaning in EXAMPLES:
        shown += [".TP", bold(line), roff(meaning) + "."]
    ending = [".SH EXIT STATUS", EXIT.rstrip().replace("-", "\\-")]
    listed += [*ending, *shown, ".SH FILES", FILES.rstrip(), *see_also([f"memlith\\-{name}" for name in tops])]
    result = {"memlith.1": page("memlith", version, date, [rows[""]], listed)}
    for name in tops:
        below = [row for command, row in rows.items() if command == name or command.startswith(name + " ")]
        result[f"memlith-{name}.1"] = page(f"memlith-{name}", version, date, below, ending + see_also(["memlith"]))
    return result


# ---- completions ---------------------------------------------------------------------------------------------------

BASH_HEAD = """# bash completion for memlith; made by tools/pages.py.
_memlith() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      # The program of `memlith run`, and its arguments.
      if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi
      return
    fi
    case "$command ${COMP_WORDS[i]}" in
"""
BASH_MIDDLE = """    esac
  done
  case "$command $before" in
"""
BASH_TAIL = """  esac
  local words=
  case "$command" in
%s  esac
  if [[ $word == -* || $words != *' '@* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${words//@/}" -- "$word")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -f -- "$word")
}
complete -o filenames -F _memlith memlith
"""


def bash(rows):
    """`$command` becomes what has been typed of the commands. The word @ stands for arguments that are files."""
    steps = []
    for command in rows:
        if command:
            parent, _, last = command.rpartition(" ")
            steps.append(f'      "{parent} {last}") command="{command}" ;;')
    values = []
    for command, row in rows.items():
        for option in row["options"]:
            if option["value"] is None:
                continue
            choices = " ".join(choices_of(option))
            answer = f'compgen -W "{choices}"' if choices else "compgen -f"
            heads = " | ".join(f'"{command} {name}"' for name in option["names"])
            values.append(f'    {heads}) mapfile -t COMPREPLY < <({answer} -- "$word"); return ;;')
    words = []
    for command, row in rows.items():
        named = [name for option in row["options"] for name in option["names"]] + row["commands"]
        if command == "help":
            named = rows[""]["commands"]
        elif row["arguments"]:
            named.append("@")
        words.append(f'    "{command}") words="{" ".join(named)}" ;;\n')
    return (BASH_HEAD + "\n".join(steps) + "\n" + BASH_MIDDLE + "\n".join(values) + "\n" + BASH_TAIL % "".join(words))


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", first_clause(text)).replace("'", "'\\''")


def zsh_function(command):
    return "_memlith" + "".join("_" + word for word in command.split())


def zsh(rows):
    lines = ["#compdef memlith", "# zsh completion for memlith; made by tools/pages.py."]
    for command, row in rows.items():
        specs = []
        for option in row["options"]:
            value = ""
            if option["value"] is not None:
                choices = choices_of(option)
                value = f":{kind_of(option['value'])[0].lower()}:" + (f"({' '.join(choices)})" if choices else "_files")
            star = "*" if option["repeats"] or option["names"] == ["--match"] else ""
            specs += [f"'{star}{name}[{zsh_text(option['description'])}]{value}'" for name in option["names"]]
        if row["commands"]:
            specs += ["'1:command:->command'", "'*::argument:->argument'"]
        elif command == "help":
            specs.append(f"'*:command:({' '.join(rows['']['commands'])})'")
        elif command == "run":
            specs.append("'*::program:_normal'")
        else:
            specs += [f"'{'*' if each['repeats'] else ''}:{each['name'].lower()}:_files'" for each in row["arguments"]]
        lines += [f"{zsh_function(command)}() {{"]
        if row["commands"]:
            lines.append("  local state line")
        lines.append("  _arguments -s \\\n    " + " \\\n    ".join(specs))
        if row["commands"]:
            described = " ".join(f"'{name}:{zsh_text(rows[f'{command} {name}'.strip()]['description'])}'"
                                 for name in row["commands"])
            lines += ["  case $state in",
                      f"    command) local -a commands=({described}); _describe command commands ;;",
                      "    argument)", "      case $words[1] in"]
            lines += [f"        {name}) {zsh_function(f'{command} {name}'.strip())} ;;" for name in row["commands"]]
            lines += ["      esac ;;", "  esac"]
        lines.append("}")
    return "\n".join(lines + ['_memlith "$@"']) + "\n"


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    rows = commands_of(program)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    files = {f"man/{name}": text for name, text in pages(rows, version).items()}
    files |= {"bash/memlith": bash(rows), "zsh/_memlith": zsh(rows)}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
