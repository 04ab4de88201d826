import { gunzipSync } from "node:zlib";
import { type Column, type RecordBatch, showType } from "../columns/types.js";
import { rowState, selectRows } from "../flow/pack/select-rows.js";
import { openArrowDecoder } from "../formats/arrow/decoder.js";
import { openBytes, openShards } from "../formats/arrow/shards.js";
import { unpackLz4Frame, unpackSnappyBlock, unpackZstdFrame } from "../formats/codecs.js";
import type { Decoder, ShardSchema } from "../formats/format.js";
import type { ParquetOptions } from "../formats/parquet/duckdb.js";
import {
  type Codec,
  type KafkaLogin,
  type KafkaTls,
  openCluster,
  openRegistry,
  rowsOfShard,
  topicColumns,
  topicSource,
  type Unpack,
  type ValueReader,
} from "../sources/kafka/source.js";
import type { Source } from "../sources/source.js";
import { openArrowStream } from "../targets/stream.js";
import { proxiesOf } from "../base/http/proxies.js";
import { openSpool, spoolRoot } from "../base/spool.js";
import type { Tools } from "./attempt.js";
import type { InputSpec } from "./jobfile/input-spec.js";
import type { Projection } from "../models/binding/contract.js";
import { type KafkaRegistrySpec, type KafkaSpec, leftOut, problemColumn } from "./jobfile/kafka-spec.js";
import { readHeaderValue, readPem, readSecret } from "./reading.js";

/* How a topic is opened on this machine. */

interface TopicTools extends Tools {
  readonly where: (path: readonly string[]) => string;
}

/** Opens the source of a topic's records. @param files the source of other files */
export async function openTopic(
  { brokers, topic, group, tls, sasl, ...fields }: KafkaSpec,
  { path, max_mb: maxMb }: InputSpec["spool"],
  files: Source,
  tools: TopicTools,
): Promise<Source> {
  const { folder, writer, isDead, retry, signal } = tools;
  const cluster = openCluster({
    brokers,
    topic,
    tls: await tlsOf(tls, tools),
    login: loginOf(sasl, tools),
    retry,
    signal,
  });
  const root = spoolRoot(folder, path);
  const spool = openSpool({ root, writer, use: "in", isDead, maxBytes: maxMb * 1024 * 1024 });
  const { registry, columns } = fields;
  const values = registry && (await openValues(registry, Object.keys(columns), tools));
  return topicSource(files, { topic, fields, values, cluster, group, spool, unpack, writeArrow: openArrowStream });
}

async function openValues(
  { url, username, password = "", token }: KafkaRegistrySpec,
  names: readonly string[],
  { folder, where, retry, signal }: TopicTools,
): Promise<ValueReader> {
  const { avroName, openAvro } = await import("../sources/lake/avro.js");
  const at = (key: string) => ({ folder, key: where(["input", "kafka", "registry", key]) });
  const headers = async (): Promise<Record<string, string>> => {
    if (token !== undefined) {
      return { authorization: `Bearer ${await readHeaderValue(token, at("token"))}` };
    }
    const login = username === undefined ? undefined : `${username}:${await readSecret(password, at("password"))}`;
    return login === undefined ? {} : { authorization: `Basic ${Buffer.from(login).toString("base64")}` };
  };
  return openRegistry({ url, names, openAvro, avroName, headers, retry, signal, findProxy: proxiesOf(process.env) });
}

