"""What must stay of the figures that ``make structure`` prints."""

import pytest

import structure


def test_a_masked_sum_of_sites_passes_few_files():
    pytest.importorskip("cryptography")
    passed = structure.path_of_a_masked_sum()
    assert passed["files"] <= 18
    assert passed["handovers"] <= 12
