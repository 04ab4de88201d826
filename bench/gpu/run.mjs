// npm run bench:gpu [-- --short] [--cuda FOLDER] [--runs N] [--write]: what GPUs of this machine do, and how fast: doctor, the
// fixtures' predictions, batch sizes, whole jobs beside Python with io binding, a batch without memory, two workers.
// --cuda FOLDER has NVIDIA's libraries, or gets them (infer-batch doctor --install-cuda). --write puts the tables into
// docs/gpu.md; --only PART, which may be repeated, leaves out the others. INFER_BATCH_PYTHON names a Python with numpy, pyarrow and onnxruntime-gpu.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { findPython } from "../python.mjs";
import { machine } from "../report.mjs";
import { prepare, writeSpec } from "./tables.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const program = path("../../bin/infer-batch.js");
const page = path("../../docs/gpu.md");
const [begin, end] = ["<!-- npm run bench:gpu -->", "<!-- the end of what bench:gpu writes -->"];

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
const runs = short ? 1 : Number(values.runs);

/** The first line of JSON on stdout, the exit code, and stderr. */
function command(args, { env, program: [file, ...first] = [process.execPath, program], input = [] } = {}) {
  const ran = spawnSync(file, [...first, ...args, ...input], {
    encoding: "utf8",
    env: { ...process.env, ...env },
    maxBuffer: 2 ** 28,
  });
  const line = ran.stdout?.trim().split("\n").at(-1) ?? "";
  return { code: ran.status, found: line.startsWith("{") ? JSON.parse(line) : undefined, said: ran.stderr ?? "" };
}

const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
const grouped = (number) => (number === undefined ? "–" : Math.round(number).toLocaleString("en-US"));
const table = ([head, ...rows]) =>
  [head, head.map((_, index) => (index === 0 ? "---" : "---:")), ...rows].map((row) => `| ${row.join(" | ")} |`);

/** Puts CUDA's folder into the environment, and fills it first if it has no libraries. */
function cudaEnv() {
  if (values.cuda === undefined) {
    return {};
  }
  const folder = resolve(values.cuda);
  if (!existsSync(join(folder, "lib"))) {
    const { code, said } = command(["doctor", "--install-cuda", folder]);
    if (code !== 0) {
      throw new Error(`installing CUDA into ${folder}: ${said}`);
    }
  }
  const others = process.env.LD_LIBRARY_PATH ?? "";
  return { LD_LIBRARY_PATH: [join(folder, "lib"), ...(others === "" ? [] : [others])].join(":") };
}

/** What doctor says of each provider that has all parts here. */
function doctorTable(trials) {
  const rows = trials.map(({ provider, state, device, operators, ms, fault }) => {
    const all = Object.values(operators).reduce((sum, count) => sum + count, 0);
    const share = all === 0 ? "–" : `${operators[provider] ?? 0} of ${all}`;
    return [provider, state, device ?? "–", share, ms === null ? (fault ?? "–") : ms.toFixed(1)];
  });
  return table([["provider", "state", "device", "operators on it", "ms a batch of one row"], ...rows]);
}

/** The predictions of every fixture on each provider, compared with Python's on a CPU. */
function goldenTable(providers, env) {
  const rows = providers.map((provider) => {
    const args = ["vitest", "run", "test/run/gpu.test.ts", "--reporter=json"];
    const more = { ...env, INFER_BATCH_GPU: provider, NVIDIA_TF32_OVERRIDE: "0" };
    const ran = command(args, { env: more, program: ["npx"] });
    const { numPassedTests = 0, numFailedTests = 0 } = ran.found ?? {};
    return [provider, `${numPassedTests}`, `${numFailedTests}`];
  });
  return table([["provider", "fixtures within 1e-5 of Python on a CPU", "not"], ...rows]);
}

