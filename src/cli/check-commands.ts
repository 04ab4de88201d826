import type { Command } from "commander";
import type { SafeIo } from "./io.js";
import { param } from "./options.js";

export function addInspect(program: Command, io: SafeIo): void {
  program
    .command("inspect")
    .description(
      "Show the inputs and outputs of a model, or the columns, row groups and NULL counts of a Parquet or Arrow file",
    )
    .argument(
      "<file>",
      "ONNX model, Parquet file, or Arrow file or stream on this machine, detected by content; or the URI of a model, as model.path",
    )
    .option("--json", "Print one line of JSON")
    .action(async (file: string, options) => {
      const { inspectCommand } = await import("./commands/inspect.js");
      await inspectCommand(file, options, io);
    });
}

export function addDoctor(program: Command, io: SafeIo): void {
  program
    .command("doctor")
    .description(
      "Check what scoring on a GPU needs, report what is missing, and run two batches on each execution provider. With a spec, measure the speed of its model by batch size and threads. Exit code 64 means that this machine cannot run the spec's providers, 75 that a provider fails or has no memory. For a model on a server: check that each server answers, print the model's signature, and send blank rows for some seconds to measure its throughput",
    )
    .argument("[spec]", "Job spec whose providers and model to try; default: a tiny model")
    .addOption(param())
    .option("--json", "Print one line of JSON")
    .action(async (spec: string | undefined, options) => {
      const { doctorCommand } = await import("./commands/doctor.js");
      await doctorCommand(spec, options, io);
    });
}

export function addSchema(program: Command, io: SafeIo): void {
  program
    .command("schema")
    .description("Print the JSON Schema of the job spec, for editors")
    .action(async () => {
      const { editorSchema } = await import("../spec/editor-schema.js");
      io.stdout.write(`${JSON.stringify(editorSchema(), undefined, 2)}\n`);
    });
}
