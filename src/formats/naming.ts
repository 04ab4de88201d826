import { JobError, reworded } from "../util/errors.js";
import type { Decoder, ShardFile } from "./port.js";

/**
 * Wraps a decoder so that its messages and hints name shards as the user knows them, not the files on this machine that
 * hold their bytes. DuckDB's own messages name the file, too.
 */
export function namingDecoder(decoder: Decoder): Decoder {
  return {
    ...decoder,
    footers: (files) => iterate(files, () => decoder.footers(files)),
    windows: (slice, windowBytes) => call(slice.file, () => decoder.windows(slice, windowBytes)),
    units: (slice, options) => call(slice.file, () => decoder.units(slice, options)),
    read: (slices) =>
      iterate(
        slices.map(({ file }) => file),
        () => decoder.read(slices),
      ),
    countKept: (slices) =>
      call(
        slices.map(({ file }) => file),
        () => decoder.countKept(slices),
      ),
    verify: (file, signal) => call(file, () => decoder.verify(file, signal)),
    bindExpression: (request) => call(request.file, () => decoder.bindExpression(request)),
    describeRows: (request) => call(request.file, () => decoder.describeRows(request)),
    describeFailure: (request) => call(request.file, () => decoder.describeFailure(request)),
  };
}

async function call<T>(files: ShardFile | readonly ShardFile[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw renamed(error, [files].flat());
  }
}

async function* iterate<T>(files: readonly ShardFile[], work: () => AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* work();
  } catch (error) {
    throw renamed(error, files);
  }
}

function renamed(error: unknown, files: readonly ShardFile[]): unknown {
  const others = files.filter(({ path, name, remedy }) => path !== name || remedy !== undefined);
  if (!(error instanceof JobError) || others.length === 0) {
    return error;
  }
  const message = others.reduce((text, { path, name }) => text.replaceAll(path, name), error.message);
  const remedy = error.code === "SHARD_CORRUPT" ? others[0]?.remedy : undefined;
  return reworded(error, { message, hint: remedy ?? error.hint });
}
