import type { Decoder, ShardFile } from "./port.js";
import { ifOpened } from "../util/promises.js";
import { JobError, reworded } from "../util/errors.js";

/** The value of `input.format`; undefined: the format follows from the file names. */
type Format = "parquet" | "arrow" | undefined;

/** What a shard's name, or the spec, says that it is. */
export type Claim = "file" | "stream" | "either";

const fileNames = /\.(arrow|feather|ipc)$/i;
const streamNames = /\.arrows$/i;

/** Whether a file has the name of one in a format that this program reads. */
export function isInputFile(name: string): boolean {
  return /\.parquet$/i.test(name) || fileNames.test(name) || streamNames.test(name);
}

/** Whether a shard is Arrow. A file name that fits neither format means Parquet. */
function isArrow(name: string, format: Format): boolean {
  return format === undefined ? fileNames.test(name) || streamNames.test(name) : format === "arrow";
}

/** What an Arrow shard should be; where the spec says that it is Arrow, its name need not. */
export function claimOf(name: string, format: Format): Claim {
  return format === "arrow" ? "either" : streamNames.test(name) ? "stream" : "file";
}

/** Decodes each shard by its format, since a job may have both. A decoder is opened when its first shard comes. */
export function decoderByFormat(
  format: Format,
  open: { readonly parquet: () => Promise<Decoder>; readonly arrow: () => Promise<Decoder> },
): Decoder {
  const opened = new Map<"parquet" | "arrow", Promise<Decoder>>();
  const of = async ({ name }: ShardFile): Promise<Decoder> => {
    const kind = isArrow(name, format) ? "arrow" : "parquet";
    const decoder = opened.get(kind) ?? open[kind]();
    opened.set(kind, decoder);
    return await decoder;
  };
  return {
    async *footers(files) {
      for (const [first, ...others] of sameFormat(files, (file) => isArrow(file.name, format))) {
        yield* (await of(first)).footers([first, ...others]);
      }
    },
    windows: async (slice, windowBytes) => await (await of(slice.file)).windows(slice, windowBytes),
    units: async (slice, options) => await (await of(slice.file)).units(slice, options),
    async *read(slices) {
      for (const [first, ...others] of sameFormat(slices, ({ file }) => isArrow(file.name, format))) {
        yield* (await of(first.file)).read([first, ...others]);
      }
    },
    async countKept(slices) {
      let kept = 0;
      for (const [first, ...others] of sameFormat(slices, ({ file }) => isArrow(file.name, format))) {
        kept += await (await of(first.file)).countKept([first, ...others]);
      }
      return kept;
    },
    verify: async (file, signal) => await (await of(file)).verify(file, signal),
    bindExpression: async (request) => await (await of(request.file)).bindExpression(request),
    describeRows: async (request) => await (await of(request.file)).describeRows(request),
    describeFailure: async (request) => await (await of(request.file)).describeFailure(request),
    async [Symbol.asyncDispose]() {
      for (const decoder of opened.values()) {
        await (await ifOpened(decoder))?.[Symbol.asyncDispose]();
      }
    },
  };
}

/** Cuts a list where the format changes. */
function* sameFormat<T>(all: readonly T[], isArrowOf: (one: T) => boolean): Generator<[T, ...T[]]> {
  let group: [T, ...T[]] | undefined;
  for (const one of all) {
    if (group !== undefined && isArrowOf(group[0]) === isArrowOf(one)) {
      group.push(one);
      continue;
    }
    if (group !== undefined) {
      yield group;
    }
    group = [one];
  }
  if (group !== undefined) {
    yield group;
  }
}

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
