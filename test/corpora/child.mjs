// Carries out one command after another as the program would, each told by a message and answered by one. Loading the
// native libraries takes longer than most of the corpus's files, so that a process for each command would take minutes.
import { createRequire } from "node:module";
import { isBundleNewest } from "../support/bundled-workers.mjs";

/** The bundle has what the command runs; loading its modules one by one takes a second of CPU time. */
const { runProgram } = isBundleNewest()
  ? Object.values(createRequire(import.meta.url)("../../dist/bundle/load.js").load("chunk-deciding.js")).find(
      (exported) => Object(exported).runProgram !== undefined,
    )
  : await import("../../dist/cli/program.js");

process.on("message", async (args) => {
  const said = { stdout: "", stderr: "" };
  const into = (name) => ({
    write(text) {
      said[name] += text;
    },
  });
  const io = { stdout: into("stdout"), stderr: into("stderr") };
  const before = process.cpuUsage();
  await runProgram(args, io);
  const { user, system } = process.cpuUsage(before);
  const used = { peakKib: process.resourceUsage().maxRSS, cpuMs: (user + system) / 1000 };
  process.send?.({ code: io.exitCode ?? 0, ...said, ...used });
});
