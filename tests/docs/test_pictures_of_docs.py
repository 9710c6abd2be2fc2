"""Pictures of the docs are those that scripts and pages draw."""

import numpy as np
from PIL import Image

import gallery
import pages
import pictures


def test_pictures_are_compared_by_what_they_show(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    for name, change in (("same", pixels), ("smoothed", np.clip(pixels, 1, None)), ("other", 255 - pixels)):
        Image.fromarray(change).save(tmp_path / f"{name}.png")
    Image.fromarray(pixels[:10]).save(tmp_path / "smaller.png")
    alike = {
        name: pictures.looks_same(tmp_path / "same.png", tmp_path / f"{name}.png")
        for name in ("smoothed", "other", "smaller")
    }
    assert alike == {"smoothed": True, "other": False, "smaller": False}


def test_pictures_of_pages_are_written_by_their_code_and_are_there():
    found = pictures.pages_with_pictures()
    look = pages.ROOT / "docs" / "howto" / "look-at-a-fit.md"
    assert len(found[look]) == 3
    assert all((pictures.IMAGES / name).exists() for names in found.values() for name in names)


def test_every_picture_of_the_docs_is_shown():
    text = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES)
    there = {path.name for path in pictures.IMAGES.iterdir() if path.suffix in (".png", ".svg")}
    assert there - set(pictures.SHOWN.findall(text)) == set()


def test_the_tree_is_drawn_as_it_is_in_the_docs(tmp_path):
    pictures.drawn_by([str(pictures.IMAGES / "make_tree.py"), str(tmp_path)], tmp_path)
    assert pictures.looks_same(tmp_path / "tree.svg", pictures.IMAGES / "tree.svg")


def test_the_gallery_has_an_order_of_all_its_scripts():
    scripts = {path.stem for path in (pages.ROOT / "examples" / "gallery").glob("*.py")}
    assert set(gallery.ORDER) == scripts
    assert sorted(map("{}.py".format, scripts), key=gallery.Chosen(""))[0] == "plot_unlike_hospitals.py"
