import { isAbsolute, relative, resolve } from "node:path";
import { shellWord } from "../../util/shell-word.js";
import type { SourceColumn } from "../../columnar/types.js";
import { partitionsOf } from "../../plan/partitions.js";
import type { SpecDraft } from "../../spec/draft.js";
import { isModelUri } from "../../spec/model-uri.js";
import { otherStoreProblem } from "../../spec/object-uri.js";
import { JobError } from "../../util/errors.js";

/** The options of `init` that say where things are. */
export interface PlaceOptions {
  readonly model: string;
  readonly input: readonly string[];
  readonly output?: string;
  /** true: the option was given without a URL. */
  readonly postgres?: string | true;
  readonly table?: string;
}

/** Makes paths relative to the folder of the spec. */
export function placesOf(
  { model, input, output, postgres, table }: PlaceOptions,
  { folder, name, into: own }: { readonly folder: string; readonly name: string; readonly into: string },
): Pick<SpecDraft, "inputPath" | "model" | "target"> {
  const place = (given: string): string =>
    isModelUri(given) ||
    otherStoreProblem(given) !== undefined ||
    isAbsolute(given) ||
    given.startsWith("${") ||
    folder === process.cwd()
      ? given
      : relative(folder, resolve(given)) || ".";
  const into = output === undefined ? own : place(output);
  if (postgres !== undefined && output !== undefined) {
    throw new JobError("USAGE", "reading --output: predictions go to a folder or to --postgres, not to both", {
      hint: "leave one of them out",
    });
  }
  return {
    inputPath: input.map(place),
    model: { path: place(model), sha256: "", inputs: undefined, outputs: { prediction: "prediction" } },
    target:
      postgres === undefined
        ? { parquet: into.includes("${") ? into : `${into.replace(/\/$/, "")}/dt=\${ds}` }
        : { postgres: { url: writtenUrl(postgres), table: table ?? `predictions.${tableOf(name)}` } },
  };
}

/**
 * Refuses a word after `--postgres` that is no URL: commander takes the next argument for it.
 * @throws JobError USAGE
 */
export function checkUrl(postgres: PlaceOptions["postgres"]): void {
  if (typeof postgres === "string" && /\.ya?ml$/i.test(postgres)) {
    throw new JobError("USAGE", `reading --postgres ${postgres}: expected postgres://user@host:port/database`, {
      hint: `the file to write goes first: infer-batch init ${shellWord(postgres)} … --postgres`,
    });
  }
}

/** Returns the URL for the spec: as it is if it has no secret, else a reference to the environment. */
export function writtenUrl(given: string | true): string {
  return given === true || /:\/\/[^@]*:[^@]*@|password=/i.test(given) ? "${DATABASE_URL}" : given;
}

function tableOf(name: string): string {
  return `${/^\d/.test(name) ? "job_" : ""}${name.replaceAll("-", "_")}`;
}

/** Names of the folder of a run, in order of preference. */
const folderNames = ["dt", "ds", "run_date"];

interface Carried {
  /** The columns of the first shard. */
  readonly columns: readonly SourceColumn[];
  /** The name of the first shard. */
  readonly shard: string;
  /** The columns that `--columns` names; undefined: `init` chooses. */
  readonly carry: readonly string[] | undefined;
  /** The date in the path of the input, in place of which the spec has that of the run. */
  readonly date: string | undefined;
}

/**
 * Names the folder that `init` gives each run after a column that its files do not have: pandas and pyarrow cannot read
 * files with a column that the names of their folders give, too. A folder of the input that has the date of the run in its
 * name keeps this name.
 */
export function withFolderName(
  target: SpecDraft["target"],
  { columns, shard, carry, date }: Carried,
): SpecDraft["target"] {
  const ownFolder = `/${folderNames[0]}=\${ds}`;
  if (!("parquet" in target) || !target.parquet.endsWith(ownFolder)) {
    return target;
  }
  const isFree = (folder: string): boolean => {
    const found = columns.find(({ name }) => name.toLowerCase() === folder);
    const isDate = found?.partition === true && date !== undefined && partitionsOf(shard).get(found.name) === date;
    return found === undefined || (carry === undefined ? isDate : !carry.includes(found.name));
  };
  const chosen = folderNames.find(isFree);
  return chosen === undefined ? target : { parquet: target.parquet.replace(ownFolder, () => `/${chosen}=\${ds}`) };
}
