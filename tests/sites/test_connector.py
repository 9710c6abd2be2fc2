"""What a transport is told about the run."""

from dataclasses import replace

import pytest

from eigenmesh.sites import read_site

grpc = pytest.importorskip("grpc")


@pytest.mark.parametrize("n_features", [100, 11_600, 1_000_000])
def test_the_largest_message_is_one_that_grpc_can_be_told(mesh, n_features):
    """A share of the variance may need all components: d x d numbers, more bytes than a C int holds."""
    from eigenmesh.transports.grpc._security import common_options

    site = read_site(mesh / "bergen" / "site.toml")
    size = replace(site.settings, n_components=0.9, solver="fast-pca").largest_message(n_features)
    assert size >= min(8 * n_features**2, 1 << 30)
    grpc.insecure_channel("localhost:1", options=common_options(size)).close()
