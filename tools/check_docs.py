"""Check the built pages: internal links, equations, external files that they load, and elements that are too wide.

``python tools/check_docs.py docs/_build/html`` prints all problems and exits with status 1 if there are any. Widths are
checked in a Chromium, if there is one.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

PAGE = "document.documentElement.scrollWidth > innerWidth + 1 ? ['the page'] : []"
CODE = (
    "[...document.querySelectorAll('article pre')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    ".map(e => 'code, ' + e.textContent.slice(0, 60))"
)
# Higher than the room around it, an equation would be cut off or have a scrollbar.
EQUATION = (
    "[...document.querySelectorAll('.math-wrapper')].filter(e => e.scrollHeight > e.clientHeight)"
    ".map(e => 'too high: equation, ' + e.textContent.slice(0, 60))"
)
# No page may need horizontal scrolling, not even on a phone; and no code on a large screen.
TOO_WIDE = {1400: (PAGE, CODE, EQUATION), 390: (PAGE, EQUATION)}
# Elements that a browser fetches when it opens a page.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Anchors, links, fetched files and equations of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.names: set[str] = set()
        self.links: list[str] = []
        self.fetches: list[str] = []
        self.text: list[str] = []
        self._code = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value is not None}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in FETCHED and FETCHED[tag] in found:
            self.fetches.append(found[FETCHED[tag]])
        if tag == "link" and found.get("rel") == "stylesheet":
            self.fetches.append(found.get("href", ""))
        self._code += tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.text.append(data)


def problems(folder: Path) -> list[str]:
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        # Sphinx's pages of source code link back to anchors that do not exist.
        for link in [] if name.parts[0] == "_modules" else page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name}: a link to {link}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                found.append(f"{name}: a link to {link}, and that page has no such place")
        found += [f"{name}: loads {link} from elsewhere" for link in page.fetches if urlsplit(link).netloc]
        text = " ".join(page.text)
        found += [
            f"{name}: an equation was not drawn: {mark}" for mark in (r"\(", r"\[", r"\frac", r"\sum") if mark in text
        ]
    return found


def too_wide(folder: Path, chromium: str) -> list[str]:
    """Elements that are wider than their page."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        for path in sorted(folder.rglob("*.html")):
            if "_modules" in path.parts:
                continue
            page.goto(path.resolve().as_uri())
            for width, scripts in TOO_WIDE.items():
                page.set_viewport_size({"width": width, "height": 1000})
                name = path.relative_to(folder)
                wide = [what for script in scripts for what in page.evaluate(script)]
                found += [f"{name}: too wide at {width} px: {what!r}" for what in wide]
        browser.close()
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    found = problems(folder)
    chromium = shutil.which("chromium")
    if chromium is not None and importlib.util.find_spec("playwright") is not None:
        found += too_wide(folder, chromium)
    else:
        print("no Chromium: widths were not looked at")
    for problem in found:
        print(problem)
    print(f"{len(found)} problems in {sum(1 for _ in folder.rglob('*.html'))} pages")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
