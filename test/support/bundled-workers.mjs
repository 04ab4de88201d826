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

function isBundleNewest() {
  const bundledMs = statSync(join(bundle, "load.js")).mtimeMs;
  return readdirSync(dist, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".js") && !name.startsWith("bundle"))
    .every((name) => statSync(join(dist, name)).mtimeMs <= bundledMs);
}

class BundledWorker extends Worker {
  constructor(file, options) {
    const path = file instanceof URL ? fileURLToPath(file) : file;
    const isOurs = path.startsWith(`${dist}/`) && path.endsWith("-worker.js");
    const bundled = join(bundle, basename(path));
    if (isOurs && basename(path) === "scoring-worker.js") {
      // oxlint-disable-next-line no-constructor-return -- stands in for one
      return lendWorker(bundled, () => new Worker(bundled, options));
    }
    super(isOurs ? bundled : file, options);
  }
}

// Set up anew for each test file, in one process for many of them.
if (Worker.name !== BundledWorker.name && isBundleNewest()) {
  workerThreads.Worker = BundledWorker;
  syncBuiltinESMExports();
}
