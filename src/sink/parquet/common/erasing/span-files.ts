import type { RejectedRow } from "../../../../columnar/types.js";
import type { SpanFile } from "../../../../publish/span-file.js";
import type { Target } from "../committed-parts.js";
import { type CommittedParts, listParts } from "../parts.js";
import { readRejects } from "../rejects.js";

/** Yields the committed spans of a run as files on this machine, in order. A file lasts until the next one is requested. */
export async function* readSpanFiles(
  { fs, layout, profiles }: Target,
  committed: CommittedParts,
  {
    localParts,
    isWanted = () => true,
  }: {
    readonly localParts: (paths: readonly string[]) => AsyncIterable<readonly string[]>;
    readonly isWanted?: ((span: number) => boolean) | undefined;
  },
): AsyncGenerator<SpanFile> {
  const paths = await listParts(fs, layout);
  for (const [span, part] of [...committed].toSorted(([one], [other]) => one - other)) {
    if (!isWanted(span)) {
      continue;
    }
    const path = paths.get(span);
    const profile = path && (await profiles(new Map([[span, path]]))).get(span);
    if (path === undefined || profile === undefined) {
      const found = path === undefined ? "there is no part" : "there is no profile in the part";
      throw Object.assign(new Error(`${found} of span ${span} in ${layout.folder}`), { code: "ENOENT" });
    }
    const rejects: RejectedRow[] = [];
    for await (const rejected of readRejects(fs, layout, new Map([[span, part]]))) {
      rejects.push(rejected);
    }
    const { filtered, erased, maker } = part;
    for await (const [file = ""] of localParts([path])) {
      yield { span, path: file, rejects, filtered, erased, profile, maker };
    }
  }
}