async function curveTable(job, { providers, env, folder }) {
  const curves = new Map();
  for (const provider of providers) {
    const options = {
      path: join(folder, "tune.yaml"),
      output: join(folder, "tuned"),
      engine: { providers: [provider] },
    };
    const { found, said } = command(["tune", await writeSpec(job, options), "--json", "--no-cache"], { env });
    const lines = found?.tuning.filter(({ sessions }) => sessions === 1) ?? [];
    curves.set(provider, new Map(lines.map(({ batch_size, rows_per_second }) => [batch_size, rows_per_second])));
    if (found === undefined) {
      console.error(said);
    }
  }
  const sizes = [...new Set([...curves.values()].flatMap((curve) => Array.from(curve.keys())))].toSorted(
    (a, b) => a - b,
  );
  const rows = sizes.map((size) => [grouped(size)].concat(providers.map((one) => grouped(curves.get(one).get(size)))));
  return table([["rows in a batch", ...providers], ...rows]);
}

async function scored(job, { provider, env, folder, engine = {}, args = [], commitRows }) {
  const output = join(folder, "out");
  const given = { path: join(folder, "job.yaml"), output, engine: { providers: [provider], ...engine }, commitRows };
  const spec = await writeSpec(job, given);
  await rm(output, { recursive: true, force: true });
  const ran = command(["run", spec, "--json", "--no-progress", ...args], { env });
  if (ran.code !== 0) {
    console.error(ran.said);
  }
  return ran;
}

async function jobsTable(jobs, { providers, env, folder }) {
  const python = findPython();
  const rows = [];
  for (const job of jobs) {
    for (const provider of providers) {
      console.error(`  ${job.id} on ${provider}`);
      const found = [];
      for (let run = 0; run < runs; run += 1) {
        const ran = await scored(job, { provider, env, folder });
        found.push(...(ran.code === 0 ? [ran.found] : []));
      }
      const peers = Array.from({ length: runs }, () => peerRate(job, { python, provider, env, folder }));
      const peer = peers.includes(undefined) ? undefined : median(peers);
      const rate = found.length === 0 ? undefined : median(found.map((one) => one.rows_per_second));
      rows.push([
        job.what,
        provider,
        grouped(rate),
        found.length === 0 ? "–" : median(found.map((one) => one.engine_busy)).toFixed(2),
        grouped(found[0]?.batch_size),
        grouped(peer),
        rate === undefined || peer === undefined ? "–" : (rate / peer).toFixed(2),
      ]);
    }
  }
  const head = ["model", "provider", "rows/s", "engine busy", "rows in a batch", "Python, io binding, rows/s", "ratio"];
  return table([head, ...rows]);
}

/** The best rate of Python's loop over a few batch sizes; undefined: it cannot run here. */
function peerRate(job, { python, provider, env, folder }) {
  if (python.absent !== undefined || provider === "webgpu") {
    return undefined; // Python's wheels have no WebGPU
  }
  const sizes = provider === "cpu" ? ["8192"] : ["8192", "65536"];
  const rates = sizes.map((size) => {
    const args = [path("peer_binding.py"), job.model, job.folder, job.columns.join(","), join(folder, "peer.parquet")];
    const { found } = command([...args, provider, size], { env, program: [python.interpreter] });
    return found === undefined ? 0 : found.rows / found.seconds;
  });
  const best = Math.max(...rates);
  return best === 0 ? undefined : best;
}

/** A batch that the device has no memory for, on purpose. */
async function memoryTable(job, { providers, env, folder }) {
  const rows = [];
  for (const provider of providers.filter((one) => one !== "cpu")) {
    const more = { ...env, XDG_CACHE_HOME: folder }; // where limits of earlier runs are not known
    const size = short ? 16_384 : 1_048_576;
    const ran = await scored(job, { provider, env: more, folder, engine: { batch_size: size }, commitRows: size });
    const halved = ran.said.split("no memory for a batch of").length - 1;
    const complete = ran.found?.rows_scored === job.rows ? "all rows" : `exit code ${ran.code}`;
    rows.push([provider, grouped(size), String(halved), grouped(ran.found?.batch_size), complete]);
  }
  return table([["provider", "rows asked for", "times halved", "rows in a batch at the end", "scored"], ...rows]);
}

