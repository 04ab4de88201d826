import { Command, CommanderError, Option } from "commander";
import { programVersion } from "../job/attempt.js";
import type { EarlyThreads } from "../models/onnx/early-threads.js";
import { type OutputOptions, failWith, usageExit, usageHint } from "./failure.js";
import type { CommandLine, Flag } from "./flags.js";
import { type Io, safeIo, safeOutput, terminalWidth } from "./io.js";

/**
 * The commands with their arguments, what they are for, and their files, which are loaded when a command is given: `--help`
 * does not wait for the native libraries.
 */
const commands: Readonly<Record<string, readonly [about: string, load: () => Promise<CommandLine>]>> = {
  "run <spec>": [
    "Score the rows that are not committed yet and finish the run. The same command resumes a run that was interrupted, and does nothing when the run is complete",
    async () => (await import("./commands/run.js")).runCommand,
  ],
  "backfill <spec>": [
    "Carry out one run for each date of a range, with one version of the model. Complete runs are skipped, so that the same command resumes a backfill",
    async () => (await import("./commands/backfill.js")).backfillCommand,
  ],
  "pipe <spec>": [
    "Score an Arrow IPC stream from stdin to stdout, one record batch out for each one in. The spec's input paths and its target are ignored",
    async () => (await import("./commands/pipe.js")).pipeCommand,
  ],
  "plan <spec>": [
    "Show the shards, rows, spans, bindings and target of a run. If the run would be refused now, end with the same error. Changes nothing",
    async () => (await import("./commands/plan.js")).planCommand,
  ],
  "preview <spec>": [
    "Score the first rows of a job, or a random sample, and print them with their predictions. Writes nothing to the target, and does not look at it",
    async () => (await import("./commands/preview.js")).previewCommand,
  ],
  "validate <spec>": [
    "Check a spec, its model and how the model binds to the first shard, without writing anything",
    async () => (await import("./commands/plan.js")).validateCommand,
  ],
  "compare <spec>": [
    "Score the first rows of a job with two models, and print how fast each is and how far their predictions agree. Nothing is written",
    async () => (await import("./commands/compare.js")).compareCommand,
  ],
  "status <specs...>": [
    "Show the progress of a run; of several specs, a table with a line for each. If an output is damaged, list every fault and end with exit code 66. Writes nothing",
    async () => (await import("./commands/status.js")).statusCommand,
  ],
  "stats <spec>": [
    "Show the profiles of a run whose spans are all committed: of its predictions and, if it was planned with checks, of the features. Writes nothing",
    async () => (await import("./commands/stats.js")).statsCommand,
  ],
  "checks <spec>": [
    "Judge the last published runs as if each were tonight, by their stored profiles, and list the columns that would have held one or warned, with the factor above which they would not. Writes nothing",
    async () => (await import("./commands/checks.js")).checksCommand,
  ],
  "history <spec>": [
    "List the runs of a job at its target, the latest first: what became of each, its rows, its model, its last error, and who decided. Writes nothing",
    async () => (await import("./commands/history.js")).historyCommand,
  ],
  "diff <spec>": [
    "Compare the predictions of two runs, two tables or two folders of Parquet files by key: rows that were added, that are gone and that changed, and by how much. Writes nothing",
    async () => (await import("./commands/diff.js")).diffCommand,
  ],
  "evaluate <spec>": [
    "Judge published predictions by labels that came later, joined by key: AUC, log loss, precision, recall and calibration of a class, or the errors of numbers, by night. Writes nothing",
    async () => (await import("./commands/evaluate.js")).evaluateCommand,
  ],
  "prune <spec>": [
    "Remove the output of old runs of a job: files of predictions and rejects, in Postgres rejects, profiles and previous tables. Rows in a table stay. A pruned run is not scored again by itself",
    async () => (await import("./commands/prune.js")).pruneCommand,
  ],
  "erase <spec>": [
    "Remove the rows of persons who asked for it from the output of all runs of a job: predictions, rejected rows and, in Postgres, previous tables. What the input still has is scored again by the next run that reads it",
    async () => (await import("./commands/erase.js")).eraseCommand,
  ],
  "approve <spec>": [
    "Publish a run that is held because it failed its checks. Needs neither the model nor the input",
    async () => (await import("./commands/decide.js")).approveCommand,
  ],
  "discard <spec>": [
    "Decide that a staged run is never published, and remove its rows. run --new-run scores the input again",
    async () => (await import("./commands/decide.js")).discardCommand,
  ],
  "rejects <spec>": [
    "Show the rejected rows of a run, grouped by reason",
    async () => (await import("./commands/rejects.js")).rejectsCommand,
  ],
  "rollback <spec>": [
    "Put back the rows that the latest run into this target replaced, even if that run had other params than this command (mode replace, with either value of swap)",
    async () => (await import("./commands/rollback.js")).rollbackCommand,
  ],
  "init [spec]": [
    "Write a commented job spec for a model and its input files. It never overwrites a file",
    async () => (await import("./commands/init.js")).initCommand,
  ],
  "inspect <file>": [
    "Show the inputs and outputs of a model, the columns, row groups and NULL counts of a Parquet or Arrow file, or the version, rows and columns of a Delta or Iceberg table",
    async () => (await import("./commands/inspect.js")).inspectCommand,
  ],
  "doctor [spec]": [
    "Check what scoring on a GPU needs, report what is missing, and run two batches on each execution provider. With a spec, measure the speed of its model by batch size and threads. Exit code 64 means that this machine cannot run the spec's providers, 75 that a provider fails or has no memory. For a model on a server: check that each server answers, print the model's signature, and send blank rows for some seconds to measure its throughput",
    async () => (await import("./commands/doctor.js")).doctorCommand,
  ],
  schema: [
    "Print the JSON Schema of the job spec, for editors",
    async () => {
      const { editorSchema } = await import("../job/jobfile/job-spec.js");
      const text = JSON.stringify(editorSchema(), undefined, 2);
      return { flags: {}, run: () => Promise.resolve({ json: editorSchema, text: () => text }) };
    },
  ],
};

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
 * Builds the command-line parser.
 * @param only the command whose options it knows; default: those of all commands
 * @param early threads for `run`, which starts its own when there are none
 * @public so that docs and tests read them
 */
