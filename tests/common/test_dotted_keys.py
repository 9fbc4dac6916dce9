"""Nested tables by dotted key."""

from fedfibos.common.dotted_keys import flat


def test_tables_are_flattened_and_an_empty_one_is_a_value():
    nested = {"seed": 1, "data": {"name": "digits", "partition": {}}, "grid": {"a": {"b": {"c": [1, 2]}}}}
    assert flat(nested) == {"seed": 1, "data.name": "digits", "data.partition": {}, "grid.a.b.c": [1, 2]}
    assert flat({"x": {"y": 0}}, "outer.") == {"outer.x.y": 0}
