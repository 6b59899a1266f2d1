"""The reference of C and C++: a page for each public header, made of its declarations and of the comments before them.

A page has the comment at the head of the header, its sections (`---- name ----`) and its declarations in the order of
the file. A comment belongs to the declarations that follow it without an empty line. Left out: bodies, private members,
the namespace `detail`, and what every handle has (moves, destructors, friends).
"""
import html
import re

INSIDE = {"track_gcc.hpp", "track_libstdcxx.hpp", "page_memory.hpp", "btree_leaves.hpp"}  # parts of others: no pages
COLUMNS = 120  # of the headers' comments
SIGNATURE_COLUMNS = 88
COMMENT = re.compile(r"//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/", re.DOTALL)
DIRECTIVE = re.compile(r"#(?:[^\n\\]|\\.|\\\n)*", re.DOTALL)
SECTION = re.compile(r"\s*-{4} (.*?)(?: -+)?\s*$")
STATEMENT = re.compile(r".*[;{]\s*(//.*)?$|\s*#include .*")
LEAD = re.compile(r"(Errors?|Errors, [^:]*|Durability|Durable|Cost|Threads|Source)(?=:)|"
                  r"[A-Z]{4,}(?: of [a-z ]+)?(?=[.:,] )")
TERM = re.compile(r"(\S+(?: \S+)?)\s{2,}(\S.*)")
NAME = re.compile(r"\b(?:memlith_\w+|MEMLITH_\w+)\b")
GUIDE = re.compile(r"\bdocs/([a-z-]+)\.md\b")
ATTRIBUTE = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)\s*")
REQUIRES = re.compile(r"requires\s*(?:\([^()]*\)\s*)?$")


class Item:
    """A comment, or one declaration of the text: its code, the names that it declares, and the members of a class."""

    def __init__(self, comment, code, names, members=None, alone=True):
        self.comment, self.code, self.names, self.members = comment, code, names, members
        self.alone = alone  # its comment, if any, is not that of the declaration before


# ---- reading -------------------------------------------------------------------------------------------------------

def skip(text, at):
    """The end of the comment, string or bracket that begins at `at`; one character otherwise."""
    if match := COMMENT.match(text, at):
        return match.end()
    if text[at] in "\"'" and not (text[at] == "'" and text[at - 1].isdigit()):
        end = at + 1
        while text[end] != text[at]:
            end += 2 if text[end] == "\\" else 1
        return end + 1
    if text[at] in "([{":
        end = at + 1
        while text[end] not in ")]}":
            end = skip(text, end)
        return end + 1
    return at + 1


def declaration_end(text):
    """Where the declaration at the beginning of `text` ends, and where its body begins (or None)."""
    at, body, is_initialised = 0, None, False
    if text.startswith("template"):
        at = template_end(text)
    while at < len(text):
        if text[at] == ";":
            return at + 1, body
        if text[at] == "=" and not re.search(r"operator[\w<>=!]*$", text[max(0, at - 12):at]):
            is_initialised = True
        is_braced = text[at] == "{" and not is_initialised and not REQUIRES.search(text[max(0, at - 80):at])
        end = skip(text, at)
        if is_braced:
            after = re.match(r"\s*\w*;", text[end:])  # of a type
            is_function = ")" in text[:at] and not re.match(r"\s*(?:typedef|class|struct|enum)\b", text)
            return end if is_function or not after else end + after.end(), at
        at = end
    return at, body


def template_end(text):
    """The end of `template <...>`."""
    at, depth = text.index("<"), 0
    while True:
        depth += (text[at] == "<") - (text[at] == ">")
        at += 1
        if depth == 0:
            return at


def dedent(code):
    lines = code.split("\n")
    margins = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    margin = min(margins, default=0)
    # The last line of a block closes it, at the indent of the first.
    return "\n".join([lines[0], *(line[margin:] for line in lines[1:])]).strip()


