// npm run bench:profile [-- --only JOB]…: where the CPU time of infer-batch's own jobs of the bench goes, by Linux's
// perf; writes bench/results-profile.md, unless only some were run.
import { rm, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { findContenders } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { jobs as allJobs } from "./jobs.mjs";
import { measure, median, readThrough } from "./measure.mjs";
import { prepareBigModel } from "./models.mjs";
import { partNames, requirePerf, samplesPerSecond, secondsByPart } from "./perf.mjs";
import { machine } from "./report.mjs";

const resultsFile = fileURLToPath(new URL("results-profile.md", import.meta.url));
const own = "infer-batch";
const runs = 3;

const jobs = allJobs.filter(({ id }) => id !== "scaling"); // that of mlp once more
const { values } = parseArgs({ options: { only: { type: "string", multiple: true, default: [] } } });
const unknown = values.only.find((id) => jobs.every((job) => job.id !== id));
if (unknown !== undefined) {
  throw new Error(`reading --only: ${unknown} is not one of ${jobs.map(({ id }) => id).join(", ")}`);
}
requirePerf();
const timed = values.only.length === 0 ? jobs : jobs.filter(({ id }) => values.only.includes(id));

const idle = "idle cores";

/** Seconds by part of one run. */
async function profile({ commands: [command], reads, output }) {
  try {
    await rm(output, { recursive: true, force: true });
    readThrough(reads);
    const plain = await measure(command);
    await rm(output, { recursive: true, force: true });
    const { all, main } = await secondsByPart(command);
    all.set(idle, Math.max(0, plain.seconds * availableParallelism() - plain.cpuSeconds));
    return { all, main };
  } finally {
    await rm(output, { recursive: true, force: true });
  }
}

await prepareData(new Set(timed.map(({ id }) => id)));
if (timed.some(({ id }) => id === "mlp-big")) {
  await prepareBigModel();
}
const { contenders } = findContenders(new Set(timed.map(({ id }) => id)));
const ours = contenders.filter(({ id }) => id === own);
const taken = new Map(ours.map((one) => [one, []]));
for (let run = 0; run < runs; run += 1) {
  for (const one of ours) {
    console.error(`  ${one.job}`);
    taken.get(one).push(await profile(one));
  }
}

/** @type {string[]} */
const names = [...partNames, idle];
const secondsOf = (one, where, part) => median(taken.get(one).map((seconds) => seconds[where].get(part) ?? 0));
const line = (title, cells) => `| ${title} | ${cells.join(" | ")} |`;
const head = (title) => [
  line(
    title,
    ours.map(({ job }) => `\`${job}\``),
  ),
  `| --- | ${ours.map(() => "---:").join(" | ")} |`,
];
const rowsOf = (where, shown) =>
  shown.map((part) =>
    line(
      part,
      ours.map((one) => secondsOf(one, where, part).toFixed(2)),
    ),
  );
/** A part that counts to the start of the process does not grow with the rows. */
const starting = "V8: parsing, compiling, optimising";
const perMillion = (one, where) => {
  const shown = names.filter((part) => part !== idle && part !== starting);
  return (shown.reduce((sum, part) => sum + secondsOf(one, where, part), 0) / one.rows) * 1e6;
};
const text = [
  "# Where the CPU time goes",
  "",
  `- Written by: \`npm run bench:profile\`, ${new Date().toISOString().slice(0, 10)}`,
  `- Machine: ${machine()}`,
  `- Seconds of CPU in all threads, medians of ${runs} runs, from start to exit; perf asks ${samplesPerSecond} times a second.`,
  "",
  ...head("seconds"),
  ...rowsOf("all", names),
  "",
  "Of it, in the main thread, of which there is one however many cores there are:",
  "",
  ...head("seconds"),
  ...rowsOf(
    "main",
    names.filter((part) => part !== idle),
  ),
  "",
  "What would bound a machine with many cores, without the time for compiling, which does not grow with the rows:",
  "",
  ...head("for a million rows"),
  line(
    "CPU seconds of the main thread",
    ours.map((one) => perMillion(one, "main").toFixed(3)),
  ),
  line(
    "CPU seconds of all threads",
    ours.map((one) => perMillion(one, "all").toFixed(3)),
  ),
  line(
    "million rows/s that the main thread allows",
    ours.map((one) => (1 / perMillion(one, "main")).toFixed(1)),
  ),
  line(
    "cores that are busy then",
    ours.map((one) => (perMillion(one, "all") / perMillion(one, "main")).toFixed(0)),
  ),
  "",
].join("\n");
console.log(text);
if (values.only.length === 0) {
  await writeFile(resultsFile, text);
}
