import { Command, CommanderError, Option } from "commander";
import { programVersion } from "../job/attempt.js";
import { type OutputOptions, failWith, usageExit, usageHint } from "./failure.js";
import type { CommandLine, Flag } from "./flags.js";
import { type Io, safeIo, safeOutput, terminalWidth } from "./io.js";

/** What a command is for, of which `infer-batch --help` shows the first sentence, and its file, which is loaded when it is given. */
type Entry = readonly [about: string, load: () => Promise<CommandLine>];

/** `--help` does not wait for the native libraries, which their files load. */
const commands: Readonly<Record<string, Readonly<Record<string, Entry>>>> = {
  Start: {
    "init [spec]": [
      "Write a job spec for a model and its input. It has comments, and no file is overwritten",
      async () => (await import("./commands/init.js")).initCommand,
    ],
    "inspect <file>": [
      "Show what a model or a data file contains. Of a model its inputs and outputs; of a Parquet or Arrow file its columns, row groups and NULL counts; of a Delta or Iceberg table its version, rows and columns",
      async () => (await import("./commands/inspect.js")).inspectCommand,
    ],
    "validate <spec>": [
      "Check a spec, and its model against the first shard. Writes nothing",
      async () => (await import("./commands/plan.js")).validateCommand,
    ],
    "plan <spec>": [
      "Show what a run would do. Its shards, rows, spans, bindings and target; if the run would be refused now, the same error. Changes nothing",
      async () => (await import("./commands/plan.js")).planCommand,
    ],
    "preview <spec>": [
      "Score some rows, and print them. The first rows, or a random sample. Writes nothing to the target, and does not look at it",
      async () => (await import("./commands/preview.js")).previewCommand,
    ],
    "doctor [spec]": [
      "Try this machine, its GPUs and a model's server. Reports what is missing, and runs two batches on each execution provider. With a spec, measures the speed of its model by batch size and threads. Exit code 64 means that this machine cannot run the spec's providers, 75 that a provider fails or has no memory. For a model on a server: checks that each server answers, prints the model's signature, and sends blank rows for some seconds to measure its throughput",
      async () => (await import("./commands/doctor.js")).doctorCommand,
    ],
    schema: [
      "Print the JSON Schema of the job spec. Editors complete and check a spec with it",
      async () => {
        const { editorSchema } = await import("../job/jobfile/job-spec.js");
        const text = JSON.stringify(editorSchema(), undefined, 2);
        const examples = ["infer-batch schema > infer-batch.schema.json"];
        return { flags: {}, examples, run: () => Promise.resolve({ json: editorSchema, text: () => text }) };
      },
    ],
  },
  Run: {
    "run <spec>": [
      "Score the rows that are not committed yet. The same command resumes a run that was interrupted, and does nothing when the run is complete",
      async () => (await import("./commands/run.js")).runCommand,
    ],
    "backfill <spec>": [
      "Run once for each date of a range. All runs have one version of the model. Complete runs are skipped, so that the same command resumes a backfill",
      async () => (await import("./commands/backfill.js")).backfillCommand,
    ],
    "pipe <spec>": [
      "Score an Arrow stream. From stdin to stdout, one record batch out for each one in. The spec's input paths and its target are ignored",
      async () => (await import("./commands/pipe.js")).pipeCommand,
    ],
    "serve <spec>": [
      "Answer requests over HTTP. With the last published run: its rows are looked up, others are scored by its model",
      async () => (await import("./commands/serve.js")).serveCommand,
    ],
  },
  Look: {
    "status <specs...>": [
      "Show how far runs are. Of several specs, a table with a line for each. If an output is damaged, every fault and exit code 66. Writes nothing",
      async () => (await import("./commands/status.js")).statusCommand,
    ],
    "history <spec>": [
      "List the runs of a job, the latest first. What became of each, its rows, its model, its last error, and who decided. Writes nothing",
      async () => (await import("./commands/history.js")).historyCommand,
    ],
    "stats <spec>": [
      "Show the columns of a run beside earlier ones. Of predictions and, if the run was planned with checks, of features, when all spans are committed. Writes nothing",
      async () => (await import("./commands/stats.js")).statsCommand,
    ],
    "rejects <spec>": [
      "Show rejected rows, grouped by reason",
      async () => (await import("./commands/rejects.js")).rejectsCommand,
    ],
    "diff <spec>": [
      "Compare the predictions of two runs by key. Or of two tables, or of two folders of Parquet files: rows that were added, that are gone and that changed, and by how much. Writes nothing",
      async () => (await import("./commands/diff.js")).diffCommand,
    ],
    "compare <spec>": [
      "Compare two models on some rows of a job. How fast each is, and how far their predictions agree. Nothing is written",
      async () => (await import("./commands/compare.js")).compareCommand,
    ],
    "evaluate <spec>": [
      "Judge predictions by labels that came later. Joined by key: AUC, log loss, precision, recall and calibration of a class, or the errors of numbers, by night. Writes nothing",
      async () => (await import("./commands/evaluate.js")).evaluateCommand,
    ],
    "checks <spec>": [
      "Show which past nights the checks would hold. Judges the last published runs as if each were tonight, by their stored profiles, and lists the columns that would have held one or warned, with the factor above which they would not. Writes nothing",
      async () => (await import("./commands/checks.js")).checksCommand,
    ],
  },
  Decide: {
    "approve <spec>": [
      "Publish a run that its checks hold. Needs neither the model nor the input",
      async () => (await import("./commands/decide.js")).approveCommand,
    ],
    "discard <spec>": [
      "Remove the rows of a held run. It is never published; run --new-run scores the input again",
      async () => (await import("./commands/decide.js")).discardCommand,
    ],
    "rollback <spec>": [
      "Put back the rows that the latest run replaced. Even if that run had other params than this command (mode replace, with either value of swap)",
      async () => (await import("./commands/rollback.js")).rollbackCommand,
    ],
  },
  Clean: {
    "prune <spec>": [
      "Remove the output of old runs. Files of predictions and rejects, in Postgres rejects, profiles and previous tables. Rows in a table stay. A pruned run is not scored again by itself",
      async () => (await import("./commands/prune.js")).pruneCommand,
    ],
    "erase <spec>": [
      "Remove persons from the output of all runs. Predictions, rejected rows and, in Postgres, previous tables. What the input still has is scored again by the next run that reads it",
      async () => (await import("./commands/erase.js")).eraseCommand,
    ],
  },
};