def signature(code, body):
    """A function without its body and its initialisers."""
    if body is not None:
        code = code[:body].rstrip()
        depth = 0
        for at, each in enumerate(code):
            depth += (each in "([{") - (each in ")]}")
            if each == ":" and depth == 0 and code[at - 1] != ":" and code[at + 1:at + 2] != ":" and ")" in code[:at]:
                code = code[:at].rstrip()
                break
        code += ";"
    code = re.sub(r"\b(?:MEMLITH_API|static inline|inline)\s+|\[\[nodiscard\]\]\s*", "", code)
    code = re.sub(r" +", " ", re.sub(r"\s*\n\s*", " ", code))
    code = re.sub(r"^(template <[^(;]*?>) (?=\w)", r"\1\n", code)
    if max(map(len, code.split("\n"))) <= SIGNATURE_COLUMNS or "(" not in code:
        return code
    head, inner = code.split("(", 1)
    inner, tail = inner[:inner.rindex(")")], inner[inner.rindex(")"):]
    return f"{head}(\n    " + ",\n    ".join(split_at_commas(inner)) + tail


def split_at_commas(text):
    parts, depth = [""], 0
    for each in text:
        depth += (each in "([{<") - (each in ")]}>")
        if each == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return [part.strip() for part in parts]


def names_of(code):
    """The name that a declaration declares."""
    plain = re.sub(r"^requires .*?\s(?=(?:explicit|struct|class|void|bool|friend)\b|\w+ operator|Result)", "",
                   re.sub(r"^template\s*<[^{;(]*?>\s*(?=\w)", "", code), flags=re.DOTALL)
    if match := re.match(r"#define (\w+)", code):
        return [match[1]]
    if match := re.match(r"using (\w+)\s*=", plain):
        return [match[1]]
    if match := re.match(r"enum\s*\{(.*)\}", plain, re.DOTALL):
        lines = re.sub(r"(?<!\n)[{,] *", "\n", COMMENT.sub("", match[1]))
        return re.findall(r"^\s*([A-Za-z_]\w*)\s*(?:=|,|$|/\*)", lines, re.MULTILINE)
    if match := re.match(r"(?:enum class|enum|class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+)", plain):
        if "{" in plain or re.fullmatch(r"(?:class|struct)\s+\w+;", plain):
            return [match[1]]
    if match := re.match(r"typedef [^{]*?\(\*(\w+)\)\(", plain):
        return [match[1]]
    if plain.startswith("typedef"):
        return re.findall(r"(\w+)\s*;$", plain)
    if match := re.search(r"(operator\s*[^\s\w(]+|operator \w[\w:]*|operator\(\)|~?[A-Za-z_]\w*)\s*\(", plain):
        return [re.sub(r"\s+", " ", match[1])]
    return re.findall(r"([A-Za-z_]\w*)\s*(?:=[^;]*)?;$", plain)[:1]


def comment_text(raw):
    """The lines of a comment, without its marks, each with the column at which its text begins."""
    raw = raw.strip()
    if raw.startswith("//"):
        return [re.sub(r"^\s*// ?", "", line).rstrip() for line in raw.split("\n")]
    lines = raw.removeprefix("/*").removesuffix("*/").split("\n")
    return [re.sub(r"^\s*\* ?", "", line).rstrip() if at else line.strip() for at, line in enumerate(lines)]


def is_left_out(code, names, owner):
    if not names or names[0].startswith("~") or names[0] == "requires":
        return True
    if code.startswith(("static_assert", "extern ", "#undef")) or re.fullmatch(r"(class|struct)\s+\w+;", code):
        return True
    head = COMMENT.sub("", code).split("(")[0]
    plain = re.sub(r"^template\s*<[^{;(]*?>\s*(?:requires .*?\s)?(?=struct|class)", "", code)
    if re.match(r"(?:struct|class) \w+\s*<", plain):
        return True  # a specialisation
    if owner is None:
        return bool(re.search(r"\w::~?\w+$", head))  # a member that is defined outside of its class
    is_copy = names[0] == owner and re.search(rf"\(\s*(const )?{owner}\s*&", code)
    return bool(is_copy) or "operator=" in head or "friend " in code.split("\n")[0]


