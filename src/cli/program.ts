import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { programVersion } from "../app/attempt.js";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { rangeSteps } from "../jobs/backfill.js";
import { type EngineSpec, parseProviders, providerNames } from "../spec/engine-spec.js";
import { exitCodes } from "../util/errors.js";
import { type OutputOptions, failWith, usageExit, usageHint } from "./failure.js";
import { type Io, type SafeIo, safeIo, safeOutput } from "./io.js";
import { timeOfDay } from "../util/texts.js";

/**
 * Builds the command-line parser with all commands and options, which docs and tests read. Commands are imported when they
 * run, so that `--help` does not wait for the native libraries.
 * @param early threads for `run`, which starts its own when there are none
 * @public so that tests reach it
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
  onSpec(program, "run")
    .description(
      "Score the rows that are not committed yet and finish the run. The same command resumes a run that was interrupted, and does nothing when the run is complete",
    )
    .option(
      "--worker <i/n>",
      "Be worker i of n that share the run, counted from 0. Default: from the environment of a Kubernetes Indexed Job or an AWS Batch array job, else 0/1",
    )
    .option("--steal", "After this worker's own share, score the spans that other workers have not committed")
    .option(
      "--new-run",
      "If the run of this spec is complete, held, discarded or damaged, its table refuses its rows, or its input, model or spec changed, plan a new run; otherwise continue the run",
    )
    .option(
      "--reuse",
      "Let --new-run take the predictions of unchanged rows from the run that it replaces, as the spec's reuse says. Default: a new run scores all rows",
    )
    .option(
      "--allow-duplicates",
      "Allow --new-run to append to a table that is not empty; rows may then be there twice (Postgres: append)",
    )
    .option(
      "--allow-older",
      "Allow this run to overwrite the rows of a newer run of this job (Postgres: upsert, replace)",
    )
    .addOption(provider())
    .addOption(
      new Option(
        "--skip-exit-code <code>",
        "Exit code when the run is already complete, such as 99, which marks an Airflow task as skipped",
      ).argParser(skipExitCode),
    )
    .addOption(
      new Option(
        "--limit <n>",
        "Try the job: score only the first n rows, into --output, without checks, reports and pings",
      ).argParser(countOf(999_999_999)),
    )
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

function addPipe(program: Command, io: SafeIo): void {
  onSpec(program, "pipe")
    .description(
      "Score an Arrow IPC stream from stdin to stdout, one record batch out for each one in. The spec's input paths and its target are ignored",
    )
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
  onSpec(program, "plan")
    .description(
      "Show the shards, rows, spans, bindings and target of a run. If the run would be refused now, end with the same error. Changes nothing",
    )
    .addOption(provider())
    .option("--json", "Print the plan as JSON, with what was not checked")
    .action(async (spec: string, options) => {
      const { planCommand } = await import("./commands/plan.js");
      await planCommand(spec, options, io);
    });
}

function addValidate(program: Command, io: SafeIo): void {
  onSpec(program, "validate")
    .description("Check a spec, its model and how the model binds to the first shard, without writing anything")
    .action(async (spec: string, options) => {
      const { validateCommand } = await import("./commands/plan.js");
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

function addBackfill(program: Command, io: SafeIo): void {
  program
    .command("backfill")
    .description(
      "Carry out one run for each date of a range, with one version of the model. Complete runs are skipped, so that the same command resumes a backfill",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param("Set a param of the spec; may be repeated. One takes a range of dates: ds=2026-01-01..2026-01-31"))
    .addOption(
      new Option(
        "--step <step>",
        "Time between two values. Default: day, or month for a range such as 2026-01..2026-12, or hour for 2026-01-01T00..2026-01-01T23",
      ).choices(rangeSteps),
    )
    .addOption(
      new Option(
        "--parallel <n>",
        "Runs at once, which share cores and memory. Runs with checks, and runs into Postgres with upsert or replace, go one at a time",
      )
        .default(1)
        .argParser(countOf(64)),
    )
    .option("--stop-on-failure", "Start no further run after one that fails or is held by its checks")
    .addOption(
      new Option(
        "--reprocess <which>",
        "Which runs to score again as new runs: failed are those that are held, discarded or damaged, or whose input, model or spec changed; completed are all of them",
      )
        .choices(["none", "failed", "completed"])
        .default("none"),
    )
    .option(
      "--allow-duplicates",
      "Allow --reprocess to append to a table that is not empty; rows may then be there twice (Postgres: append)",
    )
    .option(
      "--allow-older",
      "Allow these runs to overwrite the rows of newer runs of this job (Postgres: upsert, replace)",
    )
    .option("--json", "Print one line of JSON for each run, and one for all of them at the end")
    .option("--quiet", "Print errors only")
    .option("--no-progress", "Print no progress")
    .addOption(logLevel())
    .addOption(logFormat())
    .action(async (spec: string, options) => {
      const { backfillCommand } = await import("./commands/backfill.js");
      await backfillCommand(spec, options, io);
    });
}

function addPreview(program: Command, io: SafeIo): void {
  onSpec(program, "preview")
    .description(
      "Score the first rows of a job, or a random sample, and print them with their predictions. Writes nothing to the target, and does not look at it",
    )
    .addOption(new Option("--limit <n>", "Most rows").default(20).argParser(countOf(10_000)))
    .addOption(
      new Option(
        "--sample <n>",
        "Number of rows to draw at random from the whole input, each with the same chance, and to score in place of the first rows",
      )
        .argParser(countOf(10_000))
        .conflicts("limit"),
    )
    .addOption(
      new Option("--seed <number>", "The same seed draws the same sample").default(1).argParser(countOf(999_999_999)),
    )
    .option("--where <sql>", "Only rows for which this condition holds, in addition to input.where")
    .addOption(
      new Option("--features <n>", "Most features to print, in addition to the columns of output.columns")
        .default(4)
        .argParser(countOf(10_000)),
    )
    .addOption(new Option("--json", "Print one line of JSON for each row").conflicts("csv"))
    .option("--csv", "Print CSV with a header")
    .action(async (spec: string, options) => {
      const { previewCommand } = await import("./commands/preview.js");
      await previewCommand(spec, options, io);
    });
}

function addStatus(program: Command, io: SafeIo): void {
  program
    .command("status")
    .description(
      "Show the progress of a run; of several specs, a table with a line for each. If an output is damaged, list every fault and end with exit code 66. Writes nothing",
    )
    .argument("<specs...>", "Job specs, YAML files")
    .addOption(param())
    .addOption(run())
    .option("--held", "Show only runs that are held by their checks")
    .option("--failed", "Show only runs that are neither published nor held, and specs with an error")
    .addOption(
      new Option(
        "--expect-by <time>",
        "After this time of day in the spec's timezone, such as 06:00, end with 67 if the run of a spec is not published, and name each such job",
      ).argParser(timeOf),
    )
    .option("--json", "Print one line of JSON for each spec")
    .action(async (specs: string[], options) => {
      const { statusCommand } = await import("./commands/status.js");
      await statusCommand(specs, options, io);
    });
}

function addStats(program: Command, io: SafeIo): void {
  onSpec(program, "stats")
    .description(
      "Show the profiles of a run whose spans are all committed: of its predictions and, if it was planned with checks, of the features. Writes nothing",
    )
    .option(
      "--run <id>",
      "Show the run of this id, which may have other params: the latest run of its params, or a published one before it. Default: the latest run of these params",
    )
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { statsCommand } = await import("./commands/stats.js");
      await statsCommand(spec, options, io);
    });
}

function addChecks(program: Command, io: SafeIo): void {
  onSpec(program, "checks")
    .description(
      "Judge the last published runs as if each were tonight, by their stored profiles, and list the columns that would have held one or warned, with the factor above which they would not. Writes nothing",
    )
    .addOption(new Option("--last <count>", "Number of runs to judge").default(60).argParser(countOf(1000)))
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { checksCommand } = await import("./commands/checks.js");
      await checksCommand(spec, options, io);
    });
}

function addHistory(program: Command, io: SafeIo): void {
  onSpec(program, "history")
    .description(
      "List the runs of a job at its target, the latest first: what became of each, its rows, its model, its last error, and who decided. Writes nothing",
    )
    .addOption(new Option("--last <count>", "Number of runs to list").default(30).argParser(countOf(1000)))
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { historyCommand } = await import("./commands/history.js");
      await historyCommand(spec, options, io);
    });
}

function addDiff(program: Command, io: SafeIo): void {
  program
    .command("diff")
    .description(
      "Compare the predictions of two runs, two tables or two folders of Parquet files by key: rows that were added, that are gone and that changed, and by how much. Writes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file; or a folder of Parquet files")
    .addOption(param("Set a param of the spec; may be repeated. These params name the run that is compared"))
    .addOption(run())
    .requiredOption(
      "--against <name=value>",
      "Compare with the run that has this param in place of that of --param, with the run of this id, or with this table; may be repeated. For a folder: the other folder",
      collect,
    )
    .option("--table <name>", "Compare this table of the spec's database in place of a run, such as scores.daily")
    .option(
      "--key <column>",
      "Column that identifies a row; may be repeated. Default: output.postgres.key, else checks.unique, reuse.key or output.columns",
      collect,
    )
    .addOption(
      new Option("--tolerance <difference>", "Largest difference of two floating-point numbers that count as equal")
        .default(0)
        .argParser(toleranceOf),
    )
    .option("--json", "Print one line of JSON, with all columns")
    .action(async (spec: string, options) => {
      const { diffCommand } = await import("./commands/diff.js");
      await diffCommand(spec, options, io);
    });
}

function addEvaluate(program: Command, io: SafeIo): void {
  program
    .command("evaluate")
    .description(
      "Judge published predictions by labels that came later, joined by key: AUC, log loss, precision, recall and calibration of a class, or the errors of numbers, by night. Writes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .requiredOption(
      "--labels <file>",
      "The labels: a .parquet or .csv file, a folder of Parquet files, or a table of the spec's database, such as crm.churn",
    )
    .requiredOption("--label <column>", "Column of the labels")
    .option(
      "--key <column>",
      "Column that identifies a row, in the labels and in the predictions; may be repeated. Default: as in diff",
      collect,
    )
    .option(
      "--date <column>",
      "Column of the labels that has the date of the run. Default: a label is that of every night",
    )
    .option("--prediction <column>", "Predicted column that is judged. Default: the only one that has numbers")
    .option("--positive <label>", "Label of the class whose probability is predicted. Default: 1 or true")
    .addOption(
      new Option("--threshold <score>", "Score from which on a row counts as of the class")
        .default(0.5)
        .argParser(toleranceOf),
    )
    .option("--by <column>", "Judge the rows of each value of this column, too")
    .addOption(
      param("Set a param of the spec; may be repeated. One may be a range of dates: ds=2026-01-01..2026-01-31"),
    )
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { evaluateCommand } = await import("./commands/evaluate.js");
      await evaluateCommand(spec, options, io);
    });
}

function addPrune(program: Command, io: SafeIo): void {
  onSpec(program, "prune")
    .description(
      "Remove the output of old runs of a job: files of predictions and rejects, in Postgres rejects, profiles and previous tables. Rows in a table stay. A pruned run is not scored again by itself",
    )
    .addOption(
      new Option("--keep <count>", "Number of latest published runs to keep")
        .argParser(countOf(1_000_000))
        .conflicts("olderThan"),
    )
    .addOption(
      new Option(
        "--older-than <age>",
        "Prune runs whose date is further back, in days or weeks, such as 90d",
      ).argParser(daysOf),
    )
    .option("--dry-run", "Show what would be removed, and remove nothing")
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { pruneCommand } = await import("./commands/prune.js");
      await pruneCommand(spec, options, io);
    });
}

function addErase(program: Command, io: SafeIo): void {
  program
    .command("erase")
    .description(
      "Remove the rows of persons who asked for it from the output of all runs of a job: predictions, rejected rows and, in Postgres, previous tables. What the input still has is scored again by the next run that reads it",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .requiredOption(
      "--keys <file>",
      "Whose rows: a text file with a key on each line, or a .csv or .parquet file with the key columns",
    )
    .addOption(
      new Option(
        "--key <column>",
        "Output column that the keys are values of; may be repeated. Default: the columns of the file; for a text file, the single-column key in output.postgres.key, checks.unique or reuse.key, otherwise the only column of output.columns. Required for a text file if these keys name different columns",
      ).argParser(collect),
    )
    .addOption(param())
    .option("--dry-run", "Count the rows, and remove nothing")
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { eraseCommand } = await import("./commands/erase.js");
      await eraseCommand(spec, options, io);
    });
}

function addRejects(program: Command, io: SafeIo): void {
  onSpec(program, "rejects")
    .description("Show the rejected rows of a run, grouped by reason")
    .addOption(run())
    .option("--json", "Print one line of JSON for each row")
    .action(async (spec: string, options) => {
      const { rejectsCommand } = await import("./commands/rejects.js");
      await rejectsCommand(spec, options, io);
    });
}

function addRollback(program: Command, io: SafeIo): void {
  onSpec(program, "rollback")
    .description(
      "Put back the rows that the latest run into this target replaced, even if that run had other params than this command (mode replace, with either value of swap)",
    )
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { rollbackCommand } = await import("./commands/rollback.js");
      await rollbackCommand(spec, options, io);
    });
}

function addInspect(program: Command, io: SafeIo): void {
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

function addDoctor(program: Command, io: SafeIo): void {
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

function addSchema(program: Command, io: SafeIo): void {
  program
    .command("schema")
    .description("Print the JSON Schema of the job spec, for editors")
    .action(async () => {
      const { editorSchema } = await import("../spec/job-spec.js");
      io.stdout.write(`${JSON.stringify(editorSchema(), undefined, 2)}\n`);
    });
}

function addApprove(program: Command, io: SafeIo): void {
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

function addDiscard(program: Command, io: SafeIo): void {
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
  return onSpec(program, name)
    .addOption(new Option("--reason <text>", "Why; recorded with the decision").argParser(onceNotEmpty))
    .option("--by <name>", "Who decides, other than `checks`. Default: the Airflow task, else the user of this process")
    .option(
      "--run <id>",
      "The run, as history lists it, in place of --param; with --param: refuse to decide if the latest run of these params has another id",
    )
    .option("--json", "Print one line of JSON");
}

/** A command of one spec, whose params it takes. */
function onSpec(program: Command, name: string): Command {
  return program.command(name).argument("<spec>", "Job spec, a YAML file").addOption(param());
}

