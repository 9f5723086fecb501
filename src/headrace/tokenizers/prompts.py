"""Documents of a prompt and a response, of which the response counts in the loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.sources.pairs import parts_of
from headrace.tokenizers.base import DocumentMasks
from headrace.tokenizers.reference import UnencodedTextError
from headrace.tokenizers.stand_in import StandIn

__all__ = ["PromptResponses"]


class PromptResponses(StandIn):
    """A tokenizer of documents that are two texts: both are encoded by themselves, and the second one counts.

    So the mask is exact: no token is of both. Where joining the two texts would have given a token across the seam, the ids
    are others than those of the joined text.
    """

    def encode_masked(self, documents: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64], DocumentMasks]:
        """See `MaskingTokenizer`.

        Args:
            documents: what `sources.pairs.pair` has made.

        Raises:
            UnencodedTextError: the tokenizer has no ids for one of them.
        """
        try:
            ids, ends = self.tokenizer.encode_documents([text for document in documents for text in parts_of(document)])
        except UnencodedTextError as error:
            raise UnencodedTextError(error.index // 2, error.summary) from error
        lengths = np.diff(ends, prepend=0)
        counts = np.tile(np.array([0, 1], np.uint8), len(documents))
        return ids, ends[1::2], DocumentMasks(np.repeat(counts, lengths), np.ones(len(documents), np.bool_))
