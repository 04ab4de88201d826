import type { Decoder } from "../formats/port.js";
import { JobError } from "../util/errors.js";
import type { Plan } from "../plan/plan.js";
import { count } from "../report/report.js";
import type { OpenShard, Source } from "../storage/port.js";
import type { JobContext } from "../scoring/context.js";

/** `input.verify: full` while a run is planned: checks the pages of each shard and takes its digest. */
export interface ShardVerification {
  /** Hex sha256. @throws JobError SHARD_CORRUPT */
  shard(shard: OpenShard): Promise<string>;
  /** Says in the log what was found, and what could not be checked. */
  told(): void;
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
    told() {
      const without = seen.pages - seen.checksums;
      const rest =
        without === 0 ? "" : `; ${count(without, "page")} without one: only the digest tells of later damage`;
      log.info(`verified ${count(seen.shards, "shard")}: ${count(seen.checksums, "page")} match their checksum${rest}`);
    },
  };
}

/**
 * `input.verify: full` while a run is carried out: before the first use of a shard in this attempt its digest must
 * be the planned one. `digests`, by URI: those that this attempt has just taken. A plan made without any leaves the
 * page checksums to be checked.
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
        hint: "its bytes changed though its size and time did not: put the planned file back; committed spans are kept",
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
