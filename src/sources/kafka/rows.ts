import { isUtf8 } from "node:buffer";
import type { Column, ColumnType, OutputRows } from "../../columns/types.js";
import { type KafkaColumnType, leftOut, problemColumn, type TopicFields } from "../../job/jobfile/kafka-spec.js";
import { JsonFields, numberIn } from "./json.js";
import type { RecordVisitor } from "./records.js";
import type { ValueReader } from "./registry.js";
import { BrokerAnswer } from "./wire.js";

const columnTypes: Readonly<Record<KafkaColumnType, ColumnType>> = {
  text: "utf8",
  date: "date32",
  int64: "int64",
  float64: "float64",
  bool: "bool",
};

interface TopicColumn {
  readonly name: string;
  readonly type: ColumnType;
}

const ownColumns: readonly TopicColumn[] = [
  { name: problemColumn, type: "utf8" },
  { name: "_key", type: "utf8" },
  { name: "_timestamp", type: "timestamp[us, UTC]" },
  { name: "_offset", type: "int64" },
  { name: "_partition", type: "int32" },
];

export function topicColumns({ columns, headers = {} }: TopicFields): readonly TopicColumn[] {
  return [
    ...Object.entries(columns).map(([name, type]) => ({ name, type: columnTypes[type] })),
    ...Object.keys(headers).map((name): TopicColumn => ({ name, type: "utf8" })),
    ...ownColumns,
  ];
}

/** Rows of a batch, and bytes of its records. Batches begin where offsets and records say, so that a shard is the same each time. */
const batchRows = 8192;
const batchBytes = 8 * 1024 * 1024;

/** Rows that are made of records. */
export interface RecordRows extends RecordVisitor {
  /** The offset of the next row. */
  readonly next: number;
  /** The time of the newest record, in milliseconds since 1970; -1: none has one. */
  readonly newestMs: number;
  /** Ends the rows before an offset. */
  fillTo(offset: number): void;
  /** Takes the rows that were ended, in batches of which the last one is shorter. */
  take(all: boolean): OutputRows[];
}

/**
 * Row i is that of offset `from + i`, existing or not. A record of an unknown schema throws UnknownSchema, and comes
 * again.
 */
export function recordRows(
  topic: TopicFields,
  { partition, from }: { readonly partition: number; readonly from: number },
  values?: ValueReader,
): RecordRows {
  const columns = Object.entries(topic.columns);
  const headers = Object.values(topic.headers ?? {});
  const fields = new JsonFields(columns.map(([name]) => name));
  const types = topicColumns(topic);
  const ended: OutputRows[] = [];
  let builders = columns.map(([, type]) => buildersOf[type]());
  let headerBuilders = headers.map(() => new TextBuilder());
  let own = ownBuilders();
  let [batchStart, next, bytesOfBatch, newestMs] = [from, from, 0, -1];

  const end = (): void => {
    const rowCount = next - batchStart;
    const built = [...builders, ...headerBuilders, own.problem, own.key, own.timestamp, own.offset, own.partition];
    ended.push({
      rowCount,
      columns: types.map(({ name, type }, index) => ({
        name,
        type,
        column: (built[index] as Builder).column(rowCount),
      })),
    });
    builders = columns.map(([, type]) => buildersOf[type]());
    headerBuilders = headers.map(() => new TextBuilder());
    own = ownBuilders();
    batchStart = next;
    bytesOfBatch = 0;
  };
  const advance = (): void => {
    next += 1;
    if (next - batchStart === batchRows || bytesOfBatch >= batchBytes) {
      end();
    }
  };
  /** Returns what is wrong with a value; undefined: its fields are in the row. */
  const read = (row: number, bytes: Buffer, start: number, stop: number): string | undefined => {
    const wrong = fields.read(bytes, start, stop);
    if (wrong !== undefined) {
      return `${wrong}: ${excerpt(bytes, start, stop)}`;
    }
    for (let index = 0; index < builders.length; index += 1) {
      const valueEnd = fields.ends[index] as number;
      const valueStart = fields.starts[index] as number;
      const isNull = valueEnd === 0 || bytes[valueStart] === 0x6e;
      if (!isNull && !(builders[index] as ValueBuilder).put(row, bytes, valueStart, valueEnd)) {
        const [name, type] = columns[index] ?? [];
        return `${name} is no ${type}: ${excerpt(bytes, valueStart, valueEnd)}`;
      }
    }
    return undefined;
  };
  const fillTo = (offset: number): void => {
    for (let gap = next; gap < offset; gap += 1) {
      own.problem.set(gap - batchStart, leftOut);
      own.place(gap - batchStart, gap, partition);
      advance();
    }
  };
  return {
    get next() {
      return next;
    },
    get newestMs() {
      return newestMs;
    },
    record(bytes, offset, timestampMs, keyStart, keyEnd, valueStart, valueEnd, recordEnd) {
      const json = valueStart < 0 ? undefined : values?.json(bytes.subarray(valueStart, valueEnd));
      fillTo(offset);
      const row = next - batchStart;
      own.place(row, offset, partition);
      if (timestampMs >= 0 && Number.isSafeInteger(timestampMs * 1000)) {
        own.timestamp.set(row, timestampMs * 1000);
        newestMs = Math.max(newestMs, timestampMs);
      }
      if (keyStart >= 0) {
        own.key.setBytes(row, bytes, keyStart, keyEnd);
      }
      if (headers.length > 0) {
        const sent = headersIn(bytes.subarray(valueEnd, recordEnd));
        for (const [index, name] of headers.entries()) {
          const header = sent.get(name);
          if (header !== undefined) {
            headerBuilders[index]?.setBytes(row, header, 0, header.length);
          }
        }
      }
      const problem =
        valueStart < 0
          ? leftOut
          : json === undefined
            ? read(row, bytes, valueStart, valueEnd)
            : typeof json === "string"
              ? json
              : read(row, json, 0, json.length);
      if (problem !== undefined) {
        own.problem.set(row, problem);
      }
      bytesOfBatch += recordEnd - (keyStart < 0 ? keyEnd : keyStart) + (json?.length ?? 0);
      advance();
      return ended.length > 0;
    },
    fillTo,
    take(all) {
      if (all && next > batchStart) {
        end();
      }
      return ended.splice(0);
    },
  };
}

