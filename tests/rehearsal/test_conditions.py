"""Files of conditions: what they say, and what is wrong with them."""

import pytest

from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.rehearsal.conditions import EXAMPLE, Conditions, Fault, Host, LinkQuality, read_conditions

SITES = ("oslo", "bergen", "trondheim")
EDGES = (("oslo", "bergen"), ("oslo", "trondheim"), ("bergen", "trondheim"))


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "conditions.toml").write_text(text)
        return read_conditions(tmp_path / "conditions.toml", SITES, EDGES)

    return read


def test_the_example(read):
    found = read(EXAMPLE)
    usual = LinkQuality(20.0, 2.0, 100.0, 0.001, LinkQuality().overhead_ms)
    assert found.links == {
        EDGES[0]: LinkQuality(80.0, *list(vars(usual).values())[1:]),
        EDGES[1]: usual,
        EDGES[2]: usual,
    }
    assert found.hosts == {"oslo": Host(), "bergen": Host(1.0, 30.0, 500.0), "trondheim": Host()}
    assert found.faults == (Fault("crash", 1.0, "trondheim", "", 10.0), Fault("stall", 2.0, "oslo", "bergen", 3.0))
    assert found.restart_parked_s is None


def test_an_empty_file_is_the_usual_one(read):
    assert read("") == Conditions.usual(SITES, EDGES)


def test_an_outage_of_a_site_is_one_of_all_its_links(read):
    faults = read('[[outage]]\nsite = "bergen"\nat_s = 1\nfor_s = 2').faults
    assert faults == (Fault("stall", 1.0, "oslo", "bergen", 2.0), Fault("stall", 1.0, "bergen", "trondheim", 2.0))


def test_a_site_may_be_slower_than_the_times_of_all(read):
    hosts = read('[sites]\nproduct_ms = 5\ndisk_ms = 1\n[[site]]\nname = "oslo"\nslowdown = 3').hosts
    assert hosts["oslo"] == Host(3.0, None, 0.0, 1.0)
    assert hosts["bergen"] == Host(1.0, 5.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[links]\nlatency_ms = -1", "line 2: links.latency_ms = -1 must be a number from 0 to below"),
        ("[links]\nloss = 1", "line 2: links.loss = 1 must be a number from 0 to below 1"),
        ("[links]\nloss = true", "must be a number"),
        ("[links]\nbandwidth_mbit = 0", "links.bandwidth_mbit = 0 must be a number strictly between 0"),
        ("[links]\nlatency = 1", "Did you mean 'latency_ms'"),
        ('[[link]]\nbetween = ["oslo", "paris"]', "line 2: link.between = .* is not a link .* oslo - bergen"),
        ('[[link]]\nbetween = ["oslo"]', "is not a link"),
        ("[[link]]\nlatency_ms = 1", "link.between is missing"),
        ('[[link]]\nbetween = ["oslo", "bergen"]\n[[link]]\nbetween = ["bergen", "oslo"]', "line 4: .*a table already"),
        ('[[site]]\nname = "oslos"\nslowdown = 2', "unknown site.name .*Did you mean 'oslo'"),
        ('[[site]]\nname = "oslo"\n[[site]]\nname = "oslo"', "has a table already"),
        ('[[site]]\nname = "oslo"\nslowdown = 2\nproduct_ms = 1', "keep one of them"),
        ('[[site]]\nname = "oslo"\nset_up_ms = 2', "needs product_ms"),
        ("[[outage]]\nat_s = 1\nfor_s = 1", "exactly one"),
        ('[[outage]]\nsite = "oslo"\nat_s = 1', "outage.for_s is missing"),
        ('[[outage]]\nsite = "oslo"\nat_s = 1\nfor_s = 0', "strictly between 0"),
        ('[[kill]]\nsite = "paris"\nat_s = 1', "unknown kill.site"),
        ('[[kill]]\nsite = "oslo"\nat_s = -1', "kill.at_s = -1 must be a number from 0"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(read, text, said):
    with pytest.raises((InputError, UnknownNameError), match=said):
        read(text)
