"""What must not be null inside the columns of a Delta table: fields of structures, elements of arrays, values of maps.

Pure.

Who calls it: `delta_fit`. No errors.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from onlyonce.session.names import quoted


def conditions(there: StructType, given: StructType) -> dict[str, str]:
    """What a row must be, as SQL by its name, for the columns in which the rows' own types allow a null that the
    table's do not."""
    own = {field.name: field.dataType for field in given}
    found = {}
    for field in there:
        if field.name in own and _looser(own[field.name], field.dataType):
            inside = _inside(quoted(field.name), field.dataType, 0)
            found[f"NOT NULL within column {field.name}"] = f"{quoted(field.name)} IS NULL OR ({inside})"
    return found


def _looser(given: DataType, there: DataType) -> bool:
    if isinstance(there, StructType) and isinstance(given, StructType):
        own = {field.name.lower(): field for field in given}
        return any(
            (found := own.get(field.name.lower())) is None
            or (found.nullable and not field.nullable)
            or _looser(found.dataType, field.dataType)
            for field in there
            if not field.nullable or _strict(field.dataType)
        )
    if isinstance(there, ArrayType) and isinstance(given, ArrayType):
        return (given.containsNull and not there.containsNull) or _looser(given.elementType, there.elementType)
    if isinstance(there, MapType) and isinstance(given, MapType):
        return (given.valueContainsNull and not there.valueContainsNull) or _looser(given.valueType, there.valueType)
    return _strict(there)


def _strict(kind: DataType) -> bool:
    return bool(_inside("x", kind, 0))


def _inside(value: str, kind: DataType, depth: int) -> str:
    if isinstance(kind, StructType):
        return " AND ".join(
            filter(
                None, (_part(f"{value}.{quoted(field.name)}", field.dataType, field.nullable, depth) for field in kind)
            )
        )
    if isinstance(kind, ArrayType):
        return _each(value, kind.elementType, kind.containsNull, depth)
    return (
        _each(f"map_values({value})", kind.valueType, kind.valueContainsNull, depth)
        if isinstance(kind, MapType)
        else ""
    )


def _each(values: str, kind: DataType, nullable: bool, depth: int) -> str:
    one = f"x{depth}"
    part = _part(one, kind, nullable, depth + 1)
    return f"forall({values}, {one} -> {part})" if part else ""


def _part(value: str, kind: DataType, nullable: bool, depth: int) -> str:
    inside = _inside(value, kind, depth)
    rules = ([] if nullable else [f"{value} IS NOT NULL"]) + ([f"({value} IS NULL OR ({inside}))"] if inside else [])
    return " AND ".join(rules)
