import { Command, InvalidArgumentError, Option } from "commander";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { type Io, type SafeIo, safeIo } from "./io.js";
import { skipExitCode } from "./skip-exit-code.js";
import { programVersion } from "../app/version.js";

/**
 * Every command and option, and nothing that runs: docs and tests read them here.
 * Commands are loaded when they are called: `--help` should not wait for the native libraries.
 * @param early threads for `run`, which has its own where there are none
 */
export function createProgram(process: Io, early?: EarlyThreads): Command {
  const io = safeIo(process);
  const program = new Command("infer-batch")
    .description(
      "Scores every row of a set of Parquet or Arrow shards with an ONNX model, exactly once, resumable at any moment",
    )
    .version(programVersion)
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError("(infer-batch --help lists the commands and options)");
  addRun(program, io, early);
  for (const add of [
    addPipe,
    addPlan,
    addValidate,
    addTune,
    addStatus,
    addRejects,
    addRollback,
    addInit,
    addInspect,
    addDoctor,
    addSchema,
  ]) {
    add(program, io);
  }
  return program;
}

const param = (): Option =>
  new Option("--param <name=value>", "set a param of the spec; may be repeated").default([], "none").argParser(collect);
const logLevel = (): Option =>
  new Option("--log-level <level>", "what to log").choices(["debug", "info", "warn", "error"]).default("info");
const logFormat = (): Option =>
  new Option("--log-format <format>", "how log lines look on stderr").choices(["pretty", "json"]).default("pretty");

function addRun(program: Command, io: SafeIo, early: EarlyThreads | undefined): void {
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
    .option("--new-run", "score once more what is complete, what was planned and has changed since, or what is damaged")
    .option("--allow-duplicates", "let --new-run append to a table that holds the rows of the runs before")
    .option(
      "--allow-older",
      "publish over the rows of a run of this job that was planned later (Postgres: upsert, replace)",
    )
    .addOption(
      new Option(
        "--skip-exit-code <code>",
        "exit with this code when the run is already complete: Airflow takes 99 for a skipped task",
      ).argParser(skipExitCode),
    )
    .option("--json", "end with one line of JSON on stdout")
    .option("--quiet", "no progress and no log lines but errors")
    .option("--no-progress", "no progress bar or progress lines")
    .addOption(
      new Option(
        "--metrics-port <port>",
        "serve metrics for Prometheus at 127.0.0.1:<port>/metrics while it runs; 0 takes a free port",
      ).argParser(portOf),
    )
    .option("--profile <file>", "write a trace of where the time goes, for Perfetto, and log it as a table")
    .addOption(logLevel())
    .addOption(logFormat())
    .action(async (spec: string, options) => {
      const { runCommand } = await import("./commands/run.js");
      await runCommand(spec, options, io, early);
    });
}

function addPipe(program: Command, io: SafeIo): void {
  program
    .command("pipe")
    .description(
      "score an Arrow IPC stream on stdin into one on stdout, a batch for each batch; of the spec, where rows come from and go to is not looked at",
    )
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .option("--rejects <file>", "write rows that could not be scored there, a line of JSON each")
    .option("--quiet", "no log lines but errors")
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
    .description("show shards, rows, spans, bindings and target of a run; writes nothing")
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .option("--json", "print the plan as JSON")
    .action(async (spec: string, options) => {
      const { planCommand } = await import("./commands/plan.js");
      await planCommand(spec, options, io);
    });
}

function addValidate(program: Command, io: SafeIo): void {
  program
    .command("validate")
    .description("check a spec, its model and the binding to its first shard; writes nothing")
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .action(async (spec: string, options) => {
      const { validateCommand } = await import("./commands/validate.js");
      await validateCommand(spec, options, io);
    });
}

function addTune(program: Command, io: SafeIo): void {
  program
    .command("tune")
    .description("measure the model alone by batch size and threads, on the job's first rows; kept for the next time")
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .option("--no-cache", "measure anew, also where this model was measured on this machine before")
    .option("--json", "one line of JSON")
    .action(async (spec: string, options) => {
      const { tuneCommand } = await import("./commands/tune.js");
      await tuneCommand(spec, options, io);
    });
}

