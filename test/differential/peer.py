"""Writes and checks tables of the differential test by pyarrow and onnxruntime.

    python peer.py write CASE.json     writes the shards that the case gives to pyarrow
    python peer.py check CASE.json     prints, as JSON, where shards and output are not what the case says

In the file, integers are texts of digits, decimals their unscaled value, timestamps microseconds and dates days
since 1970; floats are numbers, or the texts NaN, Infinity, -Infinity and -0. See pyarrow.ts.
"""

import decimal
import glob
import json
import pathlib
import sys

import numpy
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

SHOWN = 10
decimal.getcontext().prec = 60


def arrow_type(name):
    """The type of one of our names."""
    if name.startswith("list<"):
        return pa.list_(arrow_type(name[5:-1]))
    if name.startswith("decimal("):
        precision, scale = name[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    special = {"utf8": pa.string(), "bool": pa.bool_(), "timestamp[us]": pa.timestamp("us")}
    special["timestamp[us, UTC]"] = pa.timestamp("us", "UTC")
    return special.get(name) or pa.type_for_alias(name)


def decode(value, name):
    """A value of the file as pyarrow takes it."""
    if value is None or name in ("utf8", "bool"):
        return value
    if name.startswith("list<"):
        return [decode(one, name[5:-1]) for one in value]
    if name.startswith("decimal("):
        return decimal.Decimal(value).scaleb(-int(name[8:-1].split(",")[1]))
    return float(value) if name.startswith("float") else int(value)


def table_of(columns):
    """A table of columns with `name`, `type`, `nullable` and `values`."""
    fields, arrays = [], []
    for column in columns:
        kind = arrow_type(column["type"])
        fields.append(pa.field(column["name"], kind, column["nullable"]))
        arrays.append(pa.array([decode(one, column["type"]) for one in column["values"]], kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def write(path, table, options):
    """Writes a table with a writer's options."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    settings = dict(options)
    kind = settings.pop("kind")
    if kind == "parquet":
        pq.write_table(table, path, **settings)
        return
    if settings["dictionaries"]:
        for index, field in enumerate(table.schema):
            if field.type == pa.string():
                encoded = table.column(index).combine_chunks().dictionary_encode()
                table = table.set_column(index, pa.field(field.name, encoded.type, field.nullable), encoded)
    opened = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    choices = pa.ipc.IpcWriteOptions(compression=settings["compression"] or None)
    with opened(path, table.schema, options=choices) as writer:
        writer.write_table(table, max_chunksize=settings["batch_rows"])


def read(path):
    """A shard's table."""
    if path.endswith(".parquet"):
        return pq.ParquetFile(path).read()
    with pa.memory_map(path) as source:
        opened = pa.ipc.open_stream if path.endswith(".arrows") else pa.ipc.open_file
        return opened(source).read_all()


def plain(column):
    """Values as `decode` gives them, with the integers that dates and times are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return column.to_pylist()


def differences(about, found, expected):
    """Where two lists differ; repr() tells -0 from 0, and takes NaN for NaN."""
    if len(found) != len(expected):
        return [f"{about}: {len(found)} values, expected {len(expected)}"]
    pairs = enumerate(zip(found, expected))
    return [f"{about}, row {row}: {one!r}, expected {two!r}" for row, (one, two) in pairs if repr(one) != repr(two)]


def check_table(about, table, columns, with_type):
    """Where a table is not what the case says it holds."""
    found = []
    for column in columns:
        if column["name"] not in table.column_names:
            found.append(f"{about}: no column {column['name']}")
            continue
        given = table.column(column["name"])
        if with_type and given.type != arrow_type(column["type"]):
            found.append(f"{about}, {column['name']}: {given.type}, expected {column['type']}")
        expected = [decode(one, column["type"]) for one in column["values"]]
        found += differences(f"{about}, {column['name']}", plain(given), expected)
    return found


NUMPY = {"float32": "float32", "float64": "float64", "bool": "bool", "string": "object"}


def predictions(case):
    """What Python's onnxruntime makes of the features, by tensor."""
    import onnxruntime

    session = onnxruntime.InferenceSession(case["model"], providers=["CPUExecutionProvider"])
    rows = case["rows"]
    fixed = next((one.shape[0] for one in session.get_inputs() if isinstance(one.shape[0], int)), None)
    size = fixed or max(rows, 1)
    names = [one.name for one in session.get_outputs()]
    pieces = []
    for start in range(0, rows, size):
        feeds = {}
        for one in session.get_inputs():
            given = case["features"][one.name]
            values = [[decode(value, "float32" if given["dtype"].startswith("float") else given["kind"]) for value in row]
                      for row in given["values"][start:start + size]]
            values += [values[-1]] * (size - len(values) if fixed else 0)
            array = numpy.array(values, dtype=NUMPY.get(given["dtype"], given["dtype"]))
            feeds[one.name] = array.reshape(-1) if len(one.shape) == 1 else array
        pieces.append([output[:min(size, rows - start)] for output in session.run(names, feeds)])
    return {name: numpy.concatenate([piece[index] for piece in pieces]) for index, name in enumerate(names)}


def check_predictions(case, output):
    """Where the output's predictions are not onnxruntime's."""
    if case["rows"] == 0:
        return []
    found = []
    tensors = predictions(case)
    for name, source in case["outputs"].items():
        tensor, _, element = source.removesuffix("]").partition("[")
        expected = tensors[tensor]
        if element:
            expected = expected[:, int(element)]
        elif expected.ndim == 2 and expected.shape[1] == 1:
            expected = expected[:, 0]
        given = output.column(name).to_pylist()
        if expected.dtype.kind == "f":
            close = numpy.isclose(numpy.array(given, dtype="float64"), expected, rtol=1e-5, atol=1e-5)
            wrong = [row for row in range(len(given)) if not numpy.all(close[row])]
        else:
            wrong = [row for row, one in enumerate(expected.tolist()) if one != given[row]]
        found += [f"{name}, row {row}: {given[row]!r}, onnxruntime says {expected[row]!r}" for row in wrong]
    return found


def main():
    """Does what the command line says."""
    act, path = sys.argv[1:]
    case = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if act == "write":
        for shard in case["shards"]:
            write(shard["path"], table_of(shard["columns"]), shard["options"])
        return
    found = []
    for shard in case["shards"]:
        found += check_table(shard["path"], read(shard["path"]), shard["columns"], False)
    parts = [pq.ParquetFile(part).read() for part in sorted(glob.glob(case["out"] + "/*.parquet"))]
    if parts:
        output = pa.concat_tables(parts)
        found += check_table("output", output, case["carried"], True)
        found += check_predictions(case, output)
    print(json.dumps(found[:SHOWN]))


main()
