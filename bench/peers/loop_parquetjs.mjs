// The same job in plain Node: parquetjs-lite's row objects, 8192 of them a batch, onnxruntime-node, parquetjs-lite's writer.
// usage: loop_parquetjs.mjs row|group MODEL BATCH_SIZE OUT_FILE SHARD...
//   row:   rows come from `cursor.next()`, as parquetjs-lite's README shows it
//   group: rows come from `cursor.nextRowGroup()`, which spares the `shift()` from a long array that `next()` is
import { InferenceSession, Tensor } from "onnxruntime-node";
import parquet from "parquetjs-lite";

const features = Array.from({ length: 32 }, (_, index) => `f${index}`);
const schema = new parquet.ParquetSchema({ id: { type: "INT64" }, score: { type: "FLOAT" } });

const [read, model, batchSizeText, outFile, ...shards] = process.argv.slice(2);
const batchSize = Number(batchSizeText);
const session = await InferenceSession.create(model);

async function* rowsOneByOne(cursor) {
  for (let row = await cursor.next(); row !== null; row = await cursor.next()) {
    yield row;
  }
}

async function* rowsByGroup(cursor) {
  for (let group = await cursor.nextRowGroup(); group !== null; group = await cursor.nextRowGroup()) {
    yield* group;
  }
}

async function* batches() {
  let batch = [];
  for (const shard of shards) {
    const reader = await parquet.ParquetReader.openFile(shard);
    const cursor = reader.getCursor();
    for await (const row of read === "group" ? rowsByGroup(cursor) : rowsOneByOne(cursor)) {
      batch.push(row);
      if (batch.length === batchSize) {
        yield batch;
        batch = [];
      }
    }
    await reader.close();
  }
  if (batch.length > 0) {
    yield batch;
  }
}

const writer = await parquet.ParquetWriter.openFile(schema, outFile);
for await (const rows of batches()) {
  const input = new Float32Array(rows.length * features.length);
  let at = 0;
  for (const row of rows) {
    for (const feature of features) {
      input[at] = row[feature];
      at += 1;
    }
  }
  const { score } = await session.run({ input: new Tensor("float32", input, [rows.length, features.length]) });
  for (const [index, { id }] of rows.entries()) {
    await writer.appendRow({ id, score: score.data[index] });
  }
}
await writer.close();
