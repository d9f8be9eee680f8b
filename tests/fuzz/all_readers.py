"""Every reader that the fuzzer tries, by name."""

from tests.fuzz.annotation_readers import ANNOTATION_READERS
from tests.fuzz.fetch_readers import FETCH_READERS
from tests.fuzz.further_readers import FURTHER_READERS
from tests.fuzz.image_readers import IMAGE_READERS
from tests.fuzz.text_readers import TEXT_READERS
from tests.fuzz.weights_readers import WEIGHTS_READERS

READERS = {
    **TEXT_READERS,
    **ANNOTATION_READERS,
    **IMAGE_READERS,
    **WEIGHTS_READERS,
    **FURTHER_READERS,
    **FETCH_READERS,
}
