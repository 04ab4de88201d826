// npm run bench [-- --runs N]: times infer-batch against its rivals, checks what they wrote, writes bench/results.md.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { findContenders, outFolder } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { measure } from "./measure.mjs";
import { formatReport } from "./report.mjs";
import { verifyOutputs } from "./verify.mjs";

const resultsFile = fileURLToPath(new URL("results.md", import.meta.url));

const { values: options } = parseArgs({ options: { runs: { type: "string", default: "5" } } });
const runs = Number(options.runs);
if (!Number.isSafeInteger(runs) || runs < 1) {
  throw new Error(`reading --runs: ${options.runs} is not a number of runs`);
}

/**
 * One run of each contender, in turn, so that what else the machine does falls on all alike.
 * @returns {Promise<Map<string, import("./measure.mjs").Measure>>} by contender
 */
async function runRound(contenders) {
  const round = new Map();
  for (const { id, command, output } of contenders) {
    await rm(output, { recursive: true, force: true });
    const taken = await measure(command);
    console.error(`  ${id}: ${taken.seconds.toFixed(2)} s`);
    round.set(id, taken);
  }
  // infer-batch is checked against a rival where there is one, not the other way round.
  await verifyOutputs(contenders, contenders.find(({ id }) => id === "python") ?? contenders[0]);
  return round;
}

await prepareData();
const { contenders, versions } = findContenders();
const present = contenders.filter(({ absent }) => absent === undefined);
for (const { id, absent } of contenders) {
  if (absent !== undefined) {
    console.error(`absent: ${id} (${absent})`);
  }
}
const measures = new Map(present.map(({ id }) => [id, []]));
await mkdir(outFolder, { recursive: true });
for (let round = 0; round <= runs; round += 1) {
  console.error(round === 0 ? "warm-up" : `run ${round} of ${runs}`);
  for (const [id, taken] of await runRound(present)) {
    if (round > 0) {
      measures.get(id).push(taken);
    }
  }
}
await rm(outFolder, { recursive: true, force: true }); // an output that was refused stays, to be looked at
const command = options.runs === "5" ? "npm run bench" : `npm run bench -- --runs ${runs}`;
const report = formatReport(contenders, measures, { command, runs, versions, date: new Date() });
await writeFile(resultsFile, report);
console.log(report);