function addStatus(program: Command, io: SafeIo): void {
  program
    .command("status")
    .description("show how far a run is, and all that is wrong with a damaged output (exit 66); writes nothing")
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .option("--json", "one line of JSON")
    .action(async (spec: string, options) => {
      const { statusCommand } = await import("./commands/status.js");
      await statusCommand(spec, options, io);
    });
}

function addRejects(program: Command, io: SafeIo): void {
  program
    .command("rejects")
    .description("show the rows that could not be scored, by reason")
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .option("--json", "a line of JSON for each row")
    .action(async (spec: string, options) => {
      const { rejectsCommand } = await import("./commands/rejects.js");
      await rejectsCommand(spec, options, io);
    });
}

function addRollback(program: Command, io: SafeIo): void {
  program
    .command("rollback")
    .description("swap back what the last finished run with mode: replace swapped in")
    .argument("<spec>", "the job spec, a YAML file")
    .addOption(param())
    .option("--json", "one line of JSON")
    .action(async (spec: string, options) => {
      const { rollbackCommand } = await import("./commands/rollback.js");
      await rollbackCommand(spec, options, io);
    });
}

function addInit(program: Command, io: SafeIo): void {
  program
    .command("init")
    .description(
      "write a commented job spec for a model and its shards that runs as it is; never over a file that is there",
    )
    .argument("[spec]", "the file to write", "job.yaml")
    .requiredOption("--model <file>", "the ONNX model, or s3://bucket/key")
    .requiredOption(
      "--input <pattern>",
      "the shards: a glob such as 'data/*.parquet', or s3://bucket/…; may be repeated",
      collect,
    )
    .option(
      "--columns <names>",
      "input columns to carry through, such as the ids, by comma; default: those that are no features",
    )
    .option(
      "--output <folder>",
      "where predictions go as Parquet, a folder or s3://bucket/folder; default: out, beside the spec",
    )
    .option(
      "--postgres [url]",
      "predictions go to Postgres instead; a URL with a password is not written into the spec",
    )
    .option("--table <name>", "the table in Postgres; default: predictions.<name>")
    .option("--name <name>", "the job's name; default: as the model file is called")
    .action(async (spec: string, options) => {
      const { initCommand } = await import("./commands/init.js");
      await initCommand(spec, options, io);
    });
}

function addInspect(program: Command, io: SafeIo): void {
  program
    .command("inspect")
    .description("show what a model takes and gives, or what a shard's columns, row groups and NULLs are")
    .argument(
      "<file>",
      "an ONNX model, or a shard in Parquet or Arrow, on this machine; which of them is told by its content",
    )
    .option("--json", "one line of JSON")
    .action(async (file: string, options) => {
      const { inspectCommand } = await import("./commands/inspect.js");
      await inspectCommand(file, options, io);
    });
}

function addDoctor(program: Command, io: SafeIo): void {
  program
    .command("doctor")
    .description(
      "tell what scoring on a GPU needs and which part of it is missing, and run a batch on each execution provider; exit 64 when the spec's cannot run, 75 when a GPU that is there fails",
    )
    .argument("[spec]", "the job spec whose providers and model to try; default: a tiny model")
    .addOption(param())
    .option("--json", "one line of JSON")
    .action(async (spec: string | undefined, options) => {
      const { doctorCommand } = await import("./commands/doctor.js");
      await doctorCommand(spec, options, io);
    });
}

function addSchema(program: Command, io: SafeIo): void {
  program
    .command("schema")
    .description("print the JSON Schema of the job spec, for editors")
    .action(async () => {
      const { specJsonSchema } = await import("../spec/job-spec.js");
      io.stdout.write(`${JSON.stringify(specJsonSchema(), undefined, 2)}\n`);
    });
}

function collect(given: string, all: readonly string[] = []): string[] {
  return [...all, given];
}

function portOf(given: string): number {
  const port = Number(given);
  if (!/^\d{1,5}$/.test(given) || port > 65_535) {
    throw new InvalidArgumentError("expected a number from 0 to 65535");
  }
  return port;
}
