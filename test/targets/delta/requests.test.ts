import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { objectsAt, useFirstStores } from "../../support/clouds.js";
import { failuresOf } from "../../support/crash.js";
import { type HttpProxy, httpProxy, type Twist } from "../../support/http-proxy.js";
import { scratch } from "../../support/job.js";
import { rowsOfDelta } from "../../support/lakes.js";
import { type Bucket, type StoreServer } from "../../support/s3.js";
import { mirror } from "../../support/s3-target.js";
import { begun, commitSpans, planFor, s3Sink } from "../../support/sinks.js";
import { firstOf, tellingCalls, torture } from "../../support/torture.js";

const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);
const plan = planFor({ kind: "delta" });

interface World {
  readonly server: StoreServer;
  readonly proxy: HttpProxy;
  readonly bucket: Bucket;
  readonly folder: string;
}

/** One process: commits what is not committed, then publishes; `beforeEnd` is called between. */
async function attempt(world: World, beforeEnd: () => AbortSignal | undefined = () => undefined): Promise<void> {
  const { server, proxy, bucket, folder } = world;
  const uri = `${bucket.uri}/${folder}`;
  const dead = new AbortController();
  const objects = await objectsAt(server, uri, { port: proxy.port, retrySeconds: 10, signal: dead.signal });
  const spool = await mkdtemp(join(scratch.path, "spool-"));
  await using sink = await s3Sink({ port: proxy.port, uri, objects, spool, isTable: true });
  const stored = (await sink.find(plan.runId)) ?? (await sink.create(plan));
  const opened = await sink.open(stored);
  if (opened.state.kind === "published") {
    return;
  }
  const { run } = await begun(sink, plan);
  await commitSpans(run, stored);
  beforeEnd()?.addEventListener("abort", () => {
    dead.abort(new Error("killed"));
  });
  await run.finish();
}

async function idsIn({ bucket, folder }: World): Promise<number[]> {
  const to = await mkdtemp(join(scratch.path, "look-"));
  await mirror(bucket, folder, to);
  return (await rowsOfDelta(to)).map(({ id }) => Number(id)).toSorted((one, other) => one - other);
}

/** What becomes of the n-th request of publishing. */
const faults = {
  "dies after it": { isLast: true, twist: (hung) => ({ kind: "hang", after: true, hung }) },
  "loses its answer": { isLast: false, twist: () => ({ kind: "lose" }) },
  "dies before it": { isLast: true, twist: (hung) => ({ kind: "hang", after: false, hung }) },
} satisfies Record<string, { isLast: boolean; twist: (hung: () => void) => Twist }>;

for (const { name, describe, server } of useFirstStores()) {
  describe(`a Delta table in ${name}`, () => {
    test.each(firstOf(Object.entries(faults)))(
      "has all rows of a run or none, and in the end each once, where a process %s, at any request of publishing",
      async (_, { isLast, twist }) => {
        await using proxy = await httpProxy(server().port);
        const bucket = await server().createBucket();
        let from = 0;
        const world = { server: server(), proxy, bucket, folder: "undisturbed" };
        await attempt(world, () => {
          from = proxy.requests.length;
          return undefined;
        });
        const requests = proxy.requests.slice(from);
        expect(requests.filter((request) => request.includes("_delta_log")).length).toBeGreaterThan(1);
        const writes = [...requests.entries()].filter(([, request]) => torture || /^(PUT|POST) /.test(request));
        const tried = tellingCalls(writes, ([, request]) => request, { ends: true });
        const failures = await failuresOf(
          tried,
          { limit: 1, name: ([at, request]) => `${at} ${request}` },
          async ([at]) => {
            const here = { ...world, folder: `at-${at}` };
            const killed = new AbortController();
            let seen = 0;
            await attempt(here, () => {
              proxy.twist = () => {
                seen += 1;
                const isIt = isLast ? seen > at : seen === at + 1;
                return isIt
                  ? twist(() => {
                      killed.abort();
                    })
                  : undefined;
              };
              return killed.signal;
            }).catch((error: unknown) => {
              expect(killed.signal.aborted, String(error)).toBe(true);
            });
            proxy.twist = undefined;
            expect([[], upTo(25)]).toContainEqual(await idsIn(here));
            await attempt(here);
            expect(await idsIn(here)).toEqual(upTo(25));
          },
        );
        expect(failures).toEqual([]);
      },
      1_800_000,
    );
  });
}
