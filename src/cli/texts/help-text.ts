import type { Command } from "commander";
import { examples } from "../examples.js";

/** What a scheduler does with the exit codes; docs/operations.md has all of it. */
const exitCodes = `
Exit codes:
  0    complete, or nothing left to do
  64   bad usage, spec or permission: correct it; a retry cannot help
  65   bad data: correct the data; a retry cannot help
  66   input, model, spec or output changed since the run was planned
  67   held by the checks, discarded, pruned, or late (--expect-by): a person decides
  75   temporary, such as input that is not ready: run the same command again
  1    a bug in infer-batch
`;

const start = `
Start with:
  infer-batch init --model churn.onnx --input 'data/*.parquet'
  infer-batch plan job.yaml
  infer-batch run job.yaml

The folder docs of the package explains each task; docs/README.md lists the pages.
`;

/** Adds examples, exit codes and where the documentation is to the help of the program and its commands. */
export function addHelpTexts(program: Command): void {
  program.addHelpText("after", `${start}${exitCodes}`);
  for (const command of program.commands) {
    const lines = examples[command.name()] ?? [];
    if (lines.length > 0) {
      command.addHelpText("after", ["\nExamples:", ...lines.map((line) => `  ${line}`), ""].join("\n"));
    }
  }
}
