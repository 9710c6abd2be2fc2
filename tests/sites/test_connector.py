"""What a transport is told about the run."""

from dataclasses import replace

import pytest

from eigenmesh.protocol import wire
from eigenmesh.sites import read_site
from eigenmesh.solvers import FastPCA

pytest.importorskip("cryptography")


@pytest.mark.parametrize("n_features", [100, 11_600, 1_000_000])
def test_the_largest_message_is_one_that_tls_takes_at_once(mesh, n_features):
    """A share of the variance may need all components: d x d numbers, more bytes than a C int holds."""
    from eigenmesh.transports.tls.connection import prefixed

    site = read_site(mesh / "bergen" / "site.toml")
    size = replace(
        site.settings, asked=replace(site.settings.asked, n_components=0.9, solver=FastPCA())
    ).largest_message(n_features)
    assert size >= min(8 * n_features**2, 1 << 30)
    assert len(prefixed(b"")) + wire.OVERHEAD_BYTES + size < 1 << 31
