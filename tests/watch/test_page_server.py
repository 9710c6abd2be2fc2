"""Who gets the page, and who does not."""

import http.client
import json
import threading

import pytest

from eigenmesh.errors import InputError
from eigenmesh.events import Entry, Record, Started
from eigenmesh.report.page import MOST_AT_ONCE, Feed, PageServer

STARTED = Started("oi", "tree", ("a", "b"), (("a", "b"),), 4, 2, 1e-6, 100)


@pytest.fixture
def server():
    with PageServer(Feed(), "A <run>") as serving:
        yield serving


def ask(server, path, method="GET", **headers):
    """Status, headers and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def with_token(server, path="/"):
    return f"{path}?token={server.token}"


def test_the_page_is_whole_and_asks_nobody_else(server):
    status, headers, text = ask(server, with_token(server))
    assert status == 200
    assert "A &lt;run&gt;" in text
    assert "__" not in text.split("<script")[0]
    assert "//" not in text.replace("http://www.w3.org/2000/svg", "").split("<script>")[0]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", "/events", "/events?token=wrong"])
def test_who_lacks_the_token_gets_nothing(server, path):
    status, _, text = ask(server, path)
    assert status == 403
    assert "token" in text
    assert server.token not in text


def test_another_name_for_this_machine_gets_nothing(server):
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port + 1}"):
        assert ask(server, with_token(server), Host=host)[0] == 403, host
    assert ask(server, with_token(server), Host=f"localhost:{server.port}")[0] == 200


def test_a_page_of_another_host_gets_nothing(server):
    for path in ("/", "/events"):
        assert ask(server, with_token(server, path), Origin="http://evil.example")[0] == 403
    assert ask(server, with_token(server), Origin=f"http://127.0.0.1:{server.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server, method):
    assert ask(server, with_token(server), method, Origin="http://evil.example")[0] == 501


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/static/page.js", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"])
def test_no_other_path_is_served(server, path):
    status, _, text = ask(server, with_token(server, path))
    assert status == 404
    assert "root:" not in text


def test_a_stream_has_everything_in_order_then_ends(server):
    server.feed(Entry(1.0, STARTED))
    for number in range(MOST_AT_ONCE + 10):
        server.feed(Entry(2.0 + number, Record(number, number, 0, 0, 0)))
    server.feed.show_left({"words": ["2 messages"], "neighbours": []})
    said = []
    reading = threading.Thread(target=lambda: said.append(ask(server, with_token(server, "/events"))[2]))
    reading.start()
    server.feed(Entry(9999.0, Record(-1, 0, 0, 0, 0)))
    server.feed.close()
    reading.join()
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in said[0].strip().split("\n\n")]
    events = [event for block in blocks if block.get("event") == "run" for event in json.loads(block["data"])]
    assert events[0]["kind"] == "started"
    assert [event["iteration"] for event in events[1:]] == [*range(MOST_AT_ONCE + 10), -1]
    assert [json.loads(block["data"])["words"] for block in blocks if block.get("event") == "left"] == [["2 messages"]]
    assert blocks[-1]["event"] == "end"


def test_a_stream_that_broke_goes_on_where_it_was(server):
    for number in range(5):
        server.feed(Entry(1.0, Record(number, number, 0, 0, 0)))
    server.feed.close()
    text = ask(server, with_token(server, "/events"), Last_Event_ID="3")[2]
    assert [event["iteration"] for event in json.loads(text.split("data: ")[1].split("\n")[0])] == [3, 4]


def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(InputError, match=f"127.0.0.1:{server.port}: .*choose another"):
        PageServer(Feed(), "second", port=server.port)
