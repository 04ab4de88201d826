// npm run bench:gpu [-- --short] [--cuda FOLDER] [--runs N] [--only PART]… [--write]: what GPUs of this machine do, and how
// fast: doctor, the fixtures' predictions, batch sizes, whole jobs beside Python with io binding, two nights with checks and a
// challenger, a batch without memory, two workers. --cuda FOLDER has NVIDIA's libraries, or gets them (as docs/gpu.md
// says), and a Python with onnxruntime-gpu, from wheels in FOLDER/wheels if they are there;
// INFER_BATCH_PYTHON names another. Each part is kept in bench/data/ when it has ended, so that --only PART adds to what was
// measured here before. --write puts the tables into bench/results-gpu.md. A part that fails does not stop the others; the exit code
// is then 1.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { dataFolder } from "../data.mjs";
import { findPython } from "../python.mjs";
import { machine } from "../report.mjs";
import { command, cudaEnv, fail, makePython } from "./commands.mjs";
import { curveRows, doctorRows, goldenRows, jobsRows, memoryRows, workersRows } from "./parts.mjs";
import { checksRows } from "./nights.mjs";
import { allProviders, formatResults, merge, whyNotRun, withResults } from "./results.mjs";
import { prepare, writeSpec } from "./tables.mjs";

const page = fileURLToPath(new URL("../results-gpu.md", import.meta.url));
const require = createRequire(import.meta.url);
const { version: runtime } = require("onnxruntime-node/package.json");
const { version: own } = require("../../package.json");

const { values } = parseArgs({
  options: {
    short: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
    cuda: { type: "string" },
    runs: { type: "string", default: "3" },
    only: { type: "string", multiple: true, default: [] },
  },
});
const { short } = values;
const partNames = ["doctor", "golden", "curve", "jobs", "checks", "memory", "workers"];
const unknown = values.only.find((name) => !partNames.includes(name));
if (unknown !== undefined) {
  throw new Error(`reading --only: ${unknown} is not one of ${partNames.join(", ")}`);
}
const asked = ["npm run bench:gpu", ...process.argv.slice(2).filter((one) => one !== "--write")]
  .join(" ")
  .replace(" --", " -- --");

/** Asks doctor about every provider, with a large model. */
async function examine(job, { env, folder }) {
  const path = join(folder, "doctor.yaml");
  const engine = { providers: allProviders.toReversed() };
  const spec = await writeSpec(job, { path, output: join(folder, "out"), engine });
  const { found, said } = command(["doctor", spec, "--json"], { env });
  if (found === undefined) {
    throw new Error(`running doctor: ${said}`);
  }
  return found;
}

/**
 * The parts by name: a title, and what measures the rows of its table.
 * @returns {Record<string, [string, () => Promise<import("./parts.mjs").Rows> | import("./parts.mjs").Rows]>}
 */
function partsOf({ jobs, checks, memory }, trials, tools) {
  const [small, big] = jobs;
  const curveOf = short ? small : big;
  return {
    doctor: ["`doctor`, with the MLP 32-1024-1024-1", () => doctorRows(trials, tools)],
    golden: ["Predictions of the fixtures: floats within 1e-5, others equal", () => goldenRows(tools)],
    curve: [`Rows/s of the ${curveOf.what} alone`, () => curveRows(curveOf, tools)],
    jobs: ["Whole jobs, from Parquet to Parquet", () => jobsRows(jobs, tools)],
    checks: [`Two nights with \`checks: {}\`, TF32 off: ${checks.what}`, () => checksRows(checks, tools)],
    memory: [`No memory on purpose: ${memory.what}`, () => memoryRows(memory, tools)],
    workers: [`Two workers on one GPU: ${small.what}`, () => workersRows(small, tools)],
  };
}

/** The commit of this clone, short; undefined: there is no git. */
function commitHere() {
  const git = command(["-C", dataFolder, "rev-parse", "--short=8", "HEAD"], { file: ["git"] });
  return git.code === 0 ? git.stdout.trim() : undefined;
}

function versions() {
  return [
    `infer-batch ${own}`,
    `Node ${process.versions.node}`,
    `onnxruntime-node ${runtime}`,
    ...findPython().versions,
  ];
}

async function main() {
  const env = cudaEnv(values.cuda);
  makePython(values.cuda, runtime);
  console.error("making tables and models");
  const data = await prepare({ short });
  const keptFile = join(dataFolder, `${short ? "gpu-short" : "gpu"}/results.json`);
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-gpu-"));
  try {
    const doctor = await examine(data.jobs[1], { env, folder });
    const notRun = whyNotRun(doctor);
    const providers = allProviders.filter((provider) => !(provider in notRun));
    console.error(`providers: ${providers.join(", ")}`);
    const devices = doctor.trials.flatMap(({ provider, device }) =>
      device === null ? [] : [`${provider}: ${device}`],
    );
    const parts = partsOf(data, doctor.trials, { providers, env, folder, runs: short ? 1 : Number(values.runs) });
    const earlier = await readFile(keptFile, "utf8").then(JSON.parse, () => undefined);
    let results = merge(earlier, {
      machine: [machine(), ...devices].join("; "),
      versions: versions(),
      short,
      notRun,
      parts: {},
    });
    for (const id of partNames) {
      if (values.only.length === 0 || values.only.includes(id)) {
        const [title, measured] = parts[id];
        console.error(id);
        try {
          const date = new Date().toISOString().slice(0, 10);
          const part = { title, rows: await measured(), command: asked, date, commit: commitHere() };
          results = merge(results, { ...results, parts: { [id]: part } });
          await writeFile(keptFile, JSON.stringify(results));
        } catch (error) {
          fail(error.message);
        }
      }
    }
    const text = formatResults(results, partNames);
    console.log(text);
    if (values.write) {
      await writeFile(page, withResults(await readFile(page, "utf8"), text));
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

await main();
