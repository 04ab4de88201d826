import { Command, Option } from "commander";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { addDoctor, addInspect, addSchema } from "./check-commands.js";
import { addHelpTexts } from "./texts/help-text.js";
import { type Io, type SafeIo, safeIo } from "./io.js";
import { addApprove, addDiscard } from "./decision-commands.js";
import {
  collect,
  countOf,
  limit,
  logFormat,
  logLevel,
  newRunOption,
  param,
  portOf,
  providersOf,
  reuseOption,
  toleranceOf,
} from "./options.js";
import {
  addBackfill,
  addChecks,
  addDiff,
  addEvaluate,
  addHistory,
  addPreview,
  addErase,
  addPrune,
  addRejects,
  addRollback,
  addStats,
  addStatus,
} from "./run-commands.js";
import { skipExitCode } from "./skip-exit-code.js";
import { programVersion } from "../app/version.js";

/**
 * Builds the command-line parser with all commands and options, which docs and tests read. Commands are imported when they
 * run, so that `--help` does not wait for the native libraries.
 * @param early threads for `run`, which starts its own when there are none
 */
export function createProgram(process: Io, early?: EarlyThreads): Command {
  const io = safeIo(process);
  const program = new Command("infer-batch")
    .description(
      "Score every row of a table in Parquet or Arrow files with an ONNX model, exactly once. A job that was killed resumes.",
    )
    .version(programVersion)
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError("(infer-batch --help lists the commands and options)");
  addRun(program, io, early);
  for (const add of [
    addBackfill,
    addPipe,
    addPlan,
    addPreview,
    addValidate,
    addCompare,
    addStatus,
    addStats,
    addChecks,
    addHistory,
    addDiff,
    addEvaluate,
    addPrune,
    addErase,
    addApprove,
    addDiscard,
    addRejects,
    addRollback,
    addInit,
    addInspect,
    addDoctor,
    addSchema,
  ]) {
    add(program, io);
  }
  addHelpTexts(program);
  return program;
}

function addRun(program: Command, io: SafeIo, early: EarlyThreads | undefined): void {
  program
    .command("run")
    .description(
      "Score the rows that are not committed yet and finish the run. The same command resumes a run that was interrupted, and does nothing when the run is complete",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .option(
      "--worker <i/n>",
      "Be worker i of n that share the run, counted from 0. Default: from the environment of a Kubernetes Indexed Job or an AWS Batch array job, else 0/1",
    )
    .option("--steal", "After this worker's own share, score the spans that other workers have not committed")
    .addOption(newRunOption())
    .addOption(reuseOption())
    .option(
      "--allow-duplicates",
      "Allow --new-run to append to a table that is not empty; rows may then be there twice (Postgres: append)",
    )
    .option(
      "--allow-older",
      "Allow this run to overwrite the rows of a newer run of this job (Postgres: upsert, replace)",
    )
    .addOption(provider())
    .addOption(skipExitCodeOption())
    .addOption(limit("Try the job: score only the first n rows, into --output, without checks, reports and pings"))
    .option(
      "--output <folder>",
      "Folder for the Parquet parts of --limit, relative to the current folder or in a store",
    )
    .option("--json", "Print the result as one line of JSON on stdout")
    .option("--quiet", "Print errors only")
    .option("--no-progress", "Print no progress")
    .addOption(
      new Option(
        "--metrics-port <port>",
        "Serve Prometheus metrics at http://127.0.0.1:<port>/metrics during the run; 0 takes a free port",
      ).argParser(portOf),
    )
    .option("--profile <file>", "Write a trace of timings for the trace viewer Perfetto; log the time by stage")
    .addOption(logLevel())
    .addOption(logFormat())
    .action(async (spec: string, options) => {
      const { runCommand } = await import("./commands/run.js");
      await runCommand(spec, options, io, early);
    });
}

const provider = (): Option =>
  new Option(
    "--provider <names>",
    "Execution providers to use in place of engine.providers, such as webgpu or cuda,cpu; auto: the first that works",
  ).argParser(providersOf);

const skipExitCodeOption = (): Option =>
  new Option(
    "--skip-exit-code <code>",
    "Exit code when the run is already complete, such as 99, which marks an Airflow task as skipped",
  ).argParser(skipExitCode);

function addPipe(program: Command, io: SafeIo): void {
  program
    .command("pipe")
    .description(
      "Score an Arrow IPC stream from stdin to stdout, one record batch out for each one in. The spec's input paths and its target are ignored",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .option("--rejects <file>", "File for rows that cannot be scored, one line of JSON each")
    .option("--quiet", "Print errors only")
    .addOption(logLevel())
    .addOption(logFormat())
    .action(async (spec: string, options) => {
      const { pipeCommand } = await import("./commands/pipe.js");
      await pipeCommand(spec, options, io);
    });
}

function addPlan(program: Command, io: SafeIo): void {
  program
    .command("plan")
    .description(
      "Show the shards, rows, spans, bindings and target of a run. If the run would be refused now, end with the same error. Changes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(provider())
    .option("--json", "Print the plan as JSON, with what was not checked")
    .action(async (spec: string, options) => {
      const { planCommand } = await import("./commands/plan.js");
      await planCommand(spec, options, io);
    });
}

function addValidate(program: Command, io: SafeIo): void {
  program
    .command("validate")
    .description("Check a spec, its model and how the model binds to the first shard, without writing anything")
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .action(async (spec: string, options) => {
      const { validateCommand } = await import("./commands/validate.js");
      await validateCommand(spec, options, io);
    });
}

function addCompare(program: Command, io: SafeIo): void {
  program
    .command("compare")
    .description(
      "Score the first rows of a job with two models, and print how fast each is and how far their predictions agree. Nothing is written",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .requiredOption(
      "--model <uri>",
      "Model to compare: a file, or a URI as model.path. Given once, it is compared with the model of the spec; given twice, A with B",
      collect,
    )
    .addOption(
      new Option("--limit <rows>", "Number of rows to score, from the beginning of the input")
        .default(100_000)
        .argParser(countOf(999_999_999)),
    )
    .addOption(
      new Option("--tolerance <number>", "Count the rows whose numbers differ by more")
        .default(0.01)
        .argParser(toleranceOf),
    )
    .addOption(param())
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { compareCommand } = await import("./commands/compare.js");
      await compareCommand(spec, options, io);
    });
}

function addInit(program: Command, io: SafeIo): void {
  program
    .command("init")
    .description("Write a commented job spec for a model and its input files. It never overwrites a file")
    .argument("[spec]", "File to write", "job.yaml")
    .requiredOption("--model <file>", "ONNX model: a file, or s3://, gs:// or az://")
    .requiredOption(
      "--input <pattern>",
      "Input files: a glob such as 'data/*.parquet', or s3://, gs:// or az://; may be repeated",
      collect,
    )
    .option(
      "--columns <names>",
      "Comma-separated input columns to copy to the output, such as ids. Default: those that are not features",
    )
    .option("--output <folder>", "Folder for Parquet output, or s3://, gs:// or az://. Default: out, next to the spec")
    .option(
      "--postgres [url]",
      "Write predictions to Postgres instead. A URL with a password is not written into the spec",
    )
    .option("--table <name>", "Table in Postgres. Default: the table of the job's name in the schema predictions")
    .option("--name <name>", "Name of the job. Default: from the model's file name")
    .option("--checks", "Also write, as comments, the keys that hold back a suspicious run")
    .action(async (spec: string, options) => {
      const { initCommand } = await import("./commands/init.js");
      await initCommand(spec, options, io);
    });
}
