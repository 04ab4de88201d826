import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { openJob } from "#src/cli/job-context.js";
import { reporting } from "#src/cli/reporting.js";
import { JobError } from "#src/errors.js";
import type { AttemptRecord } from "#src/report/attempt-record.js";
import { lastSuccessOf } from "#src/report/metrics-text.js";
import type { RunReport } from "#src/report/report.js";
import { type Stage, stages } from "#src/report/stage-times.js";
import { runJob } from "#src/run/run.js";
import { runCli } from "../support/cli.js";
import { scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { listen } from "../support/listener.js";
import { fixtureNamed } from "../support/world.js";

const wine = fixtureNamed("wine-forest");

interface Told {
  readonly report: RunReport | undefined;
  readonly error: unknown;
  /** Log lines. */
  readonly said: string;
  readonly record: AttemptRecord;
  readonly pieces: readonly Piece[];
}

/** Of a stage. */
interface Piece {
  readonly stage: Stage;
  readonly startedMs: number;
  readonly endedMs: number;
}

interface Attempt {
  /** In the place of the run; it may ask what was logged. */
  readonly work?: (said: () => string) => Promise<RunReport>;
  readonly worker?: { readonly index: number; readonly count: number };
}

/** Carries out a job in this process and tells of it. */
async function tell(spec: string, { work, ...attempt }: Attempt = {}, metricsPort?: number): Promise<Told> {
  let said = "";
  const say = (message: string): void => {
    said += `${message}\n`;
  };
  const log = { info: say, warn: say, debug() {} };
  const alone = { worker: { index: 0, count: 1 }, steal: false, newRun: false };
  const pieces: Piece[] = [];
  const onStage = (stage: Stage, startedMs: number, endedMs: number): void => {
    pieces.push({ stage, startedMs, endedMs });
  };
  await using job = await openJob(spec, { param: [] }, { log, attempt: { ...alone, ...attempt }, onStage });
  try {
    const report = await reporting(job, { folder: dirname(spec), metricsPort }, () =>
      work === undefined ? runJob(job) : work(() => said),
    );
    return { report, error: undefined, said, record: job.record, pieces };
  } catch (error) {
    return { report: undefined, error, said, record: job.record, pieces };
  }
}

const away = new JobError("DATABASE", "connecting to db:5432: no answer", { hint: "try again" });
const fails = { work: () => Promise.reject(away) };

async function inScratch(
  overrides: SpecOverrides,
  use: (spec: string, folder: string) => Promise<void>,
): Promise<void> {
  await using folder = await scratchFolder();
  await use(await writeSpec(folder.path, wine, { commit_rows: 50, ...overrides }), folder.path);
}

describe("metrics in a file", () => {
  const metrics = { report: { metrics: "prom/wine.prom" } };

  test("tell what the attempt did, and nothing else is left beside them", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await tell(spec);
      const text = await readFile(join(folder, "prom/wine.prom"), "utf8");
      expect(text).toContain('infer_batch_rows_scored{batch_job="wine-forest",worker="0"} 178\n');
      expect(text).toContain('infer_batch_exit_code{batch_job="wine-forest",worker="0"} 0\n');
      expect(await readdir(join(folder, "prom"))).toEqual(["wine.prom"]);
    });
  });

  test("keep the time of the last success when an attempt fails", async () => {
    await inScratch(metrics, async (spec, folder) => {
      const read = (): Promise<string> => readFile(join(folder, "prom/wine.prom"), "utf8");
      await tell(spec);
      const success = lastSuccessOf(await read());
      expect(success).toBeGreaterThan(Date.now() - 60_000);
      expect((await tell(spec, fails)).error).toBe(away);
      const after = await read();
      expect(lastSuccessOf(after)).toBe(success);
      expect(after).toContain('infer_batch_exit_code{batch_job="wine-forest",worker="0"} 75\n');
    });
  });

  test("are each worker's own", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await tell(spec, { worker: { index: 0, count: 2 } });
      await tell(spec, { worker: { index: 1, count: 2 } });
      expect(await readdir(join(folder, "prom"))).toEqual(["wine.worker-0.prom", "wine.worker-1.prom"]);
    });
  });

  test("that cannot be written are told once, and the run is complete", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await writeFile(join(folder, "prom"), "a file in the place of the folder");
      const { report, said } = await tell(spec);
      expect(report?.status).toBe("complete");
      expect(said.match(/writing report\.metrics .*: (EEXIST|ENOTDIR)/g)).toHaveLength(1);
    });
  });
});

