import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { programVersion } from "../job/attempt.js";
import type { EarlyThreads } from "../models/onnx/early-threads.js";
import { rangeSteps } from "../run/series/backfill.js";
import { type EngineSpec, parseProviders, providerNames } from "../job/jobfile/engine-spec.js";
import { exitCodes } from "../base/errors.js";
import { type OutputOptions, failWith, usageExit, usageHint } from "./failure.js";
import { type Io, type SafeIo, safeIo, safeOutput } from "./io.js";
import { timeOfDay } from "../base/texts.js";

/** What an option does; with how its value is read, or what it may be, and what it is by default. */
type Flag =
  | string
  | readonly [text: string, value: ((text: string, before: never) => unknown) | readonly string[], preset?: unknown];

/** A command, as `--help`, the docs and the parser have it. */
interface CommandLine {
  readonly about: string;
  /** Its argument, and what it is; null: it takes none. Default: a spec. */
  readonly argument?: readonly [name: string, text: string, preset?: string] | null;
  readonly flags: Readonly<Record<string, Flag>>;
  readonly required?: readonly string[];
  /** Options that exclude another one. */
  readonly conflicts?: Readonly<Record<string, string>>;
  readonly examples?: readonly string[];
  /** Loads what carries it out, so that `--help` does not wait for the native libraries. */
  readonly load: () => Promise<(argument: never, options: never, io: SafeIo, early?: EarlyThreads) => Promise<void>>;
}

const mostRows = 999_999_999;
const spec = ["<spec>", "Job spec, a YAML file"] as const;
const param = paramAs("Set a param of the spec; may be repeated");
const run = { "--run <id>": "The run, as history lists it, in place of --param" };
const json = { "--json": "Print one line of JSON" };
const logs: CommandLine["flags"] = {
  "--log-level <level>": ["Lowest level of log lines", ["debug", "info", "warn", "error"], "info"],
  "--log-format <format>": ["Format of log lines on stderr", ["pretty", "json"], "pretty"],
};
const quiet = { "--quiet": "Print errors only" };
const provider: CommandLine["flags"] = {
  "--provider <names>": [
    "Execution providers to use in place of engine.providers, such as webgpu or cuda,cpu; auto: the first that works",
    providersOf,
  ],
};
const deciding: CommandLine["flags"] = {
  "--reason <text>": ["Why; recorded with the decision", onceNotEmpty],
  "--by <name>": "Who decides, other than `checks`. Default: the Airflow task, else the user of this process",
  "--run <id>":
    "The run, as history lists it, in place of --param; with --param: refuse to decide if the latest run of these params has another id",
  ...json,
};

