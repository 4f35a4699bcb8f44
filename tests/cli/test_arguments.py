"""What options accept, and how they refuse."""

import pytest
import typer

from cas_cli import arguments


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("14d", 1209600), ("2w", 1209600), ("0.5h", 1800)],
)
def test_a_time_is_numbers_with_units(text, seconds):
    assert arguments.duration(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "1h 30", "-5m", "1h30", "٣m"])
def test_a_time_without_a_unit_that_is_known_is_a_usage_error(text):
    with pytest.raises(typer.BadParameter, match="is not a time"):
        arguments.duration(text, "--budget")


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("5%", 5.0), ("0.1", 0.1), ("100", 100.0)])
def test_a_percentage_may_carry_its_sign(text, value):
    assert arguments.percentage(text, "--sample") == value


@pytest.mark.parametrize("text", ["0", "-1", "101", "five", "", "nan", "inf"])
def test_a_percentage_outside_its_range_is_a_usage_error(text):
    with pytest.raises(typer.BadParameter, match="percentage"):
        arguments.percentage(text, "--sample")


@pytest.mark.parametrize(
    ("text", "ends"),
    [("0-99", (0, 99)), ("5-5", (5, 5)), ("100-", (100, None)), ("-100", (None, 100))],
)
def test_a_range_is_that_of_http(text, ends):
    assert arguments.byte_range(text, "--range") == ends


@pytest.mark.parametrize("text", ["", "-", "5", "9-5", "a-b", "1-2-3", "0-9,20-29", "²-3"])
def test_a_range_that_does_not_read_is_a_usage_error(text):
    with pytest.raises(typer.BadParameter):
        arguments.byte_range(text, "--range")


def test_pairs_part_at_the_first_equals_sign():
    assert arguments.pairs(["a=b=c", "d="], "--meta") == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("values", [["a"], ["=b"], ["a=1", "a=2"]])
def test_pairs_without_a_name_or_named_twice_are_a_usage_error(values):
    with pytest.raises(typer.BadParameter):
        arguments.pairs(values, "--meta")


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "²"])
def test_a_count_is_a_whole_number_of_one_or_more(text):
    with pytest.raises(typer.BadParameter, match="whole number"):
        arguments.natural(text, "--limit")