/** Those that have a value; of two of a name the last one. */
function headersIn(bytes: Buffer): Map<string, Buffer> {
  const fields = new BrokerAnswer(bytes);
  const headers = new Map<string, Buffer>();
  for (let left = fields.zigzag(); left > 0; left -= 1) {
    const name = fields.buffer(fields.zigzag()).toString();
    const length = fields.zigzag();
    if (length >= 0) {
      headers.set(name, fields.buffer(length));
    } else {
      headers.delete(name);
    }
  }
  return headers;
}

function excerpt(bytes: Buffer, start: number, end: number): string {
  const most = 80;
  const text = bytes.toString("utf8", start, Math.min(end, start + most));
  return end - start > most ? `${text}…` : text;
}

interface Builder {
  column(rows: number): Column;
}

interface ValueBuilder extends Builder {
  /** Takes the bytes of a value of JSON; false: they are not of the type. */
  put(row: number, bytes: Buffer, start: number, end: number): boolean;
}

const quote = 0x22;
const backslash = 0x5c;
/** Up to so many bytes a loop copies faster than a call. */
const shortText = 32;

function isPlain(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] as number;
    if (byte >= 0x80 || byte === backslash) {
      return false;
    }
  }
  return true;
}

/** Texts, each of which is set at most once, in the order of the rows. */
class TextBuilder implements ValueBuilder {
  readonly #offsets = new Uint32Array(batchRows + 1);
  readonly #valid = new Uint8Array(batchRows);
  #bytes = Buffer.allocUnsafeSlow(16 * 1024);
  #rows = 0;
  #filled = 0;

  #add(row: number, from: Buffer, start: number, end: number): void {
    const filled = this.#filled + end - start;
    if (filled > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(filled, this.#bytes.length * 2));
      this.#bytes.copy(larger, 0, 0, this.#filled);
      this.#bytes = larger;
    }
    const bytes = this.#bytes;
    if (end - start > shortText) {
      from.copy(bytes, this.#filled, start, end);
    } else {
      for (let at = start, to = this.#filled; at < end; at += 1, to += 1) {
        bytes[to] = from[at] as number;
      }
    }
    this.#offsets.fill(this.#filled, this.#rows + 1, row + 1);
    this.#rows = row + 1;
    this.#offsets[row + 1] = filled;
    this.#filled = filled;
    this.#valid[row] = 1;
  }
  set(row: number, text: string): void {
    const bytes = Buffer.from(text);
    this.#add(row, bytes, 0, bytes.length);
  }
  /** Bytes that are no UTF-8 are written in hexadecimal. */
  setBytes(row: number, bytes: Buffer, start: number, end: number): void {
    if (isPlain(bytes, start, end) || isUtf8(bytes.subarray(start, end))) {
      this.#add(row, bytes, start, end);
    } else {
      this.set(row, `\\x${bytes.toString("hex", start, end)}`);
    }
  }
  put(row: number, bytes: Buffer, start: number, end: number): boolean {
    const plain = isPlain(bytes, start, end);
    if (!plain && !isUtf8(bytes.subarray(start, end))) {
      return false;
    }
    if (bytes[start] !== quote) {
      this.#add(row, bytes, start, end); // the JSON of another value
    } else if (plain || !bytes.subarray(start, end).includes(backslash)) {
      this.#add(row, bytes, start + 1, end - 1);
    } else {
      this.set(row, JSON.parse(bytes.toString("utf8", start, end)) as string);
    }
    return true;
  }
  column(rows: number): Column {
    this.#offsets.fill(this.#filled, this.#rows + 1, rows + 1);
    return {
      kind: "bytes",
      offsets: this.#offsets.subarray(0, rows + 1),
      bytes: this.#bytes.subarray(0, this.#filled),
      valid: this.#valid.subarray(0, rows),
    };
  }
}

/** Numbers of 64 bits are written as two words, since a BigInt a value takes longer. */
class Int64Builder implements ValueBuilder {
  readonly #values = new BigInt64Array(batchRows);
  readonly #words = new Int32Array(this.#values.buffer);
  readonly #valid = new Uint8Array(batchRows);

