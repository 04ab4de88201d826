import * as arrow from "apache-arrow";
import type { RejectedRow } from "#src/columns/types.js";
import { openPipe } from "#src/cli/commands/pipe.js";
import type { PipeReport } from "#src/report/report.js";
import { runPipe } from "#src/run/pipe.js";
import type { Row } from "./parquet.js";

export interface Piped {
  readonly output: Buffer;
  readonly rejected: readonly RejectedRow[];
  readonly report: PipeReport | undefined;
  /** What it ended with. */
  readonly error: unknown;
}

export interface PipeOptions {
  /** Is told what is written, and holds it up as a reader would. */
  readonly write?: (bytes: Buffer) => Promise<void>;
}

export async function pipeHere(
  spec: string,
  input: Uint8Array | AsyncIterable<Uint8Array>,
  { write }: PipeOptions = {},
): Promise<Piped> {
  const written: Buffer[] = [];
  const rejected: RejectedRow[] = [];
  const stop = new AbortController();
  const stdio = {
    chunks: input instanceof Uint8Array ? inChunks(input) : input,
    close() {},
    signal: stop.signal,
    write: async (chunks: readonly Uint8Array[]) => {
      const bytes = Buffer.concat(chunks);
      written.push(bytes);
      await write?.(bytes);
    },
    [Symbol.dispose]() {},
  };
  const onRejected = (rows: readonly RejectedRow[]): Promise<void> => {
    rejected.push(...rows);
    return Promise.resolve();
  };
  const log = { info() {}, warn() {}, debug() {} };
  try {
    const report = await runPipe(await openPipe(spec, { param: [] }, { stdio, log, onRejected }));
    return { output: Buffer.concat(written), rejected, report, error: undefined };
  } catch (error) {
    return { output: Buffer.concat(written), rejected, report: undefined, error };
  }
}

/** In pieces of lengths that no message has. */
async function* inChunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0, length = 1; at < bytes.length; length = (length * 7) % 4099) {
    yield await Promise.resolve(bytes.subarray(at, at + length));
    at += length;
  }
}

/** The rows of a stream, by code that is not ours. */
export function rowsOf(stream: Uint8Array): Row[] {
  return arrow
    .tableFromIPC(stream)
    .toArray()
    .map((row: { toJSON(): Row }) => row.toJSON());
}

/** Rows of each record batch of a stream, read without a look at its end. */
export function batchRows(stream: Uint8Array): number[] {
  return [...arrow.RecordBatchReader.from(stream)].map(({ numRows }) => numRows);
}

export const endMarker = Buffer.from([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);

export function hasEnd(stream: Buffer): boolean {
  return stream.subarray(-endMarker.length).equals(endMarker);
}

/** Bytes of the message that a stream begins with. */
export function schemaBytes(stream: Buffer): number {
  return 8 + stream.readInt32LE(4);
}
