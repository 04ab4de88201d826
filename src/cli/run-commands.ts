import { type Command, Option } from "commander";
import { rangeSteps } from "../jobs/date-range.js";
import type { SafeIo } from "./io.js";
import { collect, countOf, daysOf, logFormat, logLevel, param, run, toleranceOf } from "./options.js";

export function addBackfill(program: Command, io: SafeIo): void {
  program
    .command("backfill")
    .description(
      "Carry out one run for each date of a range, all with the same version of the model. Complete runs are skipped, so that the same command resumes a backfill",
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

export function addPreview(program: Command, io: SafeIo): void {
  program
    .command("preview")
    .description(
      "Score the first rows of a job and print them with their predictions. Writes nothing to the target, and does not look at it",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(new Option("--limit <n>", "Most rows").default(20).argParser(countOf(10_000)))
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

export function addStatus(program: Command, io: SafeIo): void {
  program
    .command("status")
    .description(
      "Show the progress of a run; of several specs, a table with a line for each. If an output is damaged, list every fault and end with exit code 66. Writes nothing",
    )
    .argument("<specs...>", "Job specs, YAML files")
    .addOption(param())
    .addOption(run())
    .option("--held", "Show only runs that are held by their checks")
    .option("--failed", "Show only runs that are neither complete nor held, and specs with an error")
    .option("--json", "Print one line of JSON for each spec")
    .action(async (specs: string[], options) => {
      const { statusCommand } = await import("./commands/status.js");
      await statusCommand(specs, options, io);
    });
}

export function addStats(program: Command, io: SafeIo): void {
  program
    .command("stats")
    .description(
      "Show the profiles of a run whose spans are all committed: of its predictions and, if it was planned with checks, of the features. Writes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .option(
      "--run <id>",
      "Show the run of this id: a published run of the job with the same params, except for dates. Default: the latest run of these params",
    )
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { statsCommand } = await import("./commands/stats.js");
      await statsCommand(spec, options, io);
    });
}

export function addHistory(program: Command, io: SafeIo): void {
  program
    .command("history")
    .description(
      "List the runs of a job at its target, the latest first: what became of each, its rows, its model, its last error, and who decided. Writes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(new Option("--last <count>", "Number of runs to list").default(30).argParser(countOf(1000)))
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { historyCommand } = await import("./commands/history.js");
      await historyCommand(spec, options, io);
    });
}

export function addDiff(program: Command, io: SafeIo): void {
  program
    .command("diff")
    .description(
      "Compare the predictions of two runs, or of two folders of Parquet files, by key: rows that were added, that are gone and that changed, and by how much. Writes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file; or a folder of Parquet files")
    .addOption(param("Set a param of the spec; may be repeated. These params name the run that is compared"))
    .addOption(run())
    .requiredOption(
      "--against <name=value>",
      "Compare with the run that has this param in place of that of --param, or with the run of this id; may be repeated. For a folder: the other folder",
      collect,
    )
    .option(
      "--key <column>",
      "Column that identifies a row; may be repeated. Default: checks.unique, else output.columns",
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

export function addPrune(program: Command, io: SafeIo): void {
  program
    .command("prune")
    .description(
      "Remove the output of old runs of a job: files of predictions and rejects, in Postgres rejects, profiles and previous tables. Rows in a table stay. A pruned run is not scored again by itself",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(
      new Option("--keep <count>", "Keep the latest published runs, so many of them")
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

export function addErase(program: Command, io: SafeIo): void {
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
        "Output column that the keys are values of; may be repeated. Default: the columns of the file; for a text file checks.unique, the key of the table, or output.columns, if that is one column",
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

export function addApprove(program: Command, io: SafeIo): void {
  decisionCommand(program, "approve")
    .description("Publish a run that is held because it failed its checks. Needs neither the model nor the input")
    .option(
      "--as-baseline",
      "Compare later runs with this one as well as with earlier ones. By default no run is compared with an approved one",
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
    .option("--reason <text>", "Why; recorded with the decision")
    .option("--by <name>", "Who decides. Default: the Airflow task, else the user of this process")
    .option(
      "--run <id>",
      "The run, as history lists it, in place of --param; with --param: refuse to decide if the latest run of these params has another id",
    )
    .option("--json", "Print one line of JSON");
}

export function addRejects(program: Command, io: SafeIo): void {
  program
    .command("rejects")
    .description("Show the rejected rows of a run, grouped by reason")
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(run())
    .option("--json", "Print one line of JSON for each row")
    .action(async (spec: string, options) => {
      const { rejectsCommand } = await import("./commands/rejects.js");
      await rejectsCommand(spec, options, io);
    });
}

export function addRollback(program: Command, io: SafeIo): void {
  program
    .command("rollback")
    .description(
      "Put back the table that the latest run into this target replaced, even if that run had other params than this command (mode replace, swap rename)",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { rollbackCommand } = await import("./commands/rollback.js");
      await rollbackCommand(spec, options, io);
    });
}
