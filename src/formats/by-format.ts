import type { Decoder, ShardFile, ShardQuestions, SliceRequest } from "./format.js";
import { ifOpened } from "../base/promises.js";
import { JobError, reworded } from "../base/errors.js";

/** The value of `input.format`; undefined: the format follows from the file names. */
type Format = "parquet" | "arrow" | undefined;

const arrowNames = /\.(arrows?|feather|ipc)$/i;

/** Whether a file has the name of one in a format that this program reads. */
export function isInputFile(name: string): boolean {
  return /\.parquet$/i.test(name) || arrowNames.test(name);
}

function isArrow(name: string, format: Format): boolean {
  return format === undefined ? arrowNames.test(name) : format === "arrow";
}

/** Only tables know of partitions before their files are read, and their files are Parquet. */
const tableFile: ShardFile = { path: "", name: "table.parquet" };

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
    verify: async (file, signal) => await (await of(file)).verify(file, signal),
    bindExpression: async (request) => await (await of(request.file)).bindExpression(request),
    mayKeep: async (request) => await (await of(tableFile)).mayKeep(request),
    describeRows: async (request) => await (await of(request.file)).describeRows(request),
    describeFailure: async (request) => await (await of(request.file)).describeFailure(request),
    async [Symbol.asyncDispose]() {
      for (const decoder of opened.values()) {
        await (await ifOpened(decoder))?.[Symbol.asyncDispose]();
      }
    },
  };
}

function sameFormat<T>(all: readonly T[], isArrowOf: (item: T) => boolean): [T, ...T[]][] {
  const groups: [T, ...T[]][] = [];
  for (const item of all) {
    const last = groups.at(-1);
    if (last !== undefined && isArrowOf(last[0]) === isArrowOf(item)) {
      last.push(item);
    } else {
      groups.push([item]);
    }
  }
  return groups;
}

/** What is asked of `sql` is asked of the decoder, which opens it for the first question. */
interface FormatDecoder extends Omit<Decoder, keyof ShardQuestions> {
  readonly sql: () => Promise<ShardQuestions>;
}

/**
 * Wraps a decoder so that its messages and hints name shards as the user knows them, not the files on this machine that
 * hold their bytes. DuckDB's own messages name the file, too.
 */
export function namingDecoder({ sql, ...decoder }: FormatDecoder): Decoder {
  return {
    ...decoder,
    footers: (files) => iterate(files, () => decoder.footers(files)),
    windows: (slice, windowBytes) => call([slice.file], () => decoder.windows(slice, windowBytes)),
    units: (slice, options) => call([slice.file], () => decoder.units(slice, options)),
    read: (slices) => iterate(filesOf(slices), () => decoder.read(slices)),
    verify: (file, signal) => call([file], () => decoder.verify(file, signal)),
    bindExpression: (request) => call([request.file], async () => await (await sql()).bindExpression(request)),
    mayKeep: async (request) => await (await sql()).mayKeep(request),
    describeRows: (request) => call([request.file], async () => await (await sql()).describeRows(request)),
    describeFailure: (request) => call([request.file], async () => await (await sql()).describeFailure(request)),
  };
}

function filesOf(slices: readonly SliceRequest[]): ShardFile[] {
  return slices.map(({ file }) => file);
}

async function call<T>(files: readonly ShardFile[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw renamed(error, files);
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
