import { z } from "../util/zod.js";
import type { PostgresMode } from "./postgres-spec.js";

/** Rows whose key, features and model are those of an earlier run take its predictions. */
export interface ReuseSpec {
  /** Output columns that together name a row. */
  readonly key: readonly string[];
}

export const reuse = z.strictObject({
  key: z
    .array(z.string())
    .min(1)
    .describe("Columns of output.columns, by their names in the output, that together name a row."),
}) satisfies z.ZodType<ReuseSpec>;

/** The part of a spec that `reuse` must fit. */
interface AroundReuse {
  readonly reuse?: ReuseSpec | undefined;
  readonly output: {
    readonly columns: readonly string[];
    readonly lineage: boolean;
    readonly postgres?: { readonly mode: PostgresMode } | undefined;
  };
}

/** Checks that the rest of a spec allows its `reuse`. */
export function checkReuse({ reuse: given, output }: AroundReuse, context: z.RefinementCtx): void {
  for (const { path, message } of given === undefined ? [] : problemsOf(given, output)) {
    context.addIssue({ code: "custom", path: [...path], message });
  }
}

function problemsOf(
  { key }: ReuseSpec,
  { columns, lineage, postgres }: AroundReuse["output"],
): { readonly path: readonly (string | number)[]; readonly message: string }[] {
  const carried = new Set(columns.map((column) => column.replaceAll(".", "_")));
  const missing = key.flatMap((name, index) =>
    carried.has(name)
      ? []
      : [{ path: ["reuse", "key", index], message: `column \`${name}\` is not in output.columns, which must have it` }],
  );
  return [
    ...missing,
    ...(new Set(key).size < key.length ? [{ path: ["reuse", "key"], message: "a column is named twice" }] : []),
    ...(postgres?.mode === "append" && !lineage
      ? [
          {
            path: ["reuse"],
            message:
              "mode append keeps the rows of all runs in one table: set output.lineage to true, which tells them apart",
          },
        ]
      : []),
  ];
}
