"""Every reader that the fuzzer tries, by name."""

from tests.fuzz.annotation_readers import ANNOTATION_READERS
from tests.fuzz.cache_readers import CACHE_READERS
from tests.fuzz.fetch_readers import FETCH_READERS
from tests.fuzz.image_readers import IMAGE_READERS
from tests.fuzz.media_readers import MEDIA_READERS
from tests.fuzz.runtime_readers import RUNTIME_READERS
from tests.fuzz.serve_readers import SERVE_READERS
from tests.fuzz.text_readers import TEXT_READERS
from tests.fuzz.tool_readers import TOOL_READERS
from tests.fuzz.weights_readers import WEIGHTS_READERS

READERS = {
    **TEXT_READERS,
    **ANNOTATION_READERS,
    **TOOL_READERS,
    **IMAGE_READERS,
    **WEIGHTS_READERS,
    **RUNTIME_READERS,
    **MEDIA_READERS,
    **CACHE_READERS,
    **FETCH_READERS,
    **SERVE_READERS,
}
