"""Teaches MkDocs this repository: pages that are made of the sources, links out of docs/, and lists as
GitHub takes them.

The reference (headers.py, commands.py) needs the program that MEMLITH_PROGRAM names. A link from docs/ to another file
of the repository leads to a page with its text.
"""
import json
import os
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "cmake")]
import check_promises  # noqa: E402
import commands  # noqa: E402
import headers  # noqa: E402
from lists import four_columns  # noqa: E402

HEADERS = sorted(path.name for path in (ROOT / "include" / "memlith").iterdir() if path.name not in headers.INSIDE)
# Pages whose text is a file outside of docs/, and that file. The results are in no menu; other pages link to them.
ORIGINS = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md",
           **{f"results/{path.name}": f"results/{path.name}" for path in sorted((ROOT / "results").glob("*.md"))}}
# Where files of the repository have pages of another name.
PAGES = {"README.md": "index.md", **{origin: page for page, origin in ORIGINS.items()},
         **{f"include/memlith/{name}": f"reference/{name}.md" for name in HEADERS}}
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))|(?m:(?<=\]: )(\S+)$)")
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".go": "go", ".rs": "rust",
             ".sh": "bash", ".html": "html", ".md": "markdown", ".txt": "text"}


# ---- pages of the sources ------------------------------------------------------------------------------------------

def reference():
    """(address, Markdown) of each page of the reference but Python's, which mkdocstrings makes."""
    texts = {name: (ROOT / "include" / "memlith" / name).read_text(encoding="utf-8") for name in HEADERS}
    places = {}
    for name, text in texts.items():
        for declared in headers.anchors_of(headers.items_of(text)[1]):
            places.setdefault(declared, name)
    for name, text in texts.items():
        def links(word, here=name):
            there = places.get(word)
            return there and (f"#{word}" if there == here else f"{there}.html#{word}")
        yield f"reference/{name}.md", headers.page(name, text, links)
    yield "reference/commands.md", commands.page(os.environ["MEMLITH_PROGRAM"])
    yield "promises.md", "\n".join(check_promises.page(ROOT))


def fenced(text, language):
    mark = "`" * (3 + text.count("```"))
    return f"{mark}{language}\n{text.rstrip()}\n{mark}\n"


def source_page(path):
    """The page of a file, or of a folder, of the repository."""
    name, title = path.relative_to(ROOT).as_posix(), path.relative_to(ROOT).as_posix()
    if path.is_dir():
        rows = "".join(f"- [{each.name}]({each.name}.md)\n"
                       for each in files_in(path))
        return f"source/{name}/index.md", f"# {title}/\n\n{rows}"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        body = "\n".join("".join(cell["source"]) + "\n" if cell["cell_type"] == "markdown"
                         else fenced("".join(cell["source"]), "python") for cell in cells)
    else:
        body = fenced(text, LANGUAGES.get(path.suffix, "text"))
    return f"source/{name}.md", f"# {title}\n\n{body}"


def files_in(folder):
    return sorted(each for each in folder.iterdir() if each.is_file())


def repository_path(page, link):
    """The path in the repository that a link of a page leads to, and its anchor; None for one to another site."""
    target, _, anchor = link.partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return None
    origin = ORIGINS.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target)), anchor


def page_of(path):
    """The page of the site that has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"


def on_files(files, config):
    texts = {each.src_uri: each.content_string for each in files.documentation_pages()}
    texts |= {page: (ROOT / origin).read_text(encoding="utf-8") for page, origin in ORIGINS.items()}
    made = {page: texts[page] for page in ORIGINS}
    made.update(reference())
    for page, text in texts.items():
        for match in LINK.finditer(text):
            found = repository_path(page, match[0])
            if not found or found[0].startswith("docs/") or found[0] in PAGES or not (ROOT / found[0]).exists():
                continue
            path = ROOT / found[0]
            made.update(source_page(each) for each in ([path, *files_in(path)] if path.is_dir() else [path]))
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


# ---- Markdown as GitHub takes it -----------------------------------------------------------------------------------

def site_links(page, markdown):
    def replaced(match):
        found = repository_path(page, match[0])
        if not found:
            return match[0]
        target = posixpath.relpath(page_of(found[0]), posixpath.dirname(page) or ".")
        return target + (f"#{found[1]}" if found[1] else "")
    return LINK.sub(replaced, markdown)


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri.startswith("source/"):  # programs and tests that pages link to: no answers to a search
        page.meta["search"] = {"exclude": True}
    if page.file.src_uri.startswith(("reference/", "source/")) and page.file.src_uri != "reference/index.md":
        return markdown
    return four_columns(site_links(page.file.src_uri, markdown))
