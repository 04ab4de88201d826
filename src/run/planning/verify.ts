import type { Decoder } from "../../formats/port.js";
import { JobError } from "../../util/errors.js";
import type { Plan } from "../../plan/plan.js";
import { count } from "../../report/report.js";
import type { OpenShard, Source } from "../../storage/port.js";
import type { JobContext } from "../../scoring/context.js";

/** Checks the pages of each shard and computes its digest while a run is planned (`input.verify: full`). */
export interface ShardVerification {
  /** Returns the sha256 in hex. @throws JobError SHARD_CORRUPT */
  shard(shard: OpenShard): Promise<string>;
  /** Logs what was checked and what could not be checked. */
  logSummary(): void;
}

export function verifyShards({ log, signal }: JobContext, decoder: Decoder): ShardVerification {
  const seen = { shards: 0, pages: 0, checksums: 0 };
  return {
    async shard(shard) {
      const { pages, checksums } = await decoder.verify(shard, signal);
      seen.shards += 1;
      seen.pages += pages;
      seen.checksums += checksums;
      return await shard.digest(signal);
    },
    logSummary() {
      const without = seen.pages - seen.checksums;
      const rest =
        without === 0 ? "" : `; ${count(without, "page")} without one: only the digest tells of later damage`;
      log.info(`verified ${count(seen.shards, "shard")}: ${count(seen.checksums, "page")} match their checksum${rest}`);
    },
  };
}

/**
 * Wraps the source for `input.verify: full`: before this attempt first uses a shard, its digest must be the planned
 * one. If the plan has no digests, page checksums are checked instead.
 * @param digests by URI, computed while this attempt planned
 */
export function verifyingSource(
  { spec, source, log, signal }: JobContext,
  { plan, decoder, digests }: { plan: Plan; decoder: Decoder; digests: ReadonlyMap<string, string> },
): Source {
  if (spec.input.verify !== "full") {
    return source;
  }
  const planned = new Map(plan.input.shards.map(({ uri, sha256 }) => [uri, sha256]));
  if (plan.input.shards.some(({ sha256 }) => sha256 === undefined)) {
    log.warn(
      "input.verify: full: this run was planned with `pinned`, so its plan holds no digests; page checksums are checked, where the files have them",
    );
  }
  const checks = new Map<string, Promise<void>>();
  const check = async (uri: string, shard: OpenShard): Promise<void> => {
    const due = planned.get(uri);
    if (due === undefined) {
      await decoder.verify(shard, signal);
      return;
    }
    const found = digests.get(uri) ?? (await shard.digest(signal));
    if (found !== due) {
      throw new JobError("INPUT_CHANGED", `reading ${shard.name}: its sha256 is ${found}, planned ${due}`, {
        hint: "its bytes changed though its size and time did not: restore the planned file; committed spans are kept",
      });
    }
  };
  return {
    ...source,
    async open(shard) {
      const opened = await source.open(shard);
      const checked = checks.get(shard.uri) ?? check(shard.uri, opened);
      checks.set(shard.uri, checked);
      try {
        await checked;
        return opened;
      } catch (error) {
        await opened[Symbol.asyncDispose]();
        throw error;
      }
    },
  };
}
