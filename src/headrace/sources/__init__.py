"""Documents in: find the input files, decompress them, and read their texts as batches of whole documents."""

from headrace.sources.discover import Discovery, discover
from headrace.sources.documents import WHOLE_FILE, BadInput, DocumentBatch, Drop
from headrace.sources.files import SourceFile, SourceShard
from headrace.sources.given import Documents
from headrace.sources.jsonl import JSONLSource
from headrace.sources.read import first_documents, read_shard

__all__ = [
    "WHOLE_FILE",
    "BadInput",
    "Discovery",
    "DocumentBatch",
    "Documents",
    "Drop",
    "JSONLSource",
    "SourceFile",
    "SourceShard",
    "discover",
    "first_documents",
    "read_shard",
]
