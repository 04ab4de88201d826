// The part `checks` of bench/gpu: two nights of a job with checks and a challenger, on each provider beside the CPU.
import { spawn } from "node:child_process";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { command, fail, lastLines, program } from "./commands.mjs";
import { ask } from "./parts.mjs";
import { nights } from "./tables.mjs";

const kills = 5;
/** Batches of one size, so that a resumed run scores the same batches. */
const batchRows = 5000;
const [good, bad] = nights;

/**
 * @typedef {object} Night
 * @property {number | string} code
 * @property {any} found what `run --json` said
 * @property {string} judged the results of the verdict, and the profile of the predictions and features, as text
 */

/**
 * Scores a good night and one whose first feature was divided by 1,000, and the second once more with kills.
 * @param {import("./tables.mjs").GpuJob & { challenger: string }} job
 * @param {import("./parts.mjs").Tools} tools
 * @returns {Promise<import("./parts.mjs").Rows>}
 */
export async function checksRows(job, tools) {
  const rows = [];
  let reference;
  for (const provider of tools.providers) {
    console.error(`  ${job.id} on ${provider}`);
    // In TF32, CUDA's sums have 10 bits.
    const run = { ...tools, job, provider, env: { ...tools.env, NVIDIA_TF32_OVERRIDE: "0" } };
    const alone = await twoNights({ ...run, into: `nights-${provider}` });
    const killed = await twoNights({ ...run, into: `killed-${provider}`, isKilled: true });
    reference ??= alone;
    rows.push([provider, ...(await compared({ job, reference, alone, killed }))]);
  }
  const codes = [`how ${good} ended`, `${bad}, f0 ÷ 1,000`];
  const differences = ["largest difference from cpu", "the same for the challenger's figures"];
  return [["provider", ...codes, "what was held", ...differences, `killed ${kills} times and resumed`], ...rows];
}

/** @returns {Promise<{ nights: Night[], out: string, killed: number }>} killed: times that the second night was */
async function twoNights({ job, provider, env, folder, into, isKilled = false }) {
  const out = join(folder, into);
  const spec = join(folder, `${into}.yaml`);
  await rm(out, { recursive: true, force: true });
  await writeFile(spec, JSON.stringify(specOf(job, provider, out)));
  const done = [];
  let killed = 0;
  for (const ds of nights) {
    const args = ["run", spec, "--json", "--no-progress", "--param", `ds=${ds}`];
    const wanted = isKilled && ds === bad ? kills : 0;
    for (let kill = 0; kill < wanted; kill += 1) {
      killed += (await killAtNextSpan(args, env, join(out, ds))) ? 1 : 0;
    }
    const { code, found, said } = command(args, { env });
    if (code !== (ds === good ? 0 : 67)) {
      fail(`${into}, ${ds}: exit code ${code}: ${lastLines(said)}`);
    }
    done.push({ code, found, judged: await judged(spec, ds, join(out, ds)) });
  }
  return { nights: done, out, killed };
}

function specOf(job, provider, out) {
  const inputs = { input: job.columns };
  return {
    version: 1,
    name: "bench-gpu-checks",
    params: { ds: `\${today}` }, // YAML's interpolation, not JavaScript's
    input: { path: join(job.folder, `ds=\${ds}`, "*.parquet") },
    model: { path: job.model, inputs },
    challenger: { path: job.challenger, inputs },
    engine: { providers: [provider], batch_size: batchRows },
    checks: {},
    commit_rows: Math.ceil(job.rows / 2 / 20),
    output: { columns: ["id"], parquet: { path: join(out, `\${ds}`) } },
  };
}

/** Kills a run as soon as it has committed one span more than there were. Returns whether it was killed. */
async function killAtNextSpan(args, env, out) {
  const before = (await partsOf(out)).length;
  const child = spawn(process.execPath, [program, ...args], { env: { ...process.env, ...env }, stdio: "ignore" });
  const ended = new Promise((resolve) => child.once("exit", (_, signal) => resolve(signal)));
  const isOver = () => child.exitCode !== null || child.signalCode !== null;
  while (!isOver() && (await partsOf(out)).length === before) {
    await sleep(1);
  }
  child.kill("SIGKILL");
  return (await ended) === "SIGKILL";
}

