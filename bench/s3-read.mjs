// node bench/s3-read.mjs own|sdk URI…: reads objects whole into files of this machine and removes them again; says the
// seconds from the first request to the last byte. `own`: as a job does, footers and windows of row groups, without
// decoding them. `sdk`: plain parallel ranged downloads with the SDK, as a plain script would do them.
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { mkdtemp, open, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import { openReaderThread } from "#src/sources/reader.js";
import { windowsAhead } from "#src/flow/read.js";
import { openSpool } from "#src/base/spool.js";
import { objectSource } from "#src/sources/objects.js";
import { GetObjectCommand, HeadObjectCommand, S3Client } from "@aws-sdk/client-s3";

/** As in src/s3. */
const requestBytes = 8 * 1024 * 1024;
const requestsAtOnce = 24;

const [way, ...uris] = process.argv.slice(2);
const folder = await mkdtemp(join(tmpdir(), "infer-batch-bench-read-"));
try {
  const result = await (way === "own" ? readAsJobsDo() : readPlainly());
  process.stdout.write(`${JSON.stringify(result)}\n`);
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function readAsJobsDo() {
  const retry = {
    maxSeconds: 0,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: () => Promise.resolve(),
    warn: (message) => console.error(message),
    warnedMs: new Map(),
  };
  const signal = new AbortController().signal;
  const spool = openSpool({ root: folder, writer: "bench", use: "in", isDead: () => false, maxBytes: 1024 ** 3 });
  const timeouts = { connectMs: 10_000, silenceMs: 20_000, requestMs: 300_000 };
  const reader = openReaderThread({ scheme: "s3", settings: {} }, { timeouts, retry, signal });
  const source = objectSource({ reader, spool });
  const threads = availableParallelism();
  const decoder = openParquetDecoder({ threads, folders: [spool.folder], timezone: "UTC" });
  try {
    await source.exists(uris[0]); // loads the SDK once, before the measurement
    const start = performance.now();
    const bytes = await readAll(source, decoder);
    return { seconds: (performance.now() - start) / 1000, bytes };
  } finally {
    await decoder[Symbol.asyncDispose]();
    await source[Symbol.asyncDispose]();
  }
}

async function readAll(source, decoder) {
  const { shards } = await source.list(uris);
  const footers = await footersOf(source, decoder, shards);
  const groups = shards.map((shard, index) => {
    const { rows } = footers[index];
    return [{ slice: { shard: { ...shard, rows }, rowStart: 0, rowEnd: rows }, rowStart: 0 }];
  });
  const passthrough = footers[0].schema.columns.map(({ name, type }) => ({
    column: name,
    source: { name, path: [name], type },
  }));
  const projection = { inputs: [], passthrough, expressions: null, cast: "exact", missing: "bad_row" };
  for await (const window of windowsAhead({ source, decoder, projection }, groups)) {
    await window.there;
    await window.done();
  }
  return shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

async function footersOf(source, decoder, shards) {
  const opened = await Promise.all(shards.map((shard) => source.open(shard)));
  const footers = [];
  for await (const footer of decoder.footers(opened)) {
    footers.push(footer);
  }
  await Promise.all(opened.map((one) => one[Symbol.asyncDispose]()));
  return footers;
}

async function readPlainly() {
  const client = new S3Client({
    forcePathStyle: true,
    region: "us-east-1",
    responseChecksumValidation: "WHEN_REQUIRED",
    requestHandler: { httpAgent: { keepAlive: true, maxSockets: requestsAtOnce } },
  });
  const objects = uris.map((uri) => ({ Bucket: new URL(uri).host, Key: new URL(uri).pathname.slice(1) }));
  await client.send(new HeadObjectCommand(objects[0])); // the SDK is loaded once
  const start = performance.now();
  const sizes = await Promise.all(objects.map((object) => client.send(new HeadObjectCommand(object))));
  const due = [];
  for (const [index, { ContentLength: bytes }] of sizes.entries()) {
    const file = await open(join(folder, String(index)), "w");
    await file.truncate(bytes);
    await file.close();
    for (let at = 0; at < bytes; at += requestBytes) {
      due.push({ index, at, end: Math.min(at + requestBytes, bytes) });
    }
  }
  const fetchRanges = async () => {
    for (let one = due.shift(); one !== undefined; one = due.shift()) {
      const { index, at, end } = one;
      const command = new GetObjectCommand({ ...objects[index], Range: `bytes=${at}-${end - 1}` });
      const { Body } = await client.send(command);
      const file = createWriteStream(join(folder, String(index)), { flags: "r+", start: at });
      await pipeline(Body, file);
      if (!file.closed) {
        await once(file, "close");
      }
    }
  };
  await Promise.all(Array.from({ length: requestsAtOnce }, fetchRanges));
  const seconds = (performance.now() - start) / 1000;
  client.destroy();
  return { seconds, bytes: sizes.reduce((sum, { ContentLength }) => sum + ContentLength, 0) };
}