def parse(text, owner=None, hidden=False):
    """Items of one scope: of a file, or of the class `owner`. `hidden`: the scope begins with private members."""
    items, at, pending, blank, long_before, last_end = [], 0, None, True, False, None
    while at < len(text):
        if text[at].isspace():
            end = re.compile(r"\s+").match(text, at).end()
            if text.count("\n", at, end) > 1:
                blank = True
                if pending is not None:
                    items.append(Item(pending, None, []))
                    pending = None
            at = end
            continue
        if match := COMMENT.match(text, at):
            if items and last_end is not None and not text[last_end:at].strip(" "):
                items[-1].code += "  " + match[0]  # behind a declaration, on its line
            elif not hidden and not re.match(r"// namespace", match[0]):
                if pending is not None:
                    items.append(Item(pending, None, []))
                pending = comment_text(match[0])
                blank = False
            at = match.end()
            continue
        if match := re.compile(r"(public|private|protected):").match(text, at):
            hidden, pending, at = match[1] != "public", None, match.end()
            continue
        if match := DIRECTIVE.match(text, at):
            value = re.match(r"#define (\w+)[ (](?!static)\S.*", match[0], re.DOTALL)
            known = {name for item in items for name in item.names}
            if value and not value[1].endswith(("_H", "_API")) and value[1] not in known:
                items.append(Item(pending, COMMENT.sub("", match[0]).rstrip(), [value[1]]))
                items[-1].alone = blank or pending is not None
                pending, blank = None, False
            at = match.end()
            continue
        if match := re.compile(r"(?:inline )?namespace ([\w:]+) \{|extern \"C\" \{|\}").match(text, at):
            if match[0] == "}":  # of extern "C"
                at = match.end()
                continue
            if match[1]:
                end = skip(text, match.end() - 1)
                if match[1] in ("memlith", "memlith::steps"):
                    items += parse(text[match.end():end - 1])
                pending, at = None, end
                continue
            at = match.end()
            continue
        end, body = declaration_end(text[at:])
        code, end = text[at:at + end], at + end
        if match := ATTRIBUTE.match(code):
            code, body = code[match.end():], body and body - match.end()
        names = names_of(code)
        if hidden or is_left_out(code, names, owner):
            pending = None
        else:
            items.append(declared(pending, code, body, names))
            items[-1].alone = blank or pending is not None or long_before or code.count("\n") > 2
            pending, blank, last_end = None, False, end
        long_before = code.count("\n") > 2
        at = end
    if pending is not None and not hidden:
        items.append(Item(pending, None, []))
    return items


def declared(comment, code, body, names):
    plain = re.sub(r"^template\s*<[^{;(]*?>\s*", "", code)
    is_class = re.match(r"(?:class|struct)\b", plain) and body is not None
    if is_class and "(" in re.sub(r"\([^)]*\*\w+\)\(.*?\)", "", COMMENT.sub("", code[body:])):
        members = parse(code[body + 1:code.rindex("}")], names[0], hidden=plain.startswith("class"))
        return Item(comment, signature(code, body).replace(" final", ""), names, members)
    if re.match(r"(?:class|struct|enum|typedef|using|#)", plain):
        return Item(comment, dedent(code), names)
    return Item(comment, signature(code, body), names)


# ---- writing -------------------------------------------------------------------------------------------------------

