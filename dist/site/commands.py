"""The reference of the command `memlith`: one page, made of what `memlith help --json` prints, as the manual pages."""
import html
import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def manual():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tools" / "pages.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    return pages


def synopsis(row):
    words = [f"memlith {row['command']}".strip(), "[OPTIONS]"]
    words += ["COMMAND ..."] if row["commands"] else []
    for each in row["arguments"]:
        word = each["name"] + (" ..." if each["repeats"] else "")
        words.append(word if each["required"] else f"[{word}]")
    return " ".join(words)


def shown(text):
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))


def table(row, pages):
    lines = []
    for each in row["arguments"]:
        lines.append((f"<code>{each['name']}</code>", pages.sentence(each["description"])))
    for each in row["options"]:
        head, text = ", ".join(f"<code>{name}</code>" for name in each["names"]), each["description"].rstrip(".")
        if each["value"] is not None:
            name, limits = pages.kind_of(each["value"])
            head += f" {html.escape(name)}" + (" ..." if each["repeats"] else "")
            text += f" ({limits})" if limits else ""
            text += f". Default: {each['default'].strip('[]')}" if each["default"] else ""
        lines.append((head, pages.sentence(text)))
    rows = "".join(f'<tr><td class="option">{head}</td><td>{shown(text)}</td></tr>' for head, text in lines)
    return [f"<table><tbody>{rows}</tbody></table>", ""] if lines else []


def page(program):
    pages = manual()
    rows = pages.commands_of(program)
    lines = ["# The command memlith", "", "```", synopsis(rows[""]), "```", "",
             "`memlith COMMAND --help` prints the same, and so do the manual pages, `memlith-COMMAND(1)`. With "
             "`--json` commands print JSON ([json.md](../json.md)).", "", *table(rows[""], pages)]
    for command, row in rows.items():
        if not command or command == "help":
            continue
        depth = min(2 + command.count(" "), 4)
        lines += [f"{'#' * depth} memlith {command}", "", "```", synopsis(row), "```", "",
                  f"<p>{shown(pages.sentence(row['description']))}</p>", "", *table(row, pages)]
    lines += ["## Exit status", "",
              "<ul><li>0: done.</li><li>1: the command failed, or its arguments are wrong.</li><li>2: "
              "<code>verify</code> found damage, or pointers.</li><li>3: <code>verify</code> found a store of another "
              "format version.</li><li>130: stopped by a signal.</li></ul>", "",
              "`memlith run` exits as the program does; 126: memlith cannot run it; 127: there is no such program.", ""]
    return "\n".join(lines)
