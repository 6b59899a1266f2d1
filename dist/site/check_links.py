#!/usr/bin/env python3
"""Dead links of a built site: each link within it leads to a file, and each anchor to a place in that file. Nothing
that a page loads (scripts, styles, fonts, pictures) comes from another site. Links to other sites are not followed.
The search works in a folder (its index is a script, too) and answers with no program or test that pages link to.

Usage: check_links.py SITE | --self-test
"""
import html.parser
import pathlib
import sys
import tempfile
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.places |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"] or "")
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values.get("href", ""))
        elif values.get("src"):
            self.loads.append(values["src"])


def complaints(site):
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are for whatever address was asked for
        name = path.relative_to(site)
        for link, is_load in [(link, False) for link in page.links] + [(link, True) for link in page.loads]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if is_load:
                    yield f"{name}: loads {link} from another site"
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or site not in target.parents:
                yield f"{name}: {link} leads to no file"
            elif parts.fragment and target in pages:
                place = urllib.parse.unquote(parts.fragment)
                if place not in pages[target].places and not place.startswith("__"):
                    yield f"{name}: {link} leads to no place in that page"
    index = site / "search" / "search_index.js"
    if not index.exists():
        yield "search/search_index.js: missing; a site in a folder cannot search"
    elif '"location":"source/' in index.read_text(encoding="utf-8"):
        yield "search/search_index.js: has pages of source/, which are no answers"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder).resolve()
        (site / "b").mkdir()
        (site / "a.html").write_text('<a href="b/c.html#here"></a><a href="b/c.html#gone"></a><a href="d.html"></a>'
                                     '<a href="https://example.org"></a><script src="https://example.org/x"></script>'
                                     '<a href="../../etc/passwd"></a><a href="#top"></a><p id="top">')
        (site / "b" / "c.html").write_text('<p id="here"><img src="../no.png"><a href=".."></a>')
        (site / "index.html").write_text("")
        found = list(complaints(site))
        (site / "search").mkdir()
        (site / "search" / "search_index.js").write_text('var __index = {"docs":[{"location":"source/a.cpp.html"}]}')
        found += list(complaints(site))[-1:]
    wanted = ["a.html: b/c.html#gone leads to no place", "a.html: d.html leads to no file",
              "a.html: ../../etc/passwd leads to no file", "a.html: loads https://example.org/x",
              "b/c.html: ../no.png leads to no file", "search/search_index.js: missing",
              "search/search_index.js: has pages of source/"]
    ok = len(found) == len(wanted) and all(each.startswith(start) for each, start in zip(found, wanted))
    print("self-test: ok" if ok else f"self-test FAILED: {found}")
    return 0 if ok else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    everything = list(complaints(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(everything) or "no dead link")
    sys.exit(1 if everything else 0)
