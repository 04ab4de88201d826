// npm run bench:compare -- --against FOLDER | --without PART | --checks | --challenger: what a change costs or a part of
// the program earns. Runs two builds in turns over the bench's tables, and prints the medians of their CPU and wall times.
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { parse } from "yaml";
import { outFolder } from "./contenders.mjs";
import { prepareData } from "./data.mjs";
import { measure, median } from "./measure.mjs";
import { machine } from "./report.mjs";

const project = fileURLToPath(new URL("..", import.meta.url));

/** How each part is left out of a build: what of which file is replaced. */
const parts = {
  "code-cache": {
    file: "dist/start/code-cache.js",
    pattern: /const cached = file === undefined \?/,
    instead: "file = undefined; const cached = file === undefined ?",
  },
  texts: {
    file: "dist/models/model-file.js",
    pattern: /findTextTensors\(bytes, proto\)/,
    instead: "{ inputs: [], outputs: [] }",
  },
  wasm: {
    file: "dist/columnar/memory/vectors.js",
    pattern: /opened \?\?= \{ vectors: open\(\) \}/,
    instead: "opened ??= { vectors: undefined }",
  },
};
const usage = `Usage: node bench/compare.mjs (--against FOLDER | --without PART | --checks | --challenger) [options]

  --against FOLDER  another checkout of the project that is built
  --without PART    this build without one of ${Object.keys(parts).join(", ")}
  --checks          this build with \`checks: {}\` in the spec, and without
  --challenger      this build with the model of the job as its challenger, too, and without
  --only JOB        of bench/jobs, any number of times (default linear, mlp, mixed, strings, embeddings, mlp-small)
  --runs N          in turns (default 10), after one to warm up
`;
const { values: options } = parseArgs({
  options: {
    against: { type: "string" },
    without: { type: "string" },
    checks: { type: "boolean", default: false },
    challenger: { type: "boolean", default: false },
    only: { type: "string", multiple: true, default: ["linear", "mlp", "mixed", "strings", "embeddings", "mlp-small"] },
    runs: { type: "string", default: "10" },
    help: { type: "boolean", default: false },
  },
});
const ways = [options.against !== undefined, options.without !== undefined, options.checks, options.challenger];
if (options.help || ways.filter(Boolean).length !== 1) {
  console.log(usage);
  process.exit(options.help ? 0 : 64);
}

/** A copy of this build without one of its parts. */
function buildWithout(name) {
  const part = parts[name];
  if (part === undefined) {
    throw new Error(`reading --without: ${name} is not one of ${Object.keys(parts).join(", ")}`);
  }
  const copy = mkdtempSync(join(tmpdir(), "infer-batch-without-"));
  process.on("exit", () => rmSync(copy, { recursive: true, force: true }));
  for (const entry of ["bin", "dist", "scripts", "package.json"]) {
    cpSync(join(project, entry), join(copy, entry), { recursive: true });
  }
  symlinkSync(join(project, "node_modules"), join(copy, "node_modules"));
  const file = join(copy, part.file);
  const text = readFileSync(file, "utf8");
  if (!part.pattern.test(text)) {
    throw new Error(`leaving out ${name}: ${part.file} has no ${part.pattern} any more`);
  }
  writeFileSync(file, text.replace(part.pattern, part.instead));
  execFileSync(process.execPath, [join(copy, "scripts/bundle.mjs")], { stdio: "inherit" });
  return copy;
}

/** The spec of a job with one more key, in a file beside it: paths in a spec are relative to it. */
function specWith(path, key, keyOf) {
  const copy = path.replace(/\.yaml$/, `-${key}-${process.pid}.yaml`);
  process.on("exit", () => rmSync(copy, { force: true }));
  const text = readFileSync(path, "utf8");
  writeFileSync(copy, `${text.trimEnd()}\n${key}: ${JSON.stringify(keyOf(parse(text)))}\n`);
  return copy;
}

/** What each key is set to, from the job's spec. */
const keys = {
  checks: () => ({}),
  challenger: ({ model: { path, outputs, inputs } }) => ({ path, outputs, inputs }),
};

/** The two that are compared: a build, and the key that is added to the spec. */
const added = Object.keys(keys).find((key) => options[key]);
const here = { name: added === undefined ? project : `with ${added}`, folder: project, added };
const other =
  added !== undefined
    ? { name: `without ${added}`, folder: project }
    : options.against === undefined
      ? { name: `without ${options.without}`, folder: buildWithout(options.without) }
      : { name: options.against, folder: options.against };

function commandOf({ folder, added: key }, job) {
  const [name, ...params] = job === "mlp-small" ? ["mlp", "--param", "table=mlp-small"] : [job];
  const path = join(project, "bench/jobs", `${name}.yaml`);
  const spec = key === undefined ? path : specWith(path, key, keys[key]);
  return [process.execPath, join(folder, "bin/infer-batch.js"), "run", spec, ...params, "--quiet"];
}

await prepareData(new Set(options.only.map((job) => (job === "mlp-small" ? "mlp" : job))));
const rows = [];
for (const job of options.only) {
  const taken = new Map([here, other].map((one) => [one, []]));
  const commands = new Map([here, other].map((one) => [one, commandOf(one, job)]));
  for (let round = 0; round <= Number(options.runs); round += 1) {
    // Each is the first one in every other round.
    for (const which of round % 2 === 0 ? [here, other] : [other, here]) {
      rmSync(outFolder, { recursive: true, force: true });
      const one = await measure(commands.get(which));
      if (round > 0) {
        taken.get(which).push(one);
      }
    }
  }
  const medianOf = (which, key) => median(taken.get(which).map((one) => one[key]));
  const row = { job };
  for (const [key, name] of [
    ["cpuSeconds", "CPU"],
    ["seconds", "wall"],
  ]) {
    const [seconds, there] = [medianOf(here, key), medianOf(other, key)];
    row[`${name} here, s`] = seconds.toFixed(2);
    row[`${name} other, s`] = there.toFixed(2);
    row[`${name} other/here`] = (there / seconds).toFixed(3);
  }
  rows.push(row);
  console.error(Object.values(row).join("  "));
}
rmSync(outFolder, { recursive: true, force: true });
console.log(`here: ${here.name}; other: ${other.name}; medians of ${options.runs} in turns; ${machine()}`);
console.table(rows);
