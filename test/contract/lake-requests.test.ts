import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import type { Sink } from "#src/targets/target.js";
import { objectsAt, useFirstStores } from "../support/clouds.js";
import { failuresOf } from "../support/crash.js";
import { type HttpProxy, httpProxy, type Twist } from "../support/http-proxy.js";
import { icebergMissing, icebergSink, type IcebergSinkSetup, useDiskCatalog } from "../support/iceberg.js";
import { scratch } from "../support/job.js";
import { rowsOfDelta } from "../support/lakes.js";
import type { StoreServer } from "../support/s3.js";
import { mirror } from "../support/s3-target.js";
import { ascending } from "../support/sink-contract.js";
import { begun, carryOut, commitSpans, planFor, s3Sink } from "../support/sinks.js";
import { firstOf, tellingCalls, torture } from "../support/torture.js";

const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);
const runId = "job-000000000000";

interface Table {
  /** Of the server that takes them. */
  readonly port: number;
  open(via: IcebergSinkSetup): Promise<Sink>;
  ids(): Promise<number[]>;
  isCommit(request: string): boolean;
}

/** One process: commits what is not committed, then publishes; `beforeEnd` is called between. */
async function attempt(
  table: Table,
  { port }: Pick<HttpProxy, "port">,
  {
    beforeEnd = () => undefined,
    retrySeconds = 10,
  }: { beforeEnd?: () => AbortSignal | undefined; retrySeconds?: number } = {},
): Promise<void> {
  const dead = new AbortController();
  await using sink = await table.open({ port, retrySeconds, signal: dead.signal, runId });
  const plan = planFor(sink.planTarget, { runId });
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

/** What becomes of the n-th request of publishing. */
const faults = {
  "dies after it": { isLast: true, twist: (hung) => ({ kind: "hang", after: true, hung }) },
  "loses its answer": { isLast: false, twist: () => ({ kind: "lose" }) },
  "dies before it": { isLast: true, twist: (hung) => ({ kind: "hang", after: false, hung }) },
} satisfies Record<string, { isLast: boolean; twist: (hung: () => void) => Twist }>;

const answer = (status: number): Twist => ({ kind: "answer", status, body: "{}" });
const belie = (status: number): Twist => ({ kind: "belie", status, body: "{}" });

/** What becomes of the answer of a commit. */
const allAnswers: readonly (readonly [string, Twist])[] = [
  ["is lost", { kind: "lose" }],
  ["says that another writer was first, though none was", belie(412)],
  ["says that it failed", answer(500)],
  ["says that nobody was first", answer(412)],
  ["says that it failed, though it did not", belie(500)],
  ["tells of a conflict, though there was none", belie(409)],
  ["says that the server is away", answer(503)],
  ["tells of a conflict with nobody", answer(409)],
];

/** The part of the contract of a table as the target that is about requests which fail. @param make makes a table of its own */
function requestsContractOf(
  name: string,
  make: () => Promise<Table>,
  answers: readonly (readonly [string, Twist])[] = allAnswers,
): void {
  describe(name, { timeout: torture ? 1_800_000 : 120_000 }, () => {
    test.each(firstOf(Object.entries(faults)))(
      "has all rows of a run or none, and in the end each once, where a process %s, at any request of publishing",
      async (_, { isLast, twist }) => {
        const undisturbed = await make();
        await using proxy = await httpProxy(undisturbed.port);
        let from = 0;
        await attempt(undisturbed, proxy, {
          beforeEnd() {
            from = proxy.requests.length;
            return undefined;
          },
        });
        const requests = proxy.requests.slice(from);
        expect(requests.filter((request) => undisturbed.isCommit(request))).toHaveLength(1);
        const writes = [...requests.entries()].filter(([, request]) => torture || /^(PUT|POST) /.test(request));
        const tried = tellingCalls(writes, ([, request]) => request, { ends: true });
        const failures = await failuresOf(
          tried,
          { limit: 1, name: ([at, request]) => `${at} ${request}` },
          async ([at]) => {
            const table = await make();
            const killed = new AbortController();
            let seen = 0;
            const beforeEnd = (): AbortSignal => {
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
            };
            await attempt(table, proxy, { beforeEnd }).catch((error: unknown) => {
              expect(killed.signal.aborted, String(error)).toBe(true);
            });
            proxy.twist = undefined;
            expect([[], upTo(25)]).toContainEqual(await table.ids());
            await attempt(table, proxy);
            expect(await table.ids()).toEqual(upTo(25));
          },
        );
        expect(failures).toEqual([]);
      },
    );

    test.each(answers)("has the rows of a run once where the answer of a commit %s, twice", async (_, twist) => {
      const table = await make();
      await using proxy = await httpProxy(table.port);
      let commits = 0;
      proxy.twist = (request) => {
        commits += table.isCommit(request) ? 1 : 0;
        return table.isCommit(request) && commits <= 2 ? twist : undefined;
      };
      await attempt(table, proxy);
      expect(commits).toBeGreaterThan(0);
      expect(await table.ids()).toEqual(upTo(25));
      await attempt(table, proxy);
      expect(await table.ids()).toEqual(upTo(25));
    });

    test("comes after what another writer commits while it does", async () => {
      const table = await make();
      await using proxy = await httpProxy(table.port);
      const writeBeside = async (): Promise<void> => {
        const other = { port: table.port, runId: "other-111111111111" };
        await using sink = await table.open(other);
        await carryOut(sink, planFor(sink.planTarget, { runId: other.runId, rows: 5 }));
      };
      let commits = 0;
      proxy.twist = (request) => {
        commits += table.isCommit(request) ? 1 : 0;
        return table.isCommit(request) && commits === 1 ? { kind: "hold", until: writeBeside() } : undefined;
      };
      await attempt(table, proxy);
      expect(commits).toBe(2);
      expect(await table.ids()).toEqual(ascending([...upTo(25), ...upTo(5)]));
    });

    test("ends with 75 where no commit is answered, and then has the rows once", async () => {
      const table = await make();
      await using proxy = await httpProxy(table.port);
      proxy.twist = (request) => (table.isCommit(request) ? answer(500) : undefined);
      await expect(attempt(table, proxy, { retrySeconds: 1 })).rejects.toMatchObject({ exitCode: 75 });
      expect(await table.ids()).toEqual([]);
      proxy.twist = undefined;
      await attempt(table, proxy);
      expect(await table.ids()).toEqual(upTo(25));
    });
  });
}

async function deltaIn(server: StoreServer): Promise<Table> {
  const bucket = await server.createBucket();
  const uri = `${bucket.uri}/table`;
  return {
    port: server.port,
    async open(via) {
      const spool = await mkdtemp(join(scratch.path, "spool-"));
      return await s3Sink({
        uri,
        spool,
        objects: await objectsAt(server, uri, via),
        port: via.port,
        runOfTable: via.runId as RunId,
      });
    },
    async ids() {
      const to = await mkdtemp(join(scratch.path, "look-"));
      await mirror(bucket, "table", to);
      return ascending((await rowsOfDelta(to)).map(({ id }) => Number(id)));
    },
    isCommit: (request) => /^(PUT|POST) .*_delta_log/.test(request),
  };
}

for (const { name, describe: describeStore, server } of useFirstStores()) {
  describeStore("", () => {
    requestsContractOf(`a Delta table in ${name}`, () => deltaIn(server()), firstOf(allAnswers, 4));
  });
}

describe.skipIf(icebergMissing !== undefined)(icebergMissing ?? "", () => {
  const catalog = useDiskCatalog();
  let tables = 0;
  requestsContractOf("an Iceberg table of a REST catalog", async () => {
    const { url, pyiceberg } = catalog();
    tables += 1;
    const table = `db.t${tables}`;
    await pyiceberg.make(table, {
      columns: [
        ["id", "long", false],
        ["score", "float", false],
      ],
    });
    return {
      port: Number(new URL(url).port),
      open: (via) => icebergSink(table, via),
      ids: async () => ascending((await pyiceberg.read(table)).rows.map(({ id }) => Number(id))),
      isCommit: (request) => request.startsWith("POST "),
    };
  });
});