const param = (description = "Set a param of the spec; may be repeated"): Option =>
  new Option("--param <name=value>", description).default([], "none").argParser(collect);

const run = (): Option => new Option("--run <id>", "The run, as history lists it, in place of --param");

const logLevel = (): Option =>
  new Option("--log-level <level>", "Lowest level of log lines")
    .choices(["debug", "info", "warn", "error"])
    .default("info");

const logFormat = (): Option =>
  new Option("--log-format <format>", "Format of log lines on stderr").choices(["pretty", "json"]).default("pretty");

const provider = (): Option =>
  new Option(
    "--provider <names>",
    "Execution providers to use in place of engine.providers, such as webgpu or cuda,cpu; auto: the first that works",
  ).argParser(providersOf);

function providersOf(value: string): EngineSpec["providers"] {
  const providers = parseProviders(value);
  if (providers === undefined) {
    throw new InvalidArgumentError(
      `expected auto, or some of ${providerNames.join(", ")} with commas between, cpu last`,
    );
  }
  return providers;
}

function collect(value: string, all: readonly string[] = []): string[] {
  return [...all, value];
}

function onceNotEmpty(value: string, before: string | undefined): string {
  if (before !== undefined) {
    throw new InvalidArgumentError("expected one text: the option was given before");
  }
  if (value.trim() === "") {
    throw new InvalidArgumentError("expected a text that is not empty, or no such option");
  }
  return value;
}

