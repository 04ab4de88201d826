// npm run bench [-- --runs N] [--only JOB]… [--install]: times infer-batch against its rivals, checks what they wrote,
// and writes bench/results.md and results.svg, unless only some of the jobs were run.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { findContenders, outFolder } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { largeForests, prepareForest } from "./forests.mjs";
import { jobs } from "./jobs.mjs";
import { measureTogether, readThrough } from "./measure.mjs";
import { prepareBigModel } from "./models.mjs";
import { installPythons } from "./python.mjs";
import { formatRates, formatReport } from "./report.mjs";
import { verifyOutputs } from "./verify.mjs";

const resultsFile = fileURLToPath(new URL("results.md", import.meta.url));
const plotFile = fileURLToPath(new URL("results.svg", import.meta.url));
const plotted = "mlp";

const defaultRuns = 3;
const { values: options } = parseArgs({
  options: {
    runs: { type: "string", default: String(defaultRuns) },
    only: { type: "string", multiple: true, default: [] },
    install: { type: "boolean", default: false },
  },
});
const runs = Number(options.runs);
if (!Number.isSafeInteger(runs) || runs < 1) {
  throw new Error(`reading --runs: ${options.runs} is not a number of runs`);
}
const timed = options.only.length === 0 ? jobs : jobs.filter(({ id }) => options.only.includes(id));
const jobOf = (wanted) => jobs.find(({ id }) => id === wanted);
const unknown = options.only.find((name) => jobOf(name) === undefined);
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
    if (contender.output !== undefined) {
      await rm(contender.output, { recursive: true, force: true });
    }
    const taken = await measureContender(contender);
    console.error(`  ${contender.job} ${contender.id}: ${taken.seconds.toFixed(2)} s`);
    round.set(contender, taken);
  }
  for (const job of timed) {
    await verifyOutputs(job, contenders);
  }
  return round;
}

async function measureContender({ commands, reads, tree, says }) {
  readThrough(reads);
  const taken = await measureTogether(commands, { tree });
  if (!says) {
    return taken;
  }
  const { seconds, by } = JSON.parse(taken.said);
  return { seconds, by }; // its own CPU time and memory are those of trying out what is fastest
}

/** Not those that take long: their files are in memory after the others, and a slow start of one run is no median. */
function isWarmedUp({ job, tree }) {
  return !tree && !jobOf(job).long;
}

const wanted = new Set(timed.map(({ id }) => id));
if (options.install) {
  installPythons();
}
await prepareData(wanted);
if (wanted.has("mlp-big")) {
  await prepareBigModel();
}
for (const [job, forest] of Object.entries(largeForests)) {
  if (wanted.has(job)) {
    await prepareForest(forest);
  }
}
const { contenders, versions } = findContenders(wanted);
const present = contenders.filter(({ absent }) => absent === undefined);
for (const { job, id, absent } of contenders) {
  if (absent !== undefined) {
    console.error(`absent: ${job} ${id} (${absent})`);
  }
}
const measures = new Map(present.map((contender) => [contender, []]));
for (const { output } of present) {
  if (output !== undefined) {
    await mkdir(dirname(output), { recursive: true });
  }
}
for (let round = 0; round <= runs; round += 1) {
  console.error(round === 0 ? "warm-up" : `run ${round} of ${runs}`);
  for (const [contender, taken] of await runRound(round === 0 ? present.filter(isWarmedUp) : present)) {
    if (round > 0) {
      measures.get(contender).push(taken);
    }
  }
}
await rm(outFolder, { recursive: true, force: true }); // an output that was refused stays, to be looked at
const own = [...(runs === defaultRuns ? [] : ["--runs", runs]), ...options.only.flatMap((name) => ["--only", name])];
const command = ["npm run bench", ...(own.length === 0 ? [] : ["--", ...own])].join(" ");
const isWhole = timed.length === jobs.length;
const plot = isWhole ? basename(plotFile) : undefined;
const report = formatReport(timed, contenders, measures, { command, runs, versions, date: new Date(), plot });
if (isWhole) {
  await writeFile(resultsFile, report);
  await writeFile(plotFile, formatRates(jobOf(plotted), contenders, measures, { runs }));
}
console.log(report);