/** The staged or published parts of a run. */
async function partsOf(out) {
  const names = await readdir(out, { recursive: true }).catch(() => []);
  return names.filter((name) => /part-\d+\..*\.(parquet|staged)$/.test(name)).map((name) => join(out, name));
}

async function judged(spec, ds, out) {
  const names = await readdir(out, { recursive: true });
  const verdict = names.find((name) => name.endsWith("verdict.json"));
  const { results } = JSON.parse(await readFile(join(out, verdict), "utf8")).verdict;
  const { found } = command(["stats", spec, "--json", "--param", `ds=${ds}`]);
  return JSON.stringify([results, found.outputs, found.features]);
}

async function compared({ job, reference, alone, killed }) {
  const codes = alone.nights.map(({ code }) => String(code));
  const held = alone.nights[1].found?.verdict?.failed.map((line) => line.split(":")[0]) ?? [];
  const isReference = reference === alone;
  const apart = isReference ? "–" : await largestDifference(job, reference.out, alone.out);
  const figures = isReference ? "–" : figuresApart(reference.nights, alone.nights);
  const once = await resumed(job, alone, killed);
  return [...codes, held.join(", ") || "nothing", apart, figures, once];
}

async function largestDifference(job, one, other) {
  let largest = 0;
  for (const ds of nights) {
    const [left, right] = await Promise.all([one, other].map(async (out) => tableOf(await partsOf(join(out, ds)))));
    const [[both, apart]] = await ask(
      `SELECT count(*), max(abs(a.score - b.score)) FROM ${left} a JOIN ${right} b USING (id)`,
    );
    if (Number(both) !== job.rows / 2) {
      fail(`${other}, ${ds}: ${Number(both)} rows have a partner, of ${job.rows / 2}`);
    }
    largest = Math.max(largest, apart);
  }
  return largest.toExponential(0);
}

const tableOf = (files) => `read_parquet([${files.map((file) => `'${file}'`).join(", ")}])`;
const figureNames = ["mean", "median", "p90", "p99", "largest"].map((name) => `${name}_difference`);

/** The largest difference between two runs of what the challenger's comparison says. */
function figuresApart(ones, others) {
  const pairs = ones.map(({ found }, night) => [found?.challenger, others[night].found?.challenger]);
  if (pairs.some(([one, other]) => other === undefined || one?.rows_compared !== other.rows_compared)) {
    return "other rows were compared";
  }
  const scores = pairs.map((pair) => pair.map(({ outputs }) => outputs.score));
  const apart = scores.flatMap(([one, other]) =>
    [...figureNames, "rank_correlation", "psi"].map((name) => Math.abs(one[name] - other[name])),
  );
  return Math.max(...apart).toExponential(0);
}

/** What the killed run has, beside the one that was not killed. */
async function resumed(job, alone, killed) {
  const [[all, ids]] = await ask(
    `SELECT count(*), count(DISTINCT id) FROM ${tableOf(await partsOf(join(killed.out, bad)))}`,
  );
  const isOnce = Number(all) === job.rows / 2 && ids === all;
  const isSame = alone.nights[1].judged === killed.nights[1].judged;
  const agreement = [alone, killed].map(({ nights: [, night] }) => {
    const { place: _place, ...figures } = night.found?.challenger ?? {};
    return JSON.stringify(figures);
  });
  const found = [
    isOnce ? "each row once" : `${Number(all)} rows, ${Number(ids)} ids`,
    isSame ? "the same verdict and profile" : "another verdict or profile",
    agreement[0] === agreement[1] ? "the same challenger's figures" : "other challenger's figures",
    ...(killed.killed === kills ? [] : [`killed ${killed.killed} times only`]),
  ];
  if (!isOnce) {
    fail(found[0]);
  }
  return found.join(", ");
}
