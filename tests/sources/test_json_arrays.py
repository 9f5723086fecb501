"""Files that hold one JSON array: each element judged as a line would be, found in bounded memory."""

import gzip
import json
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headrace.errors import SourceError
from headrace.sources import discover, read_shard
from headrace.sources.array import first_elements, read_array
from headrace.sources.documents import BadInput
from headrace.sources.files import SourceFile
from headrace.sources.lines import LineFault, LineParser


def listed(path, data: bytes) -> SourceFile:
    """Write bytes, and list them as an array."""
    path.write_bytes(data)
    return SourceFile(path, path.name, len(data), "array", None)


def read(file: SourceFile, **options):
    """All texts, with their rows and bytes, and the drops as row, byte and reason."""
    kept, drops, seen, consumed = [], [], [], 0
    for batch in read_array(file, observe=lambda _, data: seen.append(data), **options):
        kept += zip(batch.texts, batch.rows.tolist(), batch.offsets.tolist(), strict=True)
        drops += batch.drops
        consumed += batch.consumed
    assert b"".join(seen) == file.path.read_bytes()
    assert consumed == file.size
    return kept, [(drop.row, drop.byte, drop.reason) for drop in drops]


ELEMENTS = st.one_of(
    st.builds(
        lambda row, indent, ascii_only: json.dumps(row, indent=indent, ensure_ascii=ascii_only).encode(
            errors="surrogatepass"
        ),
        st.recursive(
            st.one_of(
                st.none(),
                st.integers(),
                st.text(max_size=8),
                st.builds(lambda text: {"text": text}, st.text('a"\\,]}[{é\n', max_size=8)),
            ),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["text", "a"]), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        st.sampled_from([None, 1]),
        st.booleans(),
    ),
    st.sampled_from(
        [
            b'{"text": "a\xff"}',
            b'{"text": "\\ud800"}',
            b'{"text": "a" "b"}',
            b'{"text":"a"} {"text":"b"}',
            b"nul",
            b'{"text": "a\nb"}',
        ]
    ),
)


