"""Text of other sites: whatever they send, it is one line that no terminal obeys."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenmesh.words import MAX_FOREIGN_CHARACTERS, one_line, said_by


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("its disk is full.", "its disk is full."),
        ("café, 東京", "café, 東京"),
        ("\x1b[2J\x1b[1;31mdone\x1b[0m", "done"),
        ("\x1b]0;title\x07done", "done"),
        ("\x1b]8;;http://evil.example\x1b\\done\x1b]8;;\x1b\\", "done"),
        ("\x9b31mdone", "done"),
        ("\x1bcdone", "done"),
        ("failed\nerror: pay oslo\r\nnow", "failed error: pay oslo now"),
        ("a\u2028b\u2029c\x85d\x0be", "a b c d e"),
        ("a\u202etxt.exe\u2066b", "atxt.exeb"),
        ("a\x00\x08\x7fb", "ab"),
        ("zero\u200bwidth", "zerowidth"),
        ("half \ud800 a pair", "half  a pair"),
    ],
)
def test_orders_to_a_terminal_and_forged_lines_are_taken_out(sent, shown):
    assert one_line(sent) == shown


@given(st.text(st.characters(), max_size=300))
def test_nothing_but_visible_characters_and_spaces_is_left(text):
    shown = one_line(text)
    assert all(unicodedata.category(letter)[0] != "C" for letter in shown)
    assert len(shown.splitlines()) <= 1


def test_a_long_text_is_cut():
    assert len(one_line("x" * 10_000_000)) == MAX_FOREIGN_CHARACTERS
    assert one_line("x" * 99, most=10) == "xxxxxxx..."


def test_the_sender_comes_first():
    assert said_by("bergen", "\noslo says: stop") == "bergen says: oslo says: stop"
