import { Command, CommanderError, Option } from "commander";
import { errnoOf, JobError } from "../errors.js";
import { failWith, type OutputOptions } from "./failure.js";
import { programVersion } from "./version.js";

/** Commands are loaded when they are called: `--help` should not wait for the native libraries. */
const program = new Command("infer-batch")
  .description("Scores every row of a set of Parquet shards with an ONNX model, exactly once, resumable at any moment")
  .version(programVersion)
  .exitOverride()
  .configureHelp({ showGlobalOptions: true })
  .showHelpAfterError("(infer-batch --help lists the commands and options)");

const param = (): Option =>
  new Option("--param <name=value>", "set a param of the spec; may be repeated")
    .default([], "none")
    .argParser((given: string, all: string[]) => [...all, given]);
const logFormat = (): Option =>
  new Option("--log-format <format>", "how log lines look on stderr").choices(["pretty", "json"]).default("pretty");

program
  .command("run")
  .description(
    "score what is not committed yet, then finish the run; the same command again resumes or says already_complete",
  )
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .option(
    "--worker <i/n>",
    "one of n workers that share the run, from 0; default: as Kubernetes or AWS Batch say, else 0/1",
  )
  .option("--steal", "when the own share is done, take over what other workers have not committed")
  .option("--new-run", "score once more what is complete, or what was planned and has changed since")
  .option("--allow-duplicates", "let --new-run append to a table that holds the rows of the run before")
  .option("--json", "end with one line of JSON on stdout")
  .option("--quiet", "no progress and no log lines but errors")
  .option("--no-progress", "no progress bar or progress lines")
  .addOption(
    new Option("--log-level <level>", "what to log").choices(["debug", "info", "warn", "error"]).default("info"),
  )
  .addOption(logFormat())
  .action(async (spec: string, options) => {
    const { runCommand } = await import("./commands/run.js");
    await runCommand(spec, options);
  });

program
  .command("plan")
  .description("show shards, rows, spans, bindings and target of a run; writes nothing")
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .option("--json", "print the plan as JSON")
  .action(async (spec: string, options) => {
    const { planCommand } = await import("./commands/plan.js");
    await planCommand(spec, options);
  });

program
  .command("validate")
  .description("check a spec, its model and the binding to its first shard; writes nothing")
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .action(async (spec: string, options) => {
    const { validateCommand } = await import("./commands/validate.js");
    await validateCommand(spec, options);
  });

program
  .command("tune")
  .description("measure the model alone by batch size and threads, on the job's first rows; writes nothing")
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .option("--json", "one line of JSON")
  .action(async (spec: string, options) => {
    const { tuneCommand } = await import("./commands/tune.js");
    await tuneCommand(spec, options);
  });

program
  .command("status")
  .description("show how far a run is; writes nothing")
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .option("--json", "one line of JSON")
  .action(async (spec: string, options) => {
    const { statusCommand } = await import("./commands/status.js");
    await statusCommand(spec, options);
  });

program
  .command("rejects")
  .description("show the rows that could not be scored, by reason")
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .option("--json", "a line of JSON for each row")
  .action(async (spec: string, options) => {
    const { rejectsCommand } = await import("./commands/rejects.js");
    await rejectsCommand(spec, options);
  });

program
  .command("rollback")
  .description("swap back what the last finished run with mode: replace swapped in")
  .argument("<spec>", "the job spec, a YAML file")
  .addOption(param())
  .option("--json", "one line of JSON")
  .action(async (spec: string, options) => {
    const { rollbackCommand } = await import("./commands/rollback.js");
    await rollbackCommand(spec, options);
  });

program
  .command("inspect")
  .description("show what a model takes and gives, or what a shard's columns, row groups and NULLs are")
  .argument("<file>", "an ONNX model or a Parquet file; which of the two is told by its content")
  .option("--json", "one line of JSON")
  .action(async (file: string, options) => {
    const { inspectCommand } = await import("./commands/inspect.js");
    await inspectCommand(file, options);
  });

program
  .command("schema")
  .description("print the JSON Schema of the job spec, for editors")
  .action(async () => {
    const { specJsonSchema } = await import("../spec/job-spec.js");
    process.stdout.write(`${JSON.stringify(specJsonSchema(), undefined, 2)}\n`);
  });

/** Whoever reads our output may stop before we are done (`| head`): that is no error. A log that is lost is none either. */
process.stderr.on("error", () => undefined);
process.stdout.on("error", (error) => {
  if (errnoOf(error) !== "EPIPE") {
    process.exitCode = failWith(
      new JobError("DISK", `writing to stdout: ${error.message}`, {
        hint: "what the command did stands; only its report is lost",
      }),
      {},
    );
  }
});

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : 64;
  } else {
    const [command] = program.args;
    const found = program.commands.find((candidate) => candidate.name() === command);
    process.exitCode = failWith(error, found?.opts<OutputOptions>() ?? {});
  }
}
