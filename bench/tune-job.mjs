// Carries out one job with a layout of the engine that no spec says: node tune-job.mjs SPEC [SESSIONS THREADS].
import { openJob } from "#src/app/job-context.js";
import { runJob } from "#src/run/run.js";

const [spec, sessions, threads] = process.argv.slice(2);
const attempt = { worker: { index: 0, count: 1 }, steal: false, newRun: false };
const job = await openJob(spec, { param: [] }, { attempt });
const openEngine =
  sessions === undefined
    ? job.openEngine
    : (model) => job.openEngine(model, { sessions: Number(sessions), threads: Number(threads) });
const { rowsScored, seconds, batchSize, engineBusy } = await runJob({ ...job, openEngine });
process.stdout.write(`${JSON.stringify({ rowsScored, seconds, batchSize, engineBusy })}\n`);
await job[Symbol.asyncDispose]();
