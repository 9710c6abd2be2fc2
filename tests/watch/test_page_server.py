"""Who gets the page, and who does not."""

import http.client
import json

import pytest

from eigenmesh.errors import InputError
from eigenmesh.events import Entry, JsonlWriter, Record, Started
from eigenmesh.report.page import MOST_AT_ONCE, Feed, PageServer

STARTED = Started("oi", "tree", ("a", "b"), (("a", "b"),), 4, 2, 1e-6, 100)


@pytest.fixture
def run(tmp_path):
    with JsonlWriter(tmp_path / "run.jsonl") as writer:
        yield writer


@pytest.fixture
def left():
    """What has left the site, which a test may change."""
    return {"words": ["2 messages"], "neighbours": []}


@pytest.fixture
def server(run, left):
    with PageServer(Feed(run.path, left_of=lambda: left), "A <run>") as serving:
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


def news(server, seen=0):
    status, headers, text = ask(server, f"{with_token(server, '/events')}&seen={seen}")
    assert status == 200
    assert headers["Content-Type"].startswith("application/json")
    return json.loads(text)


def test_news_are_everything_in_order_and_then_only_what_is_new(server, run, left):
    assert news(server)["events"] == []
    run(Entry(1.0, STARTED))
    for number in range(MOST_AT_ONCE + 10):
        run(Entry(2.0 + number, Record(number, number, 0, 0, 0)))
    first = news(server)
    assert (first["events"][0]["kind"], len(first["events"]), first["more"]) == ("started", MOST_AT_ONCE, True)
    rest = news(server, MOST_AT_ONCE)
    told = [event["iteration"] for event in (*first["events"][1:], *rest["events"])]
    assert (told, rest["more"]) == (list(range(MOST_AT_ONCE + 10)), False)
    assert rest["left"] == {"words": ["2 messages"], "neighbours": []}
    left["words"] = ["3 messages"]
    run(Entry(9999.0, Record(-1, 0, 0, 0, 0)))
    last = news(server, MOST_AT_ONCE + 11)
    assert ([event["iteration"] for event in last["events"]], last["left"]["words"]) == ([-1], ["3 messages"])


def test_a_second_page_and_one_that_asks_again_hear_the_same(server, run):
    for number in range(5):
        run(Entry(1.0, Record(number, number, 0, 0, 0)))
    for _ in range(2):
        assert [event["iteration"] for event in news(server)["events"]] == [0, 1, 2, 3, 4]
        assert [event["iteration"] for event in news(server, 3)["events"]] == [3, 4]
    assert [event["iteration"] for event in news(server, "x")["events"]] == [0, 1, 2, 3, 4]
    assert news(server, 10**9)["events"] == []


def test_news_say_whether_somebody_still_writes(server, run):
    run(Entry(1.0, STARTED))
    assert news(server)["lost"] is False
    run.__exit__()
    found = news(server)
    assert found["lost"] is True
    assert found["heard"] <= found["now"]


def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(InputError, match=f"127.0.0.1:{server.port}: .*choose another"):
        PageServer(server.feed, "second", port=server.port)