const listed = Object.entries(commands).flatMap(([group, entries]) =>
  Object.entries(entries).map(([usage, [about, load]]) => ({ group, usage, about, load })),
);

const firstExamples = [
  "infer-batch init --model churn.onnx --input 'data/*.parquet'",
  "infer-batch plan job.yaml",
  "infer-batch run job.yaml --param ds=2026-01-31",
];

function withExamples(about: string, examples: readonly string[]): string {
  return [about, "", "Examples:", ...examples.map((example) => `  ${example}`)].join("\n");
}

/** What a scheduler does with the exit codes; docs/runbook.md has all of it. */
const exitCodesText = `
Exit codes:
  0    complete, or nothing left to do
  64   bad usage, spec or permission: correct it; a retry cannot help
  65   bad data: correct it; a retry cannot help
  66   input, model, spec or output changed since planning
  67   held by the checks, discarded, pruned, or late (--expect-by): a person decides
  75   temporary, such as input that is not ready: run the same command again
  1    a bug in infer-batch

infer-batch help <command> shows its options, the package's docs/README.md the pages by task.
`;

/**
 * Builds the command-line parser.
 * @param only the command whose options it knows; default: those of all commands
 * @public so that docs and tests read them
 */
export async function createProgram(process: Io, only?: string): Promise<Command> {
  const io = safeIo(process);
  const about =
    "Score every row of a table in Parquet or Arrow files with an ONNX model, exactly once. A job that was killed resumes.";
  const program = new Command("infer-batch")
    .description(about)
    .usage("<command> [options]")
    .version(programVersion)
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .configureHelp({
      visibleCommands: (command) => [...command.commands],
      subcommandTerm: (command) => command.name(),
      subcommandDescription: (command) => command.description().replace(/\. [^]*/, ""),
      commandDescription: () => withExamples(about, firstExamples),
    })
    .showHelpAfterError("(infer-batch --help lists the commands)")
    .addHelpText("after", exitCodesText);
  for (const { group, usage, about: purpose, load } of listed) {
    const command = program.command(usage).description(purpose).helpGroup(`${group}:`);
    const name = command.name();
    if (only !== undefined && only !== name) {
      continue;
    }
    const line = await load();
    const { argument = ["Job spec, a YAML file"], flags, examples = [`infer-batch ${name} job.yaml`] } = line;
    for (const taken of command.registeredArguments) {
      taken.description = argument[0];
      taken.default(argument[1]);
    }
    for (const [flag, meaning] of Object.entries(flags)) {
      command.addOption(optionOf(flag, meaning, line));
    }
    command.configureHelp({ commandDescription: () => withExamples(purpose, examples) });
    command.showHelpAfterError(
      [
        `  usage: infer-batch ${name} ${command.usage()}`,
        `  such as: ${examples[0]}`,
        `(infer-batch ${name} --help lists the options)`,
      ].join("\n"),
    );
    command.action(async (...values) => {
      const [taken, options] = command.registeredArguments.length === 0 ? [undefined, values[0]] : values;
      const answer = await line.run(taken as never, options as never, io);
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
    listed.map(async ({ usage, load }) => [usage.split(" ")[0], (await load()).examples ?? []]),
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
export async function runProgram(args: readonly string[], io: Io): Promise<void> {
  const [first, second] = args.filter((word) => !word.startsWith("-"));
  const program = await createProgram(io, (first === "help" ? second : first) ?? "");
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
