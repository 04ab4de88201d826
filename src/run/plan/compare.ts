import type { ChecksSpec } from "../../job/jobfile/checks-spec.js";
import type { JobSpec } from "../../job/jobfile/job-spec.js";
import { fieldTexts } from "../../job/jobfile/kafka-spec.js";
import { type ModelSpec, modelUri } from "../../job/jobfile/model-spec.js";
import { isModelUri, isServedUri } from "../../job/jobfile/uri.js";
import { bindingRequest } from "./make-plan.js";
import type { BindingRequest, Plan, PlanTarget, PlannedChecks, PlannedModel, PlannedShard } from "./plan.js";
import { shortDigest } from "./identity.js";
import { shellWord } from "../../base/texts.js";

/** A shard as a listing finds it: its identity, without its rows. */
export interface ListedShard {
  readonly uri: string;
  readonly sizeBytes: number;
  /** Changes when the file is replaced: `mtime:` and nanoseconds, or `etag:` and the ETag. */
  readonly fingerprint: string;
  /** What its table knows of it; undefined: it is of no table. */
  readonly ofTable?: ShardOfTable | undefined;
}

interface ShardOfTable {
  /** Values that columns have in all of its rows, as texts; null: NULL. */
  readonly partition: ReadonlyMap<string, string | null>;
  readonly removedRows: number;
}

/** Whether two shards have the same URI, size and fingerprint. Their bytes are not compared. */
export function isSameShard(one: ListedShard, other: ListedShard): boolean {
  return one.uri === other.uri && one.sizeBytes === other.sizeBytes && one.fingerprint === other.fingerprint;
}

/** How a listing differs from a plan. */
export interface ListingChange {
  readonly added: readonly string[];
  readonly missing: readonly PlannedShard[];
  readonly changed: readonly PlannedShard[];
}

/** Compares the shards of a plan with a new listing. */
export function compareListing(plan: Plan, listed: readonly ListedShard[]): ListingChange {
  const current = new Map(listed.map((shard) => [shard.uri, shard]));
  const missing: PlannedShard[] = [];
  const changed: PlannedShard[] = [];
  for (const shard of plan.input.shards) {
    const found = current.get(shard.uri);
    current.delete(shard.uri);
    if (found === undefined) {
      missing.push(shard);
    } else if (!isSameShard(found, shard)) {
      changed.push(shard);
    }
  }
  return { added: [...current.keys()], missing, changed };
}

/** The plan with `shards` in place of its own equal ones: a plan and a listing of 100,000 shards share one copy. */
export function reuseShards(plan: Plan, shards: readonly PlannedShard[]): Plan {
  const own = plan.input.shards;
  return own.length === shards.length && own.every((shard, index) => isSamePlannedShard(shard, shards[index]))
    ? { ...plan, input: { ...plan.input, shards } }
    : plan;
}

function isSamePlannedShard(one: PlannedShard, other: PlannedShard | undefined): boolean {
  return other !== undefined && isSameShard(one, other) && one.rows === other.rows && one.sha256 === other.sha256;
}

interface TargetDifference {
  readonly lines: readonly string[];
  /** Whether the planned rows are elsewhere: another job may have the same name. */
  readonly isElsewhere: boolean;
  /** The table that has the planned rows; undefined: they are where rows of the spec come. */
  readonly place: string | undefined;
}

/** Settings of a target that may change while a run is unfinished: a server, a checkout or a volume may move. */
const movable: ReadonlySet<string> = new Set(["kind", "server", "uri"]);

/** Compares the target that a spec names with the planned one. */
export function compareTargets(planned: PlanTarget, asked: PlanTarget): TargetDifference {
  const settings = Object.keys(asked).filter((name) => !movable.has(name));
  const isElsewhere = planned["table"] !== asked["table"];
  const dropped = planned["uuid"] === asked["uuid"] ? undefined : "a table that was dropped";
  return {
    lines: settings.flatMap((name) => {
      const key = name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      return difference(`output.${asked.kind}.${key}`, planned[name], asked[name]);
    }),
    isElsewhere,
    place: isElsewhere ? `table ${String(planned["table"])}` : dropped,
  };
}

/** Compares the spec with the plan, except for its target; returns a line for each key that differs. */
export function compareSpec(plan: Plan, spec: JobSpec): string[] {
  const requested = bindingRequest(spec);
  return [
    ...difference("timezone", plan.timezone, spec.timezone),
    ...tableDifference(plan.input, spec.input),
    ...modelDifference("model", plan.model, spec.model),
    ...difference("model.inputs", plan.request.inputs, requested.inputs),
    ...difference("model.outputs", plan.request.outputs, requested.outputs),
    ...difference("input.partitions", plan.request.partitions, requested.partitions),
    ...difference("input.columns", plan.request.columns, requested.columns),
    ...difference("input.where", plan.request.where, requested.where),
    ...difference("model.cast", plan.request.cast, requested.cast),
    ...difference("model.missing", plan.request.missing, requested.missing),
    ...promptDifference(plan.request, requested),
    ...difference("output.lineage", plan.contract.lineage === true, spec.output.lineage),
    ...difference("reuse.key", plan.contract.reuse?.key ?? null, spec.reuse?.key ?? null),
    ...difference("output.columns", plan.request.passthrough, requested.passthrough),
    // Thresholds and `on_fail` may change: they are recorded with the verdict.
    ...difference("checks", presence(plan.checks ?? undefined), presence(spec.checks)),
    ...(plan.checks === null || spec.checks === undefined ? [] : compareChecks(plan.checks, spec.checks)),
  ];
}

