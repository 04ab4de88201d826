import { errnoOf, JobError } from "../util/errors.js";
import { collectGarbage } from "./collect-garbage.js";
import { startEarly } from "./early.js";
import { failWith } from "./failure.js";
import { endOnSignalsAsFirstProcess } from "./signals.js";

/** Whoever reads our output may stop before we are done (`| head`): that is no error. A log that is lost is none either. */
process.stderr.on("error", () => undefined);
process.stdout.on("error", (error) => {
  if (errnoOf(error) !== "EPIPE") {
    process.exitCode = failWith(
      new JobError("DISK", `writing to stdout: ${error.message}`, {
        hint: "what the command did stands; only its report is lost",
      }),
      {},
      process,
    );
  }
});

/** A process that has nothing left to wait for ends as if all were well. */
let isRunning = true;
process.on("exit", (code) => {
  if (isRunning && code === 0) {
    process.exitCode = failWith(new Error("nothing is left to wait for, but the command has not ended"), {}, process);
  }
});

endOnSignalsAsFirstProcess();
collectGarbage();
void main(process.argv.slice(2)).catch((error: unknown) => {
  process.exitCode = failWith(error, {}, process); // a part of the program that could not be loaded
});

async function main(args: readonly string[]): Promise<void> {
  {
    await using early = startEarly(args);
    const { runProgram } = await import("./run-program.js");
    await runProgram(args, process, early);
  }
  isRunning = false; // not where it was thrown, of which Node may be told to think nothing
}