const commands: Readonly<Record<string, CommandLine>> = {
  run: {
    about:
      "Score the rows that are not committed yet and finish the run. The same command resumes a run that was interrupted, and does nothing when the run is complete",
    flags: {
      ...param,
      "--worker <i/n>":
        "Be worker i of n that share the run, counted from 0. Default: from the environment of a Kubernetes Indexed Job or an AWS Batch array job, else 0/1",
      "--steal": "After this worker's own share, score the spans that other workers have not committed",
      "--new-run":
        "If the run of this spec is complete, held, discarded or damaged, its table refuses its rows, or its input, model or spec changed, plan a new run; otherwise continue the run",
      "--reuse":
        "Let --new-run take the predictions of unchanged rows from the run that it replaces, as the spec's reuse says. Default: a new run scores all rows",
      "--allow-duplicates":
        "Allow --new-run to append to a table that is not empty; rows may then be there twice (Postgres: append)",
      "--allow-older": "Allow this run to overwrite the rows of a newer run of this job (Postgres: upsert, replace)",
      ...provider,
      "--skip-exit-code <code>": [
        "Exit code when the run is already complete, such as 99, which marks an Airflow task as skipped",
        skipExitCode,
      ],
      "--limit <n>": [
        "Try the job: score only the first n rows, into --output, without checks, reports and pings",
        countOf(mostRows),
      ],
      "--output <folder>": "Folder for the Parquet parts of --limit, relative to the current folder or in a store",
      "--json": "Print the result as one line of JSON on stdout",
      ...quiet,
      "--no-progress": "Print no progress",
      "--metrics-port <port>": [
        "Serve Prometheus metrics at http://127.0.0.1:<port>/metrics during the run; 0 takes a free port",
        portOf,
      ],
      "--profile <file>": "Write a trace of timings for the trace viewer Perfetto; log the time by stage",
      ...logs,
    },
    examples: [
      "infer-batch run job.yaml",
      "infer-batch run job.yaml --param ds=2026-01-31",
      "infer-batch run job.yaml --worker 0/4 --steal",
    ],
    load: async () => (await import("./commands/run.js")).runCommand,
  },
  backfill: {
    about:
      "Carry out one run for each date of a range, with one version of the model. Complete runs are skipped, so that the same command resumes a backfill",
    flags: {
      ...paramAs("Set a param of the spec; may be repeated. One takes a range of dates: ds=2026-01-01..2026-01-31"),
      "--step <step>": [
        "Time between two values. Default: day, or month for a range such as 2026-01..2026-12, or hour for 2026-01-01T00..2026-01-01T23",
        rangeSteps,
      ],
      "--parallel <n>": [
        "Runs at once, which share cores and memory. Runs with checks, and runs into Postgres with upsert or replace, go one at a time",
        countOf(64),
        1,
      ],
      "--stop-on-failure": "Start no further run after one that fails or is held by its checks",
      "--reprocess <which>": [
        "Which runs to score again as new runs: failed are those that are held, discarded or damaged, or whose input, model or spec changed; completed are all of them",
        ["none", "failed", "completed"],
        "none",
      ],
      "--allow-duplicates":
        "Allow --reprocess to append to a table that is not empty; rows may then be there twice (Postgres: append)",
      "--allow-older": "Allow these runs to overwrite the rows of newer runs of this job (Postgres: upsert, replace)",
      "--json": "Print one line of JSON for each run, and one for all of them at the end",
      ...quiet,
      "--no-progress": "Print no progress",
      ...logs,
    },
    examples: ["infer-batch backfill job.yaml --param ds=2026-01-01..2026-01-31"],
    load: async () => (await import("./commands/backfill.js")).backfillCommand,
  },
  pipe: {
    about:
      "Score an Arrow IPC stream from stdin to stdout, one record batch out for each one in. The spec's input paths and its target are ignored",
    flags: {
      ...param,
      "--rejects <file>": "File for rows that cannot be scored, one line of JSON each",
      ...quiet,
      ...logs,
    },
    examples: ["cat rows.arrows | infer-batch pipe job.yaml > predictions.arrows"],
    load: async () => (await import("./commands/pipe.js")).pipeCommand,
  },
  plan: {
    about:
      "Show the shards, rows, spans, bindings and target of a run. If the run would be refused now, end with the same error. Changes nothing",
    flags: { ...param, ...provider, "--json": "Print the plan as JSON, with what was not checked" },
    examples: ["infer-batch plan job.yaml --param ds=2026-01-31"],
    load: async () => (await import("./commands/plan.js")).planCommand,
  },
  preview: {
    about:
      "Score the first rows of a job, or a random sample, and print them with their predictions. Writes nothing to the target, and does not look at it",
    flags: {
      ...param,
      "--limit <n>": ["Most rows", countOf(10_000), 20],
      "--sample <n>": [
        "Number of rows to draw at random from the whole input, each with the same chance, and to score in place of the first rows",
        countOf(10_000),
      ],
      "--seed <number>": ["The same seed draws the same sample", countOf(mostRows), 1],
      "--where <sql>": "Only rows for which this condition holds, in addition to input.where",
      "--features <n>": ["Most features to print, in addition to the columns of output.columns", countOf(10_000), 4],
      "--json": "Print one line of JSON for each row",
      "--csv": "Print CSV with a header",
    },
    conflicts: { sample: "limit", json: "csv" },
    examples: [
      "infer-batch preview job.yaml",
      "infer-batch preview job.yaml --sample 50",
      'infer-batch preview job.yaml --where "amount > 1000" --json',
    ],
    load: async () => (await import("./commands/preview.js")).previewCommand,
  },
  validate: {
    about: "Check a spec, its model and how the model binds to the first shard, without writing anything",
    flags: param,
    load: async () => (await import("./commands/plan.js")).validateCommand,
  },
  compare: {
    about:
      "Score the first rows of a job with two models, and print how fast each is and how far their predictions agree. Nothing is written",
    flags: {
      "--model <uri>": [
        "Model to compare: a file, or a URI as model.path. Given once, it is compared with the model of the spec; given twice, A with B",
        collect,
      ],
      "--limit <rows>": ["Number of rows to score, from the beginning of the input", countOf(mostRows), 100_000],
      "--tolerance <number>": ["Count the rows whose numbers differ by more", toleranceOf, 0.01],
      ...param,
      ...json,
    },
    required: ["model"],
    examples: [
      "infer-batch compare job.yaml --model churn-int8.onnx",
      "infer-batch compare job.yaml --model models:/churn@champion --model models:/churn@next",
    ],
    load: async () => (await import("./commands/compare.js")).compareCommand,
  },
  status: {
    about:
      "Show the progress of a run; of several specs, a table with a line for each. If an output is damaged, list every fault and end with exit code 66. Writes nothing",
    argument: ["<specs...>", "Job specs, YAML files"],
    flags: {
      ...param,
      ...run,
      "--held": "Show only runs that are held by their checks",
      "--failed": "Show only runs that are neither published nor held, and specs with an error",
      "--expect-by <time>": [
        "After this time of day in the spec's timezone, such as 06:00, end with 67 if the run of a spec is not published, and name each such job",
        timeOf,
      ],
      "--json": "Print one line of JSON for each spec",
    },
    examples: [
      "infer-batch status job.yaml",
      "infer-batch status jobs/*.yaml --held",
      "infer-batch status jobs/*.yaml --expect-by 06:00",
    ],
    load: async () => (await import("./commands/status.js")).statusCommand,
  },
  stats: {
    about:
      "Show the profiles of a run whose spans are all committed: of its predictions and, if it was planned with checks, of the features. Writes nothing",
    flags: {
      ...param,
      "--run <id>":
        "Show the run of this id, which may have other params: the latest run of its params, or a published one before it. Default: the latest run of these params",
      ...json,
    },
    load: async () => (await import("./commands/stats.js")).statsCommand,
  },
  checks: {
    about:
      "Judge the last published runs as if each were tonight, by their stored profiles, and list the columns that would have held one or warned, with the factor above which they would not. Writes nothing",
    flags: { ...param, "--last <count>": ["Number of runs to judge", countOf(1000), 60], ...json },
    examples: ["infer-batch checks job.yaml --last 60", "infer-batch checks job.yaml --last 30 --json"],
    load: async () => (await import("./commands/checks.js")).checksCommand,
  },
  history: {
    about:
      "List the runs of a job at its target, the latest first: what became of each, its rows, its model, its last error, and who decided. Writes nothing",
    flags: { ...param, "--last <count>": ["Number of runs to list", countOf(1000), 30], ...json },
    examples: ["infer-batch history job.yaml", "infer-batch history job.yaml --last 7 --json"],
    load: async () => (await import("./commands/history.js")).historyCommand,
  },
  diff: {
    about:
      "Compare the predictions of two runs, two tables or two folders of Parquet files by key: rows that were added, that are gone and that changed, and by how much. Writes nothing",
    argument: ["<spec>", "Job spec, a YAML file; or a folder of Parquet files"],
    flags: {
      ...paramAs("Set a param of the spec; may be repeated. These params name the run that is compared"),
      ...run,
      "--against <name=value>": [
        "Compare with the run that has this param in place of that of --param, with the run of this id, or with this table; may be repeated. For a folder: the other folder",
        collect,
      ],
      "--table <name>": "Compare this table of the spec's database in place of a run, such as scores.daily",
      "--key <column>": [
        "Column that identifies a row; may be repeated. Default: output.postgres.key, else checks.unique, reuse.key or output.columns",
        collect,
      ],
      "--tolerance <difference>": [
        "Largest difference of two floating-point numbers that count as equal",
        toleranceOf,
        0,
      ],
      "--json": "Print one line of JSON, with all columns",
    },
    required: ["against"],
    examples: [
      "infer-batch diff job.yaml --param ds=2026-01-31 --against ds=2026-01-30",
      "infer-batch diff out/new --against out/old --key customer_id --json",
    ],
    load: async () => (await import("./commands/diff.js")).diffCommand,
  },
  evaluate: {
    about:
      "Judge published predictions by labels that came later, joined by key: AUC, log loss, precision, recall and calibration of a class, or the errors of numbers, by night. Writes nothing",
    flags: {
      "--labels <file>":
        "The labels: a .parquet or .csv file, a folder of Parquet files, or a table of the spec's database, such as crm.churn",
      "--label <column>": "Column of the labels",
      "--key <column>": [
        "Column that identifies a row, in the labels and in the predictions; may be repeated. Default: as in diff",
        collect,
      ],
      "--date <column>": "Column of the labels that has the date of the run. Default: a label is that of every night",
      "--prediction <column>": "Predicted column that is judged. Default: the only one that has numbers",
      "--positive <label>": "Label of the class whose probability is predicted. Default: 1 or true",
      "--threshold <score>": ["Score from which on a row counts as of the class", toleranceOf, 0.5],
      "--by <column>": "Judge the rows of each value of this column, too",
      ...paramAs("Set a param of the spec; may be repeated. One may be a range of dates: ds=2026-01-01..2026-01-31"),
      ...json,
    },
    required: ["labels", "label"],
    examples: [
      "infer-batch evaluate job.yaml --labels churn.parquet --key customer_id --label churned --param ds=2026-01-01..2026-01-31",
      "infer-batch evaluate job.yaml --labels crm.churn --label churned --date ds --by region --json",
    ],
    load: async () => (await import("./commands/evaluate.js")).evaluateCommand,
  },
  prune: {
    about:
      "Remove the output of old runs of a job: files of predictions and rejects, in Postgres rejects, profiles and previous tables. Rows in a table stay. A pruned run is not scored again by itself",
    flags: {
      ...param,
      "--keep <count>": ["Number of latest published runs to keep", countOf(1_000_000)],
      "--older-than <age>": ["Prune runs whose date is further back, in days or weeks, such as 90d", daysOf],
      "--dry-run": "Show what would be removed, and remove nothing",
      ...json,
    },
    conflicts: { keep: "olderThan" },
    examples: ["infer-batch prune job.yaml --keep 30 --dry-run", "infer-batch prune job.yaml --older-than 90d"],
    load: async () => (await import("./commands/prune.js")).pruneCommand,
  },
  erase: {
    about:
      "Remove the rows of persons who asked for it from the output of all runs of a job: predictions, rejected rows and, in Postgres, previous tables. What the input still has is scored again by the next run that reads it",
    flags: {
      "--keys <file>":
        "Whose rows: a text file with a key on each line, or a .csv or .parquet file with the key columns",
      "--key <column>": [
        "Output column that the keys are values of; may be repeated. Default: the columns of the file; for a text file, the single-column key in output.postgres.key, checks.unique or reuse.key, otherwise the only column of output.columns. Required for a text file if these keys name different columns",
        collect,
      ],
      ...param,
      "--dry-run": "Count the rows, and remove nothing",
      ...json,
    },
    required: ["keys"],
    examples: [
      "infer-batch erase job.yaml --keys customers.txt --dry-run",
      "infer-batch erase job.yaml --keys customers.csv --key customer_id",
    ],
    load: async () => (await import("./commands/erase.js")).eraseCommand,
  },
  approve: {
    about: "Publish a run that is held because it failed its checks. Needs neither the model nor the input",
    flags: {
      ...param,
      ...deciding,
      "--not-normal":
        "Compare no later run with this one, so that the next one like it is held, too. By default later runs may resemble it",
      "--allow-older": "Overwrite the rows of a newer run of this job (Postgres: upsert, replace)",
    },
    examples: ['infer-batch approve job.yaml --reason "prices rose on purpose"'],
    load: async () => (await import("./commands/decide.js")).approveCommand,
  },
  discard: {
    about: "Decide that a staged run is never published, and remove its rows. run --new-run scores the input again",
    flags: { ...param, ...deciding },
    examples: ['infer-batch discard job.yaml --reason "features in grams"'],
    load: async () => (await import("./commands/decide.js")).discardCommand,
  },
  rejects: {
    about: "Show the rejected rows of a run, grouped by reason",
    flags: { ...param, ...run, "--json": "Print one line of JSON for each row" },
    load: async () => (await import("./commands/rejects.js")).rejectsCommand,
  },
  rollback: {
    about:
      "Put back the rows that the latest run into this target replaced, even if that run had other params than this command (mode replace, with either value of swap)",
    flags: { ...param, ...json },
    load: async () => (await import("./commands/rollback.js")).rollbackCommand,
  },
  init: {
    about: "Write a commented job spec for a model and its input files. It never overwrites a file",
    argument: ["[spec]", "File to write", "job.yaml"],
    flags: {
      "--model <file>": "ONNX model: a file, or s3://, gs:// or az://",
      "--input <pattern>": [
        "Input files: a glob such as 'data/*.parquet', or s3://, gs:// or az://; may be repeated",
        collect,
      ],
      "--columns <names>":
        "Comma-separated input columns to copy to the output, such as ids. Default: those that are not features",
      "--output <folder>": "Folder for Parquet output, or s3://, gs:// or az://. Default: out, next to the spec",
      "--postgres [url]": "Write predictions to Postgres instead. A URL with a password is not written into the spec",
      "--table <name>": "Table in Postgres. Default: the table of the job's name in the schema predictions",
      "--name <name>": "Name of the job. Default: from the model's file name",
      "--checks": "Also write, as comments, the keys that hold back a suspicious run",
    },
    required: ["model", "input"],
    examples: ["infer-batch init --model churn.onnx --input 'data/*.parquet'"],
    load: async () => (await import("./commands/init.js")).initCommand,
  },
  inspect: {
    about:
      "Show the inputs and outputs of a model, the columns, row groups and NULL counts of a Parquet or Arrow file, or the version, rows and columns of a Delta or Iceberg table",
    argument: [
      "<file>",
      "ONNX model, Parquet file, Arrow file or stream, or folder of a Delta or Iceberg table on this machine, detected by content; or the URI of a model, as model.path",
    ],
    flags: {
      "--at <version>": "Of a table: a version or the id of a snapshot, a time, a branch or a tag; default: the newest",
      ...json,
    },
    examples: [
      "infer-batch inspect churn.onnx",
      "infer-batch inspect data/part-0.parquet",
      "infer-batch inspect lake/features --at 2026-11-20",
    ],
    load: async () => (await import("./commands/inspect.js")).inspectCommand,
  },
  doctor: {
    about:
      "Check what scoring on a GPU needs, report what is missing, and run two batches on each execution provider. With a spec, measure the speed of its model by batch size and threads. Exit code 64 means that this machine cannot run the spec's providers, 75 that a provider fails or has no memory. For a model on a server: check that each server answers, print the model's signature, and send blank rows for some seconds to measure its throughput",
    argument: ["[spec]", "Job spec whose providers and model to try; default: a tiny model"],
    flags: { ...param, ...json },
    load: async () => (await import("./commands/doctor.js")).doctorCommand,
  },
  schema: {
    about: "Print the JSON Schema of the job spec, for editors",
    argument: null,
    flags: {},
    async load() {
      const { editorSchema } = await import("../job/jobfile/job-spec.js");
      return async (_argument, _options, io) => {
        await Promise.resolve(io.stdout.write(`${JSON.stringify(editorSchema(), undefined, 2)}\n`));
      };
    },
  },
};

