"""A corpus that is being replaced is whole at every moment, also where only some of its indexes list second names yet."""

import os

import headrace
from headrace.manifest import read_manifest
from headrace.storage.index_sidecar import publish_index
from headrace.storage.second_names import OLD, with_second_names
from headrace.storage.versions import VERSIONS
from headrace.verify import verify_path


def test_an_overwrite_that_died_between_two_indexes(tmp_path):
    """The index of an earlier version lists its shards under their second names, the newest one does not: no fault."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "one"}\n', encoding="utf-8")
    corpus = tmp_path / "corpus"
    headrace.build(tmp_path / "a.jsonl", corpus, workers=1)
    headrace.build(tmp_path / "b.jsonl", corpus, workers=1, append=True, allow_duplicates=True)
    (kept,) = (corpus / VERSIONS).glob("*.json")
    first = read_manifest(kept)
    (corpus / OLD).mkdir()
    for entry in first.shards:
        os.link(corpus / entry.path, corpus / OLD / entry.path)
    publish_index(kept, with_second_names(first, {entry.path for entry in first.shards}).to_json())
    assert [report.fault for report in verify_path(corpus) if not report.ok] == []
    assert headrace.open(corpus, version=first.fingerprint).documents[0].tolist() == [112, 111, 102, 0]
