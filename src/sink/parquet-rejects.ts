import { join } from "node:path";
import { z } from "zod";
import { type RejectedRow, rejectReasons } from "../batch/types.js";
import { errnoOf, JobError } from "../errors.js";
import { parseJson } from "../plan/parse-plan.js";
import { listFolder } from "./claim.js";
import { ensureFolder, replaceDurably } from "./durable.js";
import type { FileSystem, Looking } from "./file-system.js";
import type { Layout } from "./layout.js";

const schema = z.object({
  shard: z.string(),
  row: z.int(),
  columns: z.record(z.string(), z.string().nullable()),
  column: z.string().nullable(),
  reason: z.enum(rejectReasons),
  value: z.string().nullable(),
}) satisfies z.ZodType<RejectedRow>;

interface RejectsFile {
  readonly layout: Layout;
  readonly span: number;
  readonly rejects: readonly RejectedRow[];
  readonly writer: string;
  /** Throws when another plan stands at the target. */
  readonly check: () => Promise<unknown>;
}

/** A line of JSON for each row. */
export function rejectsText(rejects: readonly RejectedRow[]): string {
  return rejects.map((rejected) => `${JSON.stringify(rejected)}\n`).join("");
}

/** Writes a span's rejected rows over what an attempt that died may have left. */
export async function writeRejects(
  fs: FileSystem,
  { layout, span, rejects, writer, check }: RejectsFile,
): Promise<void> {
  if (rejects.length === 0) {
    return;
  }
  await ensureFolder(fs, layout.rejects);
  await replaceDurably(fs, {
    temporary: join(layout.temporary, `rejects-${span}.${writer}`),
    final: join(layout.rejects, layout.rejectsOf(span)),
    text: rejectsText(rejects),
    check,
  });
  await fs.sync(layout.folder); // the name of the folder too: the part, which lies beside it, must not outlive it
}

/**
 * The rejected rows of committed spans. `counts`: what each span's part says there are.
 * @throws JobError OUTPUT_DAMAGED when a file does not hold as many
 */
export async function* readRejects(
  fs: Looking,
  layout: Layout,
  counts: ReadonlyMap<number, { readonly rejected: number }>,
): AsyncGenerator<RejectedRow> {
  for (const [span, { rejected }] of [...counts].toSorted(([one], [other]) => one - other)) {
    if (rejected === 0) {
      continue;
    }
    const path = `${layout.rejects}/${layout.rejectsOf(span)}`;
    const text = await fs.readText(path).catch((error: unknown) => {
      if (errnoOf(error) === "ENOENT") {
        return "";
      }
      throw error;
    });
    const lines = text.split("\n").filter((line) => line !== "");
    const rows = lines.flatMap((line) => schema.safeParse(parseJson(line)).data ?? []);
    if (rows.length !== rejected) {
      throw new JobError(
        "OUTPUT_DAMAGED",
        `reading ${path}: it holds ${rows.length} rejected rows, its part says ${rejected}`,
        {
          hint: "restore the file; the predictions are not concerned",
        },
      );
    }
    yield* rows;
  }
}

/** Files that attempts that died left for spans whose part has no rejects. */
export async function staleRejects(
  fs: Looking,
  layout: Layout,
  spans: readonly { readonly span: number }[],
): Promise<string[]> {
  const unwanted = new Set(spans.map(({ span }) => layout.rejectsOf(span)));
  return (await listFolder(fs, layout.rejects)).filter((name) => unwanted.has(name));
}

/** Removes them. */
export async function removeStaleRejects(
  fs: FileSystem,
  layout: Layout,
  spans: readonly { readonly span: number }[],
): Promise<void> {
  const stale = await staleRejects(fs, layout, spans);
  for (const name of stale) {
    await fs.unlink(join(layout.rejects, name)).catch((error: unknown) => {
      if (errnoOf(error) !== "ENOENT") {
        throw error;
      }
    });
  }
  if (stale.length > 0) {
    await fs.sync(layout.rejects); // readers of a finished run must not meet them again
  }
}
