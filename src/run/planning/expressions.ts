import { textsOf } from "../../binding/bind-contract.js";
import { type Expression, type Expressions, folderColumns } from "../../binding/contract.js";
import type { SourceColumn } from "../../columnar/types.js";
import type { BoundExpression, Decoder } from "../../formats/port.js";
import { JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import { partitionsOf } from "../../plan/partitions.js";
import { atKey, type ScoringContext, type ShardFiles } from "../../scoring/context.js";

export interface ShardColumns {
  readonly shard: ListedShard;
  readonly columns: readonly SourceColumn[];
}

/**
 * Binds `input.where` and `input.columns` to a shard's columns. A computed column replaces the shard's column of the
 * same name; expressions use the shard's column.
 * @throws JobError SPEC_INVALID with the place of the expression in the spec
 */
export async function bindExpressions(
  context: Pick<ScoringContext, "spec" | "where"> & { readonly source: ShardFiles },
  decoder: Decoder,
  seen: ShardColumns | undefined,
): Promise<{ columns: readonly SourceColumn[]; expressions: Expressions | null }> {
  const { columns, where } = context.spec.input;
  const texts = promptTexts(context.spec, seen);
  if (seen === undefined || (where === undefined && Object.keys(columns).length + texts.length === 0)) {
    return { columns: seen?.columns ?? [], expressions: null };
  }
  await using file = await context.source.open(seen.shard);
  const bind = async (text: string, check: (bound: BoundExpression) => void): Promise<BoundExpression> => {
    const partitions = partitionsOf(seen.shard.uri);
    const bound = await decoder.bindExpression({ file, text, columns: seen.columns, partitions });
    check(bound);
    return bound;
  };
  const list: Expression[] = [];
  const computed: SourceColumn[] = [];
  if (where !== undefined) {
    const { uses } = await atKey(context, ["input", "where"], () => bind(where, requireBoolean));
    list.push({ kind: "where", name: "input.where", text: where, uses });
  }
  for (const [name, text] of Object.entries(columns)) {
    const { uses, sourceType, type } = await atKey(context, ["input", "columns", name], () => bind(text, requireType));
    list.push({ kind: "column", name, text, uses });
    computed.push({ name, sourceType: `${sourceType}, from input.columns`, type, computed: true });
  }
  for (const [name, text] of texts) {
    const { uses } = await bind(text, requireType);
    list.push({ kind: "column", name, text, uses });
    computed.push({ name, sourceType: "VARCHAR", type: "utf8", computed: true });
  }
  const used = new Set(list.flatMap(({ uses }) => uses));
  return {
    columns: overlay(seen.columns, computed),
    expressions: { list, folders: folderColumns(seen.columns.filter(({ name }) => used.has(name))) },
  };
}

/** The texts of columns that a prompt names and that are no texts; expressions use the shard's columns only. */
function promptTexts(
  { input: { columns }, model: { prompt, inputs = {} } }: ScoringContext["spec"],
  seen: ShardColumns | undefined,
): [name: string, sql: string][] {
  const own = new Set(Object.keys(columns).map((name) => name.toLowerCase()));
  const names = Object.keys(inputs).filter((name) => !own.has(name.toLowerCase()));
  return prompt === undefined || seen === undefined ? [] : textsOf(names, seen.columns);
}

function requireBoolean({ sourceType, type }: BoundExpression): void {
  if (type !== "bool") {
    throw new JobError("SPEC_INVALID", `binding the row filter: it gives ${sourceType}, expected BOOLEAN`, {
      hint: "write a condition, such as amount is not null",
    });
  }
}

function requireType({ sourceType, type }: BoundExpression): void {
  if (type === undefined) {
    throw new JobError("SPEC_INVALID", `binding a computed column: it gives ${sourceType}, which is not supported`, {
      hint: "cast it, such as (…)::BIGINT or (…)::DOUBLE",
    });
  }
}

function overlay(columns: readonly SourceColumn[], computed: readonly SourceColumn[]): SourceColumn[] {
  const byName = new Map(computed.map((column) => [column.name.toLowerCase(), column]));
  const placed = columns.map((column) => {
    const over = byName.get(column.name.toLowerCase());
    byName.delete(column.name.toLowerCase());
    return over ?? column;
  });
  return [...placed, ...byName.values()];
}
