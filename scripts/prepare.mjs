// npm runs this after `npm ci`, before `npm pack`, and in a clone before `npx infer-batch`. It builds dist/, unless dist/ is
// newer than all that it is built from: a build takes a minute, and a run that loads a file meanwhile may not find it.
import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { globSync } from "tinyglobby";

const project = fileURLToPath(new URL("..", import.meta.url));
/** What a build writes last. */
const lastWritten = "dist/bundle/LICENSES.txt";
const sources = [
  "src",
  "scripts",
  "package.json",
  "package-lock.json",
  "tsconfig*.json",
  "node_modules/.package-lock.json",
];

/** Milliseconds since 1970; undefined: the file does not exist. */
function changedAt(path) {
  return statSync(join(project, path), { throwIfNoEntry: false })?.mtimeMs;
}

// A folder changes when one of its files is removed.
const paths = globSync(sources, { cwd: project, onlyFiles: false, dot: true });
const latest = Math.max(...paths.map((path) => changedAt(path) ?? 0));
if (!((changedAt(lastWritten) ?? 0) > latest)) {
  process.exitCode = spawnSync("npm", ["run", "build"], { cwd: project, stdio: "inherit" }).status ?? 1;
}
