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

/** What the rest of a spec says that a spec with `reuse` may not. */
export interface BesideReuse {
  readonly columns: readonly string[];
  readonly lineage: boolean;
  readonly hasChallenger: boolean;
  /** undefined: the target is no table. */
  readonly mode: PostgresMode | undefined;
}

/** Returns what is wrong with `reuse` beside the rest of the spec. */
export function reuseProblems(
  { key }: ReuseSpec,
  { columns, lineage, hasChallenger, mode }: BesideReuse,
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
    ...(hasChallenger
      ? [{ path: ["reuse"], message: "a challenger scores all rows: remove `challenger`, or `reuse`" }]
      : []),
    ...(mode === "append" && !lineage
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
