/*
 * Takes one flush or one check out of the built sink at a time and runs the tests that should notice:
 *
 *   node scripts/mutate-sink.mjs [--only <text>]     after npm run build; prints a line for each
 *
 * Ends with 1 when something can be removed and nothing turns red. Works on a copy; nothing here is changed.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const project = fileURLToPath(new URL("..", import.meta.url));

const publishing = ["test/targets/parquet/local/publishing.test.ts", "test/targets/parquet/local/verdicts.test.ts"];
const checks = [
  "test/targets/parquet/local/checks.test.ts",
  "test/targets/parquet/local/publishing.test.ts",
  "test/targets/parquet/local/verdicts.test.ts",
];
const fence = [
  "test/targets/parquet/local/past-runs.test.ts",
  "test/targets/parquet/local/superseded-runs.test.ts",
  "test/targets/parquet/local/status-during-run.test.ts",
];
const power = [
  "test/stores/disk.test.ts",
  "test/targets/parquet/local/lost-unsynced.test.ts",
  "test/targets/parquet/local/no-hard-links.test.ts",
];
const swaps = ["test/targets/parquet/local/new-run-power.test.ts"];
const disk = [
  "test/targets/parquet/local/failing-disk.test.ts",
  "test/targets/parquet/local/real-disk.test.ts",
  "test/targets/parquet/local/bit-flips.test.ts",
];
const damage = ["test/run/damaged-output.test.ts", "test/run/trust.test.ts", "test/run/bad-moment.test.ts"];
const rest = ["test/run/rejects.test.ts", "test/cli/rejects.test.ts", "test/run/resume.test.ts"];
const pipe = ["test/targets/arrow/stream.test.ts", "test/run/pipe.test.ts"];

const lakes = ["test/targets/delta", "test/targets/iceberg", "test/contract/sink.test.ts"];

/** What tests the targets of lake tables alone, tried first there. */
const lakeFiles = /^targets\/(?:lake|delta|iceberg)/;

/** Where something taken out of a file of dist/targets/postgres is likely to be noticed: tried first, to save time. */
const likely = {
  answers: ["answers"],
  "by-span": ["locks", "changed-table", "upsert", "emptied", "staged"],
  connect: ["connect"],
  control: ["locks", "new-runs", "refusals"],
  "copied-tables": ["changed-table"],
  "new-run": ["locks", "new-runs"],
  "past-runs": ["pruning", "published-runs"],
  replace: ["locks", "replace", "changed-table", "rollback"],
  run: ["locks", "new-runs", "changed-table", "staged"],
  sink: ["locks", "new-runs"],
  spans: ["emptied"],
  swaps: ["swapped-out"],
  table: ["locks", "changed-table"],
};
const postgres = ["test/contract/sink.test.ts", "test/targets/postgres"];
const postgresRuns = [
  "test/run/postgres-edges.test.ts",
  "test/run/postgres-new-run.test.ts",
  "test/crash/postgres-transient-errors.test.ts",
  "test/crash/postgres-workers.test.ts",
  "test/crash/postgres-new-run.test.ts",
  "test/cli/nameless-user.test.ts",
];

const s3 = ["test/contract/store.test.ts", "test/contract/sink.test.ts", "test/targets/parquet/s3"];
const s3Runs = ["test/run/s3-output.test.ts", "test/crash/s3-output.test.ts"];

const folderNames = ["targets/parquet", "targets", "stores"];

/**
 * What may be removed: a pattern in the files of some folders of dist, what takes its place, and the tests in
 * the order in which they are tried until one is red.
 */
