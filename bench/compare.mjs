// npm run bench:compare -- [--against FOLDER | --without PART] [--checks | --challenger]: what a change costs or a part of
// the program earns. Runs two builds in turns over the bench's tables, and prints the medians of their CPU and wall times.
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { globSync } from "tinyglobby";
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
  features: {
    file: "dist/flow/features.js",
    pattern: /if \(checks === null\)/,
    instead: "if (true)",
  },
  lists: {
    file: "dist/formats/parquet/footer.js",
    pattern: /const isList =/,
    instead: "const isList = false &&",
  },
  "row-counts": {
    file: "dist/run/planning.js",
    pattern: /if \(checks === null/,
    instead: "if (true",
  },
  texts: {
    file: "dist/models/places/model-file.js",
    pattern: /findTextTensors\(bytes, proto\)/,
    instead: "{ inputs: [], outputs: [] }",
  },
  wasm: {
    file: "dist/columns/loops/vectors.js",
    pattern: /opened \?\?= \{ vectors: open\(\) \}/,
    instead: "opened ??= { vectors: undefined }",
  },
};
const usage = `Usage: node bench/compare.mjs [--against FOLDER | --without PART] [--checks | --challenger] [options]

  --against FOLDER  another checkout of the project that is built
  --without PART    this build without one of ${Object.keys(parts).join(", ")}
  --checks          with \`checks: {}\` in the spec: both builds, or this one with and without
  --challenger      with the model of the job as its challenger, too: both builds, or this one with and without
  --where SQL       with this \`input.where\` in the spec of both
  --carry N         the output of both has the first N features, too; for linear and mlp, whose model has 32
  --nights N        each run has N published runs of earlier dates, over the same table (default 0)
  --only JOB        of bench/jobs, any number of times (default linear, mlp, mixed, strings, embeddings, mlp-small)
  --runs N          in turns (default 10), after one to warm up
`;
const { values: options } = parseArgs({
  options: {
    against: { type: "string" },
    without: { type: "string" },
    checks: { type: "boolean", default: false },
    challenger: { type: "boolean", default: false },
    where: { type: "string" },
    carry: { type: "string" },
    nights: { type: "string", default: "0" },
    only: { type: "string", multiple: true, default: ["linear", "mlp", "mixed", "strings", "embeddings", "mlp-small"] },
    runs: { type: "string", default: "10" },
    help: { type: "boolean", default: false },
  },
});
const builds = [options.against, options.without].filter((one) => one !== undefined).length;
const added = ["checks", "challenger"].filter((key) => options[key]);
if (options.help || builds + added.length === 0 || builds > 1 || added.length > 1) {
  console.log(usage);
  process.exit(options.help ? 0 : 64);
}

const nights = Number(options.nights);

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

/**
 * The spec of a job with one more key, in a file beside it: paths in a spec are relative to it. With `--nights`, each date
 * has a folder of its own.
 */
function specWith(path, { side, more }) {
  const copy = path.replace(/\.yaml$/, `-${side}-${process.pid}.yaml`);
  process.on("exit", () => rmSync(copy, { force: true }));
  const spec = parse(readFileSync(path, "utf8"));
  const { parquet } = spec.output;
  const features = Array.from({ length: 32 }, (_, index) => `f${index}`);
  const output = {
    ...spec.output,
    columns: [...spec.output.columns, ...features.slice(0, Number(options.carry ?? 0))],
  };
  // A column that the output carries is a feature only if the spec says so.
  const model = options.carry === undefined ? spec.model : { ...spec.model, inputs: { input: features } };
  const dated = {
    params: { ...spec.params, ds: "${today}" },
    output: { ...output, parquet: { ...parquet, path: `${parquet.path}-${side}/dt=\${ds}` } },
  };
  const keyed = more === undefined ? {} : { [more]: keys[more](spec) };
  const input = options.where === undefined ? spec.input : { ...spec.input, where: options.where };
  writeFileSync(copy, JSON.stringify({ ...spec, input, model, output, ...(nights === 0 ? {} : dated), ...keyed }));
  return copy;
}

/** What each key is set to, from the job's spec. */
const keys = {
  checks: () => ({}),
  challenger: ({ model: { path, outputs, inputs } }) => ({ path, outputs, inputs }),
};

/** The two that are compared: a build, and the key that is added to the spec. */
const [addedKey] = added;
const withKey = addedKey === undefined ? "" : ` with ${addedKey}`;
const here = { side: "here", name: `${project}${withKey}`, folder: project, key: addedKey };
const other =
  builds === 0
    ? { side: "other", name: `without ${addedKey}`, folder: project }
    : options.against === undefined
      ? {
          side: "other",
          name: `without ${options.without}${withKey}`,
          folder: buildWithout(options.without),
          key: addedKey,
        }
      : { side: "other", name: `${options.against}${withKey}`, folder: options.against, key: addedKey };

/** Returns what runs a job; with `--nights`, for the n-th of its dates. */
function commandOf({ side, folder, key: more }, job) {
  const [name, ...params] = job === "mlp-small" ? ["mlp", "--param", "table=mlp-small"] : [job];
  const path = join(project, "bench/jobs", `${name}.yaml`);
  const isAsItIs = more === undefined && nights === 0 && (options.where ?? options.carry) === undefined;
  const spec = isAsItIs ? path : specWith(path, { side, more });
  const command = [process.execPath, join(folder, "bin/infer-batch.js"), "run", spec, ...params, "--quiet"];
  return (night) => (nights === 0 ? command : [...command, "--param", `ds=${dateOf(night)}`]);
}

/** The date of the n-th night; one that is measured comes after all others. */
function dateOf(night) {
  return new Date(Date.UTC(2026, 0, 1 + night)).toISOString().slice(0, 10);
}

/** Removes the output of the last run, and leaves that of earlier nights. */
function removeOutput() {
  const old =
    nights === 0 ? [outFolder] : globSync(join(outFolder, "*", "*", `dt=${dateOf(nights)}`), { onlyDirectories: true });
  for (const path of old) {
    rmSync(path, { recursive: true, force: true });
  }
}

await prepareData(new Set(options.only.map((job) => (job === "mlp-small" ? "mlp" : job))));
const rows = [];
for (const job of options.only) {
  const taken = new Map([here, other].map((one) => [one, []]));
  const commands = new Map([here, other].map((one) => [one, commandOf(one, job)]));
  rmSync(outFolder, { recursive: true, force: true });
  for (let night = 0; night < nights; night += 1) {
    for (const commandFor of commands.values()) {
      await measure(commandFor(night));
    }
  }
  for (let round = 0; round <= Number(options.runs); round += 1) {
    // Each is the first one in every other round.
    for (const which of round % 2 === 0 ? [here, other] : [other, here]) {
      removeOutput();
      const one = await measure(commands.get(which)(nights));
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
