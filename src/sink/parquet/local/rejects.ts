import { join } from "node:path";
import { type FileSystem, ifThere, listFolder } from "../common/file-system.js";
import type { Layout } from "../common/layout.js";
import { findPart } from "../common/parts.js";
import { type RejectsText, staleRejects } from "../common/rejects.js";
import { ensureFolder, replaceDurably } from "./durable.js";

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

/** Removes files of rejects of the run that no part names, and those that are not published yet. */
export async function removeStaleRejects(
  fs: FileSystem,
  layout: Layout,
  parts: readonly { readonly span: number; readonly rejects_sha256: string | null }[],
): Promise<void> {
  for (const name of await listFolder(fs, layout.temporary)) {
    if (name.startsWith(temporaryName)) {
      await ifThere(fs.unlink(join(layout.temporary, name))); // see `writeRejects`
    }
  }
  for (const name of await staleRejects(fs, layout, parts)) {
    await ifThere(fs.unlink(join(layout.rejects, name)));
  }
  // Readers of a finished run must not meet them again. Where none are left, too: whoever removed them may have died.
  await ifThere(fs.sync(layout.rejects));
}
