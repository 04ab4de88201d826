import { execFileSync } from "node:child_process";
import { mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openLoaded } from "#src/job/open.js";
import { readSpec } from "#src/job/reading.js";
import { stages } from "#src/report/stage-times.js";
import { runJob } from "#src/run/run.js";
import { runCli } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { listen } from "../support/listener.js";
import { away, fails, inScratch, tell, wine } from "../support/telling.js";

async function gaugeIn(path: string, name: string): Promise<number | undefined> {
  const [, value] = new RegExp(`^infer_batch_${name}\\{.*\\} (.*)$`, "m").exec(await readFile(path, "utf8")) ?? [];
  return value === undefined ? undefined : Number(value);
}

describe("the metrics file", () => {
  const metrics = { report: { metrics: "prom/wine.prom" } };

  test("the metrics file describes the attempt, and no temporary file is left", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await tell(spec);
      const text = await readFile(join(folder, "prom/wine.prom"), "utf8");
      expect(text).toContain('infer_batch_rows_scored{batch_job="wine-forest",worker="0"} 178\n');
      expect(text).toContain('infer_batch_exit_code{batch_job="wine-forest",worker="0"} 0\n');
      expect(await readdir(join(folder, "prom"))).toEqual(["wine.prom"]);
    });
  });

  test("the metrics file keeps the time of the last success when an attempt fails", async () => {
    await inScratch(metrics, async (spec, folder) => {
      const path = join(folder, "prom/wine.prom");
      await tell(spec);
      const success = await gaugeIn(path, "last_success_timestamp_seconds");
      expect(success).toBeGreaterThan(Date.now() / 1000 - 60);
      expect((await tell(spec, fails)).error).toBe(away);
      expect(await gaugeIn(path, "last_success_timestamp_seconds")).toBe(success);
      expect(await gaugeIn(path, "exit_code")).toBe(75);
    });
  });

  test("the metrics file keeps the counts of the attempt that did the work when the next has nothing to do", async () => {
    await inScratch(metrics, async (spec, folder) => {
      const path = join(folder, "prom/wine.prom");
      await tell(spec);
      const ended = await gaugeIn(path, "ended_timestamp_seconds");
      expect((await tell(spec)).report?.status).toBe("already_complete");
      expect([await gaugeIn(path, "rows_scored"), await gaugeIn(path, "exit_code")]).toEqual([178, 0]);
      expect(await gaugeIn(path, "ended_timestamp_seconds")).toBeGreaterThan(ended ?? Number.NaN);
      await tell(spec, fails); // before it knows which run it is
      expect(await gaugeIn(path, "rows_scored")).toBe(0);
    });
  });

  test("the metrics file of a worker has no success while the run is incomplete", async () => {
    await inScratch(metrics, async (spec, folder) => {
      const { report } = await tell(spec, { worker: { index: 0, count: 2 } });
      const path = join(folder, "prom/wine.worker-0.prom");
      expect([report?.status, await gaugeIn(path, "exit_code")]).toEqual(["partial", 0]);
      expect(await gaugeIn(path, "last_success_timestamp_seconds")).toBeUndefined();
    });
  });

  test("the metrics file has the end of the attempt when its folder was missing for a while", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await writeFile(join(folder, "prom"), "a file in the place of the folder");
      const work = async (): Promise<never> => {
        await rm(join(folder, "prom"));
        throw away;
      };
      await tell(spec, { work });
      expect(await gaugeIn(join(folder, "prom/wine.prom"), "exit_code")).toBe(75);
    });
  });

  test("the metrics file is not written to a FIFO, nor to a folder that cannot be created", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await mkdir(join(folder, "prom"));
      execFileSync("mkfifo", [join(folder, "prom/wine.prom")]);
      expect((await tell(spec)).report?.status).toBe("complete");
      expect(await gaugeIn(join(folder, "prom/wine.prom"), "exit_code")).toBe(0);
    });
    const told =
      /writing report\.html .*: there is no such file or folder \(ENOENT\); let this user write there, or name/;
    await inScratch({ report: { metrics: "/proc/nowhere/wine.prom", html: "/proc/nowhere/r.html" } }, async (spec) => {
      const { report, said } = await tell(spec);
      expect([report?.status, said]).toEqual(["complete", expect.stringMatching(told)]);
    });
  });

  test("the metrics file is separate for each worker", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await tell(spec, { worker: { index: 0, count: 2 } });
      await tell(spec, { worker: { index: 1, count: 2 } });
      expect(await readdir(join(folder, "prom"))).toEqual(["wine.worker-0.prom", "wine.worker-1.prom"]);
    });
  });

  test("a metrics file that cannot be written gives one warning, and the run is complete", async () => {
    await inScratch(metrics, async (spec, folder) => {
      await writeFile(join(folder, "prom"), "a file in the place of the folder");
      const { report, said } = await tell(spec);
      expect(report?.status).toBe("complete");
      expect(said.match(/writing report\.metrics .*(EEXIST|ENOTDIR)\)?; let this user write there/g)).toHaveLength(1);
    });
  });
});