const removals = [
  {
    what: "flush",
    pattern: /await (?:fs\.sync|flushFolder|flush|store\.flush)\(/g,
    instead: "await (async () => {})(",
    suites: [publishing, swaps, power, disk, damage, rest],
  },
  {
    what: "check",
    // Errors for what cannot happen are not removed, except the one for a wrong number of rows in a span.
    pattern: /throw (?=new JobError|new Error\(`\$\{written|new Committed|damaged|superseded)/g,
    instead: "void ",
    suites: [checks, damage, disk, rest, power, pipe],
  },
  {
    isMeant: (file) => file !== "stores/objects.js", // below: these tests open a disk
    what: "look",
    pattern: /await (?=(?:fence\.)?check\(\)|refuse\w+\(|require\w+\(|withdraw\(|clear\w*\(|store\.remove\()/g,
    instead: "0 && ",
    suites: [checks, fence, damage, disk, rest, power],
  },
  {
    folders: ["targets/postgres", "targets/postgres/modes"],
    what: "check",
    pattern:
      /throw (?=new JobError|new KeyTakenConcurrently|new NotCommitted|duplicate|damaged|stagingGone|noSuchTable)/g,
    instead: "void ",
    suites: [postgres, postgresRuns],
  },
  {
    folders: ["targets/postgres", "targets/postgres/modes"],
    what: "look",
    pattern: /await (?=lock\(|lockRuns?\(|refuse\w+\(|check\w+\(|require\w+\()/g,
    instead: "0 && ",
    suites: [postgres, postgresRuns],
  },
  {
    folders: ["stores", "stores/objects"],
    isMeant: (file) => !file.startsWith("stores/disk"), // which no test of S3 opens
    what: "look of S3",
    pattern: /await (?=(?:fence\.)?check\(\)|takeBackIfLate\(|takeBack\(\))/g,
    instead: "0 && ",
    suites: [s3, s3Runs],
  },
];

function findMutants() {
  return removals.flatMap(({ folders = folderNames, isMeant = () => true, what, pattern, instead, suites }) => {
    const scripts = folders
      .flatMap((folder) => readdirSync(join(project, "dist", folder)).map((name) => join(folder, name)))
      .filter((file) => file.endsWith(".js") && isMeant(file));
    const found = scripts.flatMap((file) => {
      const text = readFileSync(join(project, "dist", file), "utf8");
      return [...text.matchAll(pattern)].map(({ index, 0: part }) => ({
        file,
        what,
        suites: [...likelySuites(file), ...suites],
        line: describe(text, index),
        text: text.slice(0, index) + instead + text.slice(index + part.length),
      }));
    });
    if (found.length === 0) {
      throw new Error(`no ${what} to take out of ${folders.join(", ")}: were files moved?`);
    }
    return found;
  });
}

function likelySuites(file) {
  if (lakeFiles.test(file)) {
    return lakes.map((suite) => [suite]);
  }
  const names = file.startsWith("targets/postgres/") ? [...(likely[basename(file, ".js")] ?? []), "refusals"] : [];
  return names.map((name) => [`test/targets/postgres/${name}.test.ts`]);
}

/** "publish: await fs.sync(temporary);" */
function describe(text, index) {
  const name = [...text.slice(0, index).matchAll(/^(?:export )?(?:async )?function\*? (\w+)/gm)].at(-1)?.[1] ?? "";
  const start = text.lastIndexOf("\n", index) + 1;
  const line = text.slice(start, text.indexOf("\n", index)).trim();
  return `${name}: ${line.length > 90 ? `${line.slice(0, 90)}…` : line}`;
}

function copyOfProject() {
  const copy = mkdtempSync(join(tmpdir(), "infer-batch-mutant-"));
  chmodSync(copy, 0o755); // some tests run the program as another user
  for (const name of [
    "dist",
    "test",
    "bin",
    "scripts",
    "package.json",
    "vitest.config.ts",
    "tsconfig.json",
    "jobs",
    "docs",
  ]) {
    cpSync(join(project, name), join(copy, name), { recursive: true });
  }
  for (const name of ["node_modules", "fixtures"]) {
    symlinkSync(join(project, name), join(copy, name));
  }
  return copy;
}

/** The first test that fails with the mutant in place, or undefined. */
function redTest(copy, suites) {
  spawnSync(process.execPath, [join(copy, "scripts/bundle.mjs")], { stdio: "inherit" });
  for (const files of suites) {
    const { status, stdout } = spawnSync(
      process.execPath,
      [join(copy, "node_modules/vitest/vitest.mjs"), "run", "--bail", "1", "--reporter", "json", ...files],
      { cwd: copy, encoding: "utf8", maxBuffer: 1 << 28 },
    );
    if (status !== 0) {
      const report = JSON.parse(stdout.slice(stdout.indexOf("{")));
      const failed = report.testResults
        .flatMap(({ name, assertionResults }) => assertionResults.map((result) => ({ name, ...result })))
        .find((result) => result.status === "failed");
      return failed === undefined
        ? "a suite that does not load"
        : `${failed.name.slice(copy.length + 1)} › ${failed.fullName}`;
    }
  }
  return undefined;
}

const only = process.argv[process.argv.indexOf("--only") + 1] ?? "";
const mutants = findMutants().filter(
  ({ file, line, what }) => !process.argv.includes("--only") || `${what} ${file} ${line}`.includes(only),
);
const copy = copyOfProject();
let survivors = 0;
try {
  // A test that is red anyway would notice everything.
  const redAnyway = redTest(copy, [[...new Set(mutants.flatMap(({ suites }) => suites).flat())]]);
  if (redAnyway !== undefined) {
    throw new Error(`with nothing removed, a test is red: ${redAnyway}`);
  }
  for (const { file, what, line, text, suites } of mutants) {
    const path = join(copy, "dist", file);
    const original = readFileSync(path, "utf8");
    writeFileSync(path, text);
    const red = redTest(copy, suites);
    writeFileSync(path, original);
    survivors += red === undefined ? 1 : 0;
    console.log(`${red === undefined ? "NOTICED BY NOTHING" : "noticed"}  ${what}  ${file}  ${line}\n    ${red ?? ""}`);
  }
} finally {
  rmSync(copy, { recursive: true, force: true });
}
console.log(`${mutants.length} removed, ${survivors} noticed by nothing`);
process.exitCode = survivors === 0 ? 0 : 1;
