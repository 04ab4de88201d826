import { statfsSync } from "node:fs";
import { defineConfig } from "vitest/config";

/** Tests flush files by the thousand: those lie in memory where there is enough of it, unless TMPDIR says otherwise. */
function temporaryFolder(): { TMPDIR?: string } {
  const memory = "/dev/shm";
  const roomy = 4 * 1024 ** 3;
  try {
    const { bavail, bsize } = statfsSync(memory);
    return process.env["TMPDIR"] === undefined && bavail * bsize > roomy ? { TMPDIR: memory } : {};
  } catch {
    return {}; // there is none
  }
}

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    env: temporaryFolder(),
    // Files keep to themselves; loading all modules anew for each took a tenth of the suite's time.
    isolate: false,
    // What is built is loaded as Node loads it: vite would read and rewrite each module.
    server: { deps: { external: [/\/dist\//] } },
    // Two cores: real processes are started by many of these tests.
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
