// Holds the direction of imports (.dependency-cruiser.mjs), and proves that the check works: every source file
// must have been cruised, and a canary that breaks each kind of rule must be caught.
//
// A copy of src/ is cruised: dependency-cruiser 17 parses TypeScript through swc (it cannot use TypeScript 7), and
// its walker does not know `using` declarations, which are made `const` in the copy. Canaries live there too.
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { cruise } from "dependency-cruiser";
import rules from "../.dependency-cruiser.mjs";

const canaries = {
  "src/run/plan/canary.ts": { code: 'import "node:fs";\n', rule: "pure-rooms-know-no-node" },
  "src/flow/pack/canary.ts": {
    code: 'import "../../targets/parquet/sink.js";\n',
    rule: "pure-rooms-import-pure-rooms",
  },
  "src/run/series/canary.ts": { code: 'import "../run.js";\n', rule: "pure-rooms-import-pure-rooms" },
  "src/columns/canary.ts": { code: 'import "../models/binding/contract.js";\n', rule: "columns-know-no-model" },
  "src/checks/canary.ts": { code: 'import "../run/plan/plan.js";\n', rule: "checks-know-columns-only" },
  "src/serve/canary.ts": { code: 'import "../targets/postgres/sink.js";\n', rule: "serve-knows-no-kind" },
  "src/run/canary.ts": { code: 'import "../models/onnx/engine.js";\n', rule: "run-knows-contracts-only" },
  "src/flow/workers/canary.ts": {
    code: 'import "../../formats/parquet/units.js";\n',
    rule: "flow-knows-contracts-only",
  },
  "src/flow/canary-node.ts": { code: 'import "node:worker_threads";\n', rule: "run-knows-no-library-or-node" },
  "src/run/canary-types.ts": {
    code: 'import type { RunOptions } from "../cli/main.js";\nexport type A = RunOptions;\n',
    rule: "run-does-not-know-cli",
  },
  "src/formats/arrow/canary.ts": { code: 'import "../parquet/decoder.js";\n', rule: "no-format-imports-another" },
  "src/formats/sql/canary.ts": { code: 'import "../arrow/decoder.js";\n', rule: "what-formats-share-knows-no-format" },
  "src/formats/canary.ts": { code: 'import "../targets/target.js";\n', rule: "formats-imports-its-own" },
  "src/sources/canary.ts": { code: 'import "../duckdb/instance.js";\n', rule: "sources-imports-its-own" },
  "src/models/canary.ts": { code: 'import "../formats/format.js";\n', rule: "models-imports-its-own" },
  "src/models/file/canary.ts": { code: 'import "../engine.js";\n', rule: "models-file-imports-its-own" },
  "src/models/places/canary.ts": { code: 'import "../onnx/engine.js";\n', rule: "models-places-imports-its-own" },
  "src/models/places/canary-another.ts": { code: 'import "./objects.js";\n', rule: "no-place-imports-another" },
  "src/targets/parquet/canary.ts": { code: 'import "../postgres/sink.js";\n', rule: "targets-parquet-imports-its-own" },
  "src/targets/parquet/canary-store.ts": {
    code: 'import "../../stores/objects.js";\n',
    rule: "targets-parquet-imports-its-own",
  },
  "src/targets/postgres/canary.ts": {
    code: 'import "../../duckdb/instance.js";\n',
    rule: "targets-postgres-imports-its-own",
  },
  "src/targets/after/canary.ts": { code: 'import "../parquet/sink.js";\n', rule: "targets-after-imports-its-own" },
  "src/stores/canary.ts": { code: 'import "../targets/target.js";\n', rule: "stores-imports-its-own" },
  "src/stores/canary-another.ts": { code: 'import "./disk.js";\n', rule: "no-store-imports-another" },
  "src/stores/objects/canary.ts": {
    code: 'import "../../sources/reader.js";\n',
    rule: "stores-objects-imports-its-own",
  },
  "src/duckdb/canary.ts": { code: 'import "../stores/objects/s3.js";\n', rule: "duckdb-imports-its-own" },
  "src/base/http/canary.ts": { code: 'import "../../stores/objects/s3.js";\n', rule: "base-http-imports-its-own" },
  "src/report/canary.ts": { code: 'import "../targets/target.js";\n', rule: "report-imports-its-own" },
  "src/job/canary.ts": { code: 'import "../cli/main.js";\n', rule: "job-does-not-know-cli" },
  "src/stores/objects/canary-cli.ts": { code: 'import "../../job/attempt.js";\n', rule: "only-cli-and-job-wire" },
  "src/cli/canary.ts": { code: 'import "../start/code-cache.js";\n', rule: "start-is-its-own-bundle" },
  "src/job/canary-door.ts": { code: 'import "../targets/postgres/control.js";\n', rule: "doors-of-targets-postgres" },
  "src/start/canary.ts": { code: 'import "../base/errors.js";\n', rule: "start-loads-little" },
};

function put(folder, name, text) {
  const path = join(folder, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

async function check(folder) {
  const { output } = await cruise(["src"], {
    baseDir: folder,
    ruleSet: rules,
    validate: true,
    parser: "swc",
    tsPreCompilationDeps: true,
    doNotFollow: { path: "node_modules" },
    enhancedResolveOptions: {
      extensions: [".ts", ".js", ".json"],
      exportsFields: ["exports"],
      conditionNames: ["import", "node"],
    },
  });
  return { modules: output.modules, found: output.summary.violations };
}

const copy = realpathSync(mkdtempSync(join(tmpdir(), "infer-batch-imports-")));
let failed = false;
const complain = (text) => {
  console.error(text);
  failed = true;
};
try {
  const sources = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  for (const name of sources) {
    put(
      copy,
      join("src", name),
      readFileSync(join("src", name), "utf8").replaceAll(/^(\s*)(await )?using /gm, "$1const "),
    );
  }
  put(copy, "package.json", readFileSync("package.json", "utf8"));
  symlinkSync(resolve("node_modules"), join(copy, "node_modules"));
  const { modules, found } = await check(copy);
  for (const { from, to, rule } of found) {
    complain(`${rule.name}: ${from} -> ${to}`);
  }
  const cruised = new Map(modules.map(({ source, dependencies }) => [source, dependencies.length]));
  for (const name of sources) {
    const imports = /^(import|export) .* from "/m.test(readFileSync(join("src", name), "utf8"));
    if (!cruised.has(`src/${name}`) || (imports && cruised.get(`src/${name}`) === 0)) {
      complain(`src/${name} was not looked at`);
    }
  }
  for (const [name, { code }] of Object.entries(canaries)) {
    put(copy, name, code);
  }
  const caught = (await check(copy)).found;
  for (const [name, { rule }] of Object.entries(canaries)) {
    if (!caught.some((violation) => violation.from === name && violation.rule.name === rule)) {
      complain(`the canary ${name} was not caught by ${rule}: the check does not work`);
    }
  }
  console.log(
    `${sources.length} source files, ${found.length} imports against the rules, ${Object.keys(canaries).length} canaries`,
  );
} finally {
  rmSync(copy, { recursive: true, force: true });
}
process.exitCode = failed ? 1 : 0;