/** One worker, then two at once on the same GPU. */
async function workersTable(job, { providers, env, folder }) {
  const rows = [];
  const commitRows = Math.ceil(job.rows / 16);
  for (const provider of providers.filter((one) => one !== "cpu")) {
    const alone = await scored(job, { provider, env, folder, commitRows });
    await rm(join(folder, "out"), { recursive: true, force: true });
    const spec = join(folder, "job.yaml");
    const both = `for w in 0 1; do "${process.execPath}" "${program}" run "${spec}" --json --no-progress --worker $w/2 2>/dev/null >"${folder}/w$w" & done; wait`;
    command(["-c", both], { env, program: ["sh"] });
    const ends = [];
    for (const worker of [0, 1]) {
      ends.push(JSON.parse((await readFile(join(folder, `w${worker}`), "utf8")).trim().split("\n").at(-1)));
    }
    const together =
      ends.reduce((sum, one) => sum + (one.rows_scored ?? 0), 0) / Math.max(...ends.map((one) => one.seconds));
    rows.push([
      provider,
      grouped(alone.found?.rows_per_second),
      grouped(together),
      ends.map((one) => one.status).join(", "),
    ]);
  }
  return table([["provider", "one worker, rows/s", "two workers, rows/s", "how they ended"], ...rows]);
}

async function main() {
  const env = cudaEnv();
  console.error("making tables and models");
  const { jobs, memory } = await prepare({ short });
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-gpu-"));
  try {
    const [small, big] = jobs;
    const spec = await writeSpec(big, {
      path: join(folder, "doctor.yaml"),
      output: join(folder, "out"),
      engine: { providers: "auto" },
    });
    const { found: doctor, said } = command(["doctor", spec, "--json"], { env });
    if (doctor === undefined) {
      throw new Error(`running doctor: ${said}`);
    }
    const providers = doctor.trials.filter(({ state }) => state === "ok").map(({ provider }) => provider);
    const tools = { providers: ["cpu", ...providers.filter((one) => one !== "cpu")], env, folder };
    console.error(`providers: ${tools.providers.join(", ")}`);
    const gpus = providers.filter((one) => one !== "cpu");
    const curveOf = short ? small : big;
    /** @type {Record<string, [string, () => Promise<string[]> | string[]]>} */
    const parts = {
      doctor: ["`doctor`, with the MLP 32-1024-1024-1", () => doctorTable(doctor.trials)],
      golden: ["Predictions", () => goldenTable(gpus, env)],
      curve: [`Rows/s of the ${curveOf.what} alone, by rows in a batch`, () => curveTable(curveOf, tools)],
      jobs: ["Whole jobs, from Parquet to Parquet", () => jobsTable(jobs, tools)],
      memory: [`No memory on purpose: ${memory.what}`, () => memoryTable(memory, tools)],
      workers: [`Two workers on one GPU: ${small.what}`, () => workersTable(small, tools)],
    };
    const sections = [];
    for (const [id, [title, lines]] of Object.entries(parts)) {
      if (values.only.length === 0 || values.only.includes(id)) {
        console.error(id);
        sections.push("", `**${title}**`, "", ...(await lines()));
      }
    }
    const devices = doctor.trials.flatMap(({ provider, device }) =>
      device === null ? [] : [`${provider}: ${device}`],
    );
    const text = [
      `- Written by: \`npm run bench:gpu -- ${process.argv.slice(2).join(" ")}\`, ${new Date().toISOString().slice(0, 10)}`,
      `- Machine: ${machine()}; ${devices.join("; ")}`,
      ...(short
        ? ["- `--short`: small models and few rows, which try the script; the rates say nothing of a GPU."]
        : []),
      ...sections,
    ].join("\n");
    console.log(text);
    if (values.write) {
      const [before, rest] = (await readFile(page, "utf8")).split(begin);
      await writeFile(page, `${before}${begin}\n\n${text}\n\n${end}${rest.split(end)[1]}`);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

await main();
