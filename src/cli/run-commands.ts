import { type Command, Option } from "commander";
import { rangeSteps } from "../jobs/date-range.js";
import type { SafeIo } from "./io.js";
import { collect, countOf, daysOf, logFormat, logLevel, param, run, timeOf, toleranceOf } from "./options.js";

export function addBackfill(program: Command, io: SafeIo): void {
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

export function addPreview(program: Command, io: SafeIo): void {
  program
    .command("preview")
    .description(
      "Score the first rows of a job, or a random sample, and print them with their predictions. Writes nothing to the target, and does not look at it",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
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
      "Show the run of this id, which may have other params: the latest run of its params, or a published one before it. Default: the latest run of these params",
    )
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { statsCommand } = await import("./commands/stats.js");
      await statsCommand(spec, options, io);
    });
}

export function addChecks(program: Command, io: SafeIo): void {
  program
    .command("checks")
    .description(
      "Judge the last published runs as if each were tonight, by their stored profiles, and list the columns that would have held one or warned, with the factor above which they would not. Writes nothing",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .addOption(new Option("--last <count>", "Number of runs to judge").default(60).argParser(countOf(1000)))
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { checksCommand } = await import("./commands/checks.js");
      await checksCommand(spec, options, io);
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

export function addEvaluate(program: Command, io: SafeIo): void {
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

export function addPrune(program: Command, io: SafeIo): void {
  program
    .command("prune")
    .description(
      "Remove the output of old runs of a job: files of predictions and rejects, in Postgres rejects, profiles and previous tables. Rows in a table stay. A pruned run is not scored again by itself",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
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
      "Put back the rows that the latest run into this target replaced, even if that run had other params than this command (mode replace, with either value of swap)",
    )
    .argument("<spec>", "Job spec, a YAML file")
    .addOption(param())
    .option("--json", "Print one line of JSON")
    .action(async (spec: string, options) => {
      const { rollbackCommand } = await import("./commands/rollback.js");
      await rollbackCommand(spec, options, io);
    });
}
