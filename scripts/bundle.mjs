// Makes dist/bundle/ of dist/: the program and its JavaScript packages in a few files. Loading 700 module files was
// a third of the time of a small job (docs/decisions.md). The native packages stay what npm installed.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";
import { globSync } from "tinyglobby";

const project = fileURLToPath(new URL("..", import.meta.url));
const target = join(project, "dist/bundle");
const { dependencies } = JSON.parse(readFileSync(join(project, "package.json"), "utf8"));
/** node-postgres would take this one if a user had installed it. */
const absent = ["pg-native"];

const workers = globSync("dist/**/*-{worker,guest}.js", { cwd: project, ignore: "dist/bundle/**" });
const entries = ["dist/cli/main.js", ...workers].map((file) => [basename(file, ".js"), join(project, file)]);
const entryFiles = new Set(entries.map(([, file]) => file));

/**
 * What is loaded together is one file: to find, open and compile one takes a third of a millisecond, in each thread.
 * By name, what is loaded with all of some modules, and with no group before it.
 */
const together = {
  common: [["dist/cli/main.js"], ["dist/engine/onnx-worker.js"]],
  start: [["dist/cli/main.js", "dist/cli/early.js"]],
  scoring: [["dist/engine/onnx-worker.js", "dist/decode/unit-guest.js"]],
  running: [["dist/cli/commands/run.js", "dist/decode/parquet.js"]],
  writing: [["dist/sink/part-file.js"]],
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

const bundle = await rolldown({
  input: Object.fromEntries(entries),
  platform: "node",
  external: [...Object.keys(dependencies), ...absent],
});
const { output } = await bundle.write({
  dir: target,
  format: "esm",
  entryFileNames: "[name].js",
  chunkFileNames: "chunk-[name].js",
  codeSplitting: { groups },
  // Names stay, for traces of what should not happen; comments and blanks cost time to read.
  minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
});
await bundle.close();

const ours = new Set(output.map((chunk) => chunk.fileName));
const imported = new Set(output.flatMap((chunk) => [...(chunk.imports ?? []), ...(chunk.dynamicImports ?? [])]));
for (const name of imported) {
  if (!ours.has(name) && !isBuiltin(name) && !absent.includes(name) && !Object.hasOwn(dependencies, name)) {
    throw new Error(`the bundle imports ${name}, which package.json does not give to users as a dependency`);
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