function countOf(most: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (!/^\d{1,9}$/.test(value) || number < 1 || number > most) {
      throw new InvalidArgumentError(`expected a number from 1 to ${most}`);
    }
    return number;
  };
}

/** In days. */
function daysOf(value: string): number {
  const [, number, unit] = /^(\d{1,5})([dw])$/.exec(value) ?? [];
  if (number === undefined) {
    throw new InvalidArgumentError("expected a number of days or weeks, such as 90d or 12w");
  }
  return Number(number) * (unit === "w" ? 7 : 1);
}

function timeOf(value: string): string {
  if (!timeOfDay.test(value)) {
    throw new InvalidArgumentError("expected a time of day such as 06:00");
  }
  return value;
}

/** 0: any free port. */
function portOf(value: string): number {
  const port = Number(value);
  if (!/^\d{1,5}$/.test(value) || port > 65_535) {
    throw new InvalidArgumentError("expected a number from 0 to 65535");
  }
  return port;
}

function toleranceOf(value: string): number {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number) || number < 0) {
    throw new InvalidArgumentError("expected a number from 0, such as 0.01");
  }
  return number;
}

// Shells and container runtimes give 126 to 255 their own meaning; 1 and 2 stand for too many failures.
const minCode = 3;
const maxCode = 125;
const usedCodes = new Set<number>(Object.values(exitCodes));

