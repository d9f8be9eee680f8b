"""Names of one class, written in two ways."""

from utils.data.sources.class_names import similar_names


def test_names_that_differ_only_in_case_blanks_or_the_form_of_letters_are_one_group():
    names = [
        "Cat",
        "dog",
        "cat ",
        "traffic light",
        "traffic_light",
        "ＣＡＴ",
        "Traffic-Light",
        "cats",
    ]
    assert similar_names(names) == [
        ("Cat", "cat ", "ＣＡＴ"),
        ("traffic light", "traffic_light", "Traffic-Light"),
    ]


def test_different_names_are_no_group():
    assert similar_names(["-", "_", "", "strasse", "straße 2", "1", "11"]) == []