test("metrics on a port are those of the moment, and gone with the attempt", async () => {
  await inScratch({}, async (spec) => {
    let url = "";
    const seen: unknown[] = [];
    const work = async (said: () => string): Promise<never> => {
      url = /metrics: (\S+)/.exec(said())?.[1] ?? "";
      const live = await fetch(url);
      seen.push(live.status, live.headers.get("content-type"), await live.text());
      seen.push((await fetch(url.replace("metrics", ""))).status);
      throw away;
    };
    expect((await tell(spec, { work }, 0)).error).toBe(away);
    const running = expect.stringContaining('infer_batch_running{batch_job="wine-forest",worker="0"} 1') as unknown;
    expect(seen).toEqual([200, "text/plain; version=0.0.4; charset=utf-8", running, 404]);
    await expect(fetch(url)).rejects.toThrow("fetch failed");
  });
});

test("a port that is taken is told, and the run is complete", async () => {
  await using taken = await listen();
  await inScratch({}, async (spec) => {
    const { report, said } = await tell(spec, {}, Number(new URL(taken.url).port));
    expect([report?.status, said]).toEqual(["complete", expect.stringContaining("for --metrics-port: EADDRINUSE")]);
  });
});

describe("the page", () => {
  test("tells of an attempt, whether it ended well or not", async () => {
    await inScratch({ report: { html: "reports/wine.html" } }, async (spec, folder) => {
      const read = (): Promise<string> => readFile(join(folder, "reports/wine.html"), "utf8");
      await tell(spec);
      expect(await read()).toContain("<h1>wine-forest: complete</h1>");
      expect((await tell(spec)).report?.status).toBe("already_complete");
      expect(await read()).toContain("<h1>wine-forest: complete</h1>");
      await tell(spec, fails);
      expect(await read()).toContain("connecting to db:5432: no answer");
    });
  });

  test("does not lie among the predictions", async () => {
    await inScratch({ report: { html: "out/report.html" } }, async (spec, folder) => {
      const { error } = await tell(spec);
      expect(error).toMatchObject({
        code: "USAGE",
        message: expect.stringContaining("folder of the predictions") as string,
      });
      expect(await readdir(folder)).toEqual(["job.yaml"]);
    });
  });
});