test("the metrics port serves current metrics, and closes with the attempt", async () => {
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

test("a metrics port that is in use gives a warning, and the run is complete", async () => {
  await using taken = await listen();
  await inScratch({}, async (spec) => {
    const { report, said } = await tell(spec, {}, Number(new URL(taken.url).port));
    expect([report?.status, said]).toEqual(["complete", expect.stringContaining("for --metrics-port: EADDRINUSE")]);
  });
});

describe("the HTML page", () => {
  test("the HTML page describes an attempt that succeeded or failed", async () => {
    await inScratch({ report: { html: "reports/wine.html" } }, async (spec, folder) => {
      const read = (): Promise<string> => readFile(join(folder, "reports/wine.html"), "utf8");
      await tell(spec);
      expect(await read()).toContain("<h1>PUBLISHED. 178 predictions.</h1>");
      expect((await tell(spec)).report?.status).toBe("already_complete");
      expect(await read()).toContain("<h1>PUBLISHED. 178 predictions.</h1>");
      await tell(spec, fails);
      expect(await read()).toContain("connecting to db:5432: no answer");
    });
  });

  test("the HTML page of another job is replaced with a warning that names both", async () => {
    const report = { html: "page.html" };
    await inScratch({ report }, async (spec, folder) => {
      expect((await tell(spec)).said).not.toContain("replaces");
      await writeFile(spec, (await readFile(spec, "utf8")).replace("wine-forest", "wine-trees"));
      await rm(join(folder, "out"), { recursive: true });
      expect((await tell(spec)).said).toMatch(
        /writing report\.html .*page\.html: it replaces the page of job wine-forest; .* such as wine-trees\.html/,
      );
      expect((await tell(spec)).said).not.toContain("replaces");
    });
  });

  test("the HTML page of a failed attempt is replaced when the run is complete", async () => {
    await inScratch({ report: { html: "wine.html" } }, async (spec, folder) => {
      const read = (): Promise<string> => readFile(join(folder, "wine.html"), "utf8");
      await tell(spec, fails);
      expect(await read()).toMatch(/<h1>FAILED\. \w/);
      await using job = await openLoaded(await readSpec(spec, { param: [] }), spec);
      await runJob(job); // elsewhere
      expect((await tell(spec)).report?.status).toBe("already_complete");
      expect(await read()).toContain("<h1>PUBLISHED. 178 input rows.</h1>");
    });
  });

  test.each(["out/report.html", "link/report.html", "link/dt=1/report.html"])(
    "the HTML page is refused among the predictions: %s",
    async (html) => {
      await inScratch({ report: { html } }, async (spec, folder) => {
        await mkdir(join(folder, "out"));
        await symlink("out", join(folder, "link"));
        const { error } = await tell(spec);
        const message = expect.stringContaining("folder of the predictions") as string;
        expect(error).toMatchObject({ code: "USAGE", message });
        expect(await readdir(join(folder, "out"))).toEqual([]);
      });
    },
  );

  test("the HTML page replaces only pages", async () => {
    await inScratch({ report: { html: "job.yaml" } }, async (spec) => {
      await expect(readSpec(spec, { param: [] })).rejects.toThrow("expected a name that ends in .html");
    });
  });
});

test("the stage times of an attempt add up to no more than its time, and every stage except read took some", async () => {
  await inScratch({}, async (spec, folder) => {
    const { report, record, pieces } = await tell(spec);
    expect(Object.keys(report?.stageSeconds ?? {})).toEqual([...stages]);
    const ofClient = pieces.filter(({ stage }) => ["read", "decode", "pack", "wait"].includes(stage));
    const overlapping = ofClient.filter(({ startedMs }, index) => startedMs < (ofClient[index - 1]?.endedMs ?? 0));
    expect([ofClient.length > 10, overlapping]).toEqual([true, []]);
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

test("--metrics-port serves metrics on its port, and refuses other values", async () => {
  await mkdir(join(scratch.path, "prom"));
  const spec = await writeSpec(scratch.path, wine);
  const [run, wrong] = await Promise.all([
    runCli(["run", spec, "--metrics-port", "0"]),
    runCli(["run", spec, "--metrics-port", "http"]),
  ]);
  expect([run.code, run.stderr]).toEqual([0, expect.stringMatching(/metrics: http:\/\/127\.0\.0\.1:\d+\/metrics/)]);
  expect([wrong.code, wrong.stderr]).toEqual([64, expect.stringContaining("expected a number from 0 to 65535")]);
});
