import { z } from "../../util/zod.js";
import { type RejectedRow, rejectReasons } from "../../columnar/types.js";
import { JobError } from "../../util/errors.js";
import { parseJson } from "../../plan/parse-plan.js";
import { namesIn, type ReadableStore } from "../../stores/store.js";
import { type Layout, runOfPart } from "./layout.js";
import type { CommittedPart } from "./part-label.js";
import { sha256Of } from "../../util/sha256.js";

const schema = z.object({
  shard: z.string(),
  row: z.int(),
  columns: z.record(z.string(), z.string().nullable()),
  column: z.string().nullable(),
  reason: z.enum(rejectReasons),
  value: z.string().nullable(),
}) satisfies z.ZodType<RejectedRow>;

/** A span's rejected rows as text: a line of JSON each. */
export interface RejectsText {
  readonly text: string;
  /** Hex sha256 of the text; null without rejects. */
  readonly sha256: string | null;
}

export function textOfRejects(rejects: readonly RejectedRow[]): RejectsText {
  const text = rejects.map((rejected) => `${JSON.stringify(rejected)}\n`).join("");
  return { text, sha256: rejects.length === 0 ? null : sha256Of(text) };
}

/**
 * Yields the rejected rows of committed spans. `parts`: the labels that name the files of rejects.
 * @throws JobError OUTPUT_DAMAGED when a file is not the one that its part names
 */
export async function* readRejects(
  store: ReadableStore,
  layout: Layout,
  parts: ReadonlyMap<number, Pick<CommittedPart, "rejectsSha256">>,
): AsyncGenerator<RejectedRow> {
  for (const [span, { rejectsSha256 }] of [...parts].toSorted(([one], [other]) => one - other)) {
    if (rejectsSha256 === null) {
      continue;
    }
    const path = `${layout.rejects}/${layout.rejectsOf(span, rejectsSha256)}`;
    const text = await store.readText(path);
    if (text === undefined || sha256Of(text) !== rejectsSha256) {
      const found = text === undefined ? "it is gone" : "it is not what was written with its part";
      throw new JobError("OUTPUT_DAMAGED", `reading ${path}: ${found}`, {
        hint: "restore the file; the predictions are not affected",
      });
    }
    for (const line of text.split("\n").slice(0, -1)) {
      yield schema.parse(parseJson(line));
    }
  }
}

/**
 * Lists files of rejects of this run that no part names: their attempts died, or another attempt committed the span
 * first.
 */
export async function staleRejects(
  store: ReadableStore,
  layout: Layout,
  parts: ReadonlyMap<number, Pick<CommittedPart, "rejectsSha256">>,
): Promise<string[]> {
  const wanted = new Set(
    [...parts].map(([span, { rejectsSha256: sha256 }]) =>
      sha256 === null ? undefined : layout.rejectsOf(span, sha256),
    ),
  );
  const names = await namesIn(store, layout.rejects);
  return names.filter((name) => runOfPart(name) === layout.runId && !wanted.has(name));
}