/**
 * Parses `run --skip-exit-code`, the exit code of a run that is already complete.
 * @throws InvalidArgumentError when it is not a number from 3 to 125, or is an exit code of other outcomes
 * @public so that tests try all codes
 */
export function skipExitCode(text: string): number {
  const code = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (usedCodes.has(code)) {
    throw new InvalidArgumentError(`Exit code ${code} means something else here; 99 is free.`);
  }
  if (!(code >= minCode && code <= maxCode)) {
    throw new InvalidArgumentError(`Expected a number from ${minCode} to ${maxCode}, such as 99.`);
  }
  return code;
}

/** What a scheduler does with the exit codes; docs/operations.md has all of it. */
const exitCodesText = `
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

function addHelpTexts(program: Command): void {
  program.addHelpText("after", `${start}${exitCodesText}`);
  for (const command of program.commands) {
    const lines = examples[command.name()] ?? [];
    if (lines.length > 0) {
      command.addHelpText("after", ["\nExamples:", ...lines.map((line) => `  ${line}`), ""].join("\n"));
    }
  }
}

/** Command lines that show what a command is for, by the name of the command. @public so that docs and tests read them */
export const examples: Readonly<Record<string, readonly string[]>> = {
  run: [
    "infer-batch run job.yaml",
    "infer-batch run job.yaml --param ds=2026-01-31",
    "infer-batch run job.yaml --worker 0/4 --steal",
  ],
  backfill: ["infer-batch backfill job.yaml --param ds=2026-01-01..2026-01-31"],
  pipe: ["cat rows.arrows | infer-batch pipe job.yaml > predictions.arrows"],
  plan: ["infer-batch plan job.yaml --param ds=2026-01-31"],
  preview: [
    "infer-batch preview job.yaml",
    "infer-batch preview job.yaml --sample 50",
    'infer-batch preview job.yaml --where "amount > 1000" --json',
  ],
  compare: [
    "infer-batch compare job.yaml --model churn-int8.onnx",
    "infer-batch compare job.yaml --model models:/churn@champion --model models:/churn@next",
  ],
  status: [
    "infer-batch status job.yaml",
    "infer-batch status jobs/*.yaml --held",
    "infer-batch status jobs/*.yaml --expect-by 06:00",
  ],
  checks: ["infer-batch checks job.yaml --last 60", "infer-batch checks job.yaml --last 30 --json"],
  history: ["infer-batch history job.yaml", "infer-batch history job.yaml --last 7 --json"],
  diff: [
    "infer-batch diff job.yaml --param ds=2026-01-31 --against ds=2026-01-30",
    "infer-batch diff out/new --against out/old --key customer_id --json",
  ],
  evaluate: [
    "infer-batch evaluate job.yaml --labels churn.parquet --key customer_id --label churned --param ds=2026-01-01..2026-01-31",
    "infer-batch evaluate job.yaml --labels crm.churn --label churned --date ds --by region --json",
  ],
  prune: ["infer-batch prune job.yaml --keep 30 --dry-run", "infer-batch prune job.yaml --older-than 90d"],
  erase: [
    "infer-batch erase job.yaml --keys customers.txt --dry-run",
    "infer-batch erase job.yaml --keys customers.csv --key customer_id",
  ],
  approve: ['infer-batch approve job.yaml --reason "prices rose on purpose"'],
  discard: ['infer-batch discard job.yaml --reason "features in grams"'],
  init: ["infer-batch init --model churn.onnx --input 'data/*.parquet'"],
  inspect: ["infer-batch inspect churn.onnx", "infer-batch inspect data/part-0.parquet"],
};

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
