"""The page of a run that has ended, as one file."""

import json
import re

from eigenmesh.events import BoundCertified, Ended, Entry, LinkTraffic, Record, Started
from eigenmesh.report.page import MOST_EVENTS, report_page

NODES = tuple(f"node {number}" for number in range(20))
LINKS = tuple((one, other) for one in NODES for other in NODES if one < other)


def long_run(records):
    events = [Started("oi", "tree", NODES, LINKS, 100, 5, 1e-6, 10**6)]
    events += [Record(n, 7 * n, 20 * n, n, 800 * n, 2.0**-n, bound=2.0**-n) for n in range(records)]
    events += [BoundCertified(7 * records, 1e-7, 1e-8)]
    events += [LinkTraffic(one, other, 10, 8000) for one, other in LINKS]
    return [Entry(100.0 + number, event) for number, event in enumerate([*events, Ended("done", True, "")])]


def run_of(page):
    return json.loads(re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1])


def test_all_events_are_in_and_the_file_is_small():
    entries = long_run(1000)
    page = report_page("Twenty nodes", entries)
    assert len(run_of(page)["events"]) == len(entries)
    assert len(page.encode()) < 1e6


def test_of_a_very_long_run_records_are_thinned_and_the_rest_is_kept():
    page = report_page("Long", long_run(50_000))
    events = run_of(page)["events"]
    assert len(events) <= MOST_EVENTS
    assert [event["kind"] for event in events if event["kind"] != "record"] == (
        ["started", "certified", *["link_traffic"] * len(LINKS), "ended"]
    )
    # The last one is what the run came to.
    assert max(event["rounds"] for event in events if event["kind"] == "record") == 7 * 49_999


def test_of_a_long_stream_the_network_and_the_links_are_there_once():
    entries = [entry for _ in range(40) for entry in long_run(20)]
    page = report_page("Stream", entries)
    events = run_of(page)["events"]
    assert sum(event["kind"] == "started" for event in events) == 40
    assert [event["nodes"] for event in events if "nodes" in event] == [list(NODES)]
    assert sum(event["kind"] == "link_traffic" for event in events) == len(LINKS)
    assert len(page.encode()) < 1e6


def test_text_of_others_cannot_become_part_of_the_page():
    page = report_page("</title><b>", [Entry(1.0, Ended("failed", False, "</script><script>alert(1)</script>"))])
    assert page.count("</script>") == 2
    assert "</title><b>" not in page
    assert run_of(page)["events"][0]["message"] == "</script><script>alert(1)</script>"
