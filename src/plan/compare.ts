import type { JobSpec } from "../spec/job-spec.js";
import { bindingRequest } from "./make-plan.js";
import type { Plan, PlannedShard } from "./plan.js";

/** A shard as it is now; undefined fields of the plan (rows) are not read again. */
export interface ListedShard {
  readonly uri: string;
  readonly sizeBytes: number;
  readonly fingerprint: string;
}

/** Whether a shard's name, size and fingerprint are those of another: its bytes are not compared. */
export function isSameShard(one: ListedShard, other: ListedShard): boolean {
  return one.uri === other.uri && one.sizeBytes === other.sizeBytes && one.fingerprint === other.fingerprint;
}

export interface ListingChange {
  readonly added: readonly string[];
  readonly missing: readonly PlannedShard[];
  readonly changed: readonly PlannedShard[];
}

/** What happened to the shards since they were planned. */
export function compareListing(plan: Plan, listed: readonly ListedShard[]): ListingChange {
  const now = new Map(listed.map((shard) => [shard.uri, shard]));
  const missing: PlannedShard[] = [];
  const changed: PlannedShard[] = [];
  for (const shard of plan.input.shards) {
    const found = now.get(shard.uri);
    now.delete(shard.uri);
    if (found === undefined) {
      missing.push(shard);
    } else if (!isSameShard(found, shard)) {
      changed.push(shard);
    }
  }
  return { added: [...now.keys()], missing, changed };
}

/**
 * The plan with these shards in place of its own where they say the same: of 100,000, whose names the listing has, too,
 * one copy is enough.
 */
export function withShards(plan: Plan, shards: readonly PlannedShard[]): Plan {
  const own = plan.input.shards;
  return own.length === shards.length && own.every((shard, index) => isSame(shard, shards[index]))
    ? { ...plan, input: { ...plan.input, shards } }
    : plan;
}

function isSame(one: PlannedShard, other: PlannedShard | undefined): boolean {
  return other !== undefined && isSameShard(one, other) && one.rows === other.rows && one.sha256 === other.sha256;
}

/** What the spec asks for now that differs from what was planned, a line each; the sink compares its target. */
export function compareSpec(plan: Plan, spec: JobSpec): string[] {
  const asked = bindingRequest(spec);
  return [
    ...difference("timezone", plan.timezone, spec.timezone),
    ...difference("model.inputs", plan.request.inputs, asked.inputs),
    ...difference("model.outputs", plan.request.outputs, asked.outputs),
    ...difference("input.partitions", plan.request.partitions, asked.partitions),
    ...difference("input.columns", plan.request.columns, asked.columns),
    ...difference("input.where", plan.request.where, asked.where),
    ...difference("model.cast", plan.request.cast, asked.cast),
    ...difference("model.missing", plan.request.missing, asked.missing),
    ...difference("output.lineage", plan.contract.lineage === true, spec.output.lineage),
    ...difference("output.columns", plan.request.passthrough, asked.passthrough),
  ];
}

/** A setting that differs from what was planned, as a line; none where it is the same. */
export function difference(key: string, planned: unknown, asked: unknown): string[] {
  const was = JSON.stringify(planned);
  const is = JSON.stringify(asked);
  return was === is ? [] : [`${key} is ${is}, planned ${was}`];
}