class Page:
    def __init__(self, header, links):
        self.links, self.lines, self.anchors = links, [], set()
        self.language = "cpp" if header.endswith("pp") else "c"

    def text(self, raw):
        """HTML of one line or paragraph: backquotes are code, and names of the interface lead to their place."""
        def linked(match):
            target = self.links(match[0])
            return f'<a href="{target}">{match[0]}</a>' if target else match[0]

        parts = re.split(r"`([^`]*)`", raw)
        for at, part in enumerate(parts):
            shown = NAME.sub(linked, html.escape(part, quote=False))
            shown = GUIDE.sub(r'<a href="../\1.html">\1</a>', shown)
            parts[at] = f"<code>{shown}</code>" if at % 2 else shown
        return "".join(parts)

    def comment(self, lines):
        block, paragraphs = [], []
        for line in [*lines, ""]:
            if line.strip():
                block.append(line)
                continue
            if block:
                paragraphs.append(block)
            block = []
        for block in paragraphs:
            self.paragraph(block)

    def paragraph(self, block):
        """Plain lines, samples and lists, in any order."""
        run, kind = [], None
        for line in [*block, None]:
            if line is not None and (line.startswith((" - ", "- ")) or re.match(r"[A-Z]{2,}\s{2,}\S", line)):
                line = "  " + line.lstrip()  # an item of a list, which goes on in lines with an indent
            now = None if line is None else "indented" if line.startswith("  ") else "plain"
            if now != kind and run:
                self.plain(run) if kind == "plain" else self.indented(run)
                run = []
            kind = now
            run.append(line)

    def plain(self, lines):
        sentence = lines[0]
        for before, line in zip(lines, lines[1:]):
            # A line that ends before the margin, although the next word had room, ends a paragraph.
            ends = len(before) + 1 + len(line.split()[0]) <= COLUMNS - 8 and before.endswith((".", ":"))
            if ends or LEAD.match(line):
                self.lines += [f"<p>{self.lead(sentence)}</p>", ""]
                sentence = line
            else:
                sentence += " " + line
        self.lines += [f"<p>{self.lead(sentence)}</p>", ""]

    def lead(self, sentence):
        match = LEAD.match(sentence)
        return f"<strong>{match[0]}</strong>{self.text(sentence[match.end():])}" if match else self.text(sentence)

    def indented(self, lines):
        first = lines[0].lstrip()
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        if not first.startswith("- ") and any(STATEMENT.match(line) for line in lines):
            self.lines += [f"```{self.language}", *(line[margin:] for line in lines), "```", ""]
            return
        if margin > 5:  # goes on from the line before, which ended in a plain paragraph
            joined = " ".join(line.strip() for line in lines)
            if self.lines and self.lines[-1] == "" and len(self.lines) > 1 and self.lines[-2].endswith("</p>"):
                self.lines[-2] = self.lines[-2].removesuffix("</p>") + " " + self.text(joined) + "</p>"
                return
        entries = []
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if indent == margin or not entries:
                entries.append(line.strip())
            else:
                entries[-1] += " " + line.strip()
        self.lines.append('<ul class="terms">')
        for entry in entries:
            entry = entry.removeprefix("- ")
            match = TERM.fullmatch(entry)
            shown = f"<strong>{self.text(match[1])}</strong> {self.text(match[2])}" if match else self.text(entry)
            self.lines.append(f"<li>{shown}</li>")
        self.lines += ["</ul>", ""]

    def heading(self, level, names):
        names = list(dict.fromkeys(names))
        anchors = [self.anchor(name) for name in names]
        shown = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
        if any(anchors[1:]):
            self.lines += ["".join(f'<a id="{anchor}"></a>' for anchor in anchors[1:] if anchor), ""]
        place = f"#{anchors[0]} " if anchors[0] else ""
        label = names[0].rsplit("::", 1)[-1] + (", ..." if len(names) > 1 else "")
        self.lines += [f"{'#' * level} {shown} {{ {place}data-toc-label='{label}' }}", ""]

    def anchor(self, name):
        anchor = re.sub(r"[^\w.-]+", "-", name.replace("::", ".")).strip("-")
        if not anchor or anchor in self.anchors:
            return ""
        self.anchors.add(anchor)
        return anchor

    def items(self, items, level, prefix=""):
        at = 0
        while at < len(items):
            item = items[at]
            if item.code is None:
                section = SECTION.fullmatch(item.comment[0])
                if section:
                    name = section[1].rstrip(" -")
                    self.lines += [f"{'#' * max(2, level - 1)} {name[0].upper()}{name[1:]}", ""]
                self.comment(item.comment[1:] if section else item.comment)
                at += 1
                continue
            group = [item]
            while (at + len(group) < len(items) and not item.members and items[at + len(group)].code
                   and not items[at + len(group)].alone and not items[at + len(group)].members):
                group.append(items[at + len(group)])
            self.heading(level, [prefix + name for each in group for name in each.names])
            self.lines += [f"```{self.language}", *(each.code for each in group), "```", ""]
            if item.comment:
                self.comment(item.comment)
            if item.members:
                self.items(item.members, level + 1, f"{prefix}{item.names[0]}::")
            at += len(group)


def items_of(text):
    """(the lines of the comment at the head, the items) of a header."""
    head = COMMENT.match(text)
    return comment_text(head[0]), parse(text[head.end():])


def anchors_of(items, prefix=""):
    """Every name that a page of these items has a place for."""
    for item in items:
        for name in item.names:
            yield prefix + name
        if item.members:
            yield from anchors_of(item.members, f"{prefix}{item.names[0]}::")


def page(header, text, links):
    """The Markdown of the page of `header`. `links(name)` is the address of a name's place, or None."""
    head, items = items_of(text)
    out = Page(header, links)
    out.lines += [f"# memlith/{header}", ""]
    out.comment(head)
    out.items(items, 3)
    return "\n".join(out.lines) + "\n"
