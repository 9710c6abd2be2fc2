"""Draw the moving picture of the page on the method: seven nodes average their numbers over a tree in four rounds.

``python docs/images/make_tree.py FOLDER`` writes it there. The result is plain SVG with CSS. It is put into the page
itself, so its colours are those of the page, light or dark. It halts under the pointer, and does not move for readers
who have asked their system for less motion.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

NAME = "tree.svg"
PLACES = [(320, 48), (170, 148), (470, 148), (90, 248), (250, 248), (390, 248), (550, 248)]
PARENTS = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2}
OWN = [7, 6, 2, 4, 8, 3, 5]
LEVELS = [[0], [1, 2], [3, 4, 5, 6]]
# Seconds at which each round begins, how long its messages are on the way, and when all begins anew.
ROUNDS, TRAVEL, END = (1.5, 4.5, 8.5, 11.5), 2.0, 16.0
# Blue circles go up and orange squares go down: told apart by shape, and by those who do not see red or green.
STYLE = """
.tree { width: 100%; max-width: 40rem; height: auto; display: block; margin: 1rem auto; font: 600 18px sans-serif; }
.tree .link { stroke: var(--color-foreground-muted, #777); stroke-width: 2; }
.tree .node { fill: var(--color-background-secondary, #f4f4f4); stroke: var(--color-foreground-primary, #111); }
.tree text { text-anchor: middle; dominant-baseline: central; fill: var(--color-foreground-primary, #111); opacity: 0; }
.tree text.last { opacity: 1; }
.tree .up, .tree .down { opacity: 0; }
.tree .up circle { fill: #0072b2; }
.tree .up text { fill: #fff; opacity: 1; }
.tree .down rect { fill: #e69f00; }
.tree .down text { fill: #000; opacity: 1; }
.tree:hover *, .tree:focus * { animation-play-state: paused !important; }
"""


def sums() -> list[int]:
    """What each node has once its children have sent theirs."""
    found = list(OWN)
    for child in sorted(PARENTS, reverse=True):
        found[PARENTS[child]] += found[child]
    return found


class Film:
    """Elements that are there for a while, and the key frames that show them."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.rules: list[str] = []

    def text(self, place: tuple[float, float], words: object, start: float, end: float) -> None:
        last = ' class="last"' if end == END else ""
        name = self._rule(self._shown(start, end))
        self.elements.append(f'<text x="{place[0]}" y="{place[1]}"{last} style="--of:{name}">{words}</text>')

    def message(self, kind: str, words: object, sender: int, receiver: int, start: float) -> None:
        (x, y), (to_x, to_y) = PLACES[sender], PLACES[receiver]
        shape = '<circle r="15"/>' if kind == "up" else '<rect x="-15" y="-15" width="30" height="30" rx="5"/>'
        frames = self._shown(start, start + TRAVEL)
        frames += f"0%,{_share(start)}{{transform:translate({x}px,{y}px)}}"
        frames += f"{_share(start + TRAVEL)},100%{{transform:translate({to_x}px,{to_y}px)}}"
        group = f'<g class="{kind}" style="--of:{self._rule(frames)}">{shape}<text>{words}</text></g>'
        self.elements.append(group)

    def _rule(self, frames: str) -> str:
        name = f"tree{len(self.rules)}"
        self.rules.append(f"@keyframes {name}{{{frames}}}")
        return name

    def _shown(self, start: float, end: float) -> str:
        before = "" if start == 0 else f"0%,{_share(start - 0.01)}{{opacity:0}}"
        after = "" if end == END else f"{_share(end + 0.01)},100%{{opacity:0}}"
        return f"{before}{_share(start)},{_share(end)}{{opacity:1}}{after}"


def _share(seconds: float) -> str:
    return f"{100 * seconds / END:.2f}%"


def film() -> Film:
    made, total = Film(), sums()
    mean = total[0] // len(OWN)
    arrivals = [start + TRAVEL for start in ROUNDS]
    # When a level has the sums of what is below it, and when it has the average.
    summed = [arrivals[1], arrivals[0], 0.0]
    averaged = [arrivals[1] + 1.5, arrivals[2], arrivals[3]]
    for depth, level in enumerate(LEVELS):
        for node in level:
            if summed[depth]:
                made.text(PLACES[node], OWN[node], 0, summed[depth])
            made.text(PLACES[node], total[node], summed[depth], averaged[depth])
            made.text(PLACES[node], mean, averaged[depth], END)
    for child, parent in PARENTS.items():
        deep = child in LEVELS[2]
        made.message("up", total[child], child, parent, ROUNDS[0 if deep else 1])
        made.message("down", mean, parent, child, ROUNDS[3 if deep else 2])
    captions = (
        "Seven nodes, each with a number. The average?",
        "Round 1: the lowest send theirs up.",
        "Round 2: sums go up. The top has the sum of all.",
        f"{total[0]} / {len(OWN)} nodes = {mean}, the average.",
        "Round 3: the average goes down.",
        "Round 4: everybody has it, to the last digit.",
    )
    times = (0, ROUNDS[0], ROUNDS[1], arrivals[1] + 0.5, ROUNDS[2], ROUNDS[3], END)
    for caption, (start, end) in zip(captions, pairwise(times), strict=True):
        made.text((320, 310), caption, start, end)
    return made


def picture() -> str:
    made = film()
    links = [
        f'<line class="link" x1="{PLACES[a][0]}" y1="{PLACES[a][1]}" x2="{PLACES[b][0]}" y2="{PLACES[b][1]}"/>'
        for a, b in PARENTS.items()
    ]
    nodes = [f'<circle class="node" cx="{x}" cy="{y}" r="26"/>' for x, y in PLACES]
    rule = f".tree [style] {{ animation: {END:g}s linear infinite; animation-name: var(--of); }}"
    moving = f"@media (prefers-reduced-motion: no-preference) {{ {rule} }}"
    title = "Seven nodes in a tree send sums up in two rounds and the average down in two more."
    head = '<svg xmlns="http://www.w3.org/2000/svg" class="tree" viewBox="44 12 552 320" role="img" tabindex="0"'
    lines = [f'{head} aria-label="{title}">', f"<style>{STYLE}", *made.rules, moving, "</style>"]
    return "\n".join([*lines, *links, *nodes, *made.elements, "</svg>"]) + "\n"


if __name__ == "__main__":
    (Path(sys.argv[1]) / NAME).write_text(picture(), encoding="utf-8")