export async function createProgram(process: Io, only?: string, early?: EarlyThreads): Promise<Command> {
  const io = safeIo(process);
  const program = new Command("infer-batch")
    .description(
      "Score every row of a table in Parquet or Arrow files with an ONNX model, exactly once. A job that was killed resumes.",
    )
    .version(programVersion)
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .configureHelp({ showGlobalOptions: true, subcommandTerm: (command) => `${command.name()} ${command.usage()}` })
    .showHelpAfterError("(infer-batch --help lists the commands and options)")
    .addHelpText("after", helpText);
  for (const [usage, [about, load]] of Object.entries(commands)) {
    const command = program.command(usage).description(about);
    if (only !== undefined && only !== command.name()) {
      continue;
    }
    const line = await load();
    const { argument = ["Job spec, a YAML file"], flags, examples = [] } = line;
    for (const taken of command.registeredArguments) {
      taken.description = argument[0];
      taken.default(argument[1]);
    }
    for (const [flag, meaning] of Object.entries(flags)) {
      command.addOption(optionOf(flag, meaning, line));
    }
    if (examples.length > 0) {
      command.addHelpText("after", ["\nExamples:", ...examples.map((example) => `  ${example}`), ""].join("\n"));
    }
    command.action(async (...values) => {
      const [taken, options] = command.registeredArguments.length === 0 ? [undefined, values[0]] : values;
      const answer = await line.run(taken as never, options as never, io, early);
      if (answer) {
        const isJson = command.opts<{ json?: boolean }>().json === true;
        const lines = isJson
          ? [answer.json()].flat().map((value) => JSON.stringify(value))
          : [answer.text(terminalWidth(io.stdout))].flat();
        io.stdout.write(lines.map((each) => `${each}\n`).join(""));
      }
      if (answer?.error !== undefined) {
        throw answer.error;
      }
    });
  }
  return program;
}

/** Command lines that show what a command is for, by the name of the command. @public so that docs and tests read them */
export async function examplesOfAll(): Promise<Readonly<Record<string, readonly string[]>>> {
  const all = await Promise.all(
    Object.entries(commands).map(async ([usage, [, load]]) => [usage.split(" ")[0], (await load()).examples ?? []]),
  );
  return Object.fromEntries(all);
}

function optionOf(flag: string, meaning: Flag, { required = [], conflicts = {} }: CommandLine): Option {
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
  const [first, second] = args.filter((word) => !word.startsWith("-"));
  const program = await createProgram(io, (first === "help" ? second : first) ?? "", early);
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
      const failed = program.commands.find((candidate) => candidate.name() === command);
      io.exitCode = failWith(error, failed?.opts<OutputOptions>() ?? {}, io);
    }
  }
}
