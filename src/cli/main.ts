import { errnoOf, JobError } from "../base/errors.js";
import { collectGarbage } from "./collect-garbage.js";
import { endOnSignalsAsFirstProcess, failWith } from "./failure.js";

// A reader of stdout may stop early (`| head`), and a log may be lost: neither is an error.
process.stderr.on("error", () => undefined);
process.stdout.on("error", (error) => {
  if (errnoOf(error) !== "EPIPE") {
    process.exitCode = failWith(
      new JobError("DISK", `writing to stdout: ${error.message}`, {
        hint: "the command did its work; only its report is lost",
      }),
      {},
      process,
    );
  }
});

// Without this check, a process whose event loop runs empty would exit with 0 before its command has ended.
let isRunning = true;
process.on("exit", (code) => {
  if (isRunning && code === 0) {
    process.exitCode = failWith(new Error(textOfEmptyLoop(process.argv.slice(2))), {}, process);
  }
});

endOnSignalsAsFirstProcess();
if (process.argv[2] !== "serve") {
  collectGarbage(); // for which the answers of a server would wait
}
void main(process.argv.slice(2)).catch((error: unknown) => {
  process.exitCode = failWith(error, {}, process); // an error of loading the program
});

async function main(args: readonly string[]): Promise<void> {
  const { runProgram } = await import("./program.js");
  await runProgram(args, process);
  isRunning = false; // not when it throws: an option of Node may make it ignore unhandled rejections
}

/** What is known of a command that waits for something that will not happen. */
function textOfEmptyLoop([command = "", spec = ""]: readonly string[]): string {
  const doing = spec.startsWith("-") ? command : `${command} ${spec}`.trimEnd(); // options may hold secrets
  const open = process.getActiveResourcesInfo().join(", ");
  const seconds = process.uptime().toFixed(1);
  return `the event loop is empty, but the command has not ended: \`${doing}\` after ${seconds} s; still open: ${open === "" ? "nothing" : open}`;
}
