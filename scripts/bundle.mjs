// Makes dist/bundle/ of dist/: the program and its JavaScript packages in a few files. Loading 700 module files was
// a third of the time of a small job (docs/decisions/startup.md). The native packages stay what npm installed. The files are
// CommonJS, loaded by src/start: Node 20 has no way to cache what V8 compiles from an ES module.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";
import { globSync } from "tinyglobby";

const project = fileURLToPath(new URL("..", import.meta.url));
const target = join(project, "dist/bundle");
const { dependencies, peerDependencies } = JSON.parse(readFileSync(join(project, "package.json"), "utf8"));
/** Clients of Postgres and Redis would take these if a user had installed them. */
const absent = ["pg-native", "@node-rs/xxhash", "@opentelemetry/api"];

const workers = globSync("dist/**/*-worker.js", { cwd: project, ignore: "dist/bundle/**" });
const entries = ["dist/cli/main.js", ...workers].map((file) => [basename(file, ".js"), join(project, file)]);
const loader = "load.js";
const entryFiles = new Set(entries.map(([, file]) => file));

/**
 * Modules that are loaded together become one file: finding, opening and compiling a file takes a third of a millisecond
 * in each thread. Each named group has the modules that are loaded with all of some modules, and are in no earlier group.
 */
const main = "dist/cli/main.js";
const scoring = "dist/job/threads/scoring-worker.js";
/** What `run` needs until it knows that there is something to do. */
const deciding = ["dist/cli/program.js", "dist/cli/commands/run.js"];
/** What the thread needs that reads from a store. */
const reading = ["dist/sources/reader-worker.js", "dist/stores/objects/s3.js"];
const together = {
  common: [[main], [scoring]],
  start: [[main]],
  shared: [deciding, [scoring]],
  reading: [deciding, reading],
  deciding: [deciding],
  scoring: [[scoring]],
  running: [["dist/run/score-run.js", "dist/job/open-engine.js", "dist/formats/parquet/decoder.js"]],
  writing: [["dist/targets/parquet/part-file.js"]],
};
const groups = Object.entries(together).map(([name, parties], index, all) => {
  const paths = parties.map((roots) => roots.map((root) => join(project, root)));
  let loaded;
  return {
    debugName: name,
    name(id, graph) {
      loaded ??= paths.map((roots) => importsOf(roots, graph));
      return !entryFiles.has(id) && loaded.every((modules) => modules.has(id)) ? name : null;
    },
    priority: all.length - index,
  };
});

/** Modules that are loaded with some others, those among them. */
function importsOf(roots, graph) {
  const reached = new Set(roots);
  for (const id of reached) {
    const found = graph.getModuleInfo(id);
    if (found === null) {
      throw new Error(`${id} is in no bundle`);
    }
    for (const imported of found.importedIds) {
      if (graph.getModuleInfo(imported) !== null) {
        reached.add(imported);
      }
    }
  }
  return reached;
}

/** Code of packages that looks for files at run time, which a bundle has elsewhere or not at all. */
const lookups = [
  // Its JavaScript is 25 small files, of which each thread loads its own; its library stays where it is.
  {
    of: /onnxruntime-node[\\/]dist[\\/]binding\.js$/,
    old: "require(`../bin/",
    now: `require(\`\${require(${JSON.stringify(join(project, "dist/models/runtime-folder.js"))}).runtimeFolder()}/bin/`,
  },
];
const replaceLookups = lookups.map(({ of, old, now }) => ({
  name: now,
  transform: {
    filter: { id: of },
    handler(code, id) {
      if (!code.includes(old)) {
        throw new Error(`${id} no longer has ${old}: look whether the bundle still finds what it needs`);
      }
      return code.replace(old, now);
    },
  },
}));
const installed = { ...dependencies, ...peerDependencies };
const native = Object.keys(installed).filter((name) => name !== "onnxruntime-node");

const bundle = await rolldown({
  input: Object.fromEntries(entries),
  platform: "node",
  // ES modules where a package has both: of AWS's SDK, what nobody uses is left out (docs/decisions/startup.md).
  resolve: { mainFields: ["module", "main"], conditionNames: ["module", "node"] },
  external: [...native, ...absent],
  plugins: replaceLookups,
});
const written = {
  dir: target,
  format: "cjs",
  strict: true, // as in the modules that the bundle is made of
  // Names stay, for the stack traces of bugs; comments and blanks are removed, since reading them takes time.
  minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
};
const { output } = await bundle.write({
  ...written,
  entryFileNames: "entry-[name].js",
  chunkFileNames: "chunk-[name].js",
  codeSplitting: { groups },
  dynamicImportInCjs: false, // `import` needs the origin of its module, which V8 of Node 20 loses for cached code
});
await bundle.close();

const digest = createHash("sha256");
for (const file of globSync("dist/start/*.js", { cwd: project }).toSorted()) {
  digest.update(readFileSync(join(project, file))); // these files decide how the others are wrapped, and what is cached of them
}
for (const { fileName, code } of output) {
  // As start/load.ts runs it. Wrapped when it is loaded, its text would be in memory twice.
  const ascii = `(function(exports,require,module,__filename,__dirname){${asciiOf(code)}\n})`;
  digest.update(`${fileName} ${ascii.length}\n${ascii}`);
  writeFileSync(join(target, fileName), ascii);
}
const start = await rolldown({
  input: { [basename(loader, ".js")]: join(project, "dist/start/load.js") },
  platform: "node",
  transform: { define: { bundleDigest: JSON.stringify(digest.digest("hex").slice(0, 16)) } },
});
await start.write({ ...written, entryFileNames: "[name].js" });
await start.close();
writeFileSync(join(target, "package.json"), `${JSON.stringify({ type: "commonjs" })}\n`);
for (const [name] of entries) {
  writeFileSync(join(target, `${name}.js`), `module.exports = require("./${loader}").load("entry-${name}.js");\n`);
}

/** The same program: characters beyond ASCII stand in texts and patterns only. V8 reads each of its bytes as one. */
function asciiOf(code) {
  if (/\\[^\0-\x7f]/.test(code)) {
    throw new Error("the bundle escapes a character beyond ASCII");
  }
  return code.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const ours = new Set(output.map((chunk) => chunk.fileName));
const imported = new Set(output.flatMap((chunk) => [...(chunk.imports ?? []), ...(chunk.dynamicImports ?? [])]));
for (const name of imported) {
  if (!ours.has(name) && !isBuiltin(name) && !absent.includes(name) && !Object.hasOwn(installed, name)) {
    throw new Error(`the bundle imports ${name}, which package.json names neither as a dependency nor as a peer`);
  }
}

/** `…/node_modules/@scope/name` of a module within it. */
const packageOf = (id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0];
const modules = output.flatMap((chunk) => Object.keys(chunk.modules ?? {}));
const bundled = [...new Set(modules.map(packageOf))].filter((folder) => folder !== undefined).toSorted();
const licences = bundled.map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const texts = readdirSync(folder).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file));
  const text = texts.map((file) => readFileSync(join(folder, file), "utf8").trim()).join("\n\n");
  return `${name} ${version} (${license})\n\n${text}`.trim();
});
writeFileSync(join(target, "LICENSES.txt"), `${licences.join(`\n\n${"-".repeat(80)}\n\n`)}\n`);
