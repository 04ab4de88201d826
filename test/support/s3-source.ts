import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ObjectStore, RequestLimits } from "#src/stores/objects/store.js";
import { createReader, openReaderThread } from "#src/sources/reader.js";
import { openS3Store, type S3Options, type S3Settings } from "#src/stores/objects/s3.js";
import type { Source } from "#src/sources/source.js";
import { objectSource } from "#src/sources/objects.js";
import { openSpool } from "#src/base/spool.js";
import { s3Env } from "./s3.js";
import { retriesFor } from "./retries.js";

export interface S3SourceSetup {
  readonly port: number;
  readonly spool?: string;
  readonly maxBytes?: number;
  readonly timeouts?: RequestLimits;
  readonly retrySeconds?: number;
  readonly place?: S3Settings;
  readonly warnings?: string[];
  readonly signal?: AbortSignal;
  /** Reads in a thread of its own, as the command does; it takes a while to start. */
  readonly thread?: boolean;
}

export function optionsAt({ port, timeouts, retrySeconds = 0, place, warnings, signal }: S3SourceSetup): S3Options {
  // The default chain of credentials reads them.
  Object.assign(process.env, s3Env(port), { AWS_ENDPOINT_URL_S3: undefined });
  delete process.env["AWS_ENDPOINT_URL_S3"];
  return {
    settings: { endpoint: `http://127.0.0.1:${port}`, ...place },
    timeouts: timeouts ?? { connectMs: 10_000, silenceMs: 20_000, requestMs: 300_000 },
    retry: retriesFor(retrySeconds, (message) => void warnings?.push(message)),
    signal: signal ?? new AbortController().signal,
  };
}

export function storeAt(setup: S3SourceSetup): ObjectStore {
  return openS3Store(optionsAt(setup));
}

let writers = 0;

export function sourceAt(setup: S3SourceSetup): Source {
  writers += 1;
  const spool = openSpool({
    use: "in",
    root: setup.spool ?? join(tmpdir(), `infer-batch-test-spool-${process.pid}`),
    writer: `test.${process.pid}.${writers}`,
    isDead: () => false,
    maxBytes: setup.maxBytes ?? 1024 ** 3,
  });
  const { settings, ...requests } = optionsAt(setup);
  const reader =
    setup.thread === true ? openReaderThread({ scheme: "s3", settings }, requests) : createReader(storeAt(setup));
  return objectSource({ reader, spool });
}
