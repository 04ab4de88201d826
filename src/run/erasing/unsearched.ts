import { paramTexts } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import type { OtherRuns } from "../../publish/recorded-run.js";
import type { JobContext } from "../../scoring/context.js";
import { shellWord } from "../../util/texts.js";

/** A message names at most this many jobs or tables. */
const shownLimit = 3;

interface Searched {
  /** How many runs of the job were found. */
  readonly runsFound: number;
  readonly others: OtherRuns;
  readonly paramsOfTable: (table: string, params: Plan["params"]) => Plan["params"] | undefined;
}

/**
 * Warns of places that an erasure does not search: runs under an earlier name of the job, folder or table, and other
 * tables if the table name depends on params.
 */
export function warnOfUnsearched(
  context: Pick<JobContext, "spec" | "sink" | "log">,
  { runsFound, others: { jobs, tables }, paramsOfTable }: Searched,
): void {
  const { spec, sink, log } = context;
  const { name } = spec;
  const isTable = sink.table !== undefined; // a table is searched as a whole, with the rows of all jobs
  const others = isTable ? [] : [...jobs];
  if (others.length > 0) {
    log.warn(
      `some folders that the spec names have runs of job ${shown(others)}, which are not searched; if this job had that name before, erase again with this in the spec: name: ${others[0]}`,
    );
  }
  warnOfTables(context, tables, paramsOfTable);
  if (runsFound === 0 && jobs.size === 0 && tables.size === 0) {
    const schema = spec.output.postgres?.control_schema;
    const [found, keys] = isTable
      ? [`no run in control_schema ${schema} is known for ${sink.target}`, "output.postgres.table or control_schema"]
      : [`no run of job ${name} is in ${sink.target}, nor in its folders of other params`, "output.parquet.path"];
    log.warn(`${found}; if the name of the job or ${keys} was changed, erase again with the old value in the spec`);
  }
}

/** Warns of other tables of the job: those that the spec names with other params, and those that it no longer names. */
function warnOfTables(
  { spec: { name, output }, log }: Pick<JobContext, "spec" | "log">,
  tables: OtherRuns["tables"],
  paramsOfTable: Searched["paramsOfTable"],
): void {
  const found = [...tables].map(([table, params]) => ({ table, params: paramsOfTable(table, params) }));
  const named = found.filter(({ params }) => params !== undefined);
  const renamed = found.filter(({ params }) => params === undefined).map(({ table }) => table);
  if (named.length > 0) {
    const places = named.map(({ table, params = {} }) => `${table} (${flagsOf(params)})`);
    log.warn(
      `erasing rows: only ${output.postgres?.table} is searched; the spec also writes to ${shown(places)}; run erase for each of them`,
    );
  }
  if (renamed.length > 0) {
    log.warn(
      `runs of job ${name} also wrote to ${shown(renamed)}, which is not searched; to erase there, erase again with this in the spec: output.postgres.table: ${renamed[0]}`,
    );
  }
}

function flagsOf(params: Plan["params"]): string {
  return paramTexts(params)
    .map((text) => `--param ${shellWord(text)}`)
    .join(" ");
}

function shown(names: readonly string[]): string {
  const more = names.length - shownLimit;
  return `${names.slice(0, shownLimit).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
