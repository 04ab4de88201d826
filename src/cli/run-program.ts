import { CommanderError } from "commander";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { failWith, type OutputOptions, usageExit } from "./failure.js";
import { type Io, safeOutput } from "./io.js";
import { createProgram } from "./program.js";

/**
 * Runs a command line, without the names of node and the program, and sets `io.exitCode`. A process may run several: no
 * state is shared between them.
 */
export async function runProgram(args: readonly string[], io: Io, early?: EarlyThreads): Promise<void> {
  const program = createProgram(io, early);
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.code === "commander.excessArguments") {
        const { usageHint } = await import("./texts/usage-hint.js");
        safeOutput(io.stderr).write(usageHint(args));
      }
      io.exitCode = usageExit(error);
    } else {
      const [command] = program.args;
      const found = program.commands.find((candidate) => candidate.name() === command);
      io.exitCode = failWith(error, found?.opts<OutputOptions>() ?? {}, io);
    }
  }
}
