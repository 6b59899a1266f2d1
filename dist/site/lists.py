"""Lists of Markdown as GitHub takes them, for Python-Markdown."""
import re

FENCE = re.compile(r"\s*(```+|~~~+)")
ITEM = re.compile(r"( *)([-*+]|\d+[.)])( +)(?=\S)")


def four_columns(markdown):
    """Lists whose items go on at the column of their text, with the four columns that Python-Markdown wants."""
    lines, stack, fence, blank = [], [], None, True
    for line in markdown.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if not line.strip():
            lines.append("")
            blank = True
            continue
        if fence is None and (match := ITEM.match(line)):
            while stack and indent < stack[-1]:
                stack.pop()
            if lines and lines[-1] and not stack and not ITEM.match(lines[-1]) and not in_item(lines):
                lines.append("")  # a list may follow a paragraph at once
            lines.append("    " * len(stack) + match[2] + " " + line[match.end():])
            stack.append(match.end())
        else:
            if fence is None and blank:
                while stack and indent < stack[-1]:
                    stack.pop()
            margin = min(indent, stack[-1]) if stack else 0
            lines.append("    " * len(stack) + line[margin:] if stack else line)
        if match := FENCE.match(line):
            fence = match[1] if fence is None else None if match[1].startswith(fence) else fence
        blank = False
    return "\n".join(lines)


def in_item(lines):
    """Does the last paragraph begin with an item of a list?"""
    at = len(lines) - 1
    while at >= 0 and lines[at]:
        if ITEM.match(lines[at]):
            return True
        at -= 1
    return False
