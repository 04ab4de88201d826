// Has worker threads that tests start in their own process run the bundle, as those of the command do: a thread that
// loads the modules one by one takes three times the CPU time to start. Where a module is newer than the bundle, as
// under `tsc --watch`, threads load the modules. Plain JavaScript: processes that tests start import it, too.
import { readdirSync, statSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import workerThreads from "node:worker_threads";
import { lendWorker } from "./lent-workers.mjs";

const dist = fileURLToPath(new URL("../../dist", import.meta.url));
const bundle = join(dist, "bundle");
const { Worker } = workerThreads;

/** Whether no module is newer than the bundle. */
export function isBundleNewest() {
  const bundledMs = statSync(join(bundle, "load.js")).mtimeMs;
  return readdirSync(dist, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".js") && !name.startsWith("bundle"))
    .every((name) => statSync(join(dist, name)).mtimeMs <= bundledMs);
}

const bundledWorker = new Proxy(Worker, {
  construct(_, [file, options]) {
    const path = file instanceof URL ? fileURLToPath(file) : file;
    if (!path.startsWith(`${dist}/`) || !path.endsWith("-worker.js")) {
      return new Worker(file, options);
    }
    const bundled = join(bundle, basename(path));
    const start = () => new Worker(bundled, options);
    return basename(path) === "scoring-worker.js" ? lendWorker(bundled, start) : start();
  },
});

const done = Symbol.for("infer-batch: bundled workers");

// Set up anew for each test file, in one process for many of them.
if (Worker[done] === undefined && isBundleNewest()) {
  Worker[done] = true;
  workerThreads.Worker = bundledWorker;
  syncBuiltinESMExports();
}
