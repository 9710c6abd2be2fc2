"""A self-contained HTML page: style and pictures are embedded."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

STYLE = """
:root { color-scheme: light; } * { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 3px solid #1a1a1a; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
p, ul, dl { max-width: 46rem; } a { color: #0b4f8a; } nav a { margin-right: 1rem; }
.beside { display: grid; gap: 1rem 2.5rem; } .beside > div { min-width: 0; }
@media (min-width: 64rem) { .beside { grid-template-columns: 23rem 1fr; } }
.pictures { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; border: 1px solid #ddd; } figure img { display: block; width: 100%; height: auto; }
dl { display: grid; grid-template-columns: minmax(5rem, 8rem) 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dt, dd { font-size: .9rem; } dt { font-weight: 600; } dd { margin: 0; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top;
  white-space: nowrap; }
th.left, td.left { text-align: left; } thead th { border-bottom: 2px solid #1a1a1a; }
th[scope=colgroup] { text-align: center; border-left: 2px solid #fff; border-right: 2px solid #fff; }
.grouped td:nth-child(4n+3), .grouped thead tr + tr th:nth-child(4n+1) { padding-left: 1.2rem; }
tr.ours { background: #f3f3f3; font-weight: 600; }
.claims { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr));
  align-items: start; }
.claim { border: 1px solid #ddd; padding: .6rem .8rem; }
.claim h4, .claim p { margin: 0 0 .4rem; } .claim p { line-height: 1.9; }
.claim ul { margin: .2rem 0 .4rem; padding-left: 1.2rem; font-size: .85rem; }
.verdict { display: inline-block; padding: 0 .5rem; border: 1.5px solid #1a1a1a; border-radius: .25rem;
  line-height: 1.4; white-space: nowrap; }
.holds { background: #1a1a1a; color: #fff; } .partly { background: #d9d9d9; } .open { border-style: dashed; }
.note { border-left: 4px solid #1a1a1a; padding: .25rem .75rem; background: #f3f3f3; max-width: 46rem; }
.small { font-size: .85rem; color: #444; } details summary { cursor: pointer; font-size: .9rem; }
@media (max-width: 34rem) { body { padding: .6rem; } dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print { body { max-width: none; } h2 { break-before: page; } }
"""


def page(title: str, body: Sequence[str]) -> str:
    meta = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f"<head>\n{meta}\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>"
    content = "\n".join(body)
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n<body>\n{content}\n</body>\n</html>\n'


def facts(entries: Mapping[str, str]) -> str:
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in entries.items())
    return f"<dl>{pairs}</dl>"


def small(words: str) -> str:
    return f'<p class="small">{escape(words)}</p>'


def picture(svg: bytes, words: str) -> str:
    """An SVG as a separate image, so that the ids of two pictures cannot clash."""
    data = base64.b64encode(svg).decode()
    return f'<figure><img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}"></figure>'


def pictures(figures: Sequence[str]) -> str:
    """Pictures next to each other if there is room."""
    return f'<div class="pictures">{"".join(figures)}</div>'


def table(head: str, rows: Sequence[str], caption: str = "", css: str = "") -> str:
    """A table that scrolls on narrow screens."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{title}<thead>{head}</thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table{_class(css)}>{inside}</table></div>'


def row(cells: Sequence[str], kind: str = "td", left: int = 1, css: str = "") -> str:
    """A row of a table from plain text; the first ``left`` cells are left-aligned."""
    starts = [f"{kind}{_class('left' if number < left else '')}" for number in range(len(cells))]
    parts = [f"<{start}>{escape(text)}</{kind}>" for start, text in zip(starts, cells, strict=True)]
    return f"<tr{_class(css)}>{''.join(parts)}</tr>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