describe("whoever is to be called", () => {
  const secret = "4b6f-secret";

  test("is called once, of success or of failure", async () => {
    await using server = await listen();
    const report = { on_success: `${server.url}/${secret}`, on_failure: `${server.url}/${secret}/fail` };
    await inScratch({ report }, async (spec) => {
      await tell(spec);
      await tell(spec, fails);
      expect(server.calls).toEqual([
        { method: "GET", path: `/${secret}`, body: "" },
        { method: "GET", path: `/${secret}/fail`, body: "" },
      ]);
    });
  });

  test("is sent the report, or the error", async () => {
    await using server = await listen();
    const report = { on_success: server.url, on_failure: server.url, method: "post" };
    await inScratch({ report }, async (spec) => {
      await tell(spec);
      await tell(spec, fails);
      const [good, bad] = server.calls.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
      expect(good).toMatchObject({ job: "wine-forest", exit_code: 0, status: "complete", rows_scored: 178 });
      expect(good?.["attempt"]).toMatchObject({ spans_committed: 4 });
      expect(bad).toMatchObject({ status: "failed", exit_code: 75, code: "DATABASE", message: away.message });
    });
  });

  test.each([
    ["answers with an error, is tried again", 500, /calling report\.on_success: HTTP 500/, 3],
    ["sends elsewhere, is not followed", 302, /calling report\.on_success: HTTP 302/, 1],
    ["never answers, is not waited for", undefined, /calling report\.on_success: no answer within 1 s/, 1],
  ])("and %s; the run is complete, and no log has the URL", async (_what, status, said, calls) => {
    await using server = await listen(() => status);
    await inScratch(
      { report: { on_success: `${server.url}/${secret}`, timeout: status === undefined ? 1 : 10 } },
      async (spec) => {
        const told = await tell(spec);
        expect(told.report?.status).toBe("complete");
        expect(told.said).toMatch(said);
        expect(told.said).not.toMatch(/secret|127\.0\.0\.1/);
        expect(server.calls.map(({ path }) => path)).toEqual(Array<string>(calls).fill(`/${secret}`));
      },
    );
  });

  test("and is not there: the same", async () => {
    await inScratch({ report: { on_success: `http://127.0.0.1:9/${secret}` } }, async (spec) => {
      const told = await tell(spec);
      expect([told.report?.status, told.said.includes(secret)]).toEqual(["complete", false]);
      expect(told.said).toMatch(/calling report\.on_success: (ECONNREFUSED|the request failed)/);
    });
  });
});

describe("the numbers of an attempt", () => {
  test("add up: what the feeding lane did is no more than the time, and every stage but reading took some", async () => {
    await inScratch({}, async (spec, folder) => {
      const { report, record, pieces } = await tell(spec);
      expect(Object.keys(report?.stageSeconds ?? {})).toEqual([...stages]);
      const ofLane = pieces.filter(({ stage }) => ["read", "decode", "pack", "wait"].includes(stage));
      const overlapping = ofLane.filter(({ startedMs }, index) => startedMs < (ofLane[index - 1]?.endedMs ?? 0));
      expect([ofLane.length > 10, overlapping]).toEqual([true, []]);
      const { ms } = record.stages;
      expect(stages.filter((stage) => ms[stage] === 0 && stage !== "read")).toEqual([]);
      expect(ms.read + ms.decode + ms.pack + ms.wait).toBeLessThanOrEqual((report?.seconds ?? 0) * 1000);
      expect(record.timeline.rows.reduce((sum, rows) => sum + rows, 0)).toBe(178);
      const manifest = JSON.parse(await readFile(join(folder, "out/_manifest.json"), "utf8")) as { attempt: unknown };
      expect(manifest.attempt).toMatchObject({
        rows_scored: 178,
        worker: 0,
        workers: 1,
        provider: "cpu",
        rejects_by_reason: {},
        stage_seconds: { infer: expect.any(Number) as number },
        versions: { node: process.versions.node },
      });
      const { scores } = manifest.attempt as { scores: { column: string; values: number }[] };
      expect(scores.map(({ column, values }) => `${column} ${values}`)).toEqual([
        "label 178",
        "probabilities_0 178",
        "probabilities_1 178",
        "probabilities_2 178",
      ]);
    });
  });
});

test("the command serves metrics on the port that it is given, and refuses what is no port", async () => {
  await using folder = await scratchFolder();
  await mkdir(join(folder.path, "prom"));
  const spec = await writeSpec(folder.path, wine);
  const [run, wrong] = await Promise.all([
    runCli(["run", spec, "--metrics-port", "0"]),
    runCli(["run", spec, "--metrics-port", "http"]),
  ]);
  expect([run.code, run.stderr]).toEqual([0, expect.stringMatching(/metrics: http:\/\/127\.0\.0\.1:\d+\/metrics/)]);
  expect([wrong.code, wrong.stderr]).toEqual([64, expect.stringContaining("expected a number from 0 to 65535")]);
});