/** Opens the decoder of a topic's shards, which are fetched when they are opened. What they are like is known before. */
export async function openTopicDecoder(fields: KafkaSpec, options: ParquetOptions): Promise<Decoder> {
  const open = openShards(async ({ remote, ...file }) => {
    await remote?.fetch([]);
    return await openBytes(file);
  });
  const arrow = openArrowDecoder({ ...options, areFiles: true, open });
  const schema: ShardSchema = {
    columns: topicColumns(fields).map(({ name, type }) => ({ name, sourceType: showType(type), type })),
    legacyDates: [],
  };
  const problem = {
    column: problemColumn,
    source: { name: problemColumn, path: [problemColumn], type: "utf8" },
  } as const;
  const common = { rowGroups: 1, sizeBytes: 0, schema, encrypted: [], nulls: new Map<string, number>() };
  return await Promise.resolve({
    ...arrow,
    async *footers(files) {
      yield* files.map(({ path, name }) => ({ path, rows: rowsOfShard(name), ...common }));
    },
    async *read(slices) {
      const withProblems = slices.map((slice) => {
        const { projection } = slice;
        return { ...slice, projection: { ...projection, passthrough: [...projection.passthrough, problem] } };
      });
      for await (const { carried, ...batch } of arrow.read(withProblems)) {
        yield readable({ ...batch, carried: carried.slice(0, -1) }, carried.at(-1), slices[0]?.projection);
      }
    },
    units: () => Promise.resolve(undefined), // workers would not know which rows are none
    windows: ({ rowStart, rowEnd }) => Promise.resolve([{ rowStart, rowEnd, ranges: [] }]),
  });
}

/** Takes out the rows that are none, and says which ones cannot be read. */
function readable(batch: RecordBatch, texts: Column | undefined, projection: Projection | undefined): RecordBatch {
  if (texts?.kind !== "bytes" || projection === undefined) {
    throw new TypeError(`column ${problemColumn} is read as texts`);
  }
  const { offsets, bytes, valid } = texts;
  const states = new Uint16Array(batch.rowCount).fill(rowState.kept);
  const problems = new Map<number, string>();
  for (let row = valid?.indexOf(1) ?? 0; row >= 0 && row < batch.rowCount; row += 1) {
    if (valid?.[row] !== 0) {
      const problem = Buffer.from(bytes.subarray(offsets[row], offsets[row + 1])).toString();
      problems.set(row, problem);
      states[row] = problem === leftOut ? rowState.filtered : rowState.kept;
    }
  }
  return problems.size === 0 ? batch : selectRows(batch, states, projection, problems);
}

async function tlsOf(tls: KafkaSpec["tls"], { folder, where }: TopicTools): Promise<KafkaTls | undefined> {
  if (tls === undefined || tls === true) {
    return tls && {};
  }
  const read = async (name: "ca" | "cert" | "key"): Promise<string | undefined> => {
    const path = tls[name];
    return path && (await readPem(path, { folder, key: where(["input", "kafka", "tls", name]) }));
  };
  return { ca: await read("ca"), cert: await read("cert"), key: await read("key") };
}

function loginOf(sasl: KafkaSpec["sasl"], { folder, where }: TopicTools): KafkaLogin | undefined {
  if (sasl === undefined) {
    return undefined;
  }
  const { mechanism, username = "", password = "", token } = sasl;
  const [secret, key] = token === undefined ? [password, "password"] : [token, "token"];
  return {
    mechanism,
    username,
    secret: () => readSecret(secret, { folder, key: where(["input", "kafka", "sasl", key]) }),
  };
}

const unpackers: Readonly<Record<Codec, (packed: Buffer, mostBytes: number) => Uint8Array>> = {
  gzip: gunzip,
  snappy: unpackSnappyBlocks,
  lz4: unpackLz4Frame,
  zstd: unpackZstdFrame,
};
const unpack: Unpack = (codec, packed, mostBytes) => unpackers[codec](packed, mostBytes);

function gunzip(packed: Buffer, mostBytes: number): Uint8Array {
  try {
    return gunzipSync(packed, { maxOutputLength: mostBytes });
  } catch (error) {
    throw new RangeError("a gzip stream is damaged", { cause: error });
  }
}

/** Java's clients put blocks of Snappy behind each other, each after its length; others send one block. */
function unpackSnappyBlocks(packed: Buffer, mostBytes: number): Uint8Array {
  const magic = Buffer.from("82534e41505059", "hex");
  if (!packed.subarray(0, magic.length).equals(magic)) {
    return unpackSnappyBlock(packed, mostBytes);
  }
  const blocks: Uint8Array[] = [];
  let left = mostBytes;
  for (let at = 16; at < packed.length; ) {
    const end = at + 4 + packed.readInt32BE(at);
    const block = unpackSnappyBlock(packed.subarray(at + 4, end), left);
    left -= block.length;
    blocks.push(block);
    at = Math.max(end, at + 4);
  }
  return Buffer.concat(blocks);
}
