import { errnoOf, JobError } from "../errors.js";
import { collectGarbage } from "./collect-garbage.js";
import { failWith } from "./failure.js";
import { setV8Flags } from "./v8-flags.js";
import { runProgram } from "./run-program.js";

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

setV8Flags();
collectGarbage();
await runProgram(process.argv.slice(2), process);
