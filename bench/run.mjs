// npm run bench [-- --runs N] [--only JOB]…: times infer-batch against its rivals, checks what they wrote, and writes
// bench/results.md, unless only some of the jobs were run.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { findContenders, outFolder } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { jobs } from "./jobs.mjs";
import { measure } from "./measure.mjs";
import { formatReport } from "./report.mjs";
import { verifyOutputs } from "./verify.mjs";

const resultsFile = fileURLToPath(new URL("results.md", import.meta.url));

const { values: options } = parseArgs({
  options: { runs: { type: "string", default: "5" }, only: { type: "string", multiple: true, default: [] } },
});
const runs = Number(options.runs);
if (!Number.isSafeInteger(runs) || runs < 1) {
  throw new Error(`reading --runs: ${options.runs} is not a number of runs`);
}
const timed = options.only.length === 0 ? jobs : jobs.filter(({ id }) => options.only.includes(id));
const unknown = options.only.find((name) => !jobs.some(({ id }) => id === name));
if (unknown !== undefined) {
  throw new Error(`reading --only: ${unknown} is not one of ${jobs.map(({ id }) => id).join(", ")}`);
}

/**
 * One run of each contender, in turn, so that what else the machine does falls on all alike.
 * @returns {Promise<Map<import("./contenders.mjs").Contender, import("./measure.mjs").Measure>>}
 */
async function runRound(contenders) {
  const round = new Map();
  for (const contender of contenders) {
    await rm(contender.output, { recursive: true, force: true });
    const taken = await measure(contender.command);
    console.error(`  ${contender.job} ${contender.id}: ${taken.seconds.toFixed(2)} s`);
    round.set(contender, taken);
  }
  for (const job of timed) {
    await verifyOutputs(
      job,
      contenders.filter((contender) => contender.job === job.id),
    );
  }
  return round;
}

const wanted = new Set(timed.map(({ id }) => id));
await prepareData(wanted);
const { contenders, versions } = findContenders(wanted);
const present = contenders.filter(({ absent }) => absent === undefined);
for (const { job, id, absent } of contenders) {
  if (absent !== undefined) {
    console.error(`absent: ${job} ${id} (${absent})`);
  }
}
const measures = new Map(present.map((contender) => [contender, []]));
for (const id of wanted) {
  await mkdir(join(outFolder, id), { recursive: true });
}
for (let round = 0; round <= runs; round += 1) {
  console.error(round === 0 ? "warm-up" : `run ${round} of ${runs}`);
  for (const [contender, taken] of await runRound(present)) {
    if (round > 0) {
      measures.get(contender).push(taken);
    }
  }
}
await rm(outFolder, { recursive: true, force: true }); // an output that was refused stays, to be looked at
const own = [...(options.runs === "5" ? [] : ["--runs", runs]), ...options.only.flatMap((name) => ["--only", name])];
const command = ["npm run bench", ...(own.length === 0 ? [] : ["--", ...own])].join(" ");
const report = formatReport(timed, contenders, measures, { command, runs, versions, date: new Date() });
if (timed.length === jobs.length) {
  await writeFile(resultsFile, report);
}
console.log(report);
