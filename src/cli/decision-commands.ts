import { type Command, Option } from "commander";
import type { SafeIo } from "./io.js";
import { onceNotEmpty, param } from "./options.js";

export function addApprove(program: Command, io: SafeIo): void {
  decisionCommand(program, "approve")
    .description("Publish a run that is held because it failed its checks. Needs neither the model nor the input")
    .option(
      "--not-normal",
      "Compare no later run with this one, so that the next one like it is held, too. By default later runs may resemble it",
    )
    .option("--allow-older", "Overwrite the rows of a newer run of this job (Postgres: upsert, replace)")
    .action(async (spec: string, options) => {
      const { approveCommand } = await import("./commands/decide.js");
      await approveCommand(spec, options, io);
    });
}

export function addDiscard(program: Command, io: SafeIo): void {
  decisionCommand(program, "discard")
    .description(
      "Decide that a staged run is never published, and remove its rows. run --new-run scores the input again",
    )
    .action(async (spec: string, options) => {
      const { discardCommand } = await import("./commands/decide.js");
      await discardCommand(spec, options, io);
    });
}

function decisionCommand(program: Command, name: string): Command {
  return program
    .command(name)
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(new Option("--reason <text>", "Why; recorded with the decision").argParser(onceNotEmpty))
    .option("--by <name>", "Who decides, other than `checks`. Default: the Airflow task, else the user of this process")
    .option(
      "--run <id>",
      "The run, as history lists it, in place of --param; with --param: refuse to decide if the latest run of these params has another id",
    )
    .option("--json", "Print one line of JSON");
}