  /** @param value an integer of up to 53 bits */
  set(row: number, value: number): void {
    this.#words[row * 2] = value;
    this.#words[row * 2 + 1] = Math.floor(value / 2 ** 32);
    this.#valid[row] = 1;
  }
  put(row: number, bytes: Buffer, start: number, end: number): boolean {
    for (let at = start + (bytes[start] === 0x2d ? 1 : 0); at < end; at += 1) {
      if (!((bytes[at] as number) >= 0x30 && (bytes[at] as number) <= 0x39)) {
        return false;
      }
    }
    if (end - start > 20) {
      return false;
    }
    if (end - start <= 15) {
      this.set(row, numberIn(bytes, start, end));
      return true;
    }
    const value = BigInt(bytes.toString("latin1", start, end));
    this.#values[row] = value;
    this.#valid[row] = 1;
    return BigInt.asIntN(64, value) === value;
  }
  column(rows: number): Column {
    return fixed(this.#values.subarray(0, rows), this.#valid.subarray(0, rows));
  }
}

class Float64Builder implements ValueBuilder {
  readonly #values = new Float64Array(batchRows);
  readonly #valid = new Uint8Array(batchRows);

  put(row: number, bytes: Buffer, start: number, end: number): boolean {
    const first = bytes[start] as number;
    const isNumber = first === 0x2d || (first >= 0x30 && first <= 0x39);
    if (isNumber) {
      const value = numberIn(bytes, start, end);
      this.#values[row] = value;
      this.#valid[row] = 1;
      return Number.isFinite(value);
    }
    return false;
  }
  column(rows: number): Column {
    return fixed(this.#values.subarray(0, rows), this.#valid.subarray(0, rows));
  }
}

class BoolBuilder implements ValueBuilder {
  readonly #values = new Uint8Array(batchRows);
  readonly #valid = new Uint8Array(batchRows);

  put(row: number, bytes: Buffer, start: number): boolean {
    const isTrue = bytes[start] === 0x74;
    this.#values[row] = isTrue ? 1 : 0;
    this.#valid[row] = 1;
    return isTrue || bytes[start] === 0x66;
  }
  column(rows: number): Column {
    return fixed(this.#values.subarray(0, rows), this.#valid.subarray(0, rows));
  }
}

const dayMs = 86_400_000;

class DateBuilder implements ValueBuilder {
  readonly #values = new Int32Array(batchRows);
  readonly #valid = new Uint8Array(batchRows);

  put(row: number, bytes: Buffer, start: number, end: number): boolean {
    const [, date = ""] = /^"(\d{4}-\d\d-\d\d)"$/.exec(bytes.toString("latin1", start, end)) ?? [];
    const ms = Date.parse(`${date}T00:00:00Z`);
    this.#values[row] = ms / dayMs;
    this.#valid[row] = 1;
    return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(date); // 2026-02-30 is no date
  }
  column(rows: number): Column {
    return fixed(this.#values.subarray(0, rows), this.#valid.subarray(0, rows));
  }
}

class Int32Builder implements Builder {
  readonly #values = new Int32Array(batchRows);

  set(row: number, value: number): void {
    this.#values[row] = value;
  }
  column(rows: number): Column {
    return fixed(this.#values.subarray(0, rows), undefined);
  }
}

type Fixed = BigInt64Array | Float64Array | Int32Array | Uint8Array;

function fixed(data: Fixed, valid: Uint8Array | undefined): Column {
  return { kind: "fixed", elementsPerValue: 1, data: data as Float64Array<ArrayBuffer>, valid };
}

const buildersOf: Readonly<Record<KafkaColumnType, () => ValueBuilder>> = {
  text: () => new TextBuilder(),
  date: () => new DateBuilder(),
  int64: () => new Int64Builder(),
  float64: () => new Float64Builder(),
  bool: () => new BoolBuilder(),
};

function ownBuilders(): {
  readonly problem: TextBuilder;
  readonly key: TextBuilder;
  readonly timestamp: Int64Builder;
  readonly offset: Int64Builder;
  readonly partition: Int32Builder;
  place(row: number, offset: number, partition: number): void;
} {
  const [offset, partition] = [new Int64Builder(), new Int32Builder()];
  return {
    problem: new TextBuilder(),
    key: new TextBuilder(),
    timestamp: new Int64Builder(),
    offset,
    partition,
    place(row, at, number) {
      offset.set(row, at);
      partition.set(row, number);
    },
  };
}
