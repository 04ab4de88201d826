import { createHash } from "node:crypto";
import { join } from "node:path";
import { z } from "../../../util/zod.js";
import { type RejectedRow, rejectReasons } from "../../../columnar/types.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import { parseJson } from "../../../plan/parse-plan.js";
import { listFolder, readTextOr } from "./claim.js";
import { ensureFolder, replaceDurably } from "../local/durable.js";
import type { FileSystem, TargetState } from "./file-system.js";
import { type Layout, runOfPart } from "./layout.js";
import { type CommittedPart, findPart } from "./parts.js";
import { unlinkIfThere } from "../local/temporary.js";

const schema = z.object({
  shard: z.string(),
  row: z.int(),
  columns: z.record(z.string(), z.string().nullable()),
  column: z.string().nullable(),
  reason: z.enum(rejectReasons),
  value: z.string().nullable(),
}) satisfies z.ZodType<RejectedRow>;

/** A span's rejected rows, a line of JSON each. */
export interface RejectsText {
  readonly text: string;
  /** null: there are none. */
  readonly sha256: string | null;
}

export function textOfRejects(rejects: readonly RejectedRow[]): RejectsText {
  const text = rejects.map((rejected) => `${JSON.stringify(rejected)}\n`).join("");
  return { text, sha256: rejects.length === 0 ? null : sha256Of(text) };
}

function sha256Of(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

interface RejectsFile extends RejectsText {
  readonly layout: Layout;
  readonly span: number;
  readonly writer: string;
  /** Throws when another plan stands at the target. */
  readonly check: () => Promise<unknown>;
}

/** Rejects that are not published begin like this. */
const temporaryName = "rejects-";

/** Another attempt has committed the span: the rows that it rejected count. */
class Committed extends Error {
  /** Of its part. */
  readonly path: string;

  constructor(path: string) {
    super(`the part is ${path}`);
    this.path = path;
  }
}

/**
 * Publishes a span's rejected rows, before the part that commits them. Where another attempt's part is there, at
 * the path that is returned, they are not published: after the finish nobody would remove them. The look comes when the
 * temporary file is there: a finish, which comes after the part, first takes the temporary file away and then removes
 * what is stale. So either this look finds the part, or the finish finds this file, under one name or the other.
 */
export async function writeRejects(
  fs: FileSystem,
  { layout, span, text, sha256, writer, check }: RejectsFile,
): Promise<string | undefined> {
  if (sha256 === null) {
    return undefined;
  }
  await ensureFolder(fs, layout.rejects);
  try {
    await replaceDurably(fs, {
      temporary: join(layout.temporary, `${temporaryName}${span}.${writer}`),
      final: join(layout.rejects, layout.rejectsOf(span, sha256)),
      text,
      async check() {
        await check();
        const found = await findPart(fs, layout, span);
        if (found !== undefined) {
          throw new Committed(found.path);
        }
      },
    });
  } catch (error) {
    if (error instanceof Committed) {
      return error.path;
    }
    throw error;
  }
  await fs.sync(layout.folder); // the name of the folder too: the part, which lies beside it, must not outlive it
  return undefined;
}

/**
 * The rejected rows of committed spans. `parts`: what each span's part says of them.
 * @throws JobError OUTPUT_DAMAGED when a file is not the one that its part means
 */
export async function* readRejects(
  fs: TargetState,
  layout: Layout,
  parts: ReadonlyMap<number, Pick<CommittedPart, "rejectsSha256">>,
): AsyncGenerator<RejectedRow> {
  for (const [span, { rejectsSha256 }] of [...parts].toSorted(([one], [other]) => one - other)) {
    if (rejectsSha256 === null) {
      continue;
    }
    const path = `${layout.rejects}/${layout.rejectsOf(span, rejectsSha256)}`;
    const text = await readTextOr(fs, path, undefined);
    if (text === undefined || sha256Of(text) !== rejectsSha256) {
      const found = text === undefined ? "it is gone" : "it is not what was written with its part";
      throw new JobError("OUTPUT_DAMAGED", `reading ${path}: ${found}`, {
        hint: "restore the file; the predictions are not concerned",
      });
    }
    for (const line of text.split("\n").slice(0, -1)) {
      yield schema.parse(parseJson(line));
    }
  }
}

/** Files of the run that attempts wrote whose part is not there: they died, or another one was first. */
export async function staleRejects(
  fs: TargetState,
  layout: Layout,
  parts: readonly { readonly span: number; readonly rejects_sha256: string | null }[],
): Promise<string[]> {
  const wanted = new Set(
    parts.map(({ span, rejects_sha256: sha256 }) => (sha256 === null ? undefined : layout.rejectsOf(span, sha256))),
  );
  const names = await listFolder(fs, layout.rejects);
  return names.filter((name) => runOfPart(name) === layout.runId && !wanted.has(name));
}

/** Removes them. */
export async function removeStaleRejects(
  fs: FileSystem,
  layout: Layout,
  parts: readonly { readonly span: number; readonly rejects_sha256: string | null }[],
): Promise<void> {
  for (const name of await listFolder(fs, layout.temporary)) {
    if (name.startsWith(temporaryName)) {
      await unlinkIfThere(fs, join(layout.temporary, name)); // see `writeRejects`
    }
  }
  for (const name of await staleRejects(fs, layout, parts)) {
    await unlinkIfThere(fs, join(layout.rejects, name));
  }
  // Readers of a finished run must not meet them again. Where none are left, too: whoever removed them may have died.
  await fs.sync(layout.rejects).catch((error: unknown) => {
    if (errnoOf(error) !== "ENOENT") {
      throw error;
    }
  });
}
