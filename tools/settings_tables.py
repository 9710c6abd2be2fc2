"""Tables of settings in the documentation, from the rows of ``eigenmesh.settings``: part of ``make pages``.

A table stands between ``<!-- settings: NAME -->`` and ``<!-- end of settings -->``, where NAME is a key of ``TABLES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eigenmesh.settings import A_STREAM, AT_SITES, ONE_FIT, SETTINGS, Setting

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "settings.md", ROOT / "docs" / "sites" / "deploy.md"]
TABLE = re.compile(r"(?<=<!-- settings: )(\w+) -->\n.*?(?=<!-- end of settings -->)", re.DOTALL)


def of_everything() -> str:
    """Every setting, and where it may be given."""
    rows = ["| setting | estimator | command | sites | default | all nodes alike | what it is |", "| --- " * 7 + "|"]
    for name, row in SETTINGS.items():
        command = ", ".join(f"`{option}`" for option in row.command.split(", ") if option)
        site = f"`{row.site}`" if row.site else ""
        agree = "yes" if row.agree else ""
        where = f"{_estimator(name)} | {command} | {site}"
        rows.append(f"| `{name}` | {where} | {_shown(row.default)} | {agree} | {_text(row)} |")
    others = [(name, front, value) for name, row in SETTINGS.items() for front, value in row.elsewhere.items()]
    rows += ["", "Some defaults are others at some places:", ""]
    rows += ["| setting | where | default | why |", "| --- | --- | --- | --- |"]
    rows += [f"| `{name}` | {front} | {_shown(value)} | {SETTINGS[name].because} |" for name, front, value in others]
    return "\n".join(rows)


def of_sites() -> str:
    """The settings of network.toml and site.toml."""
    rows = ["| setting | default | all sites alike | meaning |", "| --- | --- | --- | --- |"]
    for name, row in AT_SITES.items():
        agree = "yes" if row.agree else "may differ"
        rows.append(f"| `{name}` | {_shown(row.default_at('site'))} | {agree} | {_text(row)} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {"everything": of_everything, "sites": of_sites}


def _estimator(name: str) -> str:
    kinds = {"DecentralizedPCA": name in ONE_FIT, "StreamingPCA": name in A_STREAM}
    return "both" if all(kinds.values()) else "".join(f"`{kind}`" for kind, has in kinds.items() if has)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in (None, "") else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _text(row: Setting) -> str:
    return row.text.replace("``", "`")


def renewed(page: str) -> str:
    """The text of a page with tables that are up to date."""
    return TABLE.sub(lambda found: f"{found[1]} -->\n\n{TABLES[found[1]]()}\n\n", page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
