"""iceberg_tables.py CATALOG_URL [S3_ENDPOINT KEY SECRET], then a line of JSON for each act on stdin: [act, table, argument].

Makes, changes and reads tables by pyiceberg through a REST catalog, and answers each act with a line.
"""
import datetime
import json
import sys

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
)

url, *store = sys.argv[1:]
s3 = dict(zip(["s3.endpoint", "s3.access-key-id", "s3.secret-access-key"], store))
catalog = RestCatalog("tests", uri=url, warehouse="tests", token="a-token-of-tests", **s3)
named = {
    "long": LongType(),
    "int": IntegerType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "date": DateType(),
    "fixed": FixedType(4),
    "list": ListType(100, StringType(), element_required=False),
}


def make(name, how):
    """how: columns as [name, type, required], partition as [column, transform] or [column, transform, name], properties."""
    catalog.create_namespace_if_not_exists(name.split(".")[0])
    fields = [
        NestedField(id + 1, column, named[kind], required=required)
        for id, (column, kind, required) in enumerate(how["columns"])
    ]
    ids = {field.name: field.field_id for field in fields}
    spec = [
        PartitionField(ids[column], 1000 + at, parse_transform(transform), *(name or [f"{column}_{transform}".replace("_identity", "")]))
        for at, (column, transform, *name) in enumerate(how.get("partition", []))
    ]
    catalog.create_table(name, Schema(*fields), partition_spec=PartitionSpec(*spec), properties=how.get("properties", {}))


def arrow(table, rows):
    fields = table.schema().as_arrow()
    columns = {name: [row.get(name) for row in rows] for name in fields.names}
    dates = [field.name for field in fields if pa.types.is_date(field.type)]
    for name in dates:
        columns[name] = [value and datetime.date.fromisoformat(value) for value in columns[name]]
    return pa.table(columns, schema=fields)


def append(name, rows):
    table = catalog.load_table(name)
    table.append(arrow(table, rows))


def delete(name, where):
    catalog.load_table(name).delete(where)


def read(name, options):
    """The rows, and for each of some ids how many rows a scan for it finds."""
    table = catalog.load_table(name)
    files = table.inspect.files().to_pylist()
    return {
        "rows": table.scan().to_arrow().to_pylist(),
        "points": [table.scan(row_filter=f"id = {id}").to_arrow().num_rows for id in options.get("points", [])],
        "operations": [snapshot.summary.operation.value for snapshot in table.snapshots()],
        "records": table.current_snapshot() and table.current_snapshot().summary["total-records"],
        "runs": {key: value for key, value in table.properties.items() if key.startswith("infer-batch.")},
        "files": [[file["file_path"], str(file["partition"].get("ds", ""))] for file in files],
    }


def forget(name, _):
    """Expires all snapshots but the last."""
    table = catalog.load_table(name)
    last = table.current_snapshot().snapshot_id
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != last]
    table.maintenance.expire_snapshots().by_ids(old).commit() if old else None


def untell(name, _):
    """Takes off what runs have told of themselves in the properties."""
    table = catalog.load_table(name)
    told = [key for key in table.properties if key.startswith("infer-batch.")]
    with table.transaction() as change:
        change.remove_properties(*told)


def evolve(name, columns):
    """Drops columns, and adds them anew."""
    table = catalog.load_table(name)
    for column in columns:
        kind = table.schema().find_field(column).field_type
        with table.update_schema() as schema:
            schema.delete_column(column)
        with table.update_schema() as schema:
            schema.add_column(column, kind)


def drop(name, _):
    catalog.drop_table(name)


acts = {act.__name__: act for act in [make, append, delete, read, forget, untell, evolve, drop]}
for line in sys.stdin:
    act, name, argument = json.loads(line)
    try:
        answer = {"done": acts[act](name, argument)}
    except Exception as error:  # told where it was asked for
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer, default=str), flush=True)
