import { z } from "../util/zod.js";
import { bindingKeys, checkPlace, modelPath, modelSha256, type ModelSpec } from "./model-spec.js";
import { isHttpUri } from "./model-uri.js";
import { parquetOutput, parquetProblems, type TargetSpecs } from "./parquet-spec.js";
import { postgresOutput, postgresProblems, splitTable } from "./postgres-spec.js";
import { isObjectUri, objectFolder, objectUriProblem } from "./object-uri.js";
import type { Problem } from "./store-spec.js";
import { server } from "./server/server-spec.js";

/** A second model, whose predictions are compared with the champion's (`model`) and published nowhere. */
export interface ChallengerSpec
  extends Pick<ModelSpec, "path" | "server" | "sha256" | "inputs" | "outputs" | "cast" | "missing"> {
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
  /** Where its predictions are kept. Default: nowhere. */
  readonly output?: TargetSpecs | undefined;
}

export const challenger = z
  .strictObject({
    path: modelPath
      .optional()
      .describe("A second model, named as model.path names the first. Its predictions are not published."),
    server: server.optional(),
    sha256: modelSha256.optional().describe("SHA-256 that the challenger's file must have."),
    ...bindingKeys,
    cast: bindingKeys.cast.unwrap().optional().describe("As model.cast, which is the default."),
    missing: bindingKeys.missing.unwrap().optional().describe("As model.missing, which is the default."),
    tolerance: z
      .number("expected a number")
      .min(0, "expected 0 or more")
      .default(0.01)
      .describe(
        "Rows whose two predictions differ by more than this are counted, for outputs that are floating-point numbers.",
      ),
    output: z
      .strictObject({ parquet: parquetOutput.optional(), postgres: postgresOutput.optional() })
      .optional()
      .describe(
        "Keeps the challenger's predictions, with the columns of output.columns, in a folder or table of their own. Its keys are those of output.parquet or output.postgres.",
      ),
  })
  .superRefine(checkPlace("challenger"))
  .superRefine(checkOutput)
  .superRefine(({ path = "", sha256, server: served }, context) => {
    if (served?.protocol === "openai") {
      const message =
        "a language model cannot be a challenger: its answers would cost money, and would neither be stored nor counted against model.budget";
      context.addIssue({ code: "custom", path: ["server", "protocol"], message });
    }
    if (isHttpUri(path) && sha256 === undefined) {
      const message = "expected the challenger's sha256 next to a URL, whose server could send another file";
      context.addIssue({ code: "custom", path: ["sha256"], message });
    }
  });

/** Expects one target for the predictions of a challenger. */
function checkOutput({ output }: Pick<ChallengerSpec, "output">, context: z.RefinementCtx): void {
  if (output === undefined) {
    return;
  }
  const { parquet, postgres } = output;
  const problems =
    (parquet === undefined) === (postgres === undefined)
      ? [{ path: ["output"], message: "expected exactly one of parquet and postgres" }]
      : [
          ...(parquet === undefined ? [] : parquetProblems(parquet)),
          ...(postgres === undefined ? [] : postgresProblems(postgres, { columns: [], outputs: undefined })),
        ];
  for (const { path, message } of problems) {
    context.addIssue({ code: "custom", path: [...path], message });
  }
}

/** What is wrong with the place of the challenger's predictions, if readers would take them for the published ones. */
export function keptProblems(kept: TargetSpecs | undefined, published: TargetSpecs): Problem[] {
  const [one, other] = [kept?.parquet?.path, published.parquet?.path];
  if (one !== undefined && other !== undefined && withSlash(one).startsWith(withSlash(other))) {
    const message = "expected a folder outside that of the published predictions";
    return [{ path: ["challenger", "output", "parquet", "path"], message }];
  }
  return kept?.postgres !== undefined &&
    published.postgres !== undefined &&
    isSameTable(kept.postgres.table, published.postgres.table)
    ? [
        {
          path: ["challenger", "output", "postgres", "table"],
          message: "expected another table than the published one",
        },
      ]
    : [];
}

function isSameTable(one: string, other: string): boolean {
  const [a, b] = [splitTable(one), splitTable(other)];
  return a.schema === b.schema && a.table === b.table;
}

/** A folder with one slash at its end, without segments that name the folder before them. */
function withSlash(folder: string): string {
  const [, scheme = "", path = ""] =
    /^([a-z0-9]+:\/\/)?(.*)$/.exec(
      isObjectUri(folder) && objectUriProblem(folder) === undefined ? objectFolder(folder) : folder,
    ) ?? [];
  const segments = path.split("/").filter((segment, index) => segment !== "." && (segment !== "" || index === 0));
  return `${scheme}${segments.join("/")}/`;
}

/** Says where keys of the challenger are, given as those of a model: `["model", "server"]` is `["challenger", "server"]`. */
export function challengerPlaces<T>(where: (path: readonly string[]) => T): (path: readonly string[]) => T {
  return ([first = "", ...others]) => where([first === "model" ? "challenger" : first, ...others]);
}

/** Rewrites keys of a model in a text as those of the challenger: `model.outputs.p` becomes `challenger.outputs.p`. */
export function challengerKeys(text: string): string {
  return text.replaceAll(/(?<![\w./-])model\.(?=(?:path|server|sha256|inputs|outputs|cast|missing)\b)/g, "challenger.");
}
