"""Writes and checks tables of the differential test by pyarrow and onnxruntime.

    python peer.py write CASE.json     writes the shards that the case gives to pyarrow
    python peer.py check CASE.json     prints, as JSON, where shards and output are not what the case says

In the file, integers are texts of digits, decimals their unscaled value, timestamps and dates whole numbers of their
unit since 1970; floats are numbers, or the texts NaN, Infinity, -Infinity and -0. See pyarrow.ts.
"""

import decimal
import glob
import json
import pathlib
import re
import sys

import numpy
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

SHOWN = 10
decimal.getcontext().prec = 60


def arrow_type(name):
    """The type of one of our types."""
    if isinstance(name, dict):
        if name["kind"] == "list":
            return pa.list_(arrow_type(name["element"]))
        if name["kind"] == "struct":
            return pa.struct([(one["name"], arrow_type(one["type"])) for one in name["fields"]])
        return pa.decimal128(name["precision"], name["scale"])
    special = {"utf8": pa.string(), "bool": pa.bool_(), "timestamp[us]": pa.timestamp("us")}
    special["timestamp[us, UTC]"] = pa.timestamp("us", "UTC")
    return special.get(name) or pa.type_for_alias(name)


def decode(value, name):
    """A value of the file as pyarrow takes it."""
    if value is None or name in ("utf8", "bool"):
        return value
    if isinstance(name, dict):
        if name["kind"] == "list":
            return [decode(one, name["element"]) for one in value]
        if name["kind"] == "struct":
            return {field["name"]: decode(one, field["type"]) for one, field in zip(value, name["fields"])}
        return decimal.Decimal(value).scaleb(-name["scale"])
    return float(value) if name.startswith("float") else int(value)


def table_of(columns):
    """A table of columns with `name`, `type`, `nullable` and `values`."""
    fields, arrays = [], []
    for column in columns:
        kind = arrow_type(column["type"])
        fields.append(pa.field(column["name"], kind, column["nullable"]))
        arrays.append(pa.array([decode(one, column["type"]) for one in column["values"]], kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def halved(table):
    """A table with float16 for float32 where it holds the values."""
    for index, field in enumerate(table.schema):
        if field.type == pa.float32():
            column = table.column(index)
            half = column.cast(pa.float16(), safe=False)
            if repr(half.cast(pa.float32()).to_pylist()) == repr(column.to_pylist()):
                table = table.set_column(index, pa.field(field.name, half.type, field.nullable), half)
    return table


def write_parquet(path, table, kind, settings):
    """Writes Parquet by one of its writers."""
    if kind == "polars":
        import polars
        polars.from_arrow(table).write_parquet(path, **settings)
    elif kind == "fastparquet":
        import fastparquet
        import pandas
        whole = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
        types = {pa.type_for_alias(one): pandas.api.types.pandas_dtype(one.replace("i", "I", 1).replace("uI", "UI"))
                 for one in whole}
        types[pa.bool_()] = pandas.BooleanDtype()
        fastparquet.write(path, table.to_pandas(types_mapper=types.get), **settings)
    elif kind == "spark":
        pq.write_table(table, path, compression="snappy", data_page_version="1.0", use_dictionary=True,
                       use_deprecated_int96_timestamps=False, write_page_index=True, store_schema=False, **settings)
    else:
        table = halved(table) if settings.pop("halves", False) else table
        if any("ns" in str(one.type) for one in table.schema):
            settings["version"] = "2.6"  # 2.4 cuts nanoseconds
        pq.write_table(table, path, **settings)


def kin(kind):
    """A type without what writers call otherwise."""
    return re.sub("large_|_view| not null", "", str(kind)).replace("halffloat", "float").replace("element:", "item:")


def is_same(path, table):
    """Whether pyarrow reads the table from a file."""
    found = pq.ParquetFile(path).read()
    return found.column_names == table.column_names and all(
        kin(found.schema.field(index).type) == kin(field.type)
        and repr(plain(found.column(index))) == repr(plain(table.column(index)))
        for index, field in enumerate(table.schema))


def write(path, table, options):
    """Writes a table with a writer's options; returns the writer, which is pyarrow where another cannot hold it."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    settings = dict(options)
    kind = settings.pop("kind")
    if kind not in ("file", "stream"):
        try:
            write_parquet(path, table, kind, settings)
            if is_same(path, table):
                return kind
        except Exception as error:  # whatever a writer says of what it cannot hold
            if kind == "parquet":
                raise error
        pq.write_table(table, path)
        return "parquet"
    if settings["dictionaries"]:
        for index, field in enumerate(table.schema):
            if field.type == pa.string():
                encoded = table.column(index).combine_chunks().dictionary_encode()
                table = table.set_column(index, pa.field(field.name, encoded.type, field.nullable), encoded)
    opened = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    choices = pa.ipc.IpcWriteOptions(compression=settings["compression"] or None)
    with opened(path, table.schema, options=choices) as writer:
        writer.write_table(table, max_chunksize=settings["batch_rows"])
    return kind


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
        unit = "ns" if kind.unit == "ns" else "us"
        column = column.cast(pa.timestamp(unit, kind.tz)).cast(pa.int64())
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
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
        print(json.dumps([write(one["path"], table_of(one["columns"]), one["options"]) for one in case["shards"]]))
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
