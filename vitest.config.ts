import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { v8Flags } from "#src/start/v8-flags.js";
import { LongestFirst } from "./test/support/longest-first.js";

/** Tests flush files by the thousand: those lie in memory where there is enough of it, unless TMPDIR says otherwise. */
function temporaryFolder(): string {
  const memory = "/dev/shm";
  const roomy = 4 * 1024 ** 3;
  try {
    const { bavail, bsize } = statfsSync(memory);
    return process.env["TMPDIR"] === undefined && bavail * bsize > roomy ? memory : tmpdir();
  } catch {
    return tmpdir(); // there is none
  }
}

/** One for all that tests make: vitest ends its workers by SIGTERM, and what they leave goes with it. */
const scratch = mkdtempSync(join(temporaryFolder(), "infer-batch-tests-"));
chmodSync(scratch, 0o755); // servers run as other users
/** Ends the Postgres servers that workers left: see test/support/postgres.ts. */
function endServers(): void {
  for (const name of readdirSync(scratch)) {
    try {
      process.kill(Number.parseInt(readFileSync(join(scratch, name, "data/postmaster.pid"), "utf8"), 10), "SIGQUIT");
    } catch {
      // there is none, or it has ended
    }
  }
}

process.on("exit", () => {
  try {
    endServers();
    rmSync(scratch, { recursive: true, force: true, maxRetries: 5 }); // a server may be ending
  } catch {
    // something is mounted there by a test that was killed
  }
});

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    setupFiles: [
      "test/support/bundled-workers.mjs",
      "test/support/report-stuck-commands.ts",
      "test/support/match-patterns.ts",
    ],
    // What is run in this process finds the flags and the cached code that the command has.
    execArgv: [...v8Flags],
    // Certificates that a machine has for its own reasons would be loaded by each process that a test starts: 50 ms.
    env: { TMPDIR: scratch, NODE_EXTRA_CA_CERTS: "" },
    // Files keep to themselves; loading all modules anew for each took a tenth of the suite's time.
    isolate: false,
    // What is built is loaded as Node loads it: vite would read and rewrite each module.
    server: { deps: { external: [/\/dist\//] } },
    sequence: { sequencer: LongestFirst },
    // Two more than CI has cores: tests wait for processes, servers and pauses, and some of them always do.
    maxWorkers: 4,
    // Bounds of a hang, not of pace: what takes a second alone takes twenty on a slow machine with other work.
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
