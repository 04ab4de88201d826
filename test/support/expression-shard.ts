import { join } from "node:path";
import { expect } from "vitest";
import type { SourceColumn } from "#src/columns/types.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import type { Decoder } from "#src/formats/format.js";
import { refusalOf } from "./faulty.js";
import { scratchFolder } from "./job.js";
import { writeRows } from "./parquet.js";

const shard = `SELECT 7::BIGINT AS id, 0.5::DOUBLE AS x, 'a' AS name, DATE '2026-01-31' AS d,
  TIMESTAMP '2026-01-31 12:00' AS ts, [1, 2] AS l, {'a': 1, 'filename': 'f'} AS s, '{"k": 1}' AS js,
  '10:00:00+00'::TIMETZ AS tz, [{'t': '10:00:00+00'::TIMETZ}] AS tzs, 1 AS "Mixed Case", 2 AS "order",
  NULL::DECIMAL(9,2) AS amount, MAP {'k': 1} AS tags`;

/** A shard of one row beside an unreadable shard, and how expressions over it end. */
export interface ExpressionShard extends AsyncDisposable {
  readonly path: string;
  readonly decoder: Decoder;
  readonly columns: readonly SourceColumn[];
  bind(text: string): ReturnType<Decoder["bindExpression"]>;
  /** Exit code, code, message and hint without the file's folder. */
  refusedAs(text: string): Promise<string>;
  /** What is found wrong with each of some expressions, a line each; they share code and hint. */
  expectFindings(cases: readonly (readonly [text: string, finding: string])[]): Promise<void>;
}

export async function openExpressionShard(): Promise<ExpressionShard> {
  const scratch = await scratchFolder();
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, shard);
  await writeRows(join(scratch.path, "other.parquet"), "SELECT 1 AS secret");
  const decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "Europe/Berlin" });
  const columns: SourceColumn[] = [{ name: "dt", sourceType: "DATE", type: "date32", partition: true }];
  for await (const { schema } of decoder.footers([{ path, name: path }])) {
    columns.unshift(...schema.columns);
  }
  const bind = (text: string): ReturnType<Decoder["bindExpression"]> =>
    decoder.bindExpression({ file: { path, name: path }, text, columns, partitions: new Map([["dt", "2026-01-31"]]) });
  const refusedAs = async (text: string): Promise<string> =>
    (await refusalOf(bind(text))).replaceAll(scratch.path, "<folder>");
  return {
    path,
    decoder,
    columns,
    bind,
    refusedAs,
    async expectFindings(cases) {
      for (const [text, finding] of cases) {
        const said = await refusedAs(text);
        expect(said, text).toMatch(/^64 SPEC_INVALID\n(checking|binding) the expression .*\nhint: \w/);
        const message = said.slice(said.indexOf(" the expression ") + 16, said.lastIndexOf("\nhint: "));
        const shown = text.replaceAll("\0", "␀");
        const about = shown.length > 57 ? `${shown.slice(0, 57)}…` : shown;
        expect(message).toBe(`${about}: ${finding}`);
      }
    },
    async [Symbol.asyncDispose]() {
      await decoder[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}