@settings(max_examples=150)
@given(
    elements=st.lists(ELEMENTS, max_size=8),
    space=st.sampled_from([b"", b" ", b"\n", b"\r\n\t"]),
    mode=st.sampled_from(["error", "replace"]),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 200)),
    mark=st.booleans(),
)
def test_elements_are_judged_as_lines(folder, elements, space, mode, sizes, mark):
    """Whatever an element holds, its text, its number, its place or its fault are what the rule for lines says."""
    data, places = (b"\xef\xbb\xbf" if mark else b"") + space + b"[", []
    for number, element in enumerate(elements):
        data += (b"," if number else b"") + space
        places.append(len(data))
        data += element + space
    file = listed(folder / "a.json", data + b"]" + space)
    parser = LineParser("text", BadInput(mode), keep_empty=False)
    kept, drops = [], []
    for number, (element, place) in enumerate(zip(elements, places, strict=True)):
        found = parser.parse(element)[0]
        if isinstance(found, LineFault):
            drops.append((number, place + found.byte, found.reason))
        else:
            kept.append((found, number, place))
    assert read(file, on_bad_input=mode, block_bytes=sizes[0], batch_bytes=sizes[1]) == (kept, drops)
    assert first_elements(file, 100) == elements


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples."""
    return tmp_path_factory.mktemp("any")


@pytest.mark.parametrize(
    ("data", "texts", "drops"),
    [
        (b"[]", [], []),
        (b' [ { "text" : "a" } ] \n', [b"a"], []),
        (b'[{"text": "a"},]', [b"a"], [(1, 15, "not JSON (an empty element)")]),
        (b'[,{"text": "a"}]', [b"a"], [(0, 1, "not JSON (an empty element)")]),
        (b'[{"text": "a"}]\n]', [b"a"], [(1, 16, "extra data after the array")]),
        (b'[{"text": "a"}]\n[{"text": "b"}]', [b"a"], [(1, 16, "extra data after the array")]),
        (b'[{"text": "a"}', [], [(0, 1, "not JSON, ends early")]),
        (b'[{"text": "a"},\n', [b"a"], [(1, 16, "not JSON, ends early")]),
        (b'[{"text": "a"}, {"text": "b', [b"a"], [(1, 16, "not JSON, ends early")]),
        (b'[{"text": "a"}, {"text": "b\\', [b"a"], [(1, 16, "not JSON, ends early")]),
        (b'[{"text": ""}, {"text": null}]', [], [(0, 1, "empty"), (1, 15, "text is null")]),
    ],
)
@pytest.mark.parametrize("block", [1, 5, 1 << 18])
def test_ends(tmp_path, data, texts, drops, block):
    """What is missing or left over is a fault with its place, whatever the pieces in which the file is read."""
    kept, found = read(listed(tmp_path / "a.json", data), block_bytes=block)
    assert ([text for text, _, _ in kept], found) == (texts, drops)


def test_discovery(tmp_path):
    """In a folder a `.json` array is read where its first element holds the field; else it is left out and listed."""
    pretty = json.dumps([{"text": "a"}, {"text": "b"}], indent=2).encode()
    (tmp_path / "a.json").write_bytes(pretty)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(pretty.replace(b"\n", b"")))
    (tmp_path / "c.json").write_text('[{"id": 1}]')
    (tmp_path / "d.jsonl").write_bytes(pretty)
    (tmp_path / "e.json").write_text("[1, 2]")
    found = discover([tmp_path])
    assert [(file.label, file.kind) for file in found.files] == [
        *(("a.json", "array"), ("b.json.gz", "array"), ("d.jsonl", "array")),
    ]
    texts = [text for shard in found.shards for batch in read_shard(shard) for text in batch.texts]
    assert texts == [b"a", b"b"] * 3
    left_out = "a .json file whose first element is no object with the field text"
    assert dict(found.skipped) == {"c.json": left_out, "e.json": left_out}


LONG = b'{"text": "' + b"x" * 1000 + b'"}, '


@pytest.mark.parametrize(
    ("data", "kept", "drops"),
    [
        (b'[{"text": "a"}, {"text": "\\q"}, {"text": "c"}]', [b"a", b"c"], [(1, 26, "not JSON")]),
        (b'[{"text": "\\q"},\n{"text": "b"},\n{"text": "c"}]\n', [b"b", b"c"], [(0, 11, "not JSON")]),
        (b'[{"text": "a"}, {"text": "b"},]\n', [b"a", b"b"], [(2, 30, "not JSON (an empty element)")]),
        (b'[{"text": "a"}, {"text": "b"}]garbage', [b"a", b"b"], [(2, 30, "extra data after the array")]),
        (b'\xef\xbb\xbf [{"text": "a"} {"x": 1}, {"text": "b"}]', [b"b"], [(0, 19, "extra data")]),
        (
            b'[{"text": "\\q"},' + 17_000 * LONG + b'{"text": "z"}]',
            17_000 * [b"x" * 1000] + [b"z"],
            [(0, 11, "not JSON")],
        ),
        (b'[{"text": "a"}]\n{"text": "b"}\n', [b"b"], [(0, 0, "not an object")]),
    ],
)
def test_a_bad_element_costs_no_other(tmp_path, data, kept, drops):
    """An array is known as one whatever is wrong inside: what else it holds is not lost with that under one count."""
    (tmp_path / "a.jsonl").write_bytes(data)
    batches = [
        batch
        for shard in discover([tmp_path / "a.jsonl"]).shards
        for batch in read_shard(shard, on_bad_input=BadInput.SKIP)
    ]
    assert [text for batch in batches for text in batch.texts] == kept
    assert [(drop.row, drop.byte, drop.reason) for batch in batches for drop in batch.drops] == drops


def test_a_cut_compressed_array(tmp_path):
    """A compressed file that is cut is damaged, as any other is."""
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'[{"text": "a"}]' + b" " * 100)[:-9])
    with pytest.raises(SourceError, match=r"a\.json\.gz: the gzip stream ends early"):
        [list(read_shard(shard)) for shard in discover([tmp_path / "a.json.gz"]).shards]


MEASURED = """
import sys
from headrace.sources import discover, read_shard
def peak():  # KiB; `ru_maxrss` counts what the process that started this one had
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
batches = read_shard(discover([sys.argv[1]]).shards[0])
next(batches)
before = peak()
print(sum(len(batch.texts) for batch in batches), (peak() - before) >> 10)
"""


def test_memory_is_bounded(tmp_path):
    """An array of 60 MB is read in a few."""
    with (tmp_path / "a.json").open("w") as file:
        file.write("[\n")
        for number in range(30_000):
            file.write(json.dumps({"id": number, "text": "word " * 400}) + ",\n")
        file.write('{"text": "last"}]')
    ran = subprocess.run(
        [sys.executable, "-P", "-c", MEASURED, tmp_path / "a.json"], capture_output=True, text=True, check=True
    )
    count, grown = map(int, ran.stdout.split())
    assert count > 20_000
    assert grown < 30
