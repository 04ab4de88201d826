// Writes rows as Arrow files, by a library that infer-batch does not use.
import { writeFile } from "node:fs/promises";
import * as arrow from "apache-arrow";

/**
 * A shard of an id and FLOAT columns, or, where `list` names it, a fixed-size list of all of them.
 * @param {import("@duckdb/node-api").DuckDBConnection} connection
 */
export async function writeArrowShard(connection, sql, { path, batchRows, list }) {
  const result = await connection.stream(sql);
  const [, ...names] = result.columnNames();
  const schema = new arrow.Schema([
    new arrow.Field("id", new arrow.Int64()),
    ...(list === undefined
      ? names.map((name) => new arrow.Field(name, new arrow.Float32()))
      : [new arrow.Field(list, listType(names.length))]),
  ]);
  const writer = new arrow.RecordBatchFileWriter();
  writer.reset(undefined, schema);
  let batch = emptyBatch(names.length, batchRows);
  const flush = () => {
    writer.write(recordBatch(schema, batch, list));
    batch = emptyBatch(names.length, batchRows);
  };
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    for (let from = 0; from < chunk.rowCount; ) {
      const count = Math.min(chunk.rowCount - from, batchRows - batch.rows);
      batch.ids.set(chunk.getColumnVector(0).items.subarray(from, from + count), batch.rows);
      for (const [index, column] of batch.columns.entries()) {
        column.set(chunk.getColumnVector(index + 1).items.subarray(from, from + count), batch.rows);
      }
      batch.rows += count;
      from += count;
      if (batch.rows === batchRows) {
        flush();
      }
    }
  }
  if (batch.rows > 0) {
    flush();
  }
  writer.finish();
  await writeFile(path, await writer.toUint8Array());
}

function emptyBatch(width, rows) {
  return {
    rows: 0,
    ids: new BigInt64Array(rows),
    columns: Array.from({ length: width }, () => new Float32Array(rows)),
  };
}

function recordBatch(schema, { rows, ids, columns }, list) {
  const id = arrow.makeData({ type: new arrow.Int64(), length: rows, nullCount: 0, data: ids.subarray(0, rows) });
  const children = list === undefined ? columns.map((data) => floats(data.subarray(0, rows))) : [lists(rows, columns)];
  const type = new arrow.Struct(schema.fields);
  return new arrow.RecordBatch(
    schema,
    arrow.makeData({ type, length: rows, nullCount: 0, children: [id, ...children] }),
  );
}

function listType(width) {
  return new arrow.FixedSizeList(width, new arrow.Field("item", new arrow.Float32()));
}

function lists(rows, columns) {
  const width = columns.length;
  const data = new Float32Array(rows * width);
  for (const [index, column] of columns.entries()) {
    for (let row = 0; row < rows; row += 1) {
      data[row * width + index] = column[row];
    }
  }
  return arrow.makeData({ type: listType(width), length: rows, nullCount: 0, child: floats(data) });
}

function floats(data) {
  return arrow.makeData({ type: new arrow.Float32(), length: data.length, nullCount: 0, data });
}
