"""What people read is spelt right."""

from __future__ import annotations

import pytest

import spelling


def test_pages_docstrings_and_messages_have_no_unknown_word():
    assert [one for path in spelling.files() for one in spelling.unknown(path)] == []


def test_every_word_of_the_project_is_used_and_in_no_other_dictionary():
    used = set()
    for path in spelling.files():
        for _, text, not_prose in spelling.texts(path):
            used |= {word for _, word in spelling.words(text, not_prose)}
    assert sorted(spelling.of_the_project() - used) == []
    assert sorted(spelling.of_the_project() & spelling.english()) == []


PAGE = """# A page

Their `nieghbours` in `code` and $nieghbours$.

```python
nieghbours
```

Three nieghbours' words.
"""
MODULE = '''"""One sentence.

Parameters
----------
nieghbours : int
    How many ``nieghbours`` there are.
"""
'''


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("page.md", PAGE, [(9, "nieghbours")]),
        ("page.md", PAGE.replace("Three nieghbours'", "Three"), []),
        ("module.py", MODULE, []),
        ("module.py", MODULE.replace("One", "Ohne"), [(1, "ohne")]),
        ("module.py", MODULE.replace("there are", "thare are"), [(6, "thare")]),
        ("module.py", 'def f():\n    raise ValueError(f"there are {n} nieghbours here")\n', [(2, "nieghbours")]),
        ("module.py", "def f():\n    warn('there are no nieghbours' + 'here')\n", [(2, "nieghbours")]),
        ("module.py", 'x = "nieghbours"\ny = f"{x}nieghbours are not words"\n', []),
    ],
    ids=["page", "code", "names", "docstring", "parameter", "f-string", "message", "no words"],
)
def test_a_misspelling_is_found_where_people_read_it_and_not_in_code(tmp_path, name, text, found):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert [(one.line, one.word) for one in spelling.unknown(path)] == found
