"""Names of Hugging Face hub models, through the real loader: a server on the loopback, and a network that is not there."""

import http.server
import json
import socket
import threading
import time

import pytest

from headrace.errors import TokenizerError
from headrace.tokenizers import hub
from headrace.tokenizers.load import load_tokenizer, resolve_boundary

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves `files` as the hub does: HEAD and GET of /organisation/model/resolve/main/FILE."""

    files: dict[str, bytes]
    status = 404

    def do_HEAD(self):  # the base class' name
        """Headers only."""
        self.do_GET()

    def do_GET(self):  # the base class' name
        """A file, or the status."""
        content = self.files.get(self.path)
        self.send_response(self.status if content is None else 200)
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content or b"")

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    """An empty cache, and an endpoint that refuses."""
    for name in (
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "HF_TOKEN",
        "ALL_PROXY",
        "all_proxy",
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server(monkeypatch, byte_level):
    """A hub with one model; returns the class that serves it."""
    document = byte_level({"ab": 256}, [["a", "b"]])
    files = {
        "/someone/small/resolve/main/tokenizer.json": json.dumps(document).encode(),
        "/someone/small/resolve/main/tokenizer_config.json": b'{"eos_token": "ab"}',
    }
    handler = type("TestHub", (Hub,), {"files": files})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        yield handler
        running.shutdown()
        thread.join()


@pytest.mark.usefixtures("server")
def test_a_model_is_fetched_with_its_config(monkeypatch):
    """The name is the label; afterwards the cache serves it, without a network or offline."""
    tokenizer = load_tokenizer("someone/small")
    assert tokenizer.ref.name == "someone/small"
    assert tokenizer.encode("xab") == [120, 256]
    assert resolve_boundary(tokenizer) == 256
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert load_tokenizer("someone/small").ref == tokenizer.ref
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = load_tokenizer("someone/small")
    assert again.ref == tokenizer.ref
    assert resolve_boundary(again) == 256


def test_a_model_without_a_config(server):
    """It loads, and its boundary must be given."""
    del server.files["/someone/small/resolve/main/tokenizer_config.json"]
    assert load_tokenizer("someone/small").named_token("eos") is None


def test_a_config_that_cannot_be_judged_is_no_absent_one(server):
    """A server error on the config is an error: the boundary would depend on the weather."""
    del server.files["/someone/small/resolve/main/tokenizer_config.json"]
    server.status = 500
    with pytest.raises(TokenizerError, match=r"could not be loaded: .*tokenizer_config\.json"):
        load_tokenizer("someone/small")


def test_a_model_that_is_not_there(server):
    """404 and 401 of the hub are said in one line."""
    with pytest.raises(TokenizerError, match="'someone/else' is no file or folder here") as error:
        load_tokenizer("someone/else")
    assert "\n" not in str(error.value)
    server.status = 401
    with pytest.raises(TokenizerError, match="HF_TOKEN"):
        load_tokenizer("someone/else")


@pytest.mark.parametrize("offline", ["1", ""])
def test_without_a_network_it_is_one_clear_line_at_once(monkeypatch, offline):
    """The reason, and what to do; nothing waits."""
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    start = time.monotonic()
    with pytest.raises(TokenizerError, match="Pass the path of a tokenizer") as error:
        load_tokenizer("gpt2")
    message = str(error.value)
    assert time.monotonic() - start < 120
    assert "\n" not in message
    assert ("HF_HUB_OFFLINE" if offline else "Connection refused") in message


@pytest.mark.usefixtures("server")
def test_offline_asks_no_server(monkeypatch):
    """HF_HUB_OFFLINE counts though gigatoken's loader does not know it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TokenizerError, match="HF_HUB_OFFLINE is set"):
        load_tokenizer("someone/small")


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    """Gigatoken's loader would wait for ever."""
    monkeypatch.setattr(hub, "DOWNLOAD_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(TokenizerError, match="did not answer within 2 s"):
            load_tokenizer("someone/small")


def test_a_file_of_that_name_wins(write_json, byte_level, tmp_path):
    """What exists is a path: `made` is a folder here, though it could be a model."""
    write_json(byte_level(), "made")
    assert load_tokenizer("made").ref.vocab_size == 256
    assert not (tmp_path / "hf").exists()
