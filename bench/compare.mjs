// npm run bench:compare -- --against FOLDER | --without PART: what a change costs or a part of the program earns. Runs
// two builds in turns over the bench's tables, and prints the medians of their CPU and wall times.
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
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
const usage = `Usage: node bench/compare.mjs (--against FOLDER | --without PART) [options]

  --against FOLDER  another checkout of the project that is built
  --without PART    this build without one of ${Object.keys(parts).join(", ")}
  --only JOB        of bench/jobs, any number of times (default linear, mlp, mixed, strings, embeddings, mlp-small)
  --runs N          in turns (default 10), after one to warm up
`;
const { values: options } = parseArgs({
  options: {
    against: { type: "string" },
    without: { type: "string" },
    only: { type: "string", multiple: true, default: ["linear", "mlp", "mixed", "strings", "embeddings", "mlp-small"] },
    runs: { type: "string", default: "10" },
    help: { type: "boolean", default: false },
  },
});
if (options.help || (options.against === undefined) === (options.without === undefined)) {
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

function commandOf(folder, job) {
  const [spec, ...params] = job === "mlp-small" ? ["mlp", "--param", "table=mlp-small"] : [job];
  const path = join(project, "bench/jobs", `${spec}.yaml`);
  return [process.execPath, join(folder, "bin/infer-batch.js"), "run", path, ...params, "--quiet"];
}

const other = options.against ?? buildWithout(options.without);
const otherName = options.against === undefined ? `without ${options.without}` : options.against;
await prepareData(new Set(options.only.map((job) => (job === "mlp-small" ? "mlp" : job))));
const rows = [];
for (const job of options.only) {
  const taken = { [project]: [], [other]: [] };
  for (let round = 0; round <= Number(options.runs); round += 1) {
    // Each build is the first one in every other round.
    for (const folder of round % 2 === 0 ? [project, other] : [other, project]) {
      rmSync(outFolder, { recursive: true, force: true });
      const one = await measure(commandOf(folder, job));
      if (round > 0) {
        taken[folder].push(one);
      }
    }
  }
  const medianOf = (folder, key) => median(taken[folder].map((one) => one[key]));
  const row = { job };
  for (const [key, name] of [
    ["cpuSeconds", "CPU"],
    ["seconds", "wall"],
  ]) {
    const [here, there] = [medianOf(project, key), medianOf(other, key)];
    row[`${name} here, s`] = here.toFixed(2);
    row[`${name} other, s`] = there.toFixed(2);
    row[`${name} other/here`] = (there / here).toFixed(3);
  }
  rows.push(row);
  console.error(Object.values(row).join("  "));
}
rmSync(outFolder, { recursive: true, force: true });
console.log(`here: ${project}; other: ${otherName}; medians of ${options.runs} in turns; ${machine()}`);
console.table(rows);
