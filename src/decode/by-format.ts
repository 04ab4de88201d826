import type { Claim } from "./arrow-index.js";
import type { Decoder, ShardFile } from "./port.js";

/** What `input.format` says; undefined: the names tell. */
export type Format = "parquet" | "arrow" | undefined;

const fileNames = /\.(arrow|feather|ipc)$/i;
const streamNames = /\.arrows$/i;

/** Names that are neither format's are Parquet's. */
function isArrow(name: string, format: Format): boolean {
  return format === undefined ? fileNames.test(name) || streamNames.test(name) : format === "arrow";
}

/** What an Arrow shard should be; where the spec says that it is Arrow, its name need not. */
export function claimOf(name: string, format: Format): Claim {
  return format === "arrow" ? "either" : streamNames.test(name) ? "stream" : "file";
}

/** Decodes each shard as what it is: a job may have both. The decoders are opened when a shard asks for them. */
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
      for (let start = 0; start < files.length; ) {
        const first = files[start] as ShardFile;
        const kind = isArrow(first.name, format);
        const other = files.findIndex((file, index) => index > start && isArrow(file.name, format) !== kind);
        const end = other < 0 ? files.length : other;
        yield* (await of(first)).footers(files.slice(start, end));
        start = end;
      }
    },
    windows: async (slice, windowBytes) => await (await of(slice.file)).windows(slice, windowBytes),
    async *read(slice) {
      yield* (await of(slice.file)).read(slice);
    },
    verify: async (file, signal) => await (await of(file)).verify(file, signal),
    bindExpression: async (request) => await (await of(request.file)).bindExpression(request),
    describeRows: async (request) => await (await of(request.file)).describeRows(request),
    describeFailure: async (request) => await (await of(request.file)).describeFailure(request),
    async [Symbol.asyncDispose]() {
      for (const decoder of opened.values()) {
        await (await decoder.catch(() => undefined))?.[Symbol.asyncDispose]();
      }
    },
  };
}
