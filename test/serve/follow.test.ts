import { expect, test } from "vitest";
import { silentLog } from "#src/flow/opened-job.js";
import { openLoaded } from "#src/job/open.js";
import { readSpec } from "#src/job/reading.js";
import { serveSchema as serveSpec } from "#src/job/jobfile/serve-spec.js";
import { everyRun } from "#src/run/lifecycle/recorded-run.js";
import { serve } from "#src/serve/serve.js";
import { expectEnd, runHere } from "../support/cli.js";
import { eighthsJob } from "../support/faulty.js";

test("a run that was loaded when the output could not be asked any more is closed", async () => {
  const spec = await eighthsJob(10);
  await expectEnd(runHere(["run", spec]), 0);
  const open = async () => await openLoaded(await readSpec(spec, { param: [] }), spec);
  await using finder = await open();
  const [run] = await finder.sink.history({ job: "small", last: everyRun });
  let [asked, closed] = [0, 0];
  const stop = new AbortController();
  const served = serve({
    job: "small",
    spec: serveSpec.parse({ port: 0 }),
    token: undefined,
    readTls: undefined,
    drainMs: 1000,
    program: { name: "infer-batch", version: "0" },
    log: silentLog,
    signal: stop.signal,
    nowMs: () => performance.now(),
    sleep: () => Promise.reject(new Error("stopped")),
    findPublished() {
      asked += 1;
      return asked === 1 ? Promise.resolve(run?.plan) : Promise.reject(new Error("the output is away"));
    },
    async openRun() {
      const opened = await open();
      return {
        ...opened,
        async [Symbol.asyncDispose]() {
          await opened[Symbol.asyncDispose]();
          closed += 1;
        },
      };
    },
  });
  await expect(served).rejects.toThrow("the output is away");
  expect(closed).toBe(1);
});