function presence(value: unknown): "absent" | "present" {
  return value === undefined ? "absent" : "present";
}

function tableDifference({ table: planned, changes }: Plan["input"], now: JobSpec["input"]): string[] {
  const { table, at, catalog, kafka, since, on_rewrite: onRewrite } = now;
  const differences = [
    ...difference(kafka === undefined ? "input.table" : "input.kafka.topic", planned?.uri ?? null, table ?? null),
    ...difference("input.kafka.columns", inOrder(planned?.fields), inOrder(kafka && fieldTexts(kafka))),
    ...difference("input.catalog", presence(planned?.catalog), presence(catalog)),
  ];
  return differences.length > 0 || table === undefined
    ? differences
    : [
        ...difference("input.at", planned?.at, at),
        ...difference("input.since", changes === undefined ? null : "last_run", since ?? null),
        ...(changes === undefined ? [] : difference("input.on_rewrite", changes.onRewrite, onRewrite ?? null)),
      ];
}

function inOrder(columns: Readonly<Record<string, string>> = {}): readonly (readonly [string, string])[] {
  return Object.entries(columns).toSorted(([left], [right]) => (left < right ? -1 : 1));
}

function compareChecks({ golden, profile, slices, sql = {} }: PlannedChecks, checks: ChecksSpec): string[] {
  return [
    ...difference("checks.baseline", profile?.uri ?? "published", checks.baseline),
    ...difference("checks.golden.path", golden?.uri ?? null, checks.golden?.path ?? null),
    ...difference("checks.slices", slices ?? null, checks.slices ?? null),
    ...difference("checks.sql", sql, checks.sql ?? {}),
  ];
}

/** A model file may be moved, since its digest identifies it. A URI identifies a model, so it must be the same. */
function modelDifference(key: string, model: PlannedModel, now: Pick<ModelSpec, "path" | "server">): string[] {
  const uri = modelUri(now);
  const place = isServedUri(model.uri) || isServedUri(uri) ? `${key}.server` : `${key}.path`;
  const version = now.server?.version;
  return [
    ...(isModelUri(model.uri) || isModelUri(uri) ? difference(place, model.uri, uri) : []),
    ...(version === undefined ? [] : difference(`${key}.server.version`, model.version ?? null, version)),
  ];
}

/** Texts of prompts are not shown: they may be long. */
function promptDifference({ prompt: planned }: BindingRequest, { prompt: now }: BindingRequest): string[] {
  if (planned === undefined || now === undefined) {
    return []; // the model is another one
  }
  const { sampling, response, ...texts } = planned;
  const { sampling: samplingNow, response: responseNow, ...textsNow } = now;
  return [
    ...(JSON.stringify(texts) === JSON.stringify(textsNow) ? [] : ["model.prompt is another text than planned"]),
    ...difference("model.sampling", sampling, samplingNow),
    ...difference("model.response", response ?? null, responseNow ?? null),
  ];
}

function difference(key: string, planned: unknown, requested: unknown): string[] {
  const was = JSON.stringify(planned);
  const is = JSON.stringify(requested);
  return was === is ? [] : [`${key} is ${is}, planned ${was}`];
}

/** Says how a shard differs from its plan; undefined when size and fingerprint are equal. */
export function pinDifference(planned: ListedShard, now: ListedShard): string | undefined {
  if (now.sizeBytes !== planned.sizeBytes) {
    return `it has ${now.sizeBytes} bytes, planned ${planned.sizeBytes}`;
  }
  if (now.fingerprint === planned.fingerprint) {
    return undefined;
  }
  const [timeNow, timePlanned] = [modifiedTime(now), modifiedTime(planned)];
  return timeNow === undefined || timePlanned === undefined
    ? `it has the planned ${planned.sizeBytes} bytes, but is ${now.fingerprint}, planned ${planned.fingerprint}`
    : `it has the planned ${planned.sizeBytes} bytes, but was modified ${timeNow}, planned ${timePlanned}`;
}

/** How a file is put back that differs from its plan. On disk its time decides: its bytes are not compared. */
export function restoreHint({ fingerprint }: Pick<ListedShard, "fingerprint">): string {
  return modifiedTime({ fingerprint }) === undefined
    ? "restore what was planned and run again"
    : "restore the planned file with its modification time (cp -p), and run again";
}

/**
 * The command that gives a file its planned time again, and when it helps; undefined if more than the time differs.
 * @param path the file, as a command names it
 */
export function touchHint(
  planned: ListedShard & { readonly sha256?: string | undefined },
  now: ListedShard,
  path: string,
): string | undefined {
  const time = modifiedTime(planned);
  if (time === undefined || now.sizeBytes !== planned.sizeBytes) {
    return undefined;
  }
  const same =
    planned.sha256 === undefined
      ? "if its content has not changed"
      : `if \`sha256sum\` still prints ${shortDigest(planned.sha256)}`;
  return `${same}, set its planned time again: touch -c -d ${time} ${shellWord(path)}`;
}

/** The time in a fingerprint, in RFC 3339 with nanoseconds, for `touch -d`; undefined for an ETag. */
function modifiedTime({ fingerprint }: Pick<ListedShard, "fingerprint">): string | undefined {
  const [, digits] = /^mtime:(\d{10,19})$/.exec(fingerprint) ?? [];
  if (digits === undefined) {
    return undefined;
  }
  const [seconds, nanoseconds] = [digits.slice(0, -9), digits.slice(-9)];
  const fraction = nanoseconds.replace(/0+$/, "");
  return `${new Date(Number(seconds) * 1000).toISOString().slice(0, 19)}${fraction === "" ? "" : `.${fraction}`}Z`;
}