/** Command lines that show what a command is for, by the name of the command. @public so that docs and tests read them */
export const examples: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  Object.entries(commands).flatMap(([name, command]) => (command.examples ? [[name, command.examples]] : [])),
);

/** What a scheduler does with the exit codes; docs/runbook.md has all of it. */
const helpText = `
Start with:
  infer-batch init --model churn.onnx --input 'data/*.parquet'
  infer-batch plan job.yaml
  infer-batch run job.yaml

The folder docs of the package explains each task; docs/README.md lists the pages.

Exit codes:
  0    complete, or nothing left to do
  64   bad usage, spec or permission: correct it; a retry cannot help
  65   bad data: correct the data; a retry cannot help
  66   input, model, spec or output changed since the run was planned
  67   held by the checks, discarded, pruned, or late (--expect-by): a person decides
  75   temporary, such as input that is not ready: run the same command again
  1    a bug in infer-batch
`;

/**
 * Builds the command-line parser with all commands and options.
 * @param early threads for `run`, which starts its own when there are none
 * @public so that docs and tests read them
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
    .showHelpAfterError("(infer-batch --help lists the commands and options)")
    .addHelpText("after", helpText);
  for (const [name, { about, argument = spec, flags, required = [], conflicts = {}, load, ...more }] of Object.entries(
    commands,
  )) {
    const command = program.command(name).description(about);
    if (argument !== null) {
      command.argument(...argument);
    }
    for (const [flag, meaning] of Object.entries(flags)) {
      command.addOption(optionOf(flag, meaning, { required, conflicts }));
    }
    if (more.examples !== undefined) {
      command.addHelpText("after", ["\nExamples:", ...more.examples.map((line) => `  ${line}`), ""].join("\n"));
    }
    command.action(async (...given) => {
      const [taken, options] = argument === null ? [undefined, given[0]] : given;
      await (await load())(taken as never, options as never, io, early);
    });
  }
  return program;
}

function optionOf(
  flag: string,
  meaning: Flag,
  { required, conflicts }: Required<Pick<CommandLine, "required" | "conflicts">>,
): Option {
  const [text, value, preset] = typeof meaning === "string" ? [meaning] : meaning;
  const option = new Option(flag, text);
  const name = option.attributeName();
  option.makeOptionMandatory(required.includes(name)).conflicts(conflicts[name] ?? []);
  if (preset !== undefined) {
    option.default(preset, Array.isArray(preset) ? "none" : undefined);
  }
  return value === undefined
    ? option
    : typeof value === "function"
      ? option.argParser(value as (text: string) => unknown)
      : option.choices(value);
}

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

function paramAs(text: string): CommandLine["flags"] {
  return { "--param <name=value>": [text, collect, []] };
}

function collect(value: string, all: readonly string[] = []): string[] {
  return [...all, value];
}
function providersOf(value: string): EngineSpec["providers"] {
  const providers = parseProviders(value);
  if (providers === undefined) {
    throw new InvalidArgumentError(
      `expected auto, or some of ${providerNames.join(", ")} with commas between, cpu last`,
    );
  }
  return providers;
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
