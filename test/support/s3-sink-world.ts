import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan } from "#src/run/plan/plan.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import type { RunWriter, Sink } from "#src/targets/target.js";
import { type HttpProxy, httpProxy } from "./http-proxy.js";
import { scratchFolder } from "./job.js";
import { faultsOfFinished, outputRows } from "./output.js";
import { objectsAt } from "./clouds.js";
import type { Bucket, StoreServer } from "./s3.js";
import { mirror } from "./s3-target.js";
import type { BegunRun } from "./sink-drive.js";
import { begun, idsOf, outputOf, planFor, rejectOf, s3Sink, type S3SinkOptions, whole } from "./sinks.js";

/** A target in S3, or in another store, behind a proxy, and what a reader finds there. */
export interface S3World<B extends Bucket = Bucket> extends AsyncDisposable {
  readonly bucket: B;
  readonly proxy: HttpProxy;
  readonly uri: string;
  readonly folder: string;
  open(options?: Partial<S3SinkOptions>): Promise<Sink>;
  /** Names below the target's folder. */
  names(): Promise<string[]>;
  get(name: string): Promise<string>;
  /** Faults of a finished run; empty when there are none. `number`: the run whose rows must be there. */
  faults(number?: number): Promise<string[]>;
  /** Faults that a reader finds who trusts `_SUCCESS`, and half-written objects. Empty when there are none. */
  faultsMidway(): Promise<string[]>;
}

const rowsOfRun = 25;
/** The row that is rejected, in the last span, at whose part and rejects processes are killed. */
const rejectedRow = 23;

export async function s3World<B extends Bucket>(
  server: Omit<StoreServer, "createBucket"> & { createBucket(): Promise<B> },
): Promise<S3World<B>> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(server.port);
  const bucket = await server.createBucket();
  const start = "lake/out/";
  const names = async (): Promise<string[]> =>
    (await bucket.keys()).filter((key) => key.startsWith(start)).map((key) => key.slice(start.length));
  const uri = `${bucket.uri}/lake/out`;
  const here = async (): Promise<string> => {
    const to = await mkdtemp(join(scratch.path, "mirror-"));
    await mirror(bucket, "lake/out", to);
    return to;
  };
  const world: S3World<B> = {
    bucket,
    proxy,
    uri,
    folder: scratch.path,
    async open(options = {}) {
      const { retrySeconds = 10, warn = () => undefined, target = {} } = options;
      const setup = { port: proxy.port, retrySeconds, warn, ...(target.signal && { signal: target.signal }) };
      const objects = uri.startsWith("s3:") ? {} : { objects: await objectsAt(server, uri, setup) };
      return await s3Sink({ uri, spool: join(scratch.path, "spool"), ...setup, ...options, ...objects });
    },
    names,
    get: async (name) => Buffer.from(await bucket.get(`${start}${name}`)).toString("utf8"),
    async faults(number = 1) {
      const at = await here();
      const faults = await faultsOfFinished(at, rowsOfRun - 1);
      const found = (await outputRows(at)).map(({ id, score }) => `${String(id)} ${String(score)}`).join();
      faults.push(...(found === expectedRows(number) ? [] : [`rows ${found}`]));
      const all = await names();
      const { runId } = s3Plan(number);
      const rejects = all.filter((name) => name.startsWith("_rejects/"));
      const due = new RegExp(`^_rejects/part-00002\\.${runId}\\.[0-9a-f]{16}\\.jsonl$`);
      faults.push(...(due.test(rejects.join()) ? [] : [`rejects ${rejects.join()}`]));
      return [...faults, ...all.filter((name) => /staged|probe/.test(name)).map((name) => `${name} is left over`)];
    },
    async faultsMidway() {
      const all = await names();
      const seen = all.filter((name) => !name.startsWith("_") && !/^part-\d{5}\.[a-z0-9-]+\.parquet$/.test(name));
      const success = all.includes("_SUCCESS") ? await world.get("_SUCCESS") : undefined;
      if (success === undefined) {
        return seen;
      }
      const number = Number(/-r(\d+)"/.exec(success)?.[1] ?? 1);
      const at = await here();
      const found = (await outputRows(at)).map(({ id, score }) => `${String(id)} ${String(score)}`).join();
      return [
        ...seen,
        ...(found === expectedRows(number) ? [] : [`_SUCCESS of run ${number} is there, rows ${found}`]),
      ];
    },
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
  return world;
}

/** Each run predicts other values, so that rows tell which run they are of. */
const scoreOf = (number: number) => (id: number) => id / 4 + number * 1000;

function expectedRows(number: number): string {
  const ids = Array.from({ length: rowsOfRun }, (_, id) => id).filter((id) => id !== rejectedRow);
  return ids.map((id) => `${id} ${scoreOf(number)(id)}`).join();
}

/** 25 rows in 3 spans. */
export function s3Plan(number = 1): Plan {
  const plan = planFor({ kind: "parquet", uri: "s3://x/y" });
  return { ...plan, runId: numberedRunId(plan.runId, number) };
}

export async function commitSpan(
  run: Pick<RunWriter, "commit">,
  span: number,
  number = 1,
): Promise<"committed" | "adopted"> {
  const ids = idsOf(spanAt(s3Plan(), span));
  const rows = outputOf(
    ids.filter((id) => id !== rejectedRow),
    scoreOf(number),
  );
  const rejects = ids.filter((id) => id === rejectedRow).map(rejectOf);
  return await run.commit(spanAt(s3Plan(), span), whole(rows, rejects));
}

export async function carryOutS3(sink: Sink, number = 1): Promise<void> {
  const found = await sink.find(s3Plan().runId);
  const stored = found?.plan.runId === s3Plan(number).runId ? found : await sink.create(s3Plan(number));
  const run = await sink.open(stored);
  if (run.state.kind === "published") {
    await run.finish();
    return;
  }
  const writer = await run.begin({ worker: 0, workers: 1, program: "test", provider: "cpu", onBadRow: "reject" });
  for (let span = 0; span < spanCount(s3Plan()); span += 1) {
    if (!run.spans.has(span)) {
      await commitSpan(writer, span, number);
    }
  }
  await run.finish();
}

export async function committedS3(sink: Sink, number: number): Promise<BegunRun> {
  const { run } = await begun(sink, s3Plan(number));
  for (const span of [0, 1, 2]) {
    await commitSpan(run, span, number);
  }
  return run;
}

/** The error of an attempt whose run a later one takes the place of. */
export const superseded = { code: "PLAN_CHANGED", exitCode: 66, message: expect.stringMatching(/came after/) };
