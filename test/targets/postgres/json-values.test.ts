import { expect, test } from "vitest";
import { pgTypeOf } from "#src/targets/postgres/table.js";
import { unfitRows } from "#src/targets/postgres/unfit-values.js";
import { usePostgres } from "../../support/postgres.js";

const postgres = usePostgres();

const texts = [
  '{"a": [1, 2.5e3, null, true, "ü"]}',
  " 7 ",
  '"\\u0041 \\ud83d\\ude00"',
  '"\\\\u0000 is a text"',
  '"\\u0000"',
  '{"a\\u0000": 1}',
  '"\\\\\\u0000"',
  '"\\ud83d"',
  '"\\ude00\\ud83d"',
  "",
  "{",
  "NaN",
  "[1,]",
  "'a'",
  "tru",
  '{"a": 1} x',
  '"a\nb"',
  "\ufeff1",
  "01",
];

postgres.describe("a text for a JSON column", () => {
  test.each(["json", "jsonb"] as const)(
    "a text for a JSON column is a bad row where the server would refuse it: %s",
    async (name) => {
      await using database = await postgres.server().createDatabase();
      const parts = texts.map((text) => Buffer.from(text));
      const offsets = new Uint32Array(texts.length + 1);
      for (const [index, part] of parts.entries()) {
        offsets[index + 1] = (offsets[index] ?? 0) + part.length;
      }
      const column = { kind: "bytes", offsets, bytes: Buffer.concat(parts), valid: undefined } as const;
      const type = { ...pgTypeOf("utf8"), name, notNull: false };
      const rows = { rowCount: texts.length, columns: [{ name: "doc", type: "utf8", column } as const] };
      const unfit = unfitRows(rows, [{ type }]).map(({ row }) => texts[row]);

      const refused: string[] = [];
      for (const text of texts) {
        await database.query(`SELECT $1::${name}`, [text]).catch(() => refused.push(text));
      }
      expect(refused.length).toBeGreaterThan(8);
      expect(unfit).toEqual(refused);
    },
  );
});
